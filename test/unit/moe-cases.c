/* SPDX-License-Identifier: ISC */
/*
 * What the operator promises beside its numbers: the stack, threads, parts,
 * what it refuses, what it takes.
 */
#include "core/kernel/cpu.h"
#include "core/model/moe_operator.h"
#include "test/unit/moe-ref.h"

static struct spec usual = {
    "usual", 4, 2, 96, 200, 5, 60, ANY, 0, 0, 0, false
};

struct opened {
    struct data d;
    struct moe *moe;
    struct got a, b;
};

static struct opened
opened(struct spec s, enum moe_mode mode, size_t n_parts, int n_threads)
{
    struct opened o = { .d = data_new(s) };
    struct moe_config c = config_of(&s);
    struct err err;

    c.mode = mode;
    c.n_parts = n_parts;
    o.moe = open_moe(&o.d, &c, n_threads, &err);
    o.a = got_new(&s);
    o.b = got_new(&s);
    if (!o.moe) {
        printf("Bail out! %s\n", err.what);
        exit(1);
    }
    return o;
}

static void
closed(struct opened *o)
{
    moe_close(o->moe);
    got_free(&o->a);
    got_free(&o->b);
    data_free(&o->d);
}

static int
forward(struct opened *o, struct got *g, bool save, struct err *err)
{
    struct moe_batch batch = batch_of(&o->d);

    return moe_forward(o->moe, &batch, g->output, save, err);
}

static bool
equal_output(const struct opened *o)
{
    return !memcmp(o->a.output, o->b.output, o->d.s.qlen * o->d.s.hidden * 4);
}

/* ---- bits ---- */

static void
test_threads(enum moe_mode mode, size_t n_parts)
{
    struct opened o = opened(usual, mode, n_parts, 1);
    static const int threads[] = { 2, 3, 7 };

    run_once(&o.d, mode, n_parts, 1, &o.a);
    for (size_t i = 0; i < 3; i++) {
        run_once(&o.d, mode, n_parts, threads[i], &o.b);
        tap_ok(equal_got(&o.d.s, &o.a, &o.b),
               "%s, %zu parts: the same bits for 1 and %d threads",
               mode == MOE_INT8 ? "int8" : "bf16", n_parts, threads[i]);
    }
    closed(&o);
}

/* A block's end is no sum's end: 600 rows of one expert. */
static void
test_blocks(void)
{
    struct spec s = { "600 tokens", 2, 2, 40, 30, 3, 600, ANY, 0, 0, 0, PLAIN };
    struct opened o = opened(s, MOE_BF16, 1, 2);
    struct ref ref;

    for (size_t i = 0; i < s.qlen * s.top_k; i++)
        o.d.ids[i] = 1;
    ref = ref_new(&o.d);
    run_once(&o.d, MOE_BF16, 1, 2, &o.a);
    judge(&o.d, &ref, &o.a, ", one expert twice in each", 0.01, 0.015);
    ref_free(&ref);
    closed(&o);
}

/* ---- the stack ---- */

static void
test_stack(void)
{
    struct opened o = opened(usual, MOE_BF16, 1, 1);
    struct err err = { 0 };
    struct moe_cache cache;

    tap_ok(backward(o.moe, &o.d, &o.a, &err) < 0 && err.status == EX_DATAERR,
           "a backward without a forward is refused: %s", err.what);
    tap_ok(forward(&o, &o.a, false, &err) == 0 && o.moe->depth == 0 &&
               moe_cache_top(o.moe, &cache, &err) < 0,
           "a forward that is not saved leaves the stack empty");
    forward(&o, &o.a, true, &err);
    forward(&o, &o.b, true, &err);
    tap_ok(equal_output(&o), "saved or not, forward gives the same");
    tap_ok(forward(&o, &o.b, true, &err) < 0 && o.moe->depth == 2,
           "a third forward in a stack of two is refused: %s", err.what);
    tap_ok(forward(&o, &o.b, false, &err) == 0,
           "one that is not saved still runs");
    tap_ok(backward(o.moe, &o.d, &o.a, &err) == 0 &&
               backward(o.moe, &o.d, &o.b, &err) == 0,
           "two backwards take both");
    tap_ok(equal_got(&o.d.s, &o.a, &o.b),
           "gradients are overwritten, not added");
    tap_ok(backward(o.moe, &o.d, &o.b, &err) < 0, "a third is refused");
    closed(&o);
}

