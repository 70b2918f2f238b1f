/* SPDX-License-Identifier: ISC */
/*
 * Pieces of an HTML page.  Every string of a file is a stranger's: it goes into
 * a page through page_text() alone, as text or in double quotes.
 */
#ifndef SAE_LOOK_PAGE_H
#define SAE_LOOK_PAGE_H

#include <stddef.h>

#include "core/err.h"
#include "core/str.h"

/* page_text() appends what str_esc() makes of a string, with U+23CE for a
 * newline and U+21E5 for a tab, and references for & < > " and '. */
void page_text(struct str *to, const char *s, size_t nbytes);

/* page_f32() appends the fewest digits that read back as v. */
void page_f32(struct str *to, float v);

/* page_begin() appends all up to the text of <title>, page_style() from there
 * to the body's start. */
void page_begin(struct str *to);
void page_style(struct str *to);

/* Pictures, by a list of paths, with a grid of patches. */
struct pictures {
    const char *list; /* its path */
    size_t w, h;      /* patches in a row, rows */
    struct str text;
    size_t n, *at; /* [n] where the paths begin in 'text', NULs at the ends */
};

/* pictures_open() reads 'list', "-" for standard input: a path a line, or what
 * hf-infer --acts-images writes.  0, or -1 with 'err' set.  Owner: the caller,
 * until pictures_close(), after an error, too. */
int pictures_open(struct pictures *p, const char *list, struct err *err);
void pictures_close(struct pictures *p);

/* pictures_url() appends picture i, at most 1 MiB, as a data: URL.  0, or -1
 * with 'err' set (EX_NOINPUT, EX_IOERR, EX_DATAERR): by its first bytes it is
 * no PNG, JPEG, WebP or GIF. */
int pictures_url(const struct pictures *p, size_t i, struct str *to,
                 struct err *err);

#endif
