/* SPDX-License-Identifier: ISC */
#include "core/format/st.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/format/st_header.h"
#include "core/hash.h"
#include "core/le.h"
#include "core/mem.h"

#define HEAD_NBYTES 512 /* enough for st_sniff(): tar says it at byte 257 */

/* Orders two tensors or two metadata entries of a file by their indices. */
typedef int compare(const struct st *st, uint32_t a, uint32_t b);

int
st_name_cmp(const char *a, size_t a_n, const char *b, size_t b_n)
{
    int c = memcmp(a, b, a_n < b_n ? a_n : b_n);

    return c ? c : (a_n > b_n) - (a_n < b_n);
}

static int
by_name(const struct st *st, uint32_t a, uint32_t b)
{
    const struct st_tensor *s = st->tensors + a, *t = st->tensors + b;

    return st_name_cmp(s->name, s->name_n, t->name, t->name_n);
}

static int
by_place(const struct st *st, uint32_t a, uint32_t b)
{
    const struct st_tensor *s = st->tensors + a, *t = st->tensors + b;

    if (s->begin != t->begin)
        return s->begin < t->begin ? -1 : 1;
    return (s->nbytes > t->nbytes) - (s->nbytes < t->nbytes);
}

static int
by_key(const struct st *st, uint32_t a, uint32_t b)
{
    const struct st_meta *s = st->meta + a, *t = st->meta + b;

    return st_name_cmp(s->key, s->key_n, t->key, t->key_n);
}

struct st_order {
    const struct st *st;
    compare *cmp;
};

/* sort_with()'s; equal ones stay in the file's order. */
static int
by_order(const void *a, const void *b, void *order)
{
    const struct st_order *o = order;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = o->cmp(o->st, x, y);

    return c ? c : (x > y) - (x < y);
}

/*
 * The indices 0 .. n - 1 in order, or NULL.  Writers sort their tensors: most
 * files cost one comparison each, and need no sorting.
 */
static uint32_t *
sorted(const struct st *st, size_t n, compare *cmp, struct err *err)
{
    struct st_order order = { st, cmp };
    uint32_t *v = mem_try(n, sizeof(*v), st->path, err);
    size_t in_order = 1;

    if (!v)
        return NULL;
    for (size_t i = 0; i < n; i++)
        v[i] = (uint32_t)i;
    while (in_order < n && cmp(st, v[in_order - 1], v[in_order]) <= 0)
        in_order++;
    if (in_order < n)
        sort_with(v, n, sizeof(*v), by_order, &order);
    return v;
}

/* What sorting shows: no name and no key of the metadata comes twice, and every
 * byte after the header belongs to one tensor.  Sets st->by_name. */
static int
check_sorted(struct st *st, struct err *err)
{
    uint32_t *v = sorted(st, st->n_tensors, by_name, err);
    size_t end = 0;
    int rc = 0;

    if (!v)
        return -1;
    st->by_name = st->arena->by_name = v;
    for (size_t i = 1; i < st->n_tensors; i++) {
        const struct st_tensor *t = st->tensors + v[i];

        if (by_name(st, v[i - 1], v[i]) == 0)
            return err_data(err, st->path, "tensor \"%.*s\" appears twice",
                            st_name_shown(t->name, t->name_n), t->name);
    }
    v = sorted(st, st->n_meta, by_key, err);
    if (!v)
        return -1;
    for (size_t i = 1; i < st->n_meta && rc == 0; i++) {
        const struct st_meta *m = st->meta + v[i];

        if (by_key(st, v[i - 1], v[i]) == 0)
            rc = err_data(err, st->path, "__metadata__ has \"%.*s\" twice",
                          st_name_shown(m->key, m->key_n), m->key);
    }
    free(v);
    v = rc < 0 ? NULL : sorted(st, st->n_tensors, by_place, err);
    if (!v)
        return -1;
    for (size_t i = 0; i < st->n_tensors && rc == 0; i++) {
        const struct st_tensor *t = st->tensors + v[i];
        const struct st_tensor *last = i ? st->tensors + v[i - 1] : NULL;
        int n = st_name_shown(t->name, t->name_n);

        if (t->begin != end && !last)
            rc = err_data(err, st->path,
                          "the first tensor, \"%.*s\", begins at byte %zu of "
                          "the data (expected 0)",
                          n, t->name, t->begin);
        else if (t->begin != end)
            rc = err_data(err, st->path,
                          "tensor \"%.*s\" begins at byte %zu of the data, "
                          "but \"%.*s\" ends at %zu (%s)",
                          n, t->name, t->begin,
                          st_name_shown(last->name, last->name_n), last->name,
                          end, t->begin < end ? "they overlap" : "a hole");
        end = t->begin + t->nbytes;
    }
    free(v);
    if (rc == 0 && end != st->file_size - st->data_offset)
        rc = err_data(err, st->path,
                      "the header promises %zu bytes from byte %zu on, but "
                      "the file has %zu bytes",
                      end, st->data_offset, st->file_size);
    return rc;
}

