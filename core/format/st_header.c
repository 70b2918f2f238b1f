#include "core/format/st_header.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

struct reader {
    struct st *st;
    struct st_arena *arena;
    struct st_json json;
    size_t n_dims;   /* used in arena->dims */
    size_t cap_dims; /* allocated: each of the three tables */
    size_t cap_tensors, cap_meta;
};

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
        err_set(r->json.err, EX_SOFTWARE, "%s: out of memory (%zu bytes)",
                r->st->path, want * size);
    return table;
}

static int
read_dtype(struct reader *r, struct st_tensor *t)
{
    struct st_json *j = &r->json;
    char *name;
    size_t n;
    int dtype;

    if (*j->p != '"')
        return st_json_bad_token(j, "dtype", "a string");
    if (st_json_string(j, "a string", &name, &n) < 0)
        return -1;
    dtype = dtype_parse(name, n);
    if (dtype < 0)
        return st_json_err(j, "dtype is \"%.*s\" (expected F32, BF16 or such)",
                           st_name_shown(name, n), name);
    t->dtype = (enum dtype)dtype;
    return 0;
}

static int
read_shape(struct reader *r, struct st_tensor *t)
{
    struct st_json *j = &r->json;
    int rc;

    if (*j->p != '[')
        return st_json_bad_token(j, "shape", "an array");
    if (st_json_enter(j, '[', "an array") < 0)
        return -1;
    for (bool first = true; (rc = st_json_next_item(j, first, ']')) > 0;
         first = false) {
        uint64_t *dims =
            grow(r, r->arena->dims, r->n_dims, &r->cap_dims, sizeof(*dims));

        if (!dims)
            return -1;
        r->arena->dims = dims;
        if (st_json_u64(j, "a dim of shape", &dims[r->n_dims]) < 0)
            return -1;
        r->n_dims++;
        t->n_dims++;
    }
    return rc;
}

static int
read_offsets(struct reader *r, uint64_t offsets[2])
{
    struct st_json *j = &r->json;
    static const char expected[] = "[BEGIN,END]";
    int rc;
    int n = 0;

    if (*j->p != '[')
        return st_json_bad_token(j, "data_offsets", expected);
    if (st_json_enter(j, '[', expected) < 0)
        return -1;
    for (; (rc = st_json_next_item(j, n == 0, ']')) > 0; n++) {
        if (n == 2)
            return st_json_bad(j, j->p, "two data_offsets, not more");
        if (st_json_u64(j, "an offset of data_offsets", &offsets[n]) < 0)
            return -1;
    }
    if (rc == 0 && n < 2)
        return st_json_bad(j, j->p - 1, "two data_offsets");
    return rc;
}

/* Counts the elements left to right: a 0 does not excuse an overflow before. */
static int
count_elements(struct reader *r, struct st_tensor *t)
{
    size_t first = r->n_dims - t->n_dims;

    t->n_elements = 1;
    for (size_t i = 0; i < t->n_dims; i++)
        if (!size_mul(t->n_elements, r->arena->dims[first + i], &t->n_elements))
            return st_json_err(&r->json,
                               "the product of shape overflows 64 bits at "
                               "dim %zu",
                               i);
    return 0;
}

static int
check_size(struct reader *r, struct st_tensor *t, const uint64_t offsets[2])
{
    struct st_json *j = &r->json;
    const struct dtype_info *dtype = &dtype_table[t->dtype];
    size_t bits;

    if (count_elements(r, t) < 0)
        return -1;
    if (!size_mul(t->n_elements, dtype->bits, &bits))
        return st_json_err(j, "%zu elements of %s overflow 64 bits",
                           t->n_elements, dtype->name);
    if (bits % 8)
        return st_json_err(j,
                           "%zu elements of %s are %zu bits (expected whole "
                           "bytes)",
                           t->n_elements, dtype->name, bits);
    if (offsets[1] < offsets[0])
        return st_json_err(j,
                           "data_offsets end at %zu, before they begin at %zu",
                           offsets[1], offsets[0]);
    t->begin = offsets[0];
    t->nbytes = offsets[1] - offsets[0];
    if (t->nbytes != bits / 8)
        return st_json_err(j,
                           "data_offsets span %zu bytes (expected %zu for %zu "
                           "elements of %s)",
                           t->nbytes, bits / 8, t->n_elements, dtype->name);
    return 0;
}

enum { DTYPE = 1, SHAPE = 2, DATA_OFFSETS = 4 };

static const struct {
    const char *name;
    size_t nbytes;
    unsigned bit;
} fields[] = {
    { "dtype", 5, DTYPE },
    { "shape", 5, SHAPE },
    { "data_offsets", 12, DATA_OFFSETS },
};

