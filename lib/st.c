/* SPDX-License-Identifier: ISC */
/* Safetensors for programs: tensors of a file or of a model's directory. */
#include <stdlib.h>
#include <string.h>

#include "core/format/stdir.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "lib/lib.h"

#define PIECE 8192 /* numbers that are read at a time */

struct tu_st {
    struct stdir dir;
    struct tu_tensor *tensors;    /* [dir.n_tensors] */
    struct tu_metadata *metadata; /* [dir.files->n_meta] */
};

int
tu_st_open(struct tu_st **st, const char *path, struct tu_err *to)
{
    struct err err = { 0 };
    struct tu_st *s;

    if (lib_null(to, "tu_st_open", "st", st, "path", path, NULL) < 0)
        return -1;
    *st = NULL;
    s = xcalloc(1, sizeof(*s));
    if (cpu_check(&err) < 0 || stdir_open(&s->dir, path, &err) < 0 ||
        stdir_map(&s->dir, &err) < 0 ||
        !(s->tensors = mem_try(s->dir.n_tensors, sizeof(*s->tensors), "tensors",
                               &err)) ||
        !(s->metadata = mem_try(s->dir.files->n_meta, sizeof(*s->metadata),
                                "metadata", &err))) {
        tu_st_close(s);
        return lib_fail(to, &err);
    }
    for (size_t i = 0; i < s->dir.n_tensors; i++) {
        const struct stdir_tensor *t = &s->dir.tensors[i];

        s->tensors[i] = (struct tu_tensor){
            .name = t->t->name,
            .name_n = t->t->name_n,
            .dtype = dtype_table[t->t->dtype].name,
            .n_dims = t->t->n_dims,
            .shape = t->t->shape,
            .n = t->t->n_elements,
            .nbytes = t->t->nbytes,
            .data = st_data(t->st, t->t),
        };
    }
    for (size_t i = 0; i < s->dir.files->n_meta; i++) {
        const struct st_meta *m = &s->dir.files->meta[i];

        s->metadata[i] =
            (struct tu_metadata){ m->key, m->value, m->key_n, m->value_n };
    }
    *st = s;
    return 0;
}

void
tu_st_close(struct tu_st *st)
{
    if (!st)
        return;
    free(st->metadata);
    free(st->tensors);
    stdir_close(&st->dir);
    free(st);
}

size_t
tu_st_count(const struct tu_st *st)
{
    return st ? st->dir.n_tensors : 0;
}

const struct tu_tensor *
tu_st_at(const struct tu_st *st, size_t i)
{
    return i < tu_st_count(st) ? &st->tensors[i] : NULL;
}

const struct tu_tensor *
tu_st_find(const struct tu_st *st, const char *name)
{
    const struct stdir_tensor *t =
        st && name ? stdir_find(&st->dir, name) : NULL;

    return t ? &st->tensors[t - st->dir.tensors] : NULL;
}

const char *
tu_st_metadata(const struct tu_st *st, const char *key)
{
    return st && key ? st_meta(st->dir.files, key) : NULL;
}

const struct tu_metadata *
tu_st_metadata_at(const struct tu_st *st, size_t i)
{
    return st && i < st->dir.files->n_meta ? &st->metadata[i] : NULL;
}

/* What is in 'raw' [n], as f32. */
static void
widen(float *to, const void *raw, enum dtype dtype, size_t n)
{
    if (dtype_computes(dtype)) {
        cvt_to_f32(to, raw, dtype, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = (float)dtype_get(dtype, raw, i);
}

int
tu_st_read_f32(const struct tu_st *st, const struct tu_tensor *t,
               uint64_t first, size_t n, float *to, struct tu_err *to_err)
{
    const struct stdir_tensor *from;
    const struct dtype_info *type;
    struct err err = { 0 };
    char raw[PIECE * 8];
    size_t item;

    if (lib_null(to_err, "tu_st_read_f32", "st", st, "t", t, "to",
                 LIB_IF(n, to), NULL) < 0)
        return -1;
    if (t < st->tensors || t >= st->tensors + st->dir.n_tensors)
        return lib_refuse(to_err,
                          "tu_st_read_f32: the tensor is not one of this file");
    from = &st->dir.tensors[t - st->tensors];
    type = &dtype_table[from->t->dtype];
    if (first > t->n || n > t->n - first)
        return lib_refuse(to_err,
                          "%s: %s: %zu number%s from %llu on, but it has %llu",
                          from->st->path, t->name, n, n == 1 ? "" : "s",
                          (unsigned long long)first, (unsigned long long)t->n);
    if (type->bits < 8 || type->kind == DK_COMPLEX)
        return lib_refuse(to_err, "%s: %s: %s cannot be read as f32",
                          from->st->path, t->name, type->name);
    item = type->bits / 8;
    for (size_t done = 0, some; done < n; done += some) {
        some = smaller(n - done, PIECE);
        if (st_pread(from->st, from->t, raw, some * item, (first + done) * item,
                     &err) < 0)
            return lib_fail(to_err, &err);
        widen(to + done, raw, from->t->dtype, some);
    }
    return 0;
}
