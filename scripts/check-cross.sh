#!/bin/sh
# SPDX-License-Identifier: ISC
# The tests on CPUs that are not this one, under qemu's user emulation: x86-64
# without AVX (Nehalem) and with AVX2 (Haswell), aarch64 (NEON) and s390x
# (big-endian).  What cannot run here prints SKIP and what to install.
# shellcheck disable=SC2011,SC2012,SC2046  # file names here have no spaces
#   check-cross.sh [nehalem|haswell|aarch64|s390x]...
# PART names what to run of "bits unit same formats kernels" (default: all): what
# the exact class computes, against test/bits/hashes; the unit tests; the outputs
# of both builds, compared (test/same); what a user types to the tools that read
# and write, and to those that compute.  All that was said is in
# build/cross/PLATFORM.log.
cd "$(dirname "$0")/.." || exit
. scripts/own-make.sh
status=0
LIMIT_S=300 # of CPU for one unit test: QEMU computes some 100 times slower

# Tests that can be shortened look for this; it names the emulator.
export TU_RUN=qemu

wants() { # wants PART
    case " ${PART:-bits unit same formats kernels} " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}

# Of the larger tools, the tests that show whether numbers and files are right.
USED='command lines? works? as written|numpy|float64|torch|same (bits|bytes|file)|byte for byte|PEFT|Philox|resum'

# typed FILE OPTION...: a file of what a user types; says so where bats was killed
# before it came to the end.
typed() {
    file=$1
    shift
    PATH="$TOOLS:$PATH" bats --tap "$@" "$file" | awk -v file="$file" '
        BEGIN { want = "some" }
        { print }
        /^1\.\./ { want = substr($0, 4) }
        /^(not )?ok / { ran++ }
        END { if (ran + 0 != want) print "not ok - " file ": " ran + 0 " tests of " want }'
}

# one PART FILE: one file of a part, in the environment that each() makes.
one() {
    began=$(date +%s)
    echo "# $2"
    case $1 in
    unit)
        t=$(basename "$2" .c)
        # shellcheck disable=SC2086,SC3045 # words; dash has ulimit, too
        (ulimit -S -t "$LIMIT_S" && exec timeout 3600 $EMULATOR "$BUILD/test/unit/$t")
        case $? in
        0) ;;
        152) echo "ok - $t # SKIP over $LIMIT_S s of CPU under qemu" ;;
        *) echo "not ok - $t failed" ;;
        esac
        ;;
    kernels) typed "$2" -f "$USED" ;;
    *) typed "$2" ;;
    esac
    echo "# $2: $(($(date +%s) - began)) s"
}

# each NAME PART FILE...: as many side by side as there are CPUs; then counts
# what they said.
each() {
    name=$1 part=$2 said=$TOOLS/$2 from=$(date +%s)
    shift 2
    rm -rf "$said"
    mkdir -p "$said"
    # shellcheck disable=SC2016 # the inner shell's
    ls -S "$@" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I '{}' sh -c '
        sh scripts/check-cross.sh -1 "$1" "$3" >"$2/$(basename "$3")" 2>&1' sh "$part" "$said" '{}' || status=1 # one was killed
    cat "$said"/* >"$said.all"
    cat "$said.all" >>"$log"
    good=$(grep -c '^ok' "$said.all") bad=$(grep -c '^not ok' "$said.all")
    skipped=$(grep -ci '^ok.*# skip' "$said.all")
    [ "$bad" -eq 0 ] && [ "$good" -gt 0 ] || status=1
    grep '^not ok' "$said.all" | sed "s|^|$name: |"
    echo "$name: $part: $((good - skipped)) passed, $bad failed, $skipped skipped, $(($(date +%s) - from)) s"
}

# run_tests NAME BUILD EMULATOR...
run_tests() {
    name=$1 BUILD=$PWD/$2 REF=$PWD/build TOOLS=$PWD/build/cross/$1
    shift 2
    EMULATOR=$* log=$TOOLS.log
    export BUILD REF TOOLS EMULATOR
    mkdir -p "$TOOLS"
    : >"$log"
    for t in cmd/*; do
        t=$(basename "$t" .c)
        [ -x "$BUILD/$t" ] || continue
        printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$EMULATOR" "$BUILD/$t" >"$TOOLS/$t"
        chmod +x "$TOOLS/$t"
    done
    if wants bits; then
        said=$(PATH=$TOOLS:$PATH sh scripts/check-bits.sh 2>&1) || status=1
        printf '%s\n' "$said" | tee -a "$log" | sed "s|^|$name: bits: |"
    fi
    ! wants unit || each "$name" unit test/unit/*.c
    ! wants same || each "$name" same test/same/*.bats
    ! wants formats || each "$name" formats test/st-inspect*.bats test/saev*.bats
    ! wants kernels || each "$name" kernels test/kvc*.bats test/lut*.bats test/hf-infer*.bats test/moe*.bats
}

unit_tests() { # unit_tests BUILD: the programs' names
    for t in test/unit/*.c; do
        echo "$1/${t%.c}"
    done
}

skip() {
    echo "$1: SKIP, install $2"
}

has() {
    command -v "$1" >/dev/null
}

x86() { # x86 NAME CPU ISA
    if [ "$(uname -m)" != x86_64 ] || ! has qemu-x86_64; then
        skip "$1" "qemu-user (on x86-64)"
        return
    fi
    CPU_WANT=$3 run_tests "$1" build qemu-x86_64 -cpu "$2"
}

cross() { # cross QEMU_ARCH DEBIAN_ARCH ISA
    if ! has "qemu-$1" || ! has "$1-linux-gnu-gcc"; then
        skip "$1" "qemu-user gcc-$1-linux-gnu libc6-dev-$2-cross"
        return
    fi
    root=$PWD/build/sysroot-$2 lib=usr/lib/$1-linux-gnu
    sh scripts/sysroot.sh "$2" "$root" || {
        skip "$1" "the libraries of scripts/sysroot.sh"
        return
    }
    make -s -j2 B="build/$1" CC="$1-linux-gnu-gcc" \
        CPPFLAGS="-isystem $root/usr/include -isystem $root/usr/include/$1-linux-gnu" \
        LDFLAGS="-L$root/$lib -Wl,-rpath-link,$root/$lib" all $(unit_tests "build/$1") || {
        echo "$1: does not build"
        status=1
        return
    }
    CPU_WANT=$3 run_tests "$1" "build/$1" "qemu-$1" -L "/usr/$1-linux-gnu" \
        -E "LD_LIBRARY_PATH=$root/$lib"
}

for part in ${PART:-}; do
    case $part in
    bits | unit | same | formats | kernels) ;;
    *)
        echo "check-cross: PART has no $part: bits, unit, same, formats, kernels" >&2
        exit 2
        ;;
    esac
done
export PYTHON="${PYTHON:-python3}" # make check-cross finds one with numpy
if [ "${1:-}" = -1 ]; then
    one "$2" "$3"
    exit
fi
[ $# -gt 0 ] || set -- nehalem haswell aarch64 s390x
make -s all || exit
make -s $(unit_tests build) || exit
for a in "$@"; do
    case $a in
    nehalem) x86 "$a" Nehalem scalar ;;
    # Without what TCG cannot do: it would warn on the tools' stderr.
    haswell) x86 "$a" Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm avx2 ;;
    aarch64) cross aarch64 arm64 neon ;;
    s390x) cross s390x s390x scalar ;;
    *)
        echo "usage: check-cross.sh [nehalem|haswell|aarch64|s390x]..." >&2
        exit 2
        ;;
    esac
done
exit $status
