#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: acts-ids.sh MODEL DOCS.jsonl T NAME.json
# Writes the token ids of a dump that is made in parts: of all documents at once,
# to NAME.ids.npy and NAME.ids.npy.json, where saev-write looks for those of
# acts-meta.sh's NAME.json.  Does nothing where they are there, or T is "images".
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
usage 4 "$@"
model=$(realpath -- "$1") docs=$(realpath -- "$2") ctx=$3 meta=$(realpath -- "$4")
[ "$ctx" != images ] || exit 0
ids=${meta%.json}.ids.npy
dump="\"dump\": \"$(saev-write -q --hash -m "$meta")\""
[ ! -e "$ids" ] || ! grep -qs -- "$dump" "$ids.json" || exit 0
# The embedding is an activation for which no layer runs.
hf-infer "$model" --acts resid:-1 --ctx "$ctx" --pad --jsonl --file "$docs" \
    -qf -o /dev/null --acts-ids "$ids"
sed -i "s/\"acts\": \"resid\", \"layers\": \\[-1\\]/$dump/" "$ids.json"
