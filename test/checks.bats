# SPDX-License-Identifier: ISC
# The checks themselves: each of them says no where something is wrong, in small
# trees that have a fault of one kind.
load helpers

# tree SCRIPT...: a directory of its own with these of scripts/.
tree() {
    mkdir -p tree/scripts tree/bin tree/core tree/cmd/t tree/test/unit tree/test/same tree/build
    cd tree
    for s; do cp "$ROOT/scripts/$s" scripts; done
    PATH=$PWD/bin:$PATH
}

# stub NAME: a command in bin/ that standard input is the script of.
stub() {
    { echo '#!/bin/sh' && cat; } >"bin/$1"
    chmod +x "bin/$1"
}

@test "lines.sh: a room that has more lines than it may is found" {
    need_commands git
    git init -q tree && cd tree
    mkdir -p core/text
    most=$(sed -n 's,^core/text ,,p' "$ROOT/scripts/lines.sh")
    seq "$most" >core/text/a.c
    seq 10 >core/a.h
    git add -A
    run -0 sh "$ROOT/scripts/lines.sh"
    [[ ${lines[1]} =~ ^core\ +10\ +[0-9]+$ && ${lines[-1]} =~ ^all\ +$((most + 10))\  ]]
    echo >>core/text/a.c
    run -1 --separate-stderr sh "$ROOT/scripts/lines.sh"
    [ "$stderr" = "lines: core/text has $((most + 1)) lines (at most $most, in scripts/lines.sh)" ]
}

# bats test_tags=long
@test "rules.sh: each broken rule is found" {
    need_commands git
    git init -q tree && cd tree
    mkdir -p core cmd/t man
    lines() { seq "$1" | sed 's/.*/    x();/'; } # a body of so many
    body() { printf '/* It. */\nint\nf(void)\n{\n%s\n}\n' "$(lines "$1")"; }
    licence="SPDX-License-Identifier: ISC"
    try() { # try STATUS FILE SAYS: with standard input as this file of the tree
        {
            case $2 in
                *.[ch]) echo "/* $licence */" ;;
                core/* | Makefile) echo "# $licence" ;;
            esac
            cat
        } >"$2"
        git add -A
        run "-$1" sh "$ROOT/scripts/rules.sh"
        [[ $output == "${3:+rules: $2: $3}" ]]
        git rm -qf "$2"
        mkdir -p core cmd/t man
    }
    try 0 core/a.c < <(body 120)
    try 1 core/a.c "f() has 121 lines (at most 120)" < <(body 121)
    try 0 Makefile < <(seq 700 | sed 's/^/# /')
    try 1 Makefile "has 701 lines (at most 700, or a reason in scripts/rules.sh)" < <(seq 701 | sed 's/^/# /')
    page() { echo '.Nd it' && seq 2 "$1"; }
    try 0 man/t.1 < <(page 350)
    try 1 man/t.1 "has 351 lines (at most 350, or a reason in scripts/rules.sh)" < <(page 351)
    try 0 man/t.5 < <(page 700)
    what="its first lines do not say what it is for"
    try 1 core/a.c "$what (/* ... */ on line 1)" <<<'int x;'
    try 1 Makefile "$what (# ... in lines 1 to 4)" <<<'all:'
    try 1 core/a.sh "$what (# ... in lines 1 to 4)" <<<$'#!/bin/sh\necho'
    try 1 core/a.py "$what (\"\"\"...\"\"\" in lines 1 to 3)" <<<'print()'
    try 0 core/a.h <<<$'/* It. */\n\n/* Does it. */\nint f(void);'
    try 0 core/a.h <<<$'/* It; f() does it. */\n\nint f(void);'
    try 1 core/a.h "f() has no comment" <<<$'/* It. */\n\nint f(void);'
    mkdir -p test/fuzz/x.seeds
    try 0 test/fuzz/x.seeds/a < <(head -c 4096 /dev/zero)
    mkdir -p test/fuzz/x.seeds
    try 1 test/fuzz/x.seeds/a "has 4097 bytes (at most 4096)" < <(head -c 4097 /dev/zero)
    mkdir -p test/fuzz/x.seeds
    seq 65 | split -l 1 - test/fuzz/x.seeds/
    git add -A
    run -1 sh "$ROOT/scripts/rules.sh"
    [ "$output" = "rules: test/fuzz/x.seeds: has 65 seeds (at most 64)" ]
    git rm -qrf test
    printf '/* It. */\n' >core/a.c
    git add -A
    run -1 sh "$ROOT/scripts/rules.sh"
    [ "$output" = "rules: core/a.c: has no $licence in lines 1 and 2" ]
    printf '/* It. */\n/* TO%s: more */\n' DO >core/a.c
    run -1 sh "$ROOT/scripts/rules.sh"
    [[ $output == *"rules: a note to oneself"* ]]
    printf '/* %s */\n/* It. */\n/* no qsort_r() */\n' "$licence" >core/a.c
    git add -A
    run -0 sh "$ROOT/scripts/rules.sh"
    printf '/* %s */\n/* It. */\n#include <linux/futex.h>\n' "$licence" >core/a.c
    run -1 sh "$ROOT/scripts/rules.sh"
    [[ $output == "core/a.c:3:"*"rules: not every system has that: core/compat.h" ]]
}

