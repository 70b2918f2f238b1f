#!/usr/bin/env bash
# One task of acts-submit.sh's array: part SLURM_ARRAY_TASK_ID of PARTS.
# The number of parts is an argument: SLURM_ARRAY_TASK_COUNT is the size of one
# submission, and a part that is submitted again alone would be another one.
set -euo pipefail
model=$1 docs=$2 spec=$3 ctx=$4 meta=$5 parts=$6
folder=$(dirname "$meta")
part=$SLURM_ARRAY_TASK_ID
shard=(-q -m "$meta" -o "$folder" --shard "$part/$parts")

images=$(saev-write --images "${shard[@]}")
read -r first n <<<"$images"
echo "part $part/$parts on $(hostname): $n images from $first on"
[ "$n" -gt 0 ] || exit 0

sed -n "$((first + 1)),$((first + n))p;$((first + n))q" "$docs" |
    hf-infer "$model" --acts "$spec" --ctx "$ctx" --pad --jsonl -q |
    saev-write -v --first "$first" "${shard[@]}" &
writer=$!
# The batch shell gets the signals; the writer finishes what it can and says
# 75.  The first wait may end because of the signal, not of the writer.
trap 'kill -USR1 $writer 2>/dev/null' USR1 TERM
status=0
wait $writer || status=$?
while kill -0 $writer 2>/dev/null; do
    status=0
    wait $writer || status=$?
done
if [ $status -gt 128 ]; then
    status=0
    wait $writer || status=$?
fi
echo "part $part/$parts: status $status"
[ $status -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit $status
