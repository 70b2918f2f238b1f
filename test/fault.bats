# SPDX-License-Identifier: ISC
# Calls of libc that fail: a few of each kind in each tool's runs; `make
# check-faults` is all of them.
# It takes minutes, and waits for most of them.
load helpers
NEEDS=${LEFT_OUT-} # every tool

# faults GLOB: no case of such a name breaks a rule of test/fault/run.c.
faults() {
    [ -e "$BUILD/test/fault/shim.so" ] || skip "no shim in this build"
    JOBS=2 run -0 sh "$ROOT/scripts/faults.sh" -n "${FAULTS:-1}" "$1"
    [[ ${lines[-1]} == "faults: "*" injected, 0 bad" ]]
}

# bats test_tags=long
@test "st-inspect: a call that fails is one line and a status, never an accident" {
    faults 'st-*'
}

# bats test_tags=long
@test "hf-infer: a call that fails is one line and a status, never an accident" {
    faults 'hf-*'
}

# bats test_tags=long
@test "saev-write, saev-read: the same, and no part of a dump" {
    linux_only # elsewhere scratch has a name for a moment, which unlink() may leave
    faults 'saev-*'
}

# bats test_tags=long
@test "saev-write --force: the old dump or the new one, and where it is if nothing can be renamed" {
    FAULTS=2 faults 'saev-force*'
}

# bats test_tags=long
@test "lut-precompute, lut-apply: the same, and no part of a table" {
    faults 'lut-*'
}

# bats test_tags=long
@test "sae-train: the same, and no part of an autoencoder or state" {
    faults 'sae-*'
}

# bats test_tags=long
@test "sae-look: the same, and no part of a RUN" {
    faults 'look-*'
}

# bats test_tags=long
@test "kvc-convert: the same, and no part of a file" {
    faults 'kvc-*'
}

# bats test_tags=long
@test "moe-sft: the same, and no part of an adapter or checkpoint" {
    faults 'moe-*'
}

# bats test_tags=long
@test "st-convert: the same, and no part of a file or model" {
    faults 'sc-*'
}
