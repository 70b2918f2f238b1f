/* SPDX-License-Identifier: ISC */
/*
 * One pass over the active latents of rows makes a RUN of sae-look: counts,
 * exact sums, histograms, and each latent's best and sampled examples.
 *
 * Every result is a function of the set of (latent, sequence) pairs, so that it
 * has the same bits in whatever order and parts they come: threads own ranges
 * of latents, and parts are merged by the order that selects examples.
 * Source: man/sae-look.5.
 */
#ifndef CORE_MODEL_LOOK_PASS_H
#define CORE_MODEL_LOOK_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/look.h"
#include "core/format/saev_ids.h"
#include "core/par.h"

/* Rows of whole sequences, and what is active in those that count. */
struct look_codes {
    uint64_t first; /* number of the first row */
    size_t n_rows;
    const bool *counts;  /* [n_rows] */
    const size_t *begin; /* [n_rows + 1] of each row's codes: */
    const uint32_t *idx; /* latents, ascending; */
    const float *f;      /* f of them, over 0 and finite */
};

/*
 * look_pass_open() allocates the arrays of 'l', whose sizes, options and
 * 'latent' and 'pair_latent' of p numbers the caller has set, all counts 0;
 * l->ids_sha256, if examples have ids: of 'ids' of all rows, or, if that is
 * NULL, of merged parts.  All are borrowed.  look_write() gets an example's
 * places from the pass: what is active in them is all that it keeps.
 * look_pass_nbytes() is the most memory it takes; false if that leaves 64 bits.
 * 0, or -1 with 'err' set (EX_SOFTWARE).
 * Owner: the caller, until look_pass_close(), with which the arrays die.
 */
struct look_pass;
int look_pass_open(struct look_pass **pass, struct look *l,
                   const struct saev_ids *ids, struct par *par,
                   struct err *err);
bool look_pass_nbytes(const struct look *l, const struct saev_ids *ids,
                      size_t *nbytes);
void look_pass_close(struct look_pass *pass); /* NULL is fine */

/* look_pass_add() adds rows, up to 2^31; each sequence comes once, in any
 * order. 0, or -1 with 'err' set: EX_SOFTWARE, EX_DATAERR (2^32 codes or more).
 */
int look_pass_add(struct look_pass *pass, const struct look_codes *codes,
                  struct err *err);

/* look_pass_merge() adds the finished RUN of other rows, of the same options
 * and latents. 0, or -1 with 'err' set (EX_SOFTWARE). */
int look_pass_merge(struct look_pass *pass, const struct look *part,
                    struct err *err);

/* look_pass_end() puts examples in their order and rounds sums. */
void look_pass_end(struct look_pass *pass);

#endif
