#include "core/model/moe_exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/f64.h"
#include "core/mem.h"

#define STEP                                                      \
    1e-4 /* d of the central differences: their error is d^2, and \
            1e-16 / d of rounding */

enum { GATE, UP, DOWN };

/* The expert at work, its rows (token, slot) in order, and what each has. */
struct expert {
    const struct exact_problem *p;
    struct par *par;
    size_t h, i, r; /* hidden, intermediate, rank */
    double s;
    double *w[3];                 /* base: [i, h], [i, h], [h, i] */
    double *lora[MOE_N_LORA];     /* A: [r, in], B: [out, r] */
    size_t n;                     /* rows */
    size_t *at;                   /* [n]: token * top_k + slot */
    double *weight;               /* [n] */
    double *x, *g;                /* [n, h]: input, output's gradient */
    double *out, *dx;             /* [n, h]: output without weight */
    double *base[2], *q;          /* [n, i]: W x of gate and up; Wd^T g */
    double *y[2], *act;           /* [n, i]: gate, up, and h of the two */
    double *dy[2];                /* [n, i]: their gradients */
    double *xa[2], *ha;           /* [n, r]: what is between A and B */
    double *t[2], *tg;            /* [n, r]: B^T dy, B^T g */
    double *xa_size[2], *ha_size; /* [n, r]: without cancellation */
    double *t_size[2], *tg_size;
    double *value;    /* [n]: of the loss */
    double *dot_size; /* [n]: of <da0, h> */
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

/* y [n] = root of the sum of squares of what W x adds up */
static void
mul_size(double *y, const double *w, const double *x, size_t n, size_t k)
{
    for (size_t a = 0; a < n; a++) {
        double sum = 0;

        for (size_t b = 0; b < k; b++)
            sum += w[a * k + b] * x[b] * w[a * k + b] * x[b];
        y[a] = sqrt(sum);
    }
}

/* y [k], the same of W^T x */
static void
mul_t_size(double *y, const double *w, const double *x, size_t n, size_t k)
{
    for (size_t b = 0; b < k; b++) {
        double sum = 0;

        for (size_t a = 0; a < n; a++)
            sum += x[a] * w[a * k + b] * x[a] * w[a * k + b];
        y[b] = sqrt(sum);
    }
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

/* gate and up of a row, and h, from base products and input. */
static void
activate(const struct expert *e, double *const xa[2], double *const y[2],
         double *act, const double *const base[2], const double *x)
{
    static const int as[] = { MOE_GATE_A, MOE_UP_A };

    for (size_t m = 0; m < 2; m++) {
        memcpy(y[m], base[m], e->i * sizeof(double));
        mul(xa[m], 1, false, e->lora[as[m]], x, e->r, e->h);
        mul(y[m], e->s, true, e->lora[as[m] + 1], xa[m], e->i, e->r);
    }
    for (size_t j = 0; j < e->i; j++)
        act[j] = y[0][j] * sigmoid(y[0][j]) * y[1][j];
}

/*
 * The loss of a row of weight 1: <g, Wd h + s B A h>.  The first part as
 * <Wd^T g, h>, or each difference would cost a product with Wd.
 */
static double
row_loss(const struct expert *e, size_t row, const double *const base[2],
         const double *x)
{
    double *work = xcalloc(3 * e->i + 3 * e->r + e->h, sizeof(double));
    double *y[2] = { work, work + e->i }, *act = work + 2 * e->i;
    double *a = act + e->i, *xa[2] = { a + e->r, a + 2 * e->r };
    double *out = a + 3 * e->r, loss;

    activate(e, xa, y, act, base, x);
    mul(a, 1, false, e->lora[MOE_DOWN_A], act, e->r, e->i);
    mul(out, e->s, false, e->lora[MOE_DOWN_B], a, e->h, e->r);
    loss =
        dot(e->q + row * e->i, act, e->i) + dot(e->g + row * e->h, out, e->h);
    free(work);
    return loss;
}

static void
loss_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct expert *e = ctx;

    (void)thread;
    for (size_t row = begin; row < end; row++) {
        const double *const base[] = { e->base[GATE] + row * e->i,
                                       e->base[UP] + row * e->i };

        e->value[row] =
            e->weight[row] * row_loss(e, row, base, e->x + row * e->h);
    }
}

static double
expert_loss(struct expert *e)
{
    double sum = 0;

    par_for(e->par, e->n, 1, loss_rows, e);
    for (size_t row = 0; row < e->n; row++)
        sum += e->value[row];
    return sum;
}

/* The loss of a row whose input's element j is v. */
static double
moved_input(const struct expert *e, size_t row, size_t j, double v)
{
    double *x = xcalloc(e->h + 2 * e->i, sizeof(double));
    double *base[2] = { x + e->h, x + e->h + e->i }, loss;

    memcpy(x, e->x + row * e->h, e->h * sizeof(double));
    x[j] = v;
    for (size_t m = 0; m < 2; m++)
        mul(base[m], 1, false, e->w[m], x, e->i, e->h);
    loss = e->weight[row] *
           row_loss(e, row, (const double *const[]){ base[0], base[1] }, x);
    free(x);
    return loss;
}

static size_t
lora_elements(const struct exact_problem *p, int m)
{
    uint64_t shape[3];

    moe_lora_shape(p->config, (enum moe_lora_matrix)m, shape);
    return (size_t)(shape[1] * shape[2]);
}

/* The central difference by an element of an expert's matrix m.  What it is
 * multiplied with may be far from 1, as an outlier dimension of the residual
 * stream is: the step is then smaller by that. */
static double
lora_difference(struct expert *e, int m, size_t i)
{
    int which = m / 2;
    bool down = which == DOWN, a = m % 2 == 0;
    const double *in = a ? (down ? e->act : e->x) : down ? e->ha : e->xa[which];
    size_t width = !a ? e->r : down ? e->i : e->h;
    double *v = e->lora[m] + i, was = *v, most = 1, d, up, down_by;

    for (size_t row = 0; row < e->n; row++)
        most = fmax(most, fabs(in[row * width + i % width]));
    d = STEP / most;
    *v = was + d;
    up = expert_loss(e);
    *v = was - d;
    down_by = expert_loss(e);
    *v = was;
    return (up - down_by) / (2 * d);
}

static void
take_samples(struct expert *e, size_t expert, struct exact_sample *samples,
             size_t n_samples)
{
    for (size_t k = 0; k < n_samples; k++) {
        struct exact_sample *s = &samples[k];
        bool input = s->tensor == EXACT_INPUT;
        size_t token = s->i / e->h, j = s->i % e->h, n;
        double sum = 0;

        if (s->tensor < MOE_N_LORA) {
            n = lora_elements(e->p, s->tensor);
            if (s->i / n == expert)
                s->difference = lora_difference(e, s->tensor, s->i % n);
            continue;
        }
        for (size_t row = 0; row < e->n; row++) {
            double x = e->x[row * e->h + j], w = e->weight[row];

            if (input && e->at[row] / e->p->config->top_k == token) {
                sum += moved_input(e, row, j, x + STEP) -
                       moved_input(e, row, j, x - STEP);
            } else if (!input && e->at[row] == s->i) {
                e->weight[row] = w + STEP;
                loss_rows(e, row, row + 1, 0);
                sum = e->value[row];
                e->weight[row] = w - STEP;
                loss_rows(e, row, row + 1, 0);
                sum -= e->value[row];
                e->weight[row] = w;
            }
        }
        s->difference += sum / (2 * STEP);
    }
}

/* Forward and backward of rows. */
static void
run_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct expert *e = ctx;
    size_t h = e->h, i = e->i, r = e->r;