/* Fills st->arena->text, from the file or, without an fd, from memory. */
static int
load_text(struct st *st, const uint8_t *head, size_t nbytes, struct err *err)
{
    uint64_t n;

    if (nbytes < 8)
        return err_data(err, st->path, "has %zu bytes (expected at least 8)",
                        nbytes);
    n = le64(head);
    if (n > ST_MAX_HEADER)
        return err_data(err, st->path,
                        "header length %zu (expected at most %zu)", n,
                        ST_MAX_HEADER);
    if (n > st->file_size - 8)
        return err_data(err, st->path,
                        "header length %zu, but the file has %zu bytes", n,
                        st->file_size);
    st->header_n = n;
    st->data_offset = n + 8;
    st->arena->text = mem_try(n + 1, 1, st->path, err);
    if (!st->arena->text)
        return -1;
    st->arena->text[n] = '\0';
    if (st->fd >= 0)
        return file_pread(st->fd, st->path, st->arena->text, n, 8, err);
    if (nbytes - 8 < n)
        return err_data(err, st->path,
                        "header length %zu, but only %zu bytes are given", n,
                        nbytes);
    memcpy(st->arena->text, head + 8, n);
    return 0;
}

/* 'head' is the file's beginning: all of the header if there is no fd. */
static int
read_file(struct st *st, const uint8_t *head, size_t nbytes, struct err *err)
{
    if (load_text(st, head, nbytes, err) < 0 || st_header_read(st, err) < 0) {
        /* It was meant to be a header if it begins with '{', whatever its
         * length. */
        const char *what =
            nbytes > 8 && head[8] == '{' ? NULL : st_sniff(head, nbytes);

        if (what && err->status == EX_DATAERR)
            err_data(err, st->path, "is %s, not safetensors", what);
        return -1;
    }
    return check_sorted(st, err);
}

static void
start(struct st *st, const char *path, int fd, size_t file_size)
{
    *st = (struct st){ .path = xstrdup(path),
                       .fd = fd,
                       .file_size = file_size,
                       .arena = xcalloc(1, sizeof(*st->arena)) };
}

int
st_open(struct st *st, const char *path, struct err *err)
{
    uint8_t head[HEAD_NBYTES];
    size_t file_size = 0, n;
    int fd;

    *st = (struct st){ 0 };
    fd = file_open(path, &file_size, err);
    if (fd < 0)
        return -1;
    start(st, path, fd, file_size);
    n = file_size < sizeof(head) ? file_size : sizeof(head);
    if (file_pread(fd, path, head, n, 0, err) == 0 &&
        read_file(st, head, n, err) == 0)
        return 0;
    st_close(st);
    return -1;
}

int
st_parse(struct st *st, const void *file, size_t nbytes, size_t file_size,
         const char *path, struct err *err)
{
    start(st, path, -1, file_size);
    if (read_file(st, file, nbytes, err) == 0)
        return 0;
    st_close(st);
    return -1;
}

