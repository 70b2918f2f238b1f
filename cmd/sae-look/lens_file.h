/* SPDX-License-Identifier: ISC */
/* RUN/lens.safetensors: the tokens that each latent's direction promotes and
 * suppresses. */
#ifndef SAE_LOOK_LENS_FILE_H
#define SAE_LOOK_LENS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/look.h"

#define LENS_FILE "lens.safetensors"
enum lens_sign { LENS_PLUS, LENS_MINUS };

struct lens {
    struct st st; /* private */
    size_t n;     /* tokens of each sign; 0: there is no such file */
    const char *id, *value;
};

/* lens_open() opens that of a RUN, which must be of the same SAE.  0, or -1
 * with 'err' set (EX_DATAERR, EX_IOERR).  Owner: the caller, lens_close(). */
int lens_open(struct lens *lens, const struct look *l, struct err *err);
void lens_close(struct lens *lens); /* a zeroed struct is fine */

/* lens_get() is the token of a rank, 0 .. n - 1: 0, or -1 with 'err' set
 * (EX_DATAERR: it is no id and number). */
int lens_get(const struct lens *lens, size_t latent, enum lens_sign sign,
             size_t rank, int32_t *id, float *value, struct err *err);

#endif
