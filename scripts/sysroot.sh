#!/bin/sh
# SPDX-License-Identifier: ISC
# sysroot.sh ARCH DIR: unpacks the libraries that tensorutils needs, for
# Debian's ARCH (arm64, s390x), into DIR.  Nothing on this machine changes:
# apt gets lists and a cache of its own there.
set -eu
arch=$1 dir=$2
[ -e "$dir/complete" ] && [ -e "$dir/usr/include/jpeglib.h" ] && exit
command -v apt-get >/dev/null || {
    echo "sysroot.sh: no apt-get here; unpack jansson, xxhash, openssl, pcre2, utf8proc, zlib, libpng and libjpeg-turbo for $arch into $dir, then touch $dir/complete" >&2
    exit 1
}
mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
: >"$dir/apt/status"
apt() {
    apt-get -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
        -o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt" \
        -o Dir::State::status="$dir/apt/status" \
        -o APT::Sandbox::User=root "$@" >"$dir/apt/log" 2>&1 || {
        tail -n 3 "$dir/apt/log" >&2
        exit 1
    }
}
dir=$(cd "$dir" && pwd)
cd "$dir/apt/archives"
apt update
apt download libjansson-dev libjansson4 libxxhash-dev libxxhash0 \
    libssl-dev libssl3 libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 \
    zlib1g-dev zlib1g libpng-dev libpng16-16 \
    libjpeg62-turbo-dev libjpeg62-turbo
for p in *.deb; do
    dpkg -x "$p" "$dir"
done
rm -rf "$dir/apt"
touch "$dir/complete"
