/* SPDX-License-Identifier: ISC */
#include "core/tsv.h"

#include <stdbool.h>
#include <string.h>

#define MAX_COLUMNS 40

/* Characters.  A longer cell does not widen its column: padding all rows to the
 * longest name could take the square of a file's size. */
#define ALIGN_MAX 100

struct column {
    size_t width;
    bool head; /* its header was seen */
    bool text; /* something under the header is not a number */
};

/* The first pass measures, the second writes. */
void
tsv_align(struct str *text)
{
    struct column columns[MAX_COLUMNS] = { { 0 } };
    struct str to = { 0 };
    const char *end = text->s + text->n, *nl, *tab;

    for (int pass = 0; pass < 2; pass++)
        for (const char *p = text->s; p < end; p = nl + 1) {
            nl = memchr(p, '\n', (size_t)(end - p));
            for (struct column *c = columns; c < columns + MAX_COLUMNS; c++) {
                size_t n, w = 0, gap;

                tab = memchr(p, '\t', (size_t)(nl - p));
                n = (size_t)((tab ? tab : nl) - p);
                /* a terminal gives each code point one column */
                for (size_t i = 0; i < n; i++)
                    w += ((unsigned char)p[i] & 0xc0) != 0x80;
                gap = w < c->width ? c->width - w : 0;
                if (pass == 0) {
                    if (w > c->width && w <= ALIGN_MAX)
                        c->width = w;
                    if (c->head && n && strspn(p, "0123456789.+-einfa") < n)
                        c->text = true;
                    c->head = true;
                } else {
                    str_addf(&to, "%*s", c->text ? 0 : (int)gap, "");
                    str_add(&to, p, n);
                }
                if (!tab)
                    break;
                if (pass == 1)
                    str_addf(&to, "%*s", (c->text ? (int)gap : 0) + 2, "");
                p = tab + 1;
            }
            if (pass == 1)
                str_addc(&to, '\n');
        }
    str_free(text);
    *text = to;
}
