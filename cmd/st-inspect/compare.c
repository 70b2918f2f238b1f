/*
 * Two arrays of numbers: how far are they from each other?  Chunks are
 * compared on their own and merged in their order.
 */
#include "cmd/st-inspect/compare.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/par.h"

#define SPAN_CHUNKS 1024 /* between two merges */

struct thread_buffers {
    uint8_t *raw[2];
    double *wide[2];
    struct err err;
};

/* Of one chunk: what adds up, and what has a maximum. */
struct part {
    uint64_t n_differ, max_ulp;
    double max_abs, dd, aa, bb, ab;
    bool other_bytes;
};

struct comparer {
    const struct inspect_cmd *cmd;
    const struct view *v[2];
    int n_threads;
    struct thread_buffers *threads;
    struct part *parts; /* [SPAN_CHUNKS] */
    size_t first;       /* chunk */
    bool measure;       /* false: only whether the bytes are the same */
    double scale;       /* of numbers in sums of squares, a power of 2 */
};

struct comparer *
compare_open(const struct inspect_cmd *cmd, struct err *err)
{
    struct comparer *c = xcalloc(1, sizeof(*c));

    c->cmd = cmd;
    c->n_threads = par_threads(cmd->par);
    c->threads = xcalloc((size_t)c->n_threads, sizeof(*c->threads));
    c->parts = xcalloc(SPAN_CHUNKS, sizeof(*c->parts));
    for (int i = 0; i < 2 * c->n_threads; i++) {
        struct thread_buffers *t = &c->threads[i / 2];

        t->raw[i % 2] = mem_big(CHUNK, 8, "a buffer", err);
        t->wide[i % 2] = mem_big(CHUNK, 8, "a buffer", err);
        if (!t->raw[i % 2] || !t->wide[i % 2]) {
            compare_close(c);
            return NULL;
        }
    }
    return c;
}

void
compare_close(struct comparer *c)
{
    if (!c)
        return;
    for (int i = 0; i < 2 * c->n_threads; i++) {
        mem_big_free(c->threads[i / 2].raw[i % 2], CHUNK, 8);
        mem_big_free(c->threads[i / 2].wide[i % 2], CHUNK, 8);
    }
    free(c->threads);
    free(c->parts);
    free(c);
}

/* A float's place among all of its type: neighbours differ by 1. */
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
measure(struct part *p, const struct comparer *c, const double *a,
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
measure_ulps(struct part *p, enum dtype dtype, struct thread_buffers *t,
             size_t n)
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
    const struct comparer *c = ctx;
    struct thread_buffers *t = &c->threads[thread];
    enum dtype dtype[2] = { c->v[0]->dtype, c->v[1]->dtype };

    for (size_t i = begin; i < end && !t->err.status; i++) {
        struct part *p = &c->parts[i];
        uint64_t at = (c->first + i) * CHUNK;
        size_t n = c->v[0]->n - at < CHUNK ? c->v[0]->n - at : CHUNK;

        *p = (struct part){ 0 };
        for (int k = 0; k < 2; k++)
            if (view_read(c->v[k], t->raw[k], at, n, &t->err) < 0)
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

static void
merge(struct part *to, const struct part *p)
{
    to->n_differ += p->n_differ;
    to->other_bytes |= p->other_bytes;
    if (p->max_ulp > to->max_ulp)
        to->max_ulp = p->max_ulp;
    if (!(p->max_abs <= to->max_abs) && to->max_abs == to->max_abs)
        to->max_abs = p->max_abs;
    to->dd += p->dd;
    to->aa += p->aa;
    to->bb += p->bb;
    to->ab += p->ab;
}

/* All chunks; without measuring only up to the first that is not the same. */
static int
pass(struct comparer *c, struct part *all, struct err *err)
{
    size_t n_chunks = (c->v[0]->n + CHUNK - 1) / CHUNK;

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
        for (size_t i = 0; i < n; i++)
            merge(all, &c->parts[i]);
        if (!c->measure && all->other_bytes)
            break;
    }
    return 0;
}

/* Types of less than a byte, and complex ones: the bytes or nothing. */
static int
compare_bytes(struct comparer *c, struct tensor_distance *d, struct err *err)
{
    struct view bytes[2] = { *c->v[0], *c->v[1] };
    struct part all;
    int rc;

    if (c->v[0]->dtype != c->v[1]->dtype) {
        d->other_bytes = true;
        return 0;
    }
    for (int k = 0; k < 2; k++) {
        bytes[k].dtype = DT_U8;
        bytes[k].n = bytes[k].nbytes;
        c->v[k] = &bytes[k];
    }
    rc = pass(c, &all, err);
    d->other_bytes = all.other_bytes;
    return rc;
}

/* Of F64 squares may leave what F64 holds: by how much to scale numbers then;
 * 1 where they do not, or nothing helps. */
static double
better_scale(const struct part *p)
{
    double least = fmin(p->dd, fmin(p->aa, p->bb));
    double most = fmax(p->dd, fmax(p->aa, p->bb));

    if (isinf(p->max_abs) || isnan(p->max_abs))
        return 1;
    if (isinf(p->dd) || isinf(p->aa) || isinf(p->bb))
        return 0x1p-600;
    /* zeros are so little, too: nothing is to leave at the other end then */
    return p->max_abs > 0 && least < DBL_MIN / DBL_EPSILON && most < 0x1p20
               ? 0x1p500
               : 1;
}

int
compare(struct comparer *c, struct tensor_distance *d, const struct view *a,
        const struct view *b, struct err *err)
{
    struct part all;

    *d = (struct tensor_distance){ 0 };
    c->v[0] = a;
    c->v[1] = b;
    c->measure = false;
    c->scale = 1;
    if (!widens(a->dtype) || !widens(b->dtype))
        return compare_bytes(c, d, err);
    if (pass(c, &all, err) < 0)
        return -1;
    d->other_bytes = all.other_bytes;
    if (!all.other_bytes)
        return 0;
    c->measure = true;
    if (pass(c, &all, err) < 0)
        return -1;
    if (a->dtype == DT_F64 || b->dtype == DT_F64)
        c->scale = better_scale(&all);
    if (c->scale != 1 && pass(c, &all, err) < 0)
        return -1;
    d->measured = true;
    d->n_differ = all.n_differ;
    d->max_abs = all.max_abs;
    d->max_ulp = all.max_ulp;
    d->relative = all.dd == 0 ? 0 : sqrt(all.dd) / sqrt(all.aa);
    d->cosine = all.ab / (sqrt(all.aa) * sqrt(all.bb));
    return 0;
}
