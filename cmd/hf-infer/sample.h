/* SPDX-License-Identifier: ISC */
/*
 * Selecting the next token, in the order of Hugging Face's generate():
 * repetition penalty, temperature, top-k, top-p, min-p, then the draw.
 */
#ifndef HF_INFER_SAMPLE_H
#define HF_INFER_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lower temperatures are 0, which is greedy: logits divided by them overflow.
 */
#define SAMPLE_MIN_TEMPERATURE 1e-6

struct sampler {
    bool greedy;               /* argmax, after the repetition penalty */
    double temperature;        /* 0: greedy; 1: off */
    int64_t top_k;             /* 0: off */
    double top_p;              /* 1: off */
    double min_p;              /* 0: off */
    double repetition_penalty; /* > 0; 1: off */
    uint64_t seed, sequence;   /* each sequence has its own draws */
};

struct sample; /* scratch memory for one vocabulary size, of one thread */

struct sample *sample_new(size_t vocab_size); /* dies if memory is gone */
void sample_free(struct sample *sample);

/*
 * sample_next() selects an id from 'logits' [vocab_size], which it overwrites.
 * 'seen' [n_seen] are the ids of prompt and output so far; 'step' counts the
 * draws of a sequence: the result is a pure function of all of these.
 * Equal logits: the lower id stands first everywhere.
 * Source: transformers/generation/logits_process.py.
 */
int32_t sample_next(struct sample *sample, const struct sampler *sampler,
                    float *logits, const int32_t *seen, size_t n_seen,
                    uint64_t step);

/* sample_distribution() is sample_next() without the draw: fills id [n] and
 * p [n] (descending) and returns n; for tests. */
size_t sample_distribution(struct sample *sample, const struct sampler *sampler,
                           float *logits, const int32_t *seen, size_t n_seen,
                           const int32_t **id, const float **p);

#endif
