/*
 * P = W_dec W^T and all else of a table, some rows at a time.
 *
 * Where weights are bf16 already and the machine has AMX, W_dec is split into
 * two bf16 (2^-17 of it lost) and two such products are made, at three times
 * the speed of f32; else one of f32, which VDPBF16PS, twice, does not reach
 * (test/bench/machine).  W_dec alone in bf16 would lose 2^-9.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/lut-precompute/precompute.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/sig.h"

#define MIN_ROWS 64
#define PROBE_S  0.4

static size_t
smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t
item(const struct tiles *t)
{
    return dtype_table[t->dtype].bits / 8;
}

static size_t
width(const struct tiles *t)
{
    return t->target->in > t->target->out ? t->target->in : t->target->out;
}

/* ---- numbers to the table's dtype ---- */

struct rounding {
    const struct tiles *t;
    const float *from;
    size_t cols;
};

/* 8 bytes at a time: an exponent of ones carries if one is added. */
static bool
all_finite(const char *v, enum dtype dtype, size_t n)
{
    const uint64_t exponents = dtype == DT_F32   ? 0x7f8000007f800000
                               : dtype == DT_F16 ? 0x7c007c007c007c00
                                                 : 0x7f807f807f807f80;
    const uint64_t ones = exponents & ~(exponents << 1);
    const uint64_t carries = exponents << 1 & ~exponents;
    size_t nbytes = n * (dtype_table[dtype].bits / 8), i = 0;
    uint64_t bad = 0;

    for (; i + 8 <= nbytes; i += 8)
        bad |= (le64(v + i) & exponents) + ones;
    if (i < nbytes) {
        char last[8] = { 0 };

        memcpy(last, v + i, nbytes - i);
        bad |= (le64(last) & exponents) + ones;
    }
    return !(bad & carries);
}

static void
round_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct rounding *r = ctx;
    size_t nbytes = r->cols * item(r->t);

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        char *to = (char *)r->t->rounded + i * nbytes;

        cvt_from_f32(to, r->t->dtype, r->from + i * r->cols, r->cols);
        r->t->bad[i] = !all_finite(to, r->t->dtype, r->cols);
    }
}

static const char *
advice(const struct tiles *t)
{
    return t->dtype == DT_F16 ? " (--dtype bf16)" : "";
}

static bool
can_hold(const struct tiles *t, float f)
{
    char v[4];

    cvt_from_f32(v, t->dtype, &f, 1);
    return all_finite(v, t->dtype, 1);
}

/* The first number of a row that the dtype cannot hold. */
static int
overflow(const struct tiles *t, const char *name, const float *from, size_t row,
         struct err *err)
{
    size_t c = 0;

    while (can_hold(t, from[c]))
        c++;
    return err_set(err, EX_DATAERR,
                   "%s: %s[%zu, %zu] is %g, which %s cannot hold%s",
                   t->target->name, name, row, c, (double)from[c],
                   dtype_table[t->dtype].name, advice(t));
}

/* Rows first .. first + n - 1 of a tensor. */
static int
put_rows(struct tiles *t, struct stw *w, int tensor, const char *name,
         const float *from, size_t first, size_t n, size_t cols,
         struct err *err)
{
    struct rounding r = { t, from, cols };
    size_t nbytes = cols * item(t);

    par_for(gemm_par(t->gemm), n, 8, round_rows, &r);
    for (size_t i = 0; i < n; i++)
        if (t->bad[i])
            return overflow(t, name, from + i * cols, first + i, err);
    return stw_write(w, tensor, t->rounded, n * nbytes, first * nbytes, err);
}

/* A vector of sums in double. */
static int
put_sums(struct tiles *t, struct stw *w, int tensor, const char *name,
         const double *sums, size_t n, struct err *err)
{
    for (size_t at = 0, some; at < n; at += some) {
        some = smaller(n - at, t->target->out);
        for (size_t i = 0; i < some; i++) {
            t->p[i] = f64_round(sums[at + i], t->dtype);
            if (!can_hold(t, t->p[i]))
                return err_set(err, EX_DATAERR,
                               "%s: %s[%zu] is %g, which %s cannot hold%s",
                               t->target->name, name, at + i, sums[at + i],
                               dtype_table[t->dtype].name, advice(t));
        }
        cvt_from_f32(t->rounded, t->dtype, t->p, some);
        if (stw_write(w, tensor, t->rounded, some * item(t), at * item(t),
                      err) < 0)
            return -1;
    }
    return 0;
}

/* ---- products ---- */

