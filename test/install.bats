# SPDX-License-Identifier: ISC
# make install and uninstall, what --help, the pages and the completions say,
# and both shells completing.
load helpers

setup_file() {
    TOOLS=$(cd "$(dirname "$BATS_TEST_DIRNAME")" && for f in cmd/*; do basename "$f" .c; done)
    for t in ${LEFT_OUT-}; do
        TOOLS=$(grep -vx "$t" <<<"$TOOLS")
    done
    export TOOLS
}

# tree DIR: each entry with its mode, and files' contents.
tree() {
    find "$1" -printf '%P %M\n' | sort
    find "$1" -type f -exec md5sum {} + | sort
}

put() { make --no-print-directory -C "$ROOT" "$@" install; }
take() { make --no-print-directory -C "$ROOT" "$@" uninstall; }

@test "install: where DESTDIR and PREFIX say, readable whatever the umask" {
    (umask 077 && put DESTDIR="$PWD/d" PREFIX=/opt/tu)
    cd d/opt/tu
    for t in $TOOLS; do
        [ -x "bin/$t" ]
        [ -s "share/man/man1/$t.1" ]
        [ -s "share/bash-completion/completions/$t" ]
        [ -s "share/zsh/site-functions/_$t" ]
    done
    [ "$(bin/st-inspect -V)" = "$(st-inspect -V)" ]
    for m in "$ROOT"/man/*; do
        # the library is there with all tools, or not at all
        [[ $m == *.3 && ${LEFT_OUT-} ]] || [ -s "share/man/man${m##*.}/${m##*/}" ]
    done
    for s in "$ROOT"/jobs/*; do
        [ -s "share/tensorutils/${s##*/}" ]
        [ ! -x "$s" ] || [ -x "share/tensorutils/${s##*/}" ]
    done
    [ -f share/tensorutils/batch.mk ]
    [ -z "$(find ../.. ! -perm -o=r)" ]
    [ -z "$(find ../.. -type d ! -perm -o=x)" ]
    [ -z "$(find ../.. ! -type l -perm /022)" ]
}

# bats test_tags=long
@test "install: a PREFIX with spaces, quotes, a ~, or from where make runs" {
    HOME=$PWD/home put PREFIX='~/.local'
    [ -x home/.local/bin/st-inspect ]
    put PREFIX="$PWD/my \"own\" tools; it's"
    [ -x "my \"own\" tools; it's/bin/st-inspect" ]
    put DESTDIR="$PWD/stage" PREFIX=opt
    [ -x stage/opt/bin/st-inspect ]
    put DESTDIR="$PWD/stage/" PREFIX=/
    [ -x stage/bin/st-inspect ]
    run -2 put PREFIX='~nobody/.local'
    [[ $output == *"write the directory's whole name"* ]]
    # a line of the list for each name: none may have two
    run -2 put PREFIX=$'x\nf /etc/passwd'
    [[ ${lines[0]} == "install: a directory has a newline in its name" ]]
}

# bats test_tags=long
@test "install: what pkg-config says of a PREFIX with spaces and quotes is one word each" {
    need_commands pkg-config
    [ -e "$BUILD/libtensorutils.a" ] || skip "no library is built here"
    for p in p "my tools" "my \"own\" tools; it's" 'a\b #1 & *'; do
        put PREFIX="$PWD/$p" >/dev/null
        export PKG_CONFIG_PATH=$PWD/$p/lib/pkgconfig
        # as make, or eval, reads it
        eval "words=($(pkg-config --cflags --libs tensorutils))"
        [ "${words[0]}" = "-I$PWD/$p/include" ]
        [ "${words[1]}" = "-L$PWD/$p/lib" ]
        [ "${words[2]}" = -ltensorutils ]
        [ "${#words[@]}" = 3 ]
    done
}

# bats test_tags=long
@test "install: says so when the tools are not in PATH" {
    run -0 put PREFIX="$PWD/x"
    [[ $output == *"in $PWD/x/bin"*"not in PATH"* ]]
    PATH="$PWD/x/bin:$PATH" run -0 put PREFIX="$PWD/x"
    [[ $output != *PATH* ]]
}

