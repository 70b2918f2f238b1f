/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/batch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/st.h"
#include "core/format/stwant.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/router.h"
#include "core/str.h"
#include "core/tty.h"

#define MAX_HEADER ((uint64_t)1 << 20) /* bytes, of a batch in a stream */
#define MAX_FILE   ((size_t)1 << 36)   /* bytes of what is no regular file */

/* A batch's file in memory. */
struct parse {
    struct batch *b;
    struct st st;
    const char *data; /* after the header */
    unsigned need;
    size_t hidden; /* expected; 0: any */
    struct err *err;
};

/*
 * Rows of 'hidden' numbers as bf16, or as f32 where 'size' is 4.  NULL where
 * the tensor is not there and not needed; else *rc is set to -1 on errors.
 * The first of these tensors says how many tokens there are, and of which
 * width.
 */
static void *
read_rows(const struct parse *p, const char *name, unsigned flag, size_t size,
          int *rc)
{
    struct batch *b = p->b;
    const struct st_tensor *t = st_find(&p->st, name);
    struct st_want want = { .n_dims = 2,
                            .shape = { b->hidden ? b->qlen : ST_OPEN,
                                       b->hidden   ? b->hidden
                                       : p->hidden ? p->hidden
                                                   : ST_OPEN },
                            .open = "qlen, hidden" };
    void *to;

    if (*rc < 0 || (!t && !(p->need & flag)))
        return NULL;
    *rc = -1;
    if (!t)
        st_missing(p->st.path, name, p->err);
    if (!t || st_want(p->st.path, t, &want, p->err) < 0)
        return NULL;
    if (t->shape[1] == 0) {
        err_set(p->err, EX_DATAERR, "%s: %s has no columns", p->st.path, name);
        return NULL;
    }
    b->qlen = t->shape[0];
    b->hidden = t->shape[1];
    to = mem_try(t->n_elements + 1, size, b->name, p->err);
    if (to && size == 4)
        cvt_to_f32(to, p->data + t->begin, t->dtype, t->n_elements);
    else if (to)
        cvt_to_bf16(to, p->data + t->begin, t->dtype, t->n_elements);
    *rc = to ? 0 : -1;
    return to;
}

/* expert_ids and weights: both, or neither. */
static int
read_routing(const struct parse *p)
{
    struct batch *b = p->b;
    const struct st_tensor *ids = st_find(&p->st, "expert_ids");
    const struct st_tensor *w = st_find(&p->st, "weights");
    struct st_want want = { .n_dims = 2,
                            .shape = { b->hidden ? b->qlen : ST_OPEN, ST_OPEN },
                            .open = "qlen, top_k" };
    const char *data;

    if (!ids && !w && !(p->need & BATCH_ROUTING))
        return 0;
    if (!ids || !w)
        return st_missing(p->st.path, ids ? "weights" : "expert_ids", p->err);
    if (ids->dtype != DT_I64 && ids->dtype != DT_I32)
        return err_set(p->err, EX_DATAERR,
                       "%s: expert_ids is %s (expected I64 or I32)", p->st.path,
                       dtype_table[ids->dtype].name);
    if (st_want_shape(p->st.path, ids, &want, p->err) < 0)
        return -1;
    if (ids->shape[1] == 0 || ids->shape[1] > MOE_MAX_TOP_K)
        return err_set(p->err, EX_DATAERR,
                       "%s: expert_ids has %llu slot%s a token (expected 1 to "
                       "%d)",
                       p->st.path, (unsigned long long)ids->shape[1],
                       plural(ids->shape[1]), MOE_MAX_TOP_K);
    want.shape[0] = b->qlen = ids->shape[0];
    want.shape[1] = b->top_k = ids->shape[1];
    if (st_want(p->st.path, w, &want, p->err) < 0)
        return -1;
    b->expert_ids =
        mem_try(ids->n_elements + 1, sizeof(int64_t), b->name, p->err);
    b->weights = mem_try(ids->n_elements + 1, sizeof(float), b->name, p->err);
    if (!b->expert_ids || !b->weights)
        return -1;
    data = p->data + ids->begin;
    for (size_t i = 0; i < ids->n_elements; i++)
        b->expert_ids[i] = ids->dtype == DT_I64 ? (int64_t)le64(data + 8 * i)
                                                : (int32_t)le32(data + 4 * i);
    cvt_to_f32(b->weights, p->data + w->begin, w->dtype, w->n_elements);
    return 0;
}

int
batch_parse(struct batch *b, const void *file, size_t nbytes, const char *name,
            unsigned need, size_t hidden, struct err *err)
{
    struct parse p = { .b = b, .need = need, .hidden = hidden, .err = err };
    int rc;

    *b = (struct batch){ .name = xstrdup(name) };
    rc = st_parse(&p.st, file, nbytes, nbytes, name, err);
    if (rc == 0) {
        p.data = (const char *)file + p.st.data_offset;
        b->input = read_rows(&p, "input", BATCH_INPUT, 2, &rc);
        b->grad_output =
            read_rows(&p, "grad_output", BATCH_GRAD_OUTPUT, 2, &rc);
        b->target = read_rows(&p, "target", BATCH_TARGET, 4, &rc);
        if (rc == 0)
            rc = read_routing(&p);
        st_close(&p.st);
    }
    if (rc < 0)
        batch_close(b);
    return rc;
}