static void
products(struct tiles *t, size_t n)
{
    const struct target *target = t->target;
    size_t in = target->in;

    if (!t->split) {
        gemm_exact(t->gemm, t->jobs, target->n_parts, t->f32, in, n);
        return;
    }
    if (t->lo)
        gemm_split(t->gemm, t->hi, t->lo, t->f32, in, n, in);
    else
        gemm_to_bf16(t->gemm, t->hi, t->f32, in, n, in);
    gemm_bf16(t->gemm, t->jobs, target->n_parts, t->hi, t->lo, t->ld, n);
}

static int
stopped(struct err *err)
{
    return sig_stopped("finished layers are kept, run it again with --resume",
                       err);
}

struct centring {
    struct tiles *t;
    size_t first;
};

static void
center_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct centring *c = ctx;
    const struct tiles *t = c->t;
    size_t in = t->target->in;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        t->bias[c->first + i] -= dot64(t->f32 + i * in, t->b64, in);
}

static int
write_encoder(struct tiles *t, struct stw *w, const struct handles *h,
              size_t first, size_t n, struct err *err)
{
    struct par *par = gemm_par(t->gemm);
    struct centring c = { t, first };

    matrix_rows(par, &t->sae->encoder_weight, first, n, t->f32, t->sae->in);
    if (t->fold)
        par_for(par, n, 8, center_rows, &c);
    return put_rows(t, w, h->encoder_weight, "encoder_weight", t->f32, first, n,
                    t->sae->in, err);
}

static int
write_products(struct tiles *t, struct stw *w, const struct handles *h,
               size_t first, size_t n, struct err *err)
{
    matrix_rows(gemm_par(t->gemm), &t->sae->decoder_weight, first, n, t->f32,
                t->sae->in);
    products(t, n);
    if (put_rows(t, w, h->products, "precomputed_products", t->p, first, n,
                 t->target->out, err) < 0)
        return -1;
    return put_rows(t, w, h->decoder_weight, "decoder_weight", t->f32, first, n,
                    t->sae->in, err);
}

static int
write_biases(struct tiles *t, struct stw *w, const struct handles *h,
             struct err *err)
{
    size_t out = t->target->out;
    double *sums = mem_big(out, sizeof(*sums), "bias_product", err);
    int rc;

    if (!sums)
        return -1;
    bias_products(gemm_par(t->gemm), t->target, t->b64, sums);
    rc = put_sums(t, w, h->bias_product, "bias_product", sums, out, err);
    mem_big_free(sums, out, sizeof(*sums));
    if (rc < 0 || put_sums(t, w, h->decoder_bias, "decoder_bias", t->b64,
                           t->sae->in, err) < 0)
        return -1;
    return put_sums(t, w, h->encoder_bias, "encoder_bias", t->bias, t->sae->n,
                    err);
}

/* compensation_weight_t [in, out]: the parts' W, turned. */
static int
write_weight_t(struct tiles *t, struct stw *w, int tensor, struct err *err)
{
    size_t in = t->target->in, out = t->target->out;

    for (size_t first = 0; first < in; first += t->rows) {
        size_t n = smaller(t->rows, in - first), col = 0;

        for (size_t i = 0; i < t->target->n_parts; i++) {
            const struct matrix *part = &t->target->parts[i].w;
            struct matrix turned = { part->data, part->dtype, in, part->rows,
                                     true };

            matrix_rows(gemm_par(t->gemm), &turned, first, n, t->p + col, out);
            col += part->rows;
        }
        if (put_rows(t, w, tensor, "compensation_weight_t", t->p, first, n, out,
                     err) < 0)
            return -1;
    }
    return 0;
}

int
tiles_write(struct tiles *t, struct stw *w, const struct handles *h,
            struct progress *progress, uint64_t *done, struct err *err)
{
    for (size_t first = 0; first < t->sae->n; first += t->rows) {
        size_t n = smaller(t->rows, t->sae->n - first);

        if (sig_stop())
            return stopped(err);
        if (write_encoder(t, w, h, first, n, err) < 0 ||
            write_products(t, w, h, first, n, err) < 0)
            return -1;
        *done += 2 * n * t->target->in * t->target->out;
        progress_at(progress, *done / 1000000000);
    }
    if (write_biases(t, w, h, err) < 0)
        return -1;
    return h->weight_t < 0 ? 0 : write_weight_t(t, w, h->weight_t, err);
}

static double
now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

double
tiles_probe(struct tiles *t)
{
    size_t n = smaller(t->rows, t->sae->n), done = 0;
    double began, s;

    matrix_rows(gemm_par(t->gemm), &t->sae->decoder_weight, 0, n, t->f32,
                t->sae->in);
    n = smaller(n, 256);
    products(t, smaller(n, 32)); /* threads and pages wake up */
    began = now_s();
    do {
        products(t, n);
        done += n;
        s = now_s() - began;
    } while (s < PROBE_S);
    return 2e-9 * (double)done * (double)t->target->in *
           (double)t->target->out / s;
}

