/* SPDX-License-Identifier: ISC */
#include "core/image/tar.h"

#include <string.h>

#include "core/map.h"
#include "core/mem.h"

#define PIECE ((size_t)1 << 16)

/* Where fields stand in a header, and their bytes. */
enum {
    NAME_N = 100,
    SIZE = 124,
    SIZE_N = 12,
    SUM = 148,
    SUM_N = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_N = 155
};

/* A number: octal digits between spaces or NULs. */
static bool
read_number(const uint8_t *p, size_t n, size_t *v)
{
    size_t i = 0;

    *v = 0;
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        *v = *v << 3 | (size_t)(p[i] - '0'); /* 36 bits at most */
    return i == n || p[i] == ' ' || p[i] == '\0';
}

/* Has it the sum of its bytes, its own field as spaces? */
static bool
is_header(const uint8_t *block)
{
    size_t sum = 0, want;

    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= SUM && i < SUM + SUM_N ? ' ' : block[i];
    return read_number(block + SUM, SUM_N, &want) && want == sum;
}

static bool
is_zero(const uint8_t *p, size_t n)
{
    size_t i = 0;

    while (i < n && p[i] == 0)
        i++;
    return i == n;
}

bool
tar_sniff(const void *head, size_t nbytes)
{
    return nbytes >= TAR_BLOCK && !is_zero(head, TAR_BLOCK) && is_header(head);
}

/* Up to nbytes, which are there but at the end of the stream. */
static ssize_t
read_some_of(struct tar *t, void *to, size_t nbytes, struct err *err)
{
    ssize_t n = file_read_full(t->fd, t->name, to, nbytes, err);

    t->at += n > 0 ? (size_t)n : 0;
    return n;
}

static int
cut_off(const struct tar *t, size_t expected, struct err *err)
{
    return err_data(err, t->name,
                    "the archive ends after %zu bytes (expected at least %zu)",
                    t->at, expected);
}

/* Appends the next bytes to a string, or skips them: NULL. */
static int
take(struct tar *t, struct str *to, size_t nbytes, struct err *err)
{
    char piece[PIECE];

    while (nbytes > 0) {
        size_t n = smaller(nbytes, PIECE);
        ssize_t got;

        if (to)
            str_reserve(to, n);
        got = read_some_of(t, to ? to->s + to->n : piece, n, err);
        if (got < 0)
            return -1;
        if (to)
            to->n += (size_t)got;
        nbytes -= (size_t)got;
        if ((size_t)got < n)
            return cut_off(t, t->at + nbytes, err);
    }
    return 0;
}

int
tar_read(struct tar *t, struct str *to, struct err *err)
{
    size_t nbytes = t->left;

    t->left = 0;
    return take(t, to, nbytes, err);
}

/* The data of an entry that is about the next member. */
static int
read_note(struct tar *t, struct str *note, struct err *err)
{
    str_clear(note);
    str_reserve(note, 1);
    if (t->left > TAR_MAX_NOTE)
        return err_data(err, t->name,
                        "byte %zu: a name or its records have %zu bytes "
                        "(expected at most %zu)",
                        t->at, t->left, TAR_MAX_NOTE);
    return tar_read(t, note, err);
}

/* pax's records, "LENGTH KEY=VALUE\n": path.  Sizes stand there from 8 GiB on.
 */
static int
read_records(struct tar *t, const struct str *note, struct err *err)
{
    const char *p = note->s, *end = p + note->n;

    while (p < end) {
        const char *begin = p, *equals, *last;
        size_t n = 0, digits = 0;

        for (; p < end && *p >= '0' && *p <= '9' && digits < 6; digits++)
            n = n * 10 + (size_t)(*p++ - '0');
        last = n > digits + 2 && n <= (size_t)(end - begin) ? begin + n - 1 : p;
        equals = memchr(p, '=', (size_t)(last - p));
        if (digits == 0 || !equals || *p != ' ' || *last != '\n')
            return err_data(
                err, t->name,
                "byte %zu: a record of a pax header is not \"LENGTH "
                "KEY=VALUE\"",
                t->at - note->n + (size_t)(begin - note->s));
        p++;
        equals++;
        if (equals - p == 5 && !memcmp(p, "path=", 5)) {
            str_clear(&t->path);
            str_add(&t->path, equals, (size_t)(last - equals));
        } else if (equals - p == 5 && !memcmp(p, "size=", 5)) {
            return err_data(err, t->name,
                            "byte %zu: a size in a pax header is not supported",
                            t->at - note->n);
        }
        p = last + 1;
    }
    return 0;
}

