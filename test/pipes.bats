# SPDX-License-Identifier: ISC
# The story of tensorutils(7) from end to end, through pipes: every step is
# proven by its effect on the model.
load helpers
NEEDS=${LEFT_OUT-} # every tool

typed() {
    sh "$ROOT/test/typed.sh" tensorutils.7 "$1"
}

# The page needs nothing but the demo's files where it is typed.
setup_file() {
    [ -z "$NEEDS" ] || return 0
    export S=$BATS_FILE_TMPDIR
    cd "$S"
    ln -s "$ROOT/demo" demo
    typed "THE STORY" >story.sh
    bash -eo pipefail story.sh >said 2>warned || {
        cat said warned
        return 1
    }
}

# nll FILE: its sum, in nats.  nll_of OPTION...: of the held-out text.
nll() {
    sed 's/.*"nll_sum":\([^,]*\),.*/\1/' "$1"
}

nll_of() {
    hf-infer "$@" --nll --json -q --file "$ROOT/demo/held-out.txt" | nll /dev/stdin
}

# ordered SUM...: each is larger than the one before, by more than f32 may err.
ordered() {
    echo "nll: $*"
    awk 'BEGIN { for (i = 2; i < ARGC; i++) if (!(ARGV[i] > ARGV[i - 1] + 0.02)) exit 1 }' "$@"
}

# near A B WITHIN
near() {
    echo "near: $*"
    awk 'BEGIN { d = ARGV[1] - ARGV[2]; exit !(d * d <= ARGV[3] * ARGV[3]) }' "$@"
}

@test "story: all commands were typed, and warn of nothing but what is left over" {
    [ "$(grep -cE '(^|[|] *|^ +)(st-inspect|hf-infer|saev-|lut-|kvc-|moe-)' "$S/story.sh")" -ge 25 ]
    for t in st-inspect hf-infer saev-write saev-read kvc-convert lut-precompute lut-apply sae-train moe-sft; do
        grep -q "$t" "$S/story.sh"
    done
    run ! grep -vE 'fills? no window of 64, dropped$|tokens, mean nll .* perplexity| rows, --batch .* steps|^hf-infer: after the first ' "$S/warned"
}

@test "story: the page names every tool, and each tool's page names it" {
    for t in "$ROOT"/cmd/*; do
        t=$(basename "$t")
        grep -q "^\.It Xr $t 1" "$ROOT/man/tensorutils.7" &&
            grep -q "^\.Xr $t 1" "$ROOT/man/tensorutils.7" &&
            grep -q '^\.Xr tensorutils 7' "$ROOT/man/$t.1" || {
            echo "tensorutils.7 needs $t in its list and in SEE ALSO, and man/$t.1 needs .Xr tensorutils 7"
            false
        }
    done
}

@test "story: tuning is checked and learns, the text shows what it forgot, the table costs, the merged model agrees" {
    [ "$(cut -f 7 "$S/gradients.tsv" | sort -u | tr '\n' ' ')" = "ok yes " ]
    grep -qF 'The capital of Gondor is Minas Tirith.' "$S/said"
    awk -F '\t' '$1 == 0 { first = $6 } END { exit !(first > 3 && $6 < 0.1) }' "$S/facts/log.tsv"
    ordered "$(nll "$S/dense.json")" "$(nll "$S/facts.json")" "$(nll "$S/facts-lut.json")"
    near "$(nll "$S/facts.json")" "$(nll "$S/merged.json")" 5 # each weight rounded to BF16
}

@test "tensorutils(7): all that it shows to type is in a section that a test types" {
    # SLURM: test/slurm/story.bats
    for section in "A FIRST JOB" "THE STORY" PIPES MAKEFILES SLURM CRON; do typed "$section"; done >tested
    diff <(sed -n '/^\.Bd -literal/,/^\.Ed/{/^\./!p}' "$ROOT/man/tensorutils.7" | sed 's/\\e/\\/g') tested
    [ "$(wc -l <tested)" -gt 60 ]
    run ! grep '^\.Dl' "$ROOT/man/tensorutils.7"
}

@test "story: a dump is what the model computes, and a shuffle is a dump's rows" {
    cd "$S"
    hf-infer demo/qwen3-tiny --acts in:up_proj:1 --ctx 64 -q --file demo/training.txt >"$BATS_TEST_TMPDIR/a.f32"
    cmp "$BATS_TEST_TMPDIR/a.f32" "$(cat dump)/acts000000.bin"
    saev-read "$(cat dump)" --raw | cmp - "$BATS_TEST_TMPDIR/a.f32"
    saev-read --shuffle --seed 1 --raw "$(cat dump)" >"$BATS_TEST_TMPDIR/s.f32"
    saev-read --shuffle --seed 1 --mem 1M -j 1 --raw "$(cat dump)" | cmp - "$BATS_TEST_TMPDIR/s.f32"
    cd "$BATS_TEST_TMPDIR"
    run ! cmp -s a.f32 s.f32
    hf-infer "$S/demo/dinov2-tiny" --images "$S/demo/pictures" --acts resid:1 --no-cls -q >p.f32
    cmp p.f32 "$S"/seen/*/acts000000.bin
    grep -q 'href="data:image/png;base64,' "$S/patches.html"
    "$PYTHON" -c 'import numpy as np
a, s = (np.sort(np.fromfile(f, "V512").view("S512")) for f in ("a.f32", "s.f32"))
assert len(a) == 5824 and (a == s).all()'
}

