#!/bin/sh
# shellcheck disable=SC2046,SC2013  # file names here have no spaces
# Fails where a file breaks a rule of the house that no compiler knows: its
# size, what its first lines say, comments of headers, options nobody reads,
# seeds of fuzzers.
max_file=700 max_function=120
status=0
bad() {
    echo "rules: $*" >&2
    status=1
}

# Files over max_file lines that have a reason, "NAME: why", one a line.
long_files='man/hf-infer.1: one page for all of its modes'

sources=$(git ls-files '*.[ch]' '*.sh' '*.py' '*.bats' '*.bash' 'man/*' Makefile 'test/*.mk')
for f in $sources; do
    n=$(wc -l <"$f")
    [ "$n" -le $max_file ] || printf '%s\n' "$long_files" | grep -q "^$f: ." ||
        bad "$f: has $n lines (at most $max_file, or a reason in scripts/rules.sh)"
done

# A function's body, between the braces at the start of a line.
for f in $(git ls-files '*.[ch]'); do
    awk -v max=$max_function -v f="$f" '
        /^[a-z_0-9]+\(/ { name = $0; sub(/\(.*/, "", name) }
        /^\{/ { from = NR }
        /^\}/ && from {
            if (NR - from - 1 > max) {
                print "rules: " f ": " name "() has " NR - from - 1 " lines (at most " max ")"
                found = 1
            }
            from = 0
        }
        END { exit found }' "$f" >&2 || status=1
done

# The first lines say what a file is for; a module's header says it for both.
purpose() {
    case $1 in
    *.h | *.c) head -1 "$1" | grep -q '^/\*' ;;
    *.py) head -3 "$1" | grep -q '"""' ;;
    *.1 | *.5 | *.7) grep -q '^\.Nd ' "$1" ;;
    *) head -4 "$1" | grep -v '^#!\|^# shellcheck' | grep -q '^# ' ;;
    esac
}
isas=$(sed -n 's/^ISA[^,]*, \([a-z0-9]*\),.*/\1/p' core/kernel/isa.def 2>/dev/null | paste -sd'|')
for f in $sources; do
    own=${f%.c}.h
    head -1 "$f" | grep -qF "#include \"$own\"" && f=$own
    general=$(printf '%s\n' "$f" | sed -E "s/_($isas)\.c$//")
    [ ! -e "$general.h" ] || f=$general.h
    purpose "$f" || bad "$f: its first lines do not say what it is for"
done

# What a header declares it explains: above it, or by its name elsewhere.
for f in $(git ls-files 'core/*.h' 'cmd/*.h'); do
    awk -v f="$f" '
        function end() {
            if (name && !comment && index(said, name "()") == 0) {
                print "rules: " f ": " name "() has no comment"
                found = 1
            }
            name = ""
            comment = 0
        }
        NR == FNR { if (/\/\*|^ \*/) said = said $0; next }
        /^$/ { end() }
        /\/\*|^ \*/ { comment = 1 }
        /^[a-z_][^=]*[ *][a-z_0-9]+\(/ && !/^(static|typedef)/ && !name {
            name = $0
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
        }
        END { end(); exit found }' "$f" "$f" >&2 || status=1
done

# An option's field stands in the tool's struct, in the table, and where it is
# read.
for d in $(git ls-files 'cmd/*/main.c' | sed 's|/main.c||'); do
    for field in $(grep -oE 'OPT_[A-Z0-9]+\([a-z_.0-9]+' "$d/main.c" | grep -v CALL | sed 's/.*[(.]//' | sort -u); do
        [ "$(git grep -ohwF -e "$field" -- "$d/*.[ch]" | wc -l)" -ge 3 ] ||
            bad "$d/main.c: nothing reads the option's field $field"
    done
done

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

# What is left to do stands in issues, not here.
# shellcheck disable=SC2086
grep -nwE 'TO[D]O|FIX[M]E|X[X]X|HAC[K]' $sources /dev/null >&2 &&
    bad 'a note to oneself'
exit $status
