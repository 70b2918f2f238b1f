/* SPDX-License-Identifier: ISC */
#include "core/model/moe_exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/rng.h"

#define STEP                                                      \
    1e-4 /* d of the central differences: their error is d^2, and \
            1e-16 / d of rounding */

enum { GATE, UP, DOWN, N_LAYERS };

/* y = W x + s B A x + bias */
struct projection {
    size_t out, in;
    const float *bias;   /* of this expert, or NULL */
    double *w, *lora[2]; /* [out, in]; A: [r, in], B: [out, r] */
    double *squares[2];  /* sums of squares: A's columns [in], B's rows [out] */
};

/* The expert at work, its rows (token, slot) in order, and what each has. */
struct expert {
    const struct exact_problem *p;
    struct exact *exact;
    struct par *par;
    size_t h, i, r; /* hidden, intermediate, rank */
    double s;
    struct projection layers[N_LAYERS];
    size_t n;            /* rows */
    size_t *at;          /* [n]: token * top_k + slot */
    double *weight;      /* [n] */
    double *x, *g, *out; /* [n, h]: input, output's gradient, output */
    double *base[2], *q; /* [n, i]: W x + bias of gate, up; Wd^T g */
    double *value;       /* [n]: of the loss, for a weight of 1 */
    double *slope;       /* [n]: of that, by the row's input */
    double *size;        /* [n, EXACT_N]: squares, without cancellation */
    uint8_t *flat;       /* [n, i]: bit 0: gate has no slope, 1: up has none */
};

/* y = W x, or y += s W x */
static void
mul(double *y, double s, bool add, const double *w, const double *x, size_t n,
    size_t k)
{
    for (size_t a = 0; a < n; a++) {
        double sum[4] = { 0 };
        size_t b = 0;

        for (; b + 4 <= k; b += 4)
            for (size_t c = 0; c < 4; c++)
                sum[c] += w[a * k + b + c] * x[b + c];
        for (; b < k; b++)
            sum[0] += w[a * k + b] * x[b];
        sum[0] += sum[1] + sum[2] + sum[3];
        y[a] = (add ? y[a] : 0) + s * sum[0];
    }
}

/* y += s W^T x */
static void
mul_t(double *y, double s, const double *w, const double *x, size_t n, size_t k)
{
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < k; b++)
            y[b] += s * x[a] * w[a * k + b];
}

static double
dot(const double *a, const double *b, size_t n)
{
    double y = 0;

    mul(&y, 1, false, a, b, 1, n);
    return y;
}

static double
sigmoid(double v)
{
    return 1 / (1 + f64_exp(-v));
}

/* ACT_CLAMPED's slopes end at 7.  The operator has gate and up in bf16, whose 7
 * is 6.99 to 7.01: its side is the one to differentiate on, without a jump. */
static uint8_t
flat_of(enum act act, double gate, double up)
{
    float g = bf16_to_f32(f32_to_bf16((float)gate));
    float u = bf16_to_f32(f32_to_bf16((float)up));

    if (act != ACT_CLAMPED)
        return 0;
    return (uint8_t)((g > 7) | (fabsf(u) > 7) << 1);
}

/* h of gate and up, which become their gradients where h's is dh. */
static double
activate(enum act act, uint8_t flat, double dh, double *gate, double *up)
{
    bool clamped = act == ACT_CLAMPED, over = flat & 1, out = flat & 2;
    double g = over ? 7 : *gate, a = clamped ? 1.702 : 1;
    double u = out ? copysign(7, *up) : *up, sig = sigmoid(a * g);

    u += clamped;
    *gate = over ? 0 : dh * u * sig * (1 + a * g * (1 - sig));
    *up = out ? 0 : dh * g * sig;
    return g * sig * u;
}

int
exact_sign(const struct exact *exact, int tensor, size_t i, size_t *sample)
{
    size_t unit = tensor == EXACT_INPUT ? i / exact->hidden : i;
    uint64_t stream = EXACT_N + 1 + 2 * (uint64_t)tensor;

    *sample = (size_t)(rng_u64(exact->seed, stream, unit) % exact->n_samples);
    return rng_u64(exact->seed, stream + 1, i) & 1 ? 1 : -1;
}

