#include "cmd/moe-sft/data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/npy.h"
#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/str.h"

static int
map_npy(struct array *a, size_t *n_dims, const uint64_t **shape,
        struct npy *npy, struct err *err)
{
    size_t n;

    if (map_open(&a->map, a->path, err) < 0)
        return -1;
    n = a->map.size < NPY_MAX_HEAD ? a->map.size : NPY_MAX_HEAD;
    if (npy_parse(npy, a->map.data, n, a->path, err) < 0 ||
        npy_fits(npy, a->map.size, a->path, err) < 0)
        return -1;
    a->dtype = npy->dtype;
    a->data = a->map.data + npy->data_offset;
    *n_dims = npy->n_dims;
    *shape = npy->shape;
    return 0;
}

static int
map_tensor(struct array *a, const char *file, const char *name, size_t *n_dims,
           const uint64_t **shape, struct err *err)
{
    const struct st_tensor *t;

    if (st_open(&a->st, file, err) < 0 || st_map(&a->st, err) < 0)
        return -1;
    t = st_find(&a->st, name);
    if (!t)
        return st_missing(file, name, err);
    a->dtype = t->dtype;
    a->data = st_data(&a->st, t);
    *n_dims = t->n_dims;
    *shape = t->shape;
    return 0;
}

/* FILE:TENSOR, where there is no file of the whole name; else .npy. */
static int
map_array(struct array *a, size_t *n_dims, const uint64_t **shape,
          struct npy *npy, struct err *err)
{
    const char *tensor;
    char *file = file_split(a->path, ':', &tensor);
    int rc;

    if (!file)
        return map_npy(a, n_dims, shape, npy, err);
    rc = map_tensor(a, file, tensor, n_dims, shape, err);
    free(file);
    return rc;
}

/* Rows of what ends in 'cols': a token each, however they were grouped. */
static int
take_shape(struct array *a, const uint64_t *shape, size_t n_dims, size_t cols,
           struct err *err)
{
    size_t last = n_dims ? (size_t)shape[n_dims - 1] : 0, rows = 1;
    bool fits = n_dims >= 2 && (!cols || last == cols);

    for (size_t i = 0; fits && i + 1 < n_dims; i++)
        fits = size_mul(rows, (size_t)shape[i], &rows);
    if (!fits)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu dims, the last %zu (expected 2 or more, "
                       "the last %zu, the model's width)",
                       a->path, n_dims, last, cols);
    a->rows = rows;
    a->cols = last;
    return 0;
}

/* Maps a .npy or FILE.safetensors:TENSOR, F32, F16 or BF16, of 'cols' columns
 * (0: any); of its other dims each place is a row. */
static int
array_open(struct array *a, const char *path, size_t cols, struct err *err)
{
    const uint64_t *shape = NULL;
    struct npy npy;
    size_t n_dims = 0;

    *a = (struct array){ .path = path };
    if (map_array(a, &n_dims, &shape, &npy, err) < 0)
        return -1;
    if (!dtype_computes(a->dtype))
        return err_set(err, EX_DATAERR, "%s: is %s (expected F32, F16 or BF16)",
                       path, dtype_table[a->dtype].name);
    return take_shape(a, shape, n_dims, cols, err);
}

static void
array_close(struct array *a)
{
    map_close(&a->map);
    st_close(&a->st);
}

static int
open_arrays(struct data *d, struct err *err)
{
    const struct train_options *o = d->options;

    if (array_open(&d->input, o->input, d->base->hidden, err) < 0 ||
        array_open(&d->target, o->target, d->base->hidden, err) < 0)
        return -1;
    if (d->input.rows != d->target.rows)
        return err_set(err, EX_DATAERR, "%s: has %zu tokens, but %s has %zu",
                       o->target, d->target.rows, o->input, d->input.rows);
    if (d->input.rows == 0)
        return err_set(err, EX_DATAERR, "%s: has no tokens", o->input);
    if (!d->base->router.data || d->base->top_k == 0)
        return err_set(err, EX_DATAERR,
                       "%s: has no router for --input (a model's folder has, "
                       "or batches with expert_ids and weights)",
                       d->base->path);
    d->n = (d->input.rows + o->length - 1) / o->length;
    return 0;
}

