#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: moe-train.sh [SBATCH OPTION...] -- -b BASE -l LORA -o DIR -n STEPS \
#            [OPTION of moe-sft train...] BATCH...
# Trains an adapter in one Slurm job, in this directory:
#
#   moe-train.sh --account=PAS1234 --time=4:00:00 --cpus-per-task=48 -- \
#       -b ~/Qwen3-30B-A3B --layer 3 -l lora.safetensors -o $SCRATCH/run \
#       -n 2000 --schedule cosine --warmup 0.1 --log run.tsv acts/*.safetensors
#
# Prints the job's id; the log is moe-train-ID.log unless -o says another.  A
# job that is preempted or out of time saves its state, is queued again and goes
# on there; one that failed continues when the same line is submitted again.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the second argument.
here=${2-}
[ "${1-}" = --task ] || here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
[ "${1-}" = --task ] || submit moe-train "$@"
shift 2

moe-sft train -v --resume --any-isa "$@" &
wait_part $! "moe-sft train"
