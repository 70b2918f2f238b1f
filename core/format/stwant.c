/* SPDX-License-Identifier: ISC */
#include "core/format/stwant.h"

#include <string.h>

#include "core/str.h"

int
st_want_shape(const char *path, const struct st_tensor *t,
              const struct st_want *want, struct err *err)
{
    const char *word = want->open ? want->open : "";
    bool fits = t->n_dims == want->n_dims;
    struct str s = { 0 };

    for (size_t i = 0; fits && i < t->n_dims; i++)
        fits = want->shape[i] == ST_OPEN || want->shape[i] == t->shape[i];
    if (fits)
        return 0;
    for (size_t i = 0; i < t->n_dims; i++)
        str_addf(&s, "%s%zu", i ? ", " : "", t->shape[i]);
    str_adds(&s, "] (expected [");
    for (size_t i = 0; i < want->n_dims; i++) {
        size_t n = strcspn(word, ",");

        str_adds(&s, i ? ", " : "");
        if (want->shape[i] != ST_OPEN)
            str_addf(&s, "%zu", want->shape[i]);
        else
            str_add(&s, word, n);
        word += n;
        word += strspn(word, ", ");
    }
    err_data(err, path, "%s is [%s]%s)", t->name, s.s,
             want->by ? want->by : "");
    str_free(&s);
    return -1;
}

int
st_want(const char *path, const struct st_tensor *t, const struct st_want *want,
        struct err *err)
{
    if (!dtype_computes(t->dtype))
        return err_data(err, path, "%s is %s (expected BF16, F16 or F32)",
                        t->name, dtype_table[t->dtype].name);
    return st_want_shape(path, t, want, err);
}

const void *
st_want_data(const struct st *st, const char *name, enum dtype dtype,
             const struct st_want *want, struct err *err)
{
    const struct st_tensor *t = st_find(st, name);

    if (!t)
        st_missing(st->path, name, err);
    else if (t->dtype != dtype)
        err_data(err, st->path, "%s is %s (expected %s)", name,
                 dtype_table[t->dtype].name, dtype_table[dtype].name);
    else if (st_want_shape(st->path, t, want, err) == 0)
        return st_data(st, t);
    return NULL;
}

int
st_missing(const char *path, const char *name, struct err *err)
{
    return err_data(err, path, "tensor %s is missing", name);
}