/* The last forward is the first that backward takes. */
static void
test_order(void)
{
    struct opened o = opened(usual, MOE_BF16, 1, 2), p;
    struct err err;

    p = opened(usual, MOE_BF16, 1, 2); /* other numbers */
    run_both(p.moe, &o.d, &p.b, &err); /* o's through the base of p */
    run_both(p.moe, &p.d, &p.a, &err);
    forward(&p, &o.a, true, &err);
    moe_forward(
        p.moe,
        &(struct moe_batch){ usual.qlen, o.d.ids, o.d.weights, o.d.input },
        o.b.output, true, &err);
    backward(p.moe, &o.d, &o.b, &err);
    backward(p.moe, &p.d, &o.a, &err);
    tap_ok(equal_got(&usual, &o.b, &p.b) && equal_got(&usual, &o.a, &p.a),
           "the stack gives back the last forward first");
    closed(&o);
    closed(&p);
}

/* A cache that was looked at and pushed into another operator, of parts. */
static void
test_push(size_t n_parts)
{
    struct opened o = opened(usual, MOE_BF16, 1, 2);
    struct moe_config c = config_of(&usual);
    struct moe_cache cache;
    struct moe *other;
    struct err err = { 0 };

    c.n_parts = n_parts;
    other = open_moe(&o.d, &c, 1, &err);
    forward(&o, &o.a, true, &err);
    forward(&o, &o.b, false, &err);
    tap_ok(moe_cache_top(o.moe, &cache, &err) == 0 &&
               moe_cache_push(other, &cache, &err) == 0,
           "a cache goes to an operator of %zu parts", n_parts);
    backward(o.moe, &o.d, &o.a, &err);
    backward(other, &o.d, &o.b, &err);
    if (n_parts == 1)
        tap_ok(equal_got(&usual, &o.a, &o.b), "whose backward is the same");
    cache.n_rows--;
    tap_ok(moe_cache_push(other, &cache, &err) < 0,
           "rows that are no slots are refused: %s", err.what);
    moe_close(other);
    closed(&o);
}

/* An operator for backward alone has no weights packed for forward. */
static void
test_backward_only(enum moe_mode mode, size_t n_parts)
{
    struct opened o = opened(usual, mode, n_parts, 2);
    struct moe_config c = *moe_config(o.moe);
    struct moe_memory all = { 0 }, less = { 0 };
    struct moe_cache cache;
    struct moe_batch batch = batch_of(&o.d);
    struct moe *other;
    struct err err = { 0 };

    moe_memory(&c, 2, &all, &err);
    c.backward_only = true;
    moe_memory(&c, 2, &less, &err);
    tap_ok(less.base <= (mode == MOE_BF16 ? 0 : all.base * 51 / 100),
           "backward only, %zu parts: %zu bytes of weights instead of %zu",
           n_parts, less.base, all.base);
    other = open_moe(&o.d, &c, 2, &err);
    tap_ok(moe_forward(other, &batch, o.b.output, true, &err) < 0 &&
               err.status == EX_DATAERR && moe_warm_up(other, &err) == 0,
           "it refuses a forward");
    forward(&o, &o.a, true, &err);
    forward(&o, &o.b, false, &err);
    moe_cache_top(o.moe, &cache, &err);
    moe_cache_push(other, &cache, &err);
    backward(o.moe, &o.d, &o.a, &err);
    backward(other, &o.d, &o.b, &err);
    tap_ok(equal_got(&usual, &o.a, &o.b), "its backward has the same bits");
    moe_close(other);
    closed(&o);
}