/* ---- memory ---- */

static bool
can_split(const struct tiles *t)
{
    for (size_t i = 0; i < t->target->n_parts; i++)
        if (t->target->parts[i].w.dtype != DT_BF16)
            return false;
    return t->dtype != DT_F32 && cpu_isa() == ISA_AMX;
}

static int
pack(struct tiles *t, size_t i, struct err *err)
{
    struct gemm_job *job = &t->jobs[i];
    size_t nbytes = gemm_packed_nbytes(GEMM_BF16, job->w.n, job->w.k);

    t->panels[i].class = GEMM_BF16;
    t->panels[i].data = mem_big(nbytes, 1, "packed weights", err);
    if (!t->panels[i].data)
        return -1;
    t->packed_nbytes[i] = nbytes;
    gemm_pack(t->gemm, &t->panels[i], &job->w);
    job->panels = &t->panels[i];
    return 0;
}

static int
make_jobs(struct tiles *t, struct err *err)
{
    size_t col = 0;

    for (size_t i = 0; i < t->target->n_parts; i++) {
        const struct matrix *w = &t->target->parts[i].w;

        t->jobs[i] = (struct gemm_job){
            .w = { w->data, w->dtype, w->rows, w->cols, w->cols, false },
            .c = t->p + col,
            .ldc = t->target->out,
        };
        col += w->rows;
        if (t->split && pack(t, i, err) < 0)
            return -1;
    }
    return 0;
}

static int
make_buffers(struct tiles *t, bool need_lo, struct err *err)
{
    size_t in = t->target->in, out = t->target->out;
    const char *what = "a tile of products";

    if (!(t->f32 = mem_big(t->rows, in * sizeof(float), what, err)) ||
        !(t->p = mem_big(t->rows, out * sizeof(float), what, err)) ||
        !(t->rounded = mem_big(t->rows, width(t) * item(t), what, err)) ||
        !(t->bad = mem_big(t->rows, 1, what, err)) ||
        !(t->bias = mem_big(t->sae->n, sizeof(double), what, err)) ||
        !(t->b64 = mem_big(in, sizeof(double), what, err)))
        return -1;
    if (t->split && !(t->hi = mem_big(t->rows, t->ld * 2, what, err)))
        return -1;
    if (t->split && need_lo &&
        !(t->lo = mem_big(t->rows, t->ld * 2, what, err)))
        return -1;
    return 0;
}

int
tiles_open(struct tiles *t, const struct cmd *cmd, struct gemm *gemm,
           const struct target *target, const struct sae *sae, struct err *err)
{
    size_t row;

    *t = (struct tiles){ .gemm = gemm,
                         .target = target,
                         .sae = sae,
                         .dtype = cmd->dtype,
                         .fold = sae->centered && !cmd->keep_centering,
                         .ld = gemm_ld_bf16(target->in) };
    t->split = can_split(t);
    row = (target->in + target->out) * sizeof(float) + width(t) * item(t) +
          (t->split ? 4 * t->ld : 0);
    t->rows = TILE_BYTES / row / MIN_ROWS * MIN_ROWS;
    t->rows = smaller(t->rows ? t->rows : MIN_ROWS, sae->n);
    if (make_buffers(t, sae->decoder_weight.dtype != DT_BF16, err) < 0 ||
        make_jobs(t, err) < 0) {
        tiles_close(t);
        return -1;
    }
    for (size_t i = 0; i < sae->n; i++)
        t->bias[i] =
            dtype_get(sae->encoder_bias.dtype, sae->encoder_bias.data, i);
    for (size_t i = 0; i < sae->in; i++)
        t->b64[i] =
            dtype_get(sae->decoder_bias.dtype, sae->decoder_bias.data, i);
    return 0;
}

static void
drop(void *p, size_t n, size_t size)
{
    if (p)
        mem_big_free(p, n, size);
}

void
tiles_close(struct tiles *t)
{
    if (!t->target)
        return;
    drop(t->f32, t->rows, t->target->in * sizeof(float));
    drop(t->p, t->rows, t->target->out * sizeof(float));
    drop(t->rounded, t->rows, width(t) * item(t));
    drop(t->bad, t->rows, 1);
    drop(t->bias, t->sae->n, sizeof(double));
    drop(t->b64, t->target->in, sizeof(double));
    drop(t->hi, t->rows, t->ld * 2);
    drop(t->lo, t->rows, t->ld * 2);
    for (size_t i = 0; i < t->target->n_parts; i++)
        drop(t->panels[i].data, t->packed_nbytes[i], 1);
    *t = (struct tiles){ 0 };
}