/* ---- rows ---- */

/* A row on its way. */
struct way {
    double *x, *y[2]; /* [h]; [i]: W x + bias of gate and up, then all of it */
    double *act, *out, *da0; /* h; [h]: s B A h + bias; h's gradient */
    double *u;               /* [r]: between A and B */
};

static struct way
way_open(const struct expert *e)
{
    size_t h = e->h, i = e->i;
    double *p = xcalloc(2 * h + 4 * i + e->r, sizeof(*p)), *q = p + 2 * h;

    return (struct way){
        p, { q, q + i }, q + 2 * i, p + h, q + 3 * i, q + 4 * i,
    };
}

/* y = W x + bias */
static void
apply_base(const struct expert *e, int layer, double *y, const double *x)
{
    const struct projection *l = &e->layers[layer];

    mul(y, 1, false, l->w, x, l->out, l->in);
    for (size_t j = 0; l->bias && j < l->out; j++)
        y[j] += (double)l->bias[j];
}

/* y += s B A x */
static void
add_lora(const struct expert *e, int layer, double *y, const double *x,
         double *u)
{
    const struct projection *l = &e->layers[layer];

    mul(u, 1, false, l->lora[0], x, e->r, l->in);
    mul(y, e->s, true, l->lora[1], u, l->out, e->r);
}

/*
 * The loss of a row of weight 1, from x and W x: <g, Wd h + s B A h + b>.  The
 * first part as <Wd^T g, h>, or each difference would cost a product with Wd.
 * 'first': of the row as it is, which decides what is flat.
 */
static double
way_loss(const struct way *w, const struct expert *e, size_t row, bool first)
{
    const float *bias = e->layers[DOWN].bias;
    uint8_t *flat = e->flat + row * e->i;
    enum act act = e->p->config->act;

    for (int m = 0; m < 2; m++)
        add_lora(e, m, w->y[m], w->x, w->u);
    for (size_t j = 0; j < e->i; j++) {
        double gate = w->y[GATE][j], up = w->y[UP][j];

        if (first)
            flat[j] = flat_of(act, gate, up);
        w->act[j] = activate(act, flat[j], 0, &gate, &up);
    }
    for (size_t j = 0; j < e->h; j++)
        w->out[j] = bias ? (double)bias[j] : 0;
    add_lora(e, DOWN, w->out, w->act, w->u);
    return dot(e->q + row * e->i, w->act, e->i) +
           dot(e->g + row * e->h, w->out, e->h);
}

static double
row_loss(const struct way *w, const struct expert *e, size_t row, bool first)
{
    memcpy(w->x, e->x + row * e->h, e->h * sizeof(double));
    for (int m = 0; m < 2; m++)
        memcpy(w->y[m], e->base[m] + row * e->i, e->i * sizeof(double));
    return way_loss(w, e, row, first);
}

static void
loss_rows(void *ctx, size_t begin, size_t end)
{
    const struct expert *e = ctx;
    const struct way w = way_open(e);

    for (size_t row = begin; row < end; row++)
        e->value[row] = row_loss(&w, e, row, false);
    free(w.x);
}

/* By the row's input, along its signs. */
static double
input_slope(const struct way *w, const struct expert *e, size_t row)
{
    size_t first = e->at[row] / e->p->config->top_k * e->h, sample;
    double loss[2];

    for (int minus = 0; minus < 2; minus++) {
        for (size_t j = 0; j < e->h; j++) {
            int sign = exact_sign(e->exact, EXACT_INPUT, first + j, &sample);

            w->x[j] = e->x[row * e->h + j] + (minus ? -sign : sign) * STEP;
        }
        for (int m = 0; m < 2; m++)
            apply_base(e, m, w->y[m], w->x);
        loss[minus] = way_loss(w, e, row, false);
    }
    return (loss[0] - loss[1]) / (2 * STEP);
}

