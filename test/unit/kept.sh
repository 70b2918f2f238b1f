#!/bin/sh
# SPDX-License-Identifier: ISC
# kept.sh SCRIPT [ARGUMENT...] DIR: what $PYTHON SCRIPT ARGUMENT... DIR puts into
# DIR.  With $KEPT, a directory, that is computed once for all builds and
# instruction sets: the name of what is kept there is a hash of all scripts, the
# arguments, and the versions of Python, NumPy, Pillow and torch.
set -e
for dir; do :; done
if [ -z "${KEPT-}" ]; then
    exec "${PYTHON:-python3}" "$@"
fi
key=$({
    cat test/ref/*.py
    "${PYTHON:-python3}" -c 'import importlib.metadata as m, sys
print(sys.version, sorted(d.name + d.version for d in m.distributions() if d.name.lower() in ("numpy", "pillow", "torch")))'
    for word; do [ "$word" = "$dir" ] || echo "$word"; done
} | sha256sum | cut -d ' ' -f 1)
if [ ! -d "$KEPT/$key" ]; then
    mkdir -p "$KEPT"
    part=$(mktemp -d "$KEPT/part.XXXXXX")
    for word; do # what is in DIR already is not kept
        shift
        [ "$word" != "$dir" ] || word=$part
        set -- "$@" "$word"
    done
    "${PYTHON:-python3}" "$@" || { rm -rf "$part" && exit 1; }
    mv -T "$part" "$KEPT/$key" 2>/dev/null || rm -rf "$part" # another was first
fi
mkdir -p "$dir"
exec cp -Rp "$KEPT/$key/." "$dir"