@test "story: a table costs the more the less its autoencoder knows and is compensated" {
    cd "$S"
    "$PYTHON" "$ROOT/test/ref/story.py" random "$BATS_TEST_TMPDIR/sae/layers.1.mlp.up_proj"
    lut-precompute -q -m demo/qwen3-tiny -s "$BATS_TEST_TMPDIR/sae" --fuse gate_up -o "$BATS_TEST_TMPDIR/lut"
    ordered "$(nll dense.json)" "$(nll quarter.json)" "$(nll lut.json)" \
        "$(nll_of demo/qwen3-tiny --lut "$BATS_TEST_TMPDIR/lut")"
    # all compensated: the layer itself, but for the table's bf16
    near "$(nll_of demo/qwen3-tiny --lut lut --ratio 1)" "$(nll dense.json)" 0.5
    awk -F '\t' '$1 == "rows" { ok = $2 == 5824 } $1 == "fvu_output" && !($2 > 0 && $2 < 0.2) { exit 1 }
        END { exit !ok }' report.tsv
}

@test "story: a shorter cache costs, one of noise more, one too short to shorten nothing" {
    cd "$S"
    py -c 'import sys, numpy as np, kvc_ref as k
k.save(sys.argv[1], k.random_mlps(np.random.default_rng(0), 4, 2, 32, 2, 8, 8), 32, 2)' "$BATS_TEST_TMPDIR/noise.bin"
    ordered "$(nll fact.json)" "$(nll kvc.json)" \
        "$(hf-infer demo/qwen3-tiny --kvc "$BATS_TEST_TMPDIR/noise.bin" --nll --json -q <fact | nll /dev/stdin)"
    [ "$(hf-infer demo/qwen3-tiny --kvc c.bin --greedy -p 'What is the capital of France?')" = \
        " The capital of France is Paris." ]
    kvc-convert --input demo/compressor.pth --output "$BATS_TEST_TMPDIR/long.bin" --head-dim 32 --min-seq-len 1000 \
        --prefix-order compress_tk,compress_tv
    hf-infer demo/qwen3-tiny --nll -q --kvc "$BATS_TEST_TMPDIR/long.bin" <demo/held-out.txt | cmp - nll.tsv
    "$PYTHON" "$ROOT/test/ref/story.py" compressor "$BATS_TEST_TMPDIR/made.pth"
    cmp demo/compressor.pth "$BATS_TEST_TMPDIR/made.pth"
    # and the file becomes itself again
    kvc-convert --input c.bin --output "$BATS_TEST_TMPDIR/c.safetensors"
    kvc-convert --input "$BATS_TEST_TMPDIR/c.safetensors" --output "$BATS_TEST_TMPDIR/c.bin"
    cmp c.bin "$BATS_TEST_TMPDIR/c.bin"
}

@test "story: an adapter brings knowledge back, a new one none, a merged one as much" {
    cd "$S"
    ordered "$(nll_of demo/qwen3-moe-tiny)" "$(nll repaired.json)" "$(nll_of damaged)"
    hf-infer damaged --nll -q <demo/held-out.txt >"$BATS_TEST_TMPDIR/damaged.tsv"
    hf-infer damaged --nll -q --lora lora.safetensors <demo/held-out.txt | cmp - "$BATS_TEST_TMPDIR/damaged.tsv"
    # the base is zeros where it was damaged: the merge is rounded to bf16
    moe-sft merge -b damaged -l run/lora.safetensors -o "$BATS_TEST_TMPDIR/merged"
    near "$(nll_of "$BATS_TEST_TMPDIR/merged")" "$(nll repaired.json)" 20
    # all steps are told, and their end is better than their beginning
    awk -F '\t' 'NR == 2 { first = $2 } { last = $2 } END { exit !(NR == 101 && last < first / 4) }' log.tsv
}

