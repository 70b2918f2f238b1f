# The library for programs, libtensorutils(3): what make install puts, compiled and
# run without anything of the build tree.
load helpers

setup_file() {
    export P=$BATS_FILE_TMPDIR/p
    [ -e "$BUILD/libtensorutils.a" ] || return 0
    make --no-print-directory -s -C "$ROOT" install PREFIX="$P" >/dev/null
    export LD_LIBRARY_PATH=$P/lib PKG_CONFIG_PATH=$P/lib/pkgconfig
}

setup() {
    cd "$BATS_TEST_TMPDIR"
    not_sanitized
    [ -e "$BUILD/libtensorutils.a" ] || skip "no library is built here"
}

# Flags as programs ask for them; the same by hand where there is no pkg-config.
flags() {
    if command -v pkg-config >/dev/null; then
        pkg-config --cflags --libs tensorutils
    else
        printf '%s\n' "-I$P/include -L$P/lib -ltensorutils"
    fi
}

# build FILE.c FLAG...: FILE, as a careful program would be built.
build() {
    local file=$1
    shift
    # shellcheck disable=SC2046 # flags are several words
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "${file%.c}" "$file" "$@" $(flags)
}

example() {
    cp "$P/share/tensorutils/examples/$1.c" .
    [ "$(wc -l <"$1.c")" -le 30 ]
    build "$1.c"
}

@test "lib: only tu_* is exported, with a version; the archive hides the rest" {
    need_commands nm readelf
    nm -D --defined-only "$P/lib/libtensorutils.so" | awk '$2 != "A" { print $3 }' >so
    run ! grep -v '^tu_[a-z0-9_]*@@TENSORUTILS_0\.[0-9]*$' so
    nm -g --defined-only "$P/lib/libtensorutils.a" | awk 'NF == 3 { print $3 }' | sort >a
    sed 's/@.*//' so | sort | diff - a
    sed -n 's/^TU_API .*[ *]\(tu_[a-z0-9_]*\)(.*/\1/p' "$P/include/tensorutils.h" | sort | diff - a
    readelf -d "$P/lib/libtensorutils.so" | grep -q 'SONAME.*\[libtensorutils\.so\.0\]'
    [ "$(readlink "$P/lib/libtensorutils.so")" = libtensorutils.so.0 ]
    for f in "$P"/lib/libtensorutils.so*; do [ -s "$f" ]; done
}

@test "lib: the page shows the header's functions, and no other" {
    grep -o 'tu_[a-z0-9_]*(' "$ROOT/man/libtensorutils.3" | sort -u >page
    grep -o '^TU_API .*[ *]tu_[a-z0-9_]*(' "$P/include/tensorutils.h" | grep -o 'tu_[a-z0-9_]*(' | sort -u | diff page -
}

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
    ${CC:-cc} -o alone tensors.c "-I$P/include" "$P/lib/libtensorutils.a" ${LDFLAGS-} \
        $(sed -n 's/^Libs.private: //p' "$P/lib/pkgconfig/tensorutils.pc")
    LD_LIBRARY_PATH='' ./alone "$DEMO" | diff said -
    py - "$DEMO/model.safetensors" <<'END'
import os, sys
sys.path.insert(0, os.environ["P"] + "/share/tensorutils/python")
import tensorutils as tu
t = tu.open_safetensors(sys.argv[1])
said = dict(line.split()[::2] for line in open("said"))
assert sorted(said) == sorted(t) and len(t) > 10
for name in t:
    want = t[name].astype("f8").mean()
    assert abs(float(said[name]) - want) < 1e-5 * max(abs(want), 1e-3), name
END
    run -66 ./tensors none
    [ "$output" = "none: No such file or directory" ]
}

