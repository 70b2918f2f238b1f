# SPDX-License-Identifier: ISC
# jobs/moe-train.sh on a real Slurm: `make check-slurm`.
bats_require_minimum_version 1.5.0

load helpers
STEPS=1500

setup_file() {
    slurm_up
    "$PYTHON" "$ROOT/test/ref/moe_train.py" make . qlen=64
    # the run without Slurm, without a stop
    moe-sft train -b base.safetensors -l student.safetensors -o want -n "$STEPS" \
        --schedule cosine --save-every 50 b?.safetensors >want.tsv
}

setup() {
    mkdir -p "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cd "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cp ../*.safetensors .
}

# submit: sets job.
submit() {
    job=$("$ROOT/jobs/moe-train.sh" -n1 -c1 -- -b base.safetensors -l student.safetensors \
        -o run -n "$STEPS" --schedule cosine --save-every 50 --log log.tsv b?.safetensors)
}

n_lines() {
    cat log.tsv 2>/dev/null | wc -l
}

same_run() {
    cat moe-train-*.log
    cmp ../want.tsv log.tsv
    diff -r ../want run
}

@test "slurm: a job that gets USR1 is requeued, and continues to the same bits" {
    submit
    until_under_way 2 "$STEPS" n_lines # a checkpoint is there, not the last
    scancel -b -s USR1 "$job"
    gone "$job"
    same_run
    grep -q 'stopped by SIGUSR1: run holds step' "moe-train-$job.log"
    grep -q 'moe-sft train: status 75' "moe-train-$job.log"
    # the second run begins behind the first
    [ "$(grep -c 'from step 0 on' "moe-train-$job.log")" = 1 ]
    [ "$(grep -c 'from step [1-9][0-9]* on' "moe-train-$job.log")" = 1 ]
}

@test "slurm: a job that is killed with -9 continues when it is submitted again" {
    submit
    until_under_way 2 "$STEPS" n_lines # a checkpoint is there, not the last
    scancel -s KILL -f "$job"
    gone "$job"
    st-inspect verify -q run/lora.safetensors run/state.safetensors
    [ ! -e run/lora.safetensors ] || ! cmp -s run/lora.safetensors ../want/lora.safetensors
    submit
    gone "$job"
    same_run
}