@test "install: without the right to write there, names a PREFIX" {
    mkdir -m 555 closed
    chmod 755 .
    cp "$ROOT/scripts/install.sh" . && chmod 644 install.sh
    p=$PWD/closed/x
    run -1 --separate-stderr as_user env DESTDIR= PREFIX="$p" BINDIR="$p/bin" \
        DATADIR="$p/share" MANDIR=/m BASHDIR=/b ZSHDIR=/z sh install.sh . 0 x
    [[ $stderr == *"Permission denied"*'PREFIX=$HOME/.local'* ]]
    [ -z "$(ls closed)" ]
}

# bats test_tags=long
@test "install: twice is as good as once; uninstall takes it all, nothing else" {
    mkdir -p p/bin p/share/man/man1 p/share/empty p/share/tensorutils
    echo mine >p/bin/mine
    echo mine >p/share/man/man1/mine.1
    tree p >before
    put PREFIX="$PWD/p"
    tree p >once
    put PREFIX="$PWD/p"
    tree p >twice
    diff once twice
    take PREFIX="$PWD/p"
    tree p >after
    diff before after
    run -0 take PREFIX="$PWD/p"
    [ "$output" = "uninstall: nothing is installed in $PWD/p" ]
    put PREFIX="$PWD/new/p"
    take PREFIX="$PWD/new/p"
    [ ! -e new ]
}

# bats test_tags=long
@test "uninstall: one that cannot continue keeps its list, and continues" {
    put PREFIX="$PWD/p"
    mv p/bin/st-inspect .
    mkdir p/bin/st-inspect # which rm -f refuses
    run -2 take PREFIX="$PWD/p"
    [ -s p/share/tensorutils/installed ]
    rmdir p/bin/st-inspect
    take PREFIX="$PWD/p"
    [ ! -e p ]
}

# bats test_tags=long
@test "uninstall: a directory in which others' files have come stays with them" {
    put PREFIX="$PWD/p"
    echo mine >p/share/tensorutils/mine
    take PREFIX="$PWD/p"
    [ "$(find p -type f)" = p/share/tensorutils/mine ]
}

