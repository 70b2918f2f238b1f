# SPDX-License-Identifier: ISC
# Models, sessions, taps and tokenizers of the library: libtensorutils(3).
load helpers
load lib

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

# logits_and_points KIND..: of models with the names and layouts of these.
logits_and_points() {
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
    const struct tu_model_info *i = tu_model_info(m);
    printf("%s %zu %zu %zu %zu %zu %zu %zu\n", i->family, i->n_layers, i->hidden, i->intermediate, i->n_heads,
           i->n_kv_heads, i->head_dim, i->max_positions);
    vocab = i->vocab_size;
    y = run(n, 2);
    f = fopen("logits", "wb");
    fwrite(y, 4, n * vocab, f);
    fclose(f);
    pthread_create(&a, NULL, other, y);
    pthread_create(&b, NULL, other, y);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    for (int p = TU_RESID; p <= (!strcmp(argv[2], "experts") ? TU_IN_GATE_UP : TU_IN_DOWN); p++) {
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
    for kind in "$@"; do
        model=$kind
        case $kind in
        dense) model=$DEMO ;;
        experts) model=$ROOT/demo/qwen3-moe-tiny ;;
        *) py "$ROOT/test/ref/family_ref.py" make $kind $kind ;;
        esac
        py -c 'import numpy as np; np.random.default_rng(3).integers(0, 97, 41).astype("<i4").tofile("ids")'
        rm -f tap*
        ./x "$model" $kind >info
        case $kind in # their keys have other names, or are not there
        gpt2) [ "$(cat info)" = "gpt2 3 48 192 4 4 12 64" ] ;;
        gemma2) [ "$(cat info)" = "gemma2 4 40 88 4 2 16 64" ] ;;
        esac
        py - "$model" <<'END'
import numpy as np, os, sys, transformer, family_forward, family_read
ids = np.fromfile("ids", "<i4")
seen = {}
if os.path.exists(sys.argv[1] + "/ids"):
    places = {"layers": "resid", "attn": "attn", "mlp": "mlp", "in_qkv": "in:q_proj", "attn.hook_z": "in:o_proj",
              "in_mlp": "in:up_proj", "in_down": "in:down_proj"}
    every = {}
    z = family_forward.forward(family_read.read(sys.argv[1], len(ids))[0], ids, every)
    for name, rows in every.items():
        place, _, i = name.replace("layers.", "layers:").partition(":")
        if place in places:
            seen[places[place], int(i)] = rows
else:
    config, tensors = transformer.load(sys.argv[1])
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

@test "model: logits and every point of a layer are float64's, cut or whole, by any thread" {
    logits_and_points dense experts gpt2 gemma2
}

