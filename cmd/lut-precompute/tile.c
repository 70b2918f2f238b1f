/*
 * P = W_dec W^T and all else of a table, some rows at a time.
 *
 * Where weights are bf16 already and the machine has AMX, W_dec is split into
 * two bf16 (2^-17 of it lost) and two such products are made, at three times
 * the speed of f32; else one of f32, which VDPBF16PS, twice, does not reach
 * (test/bench/machine).  W_dec alone in bf16 would lose 2^-9.
 */
#include "cmd/lut-precompute/tile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/lut-precompute/f64.h"
#include "cmd/lut-precompute/job.h"
#include "cmd/lut-precompute/matrix.h"
#include "core/clock.h"
#include "core/format/stw.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/sig.h"

#define MIN_ROWS 64
#define PROBE_S  0.4

/* What comes out of a product stays in the caches: 12 MiB of 6144 outputs.
 * More where many threads are to have enough of it. */
#define TILE_ROWS    512
#define TILE_THREADS 16 /* that these rows are enough for */

static void
write_piece(void *ctx)
{
    struct writer *w = ctx;

    w->rc = stw_write(w->w, w->tensor, w->data, w->nbytes, w->offset, &w->err);
}

static int
writer_wait(struct writer *w, struct err *err)
{
    if (w->worker)
        par_sync(w->worker);
    if (w->rc < 0)
        *err = w->err;
    return w->rc;
}

static int
writer_put(struct writer *w, int tensor, const void *data, size_t nbytes,
           size_t offset, struct err *err)
{
    if (writer_wait(w, err) < 0)
        return -1;
    w->tensor = tensor;
    w->data = data;
    w->nbytes = nbytes;
    w->offset = offset;
    if (w->worker) {
        par_submit(w->worker, write_piece, w);
        return 0;
    }
    write_piece(w);
    return writer_wait(w, err);
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

/* n numbers of a row of the tile, from its column 'col' on, to the buffer. */
static void
round_some(struct tiles *t, const float *from, size_t row, size_t col,
           size_t cols, size_t n)
{
    char *to = (char *)t->rounded[t->turn] + (row * cols + col) * item(t);

    cvt_from_f32(to, t->dtype, from, n);
    if (!all_finite(to, t->dtype, n)) {
        /* Whatever order threads find them in, the first one stays. */
        size_t first = atomic_load(&t->bad);

        while (row < first &&
               !atomic_compare_exchange_weak(&t->bad, &first, row))
            ;
    }
}

static bool
can_hold(const struct tiles *t, float f)
{
    char v[4];

    cvt_from_f32(v, t->dtype, &f, 1);
    return all_finite(v, t->dtype, 1);
}

/* A number that the dtype cannot hold, or none that is one. */
static int
not_held(const struct tiles *t, const char *name, const char *place, double v,
         struct err *err)
{
    if (!isfinite(v))
        return err_set(
            err, EX_DATAERR, "%s: %s[%s] is %s (expected a finite number)",
            t->target->name, name, place, isnan(v) ? "NaN" : "infinite");
    return err_set(err, EX_DATAERR, "%s: %s[%s] is %g, which %s cannot hold%s",
                   t->target->name, name, place, v, dtype_table[t->dtype].name,
                   t->dtype == DT_F16 ? " (--dtype bf16)" : "");
}

/* The first of them in a row. */
static int
overflow(const struct tiles *t, const char *name, const float *from, size_t row,
         struct err *err)
{
    char place[48];
    size_t c = 0;

    while (can_hold(t, from[c]))
        c++;
    snprintf(place, sizeof(place), "%zu, %zu", row, c);
    return not_held(t, name, place, (double)from[c], err);
}

/* The rounded rows first .. first + n - 1 of a tensor go to the file. */
static int
put_rows(struct tiles *t, int tensor, size_t first, size_t n, size_t cols,
         struct err *err)
{
    size_t nbytes = cols * item(t);
    void *data = t->rounded[t->turn];

    t->turn = !t->turn;
    return writer_put(&t->writer, tensor, data, n * nbytes, first * nbytes,
                      err);
}

/* A vector of sums in double. */
static int
put_sums(struct tiles *t, struct stw *w, int tensor, const char *name,
         const double *sums, size_t n, struct err *err)
{
    void *rounded = t->rounded[t->turn];
    char place[24];

    for (size_t at = 0, some; at < n; at += some) {
        some = smaller(n - at, t->target->out);
        for (size_t i = 0; i < some; i++) {
            t->p[i] = f64_round(sums[at + i], t->dtype);
            if (can_hold(t, t->p[i]))
                continue;
            snprintf(place, sizeof(place), "%zu", at + i);
            return not_held(t, name, place, sums[at + i], err);
        }
        cvt_from_f32(rounded, t->dtype, t->p, some);
        if (stw_write(w, tensor, rounded, some * item(t), at * item(t), err) <
            0)
            return -1;
    }
    return 0;
}

/* ---- rows of the SAE ---- */

struct rows {
    struct tiles *t;
    const struct matrix *m;
    size_t first;
    bool center; /* these rows' bias, too */
};

static void
take_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct rows *r = ctx;
    struct tiles *t = r->t;
    size_t in = t->target->in;

    (void)thread;
    matrix_rows(NULL, r->m, r->first + begin, end - begin, t->f32 + begin * in,
                in);
    for (size_t i = begin; i < end; i++) {
        const float *row = t->f32 + i * in;

        if (r->center)
            t->bias[r->first + i] -= dot64(row, t->b64, in);
        round_some(t, row, i, 0, in, in);
    }
}

