#!/bin/sh
# SPDX-License-Identifier: ISC
# shellcheck disable=SC2016 # what is shown is expanded when it is run
# `make demo`: demo.sh BUILD_DIR [DEMO_DIR [OUT_DIR]].  Inspects and verifies the
# model in DEMO_DIR (default: demo), asks it the questions of expected.tsv and
# compares ids and logits with torch's; makes a table and adapters in OUT_DIR
# (default: BUILD_DIR/demo), anew each time.  Prints a page; OUT_DIR/log has every
# command as it was run, so that it can be typed, and what it printed.  With V=1
# that goes to standard output instead.  Status 1 if anything differs.
set -eu
# numbers with a point, and pictures of the characters that the user has
LC_CTYPE=${LC_ALL:-${LC_CTYPE:-${LANG:-C}}} LC_NUMERIC=C LC_COLLATE=C
unset LC_ALL
export LC_CTYPE LC_NUMERIC LC_COLLATE
n_new=60
max_error=0.0002 # of a logit: what hf-infer(1) promises
tab=$(printf '\t')
failed=0
n=0

# part WORDS: what comes now, a line of the page.
part() {
    [ -n "${V-}" ] || echo "  $*" >&3
}

say() {
    echo
    echo "$*" | fold -s -w 78
}

# step LINE: shows and runs it, a line that can be typed.
step() {
    printf '\n$ %s\n' "$1"
    eval "$1" || failed=1
}

differs() {
    echo "DIFFERS: $*"
    failed=1
}

# compare IDS MEAN STD TOP: our logits after the prompt against torch's, with
# TOP as "id:logit ...".  Prints the table and adds the largest error to
# $errors; 1 if an id differs or an error is too large.
compare() {
    hf-infer qwen3-tiny --ids "$1" --top 5 | awk -F '\t' \
        -v mean="$2" -v std="$3" -v top="$4" -v max="$max_error" \
        -v errors="$errors" '
        function check(ours, torch, what,   e) {
            e = ours > torch ? ours - torch : torch - ours
            if (!(e <= max))
                bad = 1
            if (e > worst)
                worst = e
            printf "    %-12s %12.6f %12.6f\n", what, ours, torch
        }
        BEGIN {
            want["mean"] = mean
            want["std"] = std
            n = split(top, pair, " ")
            printf "    %-12s %12s %12s\n", "", "hf-infer", "torch"
        }
        NR == 1 { next }
        $1 == "mean" || $1 == "std" { check($2, want[$1], $1); next }
        {
            split(pair[++i], w, ":")
            if ($1 != w[1])
                bad = 1
            check($2, w[2], $3)
        }
        END {
            printf "%.9f\n", worst >>errors
            exit bad || NR != n + 3
        }'
}

# A line of the table: the answer as text, then ids and logits to compare.
question() {
    n=$((n + 1))
    printf '\n$ hf-infer qwen3-tiny -n %s --greedy -p "%b"\n' "$n_new" "$1"
    got=$(printf '%b' "$1" | hf-infer qwen3-tiny -n "$n_new" --greedy)
    printf '%s\n' "$got"
    [ "$got" = "$(printf '%b' "$4")" ] || differs "torch says: $4"
    got=$(printf '%b' "$1" | hf-infer qwen3-tiny --encode)
    [ "$got" = "$2" ] || differs "ids of the prompt are $got, torch's $2"
    # hf-infer ends with the end-of-text token, torch's list before it.
    got=$(hf-infer qwen3-tiny --ids "$2" -n "$n_new" --greedy --ids-out)
    [ "${got% *}" = "$3" ] || differs "ids of the answer are $got, torch's $3"
    compare "$2" "$5" "$6" "$7" >"$logits" || {
        differs "the logits"
        cat "$logits"
    }
}

# nll MODEL [OPTIONS]: on the held-out text, shown; its mean is left in $nll.
nll() {
    printf '\n$ hf-infer %s --nll --json -q --file held-out.txt\n' "$*"
    nll=$(eval "hf-infer $* --nll --json -q --file held-out.txt" | tee "$json" |
        sed 's/.*"nll_mean":\([^,]*\),.*/\1/')
    cat "$json"
}

# ask LINE: shows and runs it; the answer is left in $got.
ask() {
    printf '\n$ %s\n' "$1"
    got=$(eval "$1")
    printf '%s\n' "$got"
}

