/* SPDX-License-Identifier: ISC */
/* --codes, --values, --xhat: .npy files with a row for each of x. */
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-apply/apply.h"
#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"

#define SIZE 4 /* bytes of a number: int32 or f32 */

enum { CODES, VALUES, XHAT };

struct row_array {
    struct out *out;
    size_t width;
    size_t n_written, head_nbytes;
};

struct row_arrays {
    struct row_array array[N_ARRAYS];
    float *xhat; /* [batch, in] */
    char *bytes; /* [batch, the largest width] as they are written */
};

static enum dtype
type_of(int i)
{
    return i == CODES ? DT_I32 : DT_F32;
}

/* A header, which has the same length for any number of rows. */
static int
add_head(struct str *head, const struct row_array *a, int i, uint64_t n_rows,
         struct err *err)
{
    return npy_header(head, type_of(i), 2, (uint64_t[]){ n_rows, a->width },
                      err);
}

/* Of a known number of rows everything is written in order, to a pipe as well;
 * of an unknown one the header is written last. */
static int
start(struct row_array *a, int i, const struct row_input *in, struct err *err)
{
    struct str head = { 0 };
    size_t nbytes;
    int rc = add_head(&head, a, i, in->n_rows, err);

    a->head_nbytes = head.n;
    /* a size that overflows fails when it is written */
    if (rc == 0 && in->n_dims > 0 &&
        size_mul(in->n_rows, a->width * SIZE, &nbytes) &&
        size_add(nbytes, head.n, &nbytes))
        rc = out_reserve(a->out, nbytes, err);
    if (rc == 0 && in->n_dims > 0)
        rc = out_write(a->out, head.s, head.n, err);
    str_free(&head);
    return rc;
}

int
arrays_open(struct apply_run *run, struct err *err)
{
    const struct apply_cmd *cmd = run->cmd;
    const struct table *t = &run->table;
    struct row_arrays *all = xcalloc(1, sizeof(*all));
    size_t width = 0;

    run->arrays = all;
    for (int i = 0; i < N_ARRAYS; i++) {
        struct row_array *a = &all->array[i];

        if (!cmd->arrays[i])
            continue;
        if (!strcmp(cmd->arrays[i], "-") && run->input.n_dims == 0)
            return err_set(err, TU_USAGE,
                           "a stream of unknown length gives standard output "
                           "no .npy header: a file has one");
        a->width = i == XHAT ? t->in : t->latents.k;
        width = larger(width, a->width);
        if (out_open(&a->out, cmd->arrays[i], cmd->out_flags, true, err) < 0 ||
            start(a, i, &run->input, err) < 0)
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

    if (all->array[XHAT].out)
        table_reconstruct(run->work, &run->table, all->xhat, in, n);
    for (int i = 0; i < N_ARRAYS && rc == 0; i++) {
        struct row_array *a = &all->array[i];
        size_t nbytes = n * a->width * SIZE;

        if (!a->out)
            continue;
        for (size_t r = 0; i != XHAT && r < n; r++) {
            struct table_row row = table_row(run->work, r);

            put_row(all->bytes + r * a->width * SIZE, &row, i, a->width);
        }
        if (i == XHAT)
            cvt_from_f32(all->bytes, DT_F32, all->xhat, n * in);
        if (run->input.n_dims > 0)
            rc = out_write(a->out, all->bytes, nbytes, err);
        else
            rc = out_pwrite(a->out, all->bytes, nbytes,
                            a->head_nbytes + a->n_written, err);
        a->n_written += nbytes;
    }
    return rc;
}

int
arrays_commit(struct apply_run *run, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < N_ARRAYS && rc == 0; i++) {
        struct row_array *a = &run->arrays->array[i];
        struct out *out = a->out;
        struct str head = { 0 };

        if (!out)
            continue;
        if (run->input.n_dims == 0) {
            rc = add_head(&head, a, i, run->input.n_read, err);
            if (rc == 0)
                rc = out_pwrite(out, head.s, head.n, 0, err);
        } else {
            rc = out_flush(out, err);
        }
        str_free(&head);
    }
    for (int i = 0; i < N_ARRAYS && rc == 0; i++) {
        struct out *out = run->arrays->array[i].out;

        run->arrays->array[i].out = NULL;
        rc = out ? out_commit(out, err) : 0;
    }
    return rc;
}
