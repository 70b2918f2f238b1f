/* SPDX-License-Identifier: ISC */
/*
 * diff: compares the tensors that two models have, then their values.  Chunks
 * are compared independently and merged in their order.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "core/dtype.h"
#include "core/format/npy.h"
#include "core/js.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/par.h"
#include "core/tool.h"
#include "core/tty.h"

#define SPAN_CHUNKS 1024 /* between two merges */

/* How far B's numbers are from A's.  NaN in both is no difference; NaN in one
 * makes max_abs, relative and cosine NaN. */
struct tensor_distance {
    bool other_bytes;
    bool measured;     /* false: the same, or not of real numbers */
    uint64_t n_differ; /* |a - b| > atol + rtol |a| */
    double max_abs;
    double relative; /* norm of B - A, by the norm of A */
    double cosine;
    uint64_t max_ulp; /* only between floats of one type */
};

struct diff_buffers {
    uint8_t *raw[2];
    double *f64[2];
    struct err err;
};

/* Of one chunk: sums and maxima, which are merged in the order of chunks. */
struct part {
    uint64_t n_differ, max_ulp;
    double max_abs, dd, aa, bb, ab;
    bool other_bytes;
};

struct differ {
    struct inspect_cmd *cmd;
    struct view v[2];
    int n_threads;
    struct diff_buffers *threads;
    struct part *parts; /* [SPAN_CHUNKS] */
    size_t first;       /* chunk */
    bool measure;       /* false: only whether the bytes are the same */
    double scale;       /* of numbers in sums of squares, a power of 2 */
    size_t n_same;
};

/* A float's place in the order of all floats of its type: neighbours differ by
 * 1. */
static int64_t
place(enum dtype dtype, const uint8_t *p, size_t i)
{
    unsigned bits = dtype_table[dtype].bits;
    uint64_t u = bits == 8    ? p[i]
                 : bits == 16 ? le16(p + 2 * i)
                 : bits == 32 ? le32(p + 4 * i)
                              : le64(p + 8 * i);
    uint64_t sign = UINT64_C(1) << (bits - 1);

    if (dtype == DT_F8_E8M0)
        return (int64_t)u;
    return u & sign ? -(int64_t)(u & ~sign) : (int64_t)u;
}

static void
do_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct differ *c = ctx;
    const struct inspect_cmd *cmd = c->cmd;
    struct diff_buffers *t = &c->threads[thread];
    enum dtype dtype[2] = { c->v[0].dtype, c->v[1].dtype };
    const double *a = t->f64[0], *b = t->f64[1];

    for (size_t i = begin; i < end && !t->err.status; i++) {
        struct part *p = &c->parts[i];
        uint64_t at = (c->first + i) * CHUNK;
        size_t n = smaller(c->v[0].n - at, CHUNK);

        *p = (struct part){ 0 };
        for (int k = 0; k < 2; k++)
            if (view_read(&c->v[k], t->raw[k], at, n, &t->err) < 0)
                return;
        p->other_bytes =
            dtype[0] != dtype[1] ||
            memcmp(t->raw[0], t->raw[1], n * dtype_size(dtype[0])) != 0;
        if (!c->measure)
            continue;
        for (int k = 0; k < 2; k++)
            widen(t->f64[k], t->raw[k], dtype[k], n);
        for (size_t k = 0; k < n; k++) {
            double d = fabs(a[k] - b[k]), sd = c->scale * d;
            double sa = c->scale * a[k], sb = c->scale * b[k];

            if (a[k] == b[k] && !isfinite(a[k]))
                continue; /* the same infinity */
            if (a[k] != a[k] && b[k] != b[k])
                continue; /* NaN in both is not a difference */
            /* an infinite tolerance would let an infinity pass for anything */
            if (!(d <= cmd->atol + cmd->rtol * fabs(a[k])) || isinf(d))
                p->n_differ++;
            if (!(d <= p->max_abs)) /* a NaN enters, and then stays */
                p->max_abs = p->max_abs != p->max_abs ? p->max_abs : d;
            p->dd += sd * sd;
            p->aa += sa * sa;
            p->bb += sb * sb;
            p->ab += sa * sb;
        }
        if (!p->other_bytes || dtype[0] != dtype[1] ||
            dtype_table[dtype[0]].kind != DK_FLOAT)
            continue;
        for (size_t k = 0; k < n; k++) {
            int64_t x = place(dtype[0], t->raw[0], k);
            int64_t y = place(dtype[0], t->raw[1], k);
            uint64_t u =
                x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;

            if (!isnan(a[k]) && !isnan(b[k]) && u > p->max_ulp)
                p->max_ulp = u;
        }
    }
}