/* ---- tokens and ids ---- */

static void
test_qlen(void)
{
    struct opened o = opened(usual, MOE_BF16, 1, 2);
    struct moe_batch batch = batch_of(&o.d);
    struct err err = { 0 };
    float zero = 0, old = o.a.output[0];
    size_t n_bad = 0;

    batch.qlen++;
    tap_ok(moe_forward(o.moe, &batch, o.a.output, true, &err) < 0 &&
               o.moe->depth == 0 && !memcmp(&o.a.output[0], &old, sizeof(old)),
           "more tokens than max_len are refused: %s", err.what);
    batch = (struct moe_batch){ 0 };
    o.d.s.qlen = 0;
    tap_ok(moe_forward(o.moe, &batch, NULL, true, &err) == 0 &&
               backward(o.moe, &o.d, &o.a, &err) == 0,
           "no token is a batch");
    for (size_t m = 0; m < MOE_N_LORA; m++)
        for (size_t i = 0; i < usual.n_experts * lora_size(&usual, m); i++)
            n_bad += memcmp(&o.a.lora[m][i], &zero, sizeof(zero)) != 0;
    tap_ok(n_bad == 0, "whose gradients are 0");
    o.d.s.qlen = usual.qlen;
    closed(&o);
}

static void
test_ids(void)
{
    struct spec s = usual;
    struct opened o;
    struct moe_config c;
    struct moe *strict;
    size_t n_bad = 0;
    struct err err = { 0 };
    struct moe_batch batch;

    s.routing = BAD;
    o = opened(s, MOE_BF16, 1, 1);
    c = config_of(&s);
    c.strict_ids = true;
    strict = open_moe(&o.d, &c, 1, &err);
    batch = batch_of(&o.d);
    for (size_t i = 0; i < s.qlen * s.top_k; i++)
        n_bad += !is_expert(&o.d, i);
    forward(&o, &o.a, false, &err);
    tap_ok(n_bad > 0 && moe_skipped(o.moe) == n_bad,
           "%zu slots of no expert are skipped and counted", n_bad);
    tap_ok(moe_forward(strict, &batch, o.b.output, true, &err) < 0 &&
               strict->depth == 0,
           "strict_ids refuses them: %s", err.what);
    moe_close(strict);
    closed(&o);
}

static bool
all_finite(const float *x, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= isfinite(x[i]) != 0;
    return finite;
}

static bool
any_finite(const float *x, size_t n)
{
    bool finite = false;

    for (size_t i = 0; i < n; i++)
        finite |= isfinite(x[i]) != 0;
    return finite;
}

/* One number of the first or last token that is none: the others have the bits
 * that they have without it, be it another one or not there at all. */
static void
test_not_finite(enum moe_mode mode, bool first, uint16_t number)
{
    struct opened o = opened(usual, mode, 1 + 2 * first, 2);
    size_t h = usual.hidden, k = usual.top_k, n = usual.qlen - 1;
    size_t from = first ? 1 : 0, bad = first ? 0 : n;
    struct moe_batch others = { n, o.d.ids + from * k, o.d.weights + from * k,
                                o.d.input + from * h };
    const float *was = o.a.output + from * h, *is = o.b.output + from * h;
    struct err err = { 0 };

    forward(&o, &o.a, false, &err);
    o.d.input[bad * h + 7] = number;
    forward(&o, &o.b, false, &err);
    tap_ok(all_finite(o.a.output, usual.qlen * h) &&
               !any_finite(o.b.output + bad * h, h),
           "%s: a %s token with a number of bits %04x has none in its output",
           mode == MOE_INT8 ? "int8" : "bf16", first ? "first" : "last",
           number);
    tap_ok(!memcmp(was, is, n * h * 4),
           "the others have the bits that they have beside another one");
    moe_forward(o.moe, &others, o.a.output, false, &err);
    tap_ok(!memcmp(o.a.output, is, n * h * 4), "and those they have alone");
    closed(&o);
}