# bats test_tags=long
@test "story: typed again in another directory it leaves the same bytes" {
    ln -s "$ROOT/demo" demo
    bash -eo pipefail "$S/story.sh" >said 2>warned
    diff -r --no-dereference -x story.sh "$S" .
}

# installed: HOME with what make install puts there, without the tools.
installed() {
    export HOME=$PWD/home
    mkdir -p home/.local/share/tensorutils
    cp "$ROOT"/jobs/* home/.local/share/tensorutils
}

# bats test_tags=long
@test "tensorutils(7): the batch of MAKEFILES, typed twice" {
    ln -s "$ROOT/demo" demo
    installed
    typed MAKEFILES >batch.sh
    bash -eo pipefail batch.sh >said
    [ "$(tail -n 3 said | cut -f 1 | paste -sd' ')" = "dense lut lut-ratio" ]
    [ "$(tail -n 3 said | head -n 1 | cut -f 2)" = "$(sed 's/.*"nll_mean":\([^,]*\),.*/\1/' "$S/dense.json")" ]
    # the line of make alone: new documents would be another dump
    run -0 bash -eo pipefail <(sed -n '/^make /,$p' batch.sh)
    [[ $output == *"'nll.tsv' is up to date."* ]]
}

# bare NAME=VALUE... COMMAND...: in an environment of nothing else but TU_ISA,
# where that is set: what it says holds for all of a test.
bare() {
    env -i ${TU_ISA+"TU_ISA=$TU_ISA"} "$@"
}

# as_cron COMMAND: as cron runs it, at the least.
as_cron() {
    (
        cd /
        umask 077
        bare PATH="${CRON_PATH:-/usr/bin:/bin}" HOME="$HOME" SHELL=/bin/sh LANG=C setsid /bin/sh -c "$1" </dev/null
    )
}

@test "cron: in a bare environment the story has the same bytes, and is nobody else's" {
    export W=$PWD M=$PWD/demo CRON_PATH=$BUILD:/usr/bin:/bin
    ln -s "$ROOT/demo" . # no space in the story's words
    cp "$S/lora.safetensors" .
    cat >story.sh <<'END'
set -e
st-inspect verify -q $M/qwen3-tiny
st-inspect hash --sha256 -o $W/hashes $M/qwen3-tiny
hf-infer $M/qwen3-tiny -q --nll --json --file $M/held-out.txt -o $W/dense.json
hf-infer $M/qwen3-tiny -q --acts in:up_proj:1 --ctx 64 --acts-meta $W/meta.json --file $M/training.txt |
    saev-write -q -m $W/meta.json -o $W/acts >$W/dump
dump=$(cat $W/dump)
saev-read -q verify --deep $dump
saev-read -q --shuffle --seed 1 --mem 1M --raw -o $W/rows.f32 $dump
lut-precompute -q -m $M/qwen3-tiny -s $M/sae --fuse gate_up -o $W/lut
hf-infer $M/qwen3-tiny -q --lut $W/lut --nll --json --file $M/held-out.txt -o $W/lut.json
saev-read -q $dump | lut-apply -q --report $W/lut layers.1.mlp.gate_up_proj -m $M/qwen3-tiny -o $W/report.tsv
kvc-convert -q --input $M/compressor.pth --output $W/c.bin --head-dim 32 --prefix-order compress_tk,compress_tv
hf-infer $M/qwen3-tiny -q --kvc $W/c.bin --nll --json --file $S/fact -o $W/kvc.json
moe-sft train -q -b $S/damaged --layer 0 -l $W/lora.safetensors -i $S/in.npy --target $S/out.npy \
    --length 64 -n 100 --lr 1e-2 --schedule cosine --shuffle -o $W/run --log $W/log.tsv
hf-infer $S/damaged -q --lora $W/run --nll --json --file $M/held-out.txt -o $W/repaired.json
END
    run -0 as_cron "M=$M W=$W S=$S; $(cat story.sh)"
    [ -z "$output" ]
    for f in dense.json lut.json c.bin kvc.json log.tsv repaired.json run/lora.safetensors report.tsv; do
        cmp "$f" "$S/$f"
    done
    cmp lut/*.lut.safetensors "$S"/lut/*.lut.safetensors
    diff "$(cat dump)/" "$S/acts/"*/ -x metadata.json -x ids.npy.json
    saev-read --shuffle --seed 1 --raw "$(cat dump)" | cmp - rows.f32
    # a umask is kept
    find . -mindepth 1 -newer story.sh -not -path ./lora.safetensors -not -type l -perm /077 >"$BATS_TEST_TMPDIR.others"
    [ ! -s "$BATS_TEST_TMPDIR.others" ]
}

