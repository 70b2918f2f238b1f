#!/bin/sh
# SPDX-License-Identifier: ISC
# shellcheck disable=SC2046  # file names here have no spaces
# Fails where an #include goes against the house: cmd -> core/model, core/text,
# core/image -> core/format, core/kernel -> core; lib, for programs, -> core; neither siblings nor tools include each
# other; only tools print; files and threads are made, and regular expressions
# bounded, in one place each.
status=0
bad() {
    why=$1 pattern=$2
    shift 2
    if grep -nE "$pattern" "$@" /dev/null; then
        echo "layers: $why" >&2
        status=1
    fi
}
bad 'core includes a tool or a test' '^#include "(cmd|lib|test)/' $(git ls-files 'core/*.[ch]')
bad 'lib includes a tool or a test' '^#include "(cmd|test)/' $(git ls-files 'lib/*.[ch]')
bad 'a tool includes lib' '^#include "lib/' $(git ls-files 'cmd/*.[ch]')
bad 'core includes a room above it' '^#include "core/.*/' $(git ls-files 'core/*.[ch]' | grep -v '^core/.*/')
bad 'format includes its sibling or a room above' '^#include "core/(kernel|model|text|image)/' $(git ls-files 'core/format/*.[ch]')
bad 'kernel includes its sibling or a room above' '^#include "core/(format|model|text|image)/' $(git ls-files 'core/kernel/*.[ch]')
bad 'model includes its sibling' '^#include "core/(text|image)/' $(git ls-files 'core/model/*.[ch]')
bad 'text includes its sibling' '^#include "core/(model|image)/' $(git ls-files 'core/text/*.[ch]')
bad 'image includes its sibling' '^#include "core/(model|text)/' $(git ls-files 'core/image/*.[ch]')
bad 'only a tool includes core/tool.h' '^#include "core/tool.h"' $(git ls-files 'core/*.[ch]' 'lib/*.[ch]' | grep -v '^core/tool.c')
bad 'core or lib prints or exits' '\b(v?f?printf|f?puts|f?putc|putchar|fwrite|perror|_?exit|abort)\(|\bwrite\([12],' \
    $(git ls-files 'core/*.c' 'lib/*.c' | grep -vE '^lib/examples/|^core/(tool|mem|sig|tty|opt|opt_help|opt_complete)\.c')
bad 'only core/out, outdir, spill and compat create files' '\bO_(CREAT|TMPFILE)\b|\bcreat(64)?\(|\bmk(s|os|d)temps?\(|\btmpfile\(|\bf(re)?open\([^)]*"[wa]' \
    $(git ls-files 'core/*.[ch]' 'cmd/*.[ch]' 'lib/*.[ch]' | grep -vE '^core/(compat|out|outdir|spill)\.c')
bad 'only core/par.c makes threads' '\b(pthread|thrd)_create\(' $(git ls-files 'core/*.[ch]' 'cmd/*.[ch]' 'lib/*.[ch]' | grep -v '^core/par.c')
bad 'only core/regex.c includes pcre2.h' '^#include <pcre2' $(git ls-files '*.[ch]' | grep -v '^core/regex.c')
bad 'only core/model/train/ranks_mpi.c includes mpi.h' '^#include <mpi' $(git ls-files '*.[ch]' | grep -v '^core/model/train/ranks_mpi.c')
bad 'only core/text includes utf8proc.h' '^#include <utf8proc' $(git ls-files '*.[ch]' | grep -vE '^(core/text|test)/')
bad 'only core/image includes png.h and jpeglib.h' '^#include <(png|jpeglib|jerror)\.h' $(git ls-files '*.[ch]' | grep -v '^core/image/')
bad 'an include that is not from the root' '^#include "[^/"]*"' $(git ls-files '*.[ch]')
for c in cmd/*/; do
    # shellcheck disable=SC2046
    grep -nE '^#include "cmd/' $(git ls-files "$c*.[ch]") /dev/null | grep -v "\"$c" && status=1
done
exit $status
