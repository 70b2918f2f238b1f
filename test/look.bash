# SPDX-License-Identifier: ISC
# sae-look's tests: RUNs that test/ref/look_ref.py makes, numpy alone, once for
# a file.

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/* .
}

ref() {
    py "$ROOT/test/ref/look_ref.py" "$@"
}
