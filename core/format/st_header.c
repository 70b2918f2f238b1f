/* SPDX-License-Identifier: ISC */
#include "core/format/st_header.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/jpull.h"
#include "core/mem.h"

#define MAX_NESTING 128 /* as in the reference */

struct reader {
    struct st *st;
    struct st_arena *arena;
    struct jpull json;
    struct err *err;
    const struct st_tensor *tensor; /* the one being read, or NULL */
    size_t n_dims;                  /* used in arena->dims */
    size_t cap_dims;                /* allocated: each of the three tables */
    size_t cap_tensors, cap_meta;
};

int
st_name_shown(const char *name, size_t nbytes)
{
    size_t n = nbytes < 200 ? nbytes : 200;

    while (n > 0 && n < nbytes && ((unsigned char)name[n] & 0xc0) == 0x80)
        n--;
    return (int)n;
}

/* "FILE: tensor "NAME": WHAT" */
__attribute__((format(printf, 2, 3))) static int
bad(const struct reader *r, const char *fmt, ...)
{
    const struct st_tensor *t = r->tensor;
    char what[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    if (!t)
        return err_data(r->err, r->st->path, "%s", what);
    return err_data(r->err, r->st->path, "tensor \"%.*s\": %s",
                    st_name_shown(t->name, t->name_n), t->name, what);
}

/* What the JSON reader met; the header's first byte is byte 8 of the file. */
static int
bad_json(const struct reader *r)
{
    const struct jpull *j = &r->json;
    size_t offset = (size_t)(j->at - j->text) + 8;
    unsigned char c;

    if (j->at == j->end)
        return bad(r, "the header ends at byte %zu (expected %s)", offset,
                   j->expected);
    if (j->too_deep)
        return bad(r,
                   "byte %zu is '%c' (expected at most %d levels of nesting)",
                   offset, *j->at, MAX_NESTING);
    c = (unsigned char)*j->at;
    if (c > 0x20 && c < 0x7f)
        return bad(r, "byte %zu is '%c' (expected %s)", offset, c, j->expected);
    return bad(r, "byte %zu is 0x%02x (expected %s)", offset, c, j->expected);
}

/* "NAME is TOKEN (expected EXPECTED)", of the text at the reader's place. */
static int
bad_token(struct reader *r, const char *name, const char *expected)
{
    const struct jpull *j = &r->json;
    size_t n = strcspn(j->p, ",]} \t\r\n"); /* a NUL follows the header */

    if (n == 0) {
        jpull_fail(&r->json, j->p, expected);
        return bad_json(r);
    }
    return bad(r, "%s is %.*s%s (expected %s)", name, (int)(n < 40 ? n : 40),
               j->p, n > 40 ? "..." : "", expected);
}

/* Room for one more in a table of 'n': the table, moved if need be, or NULL. */
static void *
grow(struct reader *r, void *table, size_t n, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 256;

    if (n < *cap)
        return table;
    table = realloc(table, want * size);
    if (table)
        *cap = want;
    else
        err_set(r->err, EX_SOFTWARE, "%s: out of memory (%zu bytes)",
                r->st->path, want * size);
    return table;
}

/* The string, decoded where it is written, with a NUL for its closing quote. */
static void
decode(struct reader *r, struct jspan *s)
{
    char *to = r->arena->text + (s->s - r->arena->text);

    s->n = jspan_decode(s, to);
    s->escaped = false;
    to[s->n] = '\0';
}

static int
read_dtype(struct reader *r, struct st_tensor *t)
{
    struct jspan s;
    int dtype;

    if (*r->json.p != '"')
        return bad_token(r, "dtype", "a string");
    if (!jpull_string(&r->json, "a string", &s))
        return bad_json(r);
    decode(r, &s);
    dtype = dtype_parse(s.s, s.n);
    if (dtype < 0)
        return bad(r, "dtype is \"%.*s\" (expected F32, BF16 or such)",
                   st_name_shown(s.s, s.n), s.s);
    t->dtype = (enum dtype)dtype;
    return 0;
}

static int
read_shape(struct reader *r, struct st_tensor *t)
{
    struct jpull *j = &r->json;

    if (*j->p != '[')
        return bad_token(r, "shape", "an array");
    jpull_enter(j, '[', "an array");
    while (jpull_item(j, ']')) {
        uint64_t *dims =
            grow(r, r->arena->dims, r->n_dims, &r->cap_dims, sizeof(*dims));

        if (!dims)
            return -1;
        r->arena->dims = dims;
        if (!jpull_u64(j, &dims[r->n_dims]))
            return bad_token(r, "a dim of shape", j->expected);
        r->n_dims++;
        t->n_dims++;
    }
    return j->expected ? bad_json(r) : 0;
}

static int
read_offsets(struct reader *r, uint64_t offsets[2])
{
    struct jpull *j = &r->json;
    int n = 0;

    if (*j->p != '[')
        return bad_token(r, "data_offsets", "[BEGIN,END]");
    jpull_enter(j, '[', "[BEGIN,END]");
    for (; jpull_item(j, ']'); n++) {
        if (n == 2)
            jpull_fail(j, j->p, "two data_offsets, not more");
        else if (!jpull_u64(j, &offsets[n]))
            return bad_token(r, "an offset of data_offsets", j->expected);
    }
    if (n < 2)
        jpull_fail(j, j->p - 1, "two data_offsets");
    return j->expected ? bad_json(r) : 0;
}

/* The object of a tensor, whose name was read. */
static int
read_tensor(struct reader *r, const struct jspan *name)
{
    static const char *const fields[] = { "dtype", "shape", "data_offsets" };
    struct jpull *j = &r->json;
    uint64_t offsets[2] = { 0, 0 };
    struct st_tensor *t = grow(r, r->arena->tensors, r->st->n_tensors,
                               &r->cap_tensors, sizeof(*t));
    const struct dtype_info *dtype;
    bool seen[3] = { false };
    struct jspan key;
    size_t bits;
    int i, rc;

    if (!t)
        return -1;
    r->arena->tensors = t;
    t += r->st->n_tensors;
    *t = (struct st_tensor){ .name = name->s, .name_n = name->n };
    r->tensor = t;
    jpull_enter(j, '{', "an object");
    while (jpull_member(j, &key)) {
        for (i = 0; i < 3 && !jspan_is(&key, fields[i]);)
            i++;
        if (i == 3) {
            jpull_skip(j);
            continue;
        }
        if (seen[i])
            return bad(r, "%s appears twice", fields[i]);
        seen[i] = true;
        rc = i == 0   ? read_dtype(r, t)
             : i == 1 ? read_shape(r, t)
                      : read_offsets(r, offsets);
        if (rc < 0)
            return -1;
    }
    if (j->expected)
        return bad_json(r);
    for (i = 0; i < 3; i++)
        if (!seen[i])
            return bad(r, "%s is missing", fields[i]);
    /* Left to right: a 0 does not excuse an overflow before it. */
    t->n_elements = 1;
    for (size_t k = 0; k < t->n_dims; k++)
        if (!size_mul(t->n_elements, r->arena->dims[r->n_dims - t->n_dims + k],
                      &t->n_elements))
            return bad(r, "the product of shape overflows 64 bits at dim %zu",
                       k);
    dtype = &dtype_table[t->dtype];
    if (!size_mul(t->n_elements, dtype->bits, &bits))
        return bad(r, "%zu elements of %s overflow 64 bits", t->n_elements,
                   dtype->name);
    if (bits % 8)
        return bad(r, "%zu elements of %s are %zu bits (expected whole bytes)",
                   t->n_elements, dtype->name, bits);
    if (offsets[1] < offsets[0])
        return bad(r, "data_offsets end at %zu, before they begin at %zu",
                   offsets[1], offsets[0]);
    t->begin = offsets[0];
    t->nbytes = offsets[1] - offsets[0];
    if (t->nbytes != bits / 8)
        return bad(r,
                   "data_offsets span %zu bytes (expected %zu for %zu elements "
                   "of %s)",
                   t->nbytes, bits / 8, t->n_elements, dtype->name);
    r->tensor = NULL;
    r->st->n_tensors++;
    return 0;
}

int
st_header_read(struct st *st, struct err *err)
{
    static const uint64_t none[1];
    struct st_arena *arena = st->arena;
    struct reader r = { .st = st, .arena = arena, .err = err };
    struct jpull *j = &r.json;
    const uint64_t *dims;
    bool seen_meta = false;
    struct jspan key, value;

    *j = jpull_start(arena->text, st->header_n, MAX_NESTING);
    jpull_peek(j);
    jpull_enter(j, '{', "'{', the start of a JSON object");
    while (jpull_member(j, &key)) {
        decode(&r, &key);
        if (!jspan_is(&key, "__metadata__")) {
            if (read_tensor(&r, &key) < 0)
                return -1;
            continue;
        }
        if (seen_meta) {
            jpull_fail(j, j->p, "__metadata__ only once");
            break;
        }
        seen_meta = true;
        if (jpull_word(j, "null"))
            continue;
        jpull_enter(j, '{', "an object of strings as __metadata__");
        while (jpull_member(j, &key)) {
            struct st_meta *meta =
                grow(&r, arena->meta, st->n_meta, &r.cap_meta, sizeof(*meta));

            if (!meta)
                return -1;
            arena->meta = meta;
            if (!jpull_string(j, "a string as value in __metadata__", &value))
                break;
            decode(&r, &key);
            decode(&r, &value);
            meta[st->n_meta++] =
                (struct st_meta){ key.s, value.s, key.n, value.n };
        }
    }
    if (!jpull_done(j))
        return bad_json(&r);
    /* The tables no longer move. */
    dims = arena->dims ? arena->dims : none;
    for (size_t i = 0; i < st->n_tensors; i++) {
        arena->tensors[i].shape = dims;
        dims += arena->tensors[i].n_dims;
    }
    st->tensors = arena->tensors;
    st->meta = arena->meta;
    return 0;
}
