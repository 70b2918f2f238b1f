#include "core/model/train/optim.h"

#include <math.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/mem.h"

/* Sums are made of this many parts, added in their order. */
#define N_PARTS 256
#define GRAIN   ((size_t)16384) /* elements */

const char *const schedule_names[] = { "constant", "linear", "cosine", NULL };

static double
decay(const struct schedule *s, uint64_t step)
{
    double left = s->total > step ? (double)(s->total - step) : 0;
    double span = s->total > s->warmup ? (double)(s->total - s->warmup) : 1;

    if (s->kind == SCHEDULE_LINEAR || step > s->total)
        return left / span;
    return 0.5 * (1 + cos(M_PI * (double)(step - s->warmup) / span));
}

double
schedule_lr(const struct schedule *s, uint64_t step)
{
    if (step < s->warmup)
        return s->lr * ((double)step / (double)s->warmup);
    return s->kind == SCHEDULE_CONSTANT ? s->lr : s->lr * decay(s, step);
}

/* What the parts of a sum see. */
struct parts {
    const float *a, *b;
    uint16_t *grad;
    size_t n;
    double sum[N_PARTS];
};

static size_t
part_begin(size_t n, size_t part)
{
    size_t each = (n + N_PARTS - 1) / N_PARTS;

    return part * each < n ? part * each : n;
}

static double
add_parts(struct parts *parts, struct par *par,
          void (*fn)(void *ctx, size_t begin, size_t end, int thread))
{
    double sum = 0;

    par_for(par, N_PARTS, 1, fn, parts);
    for (size_t i = 0; i < N_PARTS; i++)
        sum += parts->sum[i];
    return sum;
}

static void
mse_part(void *ctx, size_t begin, size_t end, int thread)
{
    struct parts *p = ctx;

    (void)thread;
    for (size_t part = begin; part < end; part++) {
        double sum = 0;

        for (size_t i = part_begin(p->n, part); i < part_begin(p->n, part + 1);
             i++) {
            double d = (double)p->a[i] - (double)p->b[i];

            sum += d * d;
            put_le16(&p->grad[i], f32_to_bf16((float)(2 * d / (double)p->n)));
        }
        p->sum[part] = sum;
    }
}

double
loss_mse(uint16_t *grad, const float *output, const float *target, size_t n,
         struct par *par)
{
    struct parts parts = { .a = output, .b = target, .grad = grad, .n = n };

    return add_parts(&parts, par, mse_part) / (double)n;
}

static void
square_part(void *ctx, size_t begin, size_t end, int thread)
{
    struct parts *p = ctx;

    (void)thread;
    for (size_t part = begin; part < end; part++) {
        double sum = 0;

        for (size_t i = part_begin(p->n, part); i < part_begin(p->n, part + 1);
             i++)
            sum += (double)p->a[i] * (double)p->a[i];
        p->sum[part] = sum;
    }
}

double
grad_norm(const float *grad, size_t n, struct par *par)
{
    struct parts parts = { .a = grad, .n = n };

    return sqrt(add_parts(&parts, par, square_part));
}

double
clip_scale(double norm, double clip)
{
    double scale = clip / (norm + 1e-6);

    return clip > 0 && scale < 1 ? scale : 1;
}

struct addition {
    float *sum;
    const float *grad;
};

static void
add_chunk(void *ctx, size_t begin, size_t end, int thread)
{
    const struct addition *a = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        a->sum[i] += a->grad[i];
}

void
grad_add(float *sum, const float *grad, size_t n, struct par *par)
{
    struct addition a = { sum, grad };

    par_for(par, n, GRAIN, add_chunk, &a);
}

int
adamw_open(struct adamw *a, size_t n, struct err *err)
{
    a->n = n;
    a->master = mem_big(n, sizeof(float), "the adapter's masters", err);
    a->m = mem_big(n, sizeof(float), "AdamW's first moments", err);
    a->v = mem_big(n, sizeof(float), "AdamW's second moments", err);
    if (a->master && a->m && a->v)
        return 0;
    adamw_close(a);
    return -1;
}

void
adamw_close(struct adamw *a)
{
    mem_big_free(a->master, a->n, sizeof(float));
    mem_big_free(a->m, a->n, sizeof(float));
    mem_big_free(a->v, a->n, sizeof(float));
    a->master = a->m = a->v = NULL;
}

/* One step's constants. */
struct step {
    struct adamw *a;
    const float *grad;
    double scale, keep; /* of the gradient; of a parameter */
    double size;        /* lr / (1 - beta1^t) */
    double correct;     /* 1 / sqrt(1 - beta2^t) */
};

static void
step_chunk(void *ctx, size_t begin, size_t end, int thread)
{
    const struct step *s = ctx;
    const struct adamw *a = s->a;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        double g = s->scale * (double)s->grad[i];
        double m = a->beta1 * (double)a->m[i] + (1 - a->beta1) * g;
        double v = a->beta2 * (double)a->v[i] + (1 - a->beta2) * g * g;
        double root = sqrt(v) * s->correct + a->eps;

        a->m[i] = (float)m;
        a->v[i] = (float)v;
        a->master[i] =
            (float)(s->keep * (double)a->master[i] - s->size * m / root);
    }
}

void
adamw_step(struct adamw *a, const float *grad, double scale, double lr,
           uint64_t t, struct par *par)
{
    struct step s = {
        .a = a,
        .grad = grad,
        .scale = scale,
        .keep = 1 - lr * a->weight_decay,
        .size = lr / (1 - pow(a->beta1, (double)t)),
        .correct = 1 / sqrt(1 - pow(a->beta2, (double)t)),
    };

    par_for(par, a->n, GRAIN, step_chunk, &s);
}