@test "headers.sh: one for a directory, and a name that is defined twice, are found" {
    need_commands git
    git init -q tree && cd tree
    mkdir -p core cmd/t test
    headers() { # headers STATUS SAYS
        git add -A
        run "-$1" sh "$ROOT/scripts/headers.sh"
        [ "$output" = "${2:+headers: $2}" ]
    }
    declarations() { seq -f 'struct a *f%.0f(int x,' "$1" | sed 's/$/\n                int y);/'; }
    { declarations 25 && printf 'static inline int\ng(int x)\n{\n    return f1(x, h(1)) != 0;\n}\n'; } >core/a.h
    headers 0
    declarations 26 >core/a.h
    headers 1 "core/a.h: declares 26 functions (at most 25)"
    printf 'struct a {\n    enum b { B } b;\n};\nstruct c;\n' >core/a.h
    printf 'struct d {\n    struct a a;\n};\n' | tee core/a.c >core/b.c
    headers 0 # what no header has may have one name in two files
    printf 'struct a {\n    int x;\n};\n' >test/a.c
    headers 0
    printf 'static const struct a {\n    int x;\n} table[2];\n' >cmd/t/a.c
    headers 1 "a is defined more than once: cmd/t/a.c:1 core/a.h:1"
    printf 'enum b { B };\n' >cmd/t/a.c
    headers 1 "b is defined more than once: cmd/t/a.c:1 core/a.h:2"
}

@test "dead.sh: what nothing but tests refers to is found, and what could be static" {
    need_commands git nm cc
    git init -q tree && cd tree
    mkdir -p core cmd/t test b/core b/cmd/t
    printf '%s\n' 'int used(void); int idle;' '/* idle, used */' \
        'int used(void) {' 'return idle; }' >core/a.c
    echo 'int used(void); int main(void) { return used(); }' >cmd/t/main.c
    dead() { # dead STATUS
        for f in core/a cmd/t/main; do cc -c -o b/$f.o $f.c; done
        git add -A
        run "-$1" sh "$ROOT/scripts/dead.sh" b
    }
    dead 1
    [ "$output" = "dead: core/a.c: idle is public, but nothing else refers to it" ]
    echo 'idle' >test/a.c # its own file uses it, too
    dead 0
    echo 'int main(void) { return 0; }' >cmd/t/main.c
    printf '%s\n' 'int idle;' 'int used(void) { return idle; }' >core/a.c
    echo 'used' >>test/a.c # a test alone is no user
    dead 1
    [ "$output" = "dead: core/a.c: nothing but tests refers to used" ]
}