/* Squares of a layer's A and B: see struct exact. */
static void
lora_sizes(const struct expert *e, int layer, double size[2], const double *x,
           const double *dy, double weight)
{
    const struct projection *l = &e->layers[layer];
    double sum[2] = { 0 };

    for (size_t j = 0; j < l->out; j++)
        sum[0] += dy[j] * dy[j] * l->squares[1][j];
    for (size_t j = 0; j < l->in; j++)
        sum[1] += x[j] * x[j] * l->squares[0][j];
    weight *= weight * e->s * e->s;
    size[0] = weight * sum[0] * dot(x, x, l->in);
    size[1] = weight * sum[1] * dot(dy, dy, l->out);
}

/* All of a row that has come all the way; gate and up become their gradients,
 * for a weight of 1. */
static void
row_sizes(const struct way *w, const struct expert *e, size_t row)
{
    const double *g = e->g + row * e->h, weight = e->weight[row];
    const struct projection *down = &e->layers[DOWN];
    double *size = e->size + row * EXACT_N;

    memset(w->u, 0, e->r * sizeof(double));
    mul_t(w->u, 1, down->lora[1], g, e->h, e->r);
    memcpy(w->da0, e->q + row * e->i, e->i * sizeof(double));
    mul_t(w->da0, e->s, down->lora[0], w->u, e->r, e->i);
    for (size_t j = 0; j < e->i; j++) {
        size[EXACT_WEIGHTS] += w->da0[j] * w->act[j] * w->da0[j] * w->act[j];
        activate(e->p->config->act, e->flat[row * e->i + j], w->da0[j],
                 &w->y[GATE][j], &w->y[UP][j]);
    }
    lora_sizes(e, GATE, size + MOE_GATE_A, w->x, w->y[GATE], weight);
    lora_sizes(e, UP, size + MOE_UP_A, w->x, w->y[UP], weight);
    lora_sizes(e, DOWN, size + MOE_DOWN_A, w->act, g, weight);
}

static void
run_rows(void *ctx, size_t begin, size_t end)
{
    const struct expert *e = ctx;
    const struct projection *down = &e->layers[DOWN];
    const struct way w = way_open(e);

    for (size_t row = begin; row < end; row++) {
        double *out = e->out + row * e->h;

        for (int m = 0; m < 2; m++)
            apply_base(e, m, e->base[m] + row * e->i, e->x + row * e->h);
        mul_t(e->q + row * e->i, 1, down->w, e->g + row * e->h, e->h, e->i);
        e->value[row] = row_loss(&w, e, row, true);
        memcpy(out, w.out, e->h * sizeof(double));
        mul(out, 1, true, down->w, w.act, e->h, e->i);
        row_sizes(&w, e, row);
        if (e->exact->n_samples > 0)
            e->slope[row] = input_slope(&w, e, row);
    }
    free(w.x);
}

/* ---- an expert ---- */

/* By an expert's matrix m. */
static void
lora_slopes(struct expert *e, size_t expert, int m, double step)
{
    const struct projection *l = &e->layers[m / 2];
    size_t n = e->r * (m % 2 ? l->out : l->in), n_samples = e->exact->n_samples;
    double *v = l->lora[m % 2], *was = xcalloc(n, sizeof(*was));

    memcpy(was, v, n * sizeof(*was));
    for (size_t k = 0; k < n_samples; k++) {
        double loss[2] = { 0 }; /* equal where a new adapter's B is 0 */

        for (int minus = 0; minus < 2; minus++) {
            double by = minus ? -step : step;

            for (size_t i = 0; i < n; i++) {
                size_t sample;
                int sign = exact_sign(e->exact, m, expert * n + i, &sample);

                v[i] = was[i] + (sample == k ? sign * by : 0);
            }
            par_for(e->par, e->n, 1, loss_rows, e);
            for (size_t row = 0; row < e->n; row++)
                loss[minus] += e->weight[row] * e->value[row];
        }
        e->exact->slope[m][expert * n_samples + k] =
            (loss[0] - loss[1]) / (2 * step);
    }
    memcpy(v, was, n * sizeof(*was));
    free(was);
}

/* Adds the expert's rows to output, sizes, and slopes of what experts share:
 * the loss is linear in a weight. */
