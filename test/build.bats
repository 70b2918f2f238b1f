# SPDX-License-Identifier: ISC
# What make does: deps, the layer check, tools left out, another make's words.
load helpers

# commands NAME...: they are in bin/, and do nothing but succeed.
commands() {
    mkdir -p bin
    for c; do
        printf '#!/bin/sh\n' >"bin/$c"
        chmod +x "bin/$c"
    done
}

@test "deps: says nothing and installs nothing when nothing is missing" {
    commands apt-get cc bats mandoc shellcheck clang-format python3
    echo "touch '$PWD/called'" >>bin/apt-get
    CC=cc PATH="$PWD/bin:$PATH" run -0 sh "$ROOT/scripts/deps.sh" deps-check
    [ -z "$output" ]
    [ ! -e called ]
}

@test "deps: the build needs none of the tests' commands, which deps-check and make check name" {
    commands cc make
    ln -s "$(command -v id)" "$(command -v cat)" bin
    sh=$(command -v sh)
    CC=cc PATH=$PWD/bin run -0 "$sh" "$ROOT/scripts/deps.sh"
    [ -z "$output" ]
    CC=cc PATH=$PWD/bin run -1 "$sh" "$ROOT/scripts/deps.sh" deps-check
    [[ ${lines[0]} == "deps: missing: bats mandoc "*"shellcheck clang-format; one of these installs it:" ]]
    PATH=$PWD/bin PYTHON=no run -1 "$sh" "$ROOT/scripts/check.sh" test/a.bats
    [ "$output" = "check: the tests need bats numpy: make deps-check installs it, or says how" ]
}

@test "deps: without root names what is missing, one line per installer, fails" {
    cp "$ROOT/scripts/deps.sh" .
    chmod 755 . && chmod 644 deps.sh
    run -1 --separate-stderr as_user env CC=/nonexistent sh deps.sh
    [ -z "$output" ]
    [[ ${stderr_lines[0]} == "deps: missing: gcc jansson xxhash "* ]]
    for how in 'sudo apt-get install ' 'sudo dnf install ' 'conda install ' \
        'spack install '; do
        [ "$(grep -c "^  $how" <<<"$stderr")" -eq 1 ]
    done
    [[ $stderr != *bats* ]]
    run -1 --separate-stderr as_user env CC=/nonexistent sh deps.sh deps-check
    [ "$(grep -c '^  .* bats' <<<"$stderr")" -eq 4 ]
}

