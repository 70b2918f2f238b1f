/* SPDX-License-Identifier: ISC */
/* cat: one tensor, or a slice of it, as .npy, raw bytes or JSON. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/slice.h"
#include "cmd/st-inspect/text.h"
#include "core/format/npy.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"

/* Runs shorter than this are copied from a map: a read for each would cost
 * more. */
#define SHORT_RUN ((size_t)4096) /* bytes */

/* Pages of a map are released after so many bytes of them.  A fault also reads
 * the pages around it. */
#define MAPPED_NBYTES ((size_t)4 << 20)
#define FAULT_NBYTES  ((size_t)64 << 10)

/* An axis outside of runs that has more than one element: there are at most as
 * many as bits in a size, however many dims there are. */
struct outer {
    uint64_t count, i;
    uint64_t step; /* in elements of the tensor, modulo 2^64 */
};

/* Elements of a slice that are adjacent in the file are a run. */
struct runs {
    uint64_t run;   /* elements */
    uint64_t first; /* the slice's first element */
    size_t n;
    struct outer outer[64]; /* [n], outermost last */
};

/*
 * The elements of a slice are copied, as they are in the file, into a buffer,
 * which is converted and written whenever it is full.
 */
struct slice_copy {
    struct inspect_cmd *cmd;
    struct view v;
    const uint8_t *mapped; /* the tensor; NULL: runs are long, and read */
    struct map map;        /* the file, which 'mapped' points into */
    size_t last, touched;  /* of 'mapped': the place, bytes that came with it */
    size_t size;           /* bytes of an element */
    uint8_t *buf;          /* [PIECE_NBYTES] */
    size_t n;              /* bytes in it */
    double *f64;           /* [CHUNK], when the type changes or for JSON */
    uint8_t *converted;    /* [CHUNK] of f64 at most */
    uint64_t done;         /* elements written as JSON */
    size_t n_dims;   /* of what is written, at most NPY_MAX_DIMS in JSON */
    uint64_t *shape; /* [n_dims] */
};

/* Brackets that open before element i, or close after it. */
static void
put_brackets(struct slice_copy *g, uint64_t i, char bracket)
{
    uint64_t block = 1;

    for (size_t k = g->n_dims; k-- > 0;) {
        block *= g->shape[k];
        if ((bracket == '[' ? i : i + 1) % block != 0)
            break;
        str_addc(&g->cmd->text, bracket);
    }
}

static int
put_json_numbers(struct slice_copy *g, const uint8_t *from, const double *x,
                 size_t n, struct err *err)
{
    struct str *to = &g->cmd->text;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (g->done + i)
            str_addc(to, ',');
        put_brackets(g, g->done + i, '[');
        if (g->v.dtype == DT_I64)
            str_addf(to, "%lld", (long long)le64(from + i * g->size));
        else if (g->v.dtype == DT_U64)
            str_addf(to, "%llu", (unsigned long long)le64(from + i * g->size));
        else if (g->v.dtype == DT_BOOL)
            str_adds(to, x[i] != 0 ? "true" : "false");
        else
            js_put_f64(to, x[i]);
        put_brackets(g, g->done + i, ']');
        rc = text_end(g->cmd, err);
    }
    return rc;
}

/* Writes what is in the buffer, converted if need be. */
static int
flush(struct slice_copy *g, struct err *err)
{
    size_t n = g->n / (g->size ? g->size : 1);
    bool f32 = g->cmd->dtype == DT_F32;
    int rc = 0;

    if (!g->f64)
        rc = out_write(g->cmd->out, g->buf, g->n, err);
    for (size_t i = 0, k; g->f64 && rc == 0 && i < n; i += k) {
        const uint8_t *from = g->buf + i * g->size;

        k = smaller(n - i, CHUNK);
        widen(g->f64, from, g->v.dtype, k);
        if (g->cmd->json) {
            rc = put_json_numbers(g, from, g->f64, k, err);
            g->done += k;
            continue;
        }
        for (size_t e = 0; e < k; e++) {
            uint64_t bits;
            float f = (float)g->f64[e];

            /* rounded once: a double on the way would round these twice */
            if (g->v.dtype == DT_I64)
                f = (float)(int64_t)le64(from + e * g->size);
            else if (g->v.dtype == DT_U64)
                f = (float)le64(from + e * g->size);
            memcpy(&bits, &g->f64[e], sizeof(bits));
            if (f32)
                put_le32(g->converted + 4 * e, f32_bits(f));
            else
                put_le64(g->converted + 8 * e, bits);
        }
        rc = out_write(g->cmd->out, g->converted, k * (f32 ? 4 : 8), err);
    }
    g->n = 0;
    return rc;
}

