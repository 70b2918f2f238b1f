/* SPDX-License-Identifier: ISC */
/*
 * What the tests of the operator share: data of which LoRA is about half, the
 * same formulas in float64 from the same bf16 numbers, and runs of ours.
 */
#ifndef TEST_UNIT_MOE_REF_H
#define TEST_UNIT_MOE_REF_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum routing { ANY, SKEWED, SAME, BAD };

struct spec {
    const char *name;
    size_t n_experts, top_k, hidden, intermediate, rank, qlen;
    enum routing routing;
    float base, lora, input; /* sizes; 0: 1 */
    enum {
        PLAIN,
        OUTLIERS, /* a row of W and of X is a hundred times larger */
        CLAMPED,  /* gpt-oss's experts: biases and another activation */
    } kind;
};

enum { GATE, UP, DOWN, N_BASE };

struct data {
    struct spec s;
    uint16_t *base[N_BASE], *lora[MOE_N_LORA], *input, *grad;
    int64_t *ids;
    float *weights;
    const float **bias; /* [N_BASE, n_experts]: what struct moe_base has */
};

/* What forward and backward make, in f64. */
struct ref {
    double *output, *input, *lora[MOE_N_LORA], *weights;
};

struct got {
    float *output, *weights;
    uint16_t *input;
    float *lora[MOE_N_LORA];
};

/* ---- data ---- */

static __attribute__((unused)) void *
make(size_t n, size_t size)
{
    return xcalloc(n + 1, size);
}

static __attribute__((unused)) uint16_t *
noise(size_t n, float scale)
{
    uint16_t *p = make(n, sizeof(*p));

    for (size_t i = 0; i < n; i++)
        put_le16(p + i, f32_to_bf16(rnd() * scale));
    return p;
}

static __attribute__((unused)) double
value(const uint16_t *p, size_t i)
{
    return (double)bf16_to_f32(le16(p + i));
}

static __attribute__((unused)) struct moe_config
config_of(const struct spec *s)
{
    return (struct moe_config){
        .n_experts = s->n_experts,
        .top_k = s->top_k,
        .hidden = s->hidden,
        .intermediate = s->intermediate,
        .lora_rank = s->rank,
        .lora_alpha = 32,
        .max_len = s->qlen ? s->qlen : 1,
        .max_cache_depth = 2,
        .n_parts = 1,
        .act = s->kind == CLAMPED ? ACT_CLAMPED : ACT_SILU,
    };
}

static __attribute__((unused)) int64_t
pick(const struct spec *s, size_t i, size_t j)
{
    static const int64_t bad[] = { -1, 0, (int64_t)1 << 40, INT64_MIN };
    int64_t any = (int64_t)((rnd() + 1) / 2 * (float)s->n_experts);
    int64_t n = (int64_t)s->n_experts;

    if (any >= n)
        any = n - 1;
    if (s->routing == SKEWED) /* most to the first, none to the last */
        return i % 8 || n < 3 ? (int64_t)j % n : any % (n - 1);
    if (s->routing == SAME) /* duplicates in each token */
        return (int64_t)(i % s->n_experts);
    if (s->routing == BAD && (i + j) % 3 == 0)
        return (i + j) % 4 == 1 ? n : bad[(i + j) % 4];
    return any;
}