static void
test_idle(void)
{
    struct spec s = usual;
    struct opened o;
    size_t n_bad = 0;

    s.routing = SKEWED;
    o = opened(s, MOE_INT8, 3, 2);
    run_once(&o.d, MOE_INT8, 3, 2, &o.a);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        for (size_t n = lora_size(&s, m), i = 3 * n; i < 4 * n; i++)
            n_bad += f32_bits(o.a.lora[m][i]) != 0;
    tap_ok(n_bad == 0, "the gradients of an idle expert are exactly 0");
    closed(&o);
}

/* ---- the adapter ---- */

/* Changes the signs of the three A (0) or B (1), and nothing else. */
static void
negate(struct opened *o, size_t which)
{
    for (size_t m = which; m < MOE_N_LORA; m += 2)
        for (size_t i = 0; i < usual.n_experts * lora_size(&usual, m); i++)
            o->d.lora[m][i] ^= le16(&(uint16_t){ 0x8000 });
}

static void
test_lora(size_t n_parts, size_t which)
{
    struct opened o = opened(usual, MOE_BF16, n_parts, 2);
    struct moe_lora lora;
    struct err err = { 0 };
    struct got c = got_new(&usual);

    for (size_t m = 0; m < MOE_N_LORA; m++)
        lora.m[m] = o.d.lora[m];
    forward(&o, &o.a, true, &err);
    negate(&o, which);
    if (n_parts > 1)
        moe_update_lora(o.moe, &lora, &err);
    forward(&o, &o.b, false, &err);
    tap_ok(!equal_output(&o),
           "%zu parts: new numbers of %c show in the next forward", n_parts,
           "AB"[which]);
    run_once(&o.d, MOE_BF16, n_parts, 2, &c);
    tap_ok(!memcmp(o.b.output, c.output, usual.qlen * usual.hidden * 4),
           "%zu parts: as a new operator has them", n_parts);
    got_free(&c);
    closed(&o);
}

/* B = 0: what training starts with. */
static void
test_zero_b(void)
{
    struct opened o = opened(usual, MOE_BF16, 1, 2);
    struct ref ref;

    for (size_t m = 1; m < MOE_N_LORA; m += 2)
        memset(o.d.lora[m], 0, usual.n_experts * lora_size(&usual, m) * 2);
    ref = ref_new(&o.d);
    run_once(&o.d, MOE_BF16, 1, 2, &o.a);
    judge(&o.d, &ref, &o.a, ", B = 0", 0.01, 0.015);
    ref_free(&ref);
    closed(&o);
}

static void
test_bf16_grads(void)
{
    struct opened o = opened(usual, MOE_BF16, 1, 2);
    struct moe_grads grads = { .lora_dtype = DT_BF16 };
    struct err err = { 0 };
    bool good = true;

    run_both(o.moe, &o.d, &o.a, &err);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        grads.lora[m] = o.b.lora[m];
    grads.lora[MOE_UP_A] = NULL;
    forward(&o, &o.b, true, &err);
    good = moe_backward(o.moe, o.d.grad, &grads, &err) == 0;
    for (size_t m = 0; m < MOE_N_LORA; m++)
        for (size_t i = 0; i < usual.n_experts * lora_size(&usual, m); i++)
            good &= m == MOE_UP_A || le16((uint16_t *)grads.lora[m] + i) ==
                                         f32_to_bf16(o.a.lora[m][i]);
    tap_ok(good, "bf16 gradients are the f32 ones, rounded; NULLs are left");
    closed(&o);
}

/* ---- memory ---- */

/* What the operator has allocated, in bytes. */
static size_t
allocated(const struct moe *moe, int n_threads)
{
    size_t n = moe->scratch.nbytes + gemm_workspace(n_threads);

    for (size_t i = 0; i < moe->config.n_parts; i++)
        n += moe->parts[i].scratch.nbytes;
    for (size_t e = 0; e < moe->config.n_experts; e++)
        for (size_t i = 0; i < moe->config.n_parts; i++)
            n += moe->parts[i].weights[e].nbytes;
    for (size_t i = 0; i < moe->config.max_cache_depth; i++)
        n += moe->saved[i].memory.nbytes;
    return n;
}

