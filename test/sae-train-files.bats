# SPDX-License-Identifier: ISC
# sae-train: the files of a run: what is kept, what is replaced, what is refused.
load helpers
load sae

@test "sae-train --resume: a state that is mostly a hole is refused before memory is taken for it" {
    train run -n 3
    py - <<'EOF'
import json
d = open("run/state.safetensors", "rb").read()
n = int.from_bytes(d[:8], "little")
h = json.loads(d[8:8 + n])
at = 400_000_000 * 64 # bytes of records
h["steps"].update(shape=[400_000_000, 8], data_offsets=[0, at])
for t in sorted((v for k, v in h.items() if k not in ("steps", "__metadata__")), key=lambda v: v["data_offsets"]):
    begin, end = t["data_offsets"]
    t["data_offsets"] = [at, at + end - begin]
    at += end - begin
h["__metadata__"]["step"] = "400000000"
j = json.dumps(h).encode()
with open("run/state.safetensors", "wb") as f:
    f.write(len(j).to_bytes(8, "little") + j)
    f.truncate(8 + len(j) + at)
EOF
    run -65 --separate-stderr timeout 20 sae-train -o run --resume rows.npy
    [[ $stderr == "sae-train: run/state.safetensors: has 256000"*" bytes, but only "*" of them were written" ]]
}

@test "sae-train: a link in the place of a run's file is not written through" {
    train want -n 4 --decay 0
    for how in --resume -f; do
        for f in log.tsv state.safetensors cfg.json sae.safetensors; do
            rm -rf run
            train run -n 2 --decay 0
            cp run/$f victim
            ln -sf ../victim run/$f
            [[ $how$f != --resumelog.tsv ]] || echo mine >victim
            cp victim kept
            if grep -q mine victim; then
                run -73 train run -n 4 --decay 0 $how
            else
                train run -n 4 --decay 0 $how
                same want run
                [ ! -L run/$f ]
            fi
            cmp victim kept
        done
    done
}

@test "sae-train --svg: of several SAEs a name in each directory, and never one of the run's files" {
    for o in "--svg run/log.tsv" "--sae a:k=2 --svg cfg.json" "--sae a:k=2 --svg x/y.svg" "--sae a:k=2 --svg ../y.svg"; do
        # shellcheck disable=SC2086
        run -2 train run $o
        [ ! -e run/log.tsv ]
        [ ! -e run/a/log.tsv ]
    done
    run -2 train ""
    train run --sae a:k=2 --svg x.svg
    [ "$(tail -n 1 run/a/x.svg)" = "</svg>" ]
}

@test "sae-train: a directory that exists is 73, and with --force a new run" {
    train run -n 2
    cp -r run kept
    run -73 --separate-stderr train run -n 3
    [ "$stderr" = "sae-train: run/state.safetensors: exists already (--resume continues its run, --force starts a new one)" ]
    diff -r run kept
    train run -n 3 -f
    train want -n 3
    same want run
}

@test "sae-train --force: what it replaces stays until the new one is whole" {
    py -c 'import numpy as np
x = np.load("rows.npy")[:1024]
for name, row in ("first", 3), ("later", 600):
    y = x.copy()
    y[row, 1] = np.nan
    np.save(name + ".npy", y)'
    train run -n 3 --svg x.svg
    cp -r run kept
    cp x.svg kept.svg
    IN=first.npy run -65 train run -f --svg x.svg
    IN=none.npy run -66 train run -f --svg x.svg
    run -2 train run -f --svg x.svg --k 65
    for s in 1 10 60; do # 143: this machine is so busy that it had not begun
        run timeout --preserve-status $s sae-train -o run -f --latents 64 --svg x.svg --dim 32 -q < <(exec sleep 99 3>&-)
        [ $status = 143 ] || break
    done
    [ $status = 75 ]
    [ "$output" = "sae-train: stopped by SIGTERM: run is as it was, run it again" ]
    diff -r run kept
    cmp x.svg kept.svg
    # two steps of another run: its state and its log, and still the old SAE
    IN=later.npy K=5 run -65 train run -f -n 20
    for f in cfg.json sae.safetensors; do cmp run/$f kept/$f; done
    [ "$(wc -l <run/log.tsv)" = 3 ]
    run -0 --separate-stderr sae-train info -l run
    [[ $stderr == "sae-train: run/state.safetensors: its run has not ended: the SAE "* ]]
    K=5 train run --resume
    K=5 train want -n 20
    same want run
    # an SAE of another form has not two files of weights
    train run -n 3 -f --format saelens
    [ "$(echo run/sae*)" = run/sae_weights.safetensors ]
}