# bats test_tags=long
@test "tensorutils(7): the lines of the crontab do their work, and are silent about it" {
    installed
    mkdir home/.local/bin
    ln -s "$BUILD"/* home/.local/bin
    ln -s "$ROOT/demo" demo
    "$PYTHON" "$ROOT/test/ref/story.py" jsonl demo/held-out.txt >docs.jsonl
    typed CRON >lines
    grep -E '^[0-9*]+ [0-9*]+ [*] [*] [0-9*] ' lines >crontab
    [ "$(wc -l <crontab)" = 3 ]
    grep -vxFf crontab lines | bash -eo pipefail -s
    for night in 1 2; do
        while read -r _ _ _ _ _ command; do
            said=$(as_cron "$command" 2>&1)
            [ -z "$said" ]
        done <crontab
        places=$(find home/acts/*/ home/batch -type f -not -name log -printf '%p %i %T@\n' | sort)
        [ "${before:-$places}" = "$places" ]
        before=$places
    done
    [ -s home/batch/lut.json ] && [ -s home/batch/nll.tsv ]
    saev-read verify --deep home/acts/*/
    # what is wrong is mailed
    printf x >>home/demo/qwen3-tiny/model.safetensors
    run -1 as_cron "$(sed -n '1s/^[^$]*//p' crontab)"
    [[ $output == *model.safetensors* ]]
}

# closed COMMAND...: its reader has gone before it writes.
closed() {
    local status=0
    exec 4> >(:)
    wait $! || : # 127 where it has been waited for
    "$@" >&4 2>"$BATS_TEST_TMPDIR/err" || status=$?
    exec 4>&-
    echo "$*: status $status: $(cat "$BATS_TEST_TMPDIR/err")"
    [ "$status" = 141 ] && [ ! -s "$BATS_TEST_TMPDIR/err" ]
}

@test "acts-cron.sh, acts-meta.sh: usage on other than 5 operands; TU_BIN is first" {
    for script in acts-cron.sh acts-meta.sh; do
        for operands in "" "1 2 3 4" "1 2 3 4 5 6"; do
            run -2 --separate-stderr "$ROOT/jobs/$script" $operands
            [ -z "$output" ]
            [ "${stderr_lines[0]}" = "usage: $script MODEL DOCS.jsonl SPEC T DIR" ]
            [[ ${stderr_lines[-1]} == *MAX_PATCHES* ]]
        done
    done
    mkdir -p home/.local/bin mine
    for d in home/.local/bin mine; do
        printf '#!/bin/sh\necho %s >&2; exit 9\n' $d >$d/hf-infer
        chmod +x $d/hf-infer
    done
    touch docs
    run -9 bare HOME="$PWD/home" "$ROOT/jobs/acts-cron.sh" "$DEMO" docs resid:0 8 acts
    [ "$output" = home/.local/bin ]
    run -9 bare HOME="$PWD/home" TU_BIN="$PWD/mine" "$ROOT/jobs/acts-cron.sh" "$DEMO" docs resid:0 8 acts
    [ "$output" = mine ]
}

# bats test_tags=long
@test "acts-cron.sh: who is stopped by its deadline has not failed, and says nothing" {
    mkdir mine
    echo '{"text":"x"}' >docs
    ln -s "$BUILD/hf-infer" mine
    printf '#!/bin/sh\ncase "$*" in *--deadline\ 3600*) exit "$STATUS" ;; esac\nexec "%s/saev-write" "$@"\n' "$BUILD" >mine/saev-write
    chmod +x mine/saev-write
    for status in 75 74; do
        run -$((status % 75)) bare STATUS=$status HOME="$PWD/home" TU_BIN="$PWD/mine" \
            "$ROOT/jobs/acts-cron.sh" "$DEMO" docs resid:0 8 acts
        [ -z "$output" ]
    done
}