# bats test_tags=long
@test "coverage.sh: too few lines, a test that fails, lines without a reason" {
    need_commands gcc gcov gcovr
    tree coverage.sh
    mkdir -p build/cov/core
    printf '/* It. */\nint\nmain(int argc, char **argv)\n{\n    if (argc > 1)\n        return argv[1][0] == 120;\n    return 0;\n}\n' >core/a.c
    gcc --coverage -fprofile-abs-path -c -o build/cov/core/a.o core/a.c
    gcc --coverage -o bin/t build/cov/core/a.o
    : >test/uncovered
    # three lines of four: the head, the question, its end
    run -1 sh scripts/coverage.sh 70 bin/t
    [[ $output == *"core/a.c:6: not reached, and test/uncovered does not say why:"* ]]
    [ "${lines[-1]}" = "coverage: 1 blocks are not reached, 1 of them unexplained" ]
    echo 'core/a.c:main | argv | there is none' >test/uncovered
    run -0 sh scripts/coverage.sh 70 bin/t
    [ "${lines[-1]}" = "coverage: 1 blocks are not reached, 0 of them unexplained" ]
    run -1 sh scripts/coverage.sh 90 bin/t
    echo 'core/a.c:other | argv | there is none' >test/uncovered
    run -1 sh scripts/coverage.sh 70 bin/t
    echo 'core/a.c:main | argv | there is none' >test/uncovered
    stub fails <<<'exec t x'
    run -1 sh scripts/coverage.sh 70 bin/fails
    [[ $output == *"coverage: bin/fails failed"* ]]
}

@test "fuzz.sh: what a fuzzer finds is its status, and said" {
    tree fuzz.sh own-make.sh
    stub clang </dev/null
    printf 'build/fuzz/test/fuzz/%%: %%.sh\n\tmkdir -p $(@D); [ $(SAN) = fuzz ] && cp $< $@ && chmod +x $@\n' >Makefile
    printf '#!/bin/sh\necho "$*"; echo stat::number_of_executed_units: 7\n' >sound.sh
    printf '#!/bin/sh\necho "ERROR: AddressSanitizer"; exit 77\n' >broken.sh
    run -0 sh scripts/fuzz.sh sound 9
    [ "${lines[-1]}" = "stat::number_of_executed_units: 7" ]
    grep -q -- "-max_total_time=9 .* build/fuzz/sound.corpus test/fuzz/sound.seeds$" build/fuzz/sound.log
    run -77 sh scripts/fuzz.sh broken 9
    [[ $output == *"ERROR: AddressSanitizer"* ]]
    # not the one of yesterday
    printf 'build/fuzz/test/fuzz/sound: all\nall:; false\n' >Makefile
    run -2 sh scripts/fuzz.sh sound 9
}

# A tool that replaces out/x, with one fault: what it does where a call fails.
WRITER='#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const char *is = argv[argc - 1], *p = "whole";
    const char *to = strcmp(is, "part") ? "out/.x.tmp.1" : "out/x";
    int fd, rc = 0;
    for (int sig = 1; sig < 16; sig++)
        signal(sig, SIG_IGN);
    fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int n = fd < 0 ? 0 : 5; n && rc >= 0; n -= rc, p += rc) {
        rc = (int)write(fd, p, (size_t)n);
        if (rc < 0 && errno == EINTR && strcmp(is, "eintr"))
            rc = 0;
    }
    if (fd >= 0 && rc >= 0 && (close(fd) == 0 || errno == EINTR) && puts("done") >= 0 &&
        fflush(stdout) == 0 && (!strcmp(to, "out/x") || rename(to, "out/x") == 0))
        return 0;
    if (!strcmp(is, "crash"))
        signal(SIGABRT, SIG_DFL), abort();
    if (!strcmp(is, "hang"))
        pause();
    if (strcmp(is, "stays"))
        unlink(to);
    for (int n = !strcmp(is, "silent") ? 0 : !strcmp(is, "twice") ? 2 : 1; n > 0; n--)
        fprintf(stderr, !strcmp(is, "nobody") ? "it failed\n" : "w: it failed\n");
    return !strcmp(is, "one") ? 1 : strcmp(is, "success") ? 74 : 0;
}'

# judged SCRIPT HOW WHAT: of a writer with the fault HOW the script says WHAT.
judged() {
    local said=0
    printf 'w | echo old >out/x | | w %s\n' "$2" >case
    run sh "scripts/$1"
    if [ -z "$3" ]; then
        [ "$status" = 0 ] && [[ ${lines[-1]} == *": "[1-9]*" 0 bad" ]] || said=1
    else
        [ "$status" = 1 ] && [[ $output == *"$3"* && ${lines[-1]} == *", "[1-9]*" bad" ]] || said=1
    fi
    [ $said = 0 ] || echo "$2: $status: $output"
    return $said
}

