/* SPDX-License-Identifier: ISC */
#include "core/format/stw.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/format/st.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"

struct tensor {
    char *name;
    enum dtype dtype;
    size_t n_dims;
    uint64_t *shape;
    size_t nbytes;
    size_t begin; /* counted from the end of the header */
    size_t n_written;
};

struct meta {
    char *key, *value;
};

struct stw {
    struct tensor *tensors;
    size_t n_tensors, cap_tensors;
    struct meta *meta;
    size_t n_meta;
    json_t *names; /* of tensors: a set */
    size_t data_nbytes;
    size_t data_offset;
    char *path;
    struct out *out;
};

struct stw *
stw_new(void)
{
    return xcalloc(1, sizeof(struct stw));
}

void
stw_free(struct stw *w)
{
    if (!w)
        return;
    out_abort(w->out);
    for (size_t i = 0; i < w->n_tensors; i++) {
        free(w->tensors[i].name);
        free(w->tensors[i].shape);
    }
    for (size_t i = 0; i < w->n_meta; i++) {
        free(w->meta[i].key);
        free(w->meta[i].value);
    }
    json_decref(w->names);
    free(w->tensors);
    free(w->meta);
    free(w->path);
    free(w);
}

void
stw_meta(struct stw *w, const char *key, const char *value)
{
    struct meta *m;

    for (size_t i = 0; i < w->n_meta; i++)
        if (!strcmp(w->meta[i].key, key)) {
            free(w->meta[i].value);
            w->meta[i].value = xstrdup(value);
            return;
        }
    w->meta = xrealloc(w->meta, w->n_meta + 1, sizeof(*m));
    m = w->meta + w->n_meta++;
    m->key = xstrdup(key);
    m->value = xstrdup(value);
}

static bool
is_utf8(const char *s)
{
    return utf8_valid(s, strlen(s)) == strlen(s);
}

int
stw_add(struct stw *w, const char *name, enum dtype dtype, size_t n_dims,
        const uint64_t *shape, struct err *err)
{
    struct tensor t = { .dtype = dtype, .n_dims = n_dims };
    uint64_t n = 1;
    bool counted = true;

    /* Adds 'name' to the set; jansson's hash is seeded, so that no list of
     * names makes it slow. */
    if (!w->names)
        w->names = json_object();
    if (!is_utf8(name))
        return err_set(err, EX_DATAERR, "tensor \"%s\": is not UTF-8", name);
    if (!strcmp(name, "__metadata__"))
        return err_set(err, EX_DATAERR, "tensor \"%s\": is a reserved name",
                       name);
    if (json_object_get(w->names, name))
        return err_set(err, EX_DATAERR, "tensor \"%s\": appears twice", name);
    if (json_object_set_new(w->names, name, json_true()) < 0)
        return err_set(err, EX_SOFTWARE, "tensor \"%s\": out of memory", name);
    t.shape = xcalloc(n_dims, sizeof(*shape));
    if (n_dims)
        memcpy(t.shape, shape, n_dims * sizeof(*shape));
    for (size_t i = 0; counted && i < n_dims; i++)
        counted = size_mul(n, shape[i], &n);
    if (!counted || !dtype_nbytes(dtype, n, &t.nbytes) ||
        w->n_tensors == INT_MAX ||
        !size_add(w->data_nbytes, t.nbytes, &w->data_nbytes)) {
        free(t.shape);
        return err_set(err, EX_DATAERR,
                       "tensor \"%s\": its size overflows 64 bits, or is not "
                       "a whole number of bytes",
                       name);
    }
    t.name = xstrdup(name);
    if (w->n_tensors == w->cap_tensors)
        w->tensors =
            xgrow(w->tensors, w->n_tensors, &w->cap_tensors, sizeof(t));
    w->tensors[w->n_tensors] = t;
    return (int)w->n_tensors++;
}

/* Largest alignment first, so that every tensor is aligned in the file. */
static int
by_place(const void *a, const void *b)
{
    const struct tensor *s = *(struct tensor *const *)a;
    const struct tensor *t = *(struct tensor *const *)b;

    if (s->dtype != t->dtype)
        return s->dtype > t->dtype ? -1 : 1;
    return strcmp(s->name, t->name);
}

static int
by_key(const void *a, const void *b)
{
    return strcmp(((const struct meta *)a)->key, ((const struct meta *)b)->key);
}