# bats test_tags=long
@test "model: logits and every point of layers of other families are float64's" {
    logits_and_points gpt_neox phi3 cohere2
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

@test "hooks: the points and layers that sae(5) says; a name that is none is refused" {
    refusals >x.c
    cat >>x.c <<'END'
int main(void)
{
    static const struct { const char *name; enum tu_point point; int64_t layer; } hooks[] = {
        { "embed_tokens", TU_EMBED, -1 },              { "blocks.0.hook_resid_pre", TU_RESID, -1 },
        { "blocks.3.hook_attn_out", TU_ATTN_OUT, 3 },  { "blocks.3.hook_mlp_out", TU_MLP_OUT, 3 },
        { "blocks.0.hook_resid_mid", TU_RESID_MID, 0 }, { "transformer.h.4.attn", TU_ATTN, 4 },
        { "model.layers.1", TU_RESID, 1 },             { "blocks.1.hook_resid_post", TU_RESID, 1 },
        { "layers.1.self_attn", TU_ATTN, 1 },          { "layers.12.mlp", TU_MLP, 12 },
        { "layers.1.self_attn.k_proj", TU_IN_QKV, 1 }, { "blocks.2.attn.hook_z", TU_IN_O, 2 },
        { "layers.1.mlp.up_proj", TU_IN_GATE_UP, 1 },  { "layers.0.mlp.down_proj", TU_IN_DOWN, 0 },
    };
    enum tu_point point;
    int64_t layer;

    for (size_t i = 0; i < sizeof(hooks) / sizeof(*hooks); i++) {
        yes(tu_hook(hooks[i].name, &point, &layer, &err));
        if (point != hooks[i].point || layer != hooks[i].layer)
            return puts(hooks[i].name), 1;
    }
    no(tu_hook("layers.1.mlp.sideways", &point, &layer, &err), TU_BAD_CALL);
    no(tu_hook("in:up_proj:1", &point, &layer, &err), TU_BAD_CALL);
    no(tu_hook(NULL, &point, &layer, &err), TU_BAD_CALL);
    no(tu_hook("layers.1", NULL, &layer, &err), TU_BAD_CALL);
    return 0;
}
END
    build x.c
    run -0 ./x
    [ "${lines[0]}" = '"layers.1.mlp.sideways" is not a hook point' ]
    [ "${lines[1]}" = '"in:up_proj:1" is not a hook point (expected layers.1.mlp.up_proj)' ]
}

@test "model: every wrong call is an error, and leaves the session as it was" {
    refusals >x.c
    cat >>x.c <<'END'
static struct tu_session *s;
static float y[1 << 16];
static void tap(void *ctx, int64_t layer, size_t first, size_t n, size_t dim, const float *rows)
{
    (void)layer, (void)first, (void)n, (void)dim, (void)rows;
    if (!ctx)
        return;
    no(tu_session_feed(s, (int32_t[]){ 1 }, 1, NULL, 0, &err), TU_BAD_CALL);
    no(tu_session_reset(s, &err), TU_BAD_CALL);
    if (ctx == y)
        tu_session_close(s);
}
int main(int argc, char **argv)
{
    struct tu_session_options o = { .size = sizeof(o), .max_tokens = 8 };
    struct { struct tu_session_options o; long more; } newer = { o, 0 };
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
    yes(tu_session_tap(s, TU_RESID, 0, tap, y, &err)); /* closes s inside: refused */
    no(tu_session_feed(s, ids, 2, NULL, 0, &err), TU_BAD_CALL);
    if (tu_session_count(s) != 4)
        return 3;
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
    [[ $output == *"tu_session_close: called by the session's tap"* ]]
}

@test "session: max_tokens selects LongRoPE's factors, and no text is longer than GPT-2's positions" {
    refusals >x.c
    cat >>x.c <<'END'
int main(int argc, char **argv)
{
    struct tu_session_options o = { .size = sizeof(o), .max_tokens = strtoul(argv[argc - 1], NULL, 10) };
    struct tu_session *s;
    struct tu_model *m;
    int32_t ids[12];
    size_t v;
    float *y;

    yes(tu_model_open(&m, argv[1], &err));
    v = tu_model_info(m)->vocab_size;
    if (tu_session_open(&s, m, &o, &err) < 0)
        return puts(err.what), err.status;
    for (int i = 0; i < 12; i++)
        ids[i] = 5 * i;
    y = malloc(12 * v * sizeof(*y));
    yes(tu_session_feed(s, ids, 12, y, 12 * v, &err));
    fwrite(y, sizeof(*y), 12 * v, stdout);
    return 0;
}
END
    build x.c
    for m in phi3:longrope gpt2; do
        py "$ROOT/test/ref/family_ref.py" make $m $m
    done
    ./x phi3:longrope 12 >12
    ./x phi3:longrope 64 >64
    ./x phi3:longrope 0 | cmp - 12
    py - <<'END'
import numpy as np, family_forward, family_read, family_ref
for file, n in ("12", 12), ("64", 64): # 16 is the original context
    want = family_forward.forward(family_read.read("phi3:longrope", n)[0], np.arange(12) * 5)
    got = np.fromfile(file, "<f4").reshape(want.shape)
    assert abs(got - want).max() < family_ref.tolerance(want), file
END
    run ! cmp -s 12 64
    run ! ./x gpt2 65
    [ "$output" = "max_tokens is 65, but the model's context 64" ]
}
