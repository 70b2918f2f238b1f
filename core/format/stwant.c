#include "core/format/stwant.h"

#include <string.h>

#include "core/str.h"

static void
put_size(struct str *s, size_t i, uint64_t size)
{
    str_addf(s, "%s%llu", i ? ", " : "", (unsigned long long)size);
}

static void
put_wanted(struct str *s, const struct st_want *want)
{
    const char *word = want->open ? want->open : "";

    str_addc(s, '[');
    for (size_t i = 0; i < want->n_dims; i++) {
        size_t n = strcspn(word, ",");

        if (want->shape[i] != ST_OPEN) {
            put_size(s, i, want->shape[i]);
        } else {
            str_adds(s, i ? ", " : "");
            str_add(s, word, n);
        }
        word += n;
        word += strspn(word, ", ");
    }
    str_addc(s, ']');
}

static bool
fits(const struct st_tensor *t, const struct st_want *want)
{
    if (t->n_dims != want->n_dims)
        return false;
    for (size_t i = 0; i < t->n_dims; i++)
        if (want->shape[i] != ST_OPEN && want->shape[i] != t->shape[i])
            return false;
    return true;
}

int
st_want_shape(const char *path, const struct st_tensor *t,
              const struct st_want *want, struct err *err)
{
    struct str s = { 0 };

    if (fits(t, want))
        return 0;
    str_addc(&s, '[');
    for (size_t i = 0; i < t->n_dims; i++)
        put_size(&s, i, t->shape[i]);
    str_addc(&s, ']');
    str_adds(&s, " (expected ");
    put_wanted(&s, want);
    err_set(err, EX_DATAERR, "%s: %s is %s%s)", path, t->name, s.s,
            want->by ? want->by : "");
    str_free(&s);
    return -1;
}

int
st_want_dtype(const char *path, const struct st_tensor *t, struct err *err)
{
    if (dtype_computes(t->dtype))
        return 0;
    return err_set(err, EX_DATAERR, "%s: %s is %s (expected BF16, F16 or F32)",
                   path, t->name, dtype_table[t->dtype].name);
}

int
st_want(const char *path, const struct st_tensor *t, const struct st_want *want,
        struct err *err)
{
    if (st_want_dtype(path, t, err) < 0)
        return -1;
    return st_want_shape(path, t, want, err);
}

int
st_missing(const char *path, const char *name, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: tensor %s is missing", path, name);
}
