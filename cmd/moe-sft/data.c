/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/npy.h"
#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"
#include "core/tty.h"

/* Maps a .npy file or FILE.safetensors:TENSOR of F32, F16 or BF16 whose last
 * dimension is 'cols'; each place of the other dimensions is a row. */
static int
array_open(struct array *a, const char *path, size_t cols, struct err *err)
{
    const char *name;
    char *file = file_split(path, ':', &name);
    const struct st_tensor *t = NULL;
    const uint64_t *shape;
    struct npy npy;
    size_t n_dims, last;
    bool fits;

    *a = (struct array){ .path = path, .cols = cols, .rows = 1 };
    if (file) {
        if (st_open(&a->st, file, err) == 0 && st_map(&a->st, err) == 0) {
            t = st_find(&a->st, name);
            if (!t)
                st_missing(file, name, err);
        }
        free(file);
        if (!t)
            return -1;
        a->dtype = t->dtype;
        a->data = st_data(&a->st, t);
        n_dims = t->n_dims;
        shape = t->shape;
    } else {
        if (map_open(&a->map, path, err) < 0 ||
            npy_parse(&npy, a->map.data, smaller(a->map.size, NPY_MAX_HEAD),
                      path, err) < 0 ||
            npy_fits(&npy, a->map.size, path, err) < 0)
            return -1;
        a->dtype = npy.dtype;
        a->data = a->map.data + npy.data_offset;
        n_dims = npy.n_dims;
        shape = npy.shape;
    }
    if (!dtype_computes(a->dtype))
        return err_set(err, EX_DATAERR, "%s: is %s (expected F32, F16 or BF16)",
                       path, dtype_table[a->dtype].name);
    last = n_dims ? (size_t)shape[n_dims - 1] : 0;
    fits = n_dims >= 2 && last == cols;
    for (size_t i = 0; fits && i + 1 < n_dims; i++)
        fits = size_mul(a->rows, (size_t)shape[i], &a->rows);
    if (!fits)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu dim%s, the last %zu (expected 2 or more, "
                       "the last %zu, the model's width)",
                       path, n_dims, plural(n_dims), last, cols);
    return 0;
}

int
data_open(struct data *d, const struct cmd *cmd, const struct base *base,
          struct par *par, struct err *err)
{
    const char *input = cmd->input, *target = cmd->train.target;

    *d = (struct data){
        .cmd = cmd,
        .base = base,
        .order = { .seed = cmd->seed, .shuffle = cmd->train.shuffle },
    };
    if (gemm_open(&d->gemm, par, err) < 0)
        return -1;
    if (train_is_stream(cmd) && isatty(0))
        return err_set(err, TU_USAGE,
                       "batches are not read from a terminal: redirect "
                       "standard input");
    if (!input) {
        d->n = train_is_stream(cmd) ? 0 : (uint64_t)cmd->n_args;
        return 0;
    }
    if (array_open(&d->input, input, base->hidden, err) < 0 ||
        array_open(&d->target, target, base->hidden, err) < 0)
        return -1;
    if (d->input.rows != d->target.rows)
        return err_set(err, EX_DATAERR, "%s: has %zu token%s, but %s has %zu",
                       target, d->target.rows, plural(d->target.rows), input,
                       d->input.rows);
    if (d->input.rows == 0)
        return err_set(err, EX_DATAERR, "%s: has no tokens", input);
    if (!base->router.weight.data || base->top_k == 0)
        return err_set(
            err, EX_DATAERR,
            "%s: has no router for --input (a model directory has one; or use "
            "batches with expert_ids and weights)",
            base->path);
    d->length = cmd->length ? (size_t)cmd->length : DEFAULT_LENGTH;
    d->n = (d->input.rows - 1) / d->length + 1;
    return 0;
}

const char *
data_path(const struct data *d)
{
    return d->cmd->input ? d->cmd->input : d->cmd->args[0];
}