# bats test_tags=long
@test "install: man finds the pages beside the tools, each with the version" {
    need_commands mandoc
    put PREFIX="$PWD/p"
    version=$(st-inspect -V | sed 's/.* //')
    for m in p/share/man/man*/*; do
        mandoc -Tascii "$m" | tail -n 1 | grep -q "tensorutils $version"
        mandoc -Tlint -Wwarning "$m"
    done
    [[ $(man --version 2>&1) == "man 2."* ]] || skip "no man-db here"
    PATH="$PWD/p/bin:$PATH" run -0 env -u MANPATH man -w tensorutils
    [ "$output" = "$PWD/p/share/man/man7/tensorutils.7" ]
    MANPATH=$PWD/p/share/man man tensorutils >page
    grep -q 'small tools for' page
    man "$ROOT/man/moe-sft.1" >page
    grep -q 'moe-sft train' page
}

@test "version: Makefile, -V, NEWS and the page's foot say the same" {
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    [[ $(head -n 1 "$ROOT/NEWS") == "tensorutils $version ("*" 20"[0-9][0-9]")" ]]
    for t in $TOOLS; do
        [ "$($t -V)" = "$t (tensorutils) $version" ]
        [ "$($t --version)" = "$t (tensorutils) $version" ]
    done
}

# bats test_tags=long
@test "STATIC=half: of libraries, only libc's are left to the node" {
    not_sanitized
    for l in jansson xxhash crypto pcre2-8 utf8proc png jpeg z; do
        [ -e "$(${CC:-cc} -print-file-name=lib$l.a)" ] || skip "no lib$l.a here"
    done
    run -0 make --no-print-directory -C "$ROOT" STATIC=half install PREFIX="$PWD/p"
    for t in $TOOLS; do
        LC_ALL=C readelf -d "p/bin/$t" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >needed
        grep -q '^libc\.' needed
        run ! grep -vE '^(libc|libm|libpthread|libdl|ld-linux.*)\.so' needed
    done
    [ "$(p/bin/st-inspect hash "$DEMO")" = "$(st-inspect hash "$DEMO")" ]
    p/bin/hf-infer "$DEMO" -p '1+1=' --greedy -n 8 >half
    hf-infer "$DEMO" -p '1+1=' --greedy -n 8 | cmp - half
    run ! make --no-print-directory -C "$ROOT" STATIC=full all
}

@test "deps: what it installs is found by the same make, and by the next" {
    cc=$(command -v "${CC:-cc}")
    mkdir -p scripts core/kernel
    cp "$ROOT/Makefile" . && cp "$ROOT/scripts/isa.sh" scripts
    cp "$ROOT/core/kernel/isa.def" core/kernel
    printf '#!/bin/sh\n[ -e installed ] || exit 1\nexec "%s" "$@"\n' "$cc" >cc
    printf 'isas:\n\t@echo "isas $(ISAS)"\n' >more.mk
    printf 'echo deps: no\nexit 1\n' >scripts/deps.sh
    chmod +x cc
    isas() { env -u MAKEFLAGS -u MAKELEVEL make -f Makefile -f more.mk CC="$PWD/cc" B=b "$@"; }
    run isas isas
    [ ! -e b/isa.mk ]
    run -2 isas deps isas
    [ "$(grep -c '^deps: no$' <<<"$output")" -eq 1 ]
    [[ $output != *isas\ * ]]
    echo 'sleep 1; touch installed' >scripts/deps.sh
    run -0 isas -j2 deps isas
    want="isas $(CC=$cc sh scripts/isa.sh | sed -n 's/^ISAS += //p' | paste -sd' ')"
    [ "$output" = "$want" ]
    [ "$(isas isas)" = "$want" ]
}

# package DIR: make deb there; its name.
# A package is of the normal build, in a sanitized check, too.
package() {
    run -0 --separate-stderr make --no-print-directory -s -C "$1" SAN= deb
    debs=("${lines[@]/#/$1/}")
    deb=${debs[-1]}
}

# bats test_tags=long
@test "deb: what is in it, where Debian wants it" {
    every_tool
    need_commands dpkg-deb dpkg-shlibdeps
    package "$ROOT"
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    [[ $deb == */tensorutils_${version}_* ]]
    [ "$(dpkg-deb -f "$deb" Version)" = "$version" ]
    for l in libc6 libedit2 libjansson4 libjpeg62-turbo libpcre2-8-0 libpng16-16 libssl libutf8proc libxxhash0 zlib1g; do
        [[ $(dpkg-deb -f "$deb" Depends) == *$l* ]]
    done
    dpkg-deb --fsys-tarfile "$deb" | tar -tv | grep -v ' root/root ' && false
    dpkg-deb -x "$deb" d
    dpkg-deb -e "$deb" d/DEBIAN
    (cd d && md5sum --quiet -c DEBIAN/md5sums)
    [ "$(cd d && find usr -type f | wc -l)" -eq "$(wc -l <d/DEBIAN/md5sums)" ]
    for t in $TOOLS; do
        [ "$(d/usr/bin/"$t" -V)" = "$t (tensorutils) $version" ]
        zgrep -q "tensorutils $version" "d/usr/share/man/man1/$t.1.gz"
        [ -s "d/usr/share/bash-completion/completions/$t" ]
        [ -s "d/usr/share/zsh/vendor-completions/_$t" ]
    done
    [ ! -e d/usr/share/tensorutils/installed ]
    zcat d/usr/share/doc/tensorutils/changelog.gz >changelog
    [ "$(head -n 1 changelog)" = "tensorutils ($version) unstable; urgency=low" ]
    [ "$(grep -c '^  \* ' changelog)" -eq "$(sed '1d; /^tensorutils /,$d' "$ROOT/NEWS" | awk -v RS= 'END { print NR }')" ]
    diff <(sed 1,2d "$ROOT/COPYING") <(sed '/^License/,$!d' d/usr/share/doc/tensorutils/copyright |
        sed 1d | sed 's/^ //; s/^\.$//')
}