# writer_tree SCRIPT: a tree with that writer, and a table of it alone.
writer_tree() {
    [ -e "$BUILD/test/fault/shim.so" ] || skip "no shim in this build"
    need_commands cc
    tree "$1"
    mkdir test/fault
    echo "$WRITER" | cc -x c -o bin/w -
    cat >test/fault/cases.sh <<'END'
new_dir() { mktemp -d; }
make_cases() { mkdir "$1"; }
cases() { cat case; }
END
}

# bats test_tags=long
@test "faults.sh: a crash, a hang, no line, no status, half an output are found" {
    writer_tree faults.sh
    mkdir -p b/test/fault
    limit() { # limit SECONDS: of a run, instead of 60
        sed "s/define LIMIT_S *60/define LIMIT_S $1/" "$ROOT/test/fault/run.c" >b/run.c
        cc -D_GNU_SOURCE -I"$ROOT" -o b/test/fault/run b/run.c "$ROOT/test/fault/tree.c"
    }
    cp "$BUILD/test/fault/shim.so" b/test/fault
    export BUILD=$PWD/b
    limit 1
    judged faults.sh hang "did not end in 1 s"
    limit 60
    judged faults.sh good ""
    judged faults.sh crash "status 134: not a status for that"
    judged faults.sh one "status 1: not a status for that"
    judged faults.sh silent "0 lines, not one"
    judged faults.sh twice "2 lines, not one"
    judged faults.sh nobody "not \"tool: what\""
    judged faults.sh success "success, but other words"
    judged faults.sh part "x is neither the old nor the new"
    judged faults.sh stays ".x.tmp.1 stays"
    judged faults.sh eintr "should not have been noticed"
    # a tool that cannot be tried is no success, nor is nothing
    printf '%s | | | %s good\n' v nonesuch w w >case
    run -1 sh scripts/faults.sh -n 1
    : >case
    run -1 sh scripts/faults.sh
    [ "${lines[-1]}" = "faults: 0 injected, 0 bad" ]
}

# bats test_tags=long
@test "limits.sh: a crash, a hang, no line, no status, half an output are found" {
    writer_tree limits.sh
    export CONDITIONS=streams
    sed 's/^LIMIT_S = 60/LIMIT_S = 1/' "$ROOT/test/fault/limits.py" >test/fault/limits.py
    judged limits.sh hang "did not end in 1 s"
    cp "$ROOT/test/fault/limits.py" test/fault
    judged limits.sh good ""
    judged limits.sh crash "status 134: not a status for that"
    judged limits.sh one "status 1: not a status for that"
    judged limits.sh silent '0 lines, not one "tool: what"'
    judged limits.sh twice '2 lines, not one "tool: what"'
    judged limits.sh nobody '1 lines, not one "tool: what"'
    judged limits.sh success "success, but not the output"
    judged limits.sh part "x is neither the old nor the new"
    judged limits.sh stays ".x.tmp.1 is neither the old nor the new"
    CONDITIONS=nonesuch run -1 sh scripts/limits.sh
}

# kills_tree FLAGS: kills.sh beside one writer, w.
kills_tree() {
    tree kills.sh
    cat >test/writers.bash <<END
make_inputs() { :; }
prepare() { rm -rf out; mkdir out; }
stdin_for() { :; }
WRITERS="w $1 w out/x"
END
}

# judge STATUS OPTION SAYS: what kills.sh says of w, standard input.
judge() {
    stub w
    # shellcheck disable=SC2086 # none, or one
    run "-$1" bash scripts/kills.sh $2
    # shellcheck disable=SC2053
    [[ ${lines[-1]} == $3 ]]
}

# bats test_tags=long
@test "kills.sh: half an output, a temporary left for good, another output are found" {
    not_sanitized "they slow what is killed at a moment"
    kills_tree -
    judge 0 "" '1 writers, * before the end: all sound' <<'END'
rm -f out/.x.*; printf half >out/.x.$$; sleep 0.1; printf half >>out/.x.$$; mv out/.x.$$ out/x
END
    judge 1 "" '*out/x is broken' <<'END'
printf half >out/x; sleep 0.1; printf half >>out/x
END
    judge 1 "" '*Only in out: .x.*' <<'END'
printf half >out/.x.$$; sleep 0.1; mv out/.x.$$ out/x
END
    judge 1 "" '*then status 9: ' <<'END'
[ ! -e out/.x ] || exit 9
printf half >out/.x; sleep 0.1; mv out/.x out/x
END
    run -1 bash scripts/kills.sh nonesuch
    [[ $output == *"nonesuch: no such writer"* ]]
}

