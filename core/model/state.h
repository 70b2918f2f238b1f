/* SPDX-License-Identifier: ISC */
/*
 * What one sequence's layers without keys remember, after so many of its
 * tokens: numbers that sequences share until one of them goes on.
 */
#ifndef CORE_MODEL_STATE_H
#define CORE_MODEL_STATE_H

#include <stddef.h>

#include "core/err.h"

struct state {
    float *at;     /* [n], f32 */
    size_t *users; /* how many have it; both NULL: zeros, before any token */
};

/* state_own() makes a sequence the only one that has its n numbers: -1 with
 * 'err' set (EX_SOFTWARE), and what there was remains.
 * state_share() lets another have them, in place of its own. */
int state_own(struct state *s, size_t n, struct err *err);
void state_share(struct state *to, const struct state *from, size_t n);
void state_free(struct state *s, size_t n); /* zeros again */

#endif