# bats test_tags=long
@test "deb: demo/ as it is here, and a library that programs are linked with" {
    every_tool
    need_commands dpkg-deb dpkg-shlibdeps pkg-config
    package "$ROOT"
    [ ${#debs[@]} = 4 ] || skip "no library of this build"
    for d in "${debs[@]}"; do
        dpkg-deb -x "$d" d
    done
    (cd d/usr/share/doc/tensorutils/demo && sha256sum --quiet -c SHA256SUMS)
    diff -r "$ROOT/demo" d/usr/share/doc/tensorutils/demo
    pc=$(dirname d/usr/lib/*/pkgconfig/tensorutils.pc)
    lib=${pc%/pkgconfig}
    # shellcheck disable=SC2046 # options
    cc -o tensors d/usr/share/tensorutils/examples/tensors.c \
        $(PKG_CONFIG_SYSROOT_DIR=$PWD/d PKG_CONFIG_LIBDIR=$pc pkg-config --cflags --libs tensorutils)
    LD_LIBRARY_PATH=$lib run -0 ./tensors "$DEMO/model.safetensors"
    [[ $output == *model.embed_tokens.weight* ]]
    [[ $(dpkg-deb -f "${debs[1]}" Depends) == "libtensorutils0 (= $(dpkg-deb -f "$deb" Version))" ]]
    dpkg-deb --ctrl-tarfile "${debs[0]}" | tar -xO ./symbols | grep -q '^ tu_free@'
    LD_LIBRARY_PATH=$lib PYTHONPATH=d/usr/lib/python3/dist-packages run -0 "$PYTHON" -c 'import sys, tensorutils as tu
print(repr(tu.open_safetensors(sys.argv[1])))' "$DEMO/model.safetensors"
    [[ $output == "open_safetensors("*" tensors" ]]
    [[ ${debs[2]} == */python3-tensorutils_*_all.deb && $(dpkg-deb -f "${debs[2]}" Depends) == "libtensorutils0 (= "*"python3-numpy"* ]]
}

# bats test_tags=long
@test "deb: lintian finds nothing to say" {
    every_tool
    need_commands dpkg-deb dpkg-shlibdeps lintian
    package "$ROOT"
    run -0 lintian --allow-root --fail-on error,warning "${debs[@]}"
    # of what is less, each version thinks something else
    [[ $(lintian --version) == *" v2.116."* ]] || return 0
    run -0 lintian --allow-root --display-info --pedantic --fail-on error,warning,info,pedantic "${debs[@]}"
    [ -z "$output" ]
}

# bats test_tags=long
@test "deb: dpkg installs it in a root of its own, and takes it away" {
    need_commands dpkg-deb dpkg-shlibdeps fakeroot
    package "$ROOT"
    mkdir -p r/var/lib/dpkg/info r/var/lib/dpkg/updates
    touch r/var/lib/dpkg/status r/var/lib/dpkg/available
    in_root() { fakeroot dpkg --root="$PWD/r" --log="$PWD/log" --force-depends --force-not-root --force-script-chrootless "$@"; }
    in_root -i "$deb" >out 2>&1
    r/usr/bin/st-inspect verify "$DEMO"
    r/usr/bin/hf-infer "$DEMO" -p '1+1=' --greedy -n 2
    in_root -P tensorutils >out 2>&1
    [ -z "$(find r -name '*st-inspect*')" ]
    [ ! -e r/usr/bin ] || [ -z "$(ls r/usr/bin)" ]
}

# copy DIR: the tree's own files, all of another time.
copy() {
    mkdir -p "$1"
    (cd "$ROOT" && git ls-files -z | tar --null -T - -cf -) | tar -C "$1" -xf -
    find "$1" -exec touch -d "$2" {} +
}

@test "builds: directory, umask, language, zone, time and -j change no bit" {
    [ -n "${SLOW:-}" ] || skip "make check-install does that"
    git -C "$ROOT" rev-parse || skip "no git here"
    unset MAKEFLAGS MAKELEVEL
    export SOURCE_DATE_EPOCH=1700000000
    copy a 2001-02-03
    copy "b b/much/deeper" 2020-03-04
    (umask 077 && TZ=Asia/Tokyo LC_ALL=C make -C a -j1 all deb) >/dev/null
    (umask 002 && TZ=UTC LANG=tr_TR.UTF-8 LC_ALL=C.UTF-8 make -C "b b/much/deeper" -j3 all deb) >/dev/null
    for f in $TOOLS $(cd a/build && echo lib*.a libtensorutils.so.*); do cmp "a/build/$f" "b b/much/deeper/build/$f"; done
    need_commands dpkg-deb dpkg-shlibdeps
    cmp a/build/*.deb "b b/much/deeper"/build/*.deb
}

# pages TOOL: what describes its options, for all verbs and for one.
pages() {
    for p in "$ROOT/man/$1.1" "$ROOT/man/$1"-*.1; do
        if [ -e "$p" ]; then cat "$p"; fi
    done
}

# said TOOL: -x and --long of --help, one a line.
said() {
    $1 --help all | sed -n 's/^  \(-.\|  \),\? *\(--[a-z0-9-]*\)\?.*/\1\n\2/p' |
        grep -- - | sort -u
}

@test "options: --help, the page and both completions name the same" {
    for t in $TOOLS; do
        said "$t" >help
        [ "$(wc -l <help)" -ge 7 ] # -h -V -q and --completions are everybody's
        pages "$t" | grep '^\.It Fl' | grep -oE '(Fl |, -)-?[A-Za-z0-9][a-z0-9-]*' |
            sed 's/^Fl /-/; s/^, /-/' | sort -u | diff help - || {
            echo "$t: \"<\" is in --help alone, \">\" in its pages alone"
            false
        }
        grep -oE -- '--[a-z0-9-]+' help >long
        "$t" --completions bash | sed -n "s/.*options+=' \(-.*\)'.*/\1/p" |
            sort -u | diff long -
        "$t" --completions zsh | grep -oE "^.*\['?" | sed 's/\[.*//' |
            grep -oE -- '[{,*'\''](-[A-Za-z]|--[a-z0-9-]+)' | sed 's/^.//' | sort -u |
            diff help -
    done
}