/* All chunks; if nothing is measured, only up to the first that differs. */
static int
compare_chunks(struct differ *c, struct part *all, struct err *err)
{
    size_t n_chunks = (c->v[0].n + CHUNK - 1) / CHUNK;

    *all = (struct part){ 0 };
    for (c->first = 0; c->first < n_chunks; c->first += SPAN_CHUNKS) {
        size_t n = smaller(n_chunks - c->first, SPAN_CHUNKS);

        par_for_thread(c->cmd->par, n, 1, do_chunks, c);
        for (int i = 0; i < c->n_threads; i++)
            if (c->threads[i].err.status) {
                *err = c->threads[i].err;
                return -1;
            }
        for (const struct part *p = c->parts; p < c->parts + n; p++) {
            all->n_differ += p->n_differ;
            all->other_bytes |= p->other_bytes;
            if (p->max_ulp > all->max_ulp)
                all->max_ulp = p->max_ulp;
            if (!(p->max_abs <= all->max_abs) && all->max_abs == all->max_abs)
                all->max_abs = p->max_abs;
            all->dd += p->dd;
            all->aa += p->aa;
            all->bb += p->bb;
            all->ab += p->ab;
        }
        if (!c->measure && all->other_bytes)
            break;
    }
    return 0;
}

/* Reads a and b, which have the same number of elements, once or more; -1 with
 * 'err' set as view_read(). */
static int
compare(struct differ *c, struct tensor_distance *d, const struct view *a,
        const struct view *b, struct err *err)
{
    struct part all;

    *d = (struct tensor_distance){ 0 };
    c->v[0] = *a;
    c->v[1] = *b;
    c->measure = false;
    c->scale = 1;
    if (!widens(a->dtype) || !widens(b->dtype)) {
        /* less than a byte, or complex: only the bytes are compared */
        d->other_bytes = a->dtype != b->dtype;
        if (d->other_bytes)
            return 0;
        for (int k = 0; k < 2; k++) {
            c->v[k].dtype = DT_U8;
            c->v[k].n = c->v[k].nbytes;
        }
    }
    if (compare_chunks(c, &all, err) < 0)
        return -1;
    d->other_bytes = all.other_bytes;
    if (!all.other_bytes || !widens(a->dtype) || !widens(b->dtype))
        return 0;
    c->measure = true;
    if (compare_chunks(c, &all, err) < 0)
        return -1;
    /* Squares of F64 may overflow or underflow.  The last condition is also
     * true of zeros: then no other sum may overflow. */
    if ((a->dtype == DT_F64 || b->dtype == DT_F64) && isfinite(all.max_abs)) {
        if (isinf(all.dd) || isinf(all.aa) || isinf(all.bb))
            c->scale = 0x1p-600;
        else if (all.max_abs > 0 &&
                 fmin(all.dd, fmin(all.aa, all.bb)) < DBL_MIN / DBL_EPSILON &&
                 fmax(all.dd, fmax(all.aa, all.bb)) < 0x1p20)
            c->scale = 0x1p500;
    }
    if (c->scale != 1 && compare_chunks(c, &all, err) < 0)
        return -1;
    d->measured = true;
    d->n_differ = all.n_differ;
    d->max_abs = all.max_abs;
    d->max_ulp = all.max_ulp;
    d->relative = all.dd == 0 ? 0 : sqrt(all.dd) / sqrt(all.aa);
    d->cosine = all.ab / (sqrt(all.aa) * sqrt(all.bb));
    return 0;
}

/* One of the two: a model, or an array that has no name. */
struct side {
    const char *path;
    bool is_npy;
    int fd;
    struct npy npy;
    struct selection sel;
};

struct diff_row {
    const char *result;
    const char *name;
    size_t name_n;
    const struct view *a, *b; /* NULL: not there */
    struct tensor_distance d;
};

static int
open_side(struct side *side, const char *path, const struct inspect_cmd *cmd,
          struct err *err)
{
    struct str head = { 0 };
    struct err not_a_file;
    size_t size, n;
    int rc = 0;

    side->path = path;
    side->fd = file_open(path, &size, &not_a_file);
    if (side->fd < 0) /* a directory, or select_open() says what it is */
        return select_open(&side->sel, path, cmd, err);
    n = smaller(size, NPY_MAX_HEAD);
    str_reserve(&head, n + 1);
    rc = file_pread(side->fd, path, head.s, n, 0, err);
    side->is_npy = rc == 0 && npy_sniff(head.s, n);
    if (side->is_npy && (npy_parse(&side->npy, head.s, n, path, err) < 0 ||
                         npy_fits(&side->npy, size, path, err) < 0))
        rc = -1;
    str_free(&head);
    return rc < 0 || side->is_npy ? rc
                                  : select_open(&side->sel, path, cmd, err);
}

