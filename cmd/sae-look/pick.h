/* SPDX-License-Identifier: ISC */
/* Which latents of a RUN are shown, and in which order. */
#ifndef SAE_LOOK_PICK_H
#define SAE_LOOK_PICK_H

#include <stddef.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/format/look_labels.h"

/*
 * pick_sorted() is the first 'most' latents of a RUN in an order, of those
 * whose density is in the range of the command: *n places among the m of the
 * RUN.  NULL with 'err' set (EX_SOFTWARE).  Owner: the caller, free().
 */
size_t *pick_sorted(const struct look *l, const struct look_cmd *cmd,
                    size_t most, size_t *n, struct err *err);

/*
 * pick_sample() sorts the sample of the i-th of m by value, largest first, of
 * equals the lower row: 'order' [l->sample.n] becomes their places in it, and
 * how many there are is returned.  Place j of n in that order is in quantile
 * pick_quantile(), 0 the strongest of 'q' equal parts; pick_quantile_end() is
 * the place after the last one in j's.
 */
size_t pick_sample(const struct look *l, size_t i, size_t *order);

static inline size_t
pick_quantile(size_t j, size_t n, size_t q)
{
    return j * q / n;
}

static inline size_t
pick_quantile_end(size_t j, size_t n, size_t q)
{
    size_t end = j + 1;

    while (end < n && pick_quantile(end, n, q) == pick_quantile(j, n, q))
        end++;
    return end;
}

/* pick_level() is how strong an f over 0 is, 1 to 10, of a latent's largest;
 * 0: it is not active. */
int pick_level(float f, float max);

/*
 * pick_pairs() is what the k-th of p goes with: the 'most' other latents of all
 * n with most rows in common, of equals the lower ones.  *n_pairs of them; NULL
 * with 'err' set (EX_SOFTWARE).  Owner: the caller, free().
 */
struct look_pair {
    int64_t latent, rows;
    double jaccard; /* NaN: rows of the other alone are not known */
};
struct look_pair *pick_pairs(const struct look *l, size_t k, size_t most,
                             size_t *n_pairs, struct err *err);

#endif
