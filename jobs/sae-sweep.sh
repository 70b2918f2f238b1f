#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: sae-sweep.sh DUMP DIR TASKS SAES [SBATCH OPTION...]
# Trains SAEs on the rows of a dump of saev-write, shuffled, by TASKS tasks of a
# Slurm array.  SAES is a file with a line for each SAE, as sae-train's --sae
# takes it, and a task trains its share of them in one pass over the rows:
#
#   printf 'k16:k=16\nk64:k=64\nwide:k=32,latents=32768,lr=1e-4\n' > saes
#   sae-sweep.sh acts/HASH $SCRATCH/sweep 1 saes --time=8:00:00 -c48
#
# They appear as DIR/TASK/NAME/.  SAE_OPTIONS: more options of sae-train, for all,
# "--batch 8192 --expansion 8"; SEED: the order of the rows; LAYER: rows of that
# layer alone.  Prints the array's id.  A task that is killed, preempted or out of
# time goes on where it was when it runs again.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the second argument.
here=${2-}
[ "${1-}" = --task ] || here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
if [ "${1-}" != --task ]; then
    usage 4 "$@"
    dump=$(realpath -- "$1") dir=$2 tasks=$3 saes=$(realpath -- "$4")
    shift 4
    n=$(grep -c . -- "$saes") || :
    if [[ ! $tasks =~ ^[1-9][0-9]*$ ]] || [ "$tasks" -gt "$n" ]; then
        echo "sae-sweep.sh: TASKS is $tasks (expected 1 to $n, the lines of $saes)" >&2
        exit 2
    fi
    need_sbatch
    # warns where the rows are of several layers
    saev-read --imgs 0-0 ${LAYER:+--layer "$LAYER"} -- "$dump" >/dev/null
    mkdir -p -- "$dir"
    dir=$(realpath -- "$dir")
    log=${dir//%/%%} # a % is Slurm's
    exec sbatch --parsable "$@" --array="0-$((tasks - 1))" --job-name=sae-sweep \
        --requeue --open-mode=append --signal=B:USR1@120 -o "$log/sae-%a.log" \
        "$here/sae-sweep.sh" --task "$here" "$dump" "$dir" "$tasks" "$saes"
fi
dump=$3 dir=$4 tasks=$5 saes=$6 task=$SLURM_ARRAY_TASK_ID

some=()
while read -r line; do
    some+=(--sae "$line")
done < <(grep . -- "$saes" | awk -v n="$tasks" -v i="$task" 'NR % n == (i + 1) % n')
# SAE_OPTIONS is a list of words, and no patterns of files.  With -n, sae-train
# exits before the rows end.
set -f
# shellcheck disable=SC2086
{ saev-read -q --shuffle --seed "${SEED-0}" ${LAYER:+--layer "$LAYER"} -- "$dump" || [ $? = 141 ]; } |
    sae-train -o "$dir/$task" "${some[@]}" --resume --any-isa ${SAE_OPTIONS-} &
wait_part $! "task $task/$tasks"