/* Gives each tensor its place and appends the header, without the length. */
static int
lay_out(struct stw *w, struct str *json, struct err *err)
{
    struct tensor **order;
    size_t begin = 0;

    if (w->n_meta == 0)
        stw_meta(w, "format", "pt");
    qsort(w->meta, w->n_meta, sizeof(*w->meta), by_key);
    str_adds(json, "{\"__metadata__\":");
    for (size_t i = 0; i < w->n_meta; i++) {
        const struct meta *m = w->meta + i;

        if (!is_utf8(m->key) || !is_utf8(m->value))
            return err_data(err, w->path, "metadata \"%s\" is not UTF-8",
                            m->key);
        str_addc(json, i ? ',' : '{');
        js_put_str(json, m->key, strlen(m->key));
        str_addc(json, ':');
        js_put_str(json, m->value, strlen(m->value));
    }
    str_addc(json, '}');
    order = xcalloc(w->n_tensors, sizeof(struct tensor *));
    for (size_t i = 0; i < w->n_tensors; i++)
        order[i] = w->tensors + i;
    qsort(order, w->n_tensors, sizeof(*order), by_place);
    for (size_t i = 0; i < w->n_tensors; i++) {
        struct tensor *t = order[i];

        t->begin = begin;
        begin += t->nbytes;
        str_addc(json, ',');
        js_put_str(json, t->name, strlen(t->name));
        str_addf(json, ":{\"dtype\":\"%s\",\"shape\":[",
                 dtype_table[t->dtype].name);
        for (size_t k = 0; k < t->n_dims; k++)
            str_addf(json, "%s%zu", k ? "," : "", t->shape[k]);
        str_addf(json, "],\"data_offsets\":[%zu,%zu]}", t->begin, begin);
    }
    free(order);
    str_addc(json, '}');
    while (json->n % 8)
        str_addc(json, ' ');
    w->data_offset = 8 + json->n;
    if (json->n > ST_MAX_HEADER)
        return err_data(err, w->path,
                        "header length %zu (expected at most %zu)", json->n,
                        ST_MAX_HEADER);
    return 0;
}

static int
write_header(struct stw *w, const struct str *json, struct err *err)
{
    uint8_t length[8];

    put_le64(length, json->n);
    if (out_pwrite(w->out, length, sizeof(length), 0, err) < 0)
        return -1;
    return out_pwrite(w->out, json->s, json->n, sizeof(length), err);
}

int
stw_open(struct stw *w, const char *path, int flags, struct err *err)
{
    struct str json = { 0 };
    struct stat st;
    size_t file_nbytes;
    int rc = -1;

    if (!strcmp(path, "-"))
        return err_set(err, TU_USAGE,
                       "safetensors cannot be written to standard output");
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode))
        return err_set(err, TU_USAGE,
                       "%s: safetensors cannot be written to a pipe", path);
    free(w->path);
    w->path = xstrdup(path);
    if (lay_out(w, &json, err) < 0)
        goto out;
    if (!size_add(w->data_offset, w->data_nbytes, &file_nbytes) ||
        file_nbytes > INT64_MAX) {
        err_data(err, path, "%zu bytes of data are too many", w->data_nbytes);
        goto out;
    }
    if (out_open(&w->out, path, flags, true, err) < 0 ||
        out_reserve(w->out, file_nbytes, err) < 0 ||
        write_header(w, &json, err) < 0)
        goto out;
    rc = 0;
out:
    str_free(&json);
    return rc;
}

int
stw_late(struct stw *w, const char *key, const char *value, struct err *err)
{
    size_t data_offset = w->data_offset;
    struct str json = { 0 };
    int rc;

    stw_meta(w, key, value);
    rc = lay_out(w, &json, err);
    if (rc == 0 && w->data_offset != data_offset)
        rc = err_set(err, EX_SOFTWARE,
                     "%s: metadata \"%s\" has not the size that was announced",
                     w->path, key);
    if (rc == 0)
        rc = write_header(w, &json, err);
    str_free(&json);
    return rc;
}

int
stw_write(struct stw *w, int tensor, const void *data, size_t nbytes,
          size_t offset, struct err *err)
{
    struct tensor *t = w->tensors + tensor;

    if (offset > t->nbytes || nbytes > t->nbytes - offset)
        return err_set(err, EX_SOFTWARE,
                       "%s: tensor \"%s\": %zu bytes at %zu are written, but "
                       "it has %zu",
                       w->path, t->name, nbytes, offset, t->nbytes);
    if (nbytes == 0)
        return 0;
    if (out_pwrite(w->out, data, nbytes, w->data_offset + t->begin + offset,
                   err) < 0)
        return -1;
    t->n_written += nbytes;
    return 0;
}

int
stw_write_mapped(struct stw *w, int tensor, const void *data, size_t nbytes,
                 size_t offset, struct err *err)
{
    char piece[1 << 16];

    for (size_t at = 0; at < nbytes; at += sizeof(piece)) {
        size_t n = nbytes - at < sizeof(piece) ? nbytes - at : sizeof(piece);

        memcpy(piece, (const char *)data + at, n);
        if (stw_write(w, tensor, piece, n, offset + at, err) < 0)
            return -1;
    }
    return 0;
}

int
stw_write_some(struct stw *w, int tensor, size_t first, const void *numbers,
               size_t n, size_t item, struct err *err)
{
    unsigned char bytes[1 << 16];
    size_t most = sizeof(bytes) / item;

    for (size_t i = 0, k; i < n; i += k) {
        k = smaller(n - i, most);
        memcpy(bytes, (const char *)numbers + i * item, k * item);
        le_numbers(bytes, k, item);
        if (stw_write(w, tensor, bytes, k * item, (first + i) * item, err) < 0)
            return -1;
    }
    return 0;
}

int
stw_write_numbers(struct stw *w, int tensor, const void *numbers, size_t n,
                  size_t item, struct err *err)
{
    return stw_write_some(w, tensor, 0, numbers, n, item, err);
}

int
stw_commit(struct stw *w, struct err *err)
{
    struct out *out = w->out;

    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct tensor *t = w->tensors + i;

        if (t->n_written != t->nbytes)
            return err_set(err, EX_SOFTWARE,
                           "%s: tensor \"%s\": %zu of its %zu bytes are "
                           "written",
                           w->path, t->name, t->n_written, t->nbytes);
    }
    w->out = NULL;
    return out_commit(out, err);
}
