#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: sae-recovered.sh MODEL SAE[@HOOK] TEXT [HF-INFER OPTION...]
# What an SAE's reconstruction costs the model, in nats of cross-entropy on a
# text: alone (plain), with the reconstruction in the place of the activation
# (sae), and with zeros there (zero).  recovered is (zero - sae) / (zero -
# plain): 1 where the reconstruction costs nothing, 0 where it is worth no more
# than zeros.
#
#   sae-recovered.sh ~/Qwen3-0.6B ~/saes/layers.9 held-out.txt --ctx 1024
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
usage 3 "$@"
model=$1 sae=$2 text=$3
shift 3

# nll OPTION...: the mean of the text's tokens.
nll() {
    local json
    json=$(hf-infer -q "$model" --nll --json --file "$text" "$@") || return
    json=${json#*\"nll_mean\":}
    echo "${json%%[,\}]*}"
}
plain=$(nll "$@")
sae_nll=$(nll --sae "$sae" "$@")
zero=$(nll --sae "$sae" --sae-zero "$@")
printf 'plain\t%s\nsae\t%s\nzero\t%s\n' "$plain" "$sae_nll" "$zero"
awk -v p="$plain" -v s="$sae_nll" -v z="$zero" \
    'BEGIN { if (z == p) print "recovered\tnan"; else printf "recovered\t%.6f\n", (z - s) / (z - p) }'
