#!/bin/sh
# SPDX-License-Identifier: ISC
# coverage.sh MIN TEST...: runs the tests (unit tests, fuzzers' seeds, bats
# files) on the build in build/cov and prints which lines of core/ they reach.
# Fails where a test does; in the base, format and kernel, which everything
# rests on, also under MIN % of the lines, or where lines are not reached that
# test/uncovered does not explain.
#
# Instruction sets that this CPU does not have are not counted; if there are any,
# no block of core/kernel needs a reason.
min=$1
shift
find build/cov -name '*.gcda' -delete
status=0
for t in "$@"; do
    chmod -R a+rwX build/cov # some tests run tools as another user
    case $t in
    *.bats) bats --tap "$t" >build/cov/test.log 2>&1 ;;
    *) "$t" >build/cov/test.log 2>&1 ;;
    esac || {
        status=1
        echo "coverage: $t failed"
        grep -v '^ok' build/cov/test.log
    }
done

# Counts of threads that meet may be wrong, even negative; 0 stays 0.
set -- --gcov-ignore-parse-errors
isas=$(sed -n 's/^ISAS += //p' build/cov/isa.mk) lacking=
for isa in $isas; do
    TU_ISA=$isa lut-apply -i none none none 2>/dev/null
    [ $? -eq 2 ] || continue
    lacking="$lacking $isa"
    set -- "$@" -e ".*_$isa\.c"
done
for dir in 'core/[^/]*$' 'core/format/' 'core/kernel/' 'core/text/' 'core/image/' 'core/model/'; do
    gcovr -r . -f "$dir" "$@" build/cov 2>/dev/null | grep '^TOTAL' |
        sed "s,^TOTAL,${dir%%\[*},"
done
gcovr -r . -f 'core/((format|kernel)/)?[^/]*$' "$@" --fail-under-line "$min" build/cov >build/cov/report ||
    status=1
grep -v '^$' build/cov/report

# FILE FIRST LAST of what is not reached: neighbours are one block.
blocks() {
    sed -n 's/^\(core[^ ]*\) .*% *\([0-9][0-9,-]*\)$/\1 \2/p' build/cov/report |
        while read -r file ranges; do
            echo "$ranges" | tr ',-' '\n ' |
                while read -r from to; do echo "$file $from ${to:-$from}"; done
        done
}

# function_at FILE LINE: whose name began a line last.
function_at() {
    sed -n "1,$2s/^\([a-z0-9_]*\)(.*/\1/p" "$1" | tail -n 1
}

# explained FILE FIRST LAST: a line of test/uncovered fits the block, with the
# two lines before it, where its condition may be.
explained() {
    where=$1:$(function_at "$1" "$3")
    block=$(sed -n "$(($2 > 2 ? $2 - 2 : 1)),$3p" "$1")
    while IFS='|' read -r files text _; do
        # shellcheck disable=SC2254  # a pattern
        case $where in
        $files) ! echo "$block" | grep -Eq -e "$text" || return 0 ;;
        esac
    done <<EOF
$(sed -n '/^[^#]/s/ *| */|/gp' test/uncovered)
EOF
    return 1
}

n=0 unknown=0
while read -r file from to; do
    [ "$file" ] || continue
    n=$((n + 1))
    # what kernels of several instruction sets share
    case ${lacking:+$file} in core/kernel/*) continue ;; esac
    explained "$file" "$from" "$to" || {
        unknown=$((unknown + 1)) status=1
        echo "$file:$from: not reached, and test/uncovered does not say why:"
        sed -n "$from,${to}p" "$file"
    }
done <<EOF
$(blocks)
EOF
[ ! "$lacking" ] || echo "coverage: this CPU does not have$lacking: blocks of core/kernel need no reason"
echo "coverage: $n blocks are not reached, $unknown of them unexplained"
exit $status
