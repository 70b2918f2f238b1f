/* SPDX-License-Identifier: ISC */
#include "core/model/router.h"

#include <string.h>

#include "core/kernel/vec.h"
#include "core/mem.h"

/* Of a task: less does not pay for waking a thread. */
#define SCATTER_FLOATS 16384

static void
softmax(float *x, size_t n)
{
    float sum = vec_exp_sum(x, vec_max(x, n), n);

    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* Masks the choice of all groups but the best. */
static void
mask_groups(const struct router *r, float *choice)
{
    const struct router_kind *kind = r->kind;
    size_t n_groups = (size_t)kind->n_groups, n = r->n / n_groups;
    size_t n_top = (size_t)kind->n_top_groups;
    size_t n_best = kind->groups == GROUPS_MAX ? 1 : 2;
    float best[ROUTER_MAX_EXPERTS];
    uint32_t top[ROUTER_MAX_EXPERTS];

    for (size_t g = 0; g < n_groups; g++) {
        const float *of = choice + g * n;
        uint32_t two[2];

        vec_topk(two, n_best, of, n);
        best[g] = n_best == 1 ? of[two[0]] : of[two[0]] + of[two[1]];
    }
    vec_topk(top, n_groups, best, n_groups);
    for (size_t g = n_top; g < n_groups; g++)
        for (size_t i = 0; i < n; i++)
            choice[top[g] * n + i] = kind->masked;
}

void
router_select(const struct router *r, uint32_t *ids, float *weights, float *p)
{
    const struct router_kind *kind = r->kind;
    bool grouped = kind->groups != GROUPS_NONE && kind->n_groups > 1;
    float own[ROUTER_MAX_EXPERTS], *choice = p, sum = kind->floor;

    if (kind->score == ROUTER_SOFTMAX)
        softmax(p, r->n);
    else if (kind->score == ROUTER_SIGMOID)
        vec_act(ACT_SIGMOID, p, NULL, r->n);
    if (kind->corrected || grouped)
        choice = memcpy(own, p, r->n * sizeof(*p));
    if (kind->corrected)
        vec_add(choice, r->correction, r->n);
    if (grouped)
        mask_groups(r, choice);
    vec_topk(ids, r->k, choice, r->n);
    for (size_t i = 0; i < r->k; i++) {
        weights[i] = p[ids[i]];
        sum += weights[i];
    }
    if (kind->score == ROUTER_TOP)
        softmax(weights, r->k);
    for (size_t i = 0; kind->normalize && i < r->k; i++)
        weights[i] /= sum;
    if (kind->scaling > 0)
        vec_scale(weights, (float)kind->scaling, r->k);
}

void
router_backward(const struct router *r, float *p, const uint32_t *ids,
                const float *weights, float *dweights)
{
    const struct router_kind *kind = r->kind;
    bool sigmoid = kind->score == ROUTER_SIGMOID;
    bool all = kind->score == ROUTER_SOFTMAX && !kind->normalize;
    float sum = vec_dot(dweights, weights, r->k);
    float g = kind->scaling > 0 ? sum / (float)kind->scaling : sum;

    for (size_t i = 0; i < r->k; i++)
        dweights[i] =
            weights[i] *
            (sigmoid && !kind->normalize ? dweights[i] : dweights[i] - g) *
            (sigmoid ? 1 - p[ids[i]] : 1);
    if (all)
        vec_scale(p, -sum, r->n);
    else
        memset(p, 0, r->n * sizeof(*p));
    for (size_t i = 0; i < r->k; i++)
        p[ids[i]] = dweights[i];
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

    for (size_t i = 0; i < m->s->n; i++)
        vec_axpy(m->sum + m->s->slots[i] / m->s->k * m->cols + begin,
                 m->weights ? m->weights[m->s->slots[i]] : 1,
                 m->rows + i * m->cols + begin, end - begin);
}

void
router_scatter(struct par *par, const struct router_slots *s, float *sum,
               const float *weights, const float *rows, size_t cols)
{
    struct moving m = {
        .s = s, .sum = sum, .weights = weights, .rows = rows, .cols = cols
    };

    /* Columns are cut, as a token may have several slots, which add in order:
     * into whole lines, and enough of them for a task. */
    if (s->n > 0)
        par_for(par, cols,
                16 + larger(cols / (4 * (size_t)par_threads(par)),
                            SCATTER_FLOATS / s->n) /
                         16 * 16,
                scatter, &m);
}