@test "make: the directory's name, whatever characters it has, is not run" {
    unset MAKEFLAGS MAKELEVEL SAN
    commands bats
    echo 'printf "%s\n" "$BUILD" "${PATH%%:*}"' >>bin/bats
    PATH=$PWD/bin:$PATH
    odd="a b;touch PWNED;\$(touch PWNED)\`touch PWNED\`'\"\$x&|<>(){}\\"
    mkdir -p "$odd/core/kernel" "$odd/scripts" "$odd/test"
    cd "$odd"
    cp "$ROOT/Makefile" .
    cp "$ROOT"/test/*.mk test
    cp "$ROOT"/core/err.[ch] core
    cp "$ROOT"/core/kernel/isa.def core/kernel
    cp "$ROOT"/scripts/{isa,libs}.sh scripts
    make -s build/core/err.o
    [ "$(grep -acF 'touch PWNED' build/core/err.o)" = 0 ]
    run -0 make -s check-slurm
    [ "$output" = "$PWD/build
$PWD/build" ]
    [ -z "$(find .. -name PWNED)" ]
}

@test "make: a build takes all CPUs unless -j or MAKEFLAGS says how many; other goals do not" {
    unset MAKEFLAGS MAKELEVEL SAN
    # the lines of the Makefile, and what they make of a command line
    sed -n '/^# A build takes all CPUs/,/^endif/p' "$ROOT/Makefile" >Makefile
    [ "$(wc -l <Makefile)" = 4 ]
    printf 'all lib check: ; @echo "$(filter -j%%,$(MAKEFLAGS))"\n' >>Makefile
    for goals in '' all 'all lib'; do
        # shellcheck disable=SC2086 # words
        [ "$(make -s $goals | head -n 1)" = "-j$(nproc)" ]
    done
    [ "$(make -s -j7)" = -j7 ]
    [ "$(MAKEFLAGS=-j7 make -s)" = -j7 ]
    [ "$(make -s -j1)" = -j1 ]
    [ -z "$(make -s check)" ]
    [ -z "$(make -s all check | head -n 1)" ]
}

# bats test_tags=long
@test "layers: each wrong include is found, and a print in core, a file, thread or regex made elsewhere" {
    need_commands git
    git init -q tree && cd tree
    mkdir -p core/{format,kernel,model,text,image} cmd/a cmd/b lib
    try() { # try FILE LINE: alone in the tree, it must be refused
        printf '%s\n' "$2" >"$1"
        git add -A
        run ! sh "$ROOT/scripts/layers.sh"
        git rm -qf "$1"
        mkdir -p core/{format,kernel,model,text,image} cmd/a cmd/b lib
    }
    printf '#include "core/err.h"\n' >cmd/a/main.c
    git add -A
    run -0 sh "$ROOT/scripts/layers.sh"
    try core/x.c '#include "core/format/st.h"'
    try core/x.c '#include "core/kernel/vec.h"'
    try core/x.c '#include "cmd/a/a.h"'
    try core/format/x.c '#include "core/kernel/vec.h"'
    try core/kernel/x.c '#include "core/format/st.h"'
    try core/kernel/x.c '#include "core/model/config.h"'
    try core/format/x.c '#include "core/text/tok.h"'
    try core/model/x.c '#include "core/text/tok.h"'
    try core/text/x.c '#include "core/model/config.h"'
    try core/model/x.c '#include "core/image/picture.h"'
    try core/image/x.c '#include "core/text/tok.h"'
    try cmd/a/x.c '#include <png.h>'
    try cmd/a/x.c '#include <utf8proc.h>'
    try core/format/x.c '#include "core/tool.h"'
    try core/x.c '    printf("x");'
    try lib/x.c '    printf("x");'
    try lib/x.c '#include "core/tool.h"'
    try lib/x.c '#include "cmd/a/a.h"'
    try cmd/a/x.c '#include "lib/lib.h"'
    try core/x.c '#include "lib/lib.h"'
    try lib/x.c '    pthread_create(&thread, NULL, run, NULL);'
    try core/x.c '    exit(1);'
    try cmd/b/x.c '#include "cmd/a/a.h"'
    try core/x.c '#include "x.h"'
    try cmd/a/x.c '    fd = open(path, O_WRONLY | O_CREAT, 0666);'
    try core/format/x.c '    f = fopen(path, "w");'
    try core/x.c '    fd = mkstemp(name);'
    try cmd/b/x.c '    pthread_create(&thread, NULL, run, NULL);'
    try cmd/b/x.c '#include <pcre2.h>'
    try core/format/x.c '#include <pcre2.h>'
    try cmd/b/x.c '#include <mpi.h>'
}

# hiding HEADER...: the compiler ./cc does not find these.
hiding() {
    mkdir -p hidden
    for h; do
        echo "#error no $h" >"hidden/$h"
    done
    printf '#!/bin/sh\nexec cc -isystem "%s" "$@"\n' "$PWD/hidden" >cc
    chmod +x cc
}

@test "make: a tool whose library is not there is left out, with a line; others are built" {
    hiding pcre2.h zlib.h png.h
    make -n -C "$ROOT" B="$PWD/b" CC="$PWD/cc" all >said
    grep -qx "echo 'left out: hf-infer kvc-convert lut-precompute moe-sft sae-look sae-train (no pcre2 zlib libpng here: see make deps)' >&2" said
    for t in lut-apply saev-read saev-write st-inspect; do
        grep -q -- "-o $PWD/b/$t " said
    done
    run -1 grep -E -- "-o [^ ]*/(hf-infer|kvc-convert|lut-precompute|moe-sft|sae-look|sae-train|peft|regex|zip) " said
    run -1 grep -E -- "-l(pcre2|z|png|jpeg)|core/(regex|format/zip|image/[a-z]*)\\.c" said
    # and they come when it does
    rm -r hidden
    run -0 make -n -C "$ROOT" B="$PWD/b" CC="$PWD/cc" all
    grep -q -- "-o $PWD/b/hf-infer " <<<"$output"
    [[ $output != *"left out"* ]]
}

