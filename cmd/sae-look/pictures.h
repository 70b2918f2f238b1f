/* SPDX-License-Identifier: ISC */
/* Pictures for a page, by a list of paths, with a grid of patches. */
#ifndef SAE_LOOK_PICTURES_H
#define SAE_LOOK_PICTURES_H

#include <stddef.h>

#include "core/err.h"
#include "core/str.h"

struct pictures {
    const char *list; /* its path */
    size_t w, h;      /* patches in a row, rows */
    struct str text;
    size_t n, *at; /* [n] where the lines begin in 'text', NULs at the ends */
};

/* pictures_open() reads 'list', "-" for standard input.  0, or -1 with 'err'
 * set.  Owner: the caller, until pictures_close(), after an error, too. */
int pictures_open(struct pictures *p, const char *list, struct err *err);
void pictures_close(struct pictures *p);

/* pictures_url() appends picture i, at most 1 MiB, as a data: URL.  0, or -1
 * with 'err' set (EX_NOINPUT, EX_IOERR, EX_DATAERR): by its first bytes it is
 * no PNG, JPEG, WebP or GIF. */
int pictures_url(const struct pictures *p, size_t i, struct str *to,
                 struct err *err);

#endif