static int
read_field(struct reader *r, const char *key, size_t n, struct st_tensor *t,
           uint64_t offsets[2], unsigned *seen)
{
    struct st_json *j = &r->json;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        if (n != fields[i].nbytes || memcmp(key, fields[i].name, n))
            continue;
        if (*seen & fields[i].bit)
            return st_json_err(j, "%s is there twice", fields[i].name);
        *seen |= fields[i].bit;
        if (fields[i].bit == DTYPE)
            return read_dtype(r, t);
        return fields[i].bit == SHAPE ? read_shape(r, t)
                                      : read_offsets(r, offsets);
    }
    return st_json_skip(j);
}

static int
read_entry(struct reader *r, struct st_tensor *t)
{
    struct st_json *j = &r->json;
    uint64_t offsets[2] = { 0, 0 };
    unsigned seen = 0;
    char *key;
    size_t n;
    int rc;

    if (st_json_enter(j, '{', "an object") < 0)
        return -1;
    for (bool first = true; (rc = st_json_next_member(j, first, &key, &n)) > 0;
         first = false)
        if (read_field(r, key, n, t, offsets, &seen) < 0)
            return -1;
    if (rc < 0)
        return -1;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        if (!(seen & fields[i].bit))
            return st_json_err(j, "%s is missing", fields[i].name);
    return check_size(r, t, offsets);
}

static int
read_tensor(struct reader *r, const char *name, size_t name_n)
{
    struct st_json *j = &r->json;
    struct st_tensor *t = grow(r, r->arena->tensors, r->st->n_tensors,
                               &r->cap_tensors, sizeof(*t));

    if (!t)
        return -1;
    r->arena->tensors = t;
    t += r->st->n_tensors;
    *t = (struct st_tensor){ .name = name, .name_n = name_n };
    j->tensor = name;
    j->tensor_n = name_n;
    if (read_entry(r, t) < 0)
        return -1;
    j->tensor = NULL;
    r->st->n_tensors++;
    return 0;
}

/* __metadata__: null, or strings by name. */
static int
read_meta(struct reader *r)
{
    struct st_json *j = &r->json;
    char *key, *value;
    size_t key_n, value_n;
    int rc;

    if (!strncmp(j->p, "null", 4)) {
        j->p += 4;
        return 0;
    }
    if (st_json_enter(j, '{', "an object of strings as __metadata__") < 0)
        return -1;
    for (bool first = true;
         (rc = st_json_next_member(j, first, &key, &key_n)) > 0;
         first = false) {
        struct st_meta *meta =
            grow(r, r->arena->meta, r->st->n_meta, &r->cap_meta, sizeof(*meta));

        if (!meta)
            return -1;
        r->arena->meta = meta;
        if (st_json_string(j, "a string as value in __metadata__", &value,
                           &value_n) < 0)
            return -1;
        meta[r->st->n_meta++] = (struct st_meta){ key, value, key_n, value_n };
    }
    return rc;
}

/* The tables have stopped moving: hands them out. */
static void
publish(struct reader *r)
{
    static const uint64_t none[1];
    const uint64_t *dims = r->arena->dims ? r->arena->dims : none;

    for (size_t i = 0; i < r->st->n_tensors; i++) {
        r->arena->tensors[i].shape = dims;
        dims += r->arena->tensors[i].n_dims;
    }
    r->st->tensors = r->arena->tensors;
    r->st->meta = r->arena->meta;
}

int
st_header_read(struct st *st, struct err *err)
{
    struct st_arena *arena = st->arena;
    struct reader r = { .st = st, .arena = arena };
    struct st_json *j = &r.json;
    static const char meta[] = "__metadata__";
    bool seen_meta = false;
    char *key;
    size_t n;
    int rc;

    *j = (struct st_json){ .file = st->path,
                           .err = err,
                           .text = arena->text,
                           .p = arena->text,
                           .end = arena->text + st->header_n };
    st_json_space(j);
    if (st_json_enter(j, '{', "'{', the start of a JSON object") < 0)
        return -1;
    for (bool first = true; (rc = st_json_next_member(j, first, &key, &n)) > 0;
         first = false) {
        if (n != sizeof(meta) - 1 || memcmp(key, meta, n)) {
            rc = read_tensor(&r, key, n);
        } else {
            if (seen_meta)
                return st_json_bad(j, j->p, "__metadata__ only once");
            seen_meta = true;
            rc = read_meta(&r);
        }
        if (rc < 0)
            return -1;
    }
    if (rc < 0)
        return -1;
    st_json_space(j);
    if (j->p != j->end)
        return st_json_bad(j, j->p,
                           "nothing but spaces behind the JSON object");
    publish(&r);
    return 0;
}