@test "make: without libedit, and for other nodes, lines are read without it" {
    hiding histedit.h
    run -0 make -n -C "$ROOT" B="$PWD/b" CC="$PWD/cc" all
    [[ $output == *" -o $PWD/b/hf-infer "* && $output != *edit* && $output != *LIBEDIT* && $output != *"left out"* ]]
    rm -r hidden
    run -0 make -n -C "$ROOT" B="$PWD/b" CC="$PWD/cc" all
    [ "$(grep -c LIBEDIT <<<"$output")" = 1 ]
    grep -e ' -DLIBEDIT .*-c cmd/hf-infer/lines.c ' <<<"$output"
    grep -e " -o $PWD/b/hf-infer .* $PWD/b/cmd/hf-infer/lines.o .* -ledit" <<<"$output"
    run -0 make -n -C "$ROOT" B="$PWD/b" CC="$PWD/cc" STATIC=half all
    [[ $output != *LIBEDIT* && $output != *-ledit* ]]
    grep -e " -o $PWD/b/half/hf-infer .* $PWD/b/half/cmd/hf-infer/lines.o " <<<"$output"
}

@test "make MPI=1: without one, a line names the packages; and no other make knows of MPI" {
    commands pkg-config mpicc
    run -2 env PATH="$PWD/bin:$PATH" make -s -C "$ROOT" B="$PWD/b" MPI=1
    [[ $output == *"MPI=1 needs Open MPI or MPICH, and finds neither by mpicc nor by pkg-config: on Debian, apt-get install libopenmpi-dev openmpi-bin; "* ]]
    [ "$(wc -l <<<"$output")" = 1 ]
    MPI=1 MPI_LIBS=-lwrong run -0 make -n -C "$ROOT" B="$PWD/b" all
    [[ $output == *" -o $PWD/b/moe-sft "* && $output != *ranks_mpi* && $output != *wrong* ]]
    # an mpicc that says what a known one does
    printf '#!/bin/sh\ncase $1 in -compile_info) echo gcc -I/m/include ;; -link_info) echo gcc -L/m/lib -lmpich ;; *) exit 1 ;; esac\n' >bin/mpicc
    PATH=$PWD/bin:$PATH run -0 make -n -C "$ROOT" B="$PWD/b" MPI=1
    [[ $output == *" -isystem /m/include "*" -c core/model/train/ranks_mpi.c "* ]]
    [[ $output == *" -o $PWD/b/mpi/moe-sft "*/ranks_mpi.o\ *libmodel.a*" -L/m/lib -lmpich"* ]]
    [[ $output != *" -o $PWD/b/hf-infer "* ]]
}

