/* SPDX-License-Identifier: ISC */
#include "core/format/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define MAGIC_NBYTES 6
#define ALIGN        64 /* numpy.lib.format.ARRAY_ALIGN */

#define NUMPY_MAX_HEADER 10000 /* numpy.lib.format._MAX_HEADER_SIZE */

/* Blanks after the dict, so that the first dim can grow in place. */
#define GROWTH_AXIS_MAX_DIGITS 21

static const char magic[] = "\223NUMPY";

/* The header's text: a dict in Python's notation. */
struct reader {
    const char *p, *end;
    const char *text;
    const char *path;
    struct err *err;
};

/* "FILE: .npy header: byte 3 is 'x' (expected WHAT)". */
static int
bad(const struct reader *r, const char *expected)
{
    if (r->p == r->end)
        return err_data(r->err, r->path, ".npy header ends early (expected %s)",
                        expected);
    if (*r->p > 0x20 && *r->p < 0x7f)
        return err_data(r->err, r->path,
                        ".npy header: byte %zu of the dict is '%c' (expected "
                        "%s)",
                        (size_t)(r->p - r->text), *r->p, expected);
    return err_data(r->err, r->path,
                    ".npy header: byte %zu of the dict is 0x%02x (expected %s)",
                    (size_t)(r->p - r->text), (uint8_t)*r->p, expected);
}

