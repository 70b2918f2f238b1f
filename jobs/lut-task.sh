#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# One task of lut-submit.sh's array: part SLURM_ARRAY_TASK_ID of PARTS, which is
# an argument because SLURM_ARRAY_TASK_COUNT is the size of one submission.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the first argument.
# shellcheck source=jobs/common.sh
. "$1/common.sh"
shift
model=$1 sae=$2 dir=$3 parts=$4
part=$SLURM_ARRAY_TASK_ID

# LUT_OPTIONS is a list of words, and no patterns of files.
set -f
# shellcheck disable=SC2086
lut-precompute -v -m "$model" -s "$sae" -o "$dir" --resume \
    --shard "$part/$parts" ${LUT_OPTIONS:-} &
wait_part $! "part $part/$parts"
