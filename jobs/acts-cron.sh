#!/bin/sh
# SPDX-License-Identifier: ISC
# usage: acts-cron.sh MODEL DOCS.jsonl SPEC T DIR
# For cron: makes the dump of DOCS if it is missing, continues one that was
# stopped, stops itself after an hour, and says nothing when all is well.
# Documents or a model that have changed make another dump; the old one stays.
# T "images": DOCS is a list of pictures, a path a line, for a vision encoder.
#
# in one line of the crontab:
#
#   17 2 * * *  $HOME/.local/share/tensorutils/acts-cron.sh $HOME/Qwen3-0.6B
#               $HOME/docs.jsonl layers.13 512 /fs/scratch/acts
#
# Tools are those of TU_BIN, a directory, if it is set, then those installed with
# this script, then those in PATH.
# MAX_PATCHES: activations a shard; default 2400000.
own=$(dirname -- "$(realpath -- "$0")")/../../bin
[ -d "$own" ] || own=$HOME/.local/bin
PATH=${TU_BIN:+$TU_BIN:}$own:$PATH:/usr/local/bin:/usr/bin:/bin
export PATH
usage() {
    sed -n '1,2d; /^#/!q; s/^# \{0,1\}//p' "$0"
}
case ${1-} in -h | --help) usage && exit ;; esac
[ $# -eq 5 ] || { usage >&2 && exit 2; }
set -e

mkdir -p -- "$5"
# Names that no tool takes for an option: from the root on.
model=$(realpath -- "$1") docs=$(realpath -- "$2") spec=$3 ctx=$4
dir=$(realpath -- "$5")
meta=$("$(dirname -- "$0")/acts-meta.sh" "$model" "$docs" "$spec" "$ctx" "$dir")
dump=$(saev-write -q --hash -m "$meta" -o "$dir" | cut -f 2-)
if [ -e "$dump" ]; then
    said=$(saev-read -q verify "$dump") && exit 0
    status=$?
    printf '%s\n' "$said" >&2
    exit $status
fi
"$(dirname -- "$0")/acts-ids.sh" "$model" "$docs" "$ctx" "$meta"
first=$(saev-write -q --images --resume -m "$meta" -o "$dir" | cut -f 1)
status=0
how="--ctx $ctx --pad --jsonl"
[ "$ctx" != images ] || how='--images -'
# shellcheck disable=SC2086 # options
tail -n "+$((first + 1))" "$docs" |
    hf-infer "$model" --acts "$spec" $how -q |
    saev-write -q --resume --first "$first" --deadline 3600 -m "$meta" \
        -o "$dir" >/dev/null || status=$?
[ $status -eq 75 ] || exit $status # stopped: the next night continues