@test "make: without a library that every tool needs, one line says so" {
    hiding jansson.h
    run -2 --separate-stderr make -s -C "$ROOT" B="$PWD/b" CC="$PWD/cc" all
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "every tool needs jansson: see make deps" ]
    [[ ${stderr_lines[1]} == make* && ${#stderr_lines[@]} == 2 ]]
}

# bats test_tags=long
@test "make check: tests of a tool that is left out are skipped, each with a line" {
    hiding utf8proc.h
    run -0 make -n -C "$ROOT" B="$PWD/b" CC="$PWD/cc" check
    [[ $output == *" LEFT_OUT='hf-infer moe-sft sae-look' "* && $output != *"unit/hf-infer-"* && $output != *"fuzz/hf-infer-"* ]]
    mkdir man test scripts
    cp "$ROOT/test/helpers.bash" "$ROOT/test/typed.sh" test
    cp "$ROOT/scripts/own-make.sh" scripts
    {
        printf 'load helpers\n@test "st-inspect: works" { true; }\n@test "x: in its commands" { hf-infer; }\n'
        printf '@test "hf-infer: in its name" { false; }\n@test "of all" { every_tool; false; }\n'
        printf '@test "a page" { examples page.1; false; }\n'
    } | tee test/x.bats test/hf-infer-x.bats | sed 's/^load.*/&\nNEEDS=hf-infer/' >test/y.bats
    printf '.Sh EXAMPLES\n.Bd -literal\nhf-infer\n.Ed\n.Sh DIAGNOSTICS\n' >man/page.1
    LEFT_OUT=hf-infer run -0 bats --tap test/*.bats
    # every test of two files, all but one of the third
    [ "$(grep -c '^ok .* # skip hf-infer.* left out' <<<"$output")" -eq 14 ]
    grep -qx 'ok [0-9]* st-inspect: works' <<<"$output"
    LEFT_OUT=moe-sft run -1 bats --tap test/hf-infer-x.bats
    [ "$(grep -c '^not ok' <<<"$output")" -eq 3 ]
}

@test "deps: what \$CPPFLAGS and \$LDFLAGS find is not missing" {
    every_tool
    hiding jansson.h
    commands apt-get bats mandoc shellcheck clang-format python3 # root has the first
    mkdir include
    : >include/jansson.h
    missing() { # missing NAMES CPPFLAGS LDFLAGS
        CC=$PWD/cc CPPFLAGS=$2 LDFLAGS=$3 PATH="$PWD/bin:$PATH" run sh "$ROOT/scripts/deps.sh"
        [ "$(sed -n '1s/.*missing: \([^;]*\).*/\1/p' <<<"$output")" = "$1" ]
    }
    missing jansson
    missing '' "-I $PWD/include"
    missing 'jansson xxhash libcrypto pcre2 utf8proc zlib libpng libjpeg libedit' "-I $PWD/include" -nonesuch
}

@test "own-make.sh: of the make that calls it, variables alone are kept" {
    printf 'all:\n\t@. "$(ROOT)/scripts/own-make.sh"; make -f inner; echo "said $$MAKEFLAGS"\n' >Makefile
    printf 'all:\n\t@echo "flags $(MAKEFLAGS)" "x is $(X)"\n' >inner
    for j in -j2 -kj2 -s; do
        run -0 make $j X="two words" ROOT="$ROOT"
        [[ $output == *"x is two words"* && $output != *jobserver* && $output != *"flags ks"* ]]
        run -0 make $j ROOT="$ROOT" -C .
        [[ $output == *"x is "* && $output != *jobserver* ]]
    done
}

@test "make check: a line a file as it ends, then what failed, then the count" {
    mkdir scripts test bin man
    cp "$ROOT/scripts/check.sh" scripts
    printf '#!/bin/sh\necho "$*" >said\nfor f; do :; done\ncat "$f"\nexit $(grep -c "^not" "$f")\n' >bin/bats
    printf '#!/bin/sh\necho ok 1 - it\n' >bin/works
    printf '#!/bin/sh\necho ok 1 - it\necho "# twice"\necho "not ok 2 - that"\necho "# because"\nexit 1\n' >bin/fails
    printf '#!/bin/sh\necho ok 1 - it\necho why >&2\nexit 139\n' >bin/dies
    printf '#!/bin/sh\n' >bin/mandoc
    chmod +x bin/*
    printf 'ok 1 a\nok 2 b # skip no c\n' >test/a.bats
    PATH=$PWD/bin:$PATH run -0 sh scripts/check.sh bin/works test/a.bats
    # they end in any order
    [ "$(sed 's/  */ /' <<<"$output" | sed 2q | sort)" = "$(printf '%s\n' \
        'a.bats 1 passed, 1 skipped' 'bin/works 1 passed')" ]
    [ "$(sed 1,2d <<<"$output")" = "$(printf '%s\n' '' 'skipped: 1 no c' '2 passed, 0 failed, 1 skipped')" ]
    [ "$(<said)" = "--tap --filter-tags !long test/a.bats" ]
    LONG=only PATH=$PWD/bin:$PATH sh scripts/check.sh test/a.bats
    [ "$(<said)" = "--tap --filter-tags long test/a.bats" ]
    LONG=yes PATH=$PWD/bin:$PATH sh scripts/check.sh test/a.bats
    [ "$(<said)" = "--tap test/a.bats" ]
    printf '# reasons\nno [cd] # why\n' >skips
    SKIPS=skips PATH=$PWD/bin:$PATH run -0 sh scripts/check.sh test/a.bats
    printf 'no [cd] or e # why\n' >skips
    SKIPS=skips PATH=$PWD/bin:$PATH run -1 sh scripts/check.sh test/a.bats
    [ "${lines[-2]}" = 'skips does not list "no c"  <<<' ]
    printf 'not ok 1 d\n# (in d)\nok 2 e\n# of e\n' >test/b.bats
    # another of the same name
    mkdir other
    cp bin/works other/fails
    PATH=$PWD/bin:$PATH run -1 sh scripts/check.sh bin/fails bin/dies other/fails test/*.bats
    [ "$(sed 's/  */ /' <<<"$output" | sed 5q | sort)" = "$(printf '%s\n' 'a.bats 1 passed, 1 skipped' \
        'b.bats 1 passed, 1 failed  <<<' 'bin/dies 1 passed, ended with status 139  <<<' \
        'bin/fails 1 passed, 1 failed  <<<' 'other/fails 1 passed')" ]
    [ "$(sed 1,5d <<<"$output")" = "$(printf '%s\n' '' \
        'bin/fails failed' 'not ok 2 - that' '# because' '' \
        'bin/dies failed' 'why' '' \
        'test/b.bats failed' 'not ok 1 d' '# (in d)' '' 'skipped: 1 no c' \
        '5 passed, 2 failed, 1 skipped')" ]
    # a page that mandoc warns of
    printf '#!/bin/sh\necho x.1: bad\nexit 2\n' >bin/mandoc
    rm test/b.bats
    : >man/x.1
    PATH=$PWD/bin:$PATH run -1 sh scripts/check.sh test/a.bats man/x.1
    [ "${lines[-3]}" = "x.1: bad" ]
}

@test "make check: a test file whose run is killed is a failure" {
    mkdir scripts test bin
    cp "$ROOT/scripts/check.sh" scripts
    # instead of bats: $PPID is the shell that would say how it ended
    printf '#!/bin/sh\ncase $* in *test/b.bats) kill -9 $PPID ;; esac\nsleep .3\necho ok 1 a\n' >bin/bats
    printf '#!/bin/sh\n' >bin/mandoc
    chmod +x bin/bats bin/mandoc
    : >test/a.bats
    PATH=$PWD/bin:$PATH run -0 sh scripts/check.sh test/*.bats
    [ "${lines[-1]}" = "1 passed, 0 failed, 0 skipped" ]
    : >test/b.bats
    PATH=$PWD/bin:$PATH run -1 sh scripts/check.sh test/*.bats
    [[ $output == *"test/b.bats failed: it was killed"* ]]
    # the other runs to its end
    [ "$(grep -c '^a.bats  *1 passed$' <<<"$output")" -eq 1 ]
    [ "$(grep -c 'failed: ' <<<"$output")" -eq 1 ]
}

@test "isa.sh: the instruction sets that the compiler knows, by whatever awk is here" {
    cd "$ROOT"
    case $(cc -dumpmachine) in
    x86_64*) ;;
    *) skip "the flags of another machine" ;;
    esac
    want=
    while read -r name flag; do
        if echo | cc "-m$flag" -x c - -c -o /dev/null; then
            want+="ISAS += $name "
        fi
    done <<<$'avx2 avx2\navx512 avx512f\navx512vnni avx512vnni\navx512bf16 avx512bf16\namx amx-int8'
    for awk in mawk gawk original-awk "busybox awk"; do
        command -v "${awk% *}" >/dev/null || continue
        printf '#!/bin/sh\nexec %s "$@"\n' "$awk" >"$BATS_TEST_TMPDIR/awk"
        chmod +x "$BATS_TEST_TMPDIR/awk"
        CC=cc PATH="$BATS_TEST_TMPDIR:$PATH" run -0 sh scripts/isa.sh
        [ "$(grep '^ISAS' <<<"$output" | grep -v scalar | tr '\n' ' ')" = "$want" ]
        [ -z "${first-}" ] || [ "$output" = "$first" ]
        first=$output
    done
    [ -n "$first" ]
    # gawk and busybox, where they are not here: -F separates no paragraph
    run -1 grep -nE 'awk .*RS= .*-F|awk .*-F.*RS=( |$)' scripts/*.sh
}
