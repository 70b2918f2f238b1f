#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: acts-submit.sh MODEL DOCS.jsonl SPEC T DIR PARTS [SBATCH OPTION...]
# A dump of the activations of all documents, made by PARTS tasks of a Slurm
# array and published by one more job when all are done:
#
#   acts-submit.sh ~/Qwen3-0.6B docs.jsonl resid:13 512 $SCRATCH/acts 32 \
#       --account=PAS1234 --time=4:00:00 --cpus-per-task=8
#
# Prints the ids of both jobs and the path that the dump will have, and says on
# standard error how many documents each part has.  The last job stores the ids
# of all tokens with the dump.  Shards are so small that no
# part is without one, unless MAX_PATCHES, activations a shard, is set.  A task
# that is killed, preempted or out of time continues at its first missing shard
# when it runs again.
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
usage 6 "$@"
model=$(realpath -- "$1") docs=$(realpath -- "$2") spec=$3 ctx=$4 dir=$5 parts=$6
shift 6
number PARTS "$parts"
need_sbatch

mkdir -p -- "$dir"
dir=$(realpath -- "$dir")
log=${dir//%/%%} # a % is Slurm's
meta=$(MIN_SHARDS=$parts "$here/acts-meta.sh" "$model" "$docs" "$spec" "$ctx" \
    "$dir")
for i in $(seq 0 $((parts - 1))); do
    saev-write -q --images -m "$meta" --shard "$i/$parts"
done | cut -f 2 | sort -n | sed -n '1p;$p' | xargs printf \
    'acts-submit.sh: each part has %s to %s documents\n' >&2
tasks=$(sbatch --parsable "$@" --array="0-$((parts - 1))" --job-name=acts \
    --requeue --open-mode=append --signal=B:USR1@120 -o "$log/acts-%a.log" \
    "$here/acts-task.sh" "$here" "$model" "$docs" "$spec" "$ctx" "$meta" \
    "$parts")
word() { printf "'%s' " "${@//\'/\'\\\'\'}"; } # of sh
finish=$(sbatch --parsable "$@" --job-name=acts-finish \
    --dependency="afterok:$tasks" --kill-on-invalid-dep=yes \
    -o "$log/acts-finish.log" --wrap "$(word "$here/acts-ids.sh" "$model" "$docs" "$ctx" "$meta")&& \
exec saev-write --finish --manifest --if-missing $(word -m "$meta" -o "$dir")")
printf '%s\t%s\t%s\n' "$tasks" "$finish" \
    "$(saev-write -q --hash -m "$meta" -o "$dir" | cut -f 2-)"
