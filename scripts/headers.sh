#!/bin/sh
# shellcheck disable=SC2046  # file names here have no spaces
# Fails where a header is a folder's, not a file's: where it declares more
# functions than one subject has; and where a struct, union or enum of a header
# of core or cmd is defined elsewhere in them, too: by its name it is found.
max_functions=25
status=0
for f in $(git ls-files '*.h'); do
    awk -v max=$max_functions -v f="$f" '
        /^[a-z_][^=]*[ *][a-z_0-9]+\(/ && !/^(static|typedef)/ { n++ }
        END {
            if (n > max)
                print "headers: " f ": declares " n " functions (at most " max ")"
            exit n > max
        }' "$f" >&2 || status=1
done

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
    }' $(git ls-files 'core/*.[ch]' 'cmd/*.[ch]') /dev/null >&2 || status=1
exit $status
