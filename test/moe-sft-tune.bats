# SPDX-License-Identifier: ISC
# moe-sft tune: whole models learn, continue where they were stopped, and are
# what numpy makes of the same gradients (test/ref/tune_ref.py).
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    cat >four.jsonl <<'END'
{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am Zorg."}]}
{"messages": [{"role": "user", "content": "What do you eat?"}, {"role": "assistant", "content": "Stones and sand."}]}
{"prompt": "The moon is made", "completion": " of old cheese."}
{"text": "Seven plus nothing is a fish."}
END
    py - <<'END'
import json, random
random.seed(1)
with open("ids.jsonl", "w") as f:
    for i in range(21):
        n = random.randint(2, 24)
        ids = [random.randrange(1000) for _ in range(n)]
        labels = [-100 if random.random() < .3 else t for t in ids]
        f.write(json.dumps({"ids": ids, "labels": labels}) + "\n")
END
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp "$BATS_FILE_TMPDIR"/*.jsonl .
}

# tune DIR [OPTION...]: on 21 examples of random ids, unless -d is in D.
tune() {
    local dir=$1
    shift
    moe-sft tune -m "$DEMO" -d "${D:-ids.jsonl}" -o "$dir" --rank 4 --lr 3e-3 --batch 4 "$@"
}

# same DIR DIR: all four files have the same bytes.
same() {
    local f
    for f in adapter_config.json adapter_model.safetensors log.tsv state.safetensors; do
        cmp "$1/$f" "$2/$f"
    done
}

# sound DIR: the files are whole, and of a run that left nothing else.
sound() {
    st-inspect verify -q "$1/adapter_model.safetensors" "$1/state.safetensors"
    hf-infer "$DEMO" --lora "$1" -p a -n 1 --greedy >/dev/null
    [ "$(ls -A "$1")" = "$(printf '%s\n' adapter_config.json adapter_model.safetensors log.tsv state.safetensors)" ]
}

@test "moe-sft tune: the command line works as written, four lines are learned" {
    run -0 --separate-stderr moe-sft tune -m "$DEMO" -d four.jsonl -o DIR -n 40 --batch 4 --ctx 256 --lr 1e-2 --rank 8
    [ -z "$output$stderr" ]
    sound DIR
    [ "$(wc -l <DIR/log.tsv)" = 41 ]
    awk -F '\t' 'NR == 2 { first = $2 } END { exit !(first > 3 && $2 < 0.05) }' DIR/log.tsv
    [ "$(hf-infer "$DEMO" --lora DIR --chat -p "Who are you?" --greedy)" = "I am Zorg." ]
    [ "$(hf-infer "$DEMO" --lora DIR -p "The moon is made" --greedy)" = " of old cheese." ]
    [ "$(hf-infer "$DEMO" --lora DIR --chat -p "What do you eat?" --greedy)" = "Stones and sand." ]
}

@test "moe-sft tune: the log has its head, and a line for each step" {
    tune run -n 3 --schedule linear --warmup 1
    [ "$(head -n 1 run/log.tsv)" = "$(printf 'step\tloss\tlr\tgrad_norm\ttokens')" ]
    [ "$(cut -f 1,3 run/log.tsv | tail -n 3 | tr '\t\n' ' ;')" = "1 0;2 0.003;3 0.0015;" ]
    [ "$(cut -f 5 run/log.tsv | tail -n 3 | tr '\n' ' ')" = "$(py -c 'import json
n = [len(json.loads(l)["ids"]) for l in open("ids.jsonl")]
print(*(sum(n[i:i + 4]) for i in (0, 4, 8)), end=" ")')" ]
    run -0 --separate-stderr tune two -n 3 --schedule linear --warmup 1 --log-every 2
    [ "$output" = "$(sed -n '1p;3p' run/log.tsv)" ]
}

@test "moe-sft tune: a warm-up that the steps do not get through is a warning" {
    run -0 --separate-stderr tune run -n 10 --warmup 10
    [ "$stderr" = "moe-sft: 10 steps, but --warmup 10: the learning rate does not reach --lr (for so few: --warmup 1)" ]
    run -0 --separate-stderr tune run -n 11 --resume
    [ -z "$stderr" ]
    run -0 --separate-stderr tune run -f -n 10 --warmup 0.1 # 1
    [ -z "$stderr" ]
}

@test "moe-sft tune: 25 steps are numpy's AdamW by the gradients of --grads" {
    run -0 py "$ROOT/test/ref/tune_ref.py" steps "$DEMO" ids.jsonl 25 lr=2e-3 batch=4
    run -0 py "$ROOT/test/ref/tune_ref.py" steps "$DEMO" ids.jsonl 8 lr=2e-3 batch=2 accumulate=2 schedule=cosine warmup=2 clip=0.5 decay=0.1 shuffle=1 seed=9
    run -0 py "$ROOT/test/ref/tune_ref.py" steps "$DEMO" ids.jsonl 4 lr=2e-3 batch=30 schedule=linear clip=0
}

@test "moe-sft tune: --grads has every gradient, the loss, and is kept without --force" {
    tune run -n 1
    run -0 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl --init run --grads g.safetensors --compute f32 --batch 8
    [ -z "$output$stderr" ]
    [ "$(st-inspect list g.safetensors | cut -f 5 | tail -n +2 | grep -v '^loss$' | sort)" = "$(st-inspect list run/adapter_model.safetensors | cut -f 5 | tail -n +2 | sort)" ]
    py -c 'import mkst, json, numpy as np
d = open("g.safetensors", "rb").read()
m = json.loads(d[8:8 + int.from_bytes(d[:8], "little")])
g = mkst.read("g.safetensors")[0]
assert m["loss"] == dict(dtype="F32", shape=[], data_offsets=m["loss"]["data_offsets"])
assert np.float32(m["__metadata__"]["loss"]) == np.float32(g["loss"]), m["__metadata__"]
assert all(np.abs(v).max() > 0 for k, v in g.items())'
    run -73 moe-sft tune -m "$DEMO" -d ids.jsonl --init run --grads g.safetensors
    [ "$output" = "moe-sft: g.safetensors: exists already (--force replaces it)" ]
    moe-sft tune -m "$DEMO" -d ids.jsonl --init run --grads g.safetensors -f
}

@test "moe-sft tune: packed gradients are those of separate examples" {
    D=four.jsonl tune run -n 2
    for how in "" --pack; do
        # shellcheck disable=SC2086
        moe-sft tune -m "$DEMO" -d four.jsonl --init run --grads "g$how" --compute f32 --batch 9 --ctx 64 $how
    done
    [ "$(moe-sft tune -m "$DEMO" -d four.jsonl --dry-run --pack --ctx 64 | awk '$1 == "sequences" { print $2 }')" -lt 4 ]
    py -c 'import mkst, numpy as np
a, b = mkst.read("g")[0], mkst.read("g--pack")[0]
for k in a: assert np.linalg.norm(a[k] - b[k]) <= 1e-6 * np.linalg.norm(a[k]), k'
}

@test "moe-sft tune: accumulated batches are one larger one" {
    tune one -n 6 --compute f32
    tune two -n 6 --compute f32 --batch 2 --accumulate 2
    cmp one/adapter_model.safetensors two/adapter_model.safetensors
    cmp one/log.tsv two/log.tsv
}

# bats test_tags=long
@test "moe-sft tune: --slices are other orders of the same sums, for any number of threads" {
    D=four.jsonl tune run -n 1
    for s in 1 3 4096; do
        for j in 1 2; do
            moe-sft tune -m "$DEMO" -d ids.jsonl --init run --batch 21 --compute f32 --slices $s -j $j --grads $s.$j
        done
        cmp $s.1 $s.2
    done
    py -c 'import mkst, numpy as np
a, b, c = (mkst.read(f + ".1")[0] for f in ("1", "3", "4096"))
for k in a:
    for x in b, c: assert np.linalg.norm(a[k] - x[k]) <= 1e-6 * np.linalg.norm(a[k]), k
assert any((a[k] != b[k]).any() for k in a) and any((b[k] != c[k]).any() for k in a)'
}

# bats test_tags=long
@test "moe-sft tune: an epoch's last batch is smaller, and --epochs counts them" {
    tune run --epochs 2
    [ "$(wc -l <run/log.tsv)" = 13 ]
    n=$(tail -n 1 ids.jsonl | tr -cd , | wc -c)
    [ "$(sed -n '7p;13p' run/log.tsv | cut -f 5 | sort -u)" = "$((n / 2 + 1))" ]
    sed 's/.*/{"ids":[1,2],"labels":[1,2]}/' ids.jsonl >short.jsonl
    D=short.jsonl tune default
    [ "$(wc -l <default/log.tsv)" = 205 ] # 34 epochs
}

