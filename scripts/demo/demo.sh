#!/bin/sh
# `make demo`: demo.sh BUILD_DIR [DEMO_DIR].  Inspects and verifies the model
# in DEMO_DIR (default: the repository's demo), asks it the questions of
# expected.tsv and compares ids and logits with torch's.  Status 1 if anything
# differs.
set -eu
LC_ALL=C # numbers with a point
export LC_ALL
PATH=$(cd "$1" && pwd):$PATH
cd "${2:-$(dirname "$0")/../../demo}"
model=qwen3-tiny
moe=qwen3-moe-tiny
n_new=60
max_error=0.0002 # of a logit: what hf-infer(1) promises
tab=$(printf '\t')
failed=0
n=0

say() {
    echo
    echo "$*" | fold -s -w 78
}

# step COMMAND...: shows and runs it.
step() {
    printf '\n$ %s\n' "$*"
    "$@" || failed=1
}

differs() {
    echo "DIFFERS: $*"
    failed=1
}

# compare IDS MEAN STD TOP: our logits after the prompt against torch's, with
# TOP as "id:logit ...".  Prints the table and notes the largest error in
# $errors; 1 if an id differs or an error is too large.
compare() {
    hf-infer "$model" --ids "$1" --top 5 | awk -F '\t' \
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
            printf "%.9f\n", worst >errors
            exit bad || NR != n + 3
        }'
}

# nll NAME MODEL [OPTION...]: the mean over a text, shown and left in $nll.
nll() {
    name=$1
    shift
    nll=$(hf-infer "$@" --nll --json -q --file held-out.txt |
        sed 's/.*"nll_mean":\([^,]*\),.*/\1/')
    printf '    %-34s %s\n' "$name" "$nll"
}

# A line of the table: the answer as text, then ids and logits to compare.
question() {
    n=$((n + 1))
    printf '\n$ hf-infer %s -n %s --greedy -p "%b"\n' "$model" "$n_new" "$1"
    got=$(printf '%b' "$1" | hf-infer "$model" -n "$n_new" --greedy)
    printf '%s\n' "$got"
    [ "$got" = "$(printf '%b' "$4")" ] || differs "torch says: $4"
    got=$(printf '%b' "$1" | hf-infer "$model" --encode)
    [ "$got" = "$2" ] || differs "ids of the prompt are $got, torch's $2"
    # hf-infer ends with the end-of-text token, torch's list before it.
    got=$(hf-infer "$model" --ids "$2" -n "$n_new" --greedy --ids-out)
    [ "${got% *}" = "$3" ] || differs "ids of the answer are $got, torch's $3"
    compare "$2" "$5" "$6" "$7" || differs "the logits"
}

errors=$(mktemp)
worst=$(mktemp)
tables=$(mktemp -d)
work=$(mktemp -d)
trap 'rm -rf "$errors" "$worst" "$tables" "$work"' EXIT

say "demo/$model is a small language model: the architecture of Qwen3, its" \
    "weights in BF16 in a safetensors file, and its own tokenizer. What is in" \
    "it, one row for each kind of tensor, and where the parameters are:"
step st-inspect list --fold --align "$model"
step st-inspect tree --depth 2 --align "$model"
say "Is the file sound, and are all files those that were trained?"
step st-inspect verify -v "$model"
step st-inspect hash --check SHA256SUMS
say "Now the model answers, always with the likeliest token. Below each" \
    "answer are the logits after the prompt, mean, standard deviation and the" \
    "five largest, beside those that torch computed in float64 from the same" \
    "weights. In a token's name G with a dot is a space, C with one a newline:"
while IFS=$tab read -r prompt ids answer_ids answer mean std top; do
    [ "$prompt" = prompt ] && continue
    question "$prompt" "$ids" "$answer_ids" "$answer" "$mean" "$std" "$top"
    cat "$errors" >>"$worst"
done <expected.tsv
say "demo/sae is a sparse autoencoder, trained on what the MLP of layer 1" \
    "reads. A lookup table made with it takes the place of gate_proj and" \
    "up_proj. How well does the model then know a text that it was not" \
    "trained on? The mean negative log-likelihood of a token, dense and with" \
    "the table, whose error is compensated for none, a quarter, and all of the" \
    "layer's inputs:"
step lut-precompute -m "$model" -s sae --fuse gate_up -o "$tables"
echo
nll dense "$model"
dense=$nll
nll 'table' "$model" --lut "$tables"
nll 'table, --ratio 0.25' "$model" --lut "$tables" --ratio 0.25
nll 'table, --ratio 1' "$model" --lut "$tables" --ratio 1
# All of it compensated is the dense layer but for the table's BF16.
echo "$dense $nll" | awk '{ d = $1 - $2; exit NF != 2 || d * d > 1e-6 }' ||
    differs "with everything compensated it should be $dense"
say "demo/$moe has experts: in each layer a router sends every token to two" \
    "of four small MLPs. In a copy all experts of the first layer lose their" \
    "down_proj: zeros. What the whole layer makes of demo/training.txt is what" \
    "LoRA adapters of the four learn to give again, from what goes into it:"
# damage COPY: overwrites four tensors where st-inspect says they lie.
damage() {
    mkdir "$1"
    cp "$moe"/* "$1"
    chmod u+w "$1"/*
    st-inspect list --long -t 'model.layers.0.mlp.experts.*.down_proj.weight' \
        "$1" | sed 1d | cut -f 4,5 |
        while read -r nbytes offset; do
            dd if=/dev/zero of="$1/model.safetensors" bs=1 count="$nbytes" \
                seek="$offset" conv=notrunc 2>/dev/null
        done
}
damage "$work/damaged"
acts="--ctx 64 --file training.txt -q"
# shellcheck disable=SC2086 # options are words
step hf-infer "$moe" --acts in:gate_proj:0 $acts -o "$work/in.npy"
# shellcheck disable=SC2086
step hf-infer "$moe" --acts mlp:0 $acts -o "$work/out.npy"
step moe-sft init -b "$work/damaged" --layer 0 --rank 16 --alpha 16 \
    -o "$work/lora.safetensors"
step moe-sft train -b "$work/damaged" --layer 0 -l "$work/lora.safetensors" \
    -i "$work/in.npy" --target "$work/out.npy" -o "$work/run" -n 200 \
    --length 64 --lr 1e-2 --schedule cosine --shuffle --log "$work/log.tsv"
awk -F '\t' 'NR == 1 || NR == 2 || (NR - 1) % 50 == 0 {
    print "    " $1 "\t" $2 }' "$work/log.tsv"
echo
nll 'experts' "$moe"
whole=$nll
nll 'damaged' "$work/damaged"
damaged=$nll
nll 'damaged, --lora' "$work/damaged" --lora "$work/run"
echo "$whole $damaged $nll" |
    awk '{ exit NF != 3 || $2 < $1 + 1 || $3 > $2 - ($2 - $1) * 3 / 4 }' ||
    differs "less than three quarters of what was lost came back"
say "That was: one model inspected and verified, $n questions answered. Token" \
    "ids of prompts and answers were compared with torch's for equality, and" \
    "logits within $max_error; the largest error was" \
    "$(sort -n "$worst" | tail -n 1)."
if [ "$failed" -ne 0 ] || [ "$n" -eq 0 ]; then
    echo "Something differs: see the lines above."
    exit 1
fi
echo "Everything agrees."
