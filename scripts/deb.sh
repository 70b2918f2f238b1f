#!/bin/sh
# SPDX-License-Identifier: ISC
# deb.sh BUILD VERSION: makes tensorutils_VERSION_ARCH.deb in the directory BUILD
# of what "make install" puts below /usr and of demo/, and libtensorutils0 and
# libtensorutils-dev of its library, python3-tensorutils of tensorutils.py.  Prints their names.  The same tree gives
# the same bytes: times are SOURCE_DATE_EPOCH, or the last commit's.
set -eu
umask 022
# shellcheck source=scripts/own-make.sh
. "$(dirname "$0")/own-make.sh"
build=$1 version=$2
for c in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v $c >/dev/null || {
        echo "deb: no $c here: apt-get install dpkg-dev" >&2
        exit 1
    }
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y NEWS)}
export SOURCE_DATE_EPOCH LC_ALL=C
maintainer="${DEBFULLNAME:-The tensorutils developers} <${DEBEMAIL:-tensorutils@invalid.invalid}>"
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
root=$work/debian/tensorutils
mkdir -p "$root"

"${MAKE:-make}" --no-print-directory -s install DESTDIR="$root" PREFIX=/usr \
    LIBDIR="/usr/lib/$multiarch" ZSHDIR=/usr/share/zsh/vendor-completions >/dev/null
rm "$root/usr/share/tensorutils/installed"
doc=usr/share/doc/tensorutils
mkdir -p "$root/$doc"
cp -R demo "$root/$doc/demo"
find "$root/$doc/demo" -type d -exec chmod 755 {} + -o -exec chmod 644 {} +
find "$root/usr/bin" -type f -exec "${STRIP:-strip}" --remove-section=.comment \
    --remove-section=.note {} +
find "$root/usr/share/man" -type f -exec gzip -9n {} +

