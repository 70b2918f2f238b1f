/* SPDX-License-Identifier: ISC */
/*
 * Changes of an SAE's latents in the rows of a model: --steer, --ablate.
 *
 *   x becomes x + sum of c_i D_i     by latent ascending, in f32
 *   c_i   X  of I+X,  X - f_i  of I=X,  (X - 1) f_i  of I*X, f of x
 *
 * Where the SAE transforms its rows (autoencoder.h) the sum is multiplied by
 * the row's 'out', in f64.  A row whose c are all 0 keeps its bits.  One whose
 * z are not finite becomes NaN, where f is asked for.
 * Source: man/sae.5, "Changes of latents".
 */
#ifndef CORE_MODEL_STEER_H
#define CORE_MODEL_STEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/autoencoder.h"
#include "core/numbers.h"
#include "core/par.h"

struct steer_change {
    uint32_t latent;
    char how; /* '+', '=' or '*' */
    float x;
};

struct steer {
    struct steer_change *list; /* [n] by latent ascending */
    size_t n;
    bool reads; /* f: rows are encoded */
};

/*
 * steer_parse() reads changes of latents below 'n_latents', "17+8,3=0,5*2", or
 * steer_ablate() latents, "3,17,100-120", each of which is to be 0.  'name' is
 * what the user knows the text by.  0, or -1 with 'err' set (TU_USAGE).
 * Owner: the caller, until steer_free(), after an error, too.
 */
int steer_parse(struct steer *s, const char *name, const char *text,
                size_t n_latents, struct err *err);
int steer_ablate(struct steer *s, const char *name, const char *text,
                 size_t n_latents, struct err *err);
void steer_free(struct steer *s); /* a zeroed struct is fine */

/* Which tokens are steered: --steer-at. */
struct steer_at {
    enum steer_where {
        STEER_ALL,
        STEER_PROMPT,
        STEER_GENERATED,
        STEER_RANGE
    } where;
    struct index_range range; /* of positions, with RANGE */
};
int steer_at_parse(struct steer_at *at, const char *text, struct err *err);
bool steer_is_at(const struct steer_at *at, size_t position, bool generated);

/*
 * Each of some latents ablated alone, in a window of a text that is run again
 * for each: --ablate-each.  The layers before the hook run once: 'rows' is what
 * came out of the first 'n_layers', before TAP_RESID of the last one.
 * Owner: whoever gives it to an engine.
 */
#define STEER_NONE SIZE_MAX
struct steer_found {
    size_t change; /* its place in the list */
    size_t position;
    float f;
};
struct steer_each {
    size_t n_layers;
    float *rows; /* [window, hidden] by position; NULL: none run once */
    size_t now;  /* which is ablated; STEER_NONE: none, and 'found', 'rows' are
                  * filled */
    struct steer_found *found; /* [n_found] of rows where f is over 0 */
    size_t n_found, found_cap;
    float *c; /* [window] of 'now' */
};

/*
 * steer_rows() changes rows x [n, d], n at most latents_rows() where s->reads.
 * With 'each' they are those of a window from 'position' on; else NULL.
 */
struct steering {
    const struct autoencoder *a;
    const struct steer *steer;
    struct latents_work *work; /* may be NULL where it does not read f */
    struct par *par;
    struct steer_each *each;
};
void steer_rows(const struct steering *s, float *x, size_t n, size_t position);

#endif