/* 'nbytes' of the tensor from byte 'at' on. */
static int
copy_run(struct slice_copy *g, size_t at, size_t nbytes, struct err *err)
{
    if (g->mapped) { /* few pages of the map stay in memory */
        size_t step = at > g->last ? at - g->last : g->last - at;

        g->touched += smaller(step, FAULT_NBYTES);
        g->last = at;
        if (g->touched >= MAPPED_NBYTES) {
            madvise((void *)(uintptr_t)g->map.data, g->map.size, MADV_DONTNEED);
            g->touched = 0;
        }
    }
    while (nbytes > 0) {
        size_t room = PIECE_NBYTES - g->n;
        size_t n = smaller(nbytes, room);

        if (g->mapped)
            memcpy(g->buf + g->n, g->mapped + at, n);
        else if (g->v.packed)
            packed_read(g->v.packed, g->buf + g->n, at / 4, n / 4);
        else if (file_pread(g->v.fd, g->v.path, g->buf + g->n, n,
                            g->v.offset + at, err) < 0)
            return -1;
        g->n += n;
        at += n;
        nbytes -= n;
        if (g->n == PIECE_NBYTES && flush(g, err) < 0)
            return -1;
    }
    return 0;
}

/* The last axes that are selected whole, and the range before them, are a run.
 */
static void
split_runs(struct runs *r, const struct slice *s, const uint64_t *shape)
{
    uint64_t stride = 1;
    bool in_run = true;

    *r = (struct runs){ .run = 1 };
    for (size_t k = s->n ? s->n_dims : 0; k-- > 0; stride *= shape[k]) {
        const struct slice_axis *a = &s->axis[k];

        r->first += (uint64_t)a->start * stride;
        in_run = in_run && a->step == 1;
        if (in_run)
            r->run *= a->count;
        else if (a->count > 1)
            r->outer[r->n++] =
                (struct outer){ a->count, 0, (uint64_t)a->step * stride };
        in_run = in_run && a->count == shape[k];
    }
}

static int
put_head(const struct slice_copy *g, const struct st_tensor *t,
         const struct slice *s, struct err *err)
{
    struct inspect_cmd *cmd = g->cmd;
    enum dtype dtype = cmd->dtype < 0 ? t->dtype : (enum dtype)cmd->dtype;
    size_t bits = dtype_table[dtype].bits;
    size_t n = t->nbytes; /* if an element is less than a byte: always whole */
    struct str head = { 0 };
    int rc = 0;

    if (cmd->json) {
        str_adds(&cmd->text, "{\"name\":");
        js_put_str(&cmd->text, t->name, t->name_n);
        js_addf(&cmd->text,
                ",\"dtype\":%s,\"shape\":", dtype_table[t->dtype].name);
        put_shape(&cmd->text, g->n_dims, g->shape);
        str_adds(&cmd->text, s->n ? ",\"data\":" : ",\"data\":[]");
        return 0;
    }
    if (!cmd->raw)
        rc = npy_header(&head, dtype, g->n_dims, g->shape, err);
    /* what overflows is reported when it is written */
    if (rc == 0 && (bits < 8 || size_mul(s->n, bits / 8, &n)) &&
        size_add(n, head.n, &n))
        rc = out_reserve(cmd->out, n, err);
    if (rc == 0)
        rc = out_write(cmd->out, head.s, head.n, err);
    str_free(&head);
    return rc;
}

