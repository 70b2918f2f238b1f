#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: sae-look.sh DUMP SAE MODEL DIR TASKS [SBATCH OPTION...]
# What the latents of an SAE do in a dump of saev-write: TASKS tasks of a Slurm
# array scan a part of its images each, and one more job makes DIR/run, with the
# bytes of one scan, and a page of the strongest latents, DIR/latents.html:
#
#   sae-look.sh acts/HASH ~/sae ~/Qwen3-0.6B $SCRATCH/look 32 --time=1:00:00 -c8
#
# LOOK_OPTIONS: more options of sae-look scan, "--skip-ids special --top 10";
# HTML_OPTIONS: of html, default "--sort max -n 200"; LAYER: rows of that layer,
# where the dump has several.  Prints the ids of both jobs.  A task that runs again
# makes its part if it is missing.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the second argument.
here=${2-}
[[ ${1-} =~ ^--(task|page)$ ]] || here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
case ${1-} in
--task)
    sae=$3 dump=$4 dir=$5 parts=$6 n_imgs=$7 n_tokens=$8 i=$SLURM_ARRAY_TASK_ID
    first=$((n_imgs * i / parts)) end=$((n_imgs * (i + 1) / parts))
    part=$dir/part-$i-of-$parts
    [ ! -e "$part/look.safetensors" ] || exit 0
    # Padding counts for where rows are; the ids say that it is padding.
    rows=(--tokens "$n_tokens" --input-at $((first * n_tokens)))
    [ ! -e "$dump/ids.npy" ] || rows+=(--acts-ids "$dump/ids.npy")
    # LOOK_OPTIONS is a list of words, and no patterns of files.
    set -f
    # shellcheck disable=SC2086
    saev-read -q --padding ${LAYER:+--layer "$LAYER"} --imgs "$first-$((end - 1))" \
        -- "$dump" | sae-look scan -s "$sae" "${rows[@]}" -o "$part" -f ${LOOK_OPTIONS-} &
    wait_part $! "part $i/$parts"
    ;;
--page)
    sae=$3 model=$4 dir=$5 parts=$6
    for ((i = 0; i < parts; i++)); do
        set -- "$@" "$dir/part-$i-of-$parts"
    done
    sae-look merge -f -o "$dir/run" "${@:7}"
    # Inputs of linear layers have no direction in the logits.
    sae-look lens -s "$sae" -m "$model" -o "$dir/run" || [ $? = 65 ]
    set -f
    # shellcheck disable=SC2086
    sae-look html -f -m "$model" -o "$dir/latents.html" ${HTML_OPTIONS---sort max -n 200} "$dir/run"
    exit
    ;;
esac
usage 5 "$@"
dump=$(realpath -- "$1") sae=$(realpath -- "$2") model=$(realpath -- "$3") dir=$4 parts=$5
shift 5
number TASKS "$parts"
need_sbatch

read -r n_imgs n_tokens < <(saev-read info -- "$dump" |
    awk -F '\t' '{ v[$2] = $3 } END { print v["n_imgs"], v["tokens_per_img"] }')
if [ "$parts" -gt "$n_imgs" ]; then
    echo "sae-look.sh: TASKS is $parts (expected 1 to $n_imgs, the images of $dump)" >&2
    exit 2
fi
mkdir -p -- "$dir"
dir=$(realpath -- "$dir")
log=${dir//%/%%} # a % is Slurm's
tasks=$(sbatch --parsable "$@" --array="0-$((parts - 1))" --job-name=sae-look \
    --requeue --open-mode=append --signal=B:USR1@120 -o "$log/look-%a.log" \
    "$here/sae-look.sh" --task "$here" "$sae" "$dump" "$dir" "$parts" "$n_imgs" "$n_tokens")
page=$(sbatch --parsable "$@" --job-name=sae-look-page \
    --dependency="afterok:$tasks" --kill-on-invalid-dep=yes -o "$log/look-page.log" \
    "$here/sae-look.sh" --page "$here" "$sae" "$model" "$dir" "$parts")
printf '%s\t%s\n' "$tasks" "$page"