/* The next character that is not white space; 0 at the end. */
static char
peek(struct reader *r)
{
    while (r->p < r->end &&
           (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
        r->p++;
    return r->p < r->end ? *r->p : '\0';
}

static int
expect(struct reader *r, char c, const char *what)
{
    if (peek(r) != c)
        return bad(r, what);
    r->p++;
    return 0;
}

/* A string in either kind of quotes, without escapes. */
static int
read_string(struct reader *r, const char *what, const char **s, size_t *nbytes)
{
    char quote = peek(r);

    if (quote != '\'' && quote != '"')
        return bad(r, what);
    *s = ++r->p;
    while (r->p < r->end && *r->p != quote)
        if (*r->p++ == '\\')
            return bad(r, "no backslash");
    if (r->p == r->end)
        return bad(r, "a quote");
    *nbytes = (size_t)(r->p++ - *s);
    return 0;
}

/* A tuple: "()", "(3,)", "(3, 2)"; "(3)" is none. */
static int
read_shape(struct reader *r, struct npy *npy)
{
    bool comma = true;

    if (expect(r, '(', "'(', the start of shape") < 0)
        return -1;
    while (peek(r) != ')') {
        const char *start = r->p;
        uint64_t dim = 0;

        if (!comma)
            return bad(r, "',' or ')'");
        if (npy->n_dims == NPY_MAX_DIMS)
            return err_data(r->err, r->path,
                            ".npy header: shape has more than %d dims",
                            NPY_MAX_DIMS);
        for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
            if (__builtin_mul_overflow(dim, (uint64_t)10, &dim) ||
                __builtin_add_overflow(dim, (uint64_t)(*r->p - '0'), &dim))
                return bad(r, "a dim of at most 64 bits");
        if (r->p == start || (*start == '0' && r->p > start + 1)) {
            r->p = start;
            return bad(r,
                       (size_t)(r->end - start) >= 3 && !memcmp(start, "np.", 3)
                           ? "a dim, 0 or more: np.int64() is numpy 2's repr "
                             "of one that was not an int when it was saved"
                           : "a dim, 0 or more");
        }
        if (r->p < r->end && *r->p == 'L') /* Python 2's long */
            r->p++;
        npy->shape[npy->n_dims++] = dim;
        comma = peek(r) == ',';
        if (comma)
            r->p++;
    }
    if (npy->n_dims == 1 && !comma)
        return bad(r, "',', as in (3,)");
    r->p++;
    return 0;
}

static int
read_descr(struct reader *r, struct npy *npy)
{
    const char *s;
    size_t n;

    if (peek(r) == '[')
        return err_data(r->err, r->path,
                        ".npy of records (expected one plain dtype)");
    if (read_string(r, "descr's value, a string", &s, &n) < 0)
        return -1;
    /* "<f4": only types of one byte may have another order before them. */
    for (int i = 0; i < DT_COUNT && n == 3; i++) {
        const char *name = dtype_table[i].npy;

        if (name && !memcmp(s + 1, name + 1, 2) &&
            (s[0] == name[0] ||
             (name[0] == '|' && (s[0] == '<' || s[0] == '>')))) {
            npy->dtype = (enum dtype)i;
            return 0;
        }
    }
    return err_data(r->err, r->path,
                    ".npy dtype \"%.*s\" is not supported (%s)",
                    (int)(n < 40 ? n : 40), s,
                    n && *s == '>'           ? "big-endian"
                    : n && memchr(s, 'O', n) ? "Python objects"
                                             : "expected <f4, <i8 or such");
}

static int
read_dict(struct reader *r, struct npy *npy)
{
    static const char keys[3][16] = { "descr", "fortran_order", "shape" };
    bool seen[3] = { false };

    if (expect(r, '{', "'{'") < 0)
        return -1;
    while (peek(r) != '}') {
        const char *key;
        size_t n;
        int i = 0;

        if (read_string(r, "a key in quotes", &key, &n) < 0)
            return -1;
        while (i < 3 && (n != strlen(keys[i]) || memcmp(key, keys[i], n)))
            i++;
        if (i == 3 || seen[i])
            return err_data(r->err, r->path,
                            ".npy header: key \"%.*s\" is %s (expected "
                            "descr, fortran_order and shape)",
                            (int)(n < 40 ? n : 40), key,
                            i == 3 ? "unknown" : "repeated");
        seen[i] = true;
        if (expect(r, ':', "':'") < 0 || (i == 0 && read_descr(r, npy) < 0) ||
            (i == 2 && read_shape(r, npy) < 0))
            return -1;
        if (i == 1) {
            peek(r);
            n = (size_t)(r->end - r->p);
            if (n >= 4 && !memcmp(r->p, "True", 4))
                return err_data(r->err, r->path,
                                ".npy in Fortran order (expected C order)");
            if (n < 5 || memcmp(r->p, "False", 5))
                return bad(r, "False for fortran_order");
            r->p += 5;
        }
        if (peek(r) != ',')
            break;
        r->p++;
    }
    if (expect(r, '}', "',' or '}'") < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (!seen[i])
            return err_data(r->err, r->path, ".npy header has no %s", keys[i]);
    if (peek(r) == '#') { /* a comment, as Python has it, to the line's end */
        const char *note = ++r->p, *last = note;

        for (; r->p < r->end && *r->p != '\n'; r->p++)
            last = *r->p == ' ' ? last : r->p + 1;
        npy->note_offset = (size_t)(note - r->text);
        npy->note_nbytes = (size_t)(last - note);
        peek(r);
    }
    return r->p == r->end ? 0 : bad(r, "blanks after the dict");
}

int
npy_fits(const struct npy *npy, size_t size, const char *path, struct err *err)
{
    size_t found = size > npy->data_offset ? size - npy->data_offset : 0;

    if (found == npy->nbytes)
        return 0;
    return err_data(err, path,
                    "has %zu bytes of data (expected %zu by its header)", found,
                    npy->nbytes);
}

bool
npy_sniff(const void *head, size_t nbytes)
{
    return nbytes >= MAGIC_NBYTES && !memcmp(head, magic, MAGIC_NBYTES);
}

int
npy_is_raw(const void *head, size_t nbytes, const char *path, struct err *err)
{
    return npy_sniff(head, nbytes)
               ? err_data(err, path,
                          "is .npy (expected raw numbers, which --x-dtype and "
                          "--dim are for)")
               : 0;
}

int
npy_parse(struct npy *npy, const void *head, size_t nbytes, const char *path,
          struct err *err)
{
    const uint8_t *b = head;
    struct reader r = { .path = path, .err = err };
    size_t fixed, n;

    *npy = (struct npy){ 0 };
    if (!npy_sniff(head, nbytes))
        return err_data(err, path, "is not a .npy file");
    fixed = nbytes > 6 && b[6] > 1 ? 12 : 10;
    if (nbytes < fixed)
        return err_data(err, path, ".npy header ends at byte %zu", nbytes);
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return err_data(err, path,
                        ".npy version %d.%d (expected 1.0, 2.0 or 3.0)", b[6],
                        b[7]);
    n = fixed == 10 ? le16(b + 8) : le32(b + 8);
    if (n > NPY_MAX_HEADER)
        return err_data(err, path,
                        ".npy header of %zu bytes (expected at most %d)", n,
                        NPY_MAX_HEADER);
    if (n > nbytes - fixed)
        return err_data(err, path, ".npy header of %zu bytes, but %zu are left",
                        fixed + n, nbytes);
    npy->data_offset = fixed + n;
    r.text = r.p = (const char *)b + fixed;
    r.end = r.p + n;
    if (read_dict(&r, npy) < 0)
        return -1;
    npy->note_offset += fixed;
    npy->n_elements = 1;
    for (size_t i = 0; i < npy->n_dims; i++)
        if (!size_mul(npy->n_elements, npy->shape[i], &npy->n_elements))
            return err_data(err, path,
                            "the product of shape overflows 64 bits");
    if (!dtype_nbytes(npy->dtype, npy->n_elements, &npy->nbytes))
        return err_data(err, path, "%zu elements of %s overflow 64 bits",
                        npy->n_elements, dtype_table[npy->dtype].name);
    return 0;
}

int
npy_read(struct npy *npy, int fd, const char *path, void *head, size_t n,
         struct err *err)
{
    uint8_t *b = head;
    size_t all = 12; /* as far as the length of the rest */

    for (int part = 0; part < 2; part++) {
        ssize_t got =
            n < all ? file_read_full(fd, path, b + n, all - n, err) : 0;

        if (got < 0)
            return -1;
        n += (size_t)got;
        if (n < 12 || !npy_sniff(b, n))
            break; /* npy_parse() says so */
        all = b[6] == 1 ? (size_t)10 + le16(b + 8) : (size_t)12 + le32(b + 8);
        all = smaller(all, NPY_MAX_HEAD);
    }
    return npy_parse(npy, head, n, path, err);
}

/* "F32 [.., 2, 16]": what arrays on a stream have in common. */
static void
put_kind(struct str *to, const struct npy *npy, size_t n_last)
{
    str_addf(to, "%s [..", dtype_table[npy->dtype].name);
    for (size_t i = npy->n_dims - smaller(n_last, npy->n_dims); i < npy->n_dims;
         i++)
        str_addf(to, ", %llu", (unsigned long long)npy->shape[i]);
    str_addc(to, ']');
}

int
npy_more(struct npy *npy, int fd, const char *path, size_t n_last,
         struct err *err)
{
    uint64_t rows = npy->n_elements / npy->shape[npy->n_dims - 1];
    uint8_t *head = xcalloc(1, NPY_MAX_HEAD);
    struct str was = { 0 }, now = { 0 };
    ssize_t n = file_read_full(fd, path, head, MAGIC_NBYTES, err);
    int rc = n > 0 ? 1 : (int)n;

    put_kind(&was, npy, n_last);
    if (n > 0 && !npy_sniff(head, (size_t)n))
        rc =
            err_data(err, path, "more data (expected %llu row%s by its header)",
                     (unsigned long long)rows, plural(rows));
    else if (n > 0 && npy_read(npy, fd, path, head, (size_t)n, err) < 0)
        rc = -1;
    if (rc > 0) {
        put_kind(&now, npy, n_last);
        if (strcmp(was.s, now.s) != 0)
            rc = err_data(err, path,
                          "an array of %s follows (expected %s, as before)",
                          now.s, was.s);
    }
    str_free(&was);
    str_free(&now);
    free(head);
    return rc;
}

int
npy_header(struct str *out, enum dtype dtype, size_t n_dims,
           const uint64_t *shape, struct err *err)
{
    const char *descr = dtype_table[dtype].npy;
    struct str s = { 0 };
    uint8_t prefix[10] = "\223NUMPY\1";
    char first[GROWTH_AXIS_MAX_DIGITS + 1];
    size_t n;

    if (!descr)
        return err_set(err, EX_DATAERR, "numpy has no dtype for %s",
                       dtype_table[dtype].name);
    if (n_dims > NPY_MAX_DIMS)
        return err_set(err, EX_DATAERR,
                       "%zu dims are too many for .npy (at most %d)", n_dims,
                       NPY_MAX_DIMS);
    str_addf(&s, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < n_dims; i++)
        str_addf(&s, "%s%zu", i ? ", " : "", shape[i]);
    str_adds(&s, n_dims == 1 ? ",), }" : "), }");
    if (n_dims > 0) {
        n = (size_t)snprintf(first, sizeof(first), "%zu", shape[0]);
        str_addf(&s, "%*s", (int)(GROWTH_AXIS_MAX_DIGITS - n), "");
    }
    /* numpy adds 64 bytes where none were needed. */
    n = ALIGN - (sizeof(prefix) + s.n + 1) % ALIGN;
    str_addf(&s, "%*s\n", (int)n, "");
    put_le16(prefix + 8, (uint16_t)s.n);
    str_add(out, prefix, sizeof(prefix));
    str_add(out, s.s, s.n);
    str_free(&s);
    return 0;
}

bool
npy_note(struct str *header, const char *note)
{
    size_t n = header->n;

    while (n > 0 && strchr(" \n", header->s[n - 1]))
        n--;
    if (n + strlen(note) + 4 + ALIGN > NUMPY_MAX_HEADER)
        return false;
    header->n = n;
    str_addf(header, "  # %s", note);
    n = ALIGN - (header->n + 1) % ALIGN;
    str_addf(header, "%*s\n", (int)n, "");
    put_le16(header->s + MAGIC_NBYTES + 2, (uint16_t)(header->n - 10));
    return true;
}
