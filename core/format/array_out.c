/* SPDX-License-Identifier: ISC */
#include "core/format/array_out.h"

#include <string.h>
#include <sys/stat.h>

#include "core/format/npy.h"
#include "core/mem.h"
#include "core/str.h"

int
array_out_open(struct array_out *x, const char *option, const char *path,
               int flags, struct err *err)
{
    struct stat st;

    x->npy = true;
    if (strcmp(path, "-") == 0 ||
        (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return err_set(err, TU_USAGE,
                       "--%s %s: must be a file, whose header is written at "
                       "the end",
                       option, path);
    return out_open(&x->out, path, flags, true, err);
}

/* A .npy's header, which has the same length for any number of items. */
static int
write_head(struct array_out *x, struct err *err)
{
    struct str head = { 0 };
    int rc = npy_header(&head, x->dtype, x->n_dims, x->shape, err);

    if (rc == 0)
        rc = out_pwrite(x->out, head.s, head.n, 0, err);
    x->head_nbytes = head.n;
    str_free(&head);
    return rc;
}

int
array_out_end(struct array_out *x, struct err *err)
{
    if (x->npy)
        return write_head(x, err);
    return x->nbytes ? out_write(x->out, x->last, 4, err) : 0;
}

int
array_out_write(struct array_out *x, size_t n_items, const void *data,
                size_t nbytes, struct err *err)
{
    size_t at = x->nbytes;

    if (!x->npy && array_out_end(x, err) < 0)
        return -1;
    x->shape[0] += n_items;
    x->nbytes += nbytes;
    if (!x->npy) {
        memcpy(x->last, (const uint8_t *)data + nbytes - 4, 4);
        return out_write(x->out, data, nbytes - 4, err);
    }
    if (at == 0 && write_head(x, err) < 0)
        return -1;
    return out_pwrite(x->out, data, nbytes, x->head_nbytes + at, err);
}

int
array_out_reserve(const struct array_out *x, size_t n_items, struct err *err)
{
    struct str head = { 0 };
    size_t n = 4;
    bool fits = size_mul(n, n_items, &n);
    int rc = 0;

    for (size_t i = 1; i < x->n_dims; i++)
        fits = fits && size_mul(n, x->shape[i], &n);
    if (n == 0 || !fits)
        return 0; /* not known, or too much: writing fails */
    if (x->npy)
        rc = npy_header(&head, x->dtype, x->n_dims, x->shape, err);
    if (rc == 0 && size_add(n, head.n, &n))
        rc = out_reserve(x->out, n, err);
    str_free(&head);
    return rc;
}