    (void)thread;
    for (size_t row = begin; row < end; row++) {
        const double *x = e->x + row * h, *g = e->g + row * h;
        double *y[] = { e->y[GATE] + row * i, e->y[UP] + row * i };
        double *base[] = { e->base[GATE] + row * i, e->base[UP] + row * i };
        double *xa[] = { e->xa[GATE] + row * r, e->xa[UP] + row * r };
        double *act = e->act + row * i, *ha = e->ha + row * r;
        double *out = e->out + row * h, *dx = e->dx + row * h;
        double *q = e->q + row * i, *tg = e->tg + row * r;
        double *dy[] = { e->dy[GATE] + row * i, e->dy[UP] + row * i };

        for (size_t m = 0; m < 2; m++) {
            mul(base[m], 1, false, e->w[m], x, i, h);
            mul_size(e->xa_size[m] + row * r, e->lora[2 * m], x, r, h);
        }
        activate(e, xa, y, act, (const double *const[]){ base[0], base[1] }, x);
        mul(ha, 1, false, e->lora[MOE_DOWN_A], act, r, i);
        mul_size(e->ha_size + row * r, e->lora[MOE_DOWN_A], act, r, i);
        mul(out, 1, false, e->w[DOWN], act, h, i);
        mul(out, e->s, true, e->lora[MOE_DOWN_B], ha, h, r);

        mul_t(q, 1, e->w[DOWN], g, h, i);
        mul_t(tg, 1, e->lora[MOE_DOWN_B], g, h, r);
        memcpy(dy[UP], q, i * sizeof(double));
        mul_t(dy[UP], e->s, e->lora[MOE_DOWN_A], tg, r, i);
        mul_t_size(e->tg_size + row * r, e->lora[MOE_DOWN_B], g, h, r);
        mul_size(e->dot_size + row, act, dy[UP], 1, i);
        for (size_t j = 0; j < i; j++) {
            double dh = e->weight[row] * dy[UP][j], sig = sigmoid(y[GATE][j]);

            dy[UP][j] = dh * y[GATE][j] * sig;
            dy[GATE][j] = dh * y[UP][j] * sig * (1 + y[GATE][j] * (1 - sig));
        }
        for (size_t m = 0; m < 2; m++) {
            const double *a = e->lora[2 * m], *b = e->lora[2 * m + 1];
            double *t = e->t[m] + row * r;

            mul_t(t, 1, b, dy[m], i, r);
            mul_t_size(e->t_size[m] + row * r, b, dy[m], i, r);
            mul_t(dx, 1, e->w[m], dy[m], i, h);
            mul_t(dx, e->s, a, t, r, h);
        }
    }
}

