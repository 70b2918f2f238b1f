/* SPDX-License-Identifier: ISC */
#include "core/model/router.h"

#include <string.h>

#include "core/kernel/vec.h"

void
router_select(uint32_t *ids, float *weights, size_t k, float *p, size_t n,
              bool normalize)
{
    float sum = vec_exp_sum(p, vec_max(p, n), n);

    for (size_t i = 0; i < n; i++)
        p[i] /= sum;
    vec_topk(ids, k, p, n);
    sum = 0;
    for (size_t i = 0; i < k; i++) {
        weights[i] = p[ids[i]];
        sum += weights[i];
    }
    for (size_t i = 0; normalize && i < k; i++)
        weights[i] /= sum;
}

void
router_backward(float *p, size_t n, const uint32_t *ids, const float *weights,
                const float *dweights, size_t k, bool normalize)
{
    float g = vec_dot(dweights, weights, k);

    if (normalize)
        memset(p, 0, n * sizeof(*p));
    else
        vec_scale(p, -g, n);
    /* where it is not normalized, a weight is the probability */
    for (size_t i = 0; i < k; i++)
        p[ids[i]] = weights[i] * (dweights[i] - g);
}

size_t
router_group(uint32_t *slots, size_t *begin, const uint32_t *keys, size_t n,
             size_t n_keys)
{
    memset(begin, 0, (n_keys + 1) * sizeof(*begin));
    for (size_t i = 0; i < n; i++)
        if (keys[i] < n_keys)
            begin[keys[i] + 1]++;
    for (size_t k = 0; k < n_keys; k++)
        begin[k + 1] += begin[k];
    for (size_t i = 0; i < n; i++)
        if (keys[i] < n_keys)
            slots[begin[keys[i]]++] = (uint32_t)i;
    /* filled, begin[k] has moved to where k + 1 begins */
    memmove(begin + 1, begin, n_keys * sizeof(*begin));
    begin[0] = 0;
    return begin[n_keys];
}

/* A gather or a scatter. */
struct moving {
    const struct router_slots *s;
    char *to;
    size_t stride;
    const char *from;
    size_t nbytes;
    float *sum;
    const float *weights, *rows;
    size_t cols;
};

static void
gather(void *ctx, size_t begin, size_t end)
{
    const struct moving *m = ctx;

    for (size_t i = begin; i < end; i++)
        memcpy(m->to + i * m->stride,
               m->from + m->s->slots[i] / m->s->k * m->nbytes, m->nbytes);
}

void
router_gather(struct par *par, const struct router_slots *s, void *to,
              size_t stride, const void *from, size_t nbytes)
{
    struct moving m = {
        .s = s, .to = to, .stride = stride, .from = from, .nbytes = nbytes
    };

    par_for(par, s->n, 8, gather, &m);
}

static void
scatter(void *ctx, size_t begin, size_t end)
{
    const struct moving *m = ctx;

    for (size_t i = begin; i < end; i++)
        vec_axpy(m->sum + m->s->slots[i] / m->s->k * m->cols,
                 m->weights ? m->weights[m->s->slots[i]] : 1,
                 m->rows + i * m->cols, m->cols);
}

void
router_scatter(struct par *par, const struct router_slots *s, float *sum,
               const float *weights, const float *rows, size_t cols)
{
    struct moving m = {
        .s = s, .sum = sum, .weights = weights, .rows = rows, .cols = cols
    };

    par_for(par, s->n, 8, scatter, &m);
}
