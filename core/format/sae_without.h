/* SPDX-License-Identifier: ISC */
/*
 * Rows that an SAE was trained without: whoever puts its reconstruction into a
 * model leaves them as they are.  SAELens's training obeys these keys
 * (activations_store.py: slice(*seqpos_slice) of a context, then isin of the
 * ids), and its evaluation masks the same ids, not the positions.
 */
#ifndef CORE_FORMAT_SAE_WITHOUT_H
#define CORE_FORMAT_SAE_WITHOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct js;
struct saev_mask;
struct str;

struct sae_without {
    bool special; /* exclude_special_tokens: all that the tokenizer has, */
    int32_t *ids; /* [n_ids] or these; each 0 or more */
    size_t n_ids;
    bool is_slice; /* seqpos_slice: positions that range(n)[start:end:step] */
    int64_t start, end, step; /* has, and no others; step is at least 1 */
    double max_norm;          /* rows with |x| over it; or 0 */
};

/* sae_without_read() reads the keys of a configuration, which are in an object,
 * or in its "metadata".  0, or -1 with 'err' set (EX_DATAERR: a value that
 * means nothing, or two that differ).  Owner: the caller, until
 * sae_without_free(). */
int sae_without_read(struct sae_without *r, const struct js *root,
                     struct err *err);
void sae_without_free(struct sae_without *r); /* a zeroed struct is fine */

/* sae_without_put() appends these keys for rows that a mask leaves out, each
 * after ", ": SAELens's where it has one. */
void sae_without_put(struct str *to, const struct saev_mask *mask);

/* sae_without_any(): are there any?  sae_without_from_end(): does that depend
 * on the length of a text?  sae_without_at() is false of positions that a text
 * of n tokens has left out. */
bool sae_without_any(const struct sae_without *r);
bool sae_without_from_end(const struct sae_without *r);
bool sae_without_at(const struct sae_without *r, size_t position, size_t n);

/* sae_without_covered(): does a mask leave out at least these rows?  Which
 * tokens are special only ids say: a list of them is taken at its word. */
bool sae_without_covered(const struct sae_without *r,
                         const struct saev_mask *by);

/* sae_norm_add() adds the squares of x [n] to lane [SAE_NORM_LANES], zeros at
 * first, of a row: n is a multiple of that but for the row's end.  Then
 * sae_norm() is the row's L2 norm, in f64, in an order that its length fixes,
 * which max_norm is compared with. */
#define SAE_NORM_LANES 8
void sae_norm_add(double *lane, const float *x, size_t n);
double sae_norm(double *lane);

#endif
