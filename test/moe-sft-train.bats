# SPDX-License-Identifier: ISC
# moe-sft train: an adapter that learns, continues where it was stopped,
# and is what torch's AdamW makes of it (test/ref/moe_train.py).
load helpers

ref() {
    "$PYTHON" "$ROOT/test/ref/moe_train.py" "$@"
}

setup_file() {
    ref make "$BATS_FILE_TMPDIR/data" qlen=64
}

# In the middle of the data: ./b0 .. b3.safetensors and what they need.
setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/data/* .
}

# train DIR [OPTION...]: on the four batches, unless others are named.
train() {
    local dir=$1
    shift
    moe-sft train -b base.safetensors -l student.safetensors -o "$dir" "$@"
}

# column N: of a log without its head.
column() {
    tail -n +2 | cut -f "$1"
}

# sound DIR: both files are whole and of one step.
sound() {
    st-inspect verify -q "$1/lora.safetensors" "$1/state.safetensors"
    moe-sft forward -b base.safetensors -l "$1/lora.safetensors" -i b0.safetensors -o out.safetensors -f
    [ -z "$(find "$1" -name '.*' -mindepth 1)" ]
}

@test "moe-sft train: the command line works as written" {
    run -0 --separate-stderr train run -n 20 b?.safetensors
    [ "${lines[0]}" = "$(printf 'step\tloss\tlr\tgrad_norm\ttokens')" ]
    [ "${#lines[@]}" = 21 ]
    [ -z "$stderr" ]
    [ "$(ls run)" = "$(printf 'lora.safetensors\nstate.safetensors')" ]
    sound run
}

@test "moe-sft train: learns what a teacher's adapter does, a fiftieth of the loss is left" {
    train run -n 200 --lr 1e-2 b?.safetensors >log
    # of all four batches
    column 2 <log | awk 'NR <= 4 { first += $1 } NR > 196 { last += $1 } END { exit !(last < first / 50) }'
}

@test "moe-sft train: int8 learns, too" {
    train run -n 100 --lr 1e-2 --mode int8 b?.safetensors >log
    column 2 <log | awk 'NR <= 4 { first += $1 } NR > 96 { last += $1 } END { exit !(last < first / 10) }'
}

# bats test_tags=long
@test "moe-sft train: 20 steps are torch's, with its defaults" {
    need_torch
    train run -n 20 --lr 1e-3 --log log b?.safetensors
    run -0 ref compare run log 20 lr=1e-3 b?.safetensors
}

@test "moe-sft train: 20 steps are torch's, with warm-up, cosine, clipping, decay, accumulation" {
    need_torch
    train run -n 20 --lr 3e-3 --schedule cosine --warmup 0.2 --clip 0.1 --weight-decay 0.3 \
        --betas 0.8,0.95 --eps 1e-6 --accumulate 3 --log log b?.safetensors
    run -0 ref compare run log 20 lr=3e-3 schedule=cosine warmup=4 clip=0.1 wd=0.3 \
        b1=0.8 b2=0.95 eps=1e-6 accumulate=3 b?.safetensors
}

@test "moe-sft train: a linear schedule, warm-up in steps" {
    need_torch
    train run -n 10 --lr 3e-3 --schedule linear --warmup 3 --log log b?.safetensors
    run -0 ref compare run log 10 lr=3e-3 schedule=linear warmup=3 b?.safetensors
}

@test "moe-sft train: a warm-up that the schedule does not get through is a warning" {
    run -0 --separate-stderr train run -n 1 --warmup 3 --log log b0.safetensors
    [ "$stderr" = "moe-sft: 1 step, but --warmup 3: the learning rate does not reach --lr (for so few: --warmup 0)" ]
    run -0 --separate-stderr train more -n 1 --total 4 --warmup 3 --log more.log b0.safetensors
    [ -z "$stderr" ]
}

@test "moe-sft train: batches of other lengths, longer and shorter ones, are torch's" {
    need_torch
    ref make short qlen=1
    ref make long qlen=300
    cmp long/base.safetensors base.safetensors
    files=(short/b0.safetensors b1.safetensors long/b2.safetensors short/b3.safetensors)
    train run -n 8 --lr 1e-3 --log log "${files[@]}"
    [ "$(column 5 <log | tr '\n' ' ')" = "1 64 300 1 1 64 300 1 " ]
    run -0 ref compare run log 8 lr=1e-3 "${files[@]}"
}

@test "moe-sft train: 10 and 10 more are 20 steps, bit for bit, whatever the threads" {
    common=(--lr 3e-3 --clip 0.1 --accumulate 2 --shuffle --seed 5)
    for how in "--schedule constant" "--schedule cosine --total 20 --warmup 0.1"; do
        rm -rf one two
        # shellcheck disable=SC2086
        train one -n 20 "${common[@]}" $how -j 1 b?.safetensors >log.one
        # shellcheck disable=SC2086
        train two -n 10 "${common[@]}" $how -j 3 b?.safetensors >log.two
        # shellcheck disable=SC2086
        train two -n 20 "${common[@]}" $how -j 2 --resume b?.safetensors | tail -n +2 >>log.two
        cmp log.one log.two
        cmp one/lora.safetensors two/lora.safetensors
        cmp one/state.safetensors two/state.safetensors
    done
}

@test "moe-sft train: a run of other instructions is continued only with --any-isa" {
    [ "${TU_ISA-}" != scalar ] || unset TU_ISA # what else there is
    now=$(train seen -v -n 1 b0.safetensors 2>&1 >/dev/null | grep -o 'avx[a-z0-9]*\|amx\|neon' | head -n 1) || skip "scalar is all there is"
    scalar() { TU_ISA=scalar train "$@"; }
    scalar run -n 3 b?.safetensors >/dev/null
    cp -r run old
    run -65 --separate-stderr train run -n 6 --resume b?.safetensors
    [ "$stderr" = "moe-sft: run/state.safetensors: was made with scalar, 8 lanes, which gives other bits than $now, 8 lanes (TU_ISA selects instructions that the CPU has; --any-isa continues)" ]
    cp -r run silent
    run -0 --separate-stderr train run -n 6 --resume --any-isa b?.safetensors
    [ "$stderr" = "moe-sft: run/state.safetensors: was made with scalar, 8 lanes and continues with $now, 8 lanes: its bits will differ" ]
    run -0 --separate-stderr train silent -n 6 --resume --any-isa -q b?.safetensors
    [ -z "$stderr" ]
    # it has gone on: now it depends on what it continues with
    run -0 --separate-stderr train run -n 7 --resume b?.safetensors
    [ -z "$stderr" ]
    # the same instructions: the bits of a run that was never stopped
    run -0 --separate-stderr scalar old -n 6 --resume b?.safetensors
    [ -z "$stderr" ]
    scalar whole -n 6 b?.safetensors >/dev/null
    cmp old/state.safetensors whole/state.safetensors
    cmp old/lora.safetensors whole/lora.safetensors
}

@test "moe-sft train: a state of before sums had one order is not continued" {
    train old -n 3 b?.safetensors >/dev/null
    py -c 'import mkst, json
p = "old/state.safetensors"
d = open(p, "rb").read()
m = json.loads(d[8:8 + int.from_bytes(d[:8], "little")])["__metadata__"]
was, lanes = m["arithmetic"].split(", ")
assert lanes == "8 lanes"
m["arithmetic"] = was
mkst.save(p, mkst.load(p), m)'
    run -65 --separate-stderr train old -n 6 --resume b?.safetensors
    [[ $stderr == "moe-sft: old/state.safetensors: was made with "*", which gives other bits than "*", 8 lanes (TU_ISA"* ]]
    run -0 train old -n 6 --resume --any-isa b?.safetensors
}

@test "moe-sft train: tensor parallelism goes its own way, not far from the other" {
    train one -n 8 --lr 1e-2 b?.safetensors >log.one
    train two -n 8 --lr 1e-2 --tp 3 b?.safetensors >log.two
    # a step changes the loss by some percent: each sees the one before
    paste log.one log.two | tail -n +2 |
        awk '{ d = $2 / $7 - 1 } d * d > 1e-6 { exit 1 }'
}

@test "moe-sft train: a stream is the files in turn, without -n to its end" {
    train files -n 8 b?.safetensors >log.files
    cat b?.safetensors b?.safetensors | train stream - >log.stream
    cmp log.files log.stream
    cmp files/lora.safetensors stream/lora.safetensors
    # one that ends early is told, and kept
    run -65 --separate-stderr train short -n 8 - < <(cat b?.safetensors)
    [ "$stderr" = "moe-sft: standard input: ended after step 4 of 8 (short holds it)" ]
    cat b?.safetensors b?.safetensors | train short -n 8 --resume - >/dev/null
    cmp files/lora.safetensors short/lora.safetensors
    # what is no whole step is left out
    run -0 --separate-stderr train part --accumulate 3 - < <(cat b?.safetensors)
    [ "${#lines[@]}" = 2 ]
    [[ $stderr == *"standard input: 1 batch at its end, less than a step, ignored" ]]
}

@test "moe-sft train: --input and --target are cut into batches and routed by the model" {
    moe-sft train -b hf -l student.safetensors -o one -n 3 --input x.npy --target y.npy --length 32 >log
    [ "$(column 5 <log | tr '\n' ' ')" = "32 32 6 " ]
    # one batch of all tokens is what forward makes of it
    moe-sft train -b hf -l student.safetensors -o two -n 1 --input x.npy --target y.npy >log
    [ "$(column 5 <log)" = 70 ]
    # [sequence, layer, token, dim], as hf-infer --acts writes them
    "$PYTHON" -c 'import numpy as np
for n in "xy": np.save(n + "4.npy", np.load(n + ".npy").reshape(5, 1, 14, 96))'
    moe-sft train -b hf -l student.safetensors -o four -n 1 --input x4.npy --target y4.npy >log4
    cmp log log4
    cmp two/lora.safetensors four/lora.safetensors
    run -65 moe-sft train -b base.safetensors -l student.safetensors -o three -n 1 --input x.npy --target y.npy
    [[ $output == *"base.safetensors: has no router for --input"* ]]
    "$PYTHON" -c 'import numpy as np; np.save("z.npy", np.load("y.npy")[:69])'
    run -65 moe-sft train -b hf -l student.safetensors -o three -n 1 --input x.npy --target z.npy
    [[ $output == *"z.npy: has 69 tokens, but x.npy has 70" ]]
    { cat y.npy && printf 1234; } >more.npy
    run -65 moe-sft train -b hf -l student.safetensors -o three -n 1 --input x.npy --target more.npy
    [[ $output == *"more.npy: has $((70 * 96 * 4 + 4)) bytes of data (expected $((70 * 96 * 4)) by its header)" ]]
    run -65 moe-sft train -b hf -l student.safetensors -o three -n 1 --input b0.safetensors:input \
        --target b0.safetensors:weights
    [[ $output == *"b0.safetensors:weights: has 2 dims, the last 2 (expected 2 or more, the last 96,"* ]]
}

@test "moe-sft train: --shuffle is another order each time around, the same for a seed" {
    train one -n 12 --shuffle --seed 3 b?.safetensors --lr 0 | column 2 >one.loss
    train two -n 12 --shuffle --seed 3 b?.safetensors --lr 0 | column 2 >two.loss
    cmp one.loss two.loss
    for i in 1 5 9; do
        sed -n "$i,$((i + 3))p" one.loss | sort >"round.$i"
        cmp round.1 "round.$i"
    done
    [ "$(sed -n 1,4p one.loss)" != "$(sed -n 5,8p one.loss)" ] ||
        [ "$(sed -n 5,8p one.loss)" != "$(sed -n 9,12p one.loss)" ]
}

@test "moe-sft train: kill -9 at any moment leaves a checkpoint that continues" {
    before=$(date +%s%N)
    train want -n 120 --lr 3e-3 b?.safetensors >want.log
    ns=$((($(date +%s%N) - before) / 20)) killed=0
    until [ "$killed" = 12 ]; do
        moe-sft train -b base.safetensors -l student.safetensors -o run -n 120 --lr 3e-3 --save-every 1 \
            --resume --log log b?.safetensors &
        pid=$!
        sleep "$(printf %d.%09d $((killed * 7 % 10 * ns / 1000000000)) $((killed * 7 % 10 * ns % 1000000000)))"
        kill -9 $pid 2>/dev/null || :
        status=0
        wait $pid || status=$?
        if [ -e run/lora.safetensors ]; then
            st-inspect verify -q run/lora.safetensors
        fi
        if [ -e run/state.safetensors ]; then
            st-inspect verify -q run/state.safetensors
        fi
        if [ "$status" = 0 ]; then # it was at its end: once more, and sooner
            cmp want.log log
            rm -r run log
            ns=$((ns / 2))
            continue
        fi
        [ "$status" = 137 ]
        killed=$((killed + 1))
    done
    train run -n 120 --lr 3e-3 --save-every 1 --resume --log log b?.safetensors
    cmp want.log log
    cmp want/lora.safetensors run/lora.safetensors
    cmp want/state.safetensors run/state.safetensors
    [ -z "$(find run -name '.*' -mindepth 1)" ]
}

@test "moe-sft train: TERM and USR1 finish the step, save, say how to continue, 75" {
    cat b?.safetensors b?.safetensors | train want - >want.log
    for signal in TERM USR1; do
        rm -rf run
        mkfifo pipe
        moe-sft train -b base.safetensors -l student.safetensors -o run - <pipe >log 2>said &
        pid=$!
        exec 7>pipe
        cat b0.safetensors b1.safetensors b2.safetensors >&7
        until [ "$(wc -l <log)" -ge 4 ]; do kill -0 $pid; sleep 0.02; done
        kill -$signal $pid
        status=0
        wait $pid || status=$?
        exec 7>&-
        rm pipe
        [ "$status" = 75 ]
        [ "$(cat said)" = "moe-sft: stopped by SIG$signal: run holds step 3, --resume continues" ]
        sound run
        cat b?.safetensors b?.safetensors | train run --resume - | tail -n +2 >>log
        cmp want.log log
        cmp want/state.safetensors run/state.safetensors
    done
}

@test "moe-sft train: a directory has one run at a time, and is free when that is killed" {
    mkfifo pipe
    moe-sft train -b base.safetensors -l student.safetensors -o run --save-every 1 - <pipe >log &
    pid=$!
    exec 7>pipe
    cat b0.safetensors >&7
    until [ "$(wc -l <log)" -ge 2 ]; do kill -0 $pid; sleep 0.02; done
    for how in --resume --force; do
        run -73 --separate-stderr train run -n 3 $how b?.safetensors
        [ "$stderr" = "moe-sft: run: another train is running there" ]
    done
    kill -9 $pid
    wait $pid || :
    exec 7>&-
    cat b?.safetensors | train run --resume - >/dev/null
    cat b?.safetensors | train want - >/dev/null
    cmp want/state.safetensors run/state.safetensors
}

@test "moe-sft train: --deadline stops a run, which then continues to the same bits" {
    for s in 0.3 3 30; do # a slow machine has made no step yet
        run -75 --separate-stderr train run -n 1000000 --deadline $s b?.safetensors
        [[ $stderr == *" holds step 0,"* ]] || break
        rm -r run
    done
    [[ $stderr =~ ^"moe-sft: stopped by the deadline: run holds step "([0-9]+)", --resume continues"$ ]]
    n=${BASH_REMATCH[1]}
    [ "$n" -ge 1 ]
    train run -n $((n + 3)) --resume b?.safetensors >/dev/null
    train want -n $((n + 3)) b?.safetensors >/dev/null
    cmp want/state.safetensors run/state.safetensors
}

@test "moe-sft train: a loss that is no number is 76, the last good checkpoint stays" {
    ref nan b2.safetensors bad.safetensors
    run -76 --separate-stderr train run -n 5 --save-every 1 b0.safetensors b1.safetensors bad.safetensors
    [ "$stderr" = "moe-sft: bad.safetensors: the loss is NaN in step 3 (step 2 is saved; a lower --lr or more --warmup may help)" ]
    train want -n 2 b0.safetensors b1.safetensors >/dev/null
    cmp want/lora.safetensors run/lora.safetensors
    sound run
    run -76 --separate-stderr train other -n 5 bad.safetensors
    [ "$stderr" = "moe-sft: bad.safetensors: the loss is NaN in step 1 (nothing is saved yet)" ]
    [ ! -e other ]
}

@test "moe-sft train: a rate that blows the numbers up is 76, too" {
    run -76 --separate-stderr train run -n 50 --lr 1e15 b?.safetensors
    [[ $stderr == *" in step "*"(nothing is saved yet; a lower --lr or more --warmup may help)" ]]
}

@test "moe-sft train: a full disk leaves the last checkpoint" {
    small_disk 260k
    run --separate-stderr train disk/run -n 6 --save-every 3 b?.safetensors
    # 160 KiB a checkpoint: the second does not fit beside the first
    [[ $status == 7[34] && $stderr == *"No space left on device"* ]]
    train want -n 3 b?.safetensors >/dev/null
    cmp want/lora.safetensors disk/run/lora.safetensors
    cmp want/state.safetensors disk/run/state.safetensors
    sound disk/run
}

@test "moe-sft train: a run that ends before its first checkpoint leaves no log" {
    small_disk 100k
    run --separate-stderr train disk/run -n 6 --log log --svg svg b?.safetensors
    [[ $status == 7[34] && $stderr == *"No space left on device"* ]]
    [ ! -e log ] && [ ! -e svg ]
    run -76 train run -n 50 --lr 1e15 --log log --svg svg b?.safetensors
    [ ! -e log ] && [ ! -e svg ]
    run -73 train run -n 2 --log log --svg no/such/directory b?.safetensors
    [ ! -e log ]
    # a device was there before: as root, it would be gone for all
    ln -s /dev/null null
    run -76 train run -n 50 --lr 1e15 --log null b?.safetensors
    [ -L null ]
    # another's stays, and one that tells of steps that are kept
    echo mine >log
    run -73 train run -n 2 --log log b?.safetensors
    [ "$(cat log)" = mine ]
    echo none >bad.safetensors
    run -65 train one -n 2 --log one.log --save-every 1 b0.safetensors bad.safetensors
    [ "$(column 1 <one.log)" = 1 ]
}

@test "moe-sft train: a full standard output is an error" {
    full() { train run -n 3 b?.safetensors >/dev/full; }
    run -74 full
    [ "$output" = "moe-sft: standard output: cannot be written: No space left on device" ]
    sound run
}

@test "moe-sft train: a directory that cannot be written is told before the first step" {
    as_user ls base.safetensors >/dev/null 2>&1 || skip "the test's directory is closed to others"
    mkdir -m 555 run
    run -73 as_user moe-sft train -b base.safetensors -l student.safetensors -o run -n 3 b0.safetensors
    [ "$output" = "moe-sft: run: cannot be written: Permission denied" ]
}

@test "moe-sft train: what continues must be of the same base, adapter, data and options" {
    train run -n 3 b?.safetensors >/dev/null
    refused() {
        run -65 --separate-stderr "${@:2}"
        [[ $stderr == "moe-sft: run/state.safetensors: $1"* ]] || { echo "$stderr"; false; }
    }
    refused "--lr was 0.0001 (now 0.0002; --force starts a new run)" train run -n 6 --resume --lr 2e-4 b?.safetensors
    refused "--mode was bf16 (now int8" train run -n 6 --resume --mode int8 b?.safetensors
    refused "--betas (the second) was 0.999 (now 0.95; " train run -n 6 --resume --betas 0.9,0.95 b?.safetensors
    refused "--schedule was constant (now linear" train run -n 6 --resume --schedule linear b?.safetensors
    refused "its data is not that of b1.safetensors" train run -n 6 --resume b1.safetensors
    refused "its adapter is not that of teacher.safetensors" \
        moe-sft train -b base.safetensors -l teacher.safetensors -o run -n 6 --resume b?.safetensors
    # the same name, one number of one target changed
    cp b1.safetensors kept
    py - <<'PY'
d = bytearray(open("b1.safetensors", "rb").read())
d[-3] ^= 1
open("b1.safetensors", "wb").write(d)
PY
    run -1 cmp -s b1.safetensors kept
    refused "its data is not that of b0.safetensors" train run -n 6 --resume b?.safetensors
    mv kept b1.safetensors
    ref make other qlen=64 seed=2
    refused "its base is not that of other/base.safetensors" \
        moe-sft train -b other/base.safetensors -l student.safetensors -o run -n 6 --resume b?.safetensors
    head -c 1000 run/state.safetensors >short
    cp short run/state.safetensors
    run -65 --separate-stderr train run -n 6 --resume b?.safetensors
    [[ $stderr == "moe-sft: run/state.safetensors: "* ]]
    cp b0.safetensors run/state.safetensors
    refused "is not a state of this version of moe-sft train" train run -n 6 --resume b?.safetensors
}

@test "moe-sft train: what continues must have the same activations, whatever they are called" {
    arrays() { moe-sft train -b hf -l student.safetensors -o run --input "$1" --target "$2" --length 32 "${@:3}"; }
    arrays x.npy y.npy -n 2 >/dev/null
    cp y.npy same.npy
    arrays x.npy same.npy -n 3 --resume >/dev/null
    "$PYTHON" -c 'import numpy as np
y = np.load("y.npy")
y[69, 95] += 1
np.save("y.npy", y)'
    run -65 --separate-stderr arrays x.npy y.npy -n 4 --resume
    [ "$stderr" = "moe-sft: run/state.safetensors: its data is not that of x.npy (--force starts a new run)" ]
}

@test "moe-sft train: a run that is there is kept, unless --resume or --force" {
    train run -n 3 --log log --svg loss.svg b?.safetensors
    before=$(cat run/* log | cksum)
    run -73 --separate-stderr train run -n 3 b?.safetensors
    [ "$stderr" = "moe-sft: run/state.safetensors: exists already (--resume continues its run, --force starts a new one)" ]
    run -73 --separate-stderr train new -n 3 --log log b?.safetensors
    [ "$stderr" = "moe-sft: log: exists already (--force replaces it)" ]
    [ "$before" = "$(cat run/* log | cksum)" ]
    # nothing is left to do: the same again
    train run -n 3 --resume --log log --svg loss.svg b?.safetensors
    [ "$before" = "$(cat run/* log | cksum)" ]
    train run -n 2 --force b?.safetensors >/dev/null
    [ "$(st-inspect meta run/state.safetensors | grep -c '"step": "2"\|step	2')" = 1 ]
    run -73 train x.npy -n 1 b0.safetensors
    run -73 train x.npy/directory -n 1 b0.safetensors
    run -73 --separate-stderr train new -n 1 --svg no/such/picture b0.safetensors
    [ -z "$output" ]
}

@test "moe-sft train --resume: a log or picture of no run, or of another one, is kept" {
    # theirs WHAT FILE STEPS: refused, and as it was
    theirs() {
        before=$(cksum <"$2")
        run -73 --separate-stderr train run -n "$3" --resume "--$1" "$2" b?.safetensors
        [ "$stderr" = "moe-sft: $2: exists already and is not the ${1/svg/picture} of this run (--force replaces it)" ]
        [ "$before" = "$(cksum <"$2")" ]
    }
    train other -n 2 --lr 3e-3 --log other.log --svg other.svg b?.safetensors
    echo precious >notes
    printf 'step\tloss\tlr\tgrad_norm\ttokens\n1\t0.5\t0.1\t1\t64\n' >forged
    for n in 3 6; do # of a run that begins, and of one that continues
        for file in notes other.log forged; do
            theirs log $file $n
        done
        for file in notes other.svg other.log; do
            theirs svg $file $n
        done
        train run -n 3 --resume --log log --svg svg b?.safetensors
    done
    # of its own, whatever steps it has: none, fewer, more
    cp log log.3
    train run -n 6 --resume --log log --svg svg b?.safetensors
    for file in /dev/null log.3 log; do
        cat $file >again
        cat svg >picture
        train run -n 6 --resume --log again --svg picture b?.safetensors
        cmp log again
        cmp svg picture
    done
    train run -n 6 --resume --force --log notes --svg other.svg b?.safetensors
    cmp log notes
    cmp svg other.svg
}

@test "moe-sft train: the log has each step when it is done, and --resume cuts back what no checkpoint has" {
    cat b?.safetensors b?.safetensors | train want --log want.log -
    for every in 0 2; do # killed before the first checkpoint, and after it
        rm -rf run log
        mkfifo pipe
        moe-sft train -b base.safetensors -l student.safetensors -o run --save-every $every --log log - <pipe >said &
        pid=$!
        exec 7>pipe
        cat b0.safetensors b1.safetensors b2.safetensors >&7
        until [ -e log ] && [ "$(wc -l <log)" -ge 4 ]; do kill -0 $pid; sleep 0.02; done
        kill -9 $pid
        wait $pid || :
        exec 7>&-
        rm pipe
        [ ! -s said ]
        [ -e run/state.safetensors ] || [ $every = 0 ]
        cmp log <(head -n 4 want.log)
        # a kill may leave a part of a line
        printf '4\t0.1' >>log
        if [ $every = 0 ]; then
            printf 'step\tloss\tlr\tgrad_norm\ttokens\n1\t' >log
        fi
        cat b?.safetensors b?.safetensors | train run --resume --log log -
        cmp want.log log
        cmp want/state.safetensors run/state.safetensors
    done
}

@test "moe-sft train: -v says the set-up and each step's rate, stdout stays" {
    train want -n 2 b?.safetensors >want.log
    run -0 --separate-stderr train run -n 2 -v -j 1 b?.safetensors
    [ "$output" = "$(cat want.log)" ]
    [[ ${stderr_lines[0]} == *", 1 thread; 4 experts of 96 x 80, rank 5; from step 0 on" ]]
    [[ ${stderr_lines[2]} =~ ^"moe-sft: step 2: loss "[0-9.]+", "[0-9]+" tokens/s, 0 slots skipped"$ ]]
}

@test "moe-sft train: the log and the picture have all steps, also of a run that went on" {
    train run -n 3 --log log --svg loss.svg b?.safetensors
    train run -n 30 --log log --svg loss.svg --resume b?.safetensors
    train want -n 30 b?.safetensors >want.log
    cmp want.log log
    "$PYTHON" -c 'import sys, xml.dom.minidom as m
d = m.parse("loss.svg")
n = d.getElementsByTagName("polyline")[0].getAttribute("points").split()
assert len(n) == 30, n
# the loss axis is marked at round numbers around all losses
marks = [float(t.firstChild.data) for t in d.getElementsByTagName("text")
         if t.getAttribute("text-anchor") == "end"]
assert marks == [1.6, 1.8, 2, 2.2], marks'
    "$PYTHON" "$ROOT/test/ref/svg.py" loss.svg 1
}

@test "moe-sft train: a picture of few steps takes no time" {
    timeout 20 moe-sft train -b base.safetensors -l student.safetensors -o run -n 2 --svg loss.svg b?.safetensors
    grep -q polyline loss.svg
}

@test "moe-sft train: batches that cannot be trained on are named" {
    py - <<'PY'
import os, sys
import mkst, moe
t, _ = moe.read("b0.safetensors")
def save(name, **change):
    d = dict(input=mkst.bf16(t["input"]), expert_ids=t["expert_ids"].astype("<i8"),
             weights=t["weights"].astype("<f4"), target=t["target"].astype("<f4"))
    d.update(change)
    mkst.save(name, {n: v for n, v in d.items() if v is not None})
grad = mkst.bf16(t["target"])
save("grad.safetensors", target=None, grad_output=grad)
save("none.safetensors", target=None)
save("rows.safetensors", target=t["target"][1:].astype("<f4"))
save("type.safetensors", target=t["target"].astype("<f8"))
save("slots.safetensors", expert_ids=t["expert_ids"][:, :1].astype("<i8"), weights=t["weights"][:, :1].astype("<f4"))
save("route.safetensors", expert_ids=None, weights=None)
save("empty.safetensors", input=mkst.bf16(t["input"][:0]), expert_ids=t["expert_ids"][:0].astype("<i8"),
     weights=t["weights"][:0].astype("<f4"), target=t["target"][:0].astype("<f4"))
PY
    named() {
        run -65 --separate-stderr train run -n 4 -f b0.safetensors "$1"
        [[ $stderr == "moe-sft: $1: $2"* ]] || { echo "$stderr"; false; }
        [ ! -e run/lora.safetensors ]
    }
    named grad.safetensors "tensor target is missing (grad_output is for backward)"
    named none.safetensors "tensor target is missing"
    named rows.safetensors "target is [63, 96] (expected [64, 96]"
    named type.safetensors "target is F64 (expected "
    named slots.safetensors "expert_ids has 1 slot a token (expected 2, as the batches before)"
    named route.safetensors "has no expert_ids, and base.safetensors no router"
    named empty.safetensors "has no tokens"
    run -66 train run -n 4 -f nothing.safetensors
    # a model's directory routes a batch that is not
    moe-sft train -b hf -l student.safetensors -o routed -n 1 route.safetensors >/dev/null
}

@test "moe-sft train: slots of no expert are skipped as torch skips them, --strict-ids refuses" {
    need_torch
    py - <<'PY'
import os, sys
import mkst, moe
t, _ = moe.read("b0.safetensors")
ids = t["expert_ids"].copy()
ids[3, 0], ids[5, 1], ids[9] = -1, 4, 2 ** 40
mkst.save("odd.safetensors", dict(input=mkst.bf16(t["input"]), expert_ids=ids.astype("<i8"),
                                  weights=t["weights"].astype("<f4"), target=t["target"].astype("<f4")))
PY
    run -0 train run -n 6 --lr 1e-3 --log log -v odd.safetensors b1.safetensors
    [[ ${lines[1]} == *", 4 slots skipped" && ${lines[2]} == *", 0 slots skipped" ]]
    run -0 ref compare run log 6 lr=1e-3 odd.safetensors b1.safetensors
    run -65 train strict -n 6 --strict-ids odd.safetensors
    [ ! -e strict/lora.safetensors ]
}

@test "moe-sft train: command lines that make no sense are 2" {
    for line in "b0.safetensors" "-n 3" "-n 3 - b0.safetensors" "-n 3 --input x.npy" \
        "-n 3 --target y.npy b0.safetensors" "-n 3 --input x.npy --target y.npy b0.safetensors" \
        "-n 0 b0.safetensors" "-n 3 --shuffle -" "--schedule cosine -" "--warmup 0.1 -" \
        "-n 3 --warmup 1.5 b0.safetensors" "-n 3 --total 2 --schedule linear b0.safetensors" \
        "-n 3 --betas 0.9 b0.safetensors" "-n 3 --betas 0.9,1 b0.safetensors" \
        "-n 3 --lr -1 b0.safetensors" "-n 3 --schedule step b0.safetensors" \
        "-n 3 --length 8 b0.safetensors" "-n 3 --accumulate 0 b0.safetensors" "-n 3 --svg - b0.safetensors"; do
        # shellcheck disable=SC2086
        run -2 train run $line </dev/null
        [ ! -e run ]
    done
}

@test "moe-sft train: --log and --svg replace no other file of the run" {
    before=$(cat b?.safetensors base.safetensors student.safetensors | cksum)
    for line in "--log b1.safetensors" "--svg ./base.safetensors" "--log student.safetensors" \
        "--log run/state.safetensors" "--svg run/lora.safetensors" "--log run" "--log x --svg x"; do
        # shellcheck disable=SC2086
        run -2 train run -n 2 --resume $line b?.safetensors
        [[ ${lines[0]} == *": would be two outputs of this command" || ${lines[0]} == *": is both an input and an output of this command" ]]
        [ ! -e run ]
    done
    [ "$before" = "$(cat b?.safetensors base.safetensors student.safetensors | cksum)" ]
}
