/* SPDX-License-Identifier: ISC */
/*
 * Pieces of an HTML page.  Every string of a file is a stranger's: it goes into
 * a page through page_text() alone, as text or in double quotes.
 */
#ifndef SAE_LOOK_PAGE_H
#define SAE_LOOK_PAGE_H

#include <stddef.h>

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

#endif
