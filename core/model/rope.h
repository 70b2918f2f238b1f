/* SPDX-License-Identifier: ISC */
/*
 * Rotary positions: what config.json says about them, and the cosines and sines
 * of a position.
 */
#ifndef CORE_MODEL_ROPE_H
#define CORE_MODEL_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct config;
struct js;

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONG /* a second table is of sequences beyond
               * original_max_positions */
};

struct rope_config {
    enum rope_type type;
    double theta;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn; scales cos and sin */
    double mscale_all_dim; /* yarn: weight of what MLA scales scores by */
    bool truncate;         /* yarn: whole-number bounds */
    int64_t original_max_positions; /* llama3, yarn, long */
    double *factors;                /* long: [rotary_dim / 2] of wave lengths */
};

/*
 * rope_parse() reads rope_parameters, or rope_scaling and rope_theta, from a
 * config.json: of a family's tables, and c->rotary_dim; of MLA, whose keys say
 * that, head_dim and attn_scale.  -1 with 'err' set (EX_DATAERR).
 */
int rope_parse(struct rope_config *rope, const struct js *root,
               struct config *c, struct err *err);

/* rope_inv_freq() fills inv_freq [rotary_dim / 2]: radians a position. */
void rope_inv_freq(double *inv_freq, const struct rope_config *rope,
                   size_t rotary_dim);

/* rope_table() fills both tables [half] for one position, scaled by the
 * type's attention factor. */
void rope_table(float *cosines, float *sines, const struct rope_config *rope,
                const double *inv_freq, size_t half, size_t position);

#endif
