# SPDX-License-Identifier: ISC
# What tests of the library share: installed in a directory of their own,
# programs compiled with it, and the calls that must be refused.

setup_file() {
    export P=$BATS_FILE_TMPDIR/p
    [ -e "$BUILD/libtensorutils.a" ] || return 0
    make --no-print-directory -s -C "$ROOT" install PREFIX="$P" >/dev/null
    export LD_LIBRARY_PATH=$P/lib PKG_CONFIG_PATH=$P/lib/pkgconfig
    # short programs leave what they have to exit
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}

setup() {
    cd "$BATS_TEST_TMPDIR"
    [ -e "$BUILD/libtensorutils.a" ] || skip "no library is built here"
}

# Flags as programs ask for them; the same by hand where there is no pkg-config;
# a sanitized archive's.
flags() {
    if [[ $BUILD == */*san ]]; then
        archive
    elif command -v pkg-config >/dev/null; then
        pkg-config --cflags --libs tensorutils
    else
        printf '%s\n' "-I$P/include -L$P/lib -ltensorutils"
    fi
}

# The flags of a program that has the library in itself.
archive() {
    local sanitizer=
    case $BUILD in
    */tsan) sanitizer=-fsanitize=thread ;;
    */san) sanitizer=-fsanitize=address,undefined ;;
    esac
    echo "-I$P/include $sanitizer $P/lib/libtensorutils.a ${LDFLAGS-} $(sed -n 's/^Libs.private: //p' "$P/lib/pkgconfig/tensorutils.pc")"
}

# build FILE.c FLAG...: FILE, as a careful program would be built.
build() {
    local file=$1
    shift
    # shellcheck disable=SC2046 # flags are several words
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "${file%.c}" "$file" "$@" $(flags)
}

example() {
    cp "$P/share/tensorutils/examples/$1.c" .
    [ "$(grep -vc SPDX "$1.c")" -le 30 ]
    build "$1.c"
}

# refusals: what each program of these tests begins with: no() sees that a call
# is refused with a status, and prints why.
refusals() {
    cat <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils.h>

static struct tu_err err;
__attribute__((unused)) static void no(int rc, int status)
{
    if (rc == 0 || err.status != status)
        printf("not refused: %d %s\n", rc, err.what), exit(1);
    puts(err.what);
    err = (struct tu_err){ 0 };
}
__attribute__((unused)) static void yes(int rc)
{
    if (rc)
        printf("refused: %s\n", err.what), exit(1);
}
END
}