/* grad = s times the sum over rows of left right^T, weighted or not. */
static void
outer(double *grad, const struct expert *e, bool weighted, const double *left,
      size_t n_left, const double *right, size_t n_right)
{
    for (size_t row = 0; row < e->n; row++)
        for (size_t a = 0; a < n_left; a++) {
            double v =
                e->s * left[row * n_left + a] * (weighted ? e->weight[row] : 1);

            for (size_t b = 0; b < n_right; b++)
                grad[a * n_right + b] += v * right[row * n_right + b];
        }
}

/* Of the root of a sum of squares: see struct exact. */
static double
without_cancellation(double n)
{
    return sqrt(2 / M_PI) * (0.5 + 2 / sqrt(n));
}

/* struct exact's size of that, one of the two being sums' sizes. */
static double
outer_size(const struct expert *e, bool weighted, const double *left,
           size_t n_left, const double *right, size_t n_right)
{
    double total = 0;

    for (size_t a = 0; a < n_left; a++)
        for (size_t b = 0; b < n_right; b++) {
            double sum = 0;

            for (size_t row = 0; row < e->n; row++) {
                double v = left[row * n_left + a] * right[row * n_right + b] *
                           (weighted ? e->weight[row] : 1);

                sum += v * v;
            }
            total += sqrt(sum);
        }
    return e->s * total / (double)(n_left * n_right) *
           without_cancellation((double)(e->n * e->r));
}

/* The six gradients of an expert, and their sizes. */
struct gradients {
    const struct expert *e;
    double *grad[MOE_N_LORA], *size[MOE_N_LORA];
};

static void
lora_gradient(void *ctx, size_t begin, size_t end, int thread)
{
    const struct gradients *of = ctx;
    const struct expert *e = of->e;

    (void)thread;
    for (size_t m = begin; m < end; m++) {
        size_t k = m / 2;

        bool down = k == DOWN, a = m % 2 == 0;
        const double *dy = down ? e->g : e->dy[k], *x = down ? e->act : e->x;
        size_t n_dy = down ? e->h : e->i, n_x = down ? e->i : e->h;

        if (a) {
            outer(of->grad[m], e, down, down ? e->tg : e->t[k], e->r, x, n_x);
            *of->size[m] = outer_size(e, down, down ? e->tg_size : e->t_size[k],
                                      e->r, x, n_x);
        } else {
            outer(of->grad[m], e, down, dy, n_dy, down ? e->ha : e->xa[k],
                  e->r);
            *of->size[m] = outer_size(e, down, dy, n_dy,
                                      down ? e->ha_size : e->xa_size[k], e->r);
        }
    }
}