static void
digest_array(const struct array *a, struct hash *hash)
{
    uint8_t sizes[3 * 8];

    put_le64(sizes, a->rows);
    put_le64(sizes + 8, a->cols);
    put_le64(sizes + 16, a->dtype);
    hash_add(hash, sizes, sizeof(sizes));
    hash_add(hash, a->data, a->rows * a->cols * dtype_size(a->dtype));
}

int
data_digest(const struct data *d, struct hash *hash, struct err *err)
{
    for (int i = 0; i < d->cmd->n_args; i++) {
        const char *path = d->cmd->args[i];
        uint8_t size[8];
        struct stat st;
        struct map map;

        if (!strcmp(path, "-") ||
            (stat(path, &st) == 0 && !S_ISREG(st.st_mode))) {
            hash_add(hash, path, strlen(path) + 1);
            continue;
        }
        if (map_open(&map, path, err) < 0)
            return -1;
        put_le64(size, map.size);
        hash_add(hash, size, sizeof(size));
        hash_add(hash, map.data, map.size);
        map_close(&map);
    }
    if (d->cmd->input) {
        digest_array(&d->input, hash);
        digest_array(&d->target, hash);
    }
    return 0;
}

void
data_close(struct data *d)
{
    gemm_close(d->gemm);
    map_close(&d->input.map);
    st_close(&d->input.st);
    map_close(&d->target.map);
    st_close(&d->target.st);
    train_order_close(&d->order);
    *d = (struct data){ 0 };
}

/* Which batch of its epoch is number i of the run. */
static size_t
index_of(struct data *d, uint64_t i)
{
    return (size_t)train_order_at(&d->order, d->n, i / d->n, i % d->n);
}

/* Rows [first, first + n) as f32. */
static void
array_rows(float *to, const struct array *a, size_t first, size_t n)
{
    size_t row = a->cols * dtype_size(a->dtype);

    cvt_to_f32(to, a->data + first * row, a->dtype, n * a->cols);
}

/* Slice i of the arrays. */
static int
slice(struct data *d, size_t i, struct batch *b, struct err *err)
{
    size_t first = i * d->length, n = smaller(d->input.rows - first, d->length);
    size_t n_elements = n * d->base->hidden;
    struct str name = { 0 };
    float *input;
    int rc = -1;

    str_addf(&name, "%s, tokens from %zu on", d->input.path, first);
    *b = (struct batch){ .name = name.s, .hidden = d->base->hidden, .qlen = n };
    b->input = mem_try(n_elements, 2, b->name, err);
    b->target = mem_try(n_elements, 4, b->name, err);
    input = mem_try(n_elements, 4, b->name, err);
    if (b->input && b->target && input) {
        array_rows(b->target, &d->target, first, n);
        array_rows(input, &d->input, first, n);
        cvt_from_f32(b->input, DT_BF16, input, n_elements);
        rc = 0;
    }
    free(input);
    return rc;
}

int
data_get(struct data *d, uint64_t i, struct batch *b, struct err *err)
{
    size_t hidden = d->base->hidden;
    int rc;

    *b = (struct batch){ 0 };
    if (d->n == 0) {
        /* a resumed run skips the batches of the steps that it has done */
        while ((rc = batch_next(b, 0, "standard input", BATCH_INPUT, hidden,
                                err)) > 0 &&
               d->n_read++ != i)
            batch_close(b);
        if (rc == 0)
            return 0;
    } else if (d->cmd->input) {
        rc = slice(d, index_of(d, i), b, err);
    } else {
        rc = batch_open(b, d->cmd->args[index_of(d, i)], BATCH_INPUT, hidden,
                        err);
    }
    if (rc >= 0 && !b->target)
        rc = err_set(err, EX_DATAERR, "%s: tensor target is missing%s", b->name,
                     b->grad_output ? " (grad_output is for backward)" : "");
    else if (rc >= 0 && b->qlen == 0)
        rc = err_set(err, EX_DATAERR, "%s: has no tokens", b->name);
    else if (rc >= 0)
        rc = batch_route(b, d->base, d->gemm, err);
    if (rc == 0)
        return 1;
    batch_close(b);
    return -1;
}