/* Rows of an SAE's matrix: to t->f32, and rounded to the file. */
static int
write_rows(struct tiles *t, int tensor, const char *name,
           const struct matrix *m, size_t first, size_t n, bool center,
           struct err *err)
{
    struct rows r = { t, m, first, center };
    size_t in = t->target->in, bad;

    atomic_store(&t->bad, SIZE_MAX);
    par_for(gemm_par(t->gemm), n, m->by_col ? 64 : 8, take_rows, &r);
    bad = atomic_load(&t->bad);
    if (bad != SIZE_MAX)
        return overflow(t, name, t->f32 + bad * in, first + bad, err);
    return put_rows(t, tensor, first, n, in, err);
}

/* ---- products ---- */

/* A block of products, rounded while it is in the cache: struct gemm_end. */
static void
round_block(void *ctx, float *from, size_t ld, size_t row, size_t n_rows,
            size_t col, size_t n_cols, int thread)
{
    const struct tile_part *p = ctx;

    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        round_some(p->t, from + i * ld, row + i, p->col + col,
                   p->t->target->out, n_cols);
}

/* Rows row .. row + n - 1 of the tile, which split() has seen. */
static void
multiply(struct tiles *t, const struct gemm_job *jobs, size_t row, size_t n)
{
    size_t in = t->target->in, n_jobs = t->target->n_parts;
    const uint16_t *hi = t->hi + row * t->ld, *lo = t->lo;

    if (!t->split)
        gemm_exact(t->gemm, jobs, n_jobs, t->f32 + row * in, in, n);
    else
        gemm_bf16(t->gemm, jobs, n_jobs, hi, lo ? lo + row * t->ld : NULL,
                  t->ld, n);
}

static void
split(struct tiles *t, size_t n)
{
    size_t in = t->target->in;

    if (t->split && t->lo)
        gemm_split(t->gemm, t->hi, t->lo, t->f32, in, n, in);
    else if (t->split)
        gemm_to_bf16(t->gemm, t->hi, t->f32, in, n, in);
}

/* The first product that is too large: its row is made again, unrounded. */
static int
bad_product(struct tiles *t, size_t first, size_t bad, struct err *err)
{
    struct gemm_job jobs[LUT_MAX_PARTS];

    for (size_t i = 0; i < t->target->n_parts; i++) {
        jobs[i] = t->jobs[i];
        jobs[i].end = (struct gemm_end){ 0 };
        jobs[i].c = t->p + t->tile_parts[i].col;
        jobs[i].ldc = t->target->out;
    }
    multiply(t, jobs, bad, 1);
    return overflow(t, "precomputed_products", t->p, first + bad, err);
}

static int
write_tile(struct tiles *t, const struct table_handles *h, size_t first,
           size_t n, struct err *err)
{
    const struct sae *sae = t->sae;
    size_t bad;

    if (write_rows(t, h->encoder_weight, "encoder_weight", &sae->encoder_weight,
                   first, n, t->fold, err) < 0 ||
        write_rows(t, h->decoder_weight, "decoder_weight", &sae->decoder_weight,
                   first, n, false, err) < 0)
        return -1;
    atomic_store(&t->bad, SIZE_MAX);
    split(t, n);
    multiply(t, t->jobs, 0, n);
    bad = atomic_load(&t->bad);
    if (bad != SIZE_MAX)
        return bad_product(t, first, bad, err);
    return put_rows(t, h->products, first, n, t->target->out, err);
}

