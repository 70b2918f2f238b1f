/*
 * SHA-256 of what a layer's file is made of, taken next to the products.
 */
#ifndef LUT_PRECOMPUTE_DIGEST_H
#define LUT_PRECOMPUTE_DIGEST_H

#include <stdatomic.h>
#include <stddef.h>

#include "cmd/lut-precompute/matrix.h"
#include "cmd/lut-precompute/sae.h"
#include "cmd/lut-precompute/target.h"
#include "core/hash.h"

struct digest_source {
    struct hash *hash;
    const struct matrix *parts[2 * LUT_MAX_PARTS];
    size_t n, at, nbytes; /* parts; how far into which it is */
    char hex[HASH_MAX_HEX];
};

struct digests {
    struct digest_source sae, weights;
    struct par_worker *worker; /* that is, or was, at it */
    atomic_bool pause;
};

/*
 * digests_open() begins them, digests_start() has 'worker' (or nobody) go on
 * with them beside, digests_end() makes what is left: 0, or -1 (EX_TEMPFAIL).
 * digests_close() at any time after the first.
 */
void digests_open(struct digests *d, const struct sae *sae,
                  const struct target_layer *target);
void digests_start(struct digests *d, struct par_worker *worker);
int digests_end(struct digests *d, struct par *par, struct err *err);
void digests_close(struct digests *d);

#endif