static void
close_side(struct side *side)
{
    if (side->fd >= 0)
        close(side->fd);
    select_close(&side->sel);
}

static bool
same_shape(const struct view *a, const struct view *b)
{
    return a->n_dims == b->n_dims &&
           (a->n_dims == 0 ||
            !memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)));
}

/* Of two, "A/B" in TSV where they differ. */
static void
put_sides(struct record *row, const struct view *a, const struct view *b)
{
    const struct view *of[2] = { a ? a : b, b ? b : a };

    if (!row->json) {
        record_key(row, "dtype");
        str_adds(row->to, of[0]->type);
        if (strcmp(of[0]->type, of[1]->type) != 0)
            str_addf(row->to, "/%s", of[1]->type);
        row_shape(row, "shape", of[0]->n_dims, of[0]->shape);
        if (!same_shape(of[0], of[1])) {
            str_addc(row->to, '/');
            put_shape(row->to, of[1]->n_dims, of[1]->shape);
        }
        return;
    }
    of[0] = a;
    of[1] = b;
    for (int k = 0; k < 2; k++) {
        if (!of[k]) {
            record_none(row, k ? "b" : "a");
            continue;
        }
        record_key(row, k ? "b" : "a");
        js_addf(row->to, "{\"dtype\":%s,\"shape\":", of[k]->type);
        put_shape(row->to, of[k]->n_dims, of[k]->shape);
        str_addc(row->to, '}');
    }
}

/* Adds a row, but of the same only with --all. */
static int
put(struct differ *c, const struct diff_row *r, struct err *err)
{
    struct inspect_cmd *cmd = c->cmd;
    struct record *row = &cmd->row;
    bool same = !strcmp(r->result, "same"), measured = r->d.measured;

    c->n_same += same;
    if (same && !cmd->all)
        return 0;
    if (row->n_rows == 0 && !cmd->json)
        str_adds(row->to, "result\tdtype\tshape\tdiffer\tmax_abs\t"
                          "relative\tcosine\tmax_ulp\tname\n");
    record_begin(row);
    record_string(row, "result", r->result);
    record_name(row, "name", r->name, r->name_n);
    put_sides(row, r->a, r->b);
    if (measured) {
        record_u64(row, "n_differ", r->d.n_differ);
        record_f64(row, "max_abs", r->d.max_abs);
        record_f64(row, "relative", r->d.relative);
        record_f64(row, "cosine", r->d.cosine);
    }
    for (int i = 0; i < 4 && !measured && !cmd->json; i++)
        record_none(row, NULL);
    if (measured && r->a->dtype == r->b->dtype &&
        dtype_table[r->a->dtype].kind == DK_FLOAT)
        record_u64(row, "max_ulp", r->d.max_ulp);
    else if (!cmd->json)
        record_none(row, NULL);
    return row_end(cmd, err);
}

/* Compares two tensors, and says in one word what differs. */
static int
diff_pair(struct differ *c, struct diff_row *r, struct err *err)
{
    const struct inspect_cmd *cmd = c->cmd;
    bool ignore = cmd->ignore_dtype || r->a->packed || r->b->packed;
    bool other_dtype = r->a->dtype != r->b->dtype;
    bool same_shapes = same_shape(r->a, r->b);

    if (same_shapes && (packed_bind(r->a->packed, cmd->par, err) < 0 ||
                        packed_bind(r->b->packed, cmd->par, err) < 0 ||
                        compare(c, &r->d, r->a, r->b, err) < 0 ||
                        packed_unbind(r->a->packed, err) < 0 ||
                        packed_unbind(r->b->packed, err) < 0))
        return -1;
    if (!same_shapes)
        r->result = "shape";
    else if (other_dtype && (!ignore || !r->d.measured))
        r->result = r->a->n || !ignore ? "dtype" : "same";
    else if (!r->d.other_bytes)
        r->result = "same";
    else if (!r->d.measured)
        r->result = "bytes";
    else if (r->d.n_differ)
        r->result = "values";
    else /* -0 and 0, or two NaNs: equal as numbers */
        r->result =
            other_dtype || cmd->atol > 0 || cmd->rtol > 0 ? "same" : "bytes";
    return put(c, r, err);
}

static int
diff_models(struct differ *c, const struct side *a, const struct side *b,
            struct err *err)
{
    struct progress p = { .what = "diff",
                          .unit = "B",
                          .total = a->sel.nbytes,
                          .quiet = c->cmd->quiet };
    uint64_t done = 0;
    int rc = 0;