@test "options: --help fits a screen and a half, --help all has the others, a verb its own" {
    for main in "$ROOT"/cmd/*/main.c; do
        t=$(basename "${main%/main.c}")
        "$t" --help >short
        "$t" --help all >all
        [ "$(wc -L <all)" -le 80 ] || { echo "$t: $(wc -L <all) columns" && false; }
        # but for the usage and the verbs
        [ "$(grep -c '^  -\|^      --' short)" -le 42 ] || { echo "$t: $(wc -l <short)" && false; }
        grep -vxFf all short >more || :
        n=$(awk '/\.rare =/ { f = 1 } f { print } f && /",$/ { exit }' "$main" | tr -cd '"a-z0-9 \n-' | grep -o '"[^"]*"' | tr -d '"' | wc -w)
        if [ "$n" = 0 ]; then
            [ ! -s more ]
        else
            [[ $(cat more) == "'$t --help all' has $n more options"* ]] || { echo "$t: $n: $(cat more)" && false; }
        fi
        sed -n '/opt_group groups/,/^};/p' "$main" | grep -o '{ "[^"]*", "[^"]*" }' |
            sed 's/.*, "\(.*\)" }/\1:/' >titles || :
        grep -xFf titles all >seen || :
        cmp titles seen
    done
    moe-sft tune --help >tune
    grep -q '^      --pack ' tune
    [ "$(grep -c '^      --samples \|^      --tp \|^  train ' tune || :)" = 0 ]
    moe-sft --help tune | cmp - <(moe-sft --help)
}

@test "every tool without arguments prints its usage on standard error, status 2" {
    for t in $TOOLS; do
        run -2 --separate-stderr "$t" </dev/null
        [ -z "$output" ]
        # --help up to its first heading
        diff <("$t" --help | sed '/^[a-zA-Z, ]*:$/,$d') - <<<"${stderr%$'\n'*}"
        [ "${stderr_lines[-1]}" = "Try '$t --help'" ]
    done
}

@test "every tool: a first word that is neither file nor verb is answered with the verbs" {
    mkdir there
    n=0
    for t in $TOOLS; do
        verbs=$("$t" --help | sed -n '/^[a-zA-Z, ]*:$/q; s/^  \([a-z][a-z]*\) .*/\1/p' | paste -sd ,)
        for words in help "ls there"; do
            # shellcheck disable=SC2086
            run ! --separate-stderr "$t" $words </dev/null
            [[ $status =~ ^(2|66)$ && $stderr_lines == "$t: "* ]]
            [ -n "$verbs" ] || continue
            [[ $status = 2 && $stderr_lines == "$t: \"${words%% *}\" is n"*" a verb: ${verbs//,/, }" ]]
            n=$((n + 1))
        done
    done
    [ -n "${LEFT_OUT:-}" ] || [ "$n" = 12 ]
    # names that are no words, a word after an option and a file stay operands
    run -66 st-inspect ./help
    run -66 saev-read acts7
    run -66 st-inspect --json help
    cp "$DEMO/model.safetensors" help
    st-inspect help | cmp - <(st-inspect list help)
}

