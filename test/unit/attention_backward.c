/*
 * Attention's backward against its formulas in f64, of two sequences, for any
 * window; the same bits in both ways, which the number of threads decides on.
 */
#include "core/model/attention_backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/engine.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

/* Sequences of FIRST and N - FIRST tokens; a query head's KV head is its
 * number / GROUP. */
enum { N = 220, FIRST = 70, HEADS = 8, KV_HEADS = 4, GROUP = 2, DIM = 10 };
enum { BLOCKS = 5, MAX_THREADS = 5 };

static float q[N][HEADS][DIM], k[N][KV_HEADS][DIM], v[N][KV_HEADS][DIM];
static float dout[N][HEADS][DIM], out[N][HEADS][DIM], lse[N][HEADS];

/* What it gives. */
struct result {
    float dq[N][HEADS][DIM], dk[N][KV_HEADS][DIM], dv[N][KV_HEADS][DIM];
};

struct result_f64 {
    double dq[N][HEADS][DIM], dk[N][KV_HEADS][DIM], dv[N][KV_HEADS][DIM];
};

static void
fill(float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = 2 * rnd();
}

static double
dot(const float *a, const float *b)
{
    double sum = 0;

    for (size_t i = 0; i < DIM; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query: its softmax, and what flows back through it. */
static void
query_back(struct result_f64 *want, size_t p, size_t head, size_t window)
{
    size_t first = p < FIRST ? 0 : FIRST, kv = head / GROUP;
    double weight[N], dp[N], total = 0, delta = 0;

    if (window && p - first >= window)
        first = p - window + 1;
    for (size_t i = first; i <= p; i++) {
        weight[i] = exp(dot(q[p][head], k[i][kv]) / sqrt(DIM));
        total += weight[i];
    }
    for (size_t i = first; i <= p; i++) {
        weight[i] /= total;
        dp[i] = dot(dout[p][head], v[i][kv]);
        delta += weight[i] * dp[i];
    }
    for (size_t i = first; i <= p; i++) {
        double ds = weight[i] * (dp[i] - delta) / sqrt(DIM);

        for (size_t d = 0; d < DIM; d++) {
            want->dv[i][kv][d] += weight[i] * (double)dout[p][head][d];
            want->dq[p][head][d] += ds * (double)k[i][kv][d];
            want->dk[i][kv][d] += ds * (double)q[p][head][d];
        }
    }
}

static double
distance(const float *got, const double *want, size_t n)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    return worst;
}

static void
run(struct session *s, size_t window, int threads, struct result *r)
{
    static float q_t[BLOCKS * HEADS * DIM * KV_BLOCK];
    static float dout_t[BLOCKS * HEADS * DIM * KV_BLOCK];
    static float v_t[BLOCKS * KV_HEADS * DIM * KV_BLOCK];
    static float delta[N * HEADS], scaled[N * HEADS * DIM];
    static float tiles[MAX_THREADS * ATTENTION_TILES];
    static float scratch[MAX_THREADS << 14];
    const struct config config = { .n_heads = HEADS,
                                   .n_kv_heads = KV_HEADS,
                                   .head_dim = DIM };
    const struct span spans[] = {
        { .session = &s[0], .n = FIRST },
        { .session = &s[1], .row = FIRST, .n = N - FIRST },
    };
    struct attention a = {
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .head_dim = DIM,
        .window = window,
        .spans = spans,
        .n_spans = 2,
        .q = q[0][0],
        .out = out[0][0],
        .lse = lse[0],
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
        .work = { q_t, dout_t, v_t, delta, tiles },
    };
    struct par *par;
    struct err err;

    if (attention_scratch(&config, false) > 1 << 14 ||
        par_open(&par, threads, &err) < 0)
        abort();
    attention_run(par, &a);
    memcpy(scaled, q, sizeof(q));
    a.q = scaled;
    attention_backward(par, &a, &g);
    par_close(par);
}

static void
test_window(struct session *s, size_t window)
{
    static struct result whole, blocks;
    struct result_f64 *want = xcalloc(1, sizeof(*want));
    double worst;

    for (size_t p = 0; p < N; p++)
        for (size_t head = 0; head < HEADS; head++)
            query_back(want, p, head, window);
    memset(&whole, 0xff, sizeof(whole)); /* NaNs, to be overwritten */
    memset(&blocks, 0xff, sizeof(blocks));
    /* 8 KV heads of sequences are tasks enough for one thread alone */
    run(s, window, MAX_THREADS, &blocks);
    run(s, window, 1, &whole);
    worst = fmax(
        distance(blocks.dq[0][0], want->dq[0][0], N * HEADS * DIM),
        fmax(distance(blocks.dk[0][0], want->dk[0][0], N * KV_HEADS * DIM),
             distance(blocks.dv[0][0], want->dv[0][0], N * KV_HEADS * DIM)));
    tap_ok(worst < 2e-5, "window %zu: %.2g from the f64 formula", window,
           worst);
    tap_ok(!memcmp(&whole, &blocks, sizeof(whole)),
           "window %zu: both ways have the same bits", window);
    free(want);
}

int
main(void)
{
    static const size_t windows[] = { 0, 1, 5, 64, 100 };
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
                                         .dtype = DT_F32 } };
        if (kv_grow(&s[i].kv, N, &err) < 0)
            abort();
    }
    for (size_t p = 0; p < N; p++)
        for (size_t j = 0; j < KV_HEADS; j++)
            kv_set(&s[p >= FIRST].kv, 0, j, p < FIRST ? p : p - FIRST, 1,
                   k[p][j], v[p][j]);
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++)
        test_window(s, windows[i]);
    kv_free(&s[0].kv);
    kv_free(&s[1].kv);
    return tap_done();
}
