/* SPDX-License-Identifier: ISC */
/* Pictures for a page: page.h. */
#include "cmd/sae-look/page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"

#define PICTURE_MAX ((size_t)1 << 20) /* bytes */

/* hf-infer's --acts-images: the path is the last field of a line that begins
 * with its row, with tabs, newlines and backslashes as \t, \n and \\. */
#define TABLE "row\tlabel\tclass\tpath\n"

/* The path in a line of such a table that is row i's, or NULL. */
static char *
path_of(char *line, size_t i)
{
    char *from, *to;

    if (strtoull(line, &from, 10) != i)
        return NULL;
    for (int tabs = 0; tabs < 3; tabs++, from++)
        if (!(from = strchr(from, '\t')))
            return NULL;
    line = to = from;
    for (; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        else {
            *to++ = *from;
            continue;
        }
        *to++ = *from == 't' ? '\t' : *from == 'n' ? '\n' : *from;
    }
    *to = '\0';
    return line;
}

int
pictures_open(struct pictures *p, const char *list, struct err *err)
{
    size_t cap = 0, k;
    bool table;

    p->list = list;
    if (file_read_all(list, SIZE_MAX / 2, &p->text, err) < 0)
        return -1;
    table = p->text.n && !strncmp(p->text.s, TABLE, strlen(TABLE));
    for (size_t i = table ? strlen(TABLE) : 0; i < p->text.n; i += k + 1) {
        char *line = p->text.s + i, *path = line;
        const char *end = memchr(line, '\n', p->text.n - i);

        k = end ? (size_t)(end - line) : p->text.n - i;
        line[k] = '\0';
        if (strlen(line) < k)
            path = NULL;
        else if (table)
            path = path_of(line, p->n);
        if (!path || !*path)
            return err_data(err, list, "line %zu is no path", p->n + 1 + table);
        if (p->n == cap)
            p->at = xgrow(p->at, p->n, &cap, sizeof(*p->at));
        p->at[p->n++] = (size_t)(path - p->text.s);
    }
    return 0;
}

void
pictures_close(struct pictures *p)
{
    free(p->at);
    str_free(&p->text);
}

static const char *
type_of(const char *s, size_t n)
{
    static const struct {
        const char *bytes, *type; /* '?': any */
    } known[] = {
        { "\x89PNG\r\n\x1a\n", "png" },
        { "\xff\xd8\xff", "jpeg" },
        { "RIFF????WEBP", "webp" },
        { "GIF87a", "gif" },
        { "GIF89a", "gif" },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *b = known[i].bytes;
        size_t k = 0;

        while (b[k] && k < n && (b[k] == '?' || b[k] == s[k]))
            k++;
        if (!b[k])
            return known[i].type;
    }
    return NULL;
}

static void
base64(struct str *to, const char *s, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    char *p;

    str_reserve(to, (n + 2) / 3 * 4 + 1);
    p = to->s + to->n;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;

        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < n ? (unsigned char)s[i + k] : 0);
        *p++ = digits[v >> 18];
        *p++ = digits[v >> 12 & 63];
        *p++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *p++ = i + 2 < n ? digits[v & 63] : '=';
    }
    *p = '\0';
    to->n = (size_t)(p - to->s);
}

int
pictures_url(const struct pictures *p, size_t i, struct str *to,
             struct err *err)
{
    const char *path = p->text.s + p->at[i], *type = NULL;
    struct str bytes = { 0 };
    int rc = file_read_regular(path, PICTURE_MAX, &bytes, err);

    if (rc == 0 && !(type = type_of(bytes.s, bytes.n)))
        rc = err_data(err, path, "is no PNG, JPEG, WebP or GIF");
    if (rc == 0) {
        str_addf(to, "data:image/%s;base64,", type);
        base64(to, bytes.s, bytes.n);
    }
    str_free(&bytes);
    return rc;
}
