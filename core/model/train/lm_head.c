/* SPDX-License-Identifier: ISC */
/*
 * The end of the model, from the residual stream to the loss and back:
 *   loss = log(sum of exp(logits)) - logits[target]
 *   d logits = (exp(logits) / sum of exp - [target]) / number of targets
 * and of logits that are scaled and capped the way back through that.
 */
#include <string.h>

#include "core/kernel/f64.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/ends.h"
#include "core/model/train/lm_impl.h"

/* Some of the wanted rows. */
struct head {
    struct lm_work *w;
    const size_t *rows; /* [n] */
    struct lm_wanted *wanted;
    size_t hidden, vocab;
    const float *x;
    float *resid;
    double by;
};

/* A row's loss; where it is wanted the row becomes the gradient of the head's
 * product, which it is.  Parts of the sum are f32, the sum of them f64.  What
 * goes back through a cap needs logits, which exp() does not overwrite then. */
static void
cross_entropy(const struct config *c, struct lm_wanted *wanted, float *row,
              size_t vocab, bool back, double by)
{
    enum { PART = 1024 };
    float max, target, part[PART];
    bool keep = back && c->logit_softcap > 0;
    size_t at = (size_t)wanted->target, n;
    double sum = 0;

    head_end(c, row, vocab);
    max = vec_max(row, vocab);
    target = row[at];
    for (size_t k = 0; k < vocab; k += n) {
        n = smaller(PART, vocab - k);
        if (keep)
            memcpy(part, row + k, n * sizeof(*part));
        sum += (double)vec_exp_sum(keep ? part : row + k, max, n);
    }
    wanted->loss = (double)max + f64_log(sum) - (double)target;
    for (size_t k = 0; back && k < vocab; k += n) {
        n = smaller(PART, vocab - k);
        memcpy(part, row + k, n * sizeof(*part));
        if (keep)
            vec_exp_sum(row + k, max, n);
        vec_scale(row + k, (float)(by / sum), n);
        if (at >= k && at < k + n)
            row[at] -= (float)by;
        head_end_back(c, row + k, part, n);
    }
}

static void
score_rows(void *ctx, size_t begin, size_t end)
{
    const struct head *h = ctx;

    for (size_t i = begin; i < end; i++)
        cross_entropy(&h->w->engine->model->config, &h->wanted[i],
                      h->w->head.logits + i * h->vocab, h->vocab,
                      h->resid != NULL, h->by);
}

static void
gather(void *ctx, size_t begin, size_t end)
{
    const struct head *h = ctx;

    for (size_t i = begin; i < end; i++)
        memcpy(h->w->head.x + i * h->hidden, h->x + h->rows[i] * h->hidden,
               h->hidden * sizeof(float));
}

static void
scatter(void *ctx, size_t begin, size_t end)
{
    const struct head *h = ctx;

    for (size_t i = begin; i < end; i++)
        memcpy(h->resid + h->rows[i] * h->hidden, h->w->head.in + i * h->hidden,
               h->hidden * sizeof(float));
}

static void
logits_of(struct lm_work *w, const struct linear *head, size_t n)
{
    struct gemm *gemm = w->engine->gemm;
    struct gemm_job job = linear_job(head, w->head.logits, false);
    uint16_t *rounded = w->engine->rounded;
    size_t k = head->in;

    if (w->options.compute == COMPUTE_F32) {
        gemm_exact(gemm, &job, 1, w->head.in, k, n);
    } else {
        gemm_to_bf16(gemm, rounded, w->head.in, k, n, k);
        gemm_bf16(gemm, &job, 1, rounded, NULL, gemm_ld_bf16(k), n);
    }
}

/*
 * Back through the head's w, some rows of it at a time: a product goes through
 * all of its rows once for each 64 columns, and would miss the TLB at each.
 * The sums' order is that of one product, whose parts these are.
 */
static void
logits_back(struct lm_work *w, const struct linear *head, size_t n)
{
    struct gemm *gemm = w->engine->gemm;
    size_t vocab = head->out;

    for (size_t k = 0; k < vocab; k += LM_HEAD_PART) {
        struct linear part = *head;
        struct gemm_job job;

        part.w.row = k;
        part.out = smaller(vocab - k, LM_HEAD_PART);
        job = linear_back_job(&part, w->head.in, k > 0);
        if (w->options.compute == COMPUTE_F32) {
            gemm_exact(gemm, &job, 1, w->head.logits + k, vocab, n);
        } else {
            gemm_to_bf16(gemm, w->head.rounded, w->head.logits + k, vocab, n,
                         part.out);
            gemm_bf16(gemm, &job, 1, w->head.rounded, NULL,
                      gemm_ld_bf16(part.out), n);
        }
    }
}

void
lm_head(struct lm *lm, const float *x, float *resid, double by)
{
    struct lm_work *w = lm->work;
    const struct model *m = lm->model;
    const struct chunk *c = &w->engine->chunk;
    size_t hidden = m->lm_head.in, vocab = m->lm_head.out;

    if (resid)
        memset(resid, 0, c->n_rows * hidden * sizeof(*resid));
    for (size_t i = 0, n; i < c->n_wanted; i += n) {
        struct head h = {
            w, c->wanted + i, w->wanted + i, hidden, vocab, x, resid, by
        };

        n = smaller(c->n_wanted - i, w->head.rows);
        par_for(w->par, n, 16, gather, &h);
        norm_rows(w->par, &m->norm, w->head.in, w->head.x, NULL, n);
        logits_of(w, &m->lm_head, n);
        par_for(w->par, n, 1, score_rows, &h);
        if (!resid)
            continue;
        logits_back(w, &m->lm_head, n);
        norm_backward(w->par, &m->norm, NULL, w->head.in, w->head.x, n);
        par_for(w->par, n, 16, scatter, &h);
    }
}