static void
test_memory(enum moe_mode mode, size_t n_parts, size_t qlen)
{
    struct spec s = usual;
    struct opened o;
    struct moe_memory m = { 0 };
    struct err err;

    s.qlen = qlen;
    o = opened(s, mode, n_parts, 3);
    moe_memory(moe_config(o.moe), 3, &m, &err);
    tap_ok(m.total > 0 && allocated(o.moe, 3) == m.scratch &&
               moe_pack(o.moe, true, &err) == 0 &&
               allocated(o.moe, 3) == m.base + m.scratch,
           "%zu parts: %zu bytes were named and are allocated", n_parts,
           m.base + m.scratch);
    forward(&o, &o.a, true, &err);
    forward(&o, &o.a, true, &err);
    tap_ok(allocated(o.moe, 3) == m.base + m.scratch + m.cache &&
               m.cache == 2 * m.slot,
           "with two caches, %zu", m.base + m.scratch + m.cache);
    tap_ok(m.total == m.base + m.scratch + m.cache + m.load,
           "with what quantizing takes, that is the total, %zu", m.total);
    closed(&o);
}

static void
test_origin(void)
{
    struct moe_config deepseek = { .n_experts = 256,
                                   .top_k = 8,
                                   .hidden = 7168,
                                   .intermediate = 2048,
                                   .lora_rank = 16,
                                   .lora_alpha = 32,
                                   .max_len = 25600,
                                   .max_cache_depth = 1,
                                   .n_parts = 1 };
    struct moe_memory m = { 0 };
    struct err err;
    /* 25600 (7168 + 3 8 2048) 2 */
    size_t origin = 2883584000u;

    moe_memory(&deepseek, 64, &m, &err);
    tap_ok(m.origin_slot == origin && m.slot < origin * 3 / 4,
           "DeepSeek-V3: a cache of %zu bytes, the origin's has %zu", m.slot,
           m.origin_slot);
    deepseek.max_len = SIZE_MAX / 4;
    tap_ok(moe_memory(&deepseek, 1, &m, &err) < 0 && err.status == EX_DATAERR,
           "too many rows: %s", err.what);
    deepseek.max_len = 1 << 20;
    deepseek.hidden = SIZE_MAX / 100;
    tap_ok(moe_memory(&deepseek, 1, &m, &err) < 0 && err.status == EX_DATAERR,
           "too many bytes: %s", err.what);
}

static void
test_config(void)
{
    struct moe_config c = config_of(&usual);
    struct moe *moe;
    struct err err = { 0 };

    c.n_parts = c.intermediate + 1;
    tap_ok(moe_open(&moe, &c, 1, &err) < 0 && !moe, "too many parts: %s",
           err.what);
    c = config_of(&usual);
    c.lora_rank = 0;
    tap_ok(moe_open(&moe, &c, 1, &err) < 0, "a size of 0: %s", err.what);
    c = config_of(&usual);
    c.lora_alpha = NAN;
    tap_ok(moe_open(&moe, &c, 1, &err) < 0, "alpha: %s", err.what);
    c = config_of(&usual);
    c.mode = MOE_INT8;
    c.intermediate = GEMM_INT8_MAX_K + 1;
    tap_ok(moe_open(&moe, &c, 1, &err) < 0, "int8's sums: %s", err.what);
    c = config_of(&usual);
    tap_ok(moe_open(&moe, &c, 1, &err) == 0 &&
               moe_forward(moe, &(struct moe_batch){ 0 }, NULL, false, &err) <
                   0,
           "nothing loaded: %s", err.what);
    moe_close(moe);
    moe_close(NULL);
}

