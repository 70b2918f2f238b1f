#!/bin/sh
# SPDX-License-Identifier: ISC
# shellcheck disable=SC2016,SC2088,SC2153  # ~ and $HOME as text
# install.sh BUILD VERSION TOOL...: puts the tools of the directory BUILD, their
# pages, completions and job scripts where DESTDIR, PREFIX, BINDIR, MANDIR,
# DATADIR, BASHDIR and ZSHDIR say, the library of the files LIB, which links with
# LIBS, where LIBDIR and INCLUDEDIR say, and lists there whatever it made.
# install.sh -u: removes what that list names, and nothing else.
set -eu
umask 022
top=$(dirname "$0")/..

# at PATH: as users type it, from the root of DESTDIR.
at() {
    case $1 in
    /*) printf '%s\n' "$1" ;;
    '~' | '~/'*) printf '%s\n' "$HOME${1#\~}" ;;
    '~'*)
        echo "install: $1: write the directory's whole name" >&2
        return 1
        ;;
    *) if [ -n "$DESTDIR" ]; then echo "/$1"; else echo "$PWD/$1"; fi ;;
    esac
}
# The list has a line for each name.
case $DESTDIR$PREFIX$BINDIR$MANDIR${LIBDIR-}${INCLUDEDIR-}$DATADIR$BASHDIR$ZSHDIR in
*'
'*)
    echo 'install: a directory has a newline in its name' >&2
    exit 2
    ;;
esac
case $DESTDIR in
'' | /) DESTDIR= ;;
*) DESTDIR=$(r=$DESTDIR DESTDIR='' && at "$r") ;;
esac
prefix=$(at "$PREFIX") bin=$(at "$BINDIR") man=$(at "$MANDIR")
lib=$(at "${LIBDIR-}") include=$(at "${INCLUDEDIR-}")
data=$(at "$DATADIR")/tensorutils bash=$(at "$BASHDIR") zsh=$(at "$ZSHDIR")
list=$DESTDIR$data/installed

if [ "${1:-}" = -u ]; then
    [ -e "$list" ] || {
        echo "uninstall: nothing is installed in $DESTDIR$prefix"
        exit
    }
    held=$(cat "$list")
    printf '%s\n' "$held" | sed -n 's/^f //p' | while IFS= read -r f; do
        rm -f "$DESTDIR$f"
    done
    rm -f "$list" # the last, so that who is stopped can continue
    # Directories from the deepest up: those with others' files stay.
    printf '%s\n' "$held" | sed -n 's/^d //p' | LC_ALL=C sort -r |
        while IFS= read -r d; do rmdir "$DESTDIR$d" 2>/dev/null || :; done
    exit
fi

note() { # note KIND PATH
    grep -qxF "$1 $2" "$list" || printf '%s %s\n' "$1" "$2" >>"$list"
}
made=
make_dir() { # make_dir PATH: with all above it; which were missing, a line each
    [ ! -d "$DESTDIR$1/" ] || return 0
    [ -z "$1" ] || make_dir "${1%/*}"
    # -p: of DESTDIR, all that is missing
    mkdir -p "$DESTDIR$1" || {
        echo 'install: make install PREFIX=$HOME/.local needs no rights' >&2
        exit 1
    }
    if [ -n "${listed:-}" ]; then note d "${1:-/}"; else made="$made${1:-/}
"; fi
}
put() { # put MODE FILE PATH: whole or not at all
    make_dir "${3%/*}"
    note f "$3"
    temp=$DESTDIR${3%/*}/.${3##*/}.$$
    install -m "$1" "$2" "$temp"
    mv -f "$temp" "$DESTDIR$3"
}

put_link() { # put_link TARGET PATH
    make_dir "${2%/*}"
    note f "$2"
    temp=$DESTDIR${2%/*}/.${2##*/}.$$
    ln -s "$1" "$temp"
    mv -f "$temp" "$DESTDIR$2"
}

build=$1 version=$2
shift 2
text=$(mktemp)
temp=$text
trap 'rm -f "$text" "$temp"' EXIT
trap 'exit 130' HUP INT TERM
make_dir "$data"
[ -e "$list" ] || : >"$list"
printf %s "$made" | while IFS= read -r d; do note d "$d"; done
listed=1
for t in "$@"; do
    put 755 "$build/$t" "$bin/$t"
    if "$build/$t" --completions bash >"$text" 2>/dev/null; then
        put 644 "$text" "$bash/$t"
        "$build/$t" --completions zsh >"$text"
        put 644 "$text" "$zsh/_$t"
    fi
done
for f in ${LIB-}; do
    put 644 "$top/$f" "$lib/${f##*/}"
    case $f in
    *.so.*)
        name=${f##*/}
        soname=${name%%.so.*}.so.${version%%.*}
        put_link "$name" "$lib/$soname"
        put_link "$soname" "$lib/${name%%.so.*}.so"
        ;;
    esac
done
if [ -n "${LIB-}" ]; then
    put 644 "$top/lib/tensorutils.h" "$include/tensorutils.h"
    libs=$(printf '%s\n' "$LIBS" | sed 's/-Wl,--as-needed //')
    # in quotes of Cflags and Libs; # would begin a comment
    quoted() { printf '%s\n' "$1" | sed 's/["\\#]/\\&/g'; }
    P=$(quoted "$prefix") L=$(quoted "$lib") I=$(quoted "$include") V=$version LIBS=$libs awk '
        function to(mark, name,   i) {
            if ((i = index($0, mark)))
                $0 = substr($0, 1, i - 1) ENVIRON[name] substr($0, i + length(mark))
        }
        { to("@PREFIX@", "P"); to("@LIBDIR@", "L"); to("@INCLUDEDIR@", "I")
          to("@VERSION@", "V"); to("@LIBS@", "LIBS"); print }' \
        "$top/lib/tensorutils.pc.in" >"$text"
    put 644 "$text" "$lib/pkgconfig/tensorutils.pc"
    put_link tensorutils.pc "$lib/pkgconfig/libtensorutils.pc"
    for f in "$top"/lib/examples/*.c; do
        put 644 "$f" "$data/examples/${f##*/}"
    done
fi
for m in "$top"/man/*.[1-9]; do
    case $m in *.3) [ -n "${LIB-}" ] || continue ;; esac
    sed "s/^\.Os\$/.Os \"tensorutils $version\"/" "$m" >"$text"
    put 644 "$text" "$man/man${m##*.}/${m##*/}"
done
for s in "$top"/jobs/*; do
    case $(head -n 1 "$s") in '#!'*) mode=755 ;; *) mode=644 ;; esac
    put $mode "$s" "$data/${s##*/}"
done
for p in build_wheel.py pyproject.toml tensorutils.py; do
    put 644 "$top/python/$p" "$data/python/$p"
done
echo "tensorutils $version: $# tools in $DESTDIR$bin"
case :$PATH: in
*:"$bin":*) ;;
*) [ -n "$DESTDIR" ] || echo "  which is not in PATH: PATH=\"$bin:\$PATH\"" ;;
esac
