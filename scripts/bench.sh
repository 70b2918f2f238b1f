#!/bin/sh
# SPDX-License-Identifier: ISC
# One table: the machine's limits, then kernels and tools in ratio to them, and
# exact products to OpenBLAS's, if it is installed.  PEERS=1: other libraries on
# the same shapes, too, and LLAMA_BENCH=PROGRAM on the same model.  Files go to
# $TMPDIR.
b=$BUILD/test/bench
set -e
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$b/machine"
"$b/kernels"
"$PYTHON" test/bench/peers.py openblas "$b/kernels"
# The paths of lesser CPUs, where this one has more.
for isa in avx2 avx512bf16; do
    if "$b/kernels" below "$isa"; then
        TU_ISA=$isa "$b/kernels" products
    fi
done
"$b/par"
"$b/table"
"$b/engine"
"$b/families"
"$b/vision"
sh scripts/bench-tables.sh
"$b/lm"
"$b/lm" experts
"$b/lm" whole
"$b/sae"
[ ! -x "$b/pictures" ] || "$PYTHON" test/bench/pictures.py "$b/pictures"
# A real tokenizer, of 151643 tokens, where it is there.
real=${TEST_DATA:-../shared/data}/qwen3-tokenizer/tokenizer.json.gz
if [ -e "$real" ]; then
    gzip -dc "$real" >"$TMPDIR/tokenizer.json"
    "$b/tok" "$TMPDIR/tokenizer.json"
else
    echo "bench: the tokenizer is the demo's: no $real" >&2
    "$b/tok"
fi
for p in st st-inspect-speed saev-write-speed saev-read-speed lut-precompute-speed moe st-convert-speed; do
    "$b/$p"
done
# 3138 members, of which a compressor's are a third of the bytes.
root=$PWD
if (cd "$TMPDIR" && PYTHONPATH=$root/test/ref "$PYTHON" -c 'import kvc_pth; kvc_pth.realistic()'); then
    "$b/kvc-convert-speed" "$TMPDIR/big.pth"
fi
[ -z "$PEERS" ] || "$PYTHON" test/bench/peers.py "$b/kernels" "$b/table" "$b/moe" \
    "$b/engine" "$b/lm" "$b/sae" "$BUILD/sae-look" "$b/vision"
