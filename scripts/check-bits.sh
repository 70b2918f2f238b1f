#!/bin/sh
# SPDX-License-Identifier: ISC
# check-bits.sh [-w]: what test/bits/commands computes has the same bytes for
# every instruction set of this machine and at 1 and 3 threads, and those that
# test/bits/hashes has.  ISA='scalar avx2': only these.  EMULATOR runs the tools
# of another machine: see check-cross.sh.
#   -w  writes test/bits/hashes, if all sets agree and with each of them
#       unit/order passes, which compares with fmaf()
set -eu
BITS=$PWD/test/bits
# Some commands print their inputs' names, which are the same for everyone.
DEMO=../demo/qwen3-tiny MOE=../demo/qwen3-moe-tiny SAE=../demo/sae
VIT=../demo/dinov2-tiny PICTURES=../demo/pictures
TEXT=../demo/held-out.txt TRAINING=../demo/training.txt
COMPRESSOR=../demo/compressor.pth
MAKER="${PYTHON-python3} ../scripts/random-model.py"
export MAKER VIT PICTURES DEMO MOE SAE TEXT TRAINING COMPRESSOR
tmp=$(mktemp -d)
ln -s "$PWD/demo" "$PWD/scripts" "$tmp"
trap 'rm -rf "$tmp"' EXIT
known=$(sed -n 's/^ISA[^,]*, \([a-z0-9]*\),.*/\1/p' core/kernel/isa.def)
passed=0 failed=0

# has ISA: does this machine?  66: lut-apply has looked for its input already.
has() {
    TU_ISA=$1 lut-apply -i none none none 2>/dev/null
    [ $? -eq 66 ]
}

# The bytes of all files of a directory, and their names.
digest() {
    (cd "$1" && find . -type f | LC_ALL=C sort | while read -r f; do
        printf '%s ' "$f"
        sha256sum <"$f"
    done) | sha256sum | cut -c 1-32
}

# run DIR: "HASH NAME" of each line of test/bits/commands.
run() {
    grep -v '^#' "$BITS/commands" | while read -r name command; do
        mkdir -p "$1/$name"
        if (cd "$1/$name" && eval "$command" >out 2>err </dev/null); then
            rm -f "$1/$name/err"
            echo "$(digest "$1/$name") $name"
        else
            sed "s|^|check-bits: $name: |" "$1/$name/err" >&2
            echo "failed $name"
        fi
        rm -r "${1:?}/$name"
    done
}

[ "${1-}" != -w ] || make -s build/test/unit/order
for isa in ${ISA:-$known}; do
    has "$isa" || continue
    if [ "${1-}" = -w ] && ! TU_ISA=$isa build/test/unit/order >/dev/null; then
        echo "check-bits: $isa: unit/order fails: nothing is written" >&2
        exit 1
    fi
    TU_ISA=$isa run "$tmp" >"$tmp.$isa" || true
    mv "$tmp.$isa" "$tmp/$isa"
    if [ "${1-}" = -w ]; then
        [ -e "$tmp/first" ] || cp "$tmp/$isa" "$tmp/first"
        set -- -w "$tmp/first"
    fi
    while read -r hash name; do
        want=$(sed -n "s/ $name\$//p" "${2-$BITS/hashes}")
        if [ "$hash" = "$want" ] && [ "$hash" != failed ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "check-bits: $isa: $name: ${hash} (expected ${want:-nothing})"
        fi
    done <"$tmp/$isa"
    [ -s "$tmp/$isa" ] || failed=$((failed + 1))
done
[ "${1-}" != -w ] || [ $failed -gt 0 ] || cp "$tmp/first" "$BITS/hashes"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