# bats test_tags=long
@test "kills.sh -p: bytes, a name, an old file that a power cut may take are found" {
    [ -e "$BUILD/test/fault/power.so" ] || skip "no shim in this build"
    kills_tree f
    mkdir test/fault
    cp "$ROOT/test/fault/power.py" test/fault
    judge 0 -p '1 writers, * things that a power cut may leave: all sound' <<'END'
rm -f out/.x.*; echo whole >out/.x.1; sync out/.x.1; mv out/.x.1 out/x; sync out
END
    judge 1 -p '*out/x is broken' <<'END'
echo whole >out/.x.1; mv out/.x.1 out/x; sync out
END
    judge 1 -p '*power cut at "end" *: Only in want/w: x' <<'END'
echo whole >out/.x.1; sync out/.x.1; mv out/.x.1 out/x
END
    judge 1 -p '*: x is lost' <<'END'
rm -f out/x out/.x.*; echo whole >out/.x.1; sync out/.x.1; mv out/.x.1 out/x; sync out
END
    judge 1 -p '*nothing was recorded' <<<:
}

# inner_bats: scripts of sh find the bats that users type; its own, before that
# in PATH, wants functions that do not come through them.
inner_bats() {
    stub bats <<END
PATH=\$(echo "\$PATH" | tr ':' '\\n' | grep -vxF -e '$BATS_LIBEXEC' -e '$PWD/bin' | paste -sd:)
exec bats "\$@"
END
}

# cross_tree: what check-cross.sh needs, of one tool and an emulator that is none.
cross_tree() {
    tree check-cross.sh own-make.sh
    inner_bats
    stub uname <<<'echo x86_64'
    stub qemu-x86_64 <<<'shift 2; exec "$@"'
    stub t <<<'echo "$0"'
    mkdir -p build/test/unit
    mv bin/t build
    printf 'all build/test/unit/a:;\n' >Makefile
    : >cmd/t/main.c
    : >test/unit/a.c
    mv bin/uname bin/qemu-x86_64 build
    PATH=$PWD/build:$PATH
}

