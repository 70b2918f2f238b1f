#include "core/model/train/adamw.h"

#include <math.h>

#include "core/kernel/f64.h"
#include "core/mem.h"

#define GRAIN ((size_t)16384) /* elements */

int
adamw_open(struct adamw *a, size_t n, struct err *err)
{
    a->n = n;
    a->master = mem_big(n, sizeof(float), "AdamW's parameters", err);
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
    size_t first;
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
    for (size_t i = s->first + begin; i < s->first + end; i++) {
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
adamw_step(struct adamw *a, size_t first, size_t n, const float *grad,
           double scale, double lr, uint64_t t, struct par *par)
{
    struct step s = {
        .a = a,
        .first = first,
        .grad = grad,
        .scale = scale,
        .keep = 1 - lr * a->weight_decay,
        .size = lr / (1 - f64_pow(a->beta1, (double)t)),
        .correct = 1 / sqrt(1 - f64_pow(a->beta2, (double)t)),
    };

    par_for(par, n, GRAIN, step_chunk, &s);
}