# bats test_tags=long
@test "options: --help's examples, two for most verbs, are no usage errors" {
    n=0
    for t in $TOOLS; do
        for v in '' $("$t" --help | sed -n '/^[a-zA-Z, ]*:$/q; s/^  \([a-z][a-z]*\) .*/\1/p'); do
            # shellcheck disable=SC2086
            "$t" $v --help | sed -n '/^examples:$/,/^[^ e]/s/^  //p' >examples
            [ -s examples ] || { [ -z "$v" ] && continue; } || { echo "$t $v has none" && false; }
            # what it is given is not there: 66; a reader in a pipe has the status
            while read -r line; do
                mkdir empty && cd empty
                touch x x.npy text rows.npy && status=0
                # bench needs no file, and would take 20 s
                [[ $line != "moe-sft bench"* ]] || line+=" --hidden 64 --intermediate 64"
                bash -o pipefail -c "$line" >/dev/null 2>../said || status=$?
                cd .. && rm -r empty
                n=$((n + 1))
                if [ $status = 2 ] || [ $status = 127 ] || grep 'Try ' said; then
                    echo "$line: status $status: $(cat said)"
                    return 1
                fi
            done < <(sed -e :a -e '/|$/N; s/|\n */| /; ta' examples)
        done
    done
    [ $n -gt 40 ]
}

@test "options: the page has them in the order of --help" {
    for t in $TOOLS; do
        "$t" --help all | sed -n 's/^  \(-., \|    \)\(--[a-z0-9-]*\).*/\2/p' >help
        for p in "$ROOT/man/$t.1" "$ROOT/man/$t"-*.1; do
            [ -e "$p" ] || continue
            grep '^\.It Fl' "$p" | grep -oE '(Fl |, )-[a-z0-9-]+' | sed 's/.* -/--/' >options
            grep -xFf options help | diff - options || {
                echo "$t: $p has another order than --help"
                false
            }
        done
    done
}

@test "options: a verb's page has those of its --help, but for those that the tool's page has for all" {
    n=0
    for p in "$ROOT"/man/*-*.1; do
        page=$(basename "$p" .1)
        t=${page%-*} verb=${page##*-}
        [ -e "$ROOT/cmd/$page" ] && continue
        "$t" "$verb" --help >help
        tail -n 1 help | grep -qx "See $page(1) for the whole story."
        all='threads|if-missing|force|verbose|quiet|help|version|completions'
        sed -n 's/^  \(-., \|    \)--\([a-z0-9-]*\).*/\2/p' help | grep -vxE "$all" >own
        [ "$verb" != tune ] || printf "%s\n" samples against >>own # check -m is there, too
        grep '^\.It Fl' "$p" | sed 's/.* -\([a-z0-9-]*\).*/\1/' | sort | diff <(sort own) - ||
            { echo "$page has other options than $t $verb --help" && false; }
        n=$((n + 1))
    done
    [ -n "${LEFT_OUT:-}" ] || [ "$n" = 4 ]
    run -0 moe-sft check --help
    [ "${lines[-1]}" = "See moe-sft(1) for the whole story." ]
}

# helped TOOL: --help all, each entry on a line.
helped() {
    $1 --help all | sed -e :a -e 'N;$!ba' -e 's/\n \{29\}/ /g'
}

