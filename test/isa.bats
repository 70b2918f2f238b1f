# SPDX-License-Identifier: ISC
# It takes half a minute.
load helpers

# others: ISAS, this machine's but its best, with which make check runs unit tests.
others() {
    isas_here
    ISAS=${ISAS% *}
}

# A CPU dies of the first instruction it does not know, so those of an
# instruction set may stand in the objects that are named after it alone.

objects() { # objects FIND-EXPRESSION...: of this build
    local b=${BUILD:-$ROOT/build}
    find "$b/core" "$b/cmd" "$b/test" -name '*.o' "$@"
}

ISA_NAME=".*_($(grep -v scalar <<<"$ALL_ISAS" | paste -sd'|'))\.o"

@test "isa: no AVX instruction outside of the objects named after it" {
    need_commands objdump
    [ "$(uname -m)" = x86_64 ] || skip "not x86-64"
    not_sanitized "its objects are of the same sources and flags"
    objects -regextype posix-extended -not -regex "$ISA_NAME" >of
    [ "$(wc -l <of)" -gt 10 ]
    # Names of objects have no spaces.
    xargs objdump -d --no-show-raw-insn <of | LC_ALL=C awk '/file format/ { name = $1 }
        /%[yzt]mm[0-9]|[ \t]v[a-z0-9]+[ \t].*%xmm/ { print name, $0 } END { print NR }' >found
    [ "$(wc -l <found)" -eq 1 ] || { head -n 3 found; return 1; }
    [ "$(cat found)" -gt 10000 ]
}

# bats test_tags=long
@test "isa: an object of an instruction set exports one table and nothing else" {
    n=0
    while read -r o; do
        n=$((n + 1))
        symbols=$(nm -g --defined-only "$o" | grep -v '__odr_asan' | sed 's/.* //')
        expected=$(basename "$o" .o | sed s/_simd_/_/)
        [ "$symbols" = "$expected" ] || {
            echo "$o exports: $symbols"
            return 1
        }
    done < <(objects -regextype posix-extended -regex "$ISA_NAME")
    [ "$n" -gt 0 ] || skip "none is built for this CPU"
}

@test "isa: tensorutils(7) names each that TU_ISA takes" {
    for isa in $ALL_ISAS; do
        grep -q "^\.Cm $isa [,;.]$" "$ROOT/man/tensorutils.7" || {
            echo "man/tensorutils.7: TU_ISA does not have $isa"
            false
        }
    done
}

@test "isa: a TU_ISA that is not here is refused by the tools that tensorutils(7) names" {
    for command in "hf-infer m -p a" "lut-apply d l" "lut-precompute -m m -s s" "lut-precompute calibrate d l" \
        "moe-sft tune -m m -d d -o o" "sae-train -o o x.npy" "sae-train eval -s s x.npy" \
        "sae-look lens -s s -m m"; do
        # shellcheck disable=SC2086
        TU_ISA=sse run -2 $command
        [[ ${lines[0]} == "${command%% *}: TU_ISA is \"sse\" (expected scalar, "* ]] || { echo "$command: $output"; return 1; }
        grep -q "^\.Nm .*\b${command%% *}\b" <(sed -n '/^\.Sh ENVIRONMENT/,/^\.Sh FILES/p' "$ROOT/man/tensorutils.7")
    done
    TU_ISA=sse st-inspect stats "$DEMO" | cmp - <(st-inspect stats "$DEMO")
}

# bats test_tags=long
@test "isa: the objects of an instruction set call no malloc, no threads, no getenv" {
    while read -r o; do
        run -1 grep -E '(alloc|pthread|getenv|err_set|printf)' <(nm -u "$o" | grep -v asan)
    done < <(objects -regextype posix-extended -regex "$ISA_NAME")
}

@test "isa: logits are within 2e-4 of float64 on every one of this machine" {
    cd "$ROOT"
    [[ ! ${LEFT_OUT-} || -e $BUILD/test/unit/model ]] || skip "unit/model was left out"
    others
    for isa in $ISAS; do
        [[ $isa == scalar || $isa == avx2 || $isa == avx512 ]] || continue
        TU_RUN=short TU_ISA=$isa run -0 "$BUILD/test/unit/model"
        [ "$(grep -c 'are within 0.0002 of float64' <<<"$output")" -gt 10 ]
    done
}

gemm() {
    others
    for isa in $ISAS; do
        TU_ISA=$isa run -0 "$BUILD/test/unit/gemm"
        [ "${lines[0]}" = "# $isa" ]
    done
}

# bats test_tags=long
@test "isa: gemm keeps its promises on every one of this machine, but for large shapes" {
    export TU_RUN=short
    gemm
}

# bats test_tags=long
@test "isa: gemm keeps its promises on every one of this machine" {
    gemm
}

# bats test_tags=long
@test "isa: moe-sft's operator is near float64 on every one of this machine" {
    others
    for isa in $ISAS; do
        TU_ISA=$isa run -0 "$BUILD/test/unit/moe"
        [ "${lines[0]}" = "# $isa" ]
    done
}

# bats test_tags=long
@test "isa: moe-sft's operator has the same bits for any threads on every one of this machine" {
    others
    for isa in $ISAS; do
        TU_RUN=short TU_ISA=$isa run -0 "$BUILD/test/unit/moe-cases"
        [ "${lines[0]}" = "# $isa" ]
        [ "$(grep -c '^ok .*: the same bits for 1 and [237] threads$' <<<"$output")" = 12 ]
    done
}

@test "isa: no number depends on what the C library has by CPU: exp, log, pow and the like are in pictures alone" {
    b=${BUILD:-$ROOT/build}
    run -0 nm -uA "$b/core/scale.o"
    [[ $output == *" U pow"* ]] || skip "nm does not see what objects need"
    functions='(a?(sin|cos|tan)h?|atan2|sincos|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|hypot|cbrt|erfc?|[lt]gamma)[fl]?'
    find "$b/core" "$b/cmd" -name '*.o' ! -path '*/core/scale.o' ! -path '*/sae-train/eval.o' -exec nm -uA {} + >undefined
    run ! grep -E " U $functions(@.*)?\$" undefined
}
