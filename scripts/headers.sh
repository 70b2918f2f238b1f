#!/bin/sh
# SPDX-License-Identifier: ISC
# shellcheck disable=SC2046  # file names here have no spaces
# Fails where a header is a directory's, not a file's: where it declares more
# functions than one subject has; and where a struct, union or enum of a header
# of core, cmd or lib is defined elsewhere in them, too: by its name it is found.
status=0

awk -v max=25 '
    FNR == 1 { files[++n_files] = FILENAME }
    /^[a-z_][^=]*[ *][a-z_0-9]+\(/ && !/^(static|typedef)/ { n[FILENAME]++ }
    END {
        for (i = 1; i <= n_files; i++) if (n[files[i]] > max) {
            print "headers: " files[i] ": declares " n[files[i]] " functions (at most " max ")"
            found = 1
        }
        exit found
    }' $(git ls-files '*.h') /dev/null >&2 || status=1

awk '
    /^ *((typedef|static|const) )*(struct|union|enum) [a-z_0-9]+ \{/ {
        name = $0
        sub(/ \{.*/, "", name)
        sub(/.* /, "", name)
        where[name] = where[name] " " FILENAME ":" FNR
        n[name]++
        if (FILENAME ~ /\.h$/)
            shared[name] = 1
    }
    END {
        for (name in shared)
            if (n[name] > 1) {
                print "headers: " name " is defined more than once:" where[name]
                found = 1
            }
        exit found
    }' $(git ls-files 'core/*.[ch]' 'cmd/*.[ch]' 'lib/*.[ch]') /dev/null >&2 || status=1
exit $status
