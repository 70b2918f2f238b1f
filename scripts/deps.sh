#!/bin/sh
# SPDX-License-Identifier: ISC
# shellcheck disable=SC2086,SC2317  # flags are words; have() calls functions
# deps.sh [deps-check]: installs what the build needs, with deps-check what the
# tests need, too, where it may (apt as root); elsewhere prints the one line to
# type, and fails.  Silent and quick when nothing is missing to $CC, $CPPFLAGS
# and $LDFLAGS.
missing=
have() { # have NAME COMMAND...: notes NAME when COMMAND fails
    name=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $name"
}
compiles() {
    printf '#include <stdio.h>\n#include <%s>\nint main(void){return 0;}\n' "$1" |
        ${CC:-cc} $CPPFLAGS -x c - -o /dev/null $LDFLAGS "$2"
}
numpy() {
    for p in python3 /usr/bin/python3; do
        $p -c 'import numpy' && return
    done
    return 1
}
have gcc command -v "${CC:-cc}"
have make command -v make
have jansson compiles jansson.h -ljansson
have xxhash compiles xxhash.h -lxxhash
have libcrypto compiles openssl/evp.h -lcrypto
have pcre2 compiles features.h -lpcre2-8
have utf8proc compiles utf8proc.h -lutf8proc
have zlib compiles zlib.h -lz
have libpng compiles png.h -lpng
have libjpeg compiles jpeglib.h -ljpeg
have libedit compiles histedit.h -ledit

apt='gcc libc6-dev make libjansson-dev libxxhash-dev libssl-dev libpcre2-dev libutf8proc-dev zlib1g-dev libpng-dev libjpeg62-turbo-dev libedit-dev'
dnf='gcc make jansson-devel xxhash-devel openssl-devel pcre2-devel utf8proc-devel zlib-devel libpng-devel libjpeg-turbo-devel libedit-devel'
conda='gcc make jansson xxhash openssl pcre2 libutf8proc zlib libpng libjpeg-turbo libedit'
spack='gcc gmake jansson xxhash openssl pcre2 utf8proc zlib libpng libjpeg-turbo libedit'
if [ "${1-}" = deps-check ]; then
    apt="$apt bats mandoc python3-numpy shellcheck clang-format"
    dnf="$dnf bats mandoc python3-numpy ShellCheck clang-tools-extra"
    conda="$conda bats-core numpy shellcheck clang-format"
    spack="$spack bats py-numpy shellcheck llvm"
    have bats command -v bats
    have mandoc command -v mandoc
    have numpy numpy
    have shellcheck command -v shellcheck
    have clang-format command -v clang-format
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "deps: installing, missing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -q update && apt-get -qy install --no-install-recommends $apt; } >/tmp/tensorutils-deps.$$ 2>&1 &&
        rm -f /tmp/tensorutils-deps.$$ && exit
    tail -n 5 /tmp/tensorutils-deps.$$
    echo "deps: apt-get failed: see /tmp/tensorutils-deps.$$" >&2
    exit 1
fi
[ "$missing" != ' libedit' ] || exit 0 # it builds without
cat >&2 <<END
deps: missing:$missing; one of these installs it:
  sudo apt-get install $apt
  sudo dnf install $dnf
  conda install -c conda-forge $conda
  spack install $spack
END
[ "${1-}" != deps-check ] ||
    echo 'Neither conda-forge nor spack has mandoc: without it, make check leaves the pages.' >&2
exit 1
