#!/usr/bin/env bash
# One task of lut-submit.sh's array: part SLURM_ARRAY_TASK_ID of PARTS, which is
# an argument because SLURM_ARRAY_TASK_COUNT is the size of one submission.
set -euo pipefail
model=$1 sae=$2 folder=$3 parts=$4
part=$SLURM_ARRAY_TASK_ID

# LUT_OPTIONS is a list of words.
# shellcheck disable=SC2086
lut-precompute -v -m "$model" -s "$sae" -o "$folder" --resume \
    --shard "$part/$parts" ${LUT_OPTIONS:-} &
maker=$!
# The batch shell gets the signals.  The first wait may end because of one.
trap 'kill -USR1 $maker 2>/dev/null' USR1 TERM
status=0
wait $maker || status=$?
while kill -0 $maker 2>/dev/null; do
    status=0
    wait $maker || status=$?
done
if [ $status -gt 128 ]; then
    status=0
    wait $maker || status=$?
fi
echo "part $part/$parts: status $status"
[ $status -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit $status
