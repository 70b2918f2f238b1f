# SPDX-License-Identifier: ISC
# moe-sft tune in several processes, by what `make MPI=1` builds: the bytes of
# one process.  Skipped where no MPI is installed.
load helpers
NEEDS=moe-sft

# without_mpi: why there is nothing to test.
without_mpi() {
    [[ ${LEFT_OUT-} != *moe-sft* ]] || { echo "moe-sft was left out"; return; }
    command -v mpirun >/dev/null || { echo "no mpirun here"; return; }
    [ -n "$(sh "$ROOT/scripts/mpi.sh" libs 2>/dev/null)" ] || { echo "no MPI to build with"; return; }
    [[ $BUILD != */*san ]] || { echo "sanitized: MPI's own leaks"; return; }
}

setup_file() {
    [ -z "$(without_mpi)" ] || return 0
    make -s -C "$ROOT" B="${BUILD#"$ROOT"/}" MPI=1
    # 23 examples, of which some have no target
    py - >"$BATS_FILE_TMPDIR/ids.jsonl" <<'END_OF_PYTHON'
import json, random
random.seed(2)
for i in range(23):
    ids = [random.randrange(1000) for _ in range(random.randint(2, 24))]
    print(json.dumps({"ids": ids, "labels": ids if i % 5 or not i else [-100] * (len(ids) - 1) + [ids[-1]]}))
END_OF_PYTHON
}

setup() {
    local why
    why=$(without_mpi)
    [ -z "$why" ] || skip "$why"
    cd "$BATS_TEST_TMPDIR" || return
    cp "$BATS_FILE_TMPDIR/ids.jsonl" .
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
MPIRUN=(mpirun)
[[ $(mpirun --version 2>&1) != *"Open MPI"* ]] || MPIRUN+=(-q --oversubscribe)

# tune DIR [OPTION...]: without MPI.  ranks N DIR [OPTION...]: with it.
args=(-d ids.jsonl --rank 4 --lr 3e-3 -j 1)
tune() { moe-sft tune -m "$DEMO" "${args[@]}" -o "$@"; }
ranks() { "${MPIRUN[@]}" -n "$1" "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -o "${@:2}" </dev/null 3>&-; }

# start N DIR [OPTION...]: in the background, with messages in 'said'; sets pid,
# of mpirun, when the log has 8 lines.
start() {
    "${MPIRUN[@]}" -n "$1" "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -o "${@:2}" </dev/null 2>said 3>&- &
    pid=$!
    until [ -e "$2/log.tsv" ] && [ "$(wc -l <"$2/log.tsv")" -ge 8 ]; do
        kill -0 $pid
        sleep 0.02
    done
}

# ranks_of PID: the processes that mpirun has started.
ranks_of() {
    local p
    for p in $(pgrep -P "$1"); do
        if [ "$(cat "/proc/$p/comm")" = moe-sft ]; then echo "$p"; else ranks_of "$p"; fi
    done
}

# bats test_tags=long
@test "moe-sft tune: adapter, state and log have the same bytes from 1 to 4 ranks, and without MPI" {
    how=(-n 7 --batch 7 --eval ids.jsonl --eval-every 3 --keep-best --pack --ctx 40)
    tune want "${how[@]}"
    "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -o alone "${how[@]}"
    diff -r want alone
    for n in 1 2 3 4; do
        ranks $n $n "${how[@]}"
        diff -r want $n
    done
}

# bats test_tags=long
@test "moe-sft tune: so they have in f32 with few slices, and with more than sequences" {
    for how in "--slices 3 --batch 10 --accumulate 2" "--slices 64 --batch 3 --shuffle"; do
        rm -rf want got
        # shellcheck disable=SC2086
        tune want -n 5 --compute f32 $how
        # shellcheck disable=SC2086
        run -0 ranks 4 got -n 5 --compute f32 $how
        diff -r want got
        [ "$output" = "moe-sft: 4 ranks share 3 slices of a step: some have nothing to do (see --slices, --batch)" ]
    done
    args=(-d ids.jsonl -j 1 --init want --compute f32)
    moe-sft tune -m "$DEMO" "${args[@]}" --grads one
    "${MPIRUN[@]}" -n 3 "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" --grads three </dev/null 3>&-
    cmp one three
}

@test "moe-sft tune: so they have of a model with experts, some of which no token reaches" {
    DEMO=$ROOT/demo/qwen3-moe-tiny
    tune want -n 3 --batch 5
    ranks 3 got -n 3 --batch 5
    diff -r want got
}

# bats test_tags=long
@test "moe-sft tune --resume: of another number of ranks, to the same bytes" {
    tune want -n 9 --batch 5
    ranks 3 run -n 2 --batch 5
    ranks 2 run -n 5 --resume
    tune run -n 7 --resume
    ranks 4 run -n 9 --resume
    diff -r want run
}

# bats test_tags=long
@test "moe-sft tune: a rank that is killed ends all, and the checkpoint is whole" {
    need_commands pgrep
    tune want -n 60 --save-every 5
    start 3 run -n 60 --save-every 5
    pids=$(ranks_of $pid)
    [ "$(wc -w <<<"$pids")" = 3 ]
    kill -9 "$(tail -n 1 <<<"$pids")"
    status=0
    wait $pid || status=$?
    [ "$status" != 0 ]
    for p in $pids; do
        for _ in $(seq 100); do kill -0 "$p" 2>/dev/null || break; sleep 0.1; done
        run -1 kill -0 "$p"
    done
    st-inspect verify -q run/adapter_model.safetensors run/state.safetensors
    ranks 2 run --resume
    diff -r want run
}

# bats test_tags=long
@test "moe-sft tune: a signal or deadline stops all ranks after the same step, 75" {
    need_commands pgrep
    tune want -n 60
    start 3 run -n 60
    kill -USR1 "$(ranks_of $pid | tail -n 1)" # one of them
    status=0
    wait $pid || status=$?
    [ "$status" = 75 ]
    grep -qE '^moe-sft: stopped by SIGUSR1: run holds step [0-9]+, --resume continues$' said
    [ "$(grep -c '^moe-sft:' said)" = 1 ]
    run -75 ranks 2 run --resume --deadline 0
    [[ $output == *"moe-sft: stopped by the deadline: "* ]]
    tune run --resume
    diff -r want run
}

# bats test_tags=long
@test "moe-sft tune: ranks that differ end with 65, and the message names one" {
    differ() { # differ STATUS MESSAGE COMMAND..., of the last of three ranks
        run "-$1" --separate-stderr "${MPIRUN[@]}" -n 2 "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -n 2 -o run \
            : -n 1 "${@:3}" -j 1 --rank 4 -n 2 -o run </dev/null
        # shellcheck disable=SC2053
        [[ $(grep '^moe-sft:' <<<"$stderr") == "moe-sft: rank 2 ("*"): "$2 ]]
        [ ! -e run ]
    }
    sft=$BUILD/mpi/moe-sft
    differ 65 '--lr is "0.004" (rank 0: "0.003")' "$sft" tune -m "$DEMO" -d ids.jsonl --lr 4e-3
    differ 65 '--slices is "4" (rank 0: "8")' "$sft" tune -m "$DEMO" -d ids.jsonl --lr 3e-3 --slices 4
    head -n 22 ids.jsonl >other
    differ 65 'data is "*" (rank 0: "*")' "$sft" tune -m "$DEMO" -d other --lr 3e-3
    cp -r "$DEMO" m
    sed -i 's/"rms_norm_eps": *[0-9.e-]*/"rms_norm_eps": 1e-3/' m/config.json
    differ 65 'base is "*" (rank 0: "*")' "$sft" tune -m m -d ids.jsonl --lr 3e-3
    rm -r m # other weights alone
    cp -rL "$DEMO" m
    printf '\1' | dd of=m/model.safetensors bs=1 seek=$(($(stat -c %s m/model.safetensors) - 1)) conv=notrunc status=none
    differ 65 'base is "*" (rank 0: "*")' "$sft" tune -m m -d ids.jsonl --lr 3e-3
    differ 65 'run is "--dry-run" (rank 0: "steps")' "$sft" tune -m "$DEMO" -d ids.jsonl --lr 3e-3 --dry-run
    differ 66 'nothing: No such file or directory' "$sft" tune -m "$DEMO" -d nothing --lr 3e-3
    # what goes wrong everywhere is said once
    args=(-d nothing)
    run -66 --separate-stderr ranks 3 run
    [ "$(grep '^moe-sft:' <<<"$stderr")" = "moe-sft: nothing: No such file or directory" ]
    args=(-d -)
    run -2 --separate-stderr ranks 2 run
    [ "$(grep '^moe-sft:' <<<"$stderr")" = "moe-sft: standard input is that of one process, and not of 2: name a file" ]
    mkfifo pipe
    for how in "-d pipe" "-d ids.jsonl --eval pipe"; do
        # shellcheck disable=SC2206 # words
        args=($how)
        run -2 --separate-stderr timeout -k 1 60 "${MPIRUN[@]}" -n 2 "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -o run </dev/null 3>&-
        [ "$(grep '^moe-sft:' <<<"$stderr")" = "moe-sft: pipe is that of one process, and not of 2: name a file" ]
    done
    [ ! -e run ]
}

# bats test_tags=long
@test "moe-sft tune: ranks have the same instruction set in bf16; in f32 they need not" {
    isa=scalar
    [ "${TU_ISA-}" != scalar ] || isa=avx2
    has_isa $isa || skip "no $isa here"
    mixed() {
        "${MPIRUN[@]}" -n 1 "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -o run -n 2 "$@" \
            : -n 1 env TU_ISA=$isa "$BUILD/mpi/moe-sft" tune -m "$DEMO" "${args[@]}" -o run -n 2 "$@" </dev/null 3>&-
    }
    mixed --compute f32
    tune want -n 2 --compute f32
    diff -r want run
    rm -r run
    [[ $(moe-sft tune -v -m "$DEMO" "${args[@]}" -o x -n 1 2>&1) != *", $isa,"* ]] || skip "$isa is the best here"
    run -65 mixed
    [[ $output == *"moe-sft: rank 1 ("*"): arithmetic is \"$isa, "*"\" (rank 0: \""* ]]
    [ ! -e run ]
}

@test "moe-sft tune: rank 0 alone prints; --dry-run has the memory of an exchange" {
    run -0 --separate-stderr ranks 3 run -n 3 -v --log-every 1
    [ "$output" = "$(cat run/log.tsv)" ]
    [ "$(grep -c '^moe-sft:' <<<"$stderr")" = 4 ]
    [[ $stderr == *", 3 processes, 1 thread; "* ]]
    run -0 --separate-stderr ranks 3 no --dry-run
    [ "$(grep -cx $'slices\t8' <<<"$output")" = 1 ]
    [ "$(grep -cx $'ranks\t3' <<<"$output")" = 1 ]
    [ "$(grep -c $'^memory: exchange with other ranks\t' <<<"$output")" = 1 ]
    [ ! -e no ]
}
