/* SPDX-License-Identifier: ISC */
#include "core/tsv.h"

#include <ctype.h>
#include <string.h>

#include "core/compat.h"

#define BLOCK_BYTES ((size_t)64 << 10)

/* Columns of a terminal.  A longer cell does not widen its column: padding all
 * rows to the longest name could take the square of a file's size. */
#define ALIGN_MAX 100

#define HEADER     "abcdefghijklmnopqrstuvwxyz_" /* else a first row's path */
#define MIN_DIGITS 5 /* of a count with separators: 1234, but 12,345 */

/* Is one of the cell's words the name of what is counted?  "n_imgs", "memory:
 * total"; ids, seeds and dims are no counts. */
static bool
counts_things(const char *s, size_t n)
{
    static const char words[] =
        " bad bytes count dead differ documents elements examples experts imgs"
        " inf latents memory n nan nbytes numbers parameters rows sequences"
        " shards steps targets tensors tokens windows zeros ";
    char word[16] = " ";

    for (size_t i = 0, k = 1; i <= n; i++) {
        if (i < n && isalnum((unsigned char)s[i])) {
            word[k] = s[i];
            k += k < sizeof(word) - 2;
            continue;
        }
        word[k] = ' ';
        word[k + 1] = '\0';
        if (k > 1 && strstr(words, word))
            return true;
        k = 1;
    }
    return false;
}

/* The cell as it is shown: itself, or with separators in 'buf'. */
static const char *
shown(const char *cell, size_t *n, bool count, char buf[32])
{
    size_t k = 0;

    if (!count || *n < MIN_DIGITS || *n > 20 || strspn(cell, "0123456789") < *n)
        return cell;
    for (size_t i = 0; i < *n; i++) {
        if (i && (*n - i) % 3 == 0)
            buf[k++] = ',';
        buf[k++] = cell[i];
    }
    buf[k] = '\0';
    *n = k;
    return buf;
}

/* A line with tabs: measured, or appended to 'to'. */
static void
line(struct tsv *t, const char *p, const char *nl, struct str *to)
{
    const char *tab, *name = "";
    size_t name_n = 0, spaces = 0;

    for (struct tsv_column *c = t->column; c < t->column + TSV_MAX_COLUMNS;
         c++, p = tab + 1) {
        char buf[32];
        size_t n, w, gap;
        const char *s;

        tab = memchr(p, '\t', (size_t)(nl - p));
        n = (size_t)((tab ? tab : nl) - p);
        s = shown(p, &n,
                  t->counts && (c->counts || (!tab && c <= t->column + 2 &&
                                              counts_things(name, name_n))),
                  buf);
        w = str_columns(s, n);
        gap = w < c->width ? c->width - w : 0;
        if (to) {
            spaces += c->text ? 0 : gap;
            str_addf(to, "%*s", n ? (int)spaces : 0, "");
            str_add(to, s, n);
            spaces = (n ? 0 : spaces) + (c->text ? gap : 0) + 2;
        } else {
            c->width = gap == 0 && w <= ALIGN_MAX ? w : c->width;
            if (t->n_lines == 0)
                c->counts = strspn(s, HEADER) >= n && counts_things(s, n);
            else if (n && strspn(s, "0123456789.+-einfa,") < n)
                c->text = true;
        }
        if (!tab)
            break;
        name = p;
        name_n = n;
    }
    if (to)
        str_addc(to, '\n');
    t->n_lines += !to;
}

/* Whole lines: those with tabs in a row are measured, then written. */
static void
lines(struct tsv *t, const char *p, const char *end, struct str *to)
{
    while (p < end) {
        const char *q = p, *nl = NULL;

        for (int pass = 0; pass < 2; pass++)
            for (q = p; q < end; q = nl + 1) {
                nl = memchr(q, '\n', (size_t)(end - q));
                if (!memchr(q, '\t', (size_t)(nl - q)))
                    break;
                line(t, q, nl, pass ? to : NULL);
            }
        if (q < end) { /* a line without */
            str_add(to, q, (size_t)(nl + 1 - q));
            q = nl + 1;
            t->n_lines = 0;
            memset(t->column, 0, sizeof(t->column));
        }
        p = q;
    }
}

void
tsv_add(struct tsv *t, const void *tsv, size_t nbytes, enum tsv_when when,
        struct str *to)
{
    struct str *held = &t->held;
    const char *last;
    size_t n;

    if (nbytes)
        str_add(held, tsv, nbytes);
    if (when == TSV_BLOCK && held->n < BLOCK_BYTES)
        return;
    last = held->n ? last_byte(held->s, '\n', held->n) : NULL;
    n = last ? (size_t)(last + 1 - held->s) : 0;
    if (when == TSV_NOW && t->n_lines == 0 && n &&
        memchr(held->s, '\n', n) == last)
        return;
    lines(t, held->s, held->s + n, to);
    if (when == TSV_END || n == 0) { /* half a line, or a very long one */
        str_add(to, held->s ? held->s + n : "", held->n - n);
        str_free(held);
    } else {
        memmove(held->s, held->s + n, held->n - n);
        held->n -= n;
    }
}