/* W of 1 / sqrt(in), and A and B whose product with s is as large. */
static __attribute__((unused)) struct data
data_new(struct spec s)
{
    struct moe_config c = config_of(&s);
    struct data d = { .s = s };
    float base = s.base > 0 ? s.base : 1, lora = s.lora > 0 ? s.lora : base;
    size_t n = s.n_experts * s.hidden * s.intermediate;

    for (size_t i = 0; i < N_BASE; i++)
        d.base[i] =
            noise(n, 2 * base /
                         sqrtf((float)(i == DOWN ? s.intermediate : s.hidden)));
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        uint64_t shape[3];
        float to;

        moe_lora_shape(&c, (enum moe_lora_matrix)m, shape);
        to = m % 2 == 0 ? 2 / sqrtf((float)shape[2])
                        : lora * sqrtf(3.0f * (float)s.rank) / 32 * 1.1f;
        d.lora[m] = noise(shape[0] * shape[1] * shape[2], to);
    }
    d.input = noise(s.qlen * s.hidden, s.input > 0 ? s.input : 1.5f);
    d.grad = noise(s.qlen * s.hidden, 1);
    d.ids = make(s.qlen * s.top_k, sizeof(*d.ids));
    d.weights = make(s.qlen * s.top_k, sizeof(*d.weights));
    for (size_t i = 0; i < s.qlen * s.top_k; i++) {
        d.ids[i] = pick(&s, i / s.top_k, i % s.top_k);
        d.weights[i] = rnd() + (rnd() > 0 ? 0.2f : -0.2f);
    }
    for (size_t i = 0; i < s.hidden && s.kind == OUTLIERS; i++) {
        put_le16(d.base[GATE] + 3 * s.hidden + i,
                 f32_to_bf16(100 * (float)value(d.base[GATE], i)));
        put_le16(d.input + 2 * s.hidden + i,
                 f32_to_bf16(100 * (float)value(d.input, i)));
    }
    if (s.kind == CLAMPED)
        d.bias = make(N_BASE * s.n_experts, sizeof(*d.bias));
    for (size_t i = 0; i < N_BASE * s.n_experts && s.kind == CLAMPED; i++) {
        size_t out = i / s.n_experts == DOWN ? s.hidden : s.intermediate;
        float *bias = make(out, sizeof(*bias));

        for (size_t k = 0; k < out; k++)
            bias[k] = 2 * base * rnd();
        d.bias[i] = bias;
    }
    return d;
}

static __attribute__((unused)) void
data_free(struct data *d)
{
    for (size_t i = 0; i < N_BASE; i++)
        free(d->base[i]);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        free(d->lora[m]);
    free(d->input);
    free(d->grad);
    free(d->ids);
    free(d->weights);
    for (size_t i = 0; i < N_BASE * d->s.n_experts && d->bias; i++)
        free((void *)(uintptr_t)d->bias[i]);
    free(d->bias);
}

/* ---- the reference ---- */

/* y = x W^T + s u B^T, u = x A^T: W [n, k]. */
struct layer {
    size_t n, k, rank;
    const uint16_t *w, *a, *b;
    double *da, *db;
    const float *bias; /* or NULL */
};

static __attribute__((unused)) struct layer
layer_of(const struct data *d, const struct ref *r, int which, size_t e)
{
    bool down = which == DOWN;
    size_t n = down ? d->s.hidden : d->s.intermediate;
    size_t k = down ? d->s.intermediate : d->s.hidden, rank = d->s.rank;
    size_t a = e * rank * k, b = e * rank * n;

    return (struct layer){
        n,
        k,
        rank,
        d->base[which] + e * n * k,
        d->lora[2 * which] + a,
        d->lora[2 * which + 1] + b,
        r->lora[2 * which] + a,
        r->lora[2 * which + 1] + b,
        d->bias ? d->bias[(size_t)which * d->s.n_experts + e] : NULL,
    };
}

static __attribute__((unused)) void
layer_forward(const struct layer *l, double s, double *y, const double *x,
              double *u)
{
    for (size_t j = 0; j < l->rank; j++) {
        u[j] = 0;
        for (size_t i = 0; i < l->k; i++)
            u[j] += s * x[i] * value(l->a, j * l->k + i);
    }
    for (size_t o = 0; o < l->n; o++) {
        y[o] = l->bias ? (double)l->bias[o] : 0;
        for (size_t i = 0; i < l->k; i++)
            y[o] += x[i] * value(l->w, o * l->k + i);
        for (size_t j = 0; j < l->rank; j++)
            y[o] += u[j] * value(l->b, o * l->rank + j);
    }
}

/* dx += dy W + s (dy B) A; by what weight da and db take dy. */
static __attribute__((unused)) void
layer_backward(const struct layer *l, double s, double by, double *dx,
               const double *dy, const double *x, const double *u)
{
    double p;

    for (size_t o = 0; o < l->n; o++) {
        for (size_t i = 0; i < l->k; i++)
            dx[i] += dy[o] * value(l->w, o * l->k + i);
        for (size_t j = 0; j < l->rank; j++)
            l->db[o * l->rank + j] += by * dy[o] * u[j];
    }
    for (size_t j = 0; j < l->rank; j++) {
        p = 0;
        for (size_t o = 0; o < l->n; o++)
            p += s * dy[o] * value(l->b, o * l->rank + j);
        for (size_t i = 0; i < l->k; i++) {
            l->da[j * l->k + i] += by * p * x[i];
            dx[i] += p * value(l->a, j * l->k + i);
        }
    }
}

