/* SPDX-License-Identifier: ISC */
/* --codes, --values, --xhat: .npy files with a row for each of x. */
#include <stdlib.h>

#include "cmd/lut-apply/apply.h"
#include "core/format/array_out.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"

#define SIZE 4 /* bytes of a number: int32 or f32 */

enum { CODES, VALUES, XHAT };

struct row_arrays {
    struct array_out array[N_ARRAYS];
    float *xhat; /* [batch, in] */
    char *bytes; /* [batch, the largest width] as they are written */
};

int
arrays_open(struct apply_run *run, struct err *err)
{
    static const char *const options[N_ARRAYS] = { "codes", "values", "xhat" };
    const struct apply_cmd *cmd = run->cmd;
    const struct table *t = &run->table;
    struct row_arrays *all = xcalloc(1, sizeof(*all));
    size_t width = 0;

    run->arrays = all;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct array_out *a = &all->array[i];

        if (!cmd->arrays[i])
            continue;
        *a = (struct array_out){ .dtype = i == CODES ? DT_I32 : DT_F32,
                                 .n_dims = 2,
                                 .shape = { 0, i == XHAT ? t->in
                                                         : t->latents.k } };
        width = larger(width, a->shape[1]);
        if (array_out_open(a, options[i], cmd->arrays[i], cmd->out_flags, err) <
                0 ||
            array_out_reserve(a, run->input.n_rows, err) < 0)
            return -1;
    }
    if (width &&
        !(all->bytes = mem_try(run->batch * width, SIZE, "rows of codes", err)))
        return -1;
    if (all->array[XHAT].out &&
        !(all->xhat =
              mem_try(run->batch * t->in, sizeof(float), "rows of x^", err)))
        return -1;
    return 0;
}

void
arrays_close(struct apply_run *run)
{
    struct row_arrays *all = run->arrays;

    if (!all)
        return;
    for (int i = 0; i < N_ARRAYS; i++)
        out_abort(all->array[i].out);
    free(all->xhat);
    free(all->bytes);
    free(all);
    run->arrays = NULL;
}

/* Row i's codes or values, and what fills their places that are not used. */
static void
put_row(char *to, const struct table_row *row, int which, size_t k)
{
    for (size_t j = 0; j < k; j++, to += SIZE) {
        if (which == CODES)
            put_le32(to, j < row->n ? row->idx[j] : UINT32_MAX);
        else
            cvt_from_f32(to, DT_F32, j < row->n ? &row->v[j] : &(float){ 0 },
                         1);
    }
}

int
arrays_write(struct apply_run *run, size_t n, struct err *err)
{
    struct row_arrays *all = run->arrays;
    size_t in = run->table.in;
    int rc = 0;

    if (all->array[XHAT].out) {
        table_reconstruct(run->work, &run->table, all->xhat, in, n);
        cvt_from_f32(all->bytes, DT_F32, all->xhat, n * in);
        rc = array_out_write(&all->array[XHAT], n, all->bytes, n * in * SIZE,
                             err);
    }
    for (int i = CODES; i <= VALUES && rc == 0; i++) {
        struct array_out *a = &all->array[i];
        size_t row_nbytes = a->shape[1] * SIZE;

        if (!a->out)
            continue;
        for (size_t r = 0; r < n; r++) {
            struct table_row row = table_row(run->work, r);

            put_row(all->bytes + r * row_nbytes, &row, i, a->shape[1]);
        }
        rc = array_out_write(a, n, all->bytes, n * row_nbytes, err);
    }
    return rc;
}

int
arrays_commit(struct apply_run *run, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < N_ARRAYS && rc == 0; i++)
        if (run->arrays->array[i].out)
            rc = array_out_end(&run->arrays->array[i], err);
    for (int i = 0; i < N_ARRAYS && rc == 0; i++) {
        struct out *out = run->arrays->array[i].out;

        run->arrays->array[i].out = NULL;
        rc = out ? out_commit(out, err) : 0;
    }
    return rc;
}
