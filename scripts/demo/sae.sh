#!/bin/sh
# SPDX-License-Identifier: ISC
# sae.sh MODEL TEXT DIR: trains demo/sae, a TopK sparse autoencoder of 1024
# latents, 32 at once, on what the MLP of layer 1 reads of the text, 16 times in
# other orders.  Needs the project's tools in PATH; DIR gets the same bytes on
# every CPU.
set -eu
[ $# -eq 3 ] || { sed -n '3,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hf-infer "$1" --acts in:up_proj:1 --ctx 64 --file "$2" -q \
    --acts-meta "$work/meta.json" |
    saev-write -q -m "$work/meta.json" -o "$work/dumps" >"$work/dump"
dump=$(cat "$work/dump")
for e in $(seq 16); do
    saev-read -q --shuffle --seed 1 --epoch "$e" --raw "$dump"
done | sae-train -q -o "$work/sae" -k 32 --latents 1024 --dim 128 \
    --batch 512 -n 4656 --lr 4e-3 --warmup 100 --hook layers.1.mlp.up_proj
sae-train eval -s "$work/sae" "$dump"
mkdir -p "$3"
cp "$work/sae/cfg.json" "$work/sae/sae.safetensors" "$3"
