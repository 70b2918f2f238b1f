#!/bin/sh
# coverage.sh MIN TEST...: runs the tests (unit tests, fuzzers' seeds, bats
# files) on the build in build/cov and prints which lines of core/ they reach.
# Fails where a test does, or under MIN % of the lines.
#
# Out of the count: instruction sets that this CPU lacks, and blocks between
# GCOV_EXCL_START and GCOV_EXCL_STOP, each of which says why.
min=$1
shift
find build/cov -name '*.gcda' -delete
status=0
for t in "$@"; do
    case $t in
    *.bats) bats --tap "$t" >build/cov/test.log 2>&1 ;;
    *) "$t" >build/cov/test.log 2>&1 ;;
    esac || {
        status=1
        echo "coverage: $t failed"
        grep -v '^ok' build/cov/test.log
    }
done

# The CPU flag that the files of an instruction set need.
lacks() {
    ! grep -qsw "$1" /proc/cpuinfo
}
# Counts of threads that meet may be wrong, even negative; 0 stays 0.
set -- --gcov-ignore-parse-errors -e '.*_neon\.c'
lacks avx2 && set -- "$@" -e '.*_avx2\.c'
lacks avx512vl && set -- "$@" -e '.*_avx512\.c'
lacks avx512_vnni && set -- "$@" -e '.*_avx512vnni\.c'
lacks avx512_bf16 && set -- "$@" -e '.*_avx512bf16\.c'
lacks amx_int8 && set -- "$@" -e '.*_amx\.c'
for folder in 'core/[^/]*$' 'core/format/' 'core/kernel/'; do
    gcovr -r . -f "$folder" "$@" build/cov 2>/dev/null | grep '^TOTAL' |
        sed "s,^TOTAL,${folder%%\[*},"
done
gcovr -r . -f 'core/' "$@" --fail-under-line "$min" build/cov || status=1
exit $status