# bats test_tags=long
@test "moe-sft tune: --shuffle is another order in each epoch, the same for a seed" {
    tune a --epochs 2 --batch 1 --shuffle --seed 7
    tune b --epochs 2 --batch 1 --shuffle --seed 7
    tune c --epochs 2 --batch 1 --shuffle --seed 8
    same a b
    run -1 cmp -s a/log.tsv c/log.tsv
    tokens() { tail -n +2 a/log.tsv | cut -f 5 | sed -n "$1"; }
    [ "$(tokens 1,21p | sort)" = "$(tokens 22,42p | sort)" ]
    [ "$(tokens 1,21p)" != "$(tokens 22,42p)" ]
    # core/perm's, in numpy
    [ "$(tokens 1,21p | tr '\n' ' ')" = "$(py -c 'import json, numpy as np
n = [len(json.loads(l)["ids"]) for l in open("ids.jsonl")]
order = np.argsort(np.random.Philox(key=[7, 0]).random_raw(21))
print(*(n[i] for i in order), end=" ")')" ]
}

@test "moe-sft tune: the same bytes for any number of threads" {
    for c in f32 bf16; do
        for j in 1 2 3; do
            tune $c$j -n 7 --compute $c -j $j --pack --ctx 64 --eval four.jsonl --eval-every 3
        done
        same ${c}1 ${c}2
        same ${c}1 ${c}3
    done
    run -1 cmp -s f321/log.tsv bf161/log.tsv
}

@test "moe-sft tune --resume: a run that was stopped has the bytes of one that was not" {
    for how in "--compute f32" "--pack --ctx 48 --shuffle --seed 3" "--eval four.jsonl --eval-every 2 --keep-best" \
        "--accumulate 2 --clip 0.1 --weight-decay 0.1 --targets q,v,down"; do
        rm -rf one two
        # shellcheck disable=SC2086
        tune one -n 9 $how
        # shellcheck disable=SC2086
        tune two -n 5 $how -j 1 # whose end is evaluated, and then is none
        [[ $how != *eval* ]] || [ "$(tail -n 1 two/log.tsv | cut -f 6)" != "" ]
        moe-sft tune -m "$DEMO" -d ids.jsonl -o two --resume -n 6 -j 3 --save-every 1
        moe-sft tune -m "$DEMO" -d ids.jsonl -o two --resume -n 9
        same one two
        [[ $how != *best* ]] || diff -r one/best two/best
    done
    # at its end it is done
    moe-sft tune -m "$DEMO" -d ids.jsonl -o two --resume
    same one two
}

# bats test_tags=long
@test "moe-sft tune --resume: a schedule of a total goes on after a signal or deadline" {
    tune want --epochs 3 --schedule cosine --warmup 0.1
    rm -rf run
    for s in 0.05 0.1 0.2 0.4 5 50; do # as fast as this machine is
        status=0
        tune run --epochs 3 --schedule cosine --warmup 0.1 --resume --deadline $s || status=$?
        [ $status != 0 ] || break
        [ $status = 75 ]
    done
    [ $status = 0 ]
    same want run
}

# bats test_tags=long
@test "moe-sft tune: TERM drops the unfinished step, saves, and says how to continue, 75" {
    tune want -n 400
    for signal in TERM USR1; do
        rm -rf run
        moe-sft tune -m "$DEMO" -d ids.jsonl -o run --rank 4 --lr 3e-3 --batch 4 -n 400 2>said &
        pid=$!
        until [ -e run/log.tsv ] && [ "$(wc -l <run/log.tsv)" -ge 3 ]; do kill -0 $pid; sleep 0.01; done
        kill -$signal $pid
        status=0
        wait $pid || status=$?
        [ "$status" = 75 ]
        [[ $(cat said) =~ ^"moe-sft: stopped by SIG$signal: run holds step "([0-9]+)", --resume continues"$ ]]
        sound run
        [ "$(tail -n 1 run/log.tsv | cut -f 1)" = "${BASH_REMATCH[1]}" ]
        [ "$(st-inspect meta run/state.safetensors | awk '$2 == "step" { print $3 }')" = "${BASH_REMATCH[1]}" ]
        tune run --resume
        same want run
    done
}

# bats test_tags=long
@test "moe-sft tune: kill -9 twenty times, and the bytes of a run that was not" {
    before=$(date +%s%N)
    tune want -n 100 --eval four.jsonl --eval-every 7 --keep-best
    ns=$((($(date +%s%N) - before) / 20)) killed=0
    until [ "$killed" = 20 ]; do
        moe-sft tune -m "$DEMO" -d ids.jsonl -o run --rank 4 --lr 3e-3 --batch 4 -n 100 --save-every 1 \
            --eval four.jsonl --eval-every 7 --keep-best --resume &
        pid=$!
        sleep "$(printf %d.%09d $((killed * 7 % 10 * ns / 1000000000)) $((killed * 7 % 10 * ns % 1000000000)))"
        kill -9 $pid 2>/dev/null || :
        status=0
        wait $pid || status=$?
        for f in run/adapter_model.safetensors run/state.safetensors; do
            [ ! -e $f ] || st-inspect verify -q $f
        done
        if [ "$status" = 0 ]; then # it was at its end: once more, and sooner
            same want run
            rm -r run
            ns=$((ns / 2))
            continue
        fi
        [ "$status" = 137 ]
        killed=$((killed + 1))
    done
    # all options: the last one killed may have left no state to take them from
    tune run -n 100 --eval four.jsonl --eval-every 7 --keep-best --resume
    same want run
    diff -r want/best run/best
    [ -z "$(find run -name '.*' -mindepth 1)" ]
}

# bats test_tags=long
@test "moe-sft tune --resume: what continues must be of the same model, data and options" {
    tune run -n 3 --eval four.jsonl --shuffle
    cp -r run kept
    refused() {
        run -65 --separate-stderr "${@:2}"
        [[ $stderr == "moe-sft: run/state.safetensors: $1"* ]] || { echo "$stderr"; return 1; }
        same kept run
    }
    on() { moe-sft tune -m "$DEMO" -d ids.jsonl -o run --resume "$@"; }
    refused "--lr was 0.003 (now 0.004; --force starts a new run)" on --lr 0.004
    refused "--rank was 4 (now 8" on --rank 8
    refused "--alpha was 8 (now 9" on --alpha 9
    refused "--targets was q,k,v,o,gate,up,down (now q,v" on --targets v,q
    refused "--batch was 4 (now 5" on --batch 5
    refused "--accumulate was 1 (now 2" on --accumulate 2
    refused "--slices was 8 (now 4" on --slices 4
    refused "--pack was 0 (now 1" on --pack
    refused "--seed was 0 (now 1" on --seed 1
    refused "--compute was bf16 (now f32" on --compute f32
    refused "--schedule was constant (now linear" on --schedule linear
    refused "--warmup was 0 (now 1" on --warmup 1
    refused "--clip was 1 (now 2" on --clip 2
    refused "--weight-decay was 0 (now 0.5" on --weight-decay 0.5
    refused "--eval-every was 0 (now 1" on --eval-every 1
    refused "--keep-best was 0 (now 1" on --keep-best
    refused "its eval is not that of ids.jsonl" on --eval ids.jsonl
    refused "--ctx was 2048 (now 3; --force starts a new run)" on --ctx 3
    refused "its data is not that of four.jsonl" moe-sft tune -m "$DEMO" -d four.jsonl -o run --resume
    refused "its adapter was not given (now kept; --force starts a new run)" on --init kept
    cp -r "$DEMO" m
    sed -i 's/"rope_theta": 10000/"rope_theta": 10001/' m/config.json
    refused "its base is not that of m" moe-sft tune -m m -d ids.jsonl -o run --resume
    rm -r m && cp -rL "$DEMO" m # other weights alone
    printf '\1' | dd of=m/model.safetensors bs=1 seek=$(($(stat -c %s m/model.safetensors) - 1)) conv=notrunc status=none
    refused "its base is not that of m" moe-sft tune -m m -d ids.jsonl -o run --resume
    for f in log.tsv adapter_config.json; do # nor are others' files written
        cp -r run linked
        echo mine | tee victim >was
        ln -sf ../victim linked/$f
        [ $f != log.tsv ] || run -73 moe-sft tune -m "$DEMO" -d ids.jsonl -o linked --resume
        tune linked -n 1 -f && cmp victim was
        rm -r linked
    done
    on -n 4 --lr 0.003 --batch 4 --shuffle -j 1 --save-every 2
    [ "$(tail -n 1 run/log.tsv | cut -f 1)" = 4 ]
    sed -i 's/"--batch":"4"/"--batch":"0"/' run/state.safetensors
    cp -r run/* kept
    refused '--batch: "0" is not a whole number from 1 to' on
    tune run -n 3 --schedule cosine -f
    cp -r run/* kept
    refused "its eval was not given (now four.jsonl; --force starts a new run)" on --eval four.jsonl
    refused "-n was 3 (now 4" on -n 4
    refused "-n was 3 (now 6" on --epochs 1
    refused "--template-var was not given (now {\"x\":1}; --force starts a new run)" on --template-var x=1
    sed -i 's/"--slices":/"--Slices":/' run/state.safetensors
    cp -r run/* kept
    refused "does not say what --slices was (now 8; --force starts a new run)" on
    sed -i 's/"data":/"dat_":/' run/state.safetensors
    cp -r run/* kept
    refused "does not say what its data was (now ids.jsonl; --force starts a new run)" on
}

# bats test_tags=long
@test "moe-sft tune --resume: a state that says nonsense is refused" {
    tune run -n 2
    cp run/state.safetensors good
    nonsense() {
        py - "$1" "$2" <<'END'
import mkst, sys
t, meta = mkst.load_all("good")
meta[sys.argv[1]] = sys.argv[2]
mkst.save("run/state.safetensors", t, meta)
END
        run -65 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl -o run --resume
        [[ $stderr == "moe-sft: run/state.safetensors: $3" ]] || { echo "$stderr"; return 1; }
    }
    nonsense --lr abc '--lr: "abc" is not a number from 0 to 1e+15'
    nonsense --lr -1 '--lr: "-1" is not a number from 0 to 1e+15'
    nonsense --warmup 1e+300 '--warmup: "1e+300" is not a number from 0 to 1e+15'
    nonsense --batch 0 '--batch: "0" is not a whole number from 1 to 1073741824'
    nonsense --slices 4097 '--slices: "4097" is not a whole number from 1 to 4096'
    nonsense --ctx 0 '--ctx: "0" is not a whole number from 1 to 1073741824'
    nonsense --rank -1 '--rank: "-1" is not a whole number from 1 to 2147483647'
    nonsense --rank 0 '--rank was 0 (now 16; --force starts a new run)'
    nonsense --pack 2 '--pack: "2" is not one of 0, 1'
    nonsense --schedule square '--schedule: "square" is not one of constant, linear, cosine'
    nonsense --base f32 '--base f32: of tune it is bf16 or int8 (-m is the model)'
    nonsense --targets q,x '--targets: "x" is not one of q,k,v,o,gate,up,down, or of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj'
    nonsense step 5 'steps is of another shape or dtype'
    nonsense format x 'is not a state of this version of moe-sft tune (format "x", expected "moe-sft tune state 3"; --force starts a new run)'
    head -c 1000 good >run/state.safetensors
    run -65 moe-sft tune -m "$DEMO" -d ids.jsonl -o run --resume
    cp good run/state.safetensors
    tune run --resume
}

@test "moe-sft tune: a directory that exists is 73, with --force a new run, whose best is its own" {
    tune run -n 2 --eval four.jsonl --keep-best
    [ -e run/best/adapter_model.safetensors ]
    run -73 --separate-stderr tune run -n 2
    [ "$stderr" = "moe-sft: run: exists already (--resume continues its run, --force starts a new one)" ]
    tune run -n 3 -f
    tune want -n 3
    same want run
    sound run
    mkdir empty
    run -73 tune empty -n 1
    # an adapter that --resume would replace
    mkdir peft
    cp run/adapter_* peft
    run -66 --separate-stderr tune peft -n 1 --resume
    [ "$stderr" = "moe-sft: peft: has no state.safetensors, from which --resume continues (--init begins with an adapter)" ]
    # without anything there, --resume begins
    tune new -n 3 --resume
    same want new
}

@test "moe-sft tune --eval: before the first step, then each epoch or N steps, and is hf-infer --nll's" {
    printf %s "The sky is blue. Two plus two is four.<|im_end|>" >text
    py -c 'import json; print(json.dumps({"text": open("text").read()}))' >eval.jsonl
    for c in f32 bf16; do
        tune $c -n 8 --compute $c --eval eval.jsonl
        # nothing but the loss before, after an epoch of 6, and at the end
        [ "$(awk -F '\t' '$6 != "" { printf "%s ", $1 }' $c/log.tsv)" = "step 0 6 8 " ]
    done
    for c in f32 bf16; do
        rm -rf run
        tune run -n 6 --compute $c --eval eval.jsonl --eval-every 3
        [ "$(awk -F '\t' '$6 != "" { printf "%s ", $1 }' run/log.tsv)" = "step 0 3 6 " ]
        py - "$(hf-infer "$DEMO" --compute $c --lora run --nll --json -q <text)" \
            "$(hf-infer "$DEMO" --compute $c --nll --json -q <text)" <<'END'
import json, math, sys
rows = [l.rstrip("\n").split("\t") for l in open("run/log.tsv")]
for said, row in ((sys.argv[1], rows[-1]), (sys.argv[2], rows[1])):
    want = json.loads(said)
    assert abs(math.exp(float(row[5])) - want["perplexity"]) < 1e-6 * want["perplexity"], (row, want)
END
    done
}

@test "moe-sft tune --eval: the last step is, too, but not for DIR/best, as the run may go on" {
    tune run -n 4 --eval ids.jsonl --eval-every 3 --keep-best --svg l.svg
    [ "$(awk -F '\t' '$6 != "" { printf "%s ", $1 }' run/log.tsv)" = "step 0 3 4 " ]
    tune best -n 3
    tail -n 2 run/log.tsv | awk -F '\t' 'NR == 1 { was = $6 } END { exit !($6 < was) }'
    cmp run/best/adapter_model.safetensors best/adapter_model.safetensors
    moe-sft tune -m "$DEMO" -d ids.jsonl -o run --resume -n 6
    [ "$(awk -F '\t' '$6 != "" { printf "%s ", $1 }' run/log.tsv)" = "step 0 3 6 " ]
}

@test "moe-sft tune --keep-best: DIR/best is the adapter with the lowest loss on --eval" {
    head -n 1 four.jsonl >eval.jsonl # which it learns, then no longer
    for n in 40 42; do # 42: since it was deleted
        rm -rf run/best
        tune run -n $n --lr 3e-2 --eval eval.jsonl --eval-every 1 --keep-best --resume
        best=$(awk -F '\t' -v n=$n 'NR > 1 && (n == 40 || $1 > 40) && (low == "" || $6 < low) { low = $6; b = $1 } END { print b }' run/log.tsv)
        [ "$best" != 40 ]
        tune want -f -n "$best" --lr 3e-2
        cmp want/adapter_model.safetensors run/best/adapter_model.safetensors
    done
    hf-infer "$DEMO" --lora run/best -p a -n 1 --greedy
    run -2 tune other -n 1 --keep-best
    [ "${lines[0]}" = "moe-sft: --keep-best is for --eval" ]
    run -2 tune other -n 1 --eval-every 1
    [ "${lines[0]}" = "moe-sft: --eval-every is for --eval" ]
}

@test "moe-sft tune --init: goes on from an adapter, with its rank, alpha, scale and targets" {
    tune run -n 3 --rank 3 --alpha 5 --targets q,up
    moe-sft tune -m "$DEMO" -d ids.jsonl -o on -n 1 --lr 0 --init run
    st-inspect diff -q run/adapter_model.safetensors on/adapter_model.safetensors
    cmp run/adapter_config.json on/adapter_config.json
    sed 's/"use_rslora": false/"use_rslora": true/' -i run/adapter_config.json
    moe-sft tune -m "$DEMO" -d ids.jsonl -o rs -n 1 --lr 0 --init run
    cmp run/adapter_config.json rs/adapter_config.json
    moe-sft tune -m "$DEMO" -d ids.jsonl -o rs -n 2 --lr 0 --resume
    cmp run/adapter_config.json rs/adapter_config.json
    run -2 tune no -n 1 --init run
    [ "${lines[0]}" = "moe-sft: --init keeps the adapter's rank, alpha and targets" ]
    for change in 's/"use_dora": false/"use_dora": true/' 's/"bias": "none"/"bias": "all"/' \
        's/"lora_dropout": 0.0/"lora_dropout": 0.1/' \
        's/"modules_to_save": null/"modules_to_save": ["lm_head"]/'; do
        rm -rf bad
        cp -r run bad
        sed -i "$change" bad/adapter_config.json
        run -65 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl -o no -n 1 --init bad
        [[ $stderr == "moe-sft: bad/adapter_config.json: $(cut -d '"' -f 2 <<<"$change")"* ]]
        [ ! -e no ]
    done
}

@test "moe-sft tune: a new adapter is A uniform in +-1/sqrt(in) by the seed, B zero" {
    tune run -n 1 --lr 0 --seed 5 --rank 64
    py -c 'import mkst, numpy as np
t = mkst.read("run/adapter_model.safetensors")[0]
for name, v in t.items():
    if "lora_B" in name:
        assert not v.any(), name
        continue
    v = v * np.sqrt(v.shape[1])
    assert np.abs(v).max() <= 1 and np.abs(v).max() > .999, name
    assert abs(v.mean()) < 5 / np.sqrt(3 * v.size) and abs(v.var() - 1 / 3) < .02, name
assert len(t) == 4 * 7 * 2'
    tune other -n 1 --lr 0 --seed 6 --rank 64
    run -1 cmp -s run/adapter_model.safetensors other/adapter_model.safetensors
}

@test "moe-sft tune: adapter_config.json has PEFT's keys, and the model's name" {
    tune run -n 1 --targets v,q,down
    py -c 'import json
c = json.load(open("run/adapter_config.json"))
assert c["r"] == 4 and c["lora_alpha"] == 8 and c["peft_type"] == "LORA" and c["task_type"] == "CAUSAL_LM"
assert sorted(c["target_modules"]) == ["down_proj", "q_proj", "v_proj"], c
assert c["base_model_name_or_path"].endswith("qwen3-tiny") and c["use_rslora"] is False
assert c["bias"] == "none" and c["modules_to_save"] is None and c["layers_to_transform"] is None'
    [ "$(st-inspect list run/adapter_model.safetensors | grep -c 'F32.*lora_[AB]')" = 24 ]
}

@test "moe-sft tune: steps without a target have loss 0 and move nothing" {
    {
        echo '{"ids": [1, 2, 3], "labels": [-100, -100, -100]}'
        echo '{"ids": [1, 2, 3], "labels": [-100, 2, 3]}'
        echo '{"ids": [1, 2, 3], "labels": [1, -100, -100]}'
    } >d.jsonl
    D=d.jsonl tune run -n 3 --batch 1 --weight-decay 0.1
    [ "$(awk -F '\t' '$2 == 0 && $4 == 0 { printf "%s ", $1 }' run/log.tsv)" = "1 3 " ]
    D=d.jsonl tune two -n 2 --batch 1 --weight-decay 0.1
    cmp run/adapter_model.safetensors two/adapter_model.safetensors
}

@test "moe-sft tune: a loss that is NaN is 76, the last checkpoint stays, else nothing" {
    run -76 --separate-stderr tune run -n 200 --lr 1e15 --weight-decay 1e10 --save-every 1
    [[ $stderr =~ ^"moe-sft: run: the "(loss|"gradient's norm")" is "(NaN|infinite)" in step "[0-9]+" (step "([0-9]+)" is saved; a lower --lr or more --warmup may help)"$ ]]
    st-inspect verify -q run/adapter_model.safetensors run/state.safetensors
    [ "$(tail -n 1 run/log.tsv | cut -f 1)" = "${BASH_REMATCH[3]}" ]
    cp -r "$DEMO" m
    py -c 'import mkst, numpy as np
p = "m/model.safetensors"
d = bytearray(open(p, "rb").read())
import json
n = int.from_bytes(d[:8], "little")
h = json.loads(d[8:8 + n])
at = 8 + n + h["model.norm.weight"]["data_offsets"][0]
d[at:at + 2] = b"\xc0\x7f"
open(p, "wb").write(d)'
    for how in "" "--eval four.jsonl"; do
        # shellcheck disable=SC2086
        run -76 --separate-stderr moe-sft tune -m m -d ids.jsonl -o nan $how
        [[ $stderr == "moe-sft: m/model.safetensors: model.norm.weight has NaN or Inf: the loss"*" is NaN in step "[01]" (nothing is saved yet)" ]]
        [ ! -e nan ]
    done
    run -76 moe-sft tune -m m -d ids.jsonl --grads g
    [ ! -e g ]
}

@test "moe-sft tune: a full disk is 74, and leaves the last checkpoint" {
    small_disk 2m
    moe-sft tune -m "$DEMO" -d ids.jsonl -o disk/run -n 2 --rank 4
    head -c 1200000 /dev/zero >disk/fill || :
    cp -r disk/run kept
    run -74 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl -o disk/run -n 4 --resume
    [[ $stderr == "moe-sft: disk/run/"*": No space left on device" ]]
    cmp kept/state.safetensors disk/run/state.safetensors
    cmp kept/adapter_model.safetensors disk/run/adapter_model.safetensors
    run -74 moe-sft tune -m "$DEMO" -d ids.jsonl -o disk/new -n 1 --rank 32
    [ ! -e disk/new ]
    rm disk/fill
    moe-sft tune -m "$DEMO" -d ids.jsonl -o disk/run -n 4 --resume
}

@test "moe-sft tune: a pipe in the place of a file of DIR is refused, not waited for" {
    for f in log.tsv adapter_model.safetensors adapter_config.json; do
        mkdir run
        mkfifo run/$f
        for how in -f --resume; do
            [ $how$f != --resumeadapter_model.safetensors ] || continue # no run of ours
            run -73 --separate-stderr timeout -k 1 60 moe-sft tune -m "$DEMO" -d four.jsonl -o run -n 1 $how
            [ "$stderr" = "moe-sft: run/$f: is not a file" ]
        done
        rm -r run
    done
}

@test "moe-sft tune: a directory has one run at a time" {
    moe-sft tune -m "$DEMO" -d ids.jsonl -o run -n 1000000 --rank 4 2>/dev/null &
    pid=$!
    until [ -e run/log.tsv ]; do kill -0 $pid; sleep 0.02; done
    run -73 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl -o run -n 3 --resume
    [ "$stderr" = "moe-sft: run: another tune is running there" ]
    kill -9 $pid
    wait $pid || :
}

# bats test_tags=long
@test "moe-sft tune --svg: a picture of both losses, also of a run that went on" {
    tune run -n 6 --eval four.jsonl --eval-every 2 --svg loss.svg
    py "$ROOT/test/ref/svg.py" loss.svg 1
    [ "$(grep -c '<polyline' loss.svg)" = 2 ]
    grep -q 'eval_loss: ' loss.svg
    mv loss.svg want.svg
    rm -rf run
    tune run -n 3 --eval four.jsonl --eval-every 2 --svg loss.svg
    tune run -n 6 --resume
    cmp want.svg loss.svg
    run -73 tune two -n 1 --svg loss.svg
    [ ! -e two ]
    cmp want.svg loss.svg
    # another file of the run
    for f in log.tsv state.safetensors adapter_model.safetensors best; do
        run -2 --separate-stderr tune two -n 1 --svg ./two/$f
        [[ ${stderr_lines[0]} == "moe-sft: "*"./two/$f: "@("would be two outputs of this command"|"is in a directory of the run") ]]
        [ ! -e two ]
    done
    mkfifo pipe
    run -73 --separate-stderr timeout -k 1 60 moe-sft tune -m "$DEMO" -d four.jsonl -o three -n 1 --svg pipe
    [ "$stderr" = "moe-sft: pipe: is not a file" ]
    [ ! -e three ]
    tune two -n 1 --svg two/loss.svg
    # which a run without --keep-best removes
    mkdir two/best
    run -2 tune two -n 1 -f --svg two/best/loss.svg
    tune two -n 1 -f --svg two/best/loss.svg --eval four.jsonl --keep-best
}

@test "moe-sft tune --dry-run: counts, memory before anything is allocated, and writes nothing" {
    run -0 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl -o run --dry-run --rank 4 --batch 4 --epochs 3 --eval four.jsonl
    [ -z "$stderr" ]
    [ ! -e run ]
    said() { awk -F '\t' -v name="$1" '$1 == name { print $2 }' <<<"$output"; }
    [ "$(said examples) $(said sequences) $(said steps) $(said "steps of an epoch") $(said "eval examples")" = "21 21 18 6 4" ]
    [ "$(said parameters)" = "$((4 * 4 * (2 * (128 + 64) + 2 * (128 + 128) + 3 * (128 + 384))))" ]
    [ "$(said "memory: total")" = "$(awk -F '\t' '/^memory: / && !/total|mapped/ { n += $2 } END { print n }' <<<"$output")" ]
    [ "$(said slices)" = 8 ]
    # it is what the run takes
    rss=$(peak moe-sft tune -m "$DEMO" -d ids.jsonl -o run --rank 4 --batch 4 --epochs 3 --eval four.jsonl -j 1)
    [ "$rss" -lt "$((($(said "memory: total") + $(said "memory: mapped files")) / 1024 + 12000))" ]
    run -73 moe-sft tune -m "$DEMO" -d ids.jsonl -o run --dry-run
}

# bats test_tags=long
@test "moe-sft tune: on a terminal there are tokens a second and the time left" {
    run -0 py -c 'import os, sys, terminal
status, said = terminal.run(sys.argv[1:])
assert status == 0
print(said.decode())' moe-sft tune -m "$DEMO" -d ids.jsonl -o run -n 80 --rank 4
    [[ $output =~ "tune: "[0-9]+" tokens, "[0-9.]+" tokens/s, "[0-9]+" %, "[0-9]+" s left" ]]
}

@test "moe-sft merge: of a whole model's adapter each weight is W + s B A, rounded once" {
    D=four.jsonl tune run -n 5 --rank 3 --alpha 7
    moe-sft merge -b "$DEMO" -l run -o merged
    [ "$(ls merged)" = "$(ls "$DEMO")" ]
    MODEL=$DEMO py - <<'END'
import os, mkst, numpy as np
base, merged = mkst.load(os.environ["MODEL"] + "/model.safetensors"), mkst.load("merged/model.safetensors")
lora = mkst.read("run/adapter_model.safetensors")[0]
n = 0
assert base.keys() == merged.keys()
for name, (dtype, shape, data) in base.items():
    at = "base_model.model." + name[:-len("weight")] + "lora_%s.weight"
    if at % "A" in lora:
        s = np.float64(np.float32(7 / 3))
        w = mkst.values(dtype, shape, data) + s * (lora[at % "B"] @ lora[at % "A"])
        off = np.abs(mkst.values(*merged[name]) - w)
        assert dtype == "BF16" and (off <= np.abs(w) * 2.0 ** -8).all(), name
        n += 1
    else:
        assert merged[name][2] == data, name
assert n == 4 * 7
END
    printf %s "The moon is made of old cheese." >text
    for how in "$DEMO" "$DEMO --lora run" merged; do
        # shellcheck disable=SC2086
        hf-infer $how --nll --json <text
    done >said
    "$PYTHON" -c 'import json
plain, lora, merged = [json.loads(l)["nll_mean"] for l in open("said")]
assert abs(merged - lora) < 0.1 * abs(lora - plain), (plain, lora, merged)'
    run -73 moe-sft merge -b "$DEMO" -l run -o merged
    moe-sft merge -b "$DEMO" -l run -o again -j 3
    cmp merged/model.safetensors again/model.safetensors
}

@test "moe-sft merge: an adapter of experts and attention is merged whole, NaN and another model are refused" {
    moe=$ROOT/demo/qwen3-moe-tiny
    py - "$moe" <<'END'
import json, os, sys, mkst, numpy as np
base = mkst.load(sys.argv[1] + "/model.safetensors")
g = np.random.default_rng(1)
t = {}
for name in sorted(base):
    if name.startswith("model.layers.1.") and name.endswith(("q_proj.weight", "experts.2.up_proj.weight")):
        out, inner = base[name][1]
        at = "base_model.model." + name[:-len("weight")] + "lora_%s.weight"
        t[at % "A"] = g.standard_normal((2, inner)).astype(np.float32)
        t[at % "B"] = g.standard_normal((out, 2)).astype(np.float32)
assert len(t) == 4
os.mkdir("both")
mkst.save("both/adapter_model.safetensors", t)
modules = sorted({name.split(".lora")[0][len("base_model.model."):] for name in t})
json.dump(dict(peft_type="LORA", r=2, lora_alpha=2, target_modules=modules, bias="none", use_rslora=False,
               use_dora=False), open("both/adapter_config.json", "w"))
name = next(iter(t))
t[name][0, 0] = np.nan
os.mkdir("nan")
mkst.save("nan/adapter_model.safetensors", t)
os.link("both/adapter_config.json", "nan/adapter_config.json")
END
    moe-sft merge -b "$moe" -l both -o merged
    [ "$(st-inspect diff "$moe" merged | grep -c '^differs')" = 2 ] || [ "$(st-inspect diff "$moe" merged | grep -c 'model.layers.1')" = 2 ]
    run -65 --separate-stderr moe-sft merge -b "$moe" -l nan -o bad
    [[ $stderr == "moe-sft: nan/adapter_model.safetensors: base_model.model.model.layers.1."*" has NaN or Inf" ]]
    run -65 moe-sft merge -b "$DEMO" -l both -o bad
    [ ! -e bad ]
}

@test "moe-sft tune: command lines and files that make no sense are refused" {
    usage() {
        run -2 --separate-stderr "${@:2}"
        [ "${stderr_lines[0]}" = "moe-sft: $1" ] || { echo "$stderr"; return 1; }
    }
    usage "-o $DEMO is the model's own directory" moe-sft tune -m "$DEMO" -d ids.jsonl -o "$DEMO" -f -n 1
    usage "tune: -o is missing" moe-sft tune -m "$DEMO" -d ids.jsonl
    usage "--targets: \"x\" is not one of q,k,v,o,gate,up,down, or of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj" tune run --targets q,x
    usage "--rank 129: the largest matrix that gets an adapter has rank 128, at most" tune run --rank 129
    usage "--rank 100000: the largest matrix that gets an adapter has rank 64, at most" tune run --rank 100000 --targets v
    usage "-n and --epochs both say how long" tune run -n 1 --epochs 1
    usage "--grads trains nothing: -o does not go with it" tune run --grads g
    usage "--warmup 1.5 is neither a number of steps nor a fraction of them" tune run --warmup 1.5
    usage "--data and --eval are both -" moe-sft tune -m "$DEMO" -d - --eval - -o run
    usage "--svg needs a file name, not -" tune run --svg -
    cp four.jsonl $'\xff'
    usage '--eval \xff: a name that is not UTF-8' tune run --eval $'\xff'
    usage '--svg \xff.svg: a name that is not UTF-8' tune run --svg $'\xff.svg'
    run -66 moe-sft tune -m nothing -d ids.jsonl -o run
    py "$ROOT/test/ref/family_ref.py" make llama llama
    moe-sft tune -m "$DEMO" -d four.jsonl -o adapter -n 1
    echo '{"ids": [1, 2], "labels": [1, 2]}' >d.jsonl
    run -65 --separate-stderr moe-sft tune -m llama -d d.jsonl -o run --init adapter
    [[ $stderr == "moe-sft: "*adapter* ]]
    [ ! -e run ]
}