int
data_open(struct data *d, const struct train_options *o,
          const struct base *base, struct par *par, struct err *err)
{
    *d = (struct data){ .options = o, .base = base, .round = UINT64_MAX };
    if (gemm_open(&d->gemm, par, err) < 0)
        return -1;
    if (o->input)
        return open_arrays(d, err);
    if (o->n_files != 1 || strcmp(o->files[0], "-") != 0)
        d->n = o->n_files;
    else if (isatty(0))
        return err_set(err, TU_USAGE,
                       "batches are not read from a terminal: redirect "
                       "standard input");
    return 0;
}

void
data_digest(const struct train_options *o, struct hash *hash)
{
    for (size_t i = 0; i < o->n_files; i++)
        hash_add(hash, o->files[i], strlen(o->files[i]) + 1);
    if (o->input) {
        hash_add(hash, o->input, strlen(o->input) + 1);
        hash_add(hash, o->target, strlen(o->target) + 1);
    }
}

void
data_close(struct data *d)
{
    gemm_close(d->gemm);
    array_close(&d->input);
    array_close(&d->target);
    free(d->order);
    *d = (struct data){ 0 };
}

/* Which of the n comes at place i of all rounds. */
static size_t
shuffled(struct data *d, uint64_t i)
{
    struct perm perm = { d->options->seed, i / d->n };

    if (!d->options->shuffle)
        return (size_t)(i % d->n);
    if (d->round != perm.epoch) {
        d->order = xrealloc(d->order, (size_t)d->n, sizeof(*d->order));
        for (uint64_t k = 0; k < d->n; k++)
            d->order[k] = (struct perm_item){ perm_word(&perm, k, 0), k };
        perm_sort(&perm, d->order, (size_t)d->n, NULL, NULL, NULL);
        d->round = perm.epoch;
    }
    return (size_t)d->order[i % d->n].at;
}

static void
take_rows(float *to, const struct array *a, size_t first, size_t n)
{
    size_t row = a->cols * (dtype_table[a->dtype].bits / 8);

    cvt_to_f32(to, a->data + first * row, a->dtype, n * a->cols);
}

static int
cut(struct data *d, size_t i, struct batch *b, struct err *err)
{
    size_t first = i * d->options->length, left = d->input.rows - first;
    struct str name = { 0 };
    float *input;
    bool made;

    str_addf(&name, "%s, tokens from %zu on", d->input.path, first);
    *b = (struct batch){ .name = name.s,
                         .hidden = d->base->hidden,
                         .qlen = left < d->options->length
                                     ? left
                                     : d->options->length };
    b->input = mem_try(b->qlen * b->hidden, 2, b->name, err);
    b->target = mem_try(b->qlen * b->hidden, 4, b->name, err);
    input = mem_try(b->qlen * b->hidden, 4, b->name, err);
    made = b->input && b->target && input;
    if (made) {
        take_rows(b->target, &d->target, first, b->qlen);
        take_rows(input, &d->input, first, b->qlen);
        cvt_from_f32(b->input, DT_BF16, input, b->qlen * b->hidden);
    }
    free(input);
    if (!made)
        batch_close(b);
    return made ? 0 : -1;
}

/* A stream's batch i: those before it are passed over. */
static int
next_of_stream(struct data *d, uint64_t i, struct batch *b, unsigned need,
               struct err *err)
{
    for (;;) {
        int rc = batch_next(b, 0, "standard input", need, d->base->hidden, err);

        if (rc <= 0 || d->n_read++ == i)
            return rc;
        batch_close(b);
    }
}

/* Everything that training needs and the file may lack. */
static int
complete(struct data *d, struct batch *b, struct err *err)
{
    if (!b->target)
        return err_set(err, EX_DATAERR, "%s: tensor target is missing%s",
                       b->name,
                       b->grad_output ? " (grad_output is for backward)" : "");
    if (b->qlen == 0)
        return err_set(err, EX_DATAERR, "%s: has no tokens", b->name);
    return b->expert_ids ? 0 : batch_route(b, d->base, d->gemm, err);
}

int
data_get(struct data *d, uint64_t i, struct batch *b, struct err *err)
{
    const unsigned need = BATCH_INPUT;
    int rc;

    *b = (struct batch){ 0 };
    if (d->n == 0)
        rc = next_of_stream(d, i, b, need, err);
    else if (d->options->input)
        rc = cut(d, shuffled(d, i), b, err);
    else
        rc = batch_open(b, d->options->files[shuffled(d, i)], need,
                        d->base->hidden, err);
    if (rc < 0 || (rc == 0 && d->n == 0))
        return rc;
    if (complete(d, b, err) == 0)
        return 1;
    batch_close(b);
    return -1;
}