static int
cat_tensor(struct inspect_cmd *cmd, struct stdir *dir,
           const struct stdir_tensor *t, struct err *err)
{
    struct slice_copy g = { .cmd = cmd, .v = view_of(t) };
    struct slice s = { 0 };
    struct runs runs;
    uint64_t at;
    int rc = -1;

    if (slice_parse(&s, cmd->slice, g.v.n_dims, g.v.shape, err) < 0)
        goto out;
    g.size = dtype_size(g.v.dtype);
    g.shape = xcalloc(s.n_dims, sizeof(*g.shape));
    for (size_t k = 0; k < s.n_dims; k++)
        if (s.axis[k].keep)
            g.shape[g.n_dims++] = s.axis[k].count;
    if (!cmd->raw && g.n_dims > NPY_MAX_DIMS) {
        err_set(err, EX_DATAERR, "%s: %s has %zu dims (%s takes at most %d)",
                cmd->args[0], t->t->name, g.n_dims,
                cmd->json ? "--json" : ".npy", NPY_MAX_DIMS);
        goto out;
    }
    split_runs(&runs, &s, g.v.shape);
    g.buf = mem_big(PIECE_NBYTES, 1, "a buffer", err);
    if (!g.buf)
        goto out;
    if (g.size && s.n && runs.run * g.size < SHORT_RUN && !g.v.packed) {
        if (st_map(&dir->files[t->st - dir->files], err) < 0)
            goto out;
        g.mapped = st_data(t->st, t->t);
        g.map = t->st->map;
    }
    if (cmd->json || cmd->dtype >= 0) {
        g.f64 = mem_big(CHUNK, sizeof(*g.f64), "a buffer", err);
        g.converted = mem_big(CHUNK, 8, "a buffer", err);
        if (!g.f64 || !g.converted)
            goto out;
    }
    if (packed_bind(g.v.packed, cmd->par, err) < 0)
        goto out;
    rc = put_head(&g, t->t, &s, err);
    if (rc == 0 && g.size == 0) /* less than a byte: whole, and raw */
        rc = copy_run(&g, 0, g.v.nbytes, err);
    at = runs.first;
    for (uint64_t n = g.size ? s.n : 0; rc == 0 && n > 0; n -= runs.run) {
        rc = copy_run(&g, at * g.size, runs.run * g.size, err);
        for (size_t k = 0; k < runs.n; k++) {
            struct outer *o = &runs.outer[k];

            at += o->step;
            if (++o->i < o->count)
                break;
            at -= o->count * o->step;
            o->i = 0;
        }
    }
    if (rc == 0)
        rc = flush(&g, err);
    if (rc == 0 && g.mapped)
        rc = st_unchanged(t->st, err);
    if (rc == 0)
        rc = packed_unbind(g.v.packed, err);
    if (cmd->json)
        str_adds(&cmd->text, "}\n");
out:
    mem_big_free(g.buf, PIECE_NBYTES, 1);
    mem_big_free(g.f64, CHUNK, sizeof(*g.f64));
    mem_big_free(g.converted, CHUNK, 8);
    free(g.shape);
    slice_free(&s);
    return rc;
}

int
cat_main(struct inspect_cmd *cmd, struct err *err)
{
    const struct dtype_info *type;
    const struct stdir_tensor *t;
    struct packed packed = { 0 };
    struct stdir dir;
    bool real;
    int rc = -1;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "cat takes FILE TENSOR (found %d)",
                       cmd->n_args);
    if (stdir_open(&dir, cmd->args[0], err) < 0)
        return -1;
    if (cmd->dequantize && packed_open(&packed, &dir, err) < 0)
        goto out;
    t = select_find(&dir, cmd->args[1], err);
    if (!t)
        goto out;
    type = &dtype_table[t->t->dtype];
    real = widens(t->t->dtype);
    /* what cannot be said in the form that was asked for */
    if ((cmd->json || cmd->dtype >= 0) && !real)
        err_set(err, TU_USAGE, "%s: %s is %s, which only %s can hold",
                cmd->args[0], t->t->name, type->name,
                type->npy ? ".npy or --raw" : "--raw");
    else if (cmd->slice && type->bits < 8)
        err_set(err, TU_USAGE,
                "%s: %s is %s, of less than a byte: --slice cannot cut it",
                cmd->args[0], t->t->name, type->name);
    else if (!cmd->json && !cmd->raw && cmd->dtype < 0 && !type->npy)
        err_set(err, TU_USAGE,
                "%s: %s is %s, which .npy has no name for (%s--raw writes the "
                "bytes)",
                cmd->args[0], t->t->name, type->name,
                real ? "--dtype f32 widens it exactly, " : "");
    else
        rc = cat_tensor(cmd, &dir, t, err);
out:
    packed_close(&packed, &dir);
    stdir_close(&dir);
    return rc;
}
