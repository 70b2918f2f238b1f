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
    double *wide[2];
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
    size_t n_same, n_rows;
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
measure(struct part *p, const struct differ *c, const double *a,
        const double *b, size_t n)
{
    const struct inspect_cmd *cmd = c->cmd;

    for (size_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]);
        double sd = c->scale * d, sa = c->scale * a[i], sb = c->scale * b[i];

        if (a[i] == b[i] && !isfinite(a[i]))
            continue; /* the same infinity */
        if (a[i] != a[i] && b[i] != b[i])
            continue; /* NaN in both is not a difference */
        /* an infinite tolerance would let an infinity pass for anything */
        if (!(d <= cmd->atol + cmd->rtol * fabs(a[i])) || isinf(d))
            p->n_differ++;
        if (!(d <= p->max_abs)) /* a NaN enters, and then stays */
            p->max_abs = p->max_abs != p->max_abs ? p->max_abs : d;
        p->dd += sd * sd;
        p->aa += sa * sa;
        p->bb += sb * sb;
        p->ab += sa * sb;
    }
}

static void
measure_ulps(struct part *p, enum dtype dtype, struct diff_buffers *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t x = place(dtype, t->raw[0], i), y = place(dtype, t->raw[1], i);
        uint64_t u =
            x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;

        if (!isnan(t->wide[0][i]) && !isnan(t->wide[1][i]) && u > p->max_ulp)
            p->max_ulp = u;
    }
}

static void
do_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct differ *c = ctx;
    struct diff_buffers *t = &c->threads[thread];
    enum dtype dtype[2] = { c->v[0].dtype, c->v[1].dtype };

    for (size_t i = begin; i < end && !t->err.status; i++) {
        struct part *p = &c->parts[i];
        uint64_t at = (c->first + i) * CHUNK;
        size_t n = c->v[0].n - at < CHUNK ? c->v[0].n - at : CHUNK;

        *p = (struct part){ 0 };
        for (int k = 0; k < 2; k++)
            if (view_read(&c->v[k], t->raw[k], at, n, &t->err) < 0)
                return;
        p->other_bytes = dtype[0] != dtype[1] ||
                         memcmp(t->raw[0], t->raw[1],
                                n * (dtype_table[dtype[0]].bits / 8)) != 0;
        if (!c->measure)
            continue;
        for (int k = 0; k < 2; k++)
            widen(t->wide[k], t->raw[k], dtype[k], n);
        measure(p, c, t->wide[0], t->wide[1], n);
        if (p->other_bytes && dtype[0] == dtype[1] &&
            dtype_table[dtype[0]].kind == DK_FLOAT)
            measure_ulps(p, dtype[0], t, n);
    }
}

