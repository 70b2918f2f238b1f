/* SPDX-License-Identifier: ISC */
/*
 * Which rows of a dump count.  Padding does not: hf-infer --pad makes a window
 * of each document, with zeros after its end, and says so in the metadata
 * ("windows": "padded" in "data"): tokens at the end whose rows are 0 in all
 * layers are padding there, and no others may be 0.  On top of that a user
 * leaves out tokens by their ids, the first ones of an image, and rows by their
 * norm.  Source: man/saev.5, "Rows that count".
 */
#ifndef CORE_FORMAT_SAEV_MASK_H
#define CORE_FORMAT_SAEV_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/saevdir.h"
#include "core/str.h"

/* What does not count; zeroed: padding alone. */
struct saev_mask {
    bool padding; /* it counts, too */
    bool special; /* not the tokens that the dump says are special */
    int32_t *ids; /* [n_ids] ascending, each once: nor these */
    size_t n_ids;
    uint64_t positions; /* nor the first so many tokens of an image */
    double max_norm; /* nor rows with a larger L2 norm; 0: all norms are fine */
    bool has_ids;    /* each row that counts must have an id */
    bool by_token;   /* with max_norm: nor is that token in the view's other
                      * layers */
};

/* saev_mask_ids() reads --skip-ids LIST, "1021,1023" or "special" or both; -1
 * with 'err' set (TU_USAGE).  Owner: the caller of mask->ids. */
int saev_mask_ids(struct saev_mask *mask, const char *list, struct err *err);

/* saev_mask_resolve(): of a mask with both, ids take the place of the word, as
 * this dump lists them.  0, or -1 with 'err' set as by saev_mask_open(). */
int saev_mask_resolve(struct saev_mask *mask, const struct saevdir *dir,
                      struct err *err);

/* saev_mask_special(): the special tokens that 'ids' know take the place of the
 * word. */
struct saev_ids;
void saev_mask_special(struct saev_mask *mask, const struct saev_ids *ids);

/* saev_mask_difference(): the first option of two that differs, as a RUN names
 * it; NULL: they leave out the same, but for padding. */
const char *saev_mask_difference(const struct saev_mask *a,
                                 const struct saev_mask *b);

/* saev_mask_skips(): is a token left out by its id, or as token t of its image?
 */
bool saev_mask_skips(const struct saev_mask *mask, int32_t id, size_t t);

/* saev_mask_given(): does it leave out more than padding? */
bool saev_mask_given(const struct saev_mask *mask);

/*
 * saev_mask_open() finds what counts of a view of 'dir': *kept is for
 * saev_view_keep(), or NULL where all rows do.  It reads some log2(tokens) rows
 * of each image of a padded dump, and for max_norm all rows, with up to
 * n_threads threads, but none of images other than first .. last: these have
 * no rows then.  A norm is a sum of squares in f64, in an order that d fixes;
 * that of a row with NaN is not larger than anything.
 * Memory: 1.1 bits a row.  0, or -1 with 'err' set: EX_DATAERR (the dump has no
 * ids, or does not say which are special), EX_IOERR, EX_SOFTWARE, EX_TEMPFAIL.
 * Owner: the caller, saev_kept_free().
 */
int saev_mask_open(struct saev_kept **kept, const struct saevdir *dir,
                   const struct saev_view *view, const struct saev_mask *mask,
                   size_t first, size_t last, int n_threads, struct err *err);

/* saev_kept_new() has no rows of n_rows yet: set bits, then saev_kept_count(),
 * which sums up how many there are. */
struct saev_kept *saev_kept_new(size_t n_rows, struct err *err);
void saev_kept_count(struct saev_kept *kept);
void saev_kept_free(struct saev_kept *kept); /* NULL is fine */

#endif
