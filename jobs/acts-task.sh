#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# One task of acts-submit.sh's array: part SLURM_ARRAY_TASK_ID of PARTS.
# The number of parts is an argument: SLURM_ARRAY_TASK_COUNT is the size of one
# submission, and a part that is submitted again alone would be another one.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the first argument.
# shellcheck source=jobs/common.sh
. "$1/common.sh"
shift
model=$1 docs=$2 spec=$3 ctx=$4 meta=$5 parts=$6
dir=${meta%/*}
part=$SLURM_ARRAY_TASK_ID
shard=(-q -m "$meta" -o "$dir" --shard "$part/$parts")

images=$(saev-write --images "${shard[@]}")
read -r first n <<<"$images"
echo "part $part/$parts on $(hostname): $n images from $first on"
[ "$n" -gt 0 ] || exit 0

sed -n "$((first + 1)),$((first + n))p;$((first + n))q" "$docs" |
    acts "$model" "$spec" "$ctx" - |
    saev-write -v --first "$first" "${shard[@]}" &
wait_part $! "part $part/$parts"