# item TOOL OPTION: what the page says of it, without macros and points, a space
# around each word.
item() {
    awk -v o="${2#-}" '/^\.(It|S[hs]|El)/ { on = 0 }
        /^\.It Fl/ { for (i = 1; i <= NF; i++) if ($i == o) on = 1 } on' <(pages "$1") |
        sed 's/^\.[A-Z][a-z] //; s/ Ns \([A-Z][a-z] \)*//g; s/[,.;:)]* *$//; s/[,.;:)]* / /g' | tr '\n' ' '
}

@test "options: the page says the default that --help says" {
    n=0
    for t in $TOOLS; do
        while read -r option default; do
            said=$(item "$t" "$option")
            [[ $said == *" ${default#$}"[\ ,]* ]] || { echo "$t $option: $default: $said" && false; }
            n=$((n + 1))
        done < <(helped "$t" | sed -nE 's/^  (-., |    )(--[a-z0-9-]+) .*\(default ([^ :;)]*[^ :;,).])[],:;). ].*/\2 \3/p')
    done
    [ -n "${LEFT_OUT:-}" ] || [ "$n" -ge 35 ]
}

@test "options: the page says the range that --help says" {
    n=0
    for t in $TOOLS; do
        while read -r option range; do
            [[ $(item "$t" "$option") == *" $range"[\ ,]* ]] || { echo "$t $option: $range" && false; }
            n=$((n + 1))
        done < <(helped "$t" | sed -nE 's/^  (-., |    )(--[a-z0-9-]+) .*, ([-0-9.e]+ to [0-9.e]+)( \(default.*)?$/\2 \3/p')
    done
    [ -n "${LEFT_OUT:-}" ] || [ "$n" -ge 15 ]
}

# enumerated TOOL: "--option word|word" of --help.
enumerated() {
    $1 --help all | grep -oE -- '--[a-z0-9-]+ ([A-Z]\|)?[a-z][a-z0-9]*(\|[a-z0-9_]+)+|--[a-z]+ N\|all' |
        sed 's/[A-Z]|//'
}

@test "options: the words that a table lists are those that the tool takes" {
    n=0
    for t in $TOOLS; do
        while read -r option words; do
            case $t in st-inspect | saev-read) verb= ;; moe-sft) verb=train ;; sae-look) verb=list ;; *) verb= ;; esac
            # shellcheck disable=SC2086
            run -2 $t $verb "$option" nonesuch x
            for w in ${words//|/ }; do
                [[ $option == --layer || ${lines[0]} =~ [,\ ]$w(,|\ |$) ]]
                n=$((n + 1))
            done
        done < <(enumerated "$t")
    done
    [ -n "${LEFT_OUT:-}" ] || [ "$n" -ge 40 ]
}

@test "completions: each page and --help name them, only for shells that exist" {
    run -2 --separate-stderr st-inspect --completions fish
    [ "${stderr_lines[0]}" = 'st-inspect: --completions: "fish" is not bash or zsh' ]
    run -2 --separate-stderr st-inspect --completions
    [ "${stderr_lines[0]}" = 'st-inspect: option --completions needs an argument' ]
    for t in $TOOLS; do
        grep -q '^\.It Fl -completions Cm bash | zsh$' "$ROOT/man/$t.1"
        "$t" --help all | grep -q '^      --completions bash|zsh '
        bash -n <("$t" --completions bash)
        [ "$("$t" --completions zsh | head -n 1)" = "#compdef $t" ]
    done
}

@test "completions: zsh takes them for its own language" {
    need_commands zsh
    for t in $TOOLS; do
        "$t" --completions zsh >z
        run -0 zsh -n z
        [ -z "$output" ]
    done
    echo 'if (' >>z
    run ! zsh -n z
}

# complete WORD...: what bash offers for the last word.
complete() {
    # shellcheck disable=SC2016
    bash --norc --noprofile -c '
        source <("$1" --completions bash)
        compopt() { :; }
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _tensorutils_"$1"
        echo "${COMPREPLY[*]}"' bash "$@" | sed 's/ $//'
}
offers() { # offers "WORDS" WORD...
    local want=$1
    shift
    [ "$(set -- $(complete "$@") && echo "$*")" = "$want" ] || {
        echo "$*: '$(complete "$@")', not '$want'"
        return 1
    }
}