/* Room for one row. */
struct row {
    double *x, *g, *u, *h, *y, *dy, *dh, *dg, *du, *dx, *low[3];
};

static __attribute__((unused)) struct row
row_new(const struct spec *s)
{
    size_t n = s->hidden + s->intermediate + s->rank;
    struct row r;
    double **all = (double **)&r;

    for (size_t i = 0; i < sizeof(r) / sizeof(*all); i++)
        all[i] = make(n, sizeof(double));
    return r;
}

static __attribute__((unused)) void
row_free(struct row *r)
{
    double **all = (double **)r;

    for (size_t i = 0; i < sizeof(*r) / sizeof(*all); i++)
        free(all[i]);
}

/* h of gate and up, and its slopes: of GptOssExperts, alpha 1.702, limit 7. */
static __attribute__((unused)) double
activated(const struct spec *s, double g, double u, double *by_g, double *by_u)
{
    bool clamped = s->kind == CLAMPED;
    bool over = clamped && g > 7, out = clamped && (u > 7 || u < -7);
    double alpha = clamped ? 1.702 : 1, more = clamped ? 1 : 0, sig;

    if (over)
        g = 7;
    if (out)
        u = u > 0 ? 7 : -7;
    sig = 1 / (1 + exp(-alpha * g));
    *by_g = over ? 0 : (u + more) * (sig + alpha * g * sig * (1 - sig));
    *by_u = out ? 0 : g * sig;
    return (u + more) * g * sig;
}

static __attribute__((unused)) void
ref_slot(const struct data *d, struct ref *ref, struct row *r, size_t slot)
{
    size_t hidden = d->s.hidden, token = slot / d->s.top_k;
    double s = 32.0 / (double)d->s.rank, w = (double)d->weights[slot];
    struct layer l[N_BASE];

    for (int i = 0; i < N_BASE; i++)
        l[i] = layer_of(d, ref, i, (size_t)d->ids[slot]);
    for (size_t i = 0; i < hidden; i++) {
        r->x[i] = value(d->input, token * hidden + i);
        r->dy[i] = value(d->grad, token * hidden + i);
    }
    layer_forward(&l[GATE], s, r->g, r->x, r->low[0]);
    layer_forward(&l[UP], s, r->u, r->x, r->low[1]);
    for (size_t i = 0; i < d->s.intermediate; i++) {
        r->h[i] = activated(&d->s, r->g[i], r->u[i], &r->dg[i], &r->du[i]);
        r->dh[i] = 0;
    }
    layer_forward(&l[DOWN], s, r->y, r->h, r->low[2]);
    for (size_t i = 0; i < hidden; i++)
        ref->output[token * hidden + i] += w * r->y[i];
    layer_backward(&l[DOWN], s, w, r->dh, r->dy, r->h, r->low[2]);
    for (size_t i = 0; i < hidden; i++)
        ref->weights[slot] += r->dy[i] * r->y[i];
    for (size_t i = 0; i < d->s.intermediate; i++) {
        r->dg[i] *= w * r->dh[i];
        r->du[i] *= w * r->dh[i];
    }
    memset(r->dx, 0, hidden * sizeof(double));
    layer_backward(&l[GATE], s, 1, r->dx, r->dg, r->x, r->low[0]);
    layer_backward(&l[UP], s, 1, r->dx, r->du, r->x, r->low[1]);
    for (size_t i = 0; i < hidden; i++)
        ref->input[token * hidden + i] += r->dx[i];
}

static __attribute__((unused)) bool
is_expert(const struct data *d, size_t slot)
{
    return d->ids[slot] >= 0 && d->ids[slot] < (int64_t)d->s.n_experts;
}

static __attribute__((unused)) size_t
lora_size(const struct spec *s, size_t m)
{
    struct moe_config c = config_of(s);
    uint64_t shape[3];

    moe_lora_shape(&c, (enum moe_lora_matrix)m, shape);
    return shape[1] * shape[2];
}