/* ---- a stream of them ---- */

static int
cut_short(const char *name, size_t n, size_t want, struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: a batch ended after %zu of %zu bytes",
                   name, n, want);
}

/* Reads up to 'nbytes' in all into 'file', as they come: no more memory is
 * allocated than bytes have come. */
static int
read_to(struct str *file, size_t nbytes, int fd, const char *name,
        struct err *err)
{
    while (file->n < nbytes) {
        size_t n =
            nbytes - file->n < MAX_HEADER ? nbytes - file->n : MAX_HEADER;
        ssize_t got;

        str_reserve(file, n);
        got = file_read_full(fd, name, file->s + file->n, n, err);
        if (got < 0)
            return -1;
        file->n += (size_t)got;
        if ((size_t)got < n)
            return file->n ? cut_short(name, file->n, nbytes, err) : 1;
    }
    return 0;
}

int
batch_next(struct batch *b, int fd, const char *name, unsigned need,
           size_t hidden, struct err *err)
{
    struct str file = { 0 };
    size_t header, end = 0;
    json_t *root, *v;
    const char *key;
    int rc;

    *b = (struct batch){ 0 };
    rc = read_to(&file, 8, fd, name, err);
    if (rc) {
        str_free(&file);
        return rc < 0 ? -1 : 0;
    }
    rc = -1;
    header = le64(file.s);
    if (header > MAX_HEADER) {
        err_set(err, EX_DATAERR,
                "%s: a batch's header length is %zu (expected at most %zu)",
                name, header, (size_t)MAX_HEADER);
        goto out;
    }
    if (read_to(&file, 8 + header, fd, name, err) < 0 ||
        !(root = js_parse(file.s + 8, header, name, err)))
        goto out;
    /* where the last tensor's data end; batch_parse() checks the rest */
    json_object_foreach(root, key, v)
    {
        json_t *range = json_object_get(v, "data_offsets");
        json_int_t at = json_integer_value(json_array_get(range, 1));

        end = at > 0 && (size_t)at > end ? (size_t)at : end;
    }
    json_decref(root);
    if (!size_add(end, 8 + header, &end))
        cut_short(name, file.n, SIZE_MAX, err);
    else if (read_to(&file, end, fd, name, err) == 0 &&
             batch_parse(b, file.s, file.n, name, need, hidden, err) == 0)
        rc = 1;
out:
    str_free(&file);
    return rc;
}

int
batch_open(struct batch *b, const char *path, unsigned need, size_t hidden,
           struct err *err)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    struct str all = { 0 };
    struct map map = { 0 };
    struct stat st;
    int rc;

    *b = (struct batch){ 0 };
    if (name == path && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        rc = map_open(&map, path, err);
        if (rc == 0)
            rc = batch_parse(b, map.data, map.size, path, need, hidden, err);
    } else {
        rc = file_read_all(path, MAX_FILE, &all, err);
        if (rc == 0)
            rc = batch_parse(b, all.s, all.n, name, need, hidden, err);
    }
    map_close(&map);
    str_free(&all);
    return rc;
}

void
batch_close(struct batch *b)
{
    free(b->name);
    free(b->expert_ids);
    free(b->weights);
    free(b->input);
    free(b->grad_output);
    free(b->target);
    *b = (struct batch){ 0 };
}

struct moe_batch
batch_of(const struct batch *b)
{
    return (struct moe_batch){ b->qlen, b->expert_ids, b->weights, b->input };
}

/* ---- routing ---- */

#define ROWS 256 /* tokens at a time */

int
batch_route(struct batch *b, const struct base *base, struct gemm *gemm,
            struct err *err)
{
    size_t h = base->hidden, n = base->n_experts, k = base->top_k;
    const struct router router = { &base->routing, n, k, base->correction };
    float *x, *logits;
    uint32_t *ids;
    int rc = -1;

    if (b->expert_ids)
        return 0;
    if (!base->router.weight.data || !k)
        return err_set(err, EX_DATAERR,
                       "%s: has no expert_ids, and %s no router that is known "
                       "(by model_type and num_experts_per_tok)",
                       b->name, base->path);
    b->top_k = k;
    b->expert_ids = mem_try(b->qlen + 1, k * sizeof(int64_t), b->name, err);
    b->weights = mem_try(b->qlen + 1, k * sizeof(float), b->name, err);
    x = mem_try(ROWS, h * sizeof(float), b->name, err);
    logits = mem_try(ROWS, n * sizeof(float), b->name, err);
    ids = mem_try(k, sizeof(*ids), b->name, err);
    if (b->expert_ids && b->weights && x && logits && ids)
        rc = 0;
    for (size_t i = 0, m; rc == 0 && i < b->qlen; i += m) {
        const struct gemm_job job = { .w = base->router,
                                      .c = logits,
                                      .ldc = n,
                                      .end.bias = base->router_bias };

        m = smaller(b->qlen - i, ROWS);
        cvt_to_f32(x, b->input + i * h, DT_BF16, m * h);
        gemm_exact(gemm, &job, 1, x, h, m);
        for (size_t row = 0; row < m; row++) {
            size_t at = (i + row) * k;

            router_select(&router, ids, b->weights + at, logits + row * n);
            for (size_t j = 0; j < k; j++)
                b->expert_ids[at + j] = ids[j];
        }
    }
    free(ids);
    free(logits);
    free(x);
    return rc;
}