/* Adds the expert's rows to the results. */
static void
add_results(struct exact *exact, struct expert *e, size_t expert)
{
    double n_weights = (double)exact->n[EXACT_WEIGHTS];
    struct gradients of = { .e = e };

    for (int m = 0; m < MOE_N_LORA; m++) {
        of.grad[m] = exact->grad[m] + expert * lora_elements(e->p, m);
        of.size[m] = exact->size[m] + expert;
    }
    par_for(e->par, MOE_N_LORA, 1, lora_gradient, &of);
    for (size_t row = 0; row < e->n; row++) {
        size_t token = e->at[row] / e->p->config->top_k * e->h;

        for (size_t j = 0; j < e->h; j++) {
            exact->output[token + j] += e->weight[row] * e->out[row * e->h + j];
            exact->grad[EXACT_INPUT][token + j] += e->dx[row * e->h + j];
        }
        exact->grad[EXACT_WEIGHTS][e->at[row]] =
            dot(e->g + row * e->h, e->out + row * e->h, e->h);
        *exact->size[EXACT_WEIGHTS] +=
            e->dot_size[row] / n_weights * without_cancellation(n_weights);
    }
}

/* n bf16 of any address, in float64. */
static void
widen(double *to, const void *from, size_t n)
{
    float f[256];

    for (size_t done = 0; done < n;) {
        size_t part = n - done < 256 ? n - done : 256;

        cvt_to_f32(f, (const char *)from + done * 2, DT_BF16, part);
        for (size_t i = 0; i < part; i++)
            to[done + i] = (double)f[i];
        done += part;
    }
}

/* Operands in float64: the expert's base weights, as the operator has them,
 * rounded to bf16 or I8 times its scale; its adapter; its rows. */
static void
load_expert(struct expert *e, size_t expert)
{
    const struct moe_base *base = e->p->base;
    const struct moe_batch *b = e->p->batch;
    const struct gemm_matrix *const matrices[] = { base->gate, base->up,
                                                   base->down };
    size_t top_k = e->p->config->top_k, row = 0;
    float *f = xcalloc(larger(e->h, e->i), sizeof(*f));
    uint16_t *half = xcalloc(larger(e->h, e->i), sizeof(*half));

    for (int m = 0; m < 3; m++) {
        const struct gemm_matrix *w = &matrices[m][expert];
        size_t n = m == DOWN ? e->h : e->i, k = m == DOWN ? e->i : e->h;
        size_t size = dtype_table[w->dtype].bits / 8;

        for (size_t a = 0; a < n; a++) {
            const char *from = (const char *)w->data + a * w->ld * size;
            double *to = e->w[m] + a * k;

            for (size_t c = 0; c < k && w->dtype == DT_I8; c++)
                to[c] = (double)((const int8_t *)from)[c] *
                        (double)base->scale[m][expert * n + a];
            if (w->dtype == DT_I8)
                continue;
            cvt_to_f32(f, from, w->dtype, k);
            cvt_from_f32(half, DT_BF16, f, k);
            widen(to, half, k);
        }
    }
    free(half);
    free(f);
    for (int m = 0; m < MOE_N_LORA; m++) {
        size_t n = lora_elements(e->p, m);

        widen(e->lora[m], e->p->lora->m[m] + expert * n, n);
    }
    for (size_t i = 0; i < b->qlen * top_k; i++)
        if (b->expert_ids[i] == (int64_t)expert) {
            size_t token = i / top_k;

            e->at[row] = i;
            e->weight[row] = (double)b->weights[i];
            widen(e->x + row * e->h, b->input + token * e->h, e->h);
            widen(e->g + row * e->h, e->p->grad_output + token * e->h, e->h);
            row++;
        }
}

