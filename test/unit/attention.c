/* SPDX-License-Identifier: ISC */
/*
 * Attention and its log-sum-exp against their formulas in f64, for any window
 * and cut, exact and in bf16, where queries and weights are rounded; a number
 * that is not finite reaches those who see it, and nobody else.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/engine.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

static bool bf16;

/* What is not finite, of KV head 0 at BAD. */
enum bad { NONE, VALUE, KEY, N_BAD };
static const char *const with[] = { "", ", an infinite value", ", a NaN key" };

/* A query head's KV head is its number / GROUP. */
enum { N = 150, HEADS = 6, KV_HEADS = 2, GROUP = 3, BAD = 70 };
enum { DIM = 10, V_DIM = 67 }; /* of keys, and of values: a panel and a part */

static float q[N][HEADS][DIM], k[N][KV_HEADS][DIM];
static float v[N][KV_HEADS][V_DIM];

/* bf16 holds them all. */
static void
fill(float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = bf16_to_f32(f32_to_bf16(4 * rnd()));
}

static bool
sees_bad(enum bad bad, size_t p, size_t head, size_t window)
{
    return bad && head < GROUP && p >= BAD && (window == 0 || p - BAD < window);
}

static const float scale = 0.3f;
static float softcap;

/* Below all scores, among them and above them. */
static const float sinks[HEADS] = { -60, -2, 3.5f, 0, 12, 60 };
static bool sinking;

static bool both_ways;

static double
scaled(float x)
{
    return bf16 ? (double)bf16_to_f32(f32_to_bf16(x * scale))
                : (double)x * (double)scale;
}

static double
score(size_t p, size_t head, size_t key)
{
    double sum = 0;

    for (size_t i = 0; i < DIM; i++)
        sum += scaled(q[p][head][i]) * (double)k[key][head / GROUP][i];
    return softcap > 0 ? (double)softcap * tanh(sum / (double)softcap) : sum;
}

static size_t
first_key(size_t p, size_t window)
{
    return window && p >= window ? p - window + 1 : 0;
}

static size_t
last_key(size_t p)
{
    return both_ways ? N - 1 : p;
}

/* What a query's head gives each key that it sees, in w, and in all. */
static double
weigh(size_t p, size_t head, size_t window, double w[N])
{
    double total = sinking ? exp((double)sinks[head] - 40) : 0;

    for (size_t key = first_key(p, window); key <= last_key(p); key++) {
        w[key] = exp(score(p, head, key) - 40);
        total += w[key];
    }
    return total;
}

static double
expected(size_t p, size_t head, size_t i, size_t window, const double w[N])
{
    double sum = 0;

    for (size_t key = first_key(p, window); key <= last_key(p); key++)
        sum += w[key] * (double)v[key][head / GROUP][i];
    return sum;
}

/* The queries from 'begin' on, 'step' of them a call. */
static void
run_from(struct session *s, size_t begin, size_t window, size_t step,
         float *out, float *lse)
{
    static _Alignas(64) float scratch[1 << 18];
    const struct config config = { .n_heads = HEADS,
                                   .n_kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .v_head_dim = V_DIM };

    if (attention_scratch(&config, true) > sizeof(scratch) / sizeof(*scratch))
        abort();
    for (size_t at = begin; at < N; at += step) {
        size_t n = N - at < step ? N - at : step;
        const struct span span = {
            .session = s, .n = n, .first = at, .slot = at
        };
        const struct attention a = {
            .n_heads = HEADS,
            .n_kv_heads = KV_HEADS,
            .head_dim = DIM,
            .v_head_dim = V_DIM,
            .scale = scale,
            .softcap = softcap,
            .window = window,
            .sinks = sinking ? sinks : NULL,
            .both_ways = both_ways,
            .spans = &span,
            .n_spans = 1,
            .q = q[at][0],
            .out = out + at * HEADS * V_DIM,
            .lse = lse ? lse + at * HEADS : NULL,
            .bf16 = bf16,
            .scratch = scratch,
        };

        attention_run(NULL, &a);
    }
}

static void
run(struct session *s, size_t window, size_t step, float *out, float *lse)
{
    run_from(s, 0, window, step, out, lse);
}