@test "sae-train -o: directories above it are made, and removed again where nothing comes of it" {
    train a/b/c -n 1
    train want -n 1
    same want a/b/c
    IN=none.npy run -66 train no/new -n 1
    py -c 'import numpy as np
np.save("nan.npy", np.load("rows.npy") * np.nan)'
    IN=nan.npy run -65 train no/new --sae x:k=2 --sae y:k=3
    [ ! -e no ]
}

@test "sae-train: a full disk is a line and 74, and nothing there looks finished" {
    small_disk 48k
    run -74 --separate-stderr train disk/run -n 3 -q
    [[ $stderr == "sae-train: disk/run"*"No space left on device" ]] || { echo "$stderr"; false; }
    [ "${#stderr_lines[@]}" = 1 ]
    [ ! -e disk/run/sae.safetensors ]
    train run -n 3
    run -74 --separate-stderr bash -c 'sae-train info run >/dev/full'
    [ "${#stderr_lines[@]}" = 1 ]
}

@test "sae-train: arrays that follow each other on a stream are one, also to eval and after a stop" {
    py -c 'import numpy as np
x = np.random.default_rng(1).normal(size=(750, 16)).astype("f4")
np.save("x.npy", x)
for i in range(3):
    np.save("x%d.npy" % i, x[250 * i:250 * i + 250])
np.save("narrow.npy", x[:, :8])
np.save("half.npy", x.astype("f2"))'
    of=(-q -k 4 --latents 32 --batch 100 --warmup 1 --decay 0)
    sae-train "${of[@]}" --epochs 1 -o want x.npy
    cat x?.npy | sae-train "${of[@]}" -o all
    cmp want/log.tsv all/log.tsv
    cmp want/sae.safetensors all/sae.safetensors
    cat x?.npy >all.npy
    sae-train "${of[@]}" -o file <all.npy
    diff -r all file
    run -65 sae-train "${of[@]}" -o operand all.npy
    # the steps of the first array are not those of all
    diff <(sae-train info want | grep -v '_in_all\|want/') <(sae-train info all | grep -v all/)
    cat x0.npy x1.npy | sae-train "${of[@]}" -o cut
    cat x?.npy | sae-train "${of[@]}" -o cut --resume
    cmp want/sae.safetensors cut/sae.safetensors
    cat x?.npy | sae-train "${of[@]}" -o n -n 7
    cmp want/sae.safetensors n/sae.safetensors
    cmp <(cat x?.npy | sae-train eval -q -s want) <(sae-train eval -q -s want x.npy)
    run -0 --separate-stderr bash -c 'cat x?.npy | sae-train "${@:2}" --epochs 1 --decay 0.2 -o falls' - "${of[@]}"
    [[ $stderr == "sae-train: more arrays follow the first, whose rows end at step 2: "* ]]
    for next in "narrow F32 [.., 8]" "half F16 [.., 16]"; do
        for to in "-f -k 4 --latents 32 --batch 100 -o other" "eval -s want"; do
            # shellcheck disable=SC2086 # words
            run -65 --separate-stderr sae-train -q $to < <(cat x0.npy "${next%% *}.npy")
            [ "$stderr" = "sae-train: standard input: an array of ${next#* } follows (expected F32 [.., 16], as before)" ]
        done
    done
    run -65 --separate-stderr sae-train -q -f -k 4 --latents 32 -o other < <(cat x0.npy; echo junk)
    [ "$stderr" = "sae-train: standard input: more data (expected 250 rows by its header)" ]
    [ ! -e other/sae.safetensors ]
}

@test "sae-train --resume: a log of a run that was killed before its first state is its own" {
    train want -n 2
    mkdir run
    head -n 1 want/log.tsv >run/log.tsv
    train run -n 2 --resume
    cmp want/log.tsv run/log.tsv
}

@test "sae-train eval: numbers at an odd address of a file" {
    py "$ROOT/test/ref/sae_files.py" write forms 40 24 3
    py -c 'import sys, numpy as np
np.save("rows.npy", np.random.default_rng(1).normal(size=(20, 24)).astype("f4"))
path = sys.argv[1]
with open(path, "rb") as f:
    text = f.read()
n = int.from_bytes(text[:8], "little")
with open("odd", "wb") as f:
    f.write((n + 1).to_bytes(8, "little") + text[8:8 + n] + b" " + text[8 + n:])' \
        forms/sparsify/*.safetensors
    sae-train eval -s forms/sparsify rows.npy >even
    mv odd forms/sparsify/*.safetensors
    sae-train eval -s forms/sparsify rows.npy >odd
    [ -s odd ]
    cmp even odd
}