static int
run_expert(struct exact *exact, struct expert *e, size_t expert,
           struct exact_sample *samples, size_t n_samples, struct err *err)
{
    size_t h = e->h, i = e->i, r = e->r, n = e->n, nbytes;
    const struct mem_array arrays[] = {
        { &e->w[GATE], i, h, 8 },
        { &e->w[UP], i, h, 8 },
        { &e->w[DOWN], h, i, 8 },
        { &e->lora[MOE_GATE_A], r, h, 8 },
        { &e->lora[MOE_GATE_B], i, r, 8 },
        { &e->lora[MOE_UP_A], r, h, 8 },
        { &e->lora[MOE_UP_B], i, r, 8 },
        { &e->lora[MOE_DOWN_A], r, i, 8 },
        { &e->lora[MOE_DOWN_B], h, r, 8 },
        { &e->x, n, h, 8 },
        { &e->g, n, h, 8 },
        { &e->out, n, h, 8 },
        { &e->dx, n, h, 8 },
        { &e->base[GATE], n, i, 8 },
        { &e->base[UP], n, i, 8 },
        { &e->q, n, i, 8 },
        { &e->y[GATE], n, i, 8 },
        { &e->y[UP], n, i, 8 },
        { &e->act, n, i, 8 },
        { &e->dy[GATE], n, i, 8 },
        { &e->dy[UP], n, i, 8 },
        { &e->xa[GATE], n, r, 8 },
        { &e->xa[UP], n, r, 8 },
        { &e->ha, n, r, 8 },
        { &e->t[GATE], n, r, 8 },
        { &e->t[UP], n, r, 8 },
        { &e->tg, n, r, 8 },
        { &e->xa_size[GATE], n, r, 8 },
        { &e->xa_size[UP], n, r, 8 },
        { &e->ha_size, n, r, 8 },
        { &e->t_size[GATE], n, r, 8 },
        { &e->t_size[UP], n, r, 8 },
        { &e->tg_size, n, r, 8 },
        { &e->weight, n, 1, 8 },
        { &e->value, n, 1, 8 },
        { &e->dot_size, n, 1, 8 },
        { &e->at, n, 1, sizeof(*e->at) },
    };
    void *memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &nbytes,
                              "the float64 reference", err);

    if (!memory)
        return -1;
    load_expert(e, expert);
    par_for(e->par, e->n, 1, run_rows, e);
    add_results(exact, e, expert);
    take_samples(e, expert, samples, n_samples);
    mem_big_free(memory, nbytes, 1);
    return 0;
}

int
exact_run(struct exact *exact, const struct exact_problem *problem,
          struct exact_sample *samples, size_t n_samples, struct par *par,
          struct err *err)
{
    const struct moe_config *c = problem->config;
    size_t qlen = problem->batch->qlen;
    struct expert e = { .p = problem,
                        .par = par,
                        .h = c->hidden,
                        .i = c->intermediate,
                        .r = c->lora_rank,
                        .s = (double)c->lora_alpha / (double)c->lora_rank };
    int rc;

    *exact = (struct exact){ .n_output = qlen * c->hidden };
    for (int m = 0; m < MOE_N_LORA; m++)
        exact->n[m] = c->n_experts * lora_elements(problem, m);
    exact->n[EXACT_INPUT] = exact->n_output;
    exact->n[EXACT_WEIGHTS] = qlen * c->top_k;
    exact->output =
        mem_big(exact->n_output, sizeof(double), "the float64 output", err);
    rc = exact->output ? 0 : -1;
    for (int m = 0; m < EXACT_N && rc == 0; m++) {
        exact->grad[m] =
            mem_big(exact->n[m], sizeof(double), "a float64 gradient", err);
        exact->size[m] = xcalloc(c->n_experts, sizeof(double));
        rc = exact->grad[m] ? 0 : -1;
    }
    for (size_t k = 0; k < n_samples; k++)
        samples[k].difference = 0;
    for (size_t i = 0; i < c->n_experts && rc == 0; i++) {
        e.n = 0;
        for (size_t k = 0; k < qlen * c->top_k; k++)
            e.n += problem->batch->expert_ids[k] == (int64_t)i;
        if (e.n > 0)
            rc = run_expert(exact, &e, i, samples, n_samples, err);
    }
    if (rc < 0)
        exact_close(exact);
    return rc;
}

void
exact_close(struct exact *exact)
{
    mem_big_free(exact->output, exact->n_output, sizeof(double));
    for (int m = 0; m < EXACT_N; m++)
        free(exact->size[m]);
    for (int m = 0; m < EXACT_N; m++)
        mem_big_free(exact->grad[m], exact->n[m], sizeof(double));
    *exact = (struct exact){ 0 };
}
