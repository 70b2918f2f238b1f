/* SPDX-License-Identifier: ISC */
/*
 * Attention's backward against its formulas in f64, of two sequences, for any
 * window, exact and with operands rounded to bf16; the same bits for any number
 * of threads.
 */
#include "core/model/attention_backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

/* Sequences of FIRST and N - FIRST tokens; a query head's KV head is its
 * number / GROUP.  Keys are a panel and a part, of no whole vectors, values two
 * of them. */
enum { N = 220, FIRST = 70, HEADS = 8, KV_HEADS = 4, GROUP = 2 };
enum { DIM = 74, V_DIM = 130 };
enum { BLOCKS = 5, MAX_THREADS = 5 };
static const float scale = 0.1f;
static float softcap;
static const float *sinks; /* [HEADS], or NULL */

static float q[N][HEADS][DIM], k[N][KV_HEADS][DIM];
static float v[N][KV_HEADS][V_DIM], lse[N][HEADS];
static float dout[N][HEADS][V_DIM], out[N][HEADS][V_DIM];

/* What it gives. */
struct result {
    float dq[N][HEADS][DIM], dk[N][KV_HEADS][DIM], dv[N][KV_HEADS][V_DIM];
};

struct result_f64 {
    double dq[N][HEADS][DIM], dk[N][KV_HEADS][DIM], dv[N][KV_HEADS][V_DIM];
};

static void
fill(float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = 2 * rnd();
}

/* An operand. */
static double
operand(double x, bool bf16)
{
    return bf16 ? (double)bf16_to_f32(f32_to_bf16((float)x)) : x;
}

static double
dot(const float *a, const float *b, size_t n, bool bf16)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += operand((double)a[i], bf16) * operand((double)b[i], bf16);
    return sum;
}

/* The sum of dout * out, where out is summed by blocks of keys, whose weights
 * are rounded as they are then: against the largest score so far. */
static double
delta_of(size_t p, size_t head, size_t first, size_t oldest,
         const double score[N], bool bf16)
{
    double max = sinks ? (double)sinks[head] : -INFINITY;
    double total = sinks != NULL, sum[V_DIM] = { 0 }, delta = 0;

    for (size_t i = oldest; i <= p;) {
        size_t end = first + ((i - first) / KV_BLOCK + 1) * KV_BLOCK;
        double was = max;

        end = end < p + 1 ? end : p + 1;
        for (size_t j = i; j < end; j++)
            max = fmax(max, score[j]);
        total *= exp(was - max);
        for (size_t d = 0; d < V_DIM; d++)
            sum[d] *= exp(was - max);
        for (; i < end; i++) {
            double w = exp(score[i] - max);

            total += w;
            for (size_t d = 0; d < V_DIM; d++)
                sum[d] += operand(w, bf16) *
                          operand((double)v[i][head / GROUP][d], bf16);
        }
    }
    for (size_t d = 0; d < V_DIM; d++)
        delta += (double)dout[p][head][d] * sum[d] / total;
    return delta;
}

/* One query: its softmax, and what flows back through it. */
static void
query_back(struct result_f64 *want, size_t p, size_t head, size_t window,
           bool bf16)
{
    size_t first = p < FIRST ? 0 : FIRST, oldest = first, kv = head / GROUP;
    double score[N], total = sinks ? exp((double)sinks[head]) : 0, delta;
    float scaled[DIM];

    if (window && p - first >= window)
        oldest = p - window + 1;
    for (size_t d = 0; d < DIM; d++)
        scaled[d] = q[p][head][d] * scale;
    for (size_t i = oldest; i <= p; i++) {
        score[i] = dot(scaled, k[i][kv], DIM, bf16);
        if (softcap > 0)
            score[i] = (double)softcap * tanh(score[i] / (double)softcap);
        total += exp(score[i]);
    }
    delta = delta_of(p, head, first, oldest, score, bf16);
    for (size_t i = oldest; i <= p; i++) {
        double weight = exp(score[i]) / total;
        double ds =
            weight * (dot(dout[p][head], v[i][kv], V_DIM, bf16) - delta);

        if (softcap > 0)
            ds *= 1 - pow(score[i] / (double)softcap, 2);
        weight = operand(weight, bf16);
        ds = operand(ds, bf16);
        for (size_t d = 0; d < V_DIM; d++)
            want->dv[i][kv][d] +=
                weight * operand((double)dout[p][head][d], bf16);
        for (size_t d = 0; d < DIM; d++) {
            want->dq[p][head][d] +=
                ds * operand((double)k[i][kv][d], bf16) * (double)scale;
            want->dk[i][kv][d] += ds * operand((double)scaled[d], bf16);
        }
    }
}

/* Of all numbers, and the largest of any; as a part of the whole. */
struct distance {
    double worst, all;
};

static struct distance
distance(const struct result *got, const struct result_f64 *want)
{
    const float *a = got->dq[0][0];
    const double *b = want->dq[0][0];
    struct distance to = { 0 };
    double whole = 0;

    for (size_t i = 0; i < sizeof(*got) / sizeof(float); i++) {
        double by = (double)a[i] - b[i];

        to.worst = fmax(to.worst, fabs(by));
        to.all += by * by;
        whole += b[i] * b[i];
    }
    to.all = sqrt(to.all / whole);
    return to;
}