# A copy of the model of experts in which all experts of the first layer lose
# their down_proj: zeros where st-inspect says that these tensors lie.
damage() {
    mkdir "$1"
    cp qwen3-moe-tiny/* "$1"
    chmod u+w "$1"/*
    st-inspect list --long -t 'model.layers.0.mlp.experts.*.down_proj.weight' \
        "$1" | sed 1d | cut -f 4,5 |
        while read -r nbytes offset; do
            dd if=/dev/zero of="$1/model.safetensors" bs=1 count="$nbytes" \
                seek="$offset" conv=notrunc 2>/dev/null
        done
}

errors=$(mktemp) logits=$(mktemp) json=$(mktemp)
ended() { # what ended the script shows on the page, too
    [ $? = 0 ] || [ -n "$result" ] || [ -n "${V-}" ] || tail -n 3 "$OUT/log" >&3
    rm -f "$errors" "$logits" "$json"
}
result=
trap ended EXIT

# quoted PATH: as a shell reads it, from here.
quoted() {
    case $1 in
    /*) printf '"%s"' "$1" ;;
    *) printf '"$PWD/%s"' "$1" ;;
    esac
}
out=${3-$1/demo} demo=${2-demo}
rm -rf "$out"
mkdir -p "$out"
exec 3>&1
if [ -z "${V-}" ]; then
    echo "The tools at work on the small models of $demo; a minute on two cores."
    echo "Every command, and what it prints, is in $out/log:"
    exec >"$out/log" 2>&1
fi
say "Every command can be typed as it stands, after this line:"
step "PATH=$(quoted "$1"):\$PATH OUT=$(quoted "$out"); cd $demo"
[ "$failed" -eq 0 ] || exit 1

part "st-inspect: are the model's files sound, and what is in them?"
say "qwen3-tiny is a small language model: the architecture of Qwen3, its" \
    "weights in BF16 in a safetensors file, and its own tokenizer. What is in" \
    "it, one row for each kind of tensor, and where the parameters are:"
step 'st-inspect list --fold --align qwen3-tiny'
step 'st-inspect tree --depth 2 --align qwen3-tiny'
say "Is the file sound, and are all files those that were trained?"
step 'st-inspect verify -v qwen3-tiny'
step 'sha256sum -c SHA256SUMS'
part "hf-infer: do its answers and logits agree with torch's?"
say "Now the model answers, always with the most likely token:"
while IFS=$tab read -r prompt ids answer_ids answer mean std top; do
    [ "$prompt" = prompt ] && continue
    question "$prompt" "$ids" "$answer_ids" "$answer" "$mean" "$std" "$top"
done <expected.tsv
say "The logits after the last prompt: mean, standard deviation and the five" \
    "largest, next to those that torch computed in float64 from the same" \
    "weights:"
cat "$logits"
part "lut-precompute: what does a lookup table of one layer cost?"
say "sae is a sparse autoencoder, trained on what the MLP of layer 1 reads. A" \
    "lookup table made with it takes the place of gate_proj and up_proj. How" \
    "well does the model then predict a text that it was not trained on? First" \
    "the model as it is, then with the table, whose error is compensated for" \
    "none, a quarter, and all of the layer's inputs:"
step 'lut-precompute -m qwen3-tiny -s sae --fuse gate_up -f -o "$OUT/lut"'
nll qwen3-tiny
dense=$nll
nll qwen3-tiny --lut '"$OUT/lut"'
table=$nll
nll qwen3-tiny --lut '"$OUT/lut"' --ratio 0.25
quarter=$nll
nll qwen3-tiny --lut '"$OUT/lut"' --ratio 1
# All of it compensated is the dense layer but for the table's BF16.
echo "$dense $nll" | awk '{ d = $1 - $2; exit NF != 2 || d * d > 1e-6 }' ||
    differs "with everything compensated it should be $dense"
compensated=$nll
part "saev-write, saev-read, sae-train: an autoencoder of the layer's input"
say "The same from the beginning, of another text: what that MLP reads goes to" \
    "the disk, comes back in a random order, 24 times, and trains an" \
    "autoencoder, whose error falls; how much of the variance it leaves" \
    "unexplained (fvu); and a table made with it:"
step 'hf-infer qwen3-tiny --acts in:up_proj:1 --ctx 64 --file training.txt -q -f \
    --acts-meta "$OUT/meta.json" | saev-write -q -f -m "$OUT/meta.json" \
    -o "$OUT/acts" >"$OUT/dump"'
step 'for e in $(seq 24); do \
    saev-read -q --shuffle --epoch "$e" --raw "$(cat "$OUT/dump")"; \
done | sae-train -o "$OUT/sae" -k 32 --latents 1024 --dim 128 --batch 512 \
    -n 273 --lr 2e-3 --warmup 20 --hook layers.1.mlp.up_proj -q -f --plot'
step 'sae-train eval -s "$OUT/sae" "$(cat "$OUT/dump")"'
step 'lut-precompute -m qwen3-tiny -s "$OUT/sae" --fuse gate_up -f -o "$OUT/own"'
nll qwen3-tiny --lut '"$OUT/own"'
own=$nll
echo "$dense $own" | awk '{ exit NF != 2 || $2 > $1 + 0.15 }' ||
    differs "the table of the new autoencoder costs too much"
part "sae-look: what do an autoencoder's latents stand for?"
say "Another autoencoder, of what layer 1 passes on: 8 of its 256 latents are" \
    "active in a token. One pass over the same rows counts how often and how" \
    "strongly each is, and keeps its examples:"
step 'hf-infer qwen3-tiny --acts resid:1 --ctx 64 --file training.txt -q -f \
    --acts-ids "$OUT/ids.npy" -o "$OUT/rows.npy"'
step 'sae-train -q -f -o "$OUT/resid" -k 8 --latents 256 --batch 512 -n 120 \
    --lr 2e-3 --warmup 10 --hook layers.1 "$OUT/rows.npy"'
step 'sae-look scan -q -f -s "$OUT/resid" --acts-ids "$OUT/ids.npy" \
    --skip-ids special -o "$OUT/run" "$OUT/rows.npy"'
step 'sae-look lens -q -f -s "$OUT/resid" -m qwen3-tiny -o "$OUT/run"'
step 'sae-look list --sort max -n 5 "$OUT/run"'
say "Where is the strongest active, and which tokens does it promote?"
ask 'sae-look show "$OUT/run" -m qwen3-tiny \
    "$(sae-look list --sort max -n 1 "$OUT/run" | sed 1d | cut -f 1)" |
    sed "/^sample/,\$d"'
printf '%s\n' "$got" | awk '/^ .*]]/ { n++; sub(/.*\[\[/, ""); sub(/]].*/, "")
    token[$0] } END { for (t in token) k++; exit n != 20 || k != 1 }' ||
    differs "its 20 strongest examples are not of one token"
