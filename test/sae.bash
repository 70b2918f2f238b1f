# SPDX-License-Identifier: ISC
# sae-train's files: sae0, 64 latents of 32 dimensions, and rows.npy, 5200 rows
# for it, both random.

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    ref init 64 32 1 sae0
    ref rows 5200 32 2 rows.npy
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    ln -s "$BATS_FILE_TMPDIR"/* .
}

ref() {
    py "$ROOT/test/ref/sae_ref.py" "$@"
}

# train DIR [OPTION...]: 64 latents on rows.npy, once, unless IN names others.
train() {
    [[ " $* " == *" -n "* || " $* " == *" --epochs "* || " $* " == *" --resume "* ]] || set -- "$@" --epochs 1
    # shellcheck disable=SC2086
    sae-train -o "$1" -k "${K-4}" --latents "${N-64}" --batch "${BATCH-256}" --log-every 1 "${@:2}" ${IN-rows.npy}
}

# same DIR DIR: all files have the same bytes.
same() {
    [ "$(ls -A "$1")" = "$(printf '%s\n' cfg.json log.tsv sae.safetensors state.safetensors)" ]
    diff -r "$1" "$2"
}
