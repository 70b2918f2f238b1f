# SPDX-License-Identifier: ISC
# The library for programs, libtensorutils(3): what make install puts, compiled and
# run without anything of the build tree.
load helpers
load lib

@test "lib: only tu_* is exported, with a version; the archive hides the rest" {
    not_sanitized
    need_commands nm readelf
    nm -D --defined-only "$P/lib/libtensorutils.so" | awk '$2 != "A" { print $3 }' >so
    run ! grep -v '^tu_[a-z0-9_]*@@TENSORUTILS_0\.[0-9]*$' so
    nm -g --defined-only "$P/lib/libtensorutils.a" | awk 'NF == 3 { print $3 }' | sort >a
    sed 's/@.*//' so | sort | diff - a
    sed -n 's/^TU_API .*[ *]\(tu_[a-z0-9_]*\)(.*/\1/p' "$P/include/tensorutils.h" | sort | diff - a
    readelf -d "$P/lib/libtensorutils.so" | grep -q 'SONAME.*\[libtensorutils\.so\.0\]'
    [ "$(readlink "$P/lib/libtensorutils.so")" = libtensorutils.so.0 ]
    for f in "$P"/lib/libtensorutils.so*; do [ -s "$f" ]; done
    cmp "$P"/lib/pkgconfig/{lib,}tensorutils.pc
}

@test "lib: the page shows the header's functions, and no other" {
    grep -o 'tu_[a-z0-9_]*(' "$ROOT/man/libtensorutils.3" | sort -u >page
    grep -o '^TU_API .*[ *]tu_[a-z0-9_]*(' "$P/include/tensorutils.h" | grep -o 'tu_[a-z0-9_]*(' | sort -u | diff page -
}

# bats test_tags=long
@test "lib: uninstall takes it away" {
    make --no-print-directory -s -C "$ROOT" install PREFIX="$PWD/q" >/dev/null
    [ -s q/lib/pkgconfig/tensorutils.pc ]
    make --no-print-directory -s -C "$ROOT" uninstall PREFIX="$PWD/q"
    [ ! -e q ]
}

@test "lib: the header is C++, too" {
    need_commands c++
    echo '#include <tensorutils.h>
int main() { return tu_version()[0] == 0; }' >x.cc
    # shellcheck disable=SC2046
    c++ -Wall -Wextra -Werror -o x x.cc $(flags)
    ./x
}

@test "tensors.c: the means that numpy finds, by the library and by the archive" {
    example tensors
    ./tensors "$DEMO" >said
    # shellcheck disable=SC2046
    ${CC:-cc} -o alone tensors.c $(archive)
    LD_LIBRARY_PATH='' ./alone "$DEMO" | diff said -
    py - "$DEMO/model.safetensors" <<'END'
import mkst, sys
t, _ = mkst.read(sys.argv[1])
said = dict(line.split()[::2] for line in open("said"))
assert sorted(said) == sorted(t) and len(t) > 10
for name in t:
    want = t[name].mean()
    assert abs(float(said[name]) - want) < 1e-5 * max(abs(want), 1e-3), name
END
    run -66 ./tensors none
    [ "$output" = "none: No such file or directory" ]
}