say "The 50 strongest on one page, for a browser:"
step 'sae-look html -q -f "$OUT/run" -m qwen3-tiny --sort max -n 50 \
    -o "$OUT/latents.html"'
part "hf-infer --images: what does an encoder see in twenty pictures?"
say "dinov2-tiny is a vision encoder of two layers. Of pictures, five of each of" \
    "four shapes in four directories, it writes what it passes on for each of" \
    "64 patches; an autoencoder of 32 latents, 4 of them active in a patch, is" \
    "trained on these rows, and the strongest examples of each latent kept:"
step 'hf-infer dinov2-tiny --images pictures --acts resid:1 --no-cls -q -f \
    --acts-images "$OUT/pictures.tsv" --acts-meta "$OUT/pictures.json" | \
    saev-write -q -f -m "$OUT/pictures.json" -o "$OUT/patches"'
step 'sae-train -q -f -o "$OUT/eye" -k 4 --latents 32 --batch 128 -n 400 \
    --lr 3e-3 "$OUT/patches"'
step 'sae-look scan -q -f -s "$OUT/eye" --top 5 --sample 0 -o "$OUT/seen" \
    "$OUT/patches"'
say "Each picture's class is its directory's name. The five pictures in which" \
    "the strongest latents are strongest have these classes:"
ask 'sae-look show --json "$OUT/seen" \
    $(sae-look list --sort max -n 8 "$OUT/seen" | sed 1d | cut -f 1) | \
    awk -F "\t" "NR == FNR { class[\$1] = \$3; next } {
        n = split(\$0, row, /.row.:/)
        match(\$0, /[0-9]+/)
        line = substr(\$0, RSTART, RLENGTH)
        for (i = 2; i <= n; i++)
            line = line OFS class[int(row[i] / 64)]
        print line }" "$OUT/pictures.tsv" -'
printf '%s\n' "$got" | awk '
    NF == 6 && $2 == $3 && $2 == $4 && $2 == $5 && $2 == $6 { one[$2] }
    END { for (c in one) n++; exit n != 4 }' ||
    differs "not every shape has a latent of its own"
[ -n "${V-}" ] || printf '%s\n' "$got" | sed 's/^/    latent /' >&3
say "The same, with the patches, for a browser:"
step 'sed 1d "$OUT/pictures.tsv" | cut -f 4 >"$OUT/pictures.list"'
step 'sae-look html -q -f "$OUT/seen" --images "$OUT/pictures.list" \
    --grid 8x8 --sort max -n 8 -o "$OUT/patches.html"'
