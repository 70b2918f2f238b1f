# SPDX-License-Identifier: ISC
# What the tests of job scripts share; they skip where no Slurm is installed.
# SLURM_TOOLS: a directory with slurm-up and slurm-down.  "slurm-up DIR NODES"
# starts a Slurm whose files are in DIR and prints shell commands that make it
# the one of sbatch and squeue, or ends with 77 if none is installed;
# "slurm-down DIR" stops it.
ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
DEMO=$ROOT/demo/qwen3-tiny
SLURM_TOOLS=${SLURM_TOOLS:-$ROOT/../shared/slurm}

# slurm_up: a Slurm of this file's own, and its directory to work in.
slurm_up() {
    local status=0 env
    [ -x "$SLURM_TOOLS/slurm-up" ] || skip "no slurm-up and slurm-down in SLURM_TOOLS, $SLURM_TOOLS"
    env=$("$SLURM_TOOLS/slurm-up" "$BATS_FILE_TMPDIR/slurm" 2) || status=$?
    [ "$status" -ne 77 ] || skip "Slurm is not installed"
    [ "$status" -eq 0 ]
    eval "$env"
    cd "$BATS_FILE_TMPDIR"
}

teardown_file() {
    [ ! -x "$SLURM_TOOLS/slurm-down" ] || "$SLURM_TOOLS/slurm-down" "$BATS_FILE_TMPDIR/slurm"
}

setup() {
    mkdir -p "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cd "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
}

# gone JOB: waits until Slurm has no more of it.
gone() {
    for _ in $(seq 1200); do
        [ -n "$(squeue -h -j "$1" 2>/dev/null)" ] || return 0
        sleep 0.1
    done
    return 1
}

# until_under_way LEAST MOST COMMAND...: waits until COMMAND counts LEAST; when
# it counts more than MOST, that was too late.
until_under_way() {
    local least=$1 most=$2 n
    shift 2
    for _ in $(seq 1200); do
        n=$("$@")
        [ "$n" -lt "$least" ] || break
        sleep 0.02
    done
    [ "$n" -ge "$least" ]
    [ "$n" -le "$most" ]
}