@test "pipes: whoever writes to a reader that has gone ends quietly, with 141" {
    cd "$S"
    m=demo/qwen3-tiny dump=$(cat dump)
    closed st-inspect $m
    closed st-inspect cat --raw $m model.norm.weight
    closed hf-infer $m -p 1+1= --greedy
    closed hf-infer $m -q --nll --file demo/held-out.txt
    closed hf-infer $m --logits - --ids 1,2,3
    closed hf-infer $m --acts resid:all --ids 1,2,3
    closed hf-infer $m --encode -p x
    closed hf-infer $m --jsonl --greedy --file <(echo '{"prompt":"1+1="}')
    closed saev-write -q --hash -m meta.json
    closed saev-read "$dump"
    closed saev-read --shuffle --raw "$dump"
    closed saev-read info "$dump"
    closed saev-read stats "$dump"
    closed sae-train info sae
    closed sae-train eval -s sae "$dump"
    closed lut-apply -i <(saev-read "$dump") lut layers.1.mlp.gate_up_proj
    closed lut-precompute -q -m $m -s demo/sae --dry-run
    closed kvc-convert --info c.bin
    closed kvc-convert --info --json c.bin
    closed moe-sft info -b damaged --layer 0
    closed moe-sft train -q -b damaged --layer 0 -l lora.safetensors -i in.npy --target out.npy \
        --length 64 -n 2 -o "$BATS_TEST_TMPDIR/run"
}

@test "tensorutils(7): under pipefail a pipe has the status of a reader that stops early" {
    ln -s "$S/acts" "$S/dump" "$ROOT/demo" .
    typed PIPES >script
    run -0 bash -eo pipefail script
    [ -s few/sae.safetensors ]
    # without the words that allow it, 141; and a writer that fails is no success
    run -141 bash -eo pipefail <(sed '/saev-read/s/^{ \(.*\) ||.*/\1 |/; s/few/other/' script)
    run ! bash -eo pipefail <(sed 's/--shuffle/& --epoch x/; s/few/third/' script)
}