int
st_unchanged(const struct st *st, struct err *err)
{
    struct stat now;

    if (fstat(st->fd, &now) < 0)
        return err_sys(err, EX_IOERR, "%s", st->path);
    if ((size_t)now.st_size == st->file_size)
        return 0;
    return err_set(err, EX_IOERR,
                   "%s: has %zu bytes by now (%zu when it was opened)",
                   st->path, (size_t)now.st_size, st->file_size);
}

int
st_map(struct st *st, struct err *err)
{
    void *p;

    if (st->map.data)
        return 0;
    if (st_unchanged(st, err) < 0)
        return -1;
    p = map_fd(st->fd, st->file_size, st->path, err);
    if (!p)
        return -1;
    st->map = (struct map){ p, st->file_size };
    return 0;
}

void
st_close(struct st *st)
{
    if (!st->arena) /* never opened: fd 0 is not ours */
        return;
    map_close(&st->map);
    if (st->fd >= 0)
        close(st->fd);
    free(st->arena->text);
    free(st->arena->tensors);
    free(st->arena->dims);
    free(st->arena->meta);
    free(st->arena->by_name);
    free(st->arena);
    free(st->path);
    *st = (struct st){ 0 };
}

const struct st_tensor *
st_find_n(const struct st *st, const char *name, size_t n)
{
    size_t low = 0, high = st->n_tensors;

    while (low < high) {
        size_t i = low + (high - low) / 2;
        const struct st_tensor *t = st->tensors + st->by_name[i];
        int c = st_name_cmp(name, n, t->name, t->name_n);

        if (c == 0)
            return t;
        if (c < 0)
            high = i;
        else
            low = i + 1;
    }
    return NULL;
}

const struct st_tensor *
st_find(const struct st *st, const char *name)
{
    return st_find_n(st, name, strlen(name));
}

const struct st_meta *
st_meta_find(const struct st *st, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < st->n_meta; i++)
        if (st->meta[i].key_n == n && !memcmp(st->meta[i].key, key, n))
            return &st->meta[i];
    return NULL;
}

const char *
st_meta(const struct st *st, const char *key)
{
    const struct st_meta *meta = st_meta_find(st, key);

    return meta ? meta->value : NULL;
}

int
st_meta_f64(const struct st *st, const char *key, double *v, struct err *err)
{
    const struct st_meta *meta = st_meta_find(st, key);
    char *end;

    if (!meta)
        return 0;
    *v = strtod(meta->value, &end);
    if (meta->value_n && end == meta->value + meta->value_n && isfinite(*v))
        return 1;
    return err_data(err, st->path,
                    "__metadata__ %s is \"%s\" (expected a number)", key,
                    meta->value);
}

void
st_hash(struct hash *hash, const struct st_tensor *t)
{
    uint8_t numbers[2 * 8];

    put_le64(numbers, t->dtype);
    put_le64(numbers + 8, t->n_dims);
    hash_add(hash, t->name, strlen(t->name) + 1);
    hash_add(hash, numbers, sizeof(numbers));
    hash_add_numbers(hash, t->shape, t->n_dims, sizeof(*t->shape));
}

const void *
st_data(const struct st *st, const struct st_tensor *t)
{
    return st->map.data + st->data_offset + t->begin;
}

int
st_pread(const struct st *st, const struct st_tensor *t, void *buf,
         size_t nbytes, size_t offset, struct err *err)
{
    if (offset > t->nbytes || nbytes > t->nbytes - offset)
        return err_set(err, EX_SOFTWARE,
                       "%s: %zu bytes at %zu are asked of a tensor of %zu",
                       st->path, nbytes, offset, t->nbytes);
    return file_pread(st->fd, st->path, buf, nbytes,
                      st->data_offset + t->begin + offset, err);
}

int
st_read_numbers(const struct st *st, const struct st_tensor *t, size_t first,
                void *to, size_t n, size_t item, struct err *err)
{
    if (st_pread(st, t, to, n * item, first * item, err) < 0)
        return -1;
    le_numbers(to, n, item);
    return 0;
}
