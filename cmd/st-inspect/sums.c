/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/sums.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define HEAD "algorithm\tdigest\tbytes\tfile\ttensor"

static int
hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Undoes str_esc(); false if str_esc() cannot have written this. */
static bool
unescape(struct str *to, const char *s, size_t n)
{
    static const char from[] = "\\ntr", means[] = "\\\n\t\r";

    str_adds(to, ""); /* so that an empty field is not NULL */
    for (size_t i = 0; i < n; i++) {
        const char *simple;
        uint32_t c = 0;
        char utf8[4];
        size_t k;

        if (s[i] != '\\') {
            str_addc(to, s[i]);
            continue;
        }
        if (++i == n)
            return false;
        if (s[i] && (simple = strchr(from, s[i]))) {
            str_addc(to, means[simple - from]);
        } else if (s[i] == 'x' && n - i > 2 && hex_value(s[i + 1]) >= 0 &&
                   hex_value(s[i + 2]) >= 0) {
            str_addc(to,
                     (char)(hex_value(s[i + 1]) << 4 | hex_value(s[i + 2])));
            i += 2;
        } else if (s[i] == 'u' && n - i > 2 && s[i + 1] == '{') {
            for (k = i + 2; k < n && hex_value(s[k]) >= 0 && c <= 0xffff; k++)
                c = c << 4 | (uint32_t)hex_value(s[k]);
            if (k == n || s[k] != '}')
                return false;
            str_add(to, utf8, (size_t)utf8_put(utf8, c));
            i = k;
        } else {
            return false;
        }
    }
    return true;
}

static bool
take_digest(struct sums_line *e, const char *hex, size_t n)
{
    if (n != 32 && n != 64)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (hex_value(hex[i]) < 0)
            return false;
        e->digest[i] = "0123456789abcdef"[hex_value(hex[i])];
    }
    e->digest[n] = '\0';
    e->kind = n == 64 ? HASH_SHA256 : HASH_XXH3;
    return true;
}

/* "sha256 TAB digest TAB bytes TAB file TAB tensor" */
static bool
parse(struct sums_line *e, const char *line, size_t n)
{
    const char *field[5];
    size_t field_n[5];
    int i = 0;

    for (;; i++) {
        const char *tab = memchr(line, '\t', n);

        if (i == 5)
            return false;
        field[i] = line;
        field_n[i] = tab ? (size_t)(tab - line) : n;
        if (!tab)
            break;
        n -= field_n[i] + 1;
        line = tab + 1;
    }
    return i == 4 && take_digest(e, field[1], field_n[1]) &&
           strlen(hash_name(e->kind)) == field_n[0] &&
           !memcmp(hash_name(e->kind), field[0], field_n[0]) &&
           unescape(&e->file, field[3], field_n[3]) &&
           (field_n[4] == 0 || unescape(&e->tensor, field[4], field_n[4]));
}

int
sums_parse(struct sums_list *sums, const char *text, size_t nbytes,
           const char *name, struct err *err)
{
    const char *line = text, *end = text + nbytes, *next;

    for (size_t number = 1; line < end; number++, line = next) {
        const char *nl = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((nl ? nl : end) - line);
        struct sums_line e = { 0 };

        next = line + n + 1;
        if (n == 0 || (n == strlen(HEAD) && !memcmp(line, HEAD, n)))
            continue;
        if (!parse(&e, line, n)) {
            str_free(&e.file);
            str_free(&e.tensor);
            return err_set(err, EX_DATAERR,
                           "%s: line %zu is not a digest of st-inspect hash "
                           "(sha256sum -c and xxhsum -c check their own)",
                           name, number);
        }
        if (sums->n == sums->cap)
            sums->v = xgrow(sums->v, sums->n, &sums->cap, sizeof(*sums->v));
        sums->v[sums->n++] = e;
    }
    return sums->n ? 0 : err_set(err, EX_DATAERR, "%s: has no digests", name);
}

void
sums_free(struct sums_list *sums)
{
    for (size_t i = 0; i < sums->n; i++) {
        str_free(&sums->v[i].file);
        str_free(&sums->v[i].tensor);
    }
    free(sums->v);
}
