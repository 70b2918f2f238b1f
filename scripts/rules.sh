#!/bin/sh
# SPDX-License-Identifier: ISC
# shellcheck disable=SC2046,SC2086  # file names here have no spaces
# Fails where a file breaks a rule of the house that no compiler knows: its
# size, what its first lines say, comments of headers, options nobody reads,
# seeds of fuzzers.
status=0

# One pass over all files: a process for each takes minutes.
sources=$(git ls-files '*.[ch]' '*.sh' '*.py' '*.bats' '*.bash' 'man/*' Makefile 'test/*.mk')
isas=$(sed -n 's/^ISA[^,]*, \([a-z0-9]*\),.*/\1/p' core/kernel/isa.def 2>/dev/null | paste -sd'|')
awk -v max_file=700 -v max_page=350 -v max_function=120 -v isas="$isas" '
    # Files over max_file lines, and pages of tools over max_page, that have a
    # reason.
    BEGIN {
        reason["python/tensorutils.py"] = "one file, to be copied"
    }

    function bad(file, what) {
        print "rules: " file ": " what
        found = 1
    }

    function how(file) {
        return file ~ /\.[ch]$/ ? "/* ... */ on line 1" : file ~ /\.py$/ ? "\"\"\"...\"\"\" in lines 1 to 3" : \
            file ~ /\.[1357]$/ ? ".Nd ..." : "# ... in lines 1 to 4"
    }

    # What a header declares it explains: above it, or by its name elsewhere.
    function declaration_ends() {
        if (declared && !comment)
            bare[++n_bare] = declared
        declared = ""
        comment = 0
    }
    function file_ends() {
        declaration_ends()
        for (; n_bare; n_bare--)
            if (!index(said, bare[n_bare] "()"))
                bad(file, bare[n_bare] "() has no comment")
        said = ""
        from = 0
    }

    FNR == 1 {
        file_ends()
        file = FILENAME
        kind = file
        sub(/.*[.\/]/, "", kind)
        is_c = kind == "c" || kind == "h"
        is_page = kind ~ /^[1357]$/
        is_header = kind == "h" && file ~ /^(core|cmd|lib)\//
        n_licences = 0
    }

    # The licence and a tag of a test are no lines of a file: "at" counts
    # without them.
    FNR <= 2 && /SPDX-License-Identifier: ISC/ {
        licensed[file] = 1
        n_licences = 1
        next
    }
    {
        at = FNR - n_licences
        n_lines[file] += !/^# bats test_tags=/
    }

    # The header of a module says for both files what they are for.
    at == 1 {
        header = file
        if (sub(/\.c$/, ".h", header) && index($0, "#include \"" header "\""))
            stands_for[file] = header
    }

    # The first lines say what a file is for.
    is_c && at == 1 && /^\/\*/ { says[file] = 1 }
    is_page && /^\.Nd / { says[file] = 1 }
    kind == "py" && at <= 3 && /"""/ { says[file] = 1 }
    !is_c && !is_page && kind != "py" && at <= 4 && /^# / && !/^# shellcheck/ {
        says[file] = 1
    }

    # The body of a function, between the braces at the start of a line.
    is_c && /^[a-z_0-9]+\(/ {
        name = $0
        sub(/\(.*/, "", name)
    }
    is_c && /^\{/ { from = FNR }
    is_c && /^\}/ && from {
        if (FNR - from - 1 > max_function)
            bad(file, name "() has " FNR - from - 1 " lines (at most " max_function ")")
        from = 0
    }

    is_header && /^$/ { declaration_ends() }
    is_header && /\/\*|^ \*/ {
        comment = 1
        said = said $0
    }
    is_header { sub(/^TU_API /, "") }
    is_header && /^[a-z_][^=]*[ *][a-z_0-9]+\(/ && !/^(static|typedef)/ && !declared {
        declared = $0
        sub(/\(.*/, "", declared)
        sub(/.*[ *]/, "", declared)
    }

    END {
        file_ends()
        for (i = 1; i < ARGC; i++) {
            f = ARGV[i]
            max = f ~ /^man\/.*\.1$/ ? max_page : max_file
            if (f !~ /^man\// && !licensed[f])
                bad(f, "has no SPDX-License-Identifier: ISC in lines 1 and 2")
            if (n_lines[f] > max && !(f in reason))
                bad(f, "has " n_lines[f] " lines (at most " max ", or a reason in scripts/rules.sh)")
            g = f in stands_for ? stands_for[f] : f
            family = g
            if (isas != "" && sub("_(" isas ")\\.c$", ".h", family) && family in n_lines)
                g = family
            if (!says[g])
                bad(g, "its first lines do not say what it is for (" how(g) ")")
        }
        exit found
    }' $sources </dev/null >&2 || status=1

# An option's field stands in the tool's struct, in the table, and where it is
# read.
awk '
    FNR == 1 {
        dir = FILENAME
        sub(/[^\/]*$/, "", dir)
    }
    FILENAME == dir "main.c" {
        rest = $0
        while (match(rest, /OPT_[A-Z0-9]+\([a-z_.0-9]+/)) {
            field = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            if (field ~ /CALL/)
                continue
            sub(/.*[(.]/, "", field)
            fields[dir, field] = 1
        }
    }
    {
        n = split($0, word, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= n; i++)
            n_words[dir, word[i]]++
    }
    END {
        for (key in fields)
            if (n_words[key] < 3) {
                split(key, part, SUBSEP)
                print "rules: " part[1] "main.c: nothing reads the option\047s field " part[2]
                found = 1
            }
        exit found
    }' $(git ls-files 'cmd/*/*.[ch]') /dev/null >&2 || status=1

# The seeds of a fuzzer are few and short: "-merge=1" of libFuzzer makes them so.
max_seeds=64 max_seed=4096
git ls-files 'test/fuzz/*.seeds/*' | xargs -r wc -c | awk -v most=$max_seeds -v max=$max_seed '
    $2 == "total" { next }
    $1 > max {
        print "rules: " $2 ": has " $1 " bytes (at most " max ")"
        found = 1
    }
    { sub(/\/[^\/]*$/, "", $2); seeds[$2]++ }
    END {
        for (d in seeds) if (seeds[d] > most) {
            print "rules: " d ": has " seeds[d] " seeds (at most " most ")"
            found = 1
        }
        exit found
    }' >&2 || status=1

# What Linux or its C library alone has is asked for in one place.
alone='<linux/|sys/(syscall|random|sysinfo|prctl|epoll|eventfd)\.h|stdio_ext\.h|\b(qsort_r|memrchr|strverscmp|mempcpy|strchrnul|program_invocation_[a-z_]*|getrandom|syncfs|sync_file_range|fallocate|copy_file_range|v?m?splice|tee|preadv2|pipe2|posix_fadvise|sched_[gs]etaffinity|syscall|O_TMPFILE|F_SETPIPE_SZ|MADV_HUGEPAGE) *[(,;|)]'
if git ls-files 'core/*.[ch]' 'core/*/*.[ch]' 'cmd/*.[ch]' 'lib/*.[ch]' | grep -vxE 'core/(compat|node)\.[ch]' |
    xargs grep -nE "$alone" /dev/null | grep -vE ':[0-9]+: *(/\*| \*)' >&2; then
    echo 'rules: not every system has that: core/compat.h' >&2
    status=1
fi

# What is left to do stands in issues, not here.
if grep -nwE 'TO[D]O|FIX[M]E|X[X]X|HAC[K]' $sources /dev/null >&2; then
    echo 'rules: a note to oneself: what is left to do is an issue' >&2
    status=1
fi
exit $status
