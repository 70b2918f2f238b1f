#!/usr/bin/env bash
# usage: acts-meta.sh MODEL DOCS.jsonl SPEC T FOLDER
# Writes the metadata of the dump that "hf-infer MODEL --acts SPEC --ctx T --pad
# --jsonl" makes of all documents, a document an image, before any is made, and
# prints its path: FOLDER/HASH.json, so that dumps of one folder share nothing.
# MAX_PATCHES: activations a shard; default 2400000.
set -euo pipefail
[ $# -eq 5 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
# Names count in HASH: whole ones, however they were typed.
model=$(realpath -- "$1") docs=$(realpath -- "$2") spec=$3 ctx=$4 folder=$5
max_patches=${MAX_PATCHES:-2400000}
[[ $max_patches =~ ^[1-9][0-9]*$ ]] || {
    echo "acts-meta.sh: MAX_PATCHES is $max_patches (expected a number)" >&2
    exit 2
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
meta=$tmp/meta.json

# hf-infer publishes metadata before its first activation: one is enough.
{ hf-infer "$model" --acts "$spec" --ctx "$ctx" --pad --jsonl --file "$docs" \
    -q --acts-meta "$meta" || { s=$?; [ $s -eq 141 ] || exit $s; }; } |
    head -c 1 >/dev/null
n_imgs=$(awk 'END { print NR }' "$docs")
sed -i "s/\"max_patches_per_shard\": .*/\"n_imgs\": $n_imgs,\n    \
\"max_patches_per_shard\": $max_patches,/" "$meta"
hash=$(saev-write -q --hash -m "$meta")
cp -- "$meta" "$folder/.meta.$(hostname).$$"
mv -- "$folder/.meta.$(hostname).$$" "$folder/$hash.json"
printf '%s\n' "$folder/$hash.json"