static void
run(struct session *s, size_t window, bool bf16, int threads, struct result *r)
{
    static float delta[N * HEADS], scaled[N * HEADS * DIM];
    const struct config config = { .n_heads = HEADS,
                                   .n_kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .v_head_dim = V_DIM };
    struct attention_sizes sizes = attention_sizes(DIM, V_DIM, bf16);
    size_t n = attention_scratch(&config, bf16), nbytes;
    float *scratch;
    unsigned char *queries, *keys, *tiles;
    const struct mem_array arrays[] = {
        { &scratch, (size_t)threads, n, sizeof(float) },
        { &queries, BLOCKS * HEADS, sizes.queries, 1 },
        { &keys, BLOCKS * KV_HEADS, sizes.keys, 1 },
        { &tiles, (size_t)threads, sizes.tile, 1 },
    };
    struct err err;
    void *memory = mem_arrays(arrays, 4, &nbytes, "a test", &err);
    const struct span spans[] = {
        { .session = &s[0], .n = FIRST },
        { .session = &s[1], .row = FIRST, .n = N - FIRST },
    };
    struct attention a = {
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .head_dim = DIM,
        .v_head_dim = V_DIM,
        .scale = scale,
        .softcap = softcap,
        .window = window,
        .sinks = sinks,
        .spans = spans,
        .n_spans = 2,
        .q = q[0][0],
        .out = out[0][0],
        .lse = lse[0],
        .bf16 = bf16,
        .scratch = scratch,
    };
    const struct attention_grads g = {
        .k = k[0][0],
        .v = v[0][0],
        .dout = dout[0][0],
        .scaled = scaled,
        .dq = r->dq[0][0],
        .dk = r->dk[0][0],
        .dv = r->dv[0][0],
        .work = { delta, queries, keys, tiles },
    };
    struct par *par;

    if (!memory || par_open(&par, threads, &err) < 0)
        abort();
    memset(memory, 0xff, nbytes); /* NaNs: nothing is read before it is put */
    attention_run(par, &a);
    memcpy(scaled, q, sizeof(q));
    a.q = scaled;
    attention_backward(par, &a, &g);
    par_close(par);
    mem_big_free(memory, nbytes, 1);
}

static struct result_f64 *
formulas(size_t window, bool bf16)
{
    struct result_f64 *want = xcalloc(1, sizeof(*want));

    for (size_t p = 0; p < N; p++)
        for (size_t head = 0; head < HEADS; head++)
            query_back(want, p, head, window, bf16);
    return want;
}

static void
test_window(struct session *s, size_t window, bool bf16)
{
    static struct result one, many;
    struct result_f64 *want = formulas(window, bf16);
    const char *name = sinks && bf16 ? "bf16 with sinks"
                       : sinks       ? "with sinks"
                       : bf16        ? "bf16"
                       : softcap > 0 ? "capped"
                                     : "exact";
    struct distance far;

    memset(&one, 0xff, sizeof(one)); /* NaNs, to be overwritten */
    memset(&many, 0xff, sizeof(many));
    run(s, window, bf16, MAX_THREADS, &many);
    run(s, window, bf16, 1, &one);
    far = distance(&many, want);
    if (!bf16) {
        tap_ok(far.worst < 2e-5, "%s, window %zu: %.2g from the f64 formula",
               name, window, far.worst);
    } else { /* a few P and dS lie between two bf16s */
        struct result_f64 *exact = formulas(window, false);
        struct distance rounded = distance(&many, exact);

        tap_ok(far.all < 5e-4 && far.all < rounded.all / 5,
               "%s, window %zu: %.2g of all from the f64 formula, %.2g from "
               "that of exact operands",
               name, window, far.all, rounded.all);
        free(exact);
    }
    tap_ok(!memcmp(&one, &many, sizeof(one)),
           "%s, window %zu: the same bits of any threads", name, window);
    free(want);
}

int
main(void)
{
    static const size_t windows[] = { 0, 1, 5, 64, 100 };
    static const float some[HEADS] = { -9, 0, 1, 2, 3, 4, 5, 9 };
    struct session s[2];
    struct err err;

    fill(q[0][0], sizeof(q) / sizeof(float));
    fill(k[0][0], sizeof(k) / sizeof(float));
    fill(v[0][0], sizeof(v) / sizeof(float));
    fill(dout[0][0], sizeof(dout) / sizeof(float));
    for (size_t i = 0; i < 2; i++) {
        s[i] = (struct session){ .kv = { .n_layers = 1,
                                         .n_heads = KV_HEADS,
                                         .head_dim = DIM,
                                         .v_head_dim = V_DIM,
                                         .dtype = DT_F32 } };
        if (kv_grow(&s[i].kv, 0, N, &err) < 0)
            abort();
    }
    for (size_t p = 0; p < N; p++)
        for (size_t j = 0; j < KV_HEADS; j++)
            kv_set(&s[p >= FIRST].kv, 0, j, p < FIRST ? p : p - FIRST, 1,
                   k[p][j], v[p][j]);
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            test_window(s, windows[i], bf16);
    softcap = 1; /* scores are up to 4 */
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++)
        test_window(s, windows[i], false);
    softcap = 0;
    sinks = some;
    for (size_t i = 0; i < 2; i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            test_window(s, windows[2 * i], bf16);
    kv_free(&s[0].kv);
    kv_free(&s[1].kv);
    return tap_done();
}
