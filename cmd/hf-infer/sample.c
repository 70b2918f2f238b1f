/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/rng.h"

#define STREAM_DRAW 1 /* of core/rng: the draws of a sequence */
#define RADIX_BITS  11
#define RADIX_MASK  ((1u << RADIX_BITS) - 1)

struct candidate {
    float logit;
    int32_t id;
};

struct sample {
    size_t vocab_size;
    struct candidate *candidates; /* [vocab_size] */
    struct candidate *spare;      /* [vocab_size] the sort's other half */
    int32_t *id;                  /* [vocab_size] */
    float *p;                     /* [vocab_size] */
    unsigned char *penalized;     /* [vocab_size] */
};

struct sample *
sample_new(size_t vocab_size)
{
    struct sample *s = xcalloc(1, sizeof(*s));

    s->vocab_size = vocab_size;
    s->candidates = xcalloc(vocab_size, sizeof(*s->candidates));
    s->spare = xcalloc(vocab_size, sizeof(*s->spare));
    s->id = xcalloc(vocab_size, sizeof(*s->id));
    s->p = xcalloc(vocab_size, sizeof(*s->p));
    s->penalized = xcalloc(vocab_size, 1);
    return s;
}

void
sample_free(struct sample *s)
{
    if (!s)
        return;
    free(s->candidates);
    free(s->spare);
    free(s->id);
    free(s->p);
    free(s->penalized);
    free(s);
}

/* Each id once, however often it was seen. */
static void
penalize(struct sample *s, double penalty, float *logits, const int32_t *seen,
         size_t n_seen)
{
    float p = (float)penalty;

    if (penalty == 1)
        return;
    memset(s->penalized, 0, s->vocab_size);
    for (size_t i = 0; i < n_seen; i++) {
        size_t id = (size_t)seen[i];

        if (id >= s->vocab_size || s->penalized[id])
            continue;
        s->penalized[id] = 1;
        logits[id] = logits[id] < 0 ? logits[id] * p : logits[id] / p;
    }
}

/* Ascending keys are descending logits; a NaN comes last. */
static uint32_t
sort_key(float logit)
{
    uint32_t bits = f32_bits(logit + 0.0f); /* -0 and 0 are equal */

    if (isnan(logit))
        return UINT32_MAX;
    return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

/*
 * Descending, equals in the order they came: three passes of a radix sort.  A
 * draw from all of 151936 takes 2 to 3.3 ms of a core with AVX2 on a
 * busy machine, most of it here; one from the 50 of a top-k 0.3 to 0.4.
 */
static void
sort_candidates(struct sample *s, size_t n)
{
    for (int shift = 0; shift < 32; shift += RADIX_BITS) {
        struct candidate *from = s->candidates, *to = s->spare;
        uint32_t at[1 << RADIX_BITS] = { 0 }, sum = 0;

        for (size_t i = 0; i < n; i++)
            at[sort_key(from[i].logit) >> shift & RADIX_MASK]++;
        for (size_t i = 0; i <= RADIX_MASK; i++) {
            uint32_t count = at[i];

            at[i] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            to[at[sort_key(from[i].logit) >> shift & RADIX_MASK]++] = from[i];
        s->candidates = to;
        s->spare = from;
    }
}

static void
softmax(struct sample *s, size_t n)
{
    float sum;

    for (size_t i = 0; i < n; i++)
        s->p[i] = s->candidates[i].logit;
    sum = vec_exp_sum(s->p, s->candidates[0].logit, n);
    vec_scale(s->p, 1 / sum, n);
}

size_t
sample_distribution(struct sample *s, const struct sampler *sampler,
                    float *logits, const int32_t *seen, size_t n_seen,
                    const int32_t **id, const float **p)
{
    struct candidate last;
    size_t n = s->vocab_size;

    penalize(s, sampler->repetition_penalty, logits, seen, n_seen);
    /* not a product with 1/t: a last bit would differ, and a tie could break */
    for (size_t i = 0; sampler->temperature != 1 && i < s->vocab_size; i++)
        logits[i] /= (float)sampler->temperature;
    /* the candidates in order: top-p may want all that top-k leaves */
    if (sampler->top_k > 0)
        n = smaller(n, (size_t)sampler->top_k);
    if (n < s->vocab_size / 4) {
        vec_topk((uint32_t *)s->id, n, logits, s->vocab_size);
        for (size_t i = 0; i < n; i++)
            s->candidates[i] = (struct candidate){ logits[s->id[i]], s->id[i] };
    } else {
        for (size_t i = 0; i < s->vocab_size; i++)
            s->candidates[i] = (struct candidate){ logits[i], (int32_t)i };
        sort_candidates(s, s->vocab_size);
    }
    /* HF's top-k keeps what equals the k-th logit, too: equals are listed by
     * id, so those left out come after the last one */
    last = s->candidates[n - 1];
    for (size_t i = (size_t)last.id + 1; i < s->vocab_size; i++)
        if (logits[i] == last.logit)
            s->candidates[n++] = (struct candidate){ last.logit, (int32_t)i };
    softmax(s, n);
    if (sampler->top_p < 1) {
        double tail = 0;

        /* the fewest that hold top_p together; HF drops the tail whose sum,
         * added from the smallest, is at most 1 - top_p */
        while (n > 1) {
            tail += (double)s->p[n - 1];
            if (tail > 1 - sampler->top_p)
                break;
            n--;
        }
        softmax(s, n);
    }
    if (sampler->min_p > 0) {
        while (n > 1 && s->p[n - 1] < (float)sampler->min_p * s->p[0])
            n--;
        softmax(s, n);
    }
    for (size_t i = 0; i < n; i++)
        s->id[i] = s->candidates[i].id;
    *id = s->id;
    *p = s->p;
    return n;
}

int32_t
sample_next(struct sample *s, const struct sampler *sampler, float *logits,
            const int32_t *seen, size_t n_seen, uint64_t step)
{
    const int32_t *id;
    const float *p;
    float at, sum = 0;
    size_t n;

    if (sampler->greedy) {
        penalize(s, sampler->repetition_penalty, logits, seen, n_seen);
        return (int32_t)vec_argmax(logits, s->vocab_size);
    }
    n = sample_distribution(s, sampler, logits, seen, n_seen, &id, &p);
    at = rng_f32(sampler->seed, sampler->sequence << 8 | STREAM_DRAW, step);
    for (size_t i = 0; i + 1 < n; i++) {
        sum += p[i];
        if (at < sum)
            return id[i];
    }
    return id[n - 1];
}