static void
test_window(struct session *s, size_t window, enum bad bad)
{
    static float out[N * HEADS * V_DIM], cut[N * HEADS * V_DIM];
    static float lse[N * HEADS], lse_cut[N * HEADS];
    const char *form = bf16 && sinking ? " in bf16 with sinks"
                       : bf16          ? " in bf16"
                       : sinking       ? " with sinks"
                       : softcap > 0   ? " capped"
                                       : "";
    bool near = true, apart = true, same = true, near_lse = true;
    double w[N];

    run(s, window, 1, out, lse);
    for (size_t p = 0, at = 0; p < N; p++)
        for (size_t head = 0; head < HEADS; head++) {
            double total = weigh(p, head, window, w);
            float sum = lse[p * HEADS + head];
            bool sees = sees_bad(bad, p, head, window);

            near_lse &= bad == KEY && sees
                            ? isnan(sum)
                            : fabs((double)sum - log(total) - 40) < 1e-5;
            for (size_t i = 0; i < V_DIM; i++, at++)
                if (sees && (bad == KEY || i == 3))
                    apart &= !isfinite(out[at]);
                else
                    near &= fabs((double)out[at] -
                                 expected(p, head, i, window, w) / total) <
                            (bf16 ? 0x1p-9 * 4 * 2 : 2e-5);
        }
    for (size_t step = tap_few() ? 14 : 2; step <= N; step = step * 3 - 1) {
        run(s, window, step, cut, step % 2 ? NULL : lse_cut);
        if (step % 2 == 0)
            same &= !memcmp(lse, lse_cut, sizeof(lse));
        for (size_t at = 0; at < N * HEADS * V_DIM; at++)
            same &= f32_bits(out[at]) == f32_bits(cut[at]);
    }
    tap_ok(near,
           "attention %s%s, window %zu%s: who sees finite values is near "
           "the f64 formula",
           dtype_table[s->kv.dtype].name, form, window, with[bad]);
    tap_ok(near_lse,
           "attention %s%s, window %zu%s: log-sum-exp is near the f64 formula",
           dtype_table[s->kv.dtype].name, form, window, with[bad]);
    if (bad)
        tap_ok(apart, "attention %s%s, window %zu%s: who sees it has it",
               dtype_table[s->kv.dtype].name, form, window, with[bad]);
    tap_ok(same, "attention %s%s, window %zu%s: the same bits for any cut",
           dtype_table[s->kv.dtype].name, form, window, with[bad]);
}

/* A query that sees all keys is as a causal one in the last slot. */
static void
test_both_ways(struct session *s, enum bad bad)
{
    static float out[N * HEADS * V_DIM], last[N * HEADS * V_DIM];
    static float lse[N * HEADS];
    const char *form = bf16 ? " in bf16" : "";
    bool near = true, same = true;
    static float kept[N][HEADS][DIM];
    double w[N];

    both_ways = true;
    run(s, 0, N, out, lse);
    for (size_t p = 0, at = 0; p < N; p++)
        for (size_t head = 0; head < HEADS; head++) {
            double total = weigh(p, head, 0, w);

            for (size_t i = 0; i < V_DIM; i++, at++)
                near &= bad && head < GROUP && (bad == KEY || i == 3)
                            ? !isfinite(out[at])
                            : fabs((double)out[at] -
                                   expected(p, head, i, 0, w) / total) <
                                  (bf16 ? 0x1p-9 * 4 * 2 : 2e-5);
        }
    tap_ok(near, "attention %s%s, both ways%s: is near the f64 formula",
           dtype_table[s->kv.dtype].name, form, with[bad]);
    both_ways = false;
    memcpy(kept, q, sizeof(q));
    for (size_t p = 0; p < N; p++) {
        memcpy(q[N - 1], kept[p], sizeof(q[0]));
        run_from(s, N - 1, 0, 1, last, NULL);
        for (size_t i = 0; i < (size_t)HEADS * V_DIM; i++)
            same &= f32_bits(last[(N - 1) * HEADS * V_DIM + i]) ==
                    f32_bits(out[p * HEADS * V_DIM + i]);
    }
    memcpy(q, kept, sizeof(q));
    tap_ok(same,
           "attention %s%s, both ways%s: the bits of a causal query after "
           "all keys",
           dtype_table[s->kv.dtype].name, form, with[bad]);
}

static void
test_dtype(enum dtype dtype, enum bad bad)
{
    static const size_t windows[] = { 0, 1, 100, 5, 64 };
    struct session s = { .kv = { .n_layers = 1,
                                 .n_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .v_head_dim = V_DIM,
                                 .dtype = dtype } };
    struct err err;

    if (kv_grow(&s.kv, 0, N, &err) < 0)
        abort();
    /* what was never put */
    for (size_t b = 0; b < s.kv.n_blocks; b++)
        memset(s.kv.blocks[b], 0xff, kv_block_nbytes(&s.kv));
    v[BAD][0][3] = bad == VALUE ? -INFINITY : 1;
    k[BAD][0][3] = bad == KEY ? NAN : 1;
    for (size_t p = 0; p < N; p++)
        for (size_t j = 0; j < KV_HEADS; j++)
            kv_set(&s.kv, 0, j, p, 1, k[p][j], v[p][j]);
    for (size_t i = tap_few() && bad ? 3 : 0;
         i < sizeof(windows) / sizeof(*windows); i++)
        test_window(&s, windows[i], bad);
    if (softcap <= 0)
        test_both_ways(&s, bad);
    kv_free(&s.kv);
}

int
main(void)
{
    fill(q[0][0], sizeof(q) / sizeof(float));
    fill(k[0][0], sizeof(k) / sizeof(float));
    fill(v[0][0], sizeof(v) / sizeof(float));
    for (enum bad bad = NONE; bad < N_BAD; bad++) {
        bf16 = false;
        test_dtype(DT_F32, bad);
        test_dtype(DT_BF16, bad);
        softcap = 4; /* scores are up to 40 */
        test_dtype(DT_F32, bad);
        softcap = 0;
        bf16 = true;
        test_dtype(DT_F32, bad);
        test_dtype(DT_BF16, bad);
        sinking = true;
        test_dtype(DT_F32, bad);
        bf16 = false;
        test_dtype(DT_F32, bad);
        sinking = false;
    }
    return tap_done();
}