# refusals: what each program of these tests begins with: no() sees that a call
# is refused with a status, and prints why.
refusals() {
    cat <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorutils.h>

static struct tu_err err;
__attribute__((unused)) static void no(int rc, int status)
{
    if (rc == 0 || err.status != status)
        printf("not refused: %d %s\n", rc, err.what), exit(1);
    puts(err.what);
    err = (struct tu_err){ 0 };
}
__attribute__((unused)) static void yes(int rc)
{
    if (rc)
        printf("refused: %s\n", err.what), exit(1);
}
END
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

@test "next.c: the token that hf-infer takes, and its errors" {
    example next
    for m in "$DEMO" "$ROOT/demo/qwen3-moe-tiny"; do
        ./next "$m" "The capital of France is" >said
        hf-infer "$m" --greedy -n 1 -p "The capital of France is" | cat - <(echo) | diff said -
    done
    run -2 ./next "$DEMO"
    run -66 ./next none x
    [[ $output == none* ]]
    cp -r "$DEMO" m
    printf x | dd of=m/model.safetensors bs=1 seek=20 conv=notrunc status=none
    run -65 ./next m x
    [[ $output == m/model.safetensors:* ]]
}

@test "model: logits and every point of a layer are float64's, cut or whole, by any thread" {
    refusals >x.c
    cat >>x.c <<'END'
#include <pthread.h>

struct seen { FILE *f; int64_t last; };
static void tap(void *ctx, int64_t layer, size_t first, size_t n, size_t dim, const float *rows)
{
    struct seen *seen = ctx;
    int64_t head[4] = { layer, (int64_t)first, (int64_t)n, (int64_t)dim };

    if (layer > seen->last)
        exit(9);
    fwrite(head, sizeof(head), 1, seen->f);
    fwrite(rows, 4, n * dim, seen->f);
}

static struct tu_model *m;
static int32_t ids[100];
static size_t n, vocab;

/* All logits, of pieces of some tokens. */
static float *run(size_t piece, int n_threads)
{
    struct tu_session_options o = { .size = sizeof(o), .n_threads = n_threads, .chunk = 7, .max_tokens = n };
    float *y = malloc(n * vocab * 4);
    struct tu_session *s;
    struct tu_err e;

    if (!y || tu_session_open(&s, m, &o, &e) < 0)
        exit(8);
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < piece ? n - i : piece;
        if (tu_session_feed(s, ids + i, k, y + i * vocab, k * vocab, &e) < 0)
            exit(7);
    }
    if (tu_session_count(s) != n)
        exit(6);
    tu_session_close(s);
    return y;
}
static void *other(void *y)
{
    float *z = run(5, 1);

    if (memcmp(y, z, n * vocab * 4))
        exit(5);
    free(z);
    return NULL;
}

int main(int argc, char **argv)
{
    struct tu_session *s;
    pthread_t a, b;
    FILE *f = fopen("ids", "rb");
    float *y;

    n = fread(ids, 4, 100, f);
    fclose(f);
    yes(argc != 3 || tu_model_open(&m, argv[1], &err));
    vocab = tu_model_info(m)->vocab_size;
    y = run(n, 2);
    f = fopen("logits", "wb");
    fwrite(y, 4, n * vocab, f);
    fclose(f);
    pthread_create(&a, NULL, other, y);
    pthread_create(&b, NULL, other, y);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    for (int p = TU_RESID; p <= (argv[2][0] == 'e' ? TU_IN_GATE_UP : TU_IN_DOWN); p++) {
        char name[20];
        struct seen seen = { NULL, (int64_t)tu_model_info(m)->n_layers - 1 };

        snprintf(name, sizeof(name), "tap%d", p);
        seen.f = fopen(name, "wb");
        yes(tu_session_open(&s, m, NULL, &err));
        yes(tu_session_tap(s, p, seen.last, tap, &seen, &err));
        yes(tu_session_feed(s, ids, n, NULL, 0, &err));
        fclose(seen.f);
        tu_session_close(s);
    }
    free(y);
    tu_model_close(m);
    return 0;
}
END
    build x.c -pthread
    for kind in dense experts; do
        model=$DEMO
        [ $kind = dense ] || model=$ROOT/demo/qwen3-moe-tiny
        py -c 'import numpy as np; np.random.default_rng(3).integers(0, 300, 41).astype("<i4").tofile("ids")'
        rm -f tap*
        ./x "$model" $kind
        py - "$model" <<'END'
import numpy as np, os, sys, transformer
ids = np.fromfile("ids", "<i4")
config, tensors = transformer.load(sys.argv[1])
seen = {}
z = transformer.forward(config, tensors, ids, lambda p, i, x: seen.update({(p, i): x}))
y = np.fromfile("logits", "<f4").reshape(z.shape)
assert abs(y - z).max() < 2e-4 * abs(z).max(), abs(y - z).max()
points = ["resid", "attn", "mlp", "in:q_proj", "in:o_proj", "in:up_proj", "in:down_proj"]
n = 0
for p, point in enumerate(points):
    if not os.path.exists("tap%d" % p):
        assert p == 6
        continue
    raw, at, got = open("tap%d" % p, "rb").read(), 0, {}
    while at < len(raw):
        layer, first, rows, dim = np.frombuffer(raw, "<i8", 4, at)
        x = np.frombuffer(raw, "<f4", rows * dim, at + 32).reshape(rows, dim)
        assert sum(map(len, got.get(layer, []))) == first
        got.setdefault(layer, []).append(x)
        at += 32 + 4 * rows * dim
    assert sorted(got) == sorted(i for q, i in seen if q == point), (point, sorted(got))
    for layer in got:
        want = seen[point, layer]
        assert np.linalg.norm(np.concatenate(got[layer]) - want) < 1e-4 * np.linalg.norm(want), (point, layer)
        n += 1
assert n >= 12, n
END
    done
}