# take PACKAGE FILE...: what is found of these goes from tensorutils to there.
take() {
    to=$work/debian/$1
    shift
    for f; do
        [ -e "$root/$f" ] || [ -L "$root/$f" ] || continue
        mkdir -p "$to/${f%/*}"
        mv "$root/$f" "$to/$f"
    done
}
(
    cd "$root"
    echo usr/share/tensorutils/examples usr/share/man/man3/* usr/include/* "usr/lib/$multiarch/pkgconfig"/* "usr/lib/$multiarch"/*.so "usr/lib/$multiarch"/*.a
) >"$work/dev"
# shellcheck disable=SC2046,SC2086 # no name here has a space
take libtensorutils-dev $(cat "$work/dev")
soname=$(cd "$root" && echo "usr/lib/$multiarch"/*.so.? | sed 's/.*\.so\.//')
library=libtensorutils$soname
# shellcheck disable=SC2046
take "$library" $(cd "$root" && echo "usr/lib/$multiarch"/*.so.*)
# The module is where Debian's python3 looks; pip is not needed.
if [ -d "$work/debian/$library" ]; then
    take python3-tensorutils usr/share/man/man7/tensorutils-python.7.gz
    modules=$work/debian/python3-tensorutils/usr/lib/python3/dist-packages
    mkdir -p "$modules"
    mv "$root/usr/share/tensorutils/python/tensorutils.py" "$modules"
    rm -r "$root/usr/share/tensorutils/python"
fi
find "$root" -type d -empty -delete
[ ! -d "$work/debian/$library" ] ||
    find "$work/debian" \( -name '*.so.*' -o -name '*.a' \) -type f -exec "${STRIP:-strip}" --strip-unneeded \
        --remove-section=.comment --remove-section=.note {} +

# The change is NEWS, each paragraph an item.
{
    printf 'tensorutils (%s) unstable; urgency=low\n\n' "$version"
    sed -n '2,/^tensorutils /{/^tensorutils /d;p}' NEWS |
        awk -v RS= -v to='fmt -w 74 | sed "1s/^/  * /; 1!s/^/    /"' '{ print | to; close(to) }'
    printf '\n -- %s  %s\n' "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$work/changelog.gz"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
    sed -n 's/^Copyright (c) /Copyright: /p' COPYING
    printf 'License: ISC\n'
    sed '1,2d; s/^$/./; s/^/ /' COPYING
} >"$work/copyright"

# pack PACKAGE FIELDS: what lies in debian/PACKAGE; the description is standard
# input.
pack() {
    package=$1 fields=$2
    top=$work/debian/$package
    mkdir -p "$top/usr/share/doc/$package"
    cp "$work/changelog.gz" "$work/copyright" "$top/usr/share/doc/$package"
    {
        printf 'Package: %s\nSource: tensorutils\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' \
            "$package" "$version" "$arch" "$maintainer"
        printf 'Installed-Size: %s\n' "$(find "$top/usr" -printf '%y %s\n' |
            awk '{ n += $1 == "d" ? 1 : int(($2 + 1023) / 1024) } END { print n }')"
        [ ! "$fields" ] || printf '%s\n' "$fields"
        printf 'Priority: optional\n'
        cat
    } | sed "$([ "$package" = tensorutils ] && echo /^Source:/d)" >"$top/DEBIAN/control"
    (cd "$top" && find usr -type f | sort | xargs -d '\n' md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zxz -b "$top" "$work/deb" >/dev/null
    mv -f "$work/deb" "$build/${package}_${version}_$arch.deb"
    echo "$build/${package}_${version}_$arch.deb"
}

# needs PATTERN: the packages that these programs or libraries are linked with.
needs() {
    # shellcheck disable=SC2086 # a pattern
    (cd "$work" && dpkg-shlibdeps -O $1 | sed 's/^shlibs:Depends=//')
}
printf 'Source: tensorutils\n\nPackage: tensorutils\nArchitecture: any\n' >"$work/debian/control"

for d in "$work"/debian/*/; do
    mkdir "$d/DEBIAN"
done

if [ -d "$work/debian/$library" ]; then
    echo "libtensorutils $soname $library (>= $version)" >"$work/debian/$library/DEBIAN/shlibs"
    (cd "$work" && dpkg-gensymbols -q "-p$library" "-v$version" "-Pdebian/$library" "-Osymbols" && sed "1a* Build-Depends-Package: libtensorutils-dev" symbols >"debian/$library/DEBIAN/symbols")
    echo 'activate-noawait ldconfig' >"$work/debian/$library/DEBIAN/triggers"
    pack "$library" "Depends: $(needs "debian/$library/usr/lib/$multiarch/*.so.*")
Section: libs
Multi-Arch: same" <<DESCRIPTION
Description: library for the tensors of language models
 What programs in C call of tensorutils: safetensors, models with their logits
 and activations, tokenizers, and the training operator of a layer's experts.
DESCRIPTION
    pack libtensorutils-dev "Depends: $library (= $version)
Section: libdevel
Multi-Arch: same" <<DESCRIPTION
Description: library for the tensors of language models (development)
 The header, the static library, pkg-config's file and the manual page of
 libtensorutils, which reads safetensors, runs models and trains experts.
DESCRIPTION
    (
        arch=all
        pack python3-tensorutils "Depends: $library (= $version), python3-numpy, python3:any
Suggests: python3-torch
Section: python"
    ) <<DESCRIPTION
Description: activations, autoencoders and tables of language models in Python
 One module that opens what tensorutils writes, in numpy and torch, by
 libtensorutils: dumps of activations, sparse autoencoders, lookup tables and
 safetensors.  It also caches the activations of torch models, and trains
 layers of experts.
DESCRIPTION
fi
gzip -9nc README.md >"$work/README.md.gz"
mv "$work/README.md.gz" "$root/$doc"
pack tensorutils "Depends: $(needs 'debian/tensorutils/usr/bin/*')
Suggests: slurm-client
Section: science" <<DESCRIPTION
Description: small tools for the tensors around language and vision models
 Filters and checkers of model weights and activations, for a shell, a
 Makefile or cron: they need no Python and no GPU, and never leave a
 half-written file.
 .
 st-inspect looks into safetensors; hf-infer runs Hugging Face models on the
 CPU; saev-write and saev-read cache activations; sae-train trains sparse
 autoencoders on them, sae-look shows what these have found, and lut-precompute
 and lut-apply make and use lookup tables of them; kvc-convert converts KV-cache
 compressors; moe-sft fine-tunes models and layers of experts by LoRA;
 st-convert packs weights and changes types, names and shards.
DESCRIPTION