static __attribute__((unused)) struct ref
ref_new(const struct data *d)
{
    size_t n = d->s.qlen * d->s.hidden;
    struct row r = row_new(&d->s);
    struct ref ref = { .output = make(n, 8), .input = make(n, 8) };

    ref.weights = make(d->s.qlen * d->s.top_k, 8);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        ref.lora[m] = make(d->s.n_experts * lora_size(&d->s, m), 8);
    for (size_t i = 0; i < d->s.qlen * d->s.top_k; i++)
        if (is_expert(d, i))
            ref_slot(d, &ref, &r, i);
    row_free(&r);
    return ref;
}

static __attribute__((unused)) void
ref_free(struct ref *r)
{
    free(r->output);
    free(r->input);
    free(r->weights);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        free(r->lora[m]);
}

/* ---- running ours ---- */

static __attribute__((unused)) struct got
got_new(const struct spec *s)
{
    struct got g;

    g.output = make(s->qlen * s->hidden, 4);
    g.input = make(s->qlen * s->hidden, 2);
    g.weights = make(s->qlen * s->top_k, 4);
    memset(g.output, 1, s->qlen * s->hidden * 4); /* to be overwritten */
    memset(g.input, 1, s->qlen * s->hidden * 2);
    memset(g.weights, 1, s->qlen * s->top_k * 4);
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        size_t n = s->n_experts * lora_size(s, m) * 4;

        g.lora[m] = make(n, 1);
        memset(g.lora[m], 1, n);
    }
    return g;
}

static __attribute__((unused)) void
got_free(struct got *g)
{
    free(g->output);
    free(g->input);
    free(g->weights);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        free(g->lora[m]);
}

static __attribute__((unused)) bool
equal_got(const struct spec *s, const struct got *a, const struct got *b)
{
    bool same = !memcmp(a->output, b->output, s->qlen * s->hidden * 4) &&
                !memcmp(a->input, b->input, s->qlen * s->hidden * 2) &&
                !memcmp(a->weights, b->weights, s->qlen * s->top_k * 4);

    for (size_t m = 0; m < MOE_N_LORA; m++)
        same &=
            !memcmp(a->lora[m], b->lora[m], s->n_experts * lora_size(s, m) * 4);
    return same;
}

/* The base weights, those of up 'step' after those of gate, and so on. */
static __attribute__((unused)) void
matrices_of(const struct data *d, struct weight *w, size_t step)
{
    size_t n = d->s.hidden * d->s.intermediate;

    for (size_t b = 0; b < N_BASE; b++)
        for (size_t e = 0; e < d->s.n_experts; e++)
            w[b * step + e] =
                (struct weight){ .data = d->base[b] + e * n,
                                 .dtype = DT_BF16,
                                 .ld = b == DOWN ? d->s.intermediate
                                                 : d->s.hidden };
}

static __attribute__((unused)) struct moe *
open_moe(const struct data *d, const struct moe_config *c, int n_threads,
         struct err *err)
{
    struct weight *w = make(N_BASE * c->n_experts, sizeof(*w));
    struct moe_base base = { .gate = w,
                             .up = w + c->n_experts,
                             .down = w + 2 * c->n_experts,
                             .bias = d->bias };
    struct moe_lora lora;
    struct moe *moe = NULL;

    matrices_of(d, w, c->n_experts);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        lora.m[m] = d->lora[m];
    if (moe_open(&moe, c, n_threads, err) == 0 &&
        (moe_load(moe, &base, err) < 0 ||
         moe_update_lora(moe, &lora, err) < 0)) {
        moe_close(moe);
        moe = NULL;
    }
    free(w);
    return moe;
}

static __attribute__((unused)) struct moe_batch
batch_of(const struct data *d)
{
    return (struct moe_batch){ d->s.qlen, d->ids, d->weights, d->input };
}

static __attribute__((unused)) int
backward(struct moe *moe, const struct data *d, struct got *g, struct err *err)
{
    struct moe_grads grads = { .input = g->input,
                               .lora_dtype = DT_F32,
                               .weights = g->weights };

    for (size_t m = 0; m < MOE_N_LORA; m++)
        grads.lora[m] = g->lora[m];
    return moe_backward(moe, d->grad, &grads, err);
}

