/* SPDX-License-Identifier: ISC */
/* Pictures for a page: page.h. */
#include "cmd/sae-look/page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"

#define PICTURE_MAX ((size_t)1 << 20) /* bytes */

int
pictures_open(struct pictures *p, const char *list, struct err *err)
{
    size_t cap = 0;

    p->list = list;
    if (file_read_all(list, SIZE_MAX / 2, &p->text, err) < 0)
        return -1;
    for (size_t i = 0, k; i < p->text.n; i += k + 1) {
        const char *line = p->text.s + i;
        const char *end = memchr(line, '\n', p->text.n - i);

        k = end ? (size_t)(end - line) : p->text.n - i;
        if (k == 0 || memchr(line, '\0', k))
            return err_data(err, list, "line %zu is no path", p->n + 1);
        p->text.s[i + k] = '\0';
        if (p->n == cap)
            p->at = xgrow(p->at, p->n, &cap, sizeof(*p->at));
        p->at[p->n++] = i;
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
