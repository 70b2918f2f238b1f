#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: acts-meta.sh MODEL DOCS.jsonl SPEC T DIR
# Writes the metadata of the dump that "hf-infer MODEL --acts SPEC --ctx T --pad
# --jsonl" makes of all documents, a document an image, before any is made, and
# prints its path: DIR/HASH.json, so that dumps of one directory share nothing.
# Images are counted by lines, so each line must be a document with tokens: a
# dump that continues would else have one document twice.
# T "images": DOCS is a list of pictures, a path a line, for a vision encoder.
# MIN_SHARDS: at least so many, if there are as many documents; default 1.
# MAX_PATCHES: activations a shard, whatever MIN_SHARDS; default 2400000.
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
usage 5 "$@"
[ $# -le 5 ] || usage 1
# Names count in HASH: whole ones, however they were typed.
model=$(realpath -- "$1") docs=$(realpath -- "$2") spec=$3 ctx=$4 dir=$5
max_patches=${MAX_PATCHES:-2400000} min_shards=${MIN_SHARDS:-1}
number MAX_PATCHES "$max_patches"
number MIN_SHARDS "$min_shards"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
meta=$tmp/meta.json

# hf-infer publishes metadata before its first activation: one is enough.
also=()
[ "$ctx" != images ] || also=(--hash-images)
{ acts "$model" "$spec" "$ctx" "$docs" "${also[@]}" --acts-meta "$meta" || { s=$?; [ $s -eq 141 ] || exit $s; }; } |
    head -c 1 >/dev/null
n_imgs=$(awk 'END { print NR }' "$docs")
refuse() {
    local what='document with tokens'
    [ "$ctx" != images ] || what=picture
    echo "acts-meta.sh: $docs: $1 (expected a $what in each line)" >&2
    exit 65
}
empty=$(LC_ALL=C awk '!/[^ \t\r]/ { print NR; exit }' "$docs")
[ -z "$empty" ] || refuse "line $empty is empty"
sed -i '/"n_imgs":/d' "$meta" # of images; written below
# Blank text has tokens with some tokenizers.
[ "$ctx" = images ] || LC_ALL=C awk '/"(text|prompt)"[ \t]*:[ \t]*"([ \t]|\\[bfnrt]|\\u00[0-2a][0-9a-fA-F])*"/ ||
    /"ids"[ \t]*:[ \t]*\[[ \t]*\]/ { print }' "$docs" >"$tmp/blank"
[ -e "$tmp/blank" ] || : >"$tmp/blank"
n_blank=$(awk 'END { print NR }' "$tmp/blank")
if [ "$n_blank" -gt 0 ]; then
    n=0
    hf-infer "$model" --acts resid:-1 --ctx "$ctx" --pad --jsonl --file "$tmp/blank" \
        -q -o "$tmp/rows" --acts-meta "$tmp/of-blank" 2>/dev/null &&
        n=$(sed -n 's/.*"n_imgs": \([0-9]*\),$/\1/p' "$tmp/of-blank")
    n=$((n_blank - n))
    [ $n -eq 0 ] || refuse "$n of its lines $([ $n -eq 1 ] && echo has || echo have) no tokens"
fi
if [ -z "${MAX_PATCHES:-}" ]; then
    layers=$(sed -n 's/.*"layers": \[\(.*\)\],$/\1/p' "$meta" | tr , '\n' | wc -l)
    tokens=$(sed -n 's/.*"n_patches_per_img": \([0-9]*\),$/\1/p' "$meta")
    tokens=$((tokens + $(grep -c '"cls_token": true' "$meta" || :)))
    imgs=$((n_imgs / min_shards)) # of a shard, at most
    [ $imgs -gt 0 ] || imgs=1
    [ $((imgs * layers * tokens)) -ge "$max_patches" ] ||
        [ "$min_shards" -eq 1 ] || max_patches=$((imgs * layers * tokens))
fi
sed -i "s/\"max_patches_per_shard\": .*/\"n_imgs\": $n_imgs,\n    \
\"max_patches_per_shard\": $max_patches,/" "$meta"
hash=$(saev-write -q --hash -m "$meta")
new=$dir/.meta.$(hostname).$$
trap 'rm -rf -- "$tmp" "$new"' EXIT
cp -- "$meta" "$new" && mv -- "$new" "$dir/$hash.json" || exit 73
printf '%s\n' "$dir/$hash.json"