static void
add_rows(struct expert *e, size_t expert)
{
    struct exact *exact = e->exact;

    for (size_t row = 0; row < e->n; row++) {
        size_t slot = e->at[row], sample;
        size_t token = slot / e->p->config->top_k * e->h;

        for (size_t j = 0; j < e->h; j++)
            exact->output[token + j] += e->weight[row] * e->out[row * e->h + j];
        for (int t = 0; t < EXACT_N; t++)
            exact->size[t][t < MOE_N_LORA ? expert : 0] +=
                e->size[row * EXACT_N + (size_t)t];
        if (exact->n_samples == 0)
            continue;
        exact_sign(exact, EXACT_INPUT, token, &sample);
        exact->slope[EXACT_INPUT][sample] += e->weight[row] * e->slope[row];
        if (exact_sign(exact, EXACT_WEIGHTS, slot, &sample) > 0)
            exact->slope[EXACT_WEIGHTS][sample] += e->value[row];
        else
            exact->slope[EXACT_WEIGHTS][sample] -= e->value[row];
    }
}

/* n bf16 in float64. */
static void
widen(double *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (double)bf16_to_f32(le16(&from[i]));
}

/* A layer's base weights, as the operator has them, rounded to bf16 or I8 times
 * its scale [out], and its adapter. */
static void
load_layer(const struct projection *l, struct weight w,
           const uint16_t *const lora[2], size_t r)
{
    const float *scale = w.scale ? w.scale + w.row : NULL;
    float *f = xcalloc(l->in, sizeof(*f));

    w.scale = NULL; /* in float64 */
    for (size_t a = 0; a < l->out; a++) {
        double *to = l->w + a * l->in;

        weight_read(f, &w, a, 0, l->in);
        for (size_t c = 0; c < l->in; c++)
            to[c] = scale ? (double)f[c] * (double)scale[a]
                          : (double)bf16_to_f32(f32_to_bf16(f[c]));
    }
    free(f);
    widen(l->lora[0], lora[0], r * l->in);
    widen(l->lora[1], lora[1], r * l->out);
    for (size_t i = 0; i < r * l->in; i++)
        l->squares[0][i % l->in] += l->lora[0][i] * l->lora[0][i];
    for (size_t i = 0; i < r * l->out; i++)
        l->squares[1][i / r] += l->lora[1][i] * l->lora[1][i];
}

/* The expert's operands in float64. */
static void
load_expert(struct expert *e, size_t expert)
{
    const struct moe_base *base = e->p->base;
    const struct moe_batch *b = e->p->batch;
    const struct weight *const weights[] = { base->gate, base->up, base->down };
    size_t row = 0;

    for (int m = 0; m < N_LAYERS; m++) {
        struct projection *l = &e->layers[m];
        const uint16_t *const *lora = e->p->lora->m + 2 * m;
        size_t at = (size_t)m * e->p->config->n_experts + expert;

        l->bias = base->bias ? base->bias[at] : NULL;

        load_layer(l, weights[m][expert],
                   (const uint16_t *const[]){
                       lora[0] + expert * e->r * l->in,
                       lora[1] + expert * e->r * l->out,
                   },
                   e->r);
    }
    for (size_t i = 0; i < b->qlen * e->p->config->top_k; i++)
        if (b->expert_ids[i] == (int64_t)expert) {
            size_t token = i / e->p->config->top_k;

            e->at[row] = i;
            e->weight[row] = (double)b->weights[i];
            widen(e->x + row * e->h, b->input + token * e->h, e->h);
            widen(e->g + row * e->h, e->p->grad_output + token * e->h, e->h);
            row++;
        }
}