static __attribute__((unused)) int
run_both(struct moe *moe, const struct data *d, struct got *g, struct err *err)
{
    struct moe_batch batch = batch_of(d);

    if (moe_forward(moe, &batch, g->output, true, err) < 0)
        return -1;
    return backward(moe, d, g, err);
}

static __attribute__((unused)) bool
run_once(const struct data *d, enum moe_mode mode, size_t n_parts,
         int n_threads, struct got *g)
{
    struct moe_config c = config_of(&d->s);
    struct err err = { 0 };
    struct moe *moe;
    bool good;

    c.mode = mode;
    c.n_parts = n_parts;
    moe = open_moe(d, &c, n_threads, &err);
    good = moe && run_both(moe, d, g, &err) == 0;
    if (!good)
        printf("# %s\n", err.what);
    moe_close(moe);
    return good;
}

/* ---- judging ---- */

/* mean|got - ref| / mean|ref| */
struct diff {
    double off, size;
};

static __attribute__((unused)) double
relative(struct diff d)
{
    return d.size > 0 ? d.off / d.size : d.off > 0 ? INFINITY : 0;
}

static __attribute__((unused)) void
add(struct diff *d, double got, double want)
{
    if (!isfinite(got))
        d->off = INFINITY;
    d->off += fabs(got - want);
    d->size += fabs(want);
}

/* The worst expert's, of what all tokens have that use it. */
static __attribute__((unused)) double
worst_rows(const struct data *d, const float *f32, const uint16_t *bf16,
           const double *want)
{
    size_t n = d->s.hidden;
    double worst = 0;

    for (size_t e = 0; e < d->s.n_experts; e++) {
        struct diff diff = { 0, 0 };

        for (size_t i = 0; i < d->s.qlen * d->s.top_k; i++)
            for (size_t c = 0; c < n && d->ids[i] == (int64_t)e; c++) {
                size_t at = i / d->s.top_k * n + c;

                add(&diff, f32 ? (double)f32[at] : value(bf16, at), want[at]);
            }
        worst = fmax(worst, relative(diff));
    }
    return worst;
}

static __attribute__((unused)) double
worst_lora(const struct data *d, size_t m, const float *got, const double *want)
{
    size_t n = lora_size(&d->s, m);
    double worst = 0;

    for (size_t e = 0; e < d->s.n_experts; e++) {
        struct diff diff = { 0, 0 };

        for (size_t i = e * n; i < (e + 1) * n; i++)
            add(&diff, (double)got[i], want[i]);
        worst = fmax(worst, relative(diff));
    }
    return worst;
}

static __attribute__((unused)) double
worst_weights(const struct data *d, const float *got, const double *want)
{
    double worst = 0;

    for (size_t e = 0; e < d->s.n_experts; e++) {
        struct diff diff = { 0, 0 };

        for (size_t i = 0; i < d->s.qlen * d->s.top_k; i++)
            if (d->ids[i] == (int64_t)e)
                add(&diff, (double)got[i], want[i]);
        worst = fmax(worst, relative(diff));
    }
    for (size_t i = 0; i < d->s.qlen * d->s.top_k; i++)
        if (!is_expert(d, i) && got[i] != 0)
            worst = INFINITY;
    return worst;
}

static __attribute__((unused)) void
judge(const struct data *d, const struct ref *ref, const struct got *g,
      const char *how, double forward, double back)
{
    double off = worst_rows(d, g->output, NULL, ref->output);

    tap_ok(off < forward, "%s%s: output within %g (%.5f)", d->s.name, how,
           forward, off);
    off = worst_rows(d, NULL, g->input, ref->input);
    tap_ok(off < back, "%s%s: grad_input within %g (%.5f)", d->s.name, how,
           back, off);
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        off = worst_lora(d, m, g->lora[m], ref->lora[m]);
        tap_ok(off < back, "%s%s: grad_%s within %g (%.5f)", d->s.name, how,
               moe_lora_names[m], back, off);
    }
    off = worst_weights(d, g->weights, ref->weights);
    tap_ok(off < back, "%s%s: grad_weights within %g (%.5f)", d->s.name, how,
           back, off);
}

#endif
