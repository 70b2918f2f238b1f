#!/bin/sh
# deb.sh BUILD VERSION: makes tensorutils_VERSION_ARCH.deb in the directory BUILD
# of what "make install" puts below /usr.  The same tree gives the same bytes:
# times are SOURCE_DATE_EPOCH, or the last commit's.
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
root=$work/debian/tensorutils doc=$work/debian/tensorutils/usr/share/doc/tensorutils
mkdir -p "$root/DEBIAN" "$doc"

"${MAKE:-make}" --no-print-directory -s install LIB= DESTDIR="$root" PREFIX=/usr \
    ZSHDIR=/usr/share/zsh/vendor-completions >/dev/null
rm "$root/usr/share/tensorutils/installed"
find "$root/usr/bin" -type f -exec "${STRIP:-strip}" --remove-section=.comment \
    --remove-section=.note {} +
find "$root/usr/share/man" -type f -exec gzip -9n {} +

# The change is NEWS, each paragraph an item.
{
    printf 'tensorutils (%s) unstable; urgency=low\n\n' "$version"
    sed -n '2,/^tensorutils /{/^tensorutils /d;p}' NEWS |
        awk -v RS= -v to='fmt -w 74 | sed "1s/^/  * /; 1!s/^/    /"' '{ print | to; close(to) }'
    printf '\n -- %s  %s\n' "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.gz"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
    sed -n 's/^Copyright (c) /Copyright: /p' COPYING
    printf 'License: ISC\n'
    sed '1,2d; s/^$/./; s/^/ /' COPYING
} >"$doc/copyright"
gzip -9nc README >"$doc/README.gz"

cat >"$work/debian/control" <<CONTROL
Source: tensorutils

Package: tensorutils
Architecture: any
CONTROL
depends=$(cd "$work" && dpkg-shlibdeps -O debian/tensorutils/usr/bin/* | sed 's/^shlibs:Depends=//')
cat >"$root/DEBIAN/control" <<CONTROL
Package: tensorutils
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(find "$root/usr" -printf '%y %s\n' | awk '{ n += $1 == "d" ? 1 : int(($2 + 1023) / 1024) } END { print n }')
Depends: $depends
Suggests: slurm-client
Section: science
Priority: optional
Description: small tools for the tensors around language and vision models
 Filters and checkers of model weights and activations, for a shell, a
 Makefile or cron: they need no Python and no GPU, and never leave a
 half-written file.
 .
 st-inspect looks into safetensors; hf-infer runs Hugging Face model directories
 on the CPU; saev-write and saev-read cache activations; kvc-convert converts
 KV-cache compressors; lut-precompute and lut-apply make and use lookup tables
 of linear layers, from what sae-train trains; moe-sft fine-tunes experts by LoRA.
CONTROL
(cd "$root" && find usr -type f | sort | xargs -d '\n' md5sum >DEBIAN/md5sums)

deb=$build/tensorutils_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz -b "$root" "$work/deb" >/dev/null
mv -f "$work/deb" "$deb"
echo "$deb"
