/* SPDX-License-Identifier: ISC */
#include "core/model/table_dims.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"
#include "core/tty.h"

#define ROWS 32 /* of x, 8 KiB of sums on the stack */
#define LINE 64

/* The numbers of a .npy, which must be dims of 'in' inputs, ascending. */
static int
take(uint32_t *dims, const struct npy *npy, const char *data, const char *path,
     size_t in, struct err *err)
{
    for (size_t i = 0; i < npy->n_elements; i++) {
        int64_t d = npy->dtype == DT_I32 ? (int32_t)le32(data + 4 * i)
                                         : (int64_t)le64(data + 8 * i);

        if (d < 0 || (uint64_t)d >= in)
            return err_set(err, EX_DATAERR,
                           "%s: [%zu] is %lld (expected 0 to %zu: the layer "
                           "has %zu inputs)",
                           path, i, (long long)d, in - 1, in);
        if (i > 0 && d <= (int64_t)dims[i - 1])
            return err_set(err, EX_DATAERR,
                           "%s: [%zu] is %lld after %lu (expected ascending "
                           "inputs)",
                           path, i, (long long)d, (unsigned long)dims[i - 1]);
        dims[i] = (uint32_t)d;
    }
    return 0;
}

int
table_read_dims(struct table_fix *fix, uint32_t **dims, const char *path,
                size_t in, struct err *err)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    struct str s = { 0 };
    struct npy npy;
    int rc = -1;

    if (file_read_all(path, NPY_MAX_HEAD + 8 * in, &s, err) < 0 ||
        npy_parse(&npy, s.s, s.n, name, err) < 0 ||
        npy_fits(&npy, s.n, name, err) < 0)
        goto out;
    if ((npy.dtype != DT_I32 && npy.dtype != DT_I64) || npy.n_dims != 1) {
        err_set(err, EX_DATAERR,
                "%s: is %s of %zu dim%s (expected I32 or I64 of 1)", name,
                dtype_table[npy.dtype].name, npy.n_dims, plural(npy.n_dims));
        goto out;
    }
    if (npy.n_elements > in) {
        err_set(err, EX_DATAERR,
                "%s: has %llu numbers (expected at most %zu, the layer's "
                "inputs)",
                name, (unsigned long long)npy.n_elements, in);
        goto out;
    }
    *dims = xcalloc(in, sizeof(**dims));
    rc = take(*dims, &npy, s.s + npy.data_offset, name, in, err);
    fix->how = npy.n_elements ? FIX_DIMS : FIX_NONE;
    fix->dims = *dims;
    fix->n_dims = (size_t)npy.n_elements;
out:
    str_free(&s);
    return rc;
}

int
table_pack_dims(struct table *t, const struct table_fix *fix, struct err *err)
{
    enum dtype dtype = table_weights_dtype(t);
    size_t m = fix->n_dims, size = TABLE_PANEL * dtype_size(dtype);
    float *row;

    t->panels_dtype = dtype;
    t->panels_nbytes = (t->out + TABLE_PANEL - 1) / TABLE_PANEL * m * size;
    t->panels =
        mem_big(t->panels_nbytes, 1, "the weights of compensated inputs", err);
    if (!t->panels)
        return -1;
    row = xmalloc(t->out * sizeof(*row));
    for (size_t k = 0; k < m; k++) {
        table_weights(row, t, fix->dims[k], 1);
        for (size_t o = 0; o < t->out; o += TABLE_PANEL)
            cvt_from_f32((char *)t->panels + (o / TABLE_PANEL * m + k) * size,
                         dtype, row + o, smaller(t->out - o, TABLE_PANEL));
    }
    free(row);
    return 0;
}

/* What the threads share. */
struct add {
    const struct table *t;
    const float *errors;
    float *y;
    size_t n_dims, lde, ldy, n;
};

/* What the next sum reads: of few rows, memory is what they wait for. */
static void
prefetch(const struct table *t, size_t at, size_t nbytes)
{
    size_t end = smaller(at + nbytes, t->panels_nbytes);

    for (; at < end; at += LINE)
        __builtin_prefetch((const char *)t->panels + at, 0, 2);
}

/* Units are panels. */
static void
add_panels(void *ctx, size_t begin, size_t end)
{
    float part[ROWS * TABLE_PANEL];
    const struct add *a = ctx;
    const struct table *t = a->t;
    size_t m = a->n_dims;
    size_t row_nbytes = TABLE_PANEL * dtype_size(t->panels_dtype);

    for (size_t u = begin; u < end; u++) {
        size_t c = u * TABLE_PANEL, cols = smaller(t->out - c, TABLE_PANEL);

        for (size_t i = 0; i < a->n; i += ROWS)
            for (size_t d = 0; d < m; d += TABLE_TERMS) {
                size_t at = (u * m + d) * row_nbytes;
                const struct weighted_sum sum = {
                    .y = part,
                    .w = (const char *)t->panels + at,
                    .p = a->errors + i * a->lde + d,
                    .ldy = TABLE_PANEL,
                    .ldw = TABLE_PANEL,
                    .ldp = a->lde,
                    .rows = smaller(m - d, TABLE_TERMS),
                    .cols = cols,
                    .n = smaller(a->n - i, ROWS),
                    .w_dtype = t->panels_dtype,
                };

                if (i == 0)
                    prefetch(t, at + TABLE_TERMS * row_nbytes,
                             TABLE_TERMS * row_nbytes);
                weighted_sum(&sum);
                for (size_t r = 0; r < sum.n; r++)
                    vec_add(a->y + (i + r) * a->ldy + c, part + r * TABLE_PANEL,
                            cols);
            }
    }
}

void
table_add_dims(struct par *par, const struct table *t, size_t n_dims, float *y,
               size_t ldy, const float *errors, size_t lde, size_t n)
{
    struct add a = { t, errors, y, n_dims, lde, ldy, n };

    par_for(par, (t->out + TABLE_PANEL - 1) / TABLE_PANEL, 1, add_panels, &a);
}