static int
write_biases(struct tiles *t, struct stw *w, const struct table_handles *h,
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

static void
round_rows(void *ctx, size_t begin, size_t end, int thread)
{
    struct tiles *t = ctx;
    size_t out = t->target->out;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        round_some(t, t->p + i * out, i, 0, out, out);
}

/* compensation_weight_t [in, out]: the parts' W, turned. */
static int
write_weight_t(struct tiles *t, int tensor, struct err *err)
{
    size_t in = t->target->in, out = t->target->out, bad;
    struct par *par = gemm_par(t->gemm);

    for (size_t first = 0; first < in; first += t->rows) {
        size_t n = smaller(t->rows, in - first);

        for (size_t i = 0; i < t->target->n_parts; i++) {
            const struct matrix *part = &t->target->parts[i].w;
            struct matrix turned = { part->data, part->dtype, in, part->rows,
                                     true };

            matrix_rows(par, &turned, first, n, t->p + t->tile_parts[i].col,
                        out);
        }
        atomic_store(&t->bad, SIZE_MAX);
        par_for(par, n, 8, round_rows, t);
        bad = atomic_load(&t->bad);
        if (bad != SIZE_MAX)
            return overflow(t, "compensation_weight_t", t->p + bad * out,
                            first + bad, err);
        if (put_rows(t, tensor, first, n, out, err) < 0)
            return -1;
    }
    return writer_wait(&t->writer, err);
}

static int
write_all(struct tiles *t, struct stw *w, const struct table_handles *h,
          struct progress *progress, uint64_t *done, struct err *err)
{
    for (size_t first = 0; first < t->sae->n; first += t->rows) {
        size_t n = smaller(t->rows, t->sae->n - first);

        if (sig_stop())
            return job_stopped(err);
        if (write_tile(t, h, first, n, err) < 0)
            return -1;
        *done += 2 * n * t->target->in * t->target->out;
        progress_at(progress, *done);
    }
    if (writer_wait(&t->writer, err) < 0 || write_biases(t, w, h, err) < 0)
        return -1;
    return h->weight_t < 0 ? 0 : write_weight_t(t, h->weight_t, err);
}

int
tiles_write(struct tiles *t, struct par_worker *worker, struct stw *w,
            const struct table_handles *h, struct progress *progress,
            uint64_t *done, struct err *err)
{
    struct err late;
    int rc;

    t->writer = (struct writer){ .worker = worker, .w = w };
    rc = write_all(t, w, h, progress, done, err);
    if (rc < 0)
        writer_wait(&t->writer, &late);
    return rc;
}

double
tiles_probe(struct tiles *t)
{
    size_t n = smaller(t->rows, t->sae->n), done = 0;
    double began, s;

    matrix_rows(gemm_par(t->gemm), &t->sae->decoder_weight, 0, n, t->f32,
                t->sae->in);
    split(t, n);
    multiply(t, t->jobs, 0, smaller(n, 32)); /* threads and pages wake up */
    began = clock_s();
    do {
        multiply(t, t->jobs, 0, n);
        done += n;
        s = clock_s() - began;
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

        t->tile_parts[i] = (struct tile_part){ t, col };
        t->jobs[i] = (struct gemm_job){
            .w = { w->data, w->dtype, w->rows, w->cols, w->cols, false },
            .end = { .hook = round_block, .ctx = &t->tile_parts[i] },
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
        !(t->rounded[0] = mem_big(t->rows, width(t) * item(t), what, err)) ||
        !(t->rounded[1] = mem_big(t->rows, width(t) * item(t), what, err)) ||
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

static size_t
tile_rows(const struct tiles *t)
{
    size_t threads = (size_t)par_threads(gemm_par(t->gemm)), rows;
    size_t row = (t->target->in + t->target->out) * sizeof(float) +
                 2 * width(t) * item(t) + (t->split ? 4 * t->ld : 0);

    rows = TILE_BYTES / row / MIN_ROWS * MIN_ROWS;
    rows = smaller(rows, TILE_ROWS * (1 + threads / TILE_THREADS));
    return smaller(rows ? rows : MIN_ROWS, t->sae->n);
}

int
tiles_open(struct tiles *t, const struct precompute_cmd *cmd, struct gemm *gemm,
           const struct target_layer *target, const struct sae *sae,
           struct err *err)
{

    *t = (struct tiles){ .gemm = gemm,
                         .target = target,
                         .sae = sae,
                         .dtype = cmd->dtype,
                         .fold = sae->centered && !cmd->keep_centering,
                         .ld = gemm_ld_bf16(target->in) };
    t->split = can_split(t);
    t->rows = tile_rows(t);
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
    drop(t->rounded[0], t->rows, width(t) * item(t));
    drop(t->rounded[1], t->rows, width(t) * item(t));
    drop(t->bias, t->sae->n, sizeof(double));
    drop(t->b64, t->target->in, sizeof(double));
    drop(t->hi, t->rows, t->ld * 2);
    drop(t->lo, t->rows, t->ld * 2);
    for (size_t i = 0; i < t->target->n_parts; i++)
        drop(t->panels[i].data, t->packed_nbytes[i], 1);
    *t = (struct tiles){ 0 };
}