@test "model: what a step generates with bf16 is what hf-infer does; encode and decode are its ids" {
    refusals >x.c
    cat >>x.c <<'END'
int main(int argc, char **argv)
{
    struct tu_session_options o = { .size = sizeof(o), .compute = TU_COMPUTE_BF16, .kv = TU_KV_BF16, .n_threads = 1 };
    static const char text[] = "The capital of <|im_end|> \xff is", *more;
    struct tu_model *m;
    struct tu_session *s;
    struct tu_tok *t;
    int32_t *ids, *plain, id;
    size_t n, n_plain, nbytes, v;
    char *back;
    float *y;

    (void)more;
    yes(argc != 2 || tu_tok_open(&t, argv[1], &err));
    yes(tu_tok_encode(t, text, strlen(text), TU_TOK_SPECIAL, &ids, &n, &err));
    yes(tu_tok_encode(t, text, strlen(text), TU_TOK_PLAIN, &plain, &n_plain, &err));
    for (size_t i = 0; i < n; i++)
        printf("%s%d", i ? "," : "", (int)ids[i]);
    puts("");
    yes(tu_tok_decode(t, ids, n, TU_TOK_SPECIAL, &back, &nbytes, &err));
    if (strcmp(back, "The capital of <|im_end|> \xef\xbf\xbd is") || nbytes != strlen(back) || n_plain <= n)
        return puts(back), 2;
    tu_free(back);
    yes(tu_tok_decode(t, ids, n, 0, &back, &nbytes, &err));
    if (strstr(back, "im_end"))
        return 3;
    tu_free(back);
    yes(tu_model_open(&m, argv[1], &err));
    yes(tu_session_open(&s, m, &o, &err));
    tu_model_close(m); /* the session keeps it */
    v = tu_model_info(m)->vocab_size;
    y = malloc(v * sizeof(*y));
    yes(tu_session_feed(s, ids, n, y, v, &err));
    for (int k = 0; k < 12; k++) {
        id = 0;
        for (size_t i = 0; i < v; i++)
            id = y[i] > y[id] ? (int32_t)i : id;
        printf("%s%d", k ? "," : "", (int)id);
        yes(tu_session_step(s, id, y, v, &err));
    }
    puts("");
    yes(tu_tok_encode(t, NULL, 0, 0, &plain, &n, &err) || n);
    yes(tu_tok_decode(t, NULL, 0, 0, &back, &n, &err) || n || *back);
    no(tu_tok_open(NULL, "x", &err), TU_BAD_CALL);
    no(tu_tok_open(&t, NULL, &err), TU_BAD_CALL);
    no(tu_tok_encode(NULL, "x", 1, 0, &plain, &n, &err), TU_BAD_CALL);
    return 0;
}
END
    build x.c
    ./x "$DEMO" >said
    printf 'The capital of <|im_end|> \xff is' >text
    hf-infer "$DEMO" --encode --file text 2>/dev/null | tr ' \n' ',,' | sed 's/,*$//' >ids
    [ "$(sed -n 1p said)" = "$(cat ids)" ]
    hf-infer "$DEMO" --ids "$(cat ids)" --greedy -n 12 --ids-out --compute bf16 --kv-dtype bf16 -j 1 | tr ' ' ',' >more
    [[ "$(sed -n 2p said)" == "$(cat more)"* ]]
    [ "$(wc -c <more)" -gt 10 ]
}

