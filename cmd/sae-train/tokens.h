/* SPDX-License-Identifier: ISC */
/* eval --by token: which tokens have the errors. */
#ifndef SAE_TRAIN_TOKENS_H
#define SAE_TRAIN_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "core/model/rows.h"
#include "core/str.h"

struct tokens {
    size_t n, n_saes;
    int32_t *id;      /* [n] ascending, each once */
    uint64_t *rows;   /* [n] */
    double *error;    /* [n_saes, n] sums of |x - x^|^2 */
    double *variance; /* [n] of |x - mean|^2, the mean of all rows */
    int32_t *of_row;  /* [batch] */
};

/* tokens_open() finds the ids of the rows' dumps, 4 bytes a token.  Owner: the
 * caller, until tokens_close(); a zeroed struct is fine there. */
void tokens_open(struct tokens *t, const struct row_stream *rows, size_t batch,
                 size_t n_saes);
void tokens_close(struct tokens *t);

/* tokens_add() adds the n rows of a batch, whose errors are errors[i * ld +
 * row]; tokens_variance() the first n of one, in a second pass. */
void tokens_add(struct tokens *t, const struct row_stream *rows, size_t n,
                const double *errors, size_t ld);
void tokens_variance(struct tokens *t, const struct row_stream *rows, size_t n,
                     const double *mean);

/* tokens_put() appends the twenty that have most of an SAE's error: lines of
 * TSV, after 'prefix', or a JSON array. */
void tokens_put(const struct tokens *t, size_t sae, bool json,
                const char *prefix, struct str *to);

#endif
