#!/bin/sh
# SPDX-License-Identifier: ISC
# Tokens per second of decoding, and of a prompt of 512, with lookup tables of
# all qkv and gate_up in ratio to those without, alternately: four layers of
# Qwen3-0.6B's shape, whose random weights make no text, and tables of an SAE
# with 8192 latents, 32 active.  Needs 1.2 GB in $TMPDIR, and half a minute.
set -e
[ "$(df -Pk "${TMPDIR:-/tmp}" | awk 'NR == 2 { print $4 }')" -gt 1300000 ] || {
    echo 'bench: no room for the tables of a model, left out' >&2
    exit 0
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ids=$(awk 'BEGIN { for (i = 0; i < 512; i++) printf "%s%d", i ? "," : "", i * 7919 % 8192 }')
"$PYTHON" scripts/random-model.py --set num_hidden_layers=4 --set vocab_size=8192 "$dir/m"
hf-infer "$dir/m" -q --ids "$ids" --acts in:gate_proj:1 -o "$dir/x"
sae-train -q --dim 1024 -k 32 --latents 8192 --batch 512 -n 1 -o "$dir/sae" "$dir/x"
lut-precompute -q -m "$dir/m" -s "$dir/sae" --layers '*.qkv_proj,*.gate_up_proj' --screen -o "$dir/lut"

# rates OPTION...: a prompt's and decoding's, of -v.
rates() {
    hf-infer "$dir/m" --ids "$ids" --greedy -n 40 --ids-out -j "$threads" -v "$@" 2>&1 >/dev/null |
        sed -nE 's/^hf-infer: (prompt|output) .*\(([0-9.]+) tokens\/s\)$/\1 \2/p'
}

isa=$(hf-infer "$dir/m" --ids 1 --top 1 -v 2>&1 >/dev/null | sed -nE '1s/.*, ([a-z0-9]+), [0-9]+ threads?.*/\1/p')
for threads in 1 $(nproc | grep -v '^1$'); do
    for _ in 1 2 3 4 5; do
        rates | sed 's/^/without /'
        rates --lut "$dir/lut" | sed 's/^/with /'
    done | sort -k1,2 -k3n | awk -v isa="$isa" -v threads="$threads" '
        { v[$1, $2, ++n[$1, $2]] = $3 }
        function row(what, k, shape) {
            printf "%-18s %-17s %-11s %7d %10.1f %-9s %5.2f  %s\n", what, shape, isa, threads, v["with", k, 3],
                "token/s", v["with", k, 3] / v["without", k, 3], "without tables"
        }
        END {
            row("hf-infer --lut", "output", "4 layers, decode")
            row("hf-infer --lut", "prompt", "4 layers, 512")
        }'
done
