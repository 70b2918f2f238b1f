# SPDX-License-Identifier: ISC
# make dist and packaging/: the same version and libraries everywhere.
load helpers

# bats test_tags=long
@test "make dist: what git has, the same bytes twice, and a tree that make takes" {
    git -C "$ROOT" rev-parse HEAD >/dev/null 2>&1 || skip "not a clone"
    git clone -q "$ROOT" tree
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    for copy in a b; do
        TZ=Asia/Tokyo LC_ALL=C.UTF-8 run -0 --separate-stderr make --no-print-directory -s -C tree dist
        [ "${lines[-1]}" = "build/tensorutils-$version.tar.gz" ]
        cp "tree/${lines[-1]}" $copy
        rm "tree/${lines[-1]}"
    done
    cmp a b
    tar -xzf a
    diff <(git -C tree ls-files | sort) <(cd "tensorutils-$version" && find . ! -type d | sed 's/^..//' | sort)
    make -s -C "tensorutils-$version" -n all >/dev/null
}

@test "packaging: recipes have the version, and every library that INSTALL names" {
    version=$(sed -n 's/^VERSION := //p' "$ROOT/Makefile")
    cd "$ROOT/packaging"
    grep -qF "version(\"$version\")" spack/package.py
    grep -qF "{% set version = \"$version\" %}" conda/meta.yaml
    grep -qF "whatis(\"Version: $version\")" "lmod/$version.lua"
    [ "$(ls lmod)" = "$version.lua" ]
    for l in jansson xxHash libcrypto PCRE2 utf8proc zlib libpng libjpeg-turbo libedit; do
        grep -q "^  $l " "$ROOT/INSTALL"
        name=${l,,}
        [ $l != libcrypto ] || name=openssl
        grep -q "depends_on(\"$name[\"-]" spack/package.py
        grep -q "^    - \(lib\)\?$name$" conda/meta.yaml
    done
    "$PYTHON" -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' spack/package.py
    command -v luac >/dev/null || skip "no luac, all else passed"
    luac -p "lmod/$version.lua"
}
