# SPDX-License-Identifier: ISC
# jobs/tune.sh on a real Slurm: `make check-slurm`.  With several tasks
# where MPI is there.
bats_require_minimum_version 1.5.0

load helpers
STEPS=400

setup_file() {
    slurm_up
    "$PYTHON" - <<'END_OF_PYTHON'
import json, random
random.seed(2)
with open("ids.jsonl", "w") as f:
    for i in range(23):
        ids = [random.randrange(1000) for _ in range(random.randint(2, 24))]
        f.write(json.dumps({"ids": ids, "labels": ids}) + "\n")
END_OF_PYTHON
    # the run without Slurm, without a stop
    moe-sft tune -m "$DEMO" -d ids.jsonl -o want -n "$STEPS" --rank 4 -j 1 --schedule cosine
}

setup() {
    mkdir -p "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cd "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cp ../ids.jsonl .
}

# submit [SBATCH OPTION...]: sets job.
submit() {
    job=$("$ROOT/jobs/tune.sh" -c1 "$@" -- -m "$DEMO" -d ids.jsonl -o run -n "$STEPS" --rank 4 -j 1 \
        --schedule cosine --save-every 20)
}

n_lines() {
    cat run/log.tsv 2>/dev/null | wc -l
}

# stops_and_continues: USR1 once it is under way.
stops_and_continues() {
    until_under_way 30 "$STEPS" n_lines
    scancel -b -s USR1 "$job"
    gone "$job"
    cat tune-*.log
    diff -r ../want run
    grep -q 'stopped by SIGUSR1: run holds step' "tune-$job.log"
    grep -q 'moe-sft tune: status 75' "tune-$job.log"
    # the second run begins behind the first
    [ "$(grep -c 'from step 0 on' "tune-$job.log")" = 1 ]
    [ "$(grep -c 'from step [1-9][0-9]* on' "tune-$job.log")" = 1 ]
}

@test "slurm: a tune job that gets USR1 is requeued, and continues to the same bits" {
    submit -n1
    stops_and_continues
}

@test "slurm: so does one of several ranks" {
    command -v mpirun >/dev/null && [ -n "$(sh "$ROOT/scripts/mpi.sh" libs)" ] || skip "no MPI here"
    make -s -C "$ROOT" B="${BUILD#"$ROOT"/}" MPI=1
    export TU_BIN=$BUILD/mpi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export LAUNCH='mpirun -q --oversubscribe'
    submit -N2 -n3
    stops_and_continues
    [ "$(grep -c ', 3 processes, ' "tune-$job.log")" = 2 ]
}

@test "slurm: a tune job that is killed with -9 continues when it is submitted again" {
    submit -n1
    until_under_way 30 "$STEPS" n_lines
    scancel -s KILL -f "$job"
    gone "$job"
    st-inspect verify -q run/adapter_model.safetensors run/state.safetensors
    submit -n1
    gone "$job"
    cat tune-*.log
    diff -r ../want run
}