static size_t
n_packed(const struct moe *moe)
{
    size_t n = 0;

    for (size_t e = 0; e < moe->config.n_experts; e++)
        n += moe->is_packed[e];
    return n;
}

/* Weights of an expert that gets no rows may be a hole that nobody can read. */
static void
test_holes(enum moe_mode mode, size_t n_parts)
{
    struct spec s = usual;
    struct opened o;
    struct weight w[N_BASE * 4];
    struct moe_base base = { .gate = w, .up = w + 4, .down = w + 8 };
    size_t n_with = 0; /* rows */
    struct err err;

    s.routing = SKEWED; /* none to the last */
    o = opened(s, mode, n_parts, 2);
    for (int64_t e = 0; e < 4; e++) {
        size_t i = 0;

        while (i < s.qlen * s.top_k && o.d.ids[i] != e)
            i++;
        n_with += i < s.qlen * s.top_k;
    }
    run_both(o.moe, &o.d, &o.a, &err);
    matrices_of(&o.d, w, 4);
    for (size_t i = 3; i < N_BASE * 4; i += 4)
        w[i].data = NULL;
    tap_ok(moe_load(o.moe, &base, &err) == 0 && n_packed(o.moe) == 0 &&
               run_both(o.moe, &o.d, &o.b, &err) == 0 &&
               n_packed(o.moe) == n_with && n_with < 4,
           "%zu parts: experts with rows are packed, others not read", n_parts);
    tap_ok(equal_got(&s, &o.a, &o.b), "to the same bits");
    closed(&o);
}

static void
test_warm_up(void)
{
    struct opened o = opened(usual, MOE_INT8, 2, 2);
    struct err err = { 0 };

    tap_ok(moe_warm_up(o.moe, &err) == 0 && o.moe->depth == 0 &&
               n_packed(o.moe) == 4,
           "warm_up packs all experts and leaves the stack as it was");
    run_both(o.moe, &o.d, &o.a, &err);
    run_once(&o.d, MOE_INT8, 2, 2, &o.b);
    tap_ok(equal_got(&usual, &o.a, &o.b), "and changes no result");
    closed(&o);
}

int
main(void)
{
    printf("# %s\n", isa_name(cpu_isa()));
    if (tap_slow())
        usual.qlen = 12;
    for (enum moe_mode mode = MOE_BF16; mode <= MOE_INT8; mode++)
        for (size_t n_parts = 1; n_parts <= 3; n_parts += 2)
            test_threads(mode, n_parts);
    test_blocks();
    test_stack();
    test_order();
    test_push(1);
    test_push(3);
    for (enum moe_mode mode = MOE_BF16; mode <= MOE_INT8; mode++)
        for (size_t n_parts = 1; n_parts <= 3; n_parts += 2)
            test_backward_only(mode, n_parts);
    test_qlen();
    test_ids();
    for (enum moe_mode mode = MOE_BF16; mode <= MOE_INT8; mode++)
        for (int first = 0; first < 2; first++) {
            test_not_finite(mode, first, le16(&(uint16_t){ 0x7fc0 })); /* nan */
            test_not_finite(mode, first, le16(&(uint16_t){ 0x7f80 })); /* inf */
            test_not_finite(mode, first, le16(&(uint16_t){ 0xff80 }));
        }
    test_idle();
    for (size_t n_parts = 1; n_parts <= 2; n_parts++)
        for (size_t which = 0; which < 2; which++)
            test_lora(n_parts, which);
    test_zero_b();
    test_bf16_grads();
    test_memory(MOE_BF16, 1, 60);
    test_memory(MOE_INT8, 3, 60);
    test_memory(MOE_INT8, 3, 1);
    test_origin();
    test_config();
    test_warm_up();
    for (enum moe_mode mode = MOE_BF16; mode <= MOE_INT8; mode++)
        for (size_t n_parts = 1; n_parts <= 3; n_parts += 2)
            test_holes(mode, n_parts);
    return tap_done();
}
