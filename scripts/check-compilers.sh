#!/bin/sh
# Builds of the same sources by other compilers and options: each without a
# warning, its unit tests pass, and its tools' outputs are, for every
# instruction set of this machine, those of build/ to the last bit.
#   check-compilers.sh [clang|O0|O3|lto]...
# All that was said is in build/compilers/NAME.log.
cd "$(dirname "$0")/.." || exit
status=0
CLANG_UNITS=$(for t in test/unit/*.c; do echo "build/compilers/clang/${t%.c}"; done)

# built NAME TARGETS MAKE-ARGUMENT...: into build/compilers/NAME.
built() {
    name=$1 targets=$2
    shift 2
    # shellcheck disable=SC2086  # targets are several words
    make -s -j2 B="build/compilers/$name" "$@" $targets >"$log" 2>&1 && [ ! -s "$log" ]
}

failed() { # failed NAME WHAT
    echo "$1: $2: see $log"
    status=1
}

# compare NAME TARGETS MAKE-ARGUMENT...
compare() {
    log=build/compilers/$1.log
    mkdir -p build/compilers
    built "$@" || {
        failed "$1" "does not build without a word"
        return
    }
    for t in $2; do
        [ "$t" = all ] || "$t" >>"$log" 2>&1 || failed "$1" "${t##*/} failed"
    done
    PATH="$PWD/build/compilers/$1:$PATH" BUILD="$PWD/build/compilers/$1" \
        REF="$PWD/build" BITS=same bats --tap test/same >>"$log" 2>&1 ||
        failed "$1" "other bits"
    echo "$1: $(grep -c '^ok' "$log") passed, $(grep -c '^not ok' "$log") failed"
}

[ $# -gt 0 ] || set -- clang O0 O3 lto
make -s all || exit
for a in "$@"; do
    case $a in
    clang)
        if command -v clang >/dev/null; then
            compare clang "all $CLANG_UNITS" CC=clang
        else
            echo "clang: SKIP, install clang"
        fi
        ;;
    O0 | O3) compare "$a" all CFLAGS="-$a -g" ;;
    # gcc 12 sees over files, but not that a function has failed
    lto) compare lto all CFLAGS="-O2 -flto=auto -Wno-maybe-uninitialized" ;;
    *)
        echo "usage: check-compilers.sh [clang|O0|O3|lto]..." >&2
        exit 2
        ;;
    esac
done
exit $status