/* All chunks; if nothing is measured, only up to the first that differs. */
static int
compare_chunks(struct differ *c, struct part *all, struct err *err)
{
    size_t n_chunks = (c->v[0].n + CHUNK - 1) / CHUNK;

    *all = (struct part){ 0 };
    for (c->first = 0; c->first < n_chunks; c->first += SPAN_CHUNKS) {
        size_t n = n_chunks - c->first < SPAN_CHUNKS ? n_chunks - c->first
                                                     : SPAN_CHUNKS;

        par_for(c->cmd->par, n, 1, do_chunks, c);
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

/* By how much to scale F64, whose squares may overflow or underflow; 1 if they
 * do not, or if no scale helps. */
static double
better_scale(const struct part *p)
{
    double least = fmin(p->dd, fmin(p->aa, p->bb));
    double most = fmax(p->dd, fmax(p->aa, p->bb));

    if (isinf(p->max_abs) || isnan(p->max_abs))
        return 1;
    if (isinf(p->dd) || isinf(p->aa) || isinf(p->bb))
        return 0x1p-600;
    /* also true of zeros: then no other sum may overflow */
    return p->max_abs > 0 && least < DBL_MIN / DBL_EPSILON && most < 0x1p20
               ? 0x1p500
               : 1;
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
    if (a->dtype == DT_F64 || b->dtype == DT_F64)
        c->scale = better_scale(&all);
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
    n = size < NPY_MAX_HEAD ? size : NPY_MAX_HEAD;
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

static bool
has_ulps(const struct diff_row *r)
{
    return r->d.measured && r->a->dtype == r->b->dtype &&
           dtype_table[r->a->dtype].kind == DK_FLOAT;
}

static void
put_row(struct str *to, const struct diff_row *r)
{
    const struct view *a = r->a ? r->a : r->b, *b = r->b ? r->b : r->a;

    str_addf(to, "%s\t%s", r->result, dtype_table[a->dtype].name);
    if (a->dtype != b->dtype)
        str_addf(to, "/%s", dtype_table[b->dtype].name);
    str_addc(to, '\t');
    put_shape(to, a->n_dims, a->shape);
    if (!same_shape(a, b)) {
        str_addc(to, '/');
        put_shape(to, b->n_dims, b->shape);
    }
    str_addc(to, '\t');
    if (r->d.measured) {
        put_u64(to, r->d.n_differ);
        str_addc(to, '\t');
        put_g6(to, r->d.max_abs);
        str_addc(to, '\t');
        put_g6(to, r->d.relative);
        str_addc(to, '\t');
        put_g6(to, r->d.cosine);
        str_addc(to, '\t');
    } else {
        str_adds(to, "-\t-\t-\t-\t");
    }
    if (has_ulps(r))
        put_u64(to, r->d.max_ulp);
    else
        str_addc(to, '-');
    str_addc(to, '\t');
    str_esc(to, r->name, r->name_n);
    str_addc(to, '\n');
}

static void
put_json_side(struct str *to, const char *key, const struct view *v)
{
    put_json_key(to, key);
    if (!v) {
        str_adds(to, "null");
        return;
    }
    str_addf(to, "{\"dtype\":\"%s\",\"shape\":", dtype_table[v->dtype].name);
    put_shape(to, v->n_dims, v->shape);
    str_addc(to, '}');
}

static void
put_json(struct str *to, const struct diff_row *r)
{
    str_addf(to, "{\"result\":\"%s\",\"name\":", r->result);
    js_put_str(to, r->name, r->name_n);
    put_json_side(to, "a", r->a);
    put_json_side(to, "b", r->b);
    if (r->d.measured) {
        put_json_u64(to, "n_differ", r->d.n_differ);
        put_json_f64(to, "max_abs", r->d.max_abs);
        put_json_f64(to, "relative", r->d.relative);
        put_json_f64(to, "cosine", r->d.cosine);
    }
    if (has_ulps(r))
        put_json_u64(to, "max_ulp", r->d.max_ulp);
    str_addc(to, '}');
}

static int
put(struct differ *c, const struct diff_row *r, struct err *err)
{
    struct inspect_cmd *cmd = c->cmd;
    bool same = !strcmp(r->result, "same");

    c->n_same += same;
    if (same && !cmd->all)
        return 0;
    if (cmd->json) {
        str_adds(&cmd->text, c->n_rows ? ",\n" : "\n");
        put_json(&cmd->text, r);
    } else {
        if (c->n_rows == 0)
            str_adds(&cmd->text, "result\tdtype\tshape\tdiffer\tmax_abs\t"
                                 "relative\tcosine\tmax_ulp\tname\n");
        put_row(&cmd->text, r);
    }
    c->n_rows++;
    return text_end(cmd, err);
}

/* What one word says of two tensors of one shape. */
static const char *
judge(const struct inspect_cmd *cmd, const struct diff_row *r)
{
    bool other_dtype = r->a->dtype != r->b->dtype;

    if (other_dtype && (!cmd->ignore_dtype || !r->d.measured))
        return r->a->n || !cmd->ignore_dtype ? "dtype" : "same";
    if (!r->d.other_bytes)
        return "same";
    if (!r->d.measured)
        return "bytes";
    if (r->d.n_differ)
        return "values";
    /* -0 and 0, or two NaNs: equal as numbers */
    return other_dtype || cmd->atol > 0 || cmd->rtol > 0 ? "same" : "bytes";
}

static int
diff_pair(struct differ *c, struct diff_row *r, struct err *err)
{
    if (!same_shape(r->a, r->b)) {
        r->result = "shape";
    } else {
        if (compare(c, &r->d, r->a, r->b, err) < 0)
            return -1;
        r->result = judge(c->cmd, r);
    }
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

/* The one tensor of a side that is compared with an unnamed array. */
static int
only_view(const struct side *side, struct view *v, struct err *err)
{
    if (side->is_npy) {
        *v = (struct view){ .path = side->path,
                            .fd = side->fd,
                            .offset = side->npy.data_offset,
                            .dtype = side->npy.dtype,
                            .n_dims = side->npy.n_dims,
                            .shape = side->npy.shape,
                            .n = side->npy.n_elements,
                            .nbytes = side->npy.nbytes };
        return 0;
    }
    if (side->sel.n != 1)
        return err_set(err, TU_USAGE,
                       "diff: %s has %zu tensor%s for one array: select one "
                       "with --tensor",
                       side->path, side->sel.n, plural(side->sel.n));
    *v = view_of(side->sel.t[0]);
    return 0;
}

static int
diff_arrays(struct differ *c, const struct side *a, const struct side *b,
            struct err *err)
{
    struct view v, w;
    struct diff_row r = { .a = &v, .b = &w, .name = b->path };
    const struct side *named = !a->is_npy ? a : !b->is_npy ? b : NULL;

    if (only_view(a, &v, err) < 0 || only_view(b, &w, err) < 0)
        return -1;
    r.name_n = strlen(r.name);
    if (named) {
        r.name = named->sel.t[0]->t->name;
        r.name_n = named->sel.t[0]->t->name_n;
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
        t->wide[i % 2] = mem_big(CHUNK, 8, "a buffer", err);
        if (!t->raw[i % 2] || !t->wide[i % 2])
            goto out;
    }
    if (cmd->json) {
        str_adds(&cmd->text, "{\"a\":");
        put_json_str(&cmd->text, cmd->args[0]);
        put_json_text(&cmd->text, "b", cmd->args[1]);
        put_json_key(&cmd->text, "tensors");
        str_addc(&cmd->text, '[');
    }
    rc = (a.is_npy || b.is_npy ? diff_arrays : diff_models)(&c, &a, &b, err);
    n_other = c.n_rows - (cmd->all ? c.n_same : 0);
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
        mem_big_free(c.threads[i / 2].wide[i % 2], CHUNK, 8);
    }
    free(c.threads);
    free(c.parts);
    close_side(&a);
    close_side(&b);
    return rc;
}
