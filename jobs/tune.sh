#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: tune.sh [SBATCH OPTION...] -- -m MODEL -d DATA -o DIR \
#            [OPTION of moe-sft tune...]
# Fine-tunes a model in one Slurm job, in this directory, on one node or more:
#
#   tune.sh --account=PAS1234 --time=8:00:00 --nodes=4 --ntasks-per-node=2 \
#       --cpus-per-task=48 -- -m ~/Qwen3-8B -d chats.jsonl -o $SCRATCH/run \
#       --epochs 3 --batch 32 --schedule cosine --warmup 0.05
#
# More tasks than one need the moe-sft that `make MPI=1` builds, found by TU_BIN
# or PATH.  LAUNCH starts it, where "srun --kill-on-bad-exit=1" does not: "srun
# --mpi=pmix", "mpirun".  Prints the job's id; the log is tune-ID.log unless -o
# says another.  A job that is preempted or out of time saves its state, is
# queued again and goes on there; one that failed continues when the same line
# is submitted again.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the second argument.
here=${2-}
[ "${1-}" = --task ] || here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
[ "${1-}" = --task ] || submit tune "$@"
shift 2

# A step of the job does not get the CPUs of each task from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-1}
# shellcheck disable=SC2086 # words
${LAUNCH:-srun --kill-on-bad-exit=1} moe-sft tune -v --resume --any-isa "$@" &
wait_part $! "moe-sft tune"