static void
read_path(struct tar *t)
{
    const char *h = (const char *)t->block;

    if (memcmp(h + MAGIC, "ustar", 6) == 0 && h[PREFIX])
        str_addf(&t->path, "%.*s/", PREFIX_N, h + PREFIX);
    str_addf(&t->path, "%.*s", NAME_N, h);
}

/* After the last member. */
static int
end(struct tar *t, struct err *err)
{
    uint8_t piece[PIECE];
    bool said = false;
    ssize_t n;

    while ((n = read_some_of(t, piece, PIECE, err)) > 0) {
        if (!said && !is_zero(piece, (size_t)n))
            err_warn("%s: what follows the archive's end is ignored (if it is "
                     "another archive, give each its own run)",
                     t->name);
        said |= !is_zero(piece, (size_t)n);
    }
    return n < 0 ? -1 : 0;
}

/* The next header: 1, 0 at the end, -1. */
static int
next_header(struct tar *t, struct err *err)
{
    ssize_t n = TAR_BLOCK;

    if (take(t, NULL, t->left + t->n_last, err) < 0)
        return -1;
    t->left = t->n_last = 0;
    if (!t->has_block)
        n = read_some_of(t, t->block, TAR_BLOCK, err);
    t->has_block = false;
    if (n == 0)
        err_warn("%s: the archive ends without a block of zeros: it may have "
                 "been cut",
                 t->name);
    if (n <= 0)
        return (int)n;
    if (n < TAR_BLOCK)
        return cut_off(t, t->at - (size_t)n + TAR_BLOCK, err);
    if (is_zero(t->block, TAR_BLOCK))
        return end(t, err);
    if (!is_header(t->block))
        return err_data(err, t->name,
                        "byte %zu: not the header of a member (its checksum "
                        "differs)",
                        t->at - TAR_BLOCK);
    if (!read_number(t->block + SIZE, SIZE_N, &t->left) ||
        t->left > SIZE_MAX / 2)
        return err_data(err, t->name,
                        "byte %zu: the size of the member is not a number",
                        t->at - TAR_BLOCK);
    return 1;
}

int
tar_next(struct tar *t, struct err *err)
{
    struct str note = { 0 };
    bool is_file;
    int rc;

    str_clear(&t->path);
    do {
        int type;

        rc = next_header(t, err);
        if (rc <= 0)
            break;
        type = t->block[TYPE];
        if (type >= '1' && type <= '6') /* links, devices, directories */
            t->left = 0;
        t->nbytes = t->left;
        t->n_last = -t->left % TAR_BLOCK;
        is_file = type == '0' || type == '\0' || type == '7';
        if (type == 'x' || type == 'L') {
            rc = read_note(t, &note, err);
            if (rc == 0 && type == 'x')
                rc = read_records(t, &note, err);
            if (rc == 0 && type == 'L') {
                str_clear(&t->path);
                str_add(&t->path, note.s, strnlen(note.s, note.n));
            }
            rc = rc < 0 ? -1 : 1;
        } else if (type != 'g' && type != 'K') {
            if (t->path.n == 0)
                read_path(t);
            if (t->path.n > 0 && strlen(t->path.s) < t->path.n)
                rc = err_data(err, t->name, "byte %zu: a name has a NUL in it",
                              t->at - TAR_BLOCK);
            is_file &= t->path.n > 0 && t->path.s[t->path.n - 1] != '/';
            if (!is_file)
                str_clear(&t->path);
        }
    } while (rc > 0 && !is_file);
    str_free(&note);
    return rc;
}

void
tar_free(struct tar *t)
{
    str_free(&t->path);
}
