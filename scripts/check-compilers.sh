#!/bin/sh
# SPDX-License-Identifier: ISC
# Builds of the same sources by other compilers and options: each without a
# warning, its unit tests pass, and its tools' outputs are, for every
# instruction set of this machine, those of build/ to the last bit.
# And musl: everything compiles with its headers, without a warning; linked with
# Debian's static libraries, the unit tests pass and the bits are the same.
# And a machine without one of the libraries that only some tools need: the other
# tools build there, or all without libedit, and make check passes.
# And a system that has nothing of Linux's own (core/compat.h): the same bits,
# and make check passes.
#   check-compilers.sh [clang|O0|O3|lto|musl|without|portable]...
# All that was said is in build/compilers/NAME.log.
cd "$(dirname "$0")/.." || exit
. scripts/own-make.sh
status=0

units() { # units NAME
    for t in test/unit/*.c; do echo "build/compilers/$1/${t%.c}"; done
}

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

# The libraries' headers and the kernel's, in a directory without glibc's.
musl() {
    inc=$PWD/build/compilers/musl-include libs=
    command -v musl-gcc >/dev/null || {
        echo "musl: SKIP, install musl-tools"
        return
    }
    mkdir -p "$inc/openssl"
    m=$(cc -print-multiarch)
    for h in jansson.h jansson_config.h xxhash.h pcre2.h utf8proc.h zlib.h \
        zconf.h png.h pngconf.h pnglibconf.h jpeglib.h jmorecfg.h jconfig.h jerror.h linux asm asm-generic openssl; do
        for f in "/usr/include/$h" "/usr/include/$m/$h"; do
            case $f in
            */openssl) [ ! -d "$f" ] || ln -sf "$f"/*.h "$inc/openssl" ;;
            *) [ ! -e "$f" ] || ln -sfn "$f" "$inc/$h" ;;
            esac
        done
    done
    lib=$PWD/build/compilers/musl-lib
    mkdir -p "$lib"
    for l in jansson xxhash crypto pcre2-8 utf8proc png jpeg z; do
        ln -sf "$(cc -print-file-name=lib$l.a)" "$lib/lib$l.a"
        libs="$libs -l$l"
    done
    musl-gcc -O2 -c test/musl.c -o "$lib/musl.o" || failed musl "test/musl.c"
    compare musl "all $(units musl)" CC=musl-gcc CPPFLAGS="-isystem $inc" \
        LIBS="-static -L$lib$libs -lm $lib/musl.o"
}

# without LIBRARY [HEADER]: its header is hidden from the compiler.
without() {
    name=without-$1
    log=build/compilers/$name.log hidden=$PWD/build/compilers/$name.hidden
    mkdir -p "$hidden"
    echo "#error no $1" >"$hidden/${2-$1}.h"
    printf '#!/bin/sh\nexec cc -isystem "%s" "$@"\n' "$hidden" >"$hidden/cc"
    chmod +x "$hidden/cc"
    whole "$name" CC="$hidden/cc"
    [ "$1" = libedit ] || grep -q "^left out: .* (no $1 here" "$log" || failed "$name" "nothing was left out"
    count "$name"
}

# whole NAME MAKE-ARGUMENT...: make check of such a build.
whole() {
    name=$1
    shift
    make -s -j2 B="build/compilers/$name" "$@" PYTHON="$PYTHON" check >"$log" 2>&1 ||
        failed "$name" "make check failed"
}

count() {
    echo "$1: $(grep -E '^[0-9]+ passed, ' "$log")"
}

portable() {
    compare portable all CPPFLAGS=-DTU_PORTABLE
    PORTABLE=1 && export PORTABLE
    whole portable CPPFLAGS=-DTU_PORTABLE
    count portable
}

[ $# -gt 0 ] || set -- clang O0 O3 lto musl without portable
make -s all || exit
for a in "$@"; do
    case $a in
    clang)
        if command -v clang >/dev/null; then
            compare clang "all $(units clang)" CC=clang
        else
            echo "clang: SKIP, install clang"
        fi
        ;;
    # gcc 12 -O0 checks the sizes of copies that are never reached, too
    O0) compare O0 all CFLAGS="-O0 -g -Wno-stringop-overflow" ;;
    O3) compare O3 all CFLAGS="-O3 -g" ;;
    # gcc 12 sees over files, but not that a function has failed
    lto) compare lto all CFLAGS="-O2 -flto=auto -Wno-maybe-uninitialized" ;;
    musl) musl ;;
    portable) portable ;;
    without)
        for l in pcre2 utf8proc zlib; do without $l; done
        without libpng png
        without libjpeg jpeglib
        without libedit histedit
        ;;
    *)
        echo "usage: check-compilers.sh [clang|O0|O3|lto|musl|without|portable]..." >&2
        exit 2
        ;;
    esac
done
exit $status