@test "bash: verbs, options of the verb, words, and nothing for numbers" {
    offers "list tree stats hash verify diff cat meta" st-inspect ''
    offers "rows verify info stats meta" saev-read ''
    offers "forward" moe-sft fo
    offers "--slice" st-inspect cat --sl
    offers "" st-inspect list --sl
    offers "--fold --force" st-inspect list --fo
    offers "--samples --save-every" moe-sft --sa
    offers "index density mean max" sae-look list --sort ''
    offers "f32 f64" st-inspect cat --dtype = ''
    offers "bf16" hf-infer m --compute = b
    offers "f16" lut-apply --x-dtype f1
    offers "f16 f32" kvc-convert --dtype f
    offers "all" saev-read --layer ''
    offers "qkv gate_up" lut-precompute --fuse ''
    offers "constant cosine" moe-sft train --schedule co
    offers "" st-inspect --depth ''
    offers "" hf-infer m -p ''
    offers "" hf-infer -- --no
    offers "--prefix-order --provenance" kvc-convert --pr
}

# typed SHELL...: the words that tools are called with when the lines of the
# standard input are typed; stand-ins print them.
typed() {
    mkdir -p stand-ins
    : >args
    for t in $TOOLS; do
        printf '#!/bin/sh\nprintf "<%%s>" "$@" >>"$ARGS"\necho >>"$ARGS"\n' >"stand-ins/$t"
    done
    chmod +x stand-ins/*
    env ARGS="$PWD/args" PATH="$PWD/stand-ins:$PATH" TERM=dumb HOME="$PWD" PS1='$ ' \
        "$PYTHON" "$ROOT/test/tab.py" "$@"
}

# installed: p is what make install makes, once for tests that only read it.
installed() {
    [ -e "$BATS_FILE_TMPDIR/p" ] || put DESTDIR="$BATS_FILE_TMPDIR" PREFIX=/p
    ln -s "$BATS_FILE_TMPDIR/p" p
}

# The lines that both shells are given, and what becomes of them.
LINES_TYPED='st-inspect l<TAB>my\ m<TAB>
st-inspect cat --dt<TAB>f3<TAB> other<TAB> x
st-inspect ve<TAB>my<TAB>
hf-infer m --lut-r<TAB>oth<TAB> --kv-dt<TAB>bf<TAB>
moe-sft tr<TAB>--sch<TAB>li<TAB>-o my<TAB>
saev-read --vi<TAB>im<TAB>oth<TAB>
kvc-convert --inp<TAB>oth<TAB>'
LINES_MEANT='<list><my model.safetensors>
<cat><--dtype><f32><other.bin><x>
<verify><my model.safetensors>
<m><--lut-report><other.bin><--kv-dtype><bf16>
<train><--schedule><linear><-o><my model.safetensors>
<--view><image><other.bin>
<--input><other.bin>'

@test "bash: TAB in a terminal, with names that have spaces" {
    every_tool
    "$PYTHON" -c 'import pty' || skip "no python3 here"
    installed
    touch 'my model.safetensors' other.bin
    {
        echo 'bind "set enable-bracketed-paste off"; for f in p/share/bash-completion/completions/*; do . $f; done; st-inspect'
        echo "$LINES_TYPED"
    } | typed bash --norc --noprofile -i
    diff <(sed 1d args | sed 's/--\([a-z-]*\)=></--\1></') <(echo "$LINES_MEANT")
}

# bats test_tags=long
@test "zsh: TAB in a terminal, with names that have spaces" {
    every_tool
    need_commands zsh
    "$PYTHON" -c 'import pty' || skip "no python3 here"
    installed
    touch 'my model.safetensors' other.bin
    {
        echo 'fpath=($PWD/p/share/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D; LISTMAX=999; st-inspect'
        echo "$LINES_TYPED"
    } | typed zsh -f -i
    diff <(sed 1d args | sed 's/<\(--[a-z-]*\)=/<\1></g') <(echo "$LINES_MEANT")
}