    progress_start(&p);
    for (int k = 0; k < 2; k++) {
        const struct selection *sel = k ? &b->sel : &a->sel;

        for (size_t i = 0; rc == 0 && i < sel->n; i++) {
            const struct st_tensor *t = sel->t[i]->t;
            const struct stdir_tensor *u =
                stdir_find_n(k ? &a->sel.dir : &b->sel.dir, t->name, t->name_n);
            struct view v = view_of(sel->t[i]), w;
            struct diff_row r = { .name = t->name, .name_n = t->name_n };

            if (u && !select_matches(c->cmd, u->t))
                u = NULL;
            if (u && k)
                continue; /* was compared already */
            if (u) {
                w = view_of(u);
                r.a = &v;
                r.b = &w;
                rc = diff_pair(c, &r, err);
                progress_at(&p, done += v.nbytes);
                continue;
            }
            r.result = k ? "only_b" : "only_a";
            *(k ? &r.b : &r.a) = &v;
            rc = put(c, &r, err);
        }
    }
    progress_end(&p);
    return rc;
}

/* Two arrays, at least one of them without a name: the other side's only
 * tensor. */
static int
diff_arrays(struct differ *c, const struct side *a, const struct side *b,
            struct err *err)
{
    struct view v[2];
    struct diff_row r = {
        .a = &v[0], .b = &v[1], .name = b->path, .name_n = strlen(b->path)
    };

    for (int k = 0; k < 2; k++) {
        const struct side *s = k ? b : a;

        if (s->is_npy) {
            v[k] = (struct view){ .path = s->path,
                                  .fd = s->fd,
                                  .offset = s->npy.data_offset,
                                  .dtype = s->npy.dtype,
                                  .type = dtype_table[s->npy.dtype].name,
                                  .n_dims = s->npy.n_dims,
                                  .shape = s->npy.shape,
                                  .n = s->npy.n_elements,
                                  .nbytes = s->npy.nbytes };
            continue;
        }
        if (s->sel.n != 1)
            return err_set(err, TU_USAGE,
                           "diff: %s has %zu tensor%s for one array: select "
                           "one with --tensor",
                           s->path, s->sel.n, plural(s->sel.n));
        v[k] = view_of(s->sel.t[0]);
        r.name = s->sel.t[0]->t->name;
        r.name_n = s->sel.t[0]->t->name_n;
    }
    return diff_pair(c, &r, err);
}

int
diff_main(struct inspect_cmd *cmd, struct err *err)
{
    struct side a = { .fd = -1 }, b = { .fd = -1 };
    struct differ c = { .cmd = cmd };
    size_t n_other;
    int rc = -1;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "diff takes A B (found %d)", cmd->n_args);
    if (par_open(&cmd->par, cmd->n_threads, err) < 0 ||
        open_side(&a, cmd->args[0], cmd, err) < 0 ||
        open_side(&b, cmd->args[1], cmd, err) < 0)
        goto out;
    c.n_threads = par_threads(cmd->par);
    c.threads = xcalloc((size_t)c.n_threads, sizeof(*c.threads));
    c.parts = xcalloc(SPAN_CHUNKS, sizeof(*c.parts));
    for (int i = 0; i < 2 * c.n_threads; i++) {
        struct diff_buffers *t = &c.threads[i / 2];

        t->raw[i % 2] = mem_big(CHUNK, 8, "a buffer", err);
        t->f64[i % 2] = mem_big(CHUNK, 8, "a buffer", err);
        if (!t->raw[i % 2] || !t->f64[i % 2])
            goto out;
    }
    if (cmd->json)
        js_addf(&cmd->text, "{\"a\":%s,\"b\":%s,\"tensors\":[", cmd->args[0],
                cmd->args[1]);
    rc = (a.is_npy || b.is_npy ? diff_arrays : diff_models)(&c, &a, &b, err);
    n_other = cmd->row.n_rows - (cmd->all ? c.n_same : 0);
    if (cmd->json)
        str_addf(&cmd->text, "\n],\"n_same\":%zu,\"n_different\":%zu}\n",
                 c.n_same, n_other);
    if (rc == 0 && cmd->verbose)
        tool_say("tensors: %zu the same, %zu not", c.n_same, n_other);
    if (rc == 0 && n_other)
        rc = TU_NEGATIVE;
out:
    for (int i = 0; i < 2 * c.n_threads; i++) {
        mem_big_free(c.threads[i / 2].raw[i % 2], CHUNK, 8);
        mem_big_free(c.threads[i / 2].f64[i % 2], CHUNK, 8);
    }
    free(c.threads);
    free(c.parts);
    close_side(&a);
    close_side(&b);
    return rc;
}