static int
run_expert(struct expert *e, size_t expert, struct err *err)
{
    size_t h = e->h, i = e->i, r = e->r, n = e->n, nbytes, k = 12;
    struct mem_array arrays[12 + 5 * N_LAYERS] = {
        { &e->x, n, h, 8 },
        { &e->g, n, h, 8 },
        { &e->out, n, h, 8 },
        { &e->base[GATE], n, i, 8 },
        { &e->base[UP], n, i, 8 },
        { &e->q, n, i, 8 },
        { &e->weight, n, 1, 8 },
        { &e->value, n, 1, 8 },
        { &e->slope, n, 1, 8 },
        { &e->size, n, EXACT_N, 8 },
        { &e->at, n, 1, sizeof(*e->at) },
        { &e->flat, n, i, 1 },
    };
    double most = 1;
    void *memory;

    for (struct projection *l = e->layers; l < e->layers + N_LAYERS; l++) {
        const struct mem_array of_layer[] = {
            { &l->w, l->out, l->in, 8 },      { &l->lora[0], r, l->in, 8 },
            { &l->lora[1], l->out, r, 8 },    { &l->squares[0], l->in, 1, 8 },
            { &l->squares[1], l->out, 1, 8 },
        };

        memcpy(arrays + k, of_layer, sizeof(of_layer));
        k += sizeof(of_layer) / sizeof(*of_layer);
    }
    memory = mem_arrays(arrays, k, &nbytes, "the float64 reference", err);
    if (!memory)
        return -1;
    load_expert(e, expert);
    par_for(e->par, n, 1, run_rows, e);
    add_rows(e, expert);
    /* what moves by a step should move gate and up by about as much: an outlier
     * dimension of the residual stream is far from 1 */
    for (size_t row = 0; row < n; row++)
        most = fmax(most, sqrt(dot(e->x + row * h, e->x + row * h, h)));
    for (int m = 0; m < MOE_N_LORA; m++)
        lora_slopes(e, expert, m, STEP / most);
    mem_big_free(memory, nbytes, 1);
    return 0;
}

/* ---- all of it ---- */

/* From squares to struct exact's size, of n sums. */
static void
finish_size(double *size, size_t n_samples, size_t n)
{
    if (n > 0 && n_samples > 0)
        *size = sqrt(2 / M_PI * *size / (double)n_samples) *
                (0.5 + 2 / sqrt((double)n));
}

int
exact_run(struct exact *exact, const struct exact_problem *problem,
          uint64_t seed, size_t n_samples, struct par *par, struct err *err)
{
    const struct moe_config *c = problem->config;
    size_t h = c->hidden, i = c->intermediate, qlen = problem->batch->qlen;
    struct expert e = { .p = problem,
                        .exact = exact,
                        .par = par,
                        .h = h,
                        .i = i,
                        .r = c->lora_rank,
                        .s = (double)c->lora_alpha / (double)c->lora_rank,
                        .layers = { { .out = i, .in = h },
                                    { .out = i, .in = h },
                                    { .out = h, .in = i } } };
    int rc;

    *exact = (struct exact){
        .seed = seed, .n_samples = n_samples, .hidden = h, .n_output = qlen * h
    };
    exact->output =
        mem_big(exact->n_output, sizeof(double), "the float64 output", err);
    rc = exact->output ? 0 : -1;
    for (int t = 0; t < EXACT_N; t++) {
        size_t n = t < MOE_N_LORA ? c->n_experts : 1;

        exact->slope[t] = xcalloc(n * n_samples + 1, sizeof(double));
        exact->size[t] = xcalloc(n, sizeof(double));
    }
    for (size_t k = 0; k < c->n_experts && rc == 0; k++) {
        e.n = 0;
        for (size_t slot = 0; slot < qlen * c->top_k; slot++)
            e.n += problem->batch->expert_ids[slot] == (int64_t)k;
        if (e.n > 0)
            rc = run_expert(&e, k, err);
        for (int m = 0; m < MOE_N_LORA; m++)
            finish_size(exact->size[m] + k, n_samples, e.n * e.r);
    }
    finish_size(exact->size[EXACT_WEIGHTS], n_samples, qlen * c->top_k);
    if (rc < 0)
        exact_close(exact);
    return rc;
}

void
exact_close(struct exact *exact)
{
    mem_big_free(exact->output, exact->n_output, sizeof(double));
    for (int t = 0; t < EXACT_N; t++) {
        free(exact->size[t]);
        free(exact->slope[t]);
    }
    *exact = (struct exact){ 0 };
}