# bats test_tags=long
@test "check-cross.sh: a unit that fails, a test that fails, one that is killed" {
    cross_tree
    unit() { # unit STATUS SAYS: of the script on standard input
        { echo '#!/bin/sh' && cat; } >build/test/unit/a
        chmod +x build/test/unit/a
        PART=unit run "-$1" sh scripts/check-cross.sh nehalem
        [[ ${lines[-1]} == "nehalem: unit: $2 skipped, "* ]]
    }
    unit 0 "1 passed, 0 failed, 0" <<<'echo ok 1 - a'
    unit 1 "1 passed, 1 failed, 0" <<<'echo ok 1 - a; echo not ok 2 - b'
    unit 1 "1 passed, 1 failed, 0" <<<'echo ok 1 - a; exit 1'
    unit 1 "1 passed, 1 failed, 0" <<<'echo ok 1 - a; kill -SEGV $$'
    unit 1 "0 passed, 0 failed, 0" </dev/null
    unit 0 "1 passed, 0 failed, 1" <<<'echo "ok 1 - a"; echo "ok 2 # SKIP"'
    same() { # same STATUS LINE: of a file with this as its second test
        printf '@test "a" { t; }\n@test "b" { %s; }\n' "$2" >test/same/a.bats
        PART=same run "-$1" sh scripts/check-cross.sh nehalem
    }
    same 0 true
    [[ ${lines[-1]} == "nehalem: same: 2 passed, 0 failed, 0 skipped, "* ]]
    same 1 false
    [[ ${lines[0]} == "nehalem: not ok 2 b"* ]]
    same 1 'kill -9 $PPID $$'
    run -2 sh scripts/check-cross.sh vax
    PART=all run -2 sh scripts/check-cross.sh nehalem
    # the same commands, but no emulator
    mkdir links
    for dir in ${PATH//:/ }; do
        [[ $dir == "$PWD"/* ]] || find "$dir/" -maxdepth 1 ! -type d ! -name 'qemu-*' -exec ln -s -t links {} + 2>/dev/null || :
    done
    rm build/qemu-x86_64
    PATH=$PWD/build:$PWD/links
    run -0 timeout 60 sh scripts/check-cross.sh nehalem
    [[ $output == "nehalem: SKIP, install "* ]]
}

@test "check-compilers.sh: a warning, other bits, a build that fails" {
    tree check-compilers.sh own-make.sh
    inner_bats
    compiled() { # compiled STATUS "WHAT MAKE DOES" TEST
        printf '@test "a" { [ "$BITS" = same ]; %s; }\n' "$3" >test/same/a.bats
        printf 'all:\n\t@%s\n' "$2" >Makefile
        run "-$1" sh scripts/check-compilers.sh O0
    }
    compiled 0 'case "$(CFLAGS)" in -O0*|"") ;; *) exit 1; esac' true
    [ "$output" = "O0: 1 passed, 0 failed" ]
    compiled 1 '[ ! "$(CFLAGS)" ] || echo "a.c: warning" >&2' true
    [[ $output == "O0: does not build without a word: see "* ]]
    compiled 1 '[ ! "$(CFLAGS)" ]' true
    compiled 1 true false
    [[ ${lines[0]} == "O0: other bits: see "* ]]
    run -2 sh scripts/check-compilers.sh O9
}

# bats test_tags=long
@test "check-isa.sh: an instruction set that fails, the best left out, one that is none" {
    tree check-isa.sh check.sh
    mkdir core/kernel
    cp "$ROOT/core/kernel/isa.def" core/kernel
    inner_bats
    # a machine whose best is avx2
    stub lut-apply <<<'case $TU_ISA in scalar | avx2) exit 66 ;; *) exit 2 ;; esac'
    mkdir units
    printf '#!/bin/sh\necho "ok 1 - u by $TU_ISA"\n' >units/u
    chmod +x units/u
    printf '# tests\nyes a.bats\nno b.bats\neach c.bats\nyes unit/u\nno unit/v\nyes unit/left-out\n' >test/computes
    echo '@test "b" { false; }' | tee test/c.bats >test/b.bats
    isas() { # isas STATUS TEST: of a.bats with this in it
        printf '@test "a" { %s; }\n' "$2" >test/a.bats
        run "-$1" sh scripts/check-isa.sh units
    }
    isas 0 'echo "$TU_ISA" >>seen'
    [ "$(cat seen)" = "$(printf 'scalar\navx2')" ]
    [ "${lines[-1]}" = "scalar: 2 passed, 0 failed, 0 skipped; avx2: 2 passed, 0 failed, 0 skipped" ]
    isas 1 '[ "$TU_ISA" = avx2 ]'
    [ "${lines[-2]}" = "scalar: not ok 1 a" ]
    [ "${lines[-1]}" = "scalar: 1 passed, 1 failed, 0 skipped; avx2: 2 passed, 0 failed, 0 skipped" ]
    ISA="avx2 avx512" isas 0 '[ "$TU_ISA" = avx2 ]'
    [ "${lines[-1]}" = "avx2: 2 passed, 0 failed, 0 skipped; avx512: not here" ]
    ISA="scalar avx2" BEST=no isas 0 '[ "$TU_ISA" = scalar ]'
    [ "${lines[-1]}" = "scalar: 2 passed, 0 failed, 0 skipped; avx2: the best here, see make check" ]
    ISA=sse9 isas 2 true
}

@test "test/computes: says of each test whether an instruction set can change it" {
    cd "$ROOT"
    ls test/*.bats test/unit/*.c | sed 's|^test/||; s|\.c$||' | sort >"$BATS_TEST_TMPDIR/tests"
    sed -nE 's/^(yes|each|no) //p' test/computes | sort | diff "$BATS_TEST_TMPDIR/tests" - || {
        echo 'test/computes: "<" has no line, ">" is no test or has two'
        false
    }
    run ! grep -vE '^(#|(yes|each|no) [a-z])' test/computes
}

@test "test/README: as many commands, writers and fuzzers as there are" {
    cd "$ROOT"
    report=$(tr -s ' \n' ' ' <test/README)
    says() { [[ $report == *"$1"* ]] || { echo "test/README does not say: $1" && false; }; }
    says ", in $(sh -c ". test/fault/cases.sh; cases '*'" | wc -l) commands of all tools,"
    says " kills of $(. test/writers.bash && wc -l <<<"$WRITERS") writers,"
    says "fuzz: $(ls test/fuzz/*.c | wc -l) fuzzers,"
}

@test "make check T=TOOL: its tests and page alone; no tool of that name is an error; T of the environment is not it" {
    unset MAKEFLAGS MAKELEVEL SAN BATS
    run -0 make -s -n -C "$ROOT" check T=saev-write
    [[ ${lines[-1]} == *" test/saev-write.bats "*" man/saev-write.1" ]]
    [[ ${lines[-1]} == */fuzz/saev-write-input\ * ]]
    [[ ${lines[-1]} != *saev-read* ]]
    run -2 make -s -n -C "$ROOT" check T=saev
    [[ $output == *"T=saev is none of "*saev-read* ]]
    T=saev-write run -0 make -s -n -C "$ROOT" check
    [[ ${lines[-1]} == *" test/saev-read.bats "* ]]
}

# bats test_tags=long
@test "test/warm: what its Python does, prints and ends with is what Python's does" {
    [ -x "$BUILD/test/warm/python" ] || skip "make check builds it"
    real=${WARM_PYTHON:-$PYTHON}
    "$real" "$ROOT/test/warm/server.py" "$PWD/socket" >/dev/null 2>&1 3>&- &
    server=$!
    until [ -S socket ]; do kill -0 $server; sleep 0.05; done
    cat >script.py <<'END'
import atexit, os, resource, signal, subprocess, sys
atexit.register(print, "at exit")
print(sys.argv, __name__, __file__, os.path.relpath(sys.path[0]), os.getcwd(), oct(os.umask(0)))
print(os.environ["OF_US"], resource.getrlimit(resource.RLIMIT_NOFILE)[0], repr(sys.stdin.read()))
left_open = open("left", "w")
left_open.write("\udcff" if len(sys.argv) > 3 else "text")
both = open("both", "w+b")
both.write(b"both")
print("\udcff\u00e9", file=sys.stderr, flush=True)
subprocess.run("echo $OF_US; pwd", shell=True)
what = sys.argv[1]
if what == "signal":
    os.kill(os.getpid(), signal.SIGUSR1)
if what == "raise":
    {}["no"]
sys.exit({"number": 258, "text": "a text", "none": None}[what])
END
    how() {
        local python=$1
        shift
        rm -f left both
        (umask 027 && ulimit -Sn 40 && OF_US='a  b' "$python" script.py "$@" <<<"in put" 2>&1) || echo "status $?"
        echo "left: $(cat left both)"
        PYTHONPATH=$ROOT/test/ref "$python" - "$@" <<<'import near, sys; print(near.__name__, sys.argv, sys.path[0]); 1 / 0' 2>&1 || echo "status $?"
        "$python" -c 'import sys; print(sys.argv); assert 0' "$@" 2>&1 || echo "status $?"
        "$python" none.py 2>/dev/null || echo "status $?"
    }
    alike() {
        how "$real" "$@" >want
        WARM_PYTHON=false WARM_SERVER=$PWD/socket how "$BUILD/test/warm/python" "$@" >got
        diff want got
    }
    for what in number text none raise signal 'raise and more'; do
        [ "$what" != text ] || unset PYTHONUNBUFFERED
        # shellcheck disable=SC2086
        alike $what
    done
    WARM_PYTHON=$real WARM_SERVER=$PWD/none how "$BUILD/test/warm/python" number >got
    how "$real" number | diff - got
    # who kills it kills the script
    WARM_SERVER=$PWD/socket "$BUILD/test/warm/python" -c 'import time
open("began", "w")
time.sleep(60)' 3>&- &
    until [ -e began ]; do kill -0 $!; sleep 0.05; done
    pgrep -P $server
    kill $!
    wait $! || [ $? -eq 143 ]
    for _ in $(seq 400); do pgrep -P $server >/dev/null || break; sleep 0.05; done
    run -1 pgrep -P $server
    # a script that imports torch has a server of its own, which ends with that
    [ ! -e socket.torch ]
    echo '# import torch' >>script.py
    alike number
    alike signal
    [ -S socket.torch ]
    kill $server
    for _ in $(seq 400); do pgrep -f "$PWD/socket" >/dev/null || break; sleep 0.05; done
    run -1 pgrep -f "$PWD/socket"
}
