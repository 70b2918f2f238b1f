#include "cmd/st-inspect/sums.h"

#include <stdlib.h>
#include <string.h>

#include "core/compat.h"
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
parse_own(struct sums_line *e, const char *line, size_t n)
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

/* "digest  file", or " *file" for what sha256sum calls binary; after a
 * backslash at the beginning the name has escapes. */
static bool
parse_sums(struct sums_line *e, const char *line, size_t n)
{
    bool escaped = *line == '\\';
    size_t hex_n;

    line += escaped;
    n -= escaped;
    hex_n = strcspn(line, " \n");
    if (hex_n + 2 >= n || !take_digest(e, line, hex_n) ||
        (line[hex_n + 1] != ' ' && line[hex_n + 1] != '*'))
        return false;
    line += hex_n + 2;
    n -= hex_n + 2;
    if (escaped)
        return unescape(&e->file, line, n);
    str_add(&e->file, line, n);
    return true;
}

/* "SHA256 (file) = digest", as --tag writes it. */
static bool
parse_tag(struct sums_line *e, const char *line, size_t n)
{
    static const char *const heads[] = { "SHA256 (", "XXH128 (" };
    bool escaped = *line == '\\';
    const char *end;
    size_t head = strlen(heads[0]);

    line += escaped;
    n -= escaped;
    end = last_byte(line, ')', n);
    if (!end || n < head || (size_t)(line + n - end) < 4 ||
        memcmp(end, ") = ", 4) != 0 ||
        !take_digest(e, end + 4, (size_t)(line + n - end) - 4) ||
        memcmp(line, heads[e->kind == HASH_XXH3], head) != 0)
        return false;
    line += head;
    if (!escaped)
        str_add(&e->file, line, (size_t)(end - line));
    else if (!unescape(&e->file, line, (size_t)(end - line)))
        str_clear(&e->file);
    return e->file.n > 0;
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
        /* our own lines have a tab after their first word; in one of sha256sum
         * only the file's name can have it */
        bool own = line[strcspn(line, " \t\n")] == '\t';

        next = line + n + 1;
        if (n == strlen(HEAD) && !memcmp(line, HEAD, n))
            continue;
        if (n && !own && line[n - 1] == '\r')
            n--; /* written elsewhere */
        if (n == 0)
            continue;
        if (own ? !parse_own(&e, line, n)
                : !parse_tag(&e, line, n) && !parse_sums(&e, line, n)) {
            str_free(&e.file);
            str_free(&e.tensor);
            return err_set(err, EX_DATAERR,
                           "%s: line %zu is not a digest (expected st-inspect "
                           "hash's or sha256sum's lines)",
                           name, number);
        }
        if (sums->n == sums->cap) {
            sums->cap = sums->cap ? 2 * sums->cap : 64;
            sums->v = xrealloc(sums->v, sums->cap, sizeof(*sums->v));
        }
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