@test "safetensors: each type, parts, and every wrong call is an error" {
    py - <<'END'
import numpy as np, json, struct
a = np.arange(40000, dtype="f8") / 7
t = {"f64": ("F64", a), "f32": ("F32", a.astype("f4")), "f16": ("F16", (a / 9).astype("f2")),
     "i64": ("I64", (a * 1e6).astype("i8")), "u8": ("U8", a.astype("u1")), "b": ("BOOL", a > 100),
     "c": ("C64", a[:2].astype("c8")), "s": ("F32", np.float32(2.5)), "e": ("I8", a[:0].astype("i1"))}
header, data = {}, b""
for k, (d, x) in t.items():
    b = x.tobytes()
    header[k] = {"dtype": d, "shape": list(np.shape(x)), "data_offsets": [len(data), len(data) + len(b)]}
    data += b
    if d != "C64": np.asarray(x).astype("f4").tofile(k + ".want")
header["__metadata__"] = {"by": "numpy"}
h = json.dumps(header).encode()
open("x.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + data)
END
    refusals >x.c
    cat >>x.c <<'END'
int main(void)
{
    static float x[40000];
    struct tu_st *st, *other;
    const struct tu_tensor *t;

    no(tu_st_open(NULL, "x", &err), TU_BAD_CALL);
    no(tu_st_open(&st, NULL, &err), TU_BAD_CALL);
    no(tu_st_open(&st, "x.c", &err), TU_BAD_DATA);
    if (st || tu_st_open(&st, "x", NULL) == 0 || tu_st_open(&other, "x.safetensors", &err) < 0 ||
        tu_st_open(&st, "x.safetensors", &err) < 0 || tu_st_count(st) != 9)
        return 1;
    if (tu_st_at(st, 9) || tu_st_at(NULL, 0) || tu_st_find(st, "none") || tu_st_find(NULL, "f32") ||
        tu_st_find(st, NULL) || tu_st_metadata(st, "on") || strcmp(tu_st_metadata(st, "by"), "numpy"))
        return 2;
    if (strcmp(tu_st_metadata_at(st, 0)->key, "by") || strcmp(tu_st_metadata_at(st, 0)->value, "numpy") ||
        tu_st_metadata_at(st, 0)->value_n != 5 || tu_st_metadata_at(st, 1) || tu_st_metadata_at(NULL, 0))
        return 8;
    for (size_t i = 0; i < tu_st_count(st); i++) {
        char name[80];
        FILE *f;

        t = tu_st_at(st, i);
        if (t != tu_st_find(st, t->name) || t->nbytes < t->n)
            return 3;
        if (!strcmp(t->name, "c")) {
            no(tu_st_read_f32(st, t, 0, 1, x, &err), TU_BAD_CALL);
            continue;
        }
        if (tu_st_read_f32(st, t, 0, t->n, x, &err) < 0)
            return puts(err.what), 4;
        snprintf(name, sizeof(name), "%s.got", t->name);
        f = fopen(name, "wb");
        fwrite(x, 4, t->n, f);
        fclose(f);
        no(tu_st_read_f32(st, t, 0, t->n + 1, x, &err), TU_BAD_CALL);
        no(tu_st_read_f32(st, t, t->n + 1, 0, x, &err), TU_BAD_CALL);
        no(tu_st_read_f32(st, t, 1, (size_t)-1, x, &err), TU_BAD_CALL);
        if (tu_st_read_f32(st, t, t->n, 0, NULL, &err) < 0)
            return 5;
    }
    t = tu_st_find(st, "f32");
    if (tu_st_read_f32(st, t, 777, 2, x, &err) < 0 || x[0] != 777 / 7.0f || x[1] != 778 / 7.0f || memcmp(t->data, "\0\0\0\0", 4))
        return 6;
    no(tu_st_read_f32(NULL, t, 0, 1, x, &err), TU_BAD_CALL);
    no(tu_st_read_f32(st, NULL, 0, 1, x, &err), TU_BAD_CALL);
    no(tu_st_read_f32(st, t, 0, 1, NULL, &err), TU_BAD_CALL);
    no(tu_st_read_f32(other, t, 0, 1, x, &err), TU_BAD_CALL);
    tu_st_close(other);
    if (!freopen("x.safetensors", "r+", stdin) || system("truncate -s 4000 x.safetensors"))
        return 7;
    no(tu_st_read_f32(st, t, 0, 40000, x, &err), TU_BAD_DATA);
    tu_st_close(st);
    tu_st_close(NULL);
    return 0;
}
END
    build x.c
    TU_ISA=sclar run -1 ./x
    [[ $output == *'TU_ISA is "sclar" (expected '* ]]
    run -0 ./x
    for f in *.want; do cmp "$f" "${f%.want}.got"; done
    [[ $output == *"x.safetensors: c: C64 cannot be read as f32"* ]]
    [[ $output == *"x.safetensors: s: 2 numbers from 0 on, but it has 1"* ]]
}

@test "lib: the page's examples, as typed" {
    cp "$P"/share/tensorutils/examples/*.c .
    ln -s "$ROOT/demo" demo
    examples libtensorutils.3 >script
    if [[ $BUILD == */*san ]] || ! command -v pkg-config >/dev/null; then
        mkdir bin
        printf '#!/bin/sh\necho "%s"\n' "$(flags)" >bin/pkg-config
        chmod +x bin/pkg-config
        PATH=$PWD/bin:$PATH
    fi
    run -0 bash -euo pipefail script
    grep -q '^lm_head.weight\|^model.embed_tokens.weight' <<<"$output"
}