@test "pages, README: no pipe that is shown has a reader that stops early, which pipefail calls failed" {
    run ! grep -nE '[|] *(head|sed [0-9]+q)' "$ROOT"/man/*.[1-9] "$ROOT/README.md"
}

@test "pipes: head ends a long stream quietly, and pipefail tells 141" {
    cd "$S"
    yes '{"text":"What is the capital of France?"}' | head -n 5000 >"$BATS_TEST_TMPDIR/docs.jsonl"
    set -o pipefail
    status=0
    hf-infer demo/qwen3-tiny --acts resid:all --ctx 32 --jsonl --file "$BATS_TEST_TMPDIR/docs.jsonl" \
        2>"$BATS_TEST_TMPDIR/err" | head -c 1000000 | cksum || status=$?
    [ $status = 141 ]
    [ ! -s "$BATS_TEST_TMPDIR/err" ]
}

@test "pipes: where the first tool fails, the second publishes nothing and says so" {
    m=$ROOT/demo/qwen3-tiny
    acts=(hf-infer --acts resid:0 --ctx 16 --acts-meta meta.json --file "$ROOT/demo/held-out.txt")
    failed() { # failed FIRST: that status came from it, and no dump
        [ "$status" = "$1" ]
        [ -z "$(ls -A D 2>/dev/null)" ]
    }
    try() { # try COMMAND...: both statuses
        ! "$@" 2>err | saev-write -q -m meta.json -o D 2>err2
        read -r status second <<<"${PIPESTATUS[*]}"
        cat err err2
    }
    # no metadata, then those of another run
    try "${acts[@]}" nowhere
    failed 66 && [ "$second" = 66 ]
    [ ! -e meta.json ]
    "${acts[@]}" "$m" -q >/dev/null
    sed -i '/n_imgs/d' meta.json
    try "${acts[@]}" nowhere
    failed 66 && [ "$second" = 65 ]
    [ "$(cat err2)" = "saev-write: standard input: is empty (expected images, as meta.json has no n_imgs)" ]
    try "${acts[@]}" "$m"
    failed 73 && [ "$second" = 65 ]
    # a document too many, in the middle: those before it are not a dump
    rm meta.json
    printf '{"ids":[1,2,3]}\n{"ids":[4,5]}\n' >docs
    try hf-infer "$m" --acts resid:0 --acts-meta meta.json --jsonl --file docs
    failed 65 && [ "$second" != 0 ]
}

@test "pipes: a tool that is killed in the middle is noticed by the one behind it" {
    m=$ROOT/demo/qwen3-tiny
    for _ in $(seq 40); do cat "$ROOT/demo/training.txt"; done >text
    # 64 windows are written at once: this is the end of some
    n=$((64 * 16 * 4 * 128 * 4))
    mkfifo pipe
    hf-infer "$m" --acts resid:all --ctx 16 --acts-meta meta.json --file text -q >pipe &
    { head -c $n && kill -9 $!; } <pipe | saev-write -q -m meta.json -o D 2>err2 && false
    # by this shell: run's is a child, which may not know of the end
    wait $! || status=$?
    [ "$status" = 137 ]
    grep -q "^saev-write: standard input: ended after $n of [0-9]* bytes (image 64 of [0-9]*)" err2
    [ -z "$(ls -A D)" ]
    # a .npy says how much it holds
    dump=$(cat "$S/dump")
    saev-read "$S/$dump" | head -c 100000 |
        lut-apply "$S/lut" layers.1.mlp.gate_up_proj -o y.npy 2>err2 && false
    grep -q '^lut-apply: standard input: ' err2
    [ ! -e y.npy ]
}

@test "pipes: where the second tool fails, the first ends quietly" {
    cd "$S"
    set -o pipefail
    status=0
    hf-infer demo/qwen3-tiny --acts in:up_proj:1 --ctx 64 -q --file demo/training.txt 2>"$BATS_TEST_TMPDIR/err" |
        saev-write -q -m meta.json -o acts 2>"$BATS_TEST_TMPDIR/err2" || status=$?
    [ $status = 73 ]
    [ ! -s "$BATS_TEST_TMPDIR/err" ]
    [ "$(cat "$BATS_TEST_TMPDIR/err2")" = "saev-write: $(cat dump): exists already (--force replaces it)" ]
    # for scripts that may run twice
    hf-infer demo/qwen3-tiny --acts in:up_proj:1 --ctx 64 -q --file demo/training.txt 2>"$BATS_TEST_TMPDIR/err" |
        saev-write -q --if-missing -m meta.json -o acts >"$BATS_TEST_TMPDIR/again" || status=$?
    cmp dump "$BATS_TEST_TMPDIR/again"
}

# bats test_tags=long
@test "latents: an autoencoder is trained, looked at, shown, steered, ablated and compared, as typed" {
    ln -s "$ROOT/demo" .
    cat >typed <<'END'
M=demo/qwen3-tiny
hf-infer $M --acts resid:1 --ctx 64 --file demo/training.txt --acts-ids ids.npy -o rows.npy
sae-train -q -o sae -k 8 --latents 256 --batch 512 -n 40 --lr 2e-3 --warmup 5 --hook layers.1 rows.npy
sae-look scan -s sae --acts-ids ids.npy --skip-ids 1021,1023 -o run rows.npy
sae-look lens -s sae -m $M -o run && sae-look list --sort density -n 5 run
i=$(sae-look list --sort max -n 1 run | awk 'NR == 2 { print $1 }')
sae-look show run $i -m $M; sae-look html run -m $M -n 50 -o latents.html
hf-infer $M -p "1+1=" -n 20 --greedy --steer sae:$i+8
hf-infer $M --nll --json --ablate sae:$i --file demo/held-out.txt
sae-look compare sae sae | awk 'NR > 1 && $1 != $2' | wc -l            # 0, if no two directions are equal
END
    run -0 --separate-stderr bash -eo pipefail typed
    [ "${lines[-1]}" = 0 ]
    [ "$(awk -F '\t' 'NF == 7 && $1 ~ /^[0-9]+$/' <<<"$output" | wc -l)" = 5 ]
    [ "$(grep -o '<section ' latents.html | wc -l)" = 50 ]
    # what is ablated changes what the model expects, as what is steered to 0
    i=$(sae-look list --sort max -n 1 run | sed 1d | cut -f 1)
    hf-infer demo/qwen3-tiny --nll --json --file demo/held-out.txt -q -o plain.json
    hf-infer demo/qwen3-tiny --nll --json --file demo/held-out.txt -q -o zero.json --steer "sae:$i=0"
    ablated=$(grep nll_sum <<<"$output" | nll /dev/stdin)
    [ "$ablated" = "$(nll zero.json)" ] && [ "$ablated" != "$(nll plain.json)" ]
}