@test "model: every wrong call is an error, and leaves the session as it was" {
    refusals >x.c
    cat >>x.c <<'END'
static struct tu_session *s;
static float y[1 << 16];
static void tap(void *ctx, int64_t layer, size_t first, size_t n, size_t dim, const float *rows)
{
    (void)layer, (void)first, (void)n, (void)dim, (void)rows;
    if (ctx)
        no(tu_session_feed(s, (int32_t[]){ 1 }, 1, NULL, 0, &err), TU_BAD_CALL);
}
int main(int argc, char **argv)
{
    struct tu_session_options o = { .size = sizeof(o), .max_tokens = 8 };
    struct { struct tu_session_options o; int more; } newer = { o, 0 };
    struct tu_model *m;
    int32_t ids[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    size_t v;
    int last;

    (void)argc;
    no(tu_model_open(NULL, "x", &err), TU_BAD_CALL);
    no(tu_model_open(&m, NULL, &err), TU_BAD_CALL);
    no(tu_model_open(&m, "none", &err), TU_NO_INPUT);
    if (m || tu_model_info(NULL) || tu_session_count(NULL))
        return 1;
    yes(tu_model_open(&m, argv[1], &err));
    v = tu_model_info(m)->vocab_size;
    last = (int)tu_model_info(m)->n_layers - 1;
    no(tu_session_open(NULL, m, NULL, &err), TU_BAD_CALL);
    no(tu_session_open(&s, NULL, NULL, &err), TU_BAD_CALL);
    o.size = 0;
    no(tu_session_open(&s, m, &o, &err), TU_BAD_CALL);
    o = (struct tu_session_options){ .size = sizeof(o), .n_threads = -1 };
    no(tu_session_open(&s, m, &o, &err), TU_BAD_CALL);
    o = (struct tu_session_options){ .size = sizeof(o), .compute = 2 };
    no(tu_session_open(&s, m, &o, &err), TU_BAD_CALL);
    o = (struct tu_session_options){ .size = sizeof(o), .kv = 3 };
    no(tu_session_open(&s, m, &o, &err), TU_BAD_CALL);
    o = (struct tu_session_options){ .size = sizeof(o), .max_tokens = 1 << 30 };
    no(tu_session_open(&s, m, &o, &err), TU_BAD_CALL);
    o = (struct tu_session_options){ .size = sizeof(o), .chunk = 1 << 20 };
    no(tu_session_open(&s, m, &o, &err), TU_BAD_CALL);
    newer.o.size = sizeof(newer);
    newer.more = 1;
    no(tu_session_open(&s, m, &newer.o, &err), TU_BAD_CALL);
    newer.more = 0;
    yes(tu_session_open(&s, m, &newer.o, &err));
    no(tu_session_feed(NULL, ids, 1, NULL, 0, &err), TU_BAD_CALL);
    no(tu_session_feed(s, NULL, 1, NULL, 0, &err), TU_BAD_CALL);
    no(tu_session_feed(s, ids, 1, NULL, v, &err), TU_BAD_CALL);
    no(tu_session_feed(s, ids, 1, y, v - 1, &err), TU_BAD_CALL);
    no(tu_session_feed(s, ids, 1, y, 2 * v, &err), TU_BAD_CALL);
    no(tu_session_feed(s, ids, 9, y, v, &err), TU_BAD_CALL);
    no(tu_session_feed(s, ids, (size_t)-1, y, v, &err), TU_BAD_CALL);
    ids[2] = (int32_t)v;
    no(tu_session_feed(s, ids, 3, y, v, &err), TU_BAD_CALL);
    no(tu_session_step(s, -1, y, v, &err), TU_BAD_CALL);
    no(tu_session_step(NULL, 1, y, v, &err), TU_BAD_CALL);
    ids[2] = 3;
    if (tu_session_count(s))
        return 2;
    yes(tu_session_feed(s, NULL, 0, NULL, 0, &err));
    yes(tu_session_feed(s, ids, 8, y, v, &err));
    no(tu_session_step(s, 1, y, v, &err), TU_BAD_CALL);
    yes(tu_session_reset(s, &err));
    no(tu_session_reset(NULL, &err), TU_BAD_CALL);
    no(tu_session_tap(NULL, TU_RESID, 0, tap, NULL, &err), TU_BAD_CALL);
    no(tu_session_tap(s, 7, 0, tap, NULL, &err), TU_BAD_CALL);
    no(tu_session_tap(s, TU_ATTN, -1, tap, NULL, &err), TU_BAD_CALL);
    no(tu_session_tap(s, TU_RESID, -2, tap, NULL, &err), TU_BAD_CALL);
    no(tu_session_tap(s, TU_RESID, last + 1, tap, NULL, &err), TU_BAD_CALL);
    yes(tu_session_tap(s, TU_RESID, 0, tap, &s, &err)); /* feeds inside: refused */
    yes(tu_session_feed(s, ids, 2, NULL, 0, &err));
    no(tu_session_feed(s, ids, 2, y, v, &err), TU_BAD_CALL); /* layers were left out */
    yes(tu_session_tap(s, TU_RESID, 0, NULL, NULL, &err));
    no(tu_session_feed(s, ids, 2, NULL, 0, &err), TU_BAD_CALL);
    yes(tu_session_reset(s, &err));
    yes(tu_session_feed(s, ids, 2, y, v, &err));
    tu_session_close(s);
    tu_session_close(NULL);
    tu_model_close(m);
    tu_model_close(NULL);
    tu_tok_close(NULL);
    tu_free(NULL);
    return 0;
}
END
    build x.c
    run -0 ./x "$DEMO"
    [[ $output == *"struct tu_session_options has size 0 (expected sizeof, "* ]]
    [[ $output == *"sets a field that tensorutils "* ]]
    [[ $output == *"9 tokens after 0, but the session has room for 8"* ]]
    [[ $output == *"tokens before went through 1 of "* ]]
}

@test "lib: the page's examples, as typed" {
    cp "$P"/share/tensorutils/examples/*.c .
    ln -s "$ROOT/demo" demo
    examples libtensorutils.3 >script
    if ! command -v pkg-config >/dev/null; then
        mkdir bin
        printf '#!/bin/sh\necho "%s"\n' "$(flags)" >bin/pkg-config
        chmod +x bin/pkg-config
        PATH=$PWD/bin:$PATH
    fi
    run -0 bash -euo pipefail script
    grep -q '^lm_head.weight\|^model.embed_tokens.weight' <<<"$output"
}