part "moe-sft tune: the model learns a dozen lines"
say "facts.jsonl has a dozen lines that qwen3-tiny does not know: capitals of" \
    "countries in books. Fine-tuning makes an adapter of the whole model, and" \
    "the loss falls:"
ask 'hf-infer qwen3-tiny --greedy -p "What is the capital of Gondor?"'
step 'cat facts.jsonl'
step 'moe-sft tune -m qwen3-tiny -d facts.jsonl --eval facts.jsonl -f \
    -o "$OUT/facts" -n 40 --batch 12 --rank 8 --lr 2e-3 --schedule cosine \
    --compute f32 --plot'
ask 'hf-infer qwen3-tiny --lora "$OUT/facts" --greedy \
    -p "What is the capital of Gondor?"'
[ "$got" = " The capital of Gondor is Minas Tirith." ] ||
    differs "the adapter has not learnt what facts.jsonl says"
ask 'hf-infer qwen3-tiny --lora "$OUT/facts" --greedy \
    -p "What is the capital of France?"'
unlearnt=$(awk -F '\t' '$1 == 0 && NF == 6 { print $6 }' "$OUT/facts/log.tsv")
learnt=$(awk -F '\t' 'END { print $6 }' "$OUT/facts/log.tsv")
part "moe-sft train: adapters repair damaged experts"
say "qwen3-moe-tiny has experts: in each layer a router sends every token to" \
    "two of four small MLPs. \$OUT/damaged is a copy in which all experts of" \
    "the first layer have lost their down_proj: zeros. LoRA adapters of the" \
    "four learn to repair it, from what the whole layer reads and writes:"
damage "$OUT/damaged"
acts='--ctx 64 --file training.txt -q -f'
step "hf-infer qwen3-moe-tiny --acts in:gate_proj:0 $acts -o \"\$OUT/in.npy\""
step "hf-infer qwen3-moe-tiny --acts mlp:0 $acts -o \"\$OUT/out.npy\""
step 'moe-sft init -b "$OUT/damaged" --layer 0 --rank 16 --alpha 16 \
    -f -o "$OUT/lora.safetensors"'
step 'moe-sft train -b "$OUT/damaged" --layer 0 -l "$OUT/lora.safetensors" \
    -i "$OUT/in.npy" --target "$OUT/out.npy" -f -o "$OUT/run" -n 200 \
    --length 64 --lr 1e-2 --schedule cosine --shuffle --log "$OUT/log.tsv"'
step 'cut -f 1,2 "$OUT/log.tsv" | awk "NR <= 2 || (NR - 1) % 50 == 0"'
nll qwen3-moe-tiny
whole=$nll
nll '"$OUT/damaged"'
damaged=$nll
nll '"$OUT/damaged"' --lora '"$OUT/run"'
echo "$whole $damaged $nll" |
    awk '{ exit NF != 3 || $2 < $1 + 1 || $3 > $2 - ($2 - $1) * 3 / 4 }' ||
    differs "less than three quarters of what was lost came back"

row() {
    printf '    %-38s %10.6f\n' "$1" "$2"
}
result=yes
{
    say "RESULT"
    say "One model inspected and verified, $n questions answered. Token ids of" \
        "prompts and answers are compared with torch's for equality, and logits" \
        "within $max_error: the largest error was $(sort -n "$errors" | tail -n 1)." \
        "Mean negative log-likelihood of a token of demo/held-out.txt, or of those" \
        "that facts.jsonl teaches, in nats:"
    echo
    row 'qwen3-tiny' "$dense"
    row 'with a lookup table' "$table"
    row 'with a lookup table, --ratio 0.25' "$quarter"
    row 'with a lookup table, --ratio 1' "$compensated"
    row 'with a table of the new autoencoder' "$own"
    row 'on facts.jsonl' "$unlearnt"
    row 'on facts.jsonl, --lora' "$learnt"
    row 'qwen3-moe-tiny' "$whole"
    row 'damaged' "$damaged"
    row 'damaged, --lora' "$nll"
    echo
    if [ "$failed" -ne 0 ] || [ "$n" -eq 0 ]; then
        [ -n "${V-}" ] || grep -E '^DIFFERS|FAILED$' "$OUT/log" || :
        echo "Something differs: see the lines above."
        exit 1
    fi
    cat <<END
Everything agrees.  What latents of text and of pictures are, in a browser:

    $out/latents.html
    $out/patches.html

Type next:

    PATH=$(quoted "$1"):\$PATH
    hf-infer $demo/qwen3-tiny --greedy -p "What is the capital of Peru?"
    saev-read stats --plot $out/acts
    sae-train eval -s $out/sae $out/acts
END
} >&3
