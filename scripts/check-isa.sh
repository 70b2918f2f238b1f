#!/bin/sh
# SPDX-License-Identifier: ISC
# check-isa.sh UNIT_DIR: the tests that compute, as test/computes says, once for
# each instruction set of $ISA (without it: of this machine), by TU_ISA.
# BEST=no leaves out this machine's best, which make check runs, PART=unit the
# .bats files.  Last come the failures, each with its instruction set, and one
# line that counts.
known=$(sed -n 's/^ISA[^,]*, \([a-z0-9]*\),.*/\1/p' core/kernel/isa.def | paste -sd' ')
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
status=0 counts=''

# has ISA: does this machine?  66: lut-apply has looked for its input already.
has() {
    TU_ISA=$1 lut-apply -i none none none 2>/dev/null
    [ $? -eq 66 ]
}

for isa in $known; do
    ! has "$isa" || mine="${mine-} $isa" last=$isa
done
while read -r computes t; do
    case $computes:$t in
    yes:*.bats) [ "${PART-}" = unit ] || tests="${tests-} test/$t" ;;
    yes:*) [ ! -x "$1/${t#unit/}" ] || tests="${tests-} $1/${t#unit/}" ;; # its tool may have been left out
    esac
done <test/computes
for isa in ${ISA:-$mine}; do
    case " $known " in
    *" $isa "*) ;;
    *)
        echo "check-isa: $isa is not an instruction set (expected some of $known)" >&2
        exit 2
        ;;
    esac
    if [ "$isa ${BEST-}" = "$last no" ]; then
        counts="$counts; $isa: the best here, see make check"
    elif has "$isa"; then
        echo "# TU_ISA=$isa"
        # shellcheck disable=SC2086 # names without spaces
        { TU_ISA=$isa sh scripts/check.sh $tests || touch "$logs/failed"; } | tee "$logs/all"
        grep -E '^not ok|  <<<$|: it was killed$' "$logs/all" | sed "s/^/$isa: /" >>"$logs/failures"
        counts="$counts; $isa: $(tail -n 1 "$logs/all")"
    else
        counts="$counts; $isa: not here"
    fi
done
[ ! -e "$logs/failed" ] || status=1
[ ! -s "$logs/failures" ] || cat "$logs/failures"
echo "${counts#; }"
exit $status
