#!/bin/sh
# SPDX-License-Identifier: ISC
# Prints "LACKING := ..." for the libraries whose headers $CC does not find
# with $CPPFLAGS.
# shellcheck disable=SC2086  # flags are several words
list=
has() { # has NAME HEADER
    printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <stdio.h>\n#include <%s>\n' "$2" |
        $CC $CPPFLAGS -x c -E - >/dev/null 2>&1 || list="$list $1"
}
has jansson jansson.h
has xxhash xxhash.h
has libcrypto openssl/evp.h
has pcre2 pcre2.h
has utf8proc utf8proc.h
has zlib zlib.h
has libpng png.h
has libjpeg jpeglib.h
has libedit histedit.h
echo "LACKING :=$list"
