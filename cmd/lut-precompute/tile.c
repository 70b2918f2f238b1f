/* SPDX-License-Identifier: ISC */
/*
 * P = W_dec W^T and the other tensors of a table, some rows at a time.
 *
 * With --compute bf16, where weights are bf16 already and the machine has AMX,
 * W_dec is split into two bf16 (2^-17 of it lost) and two such products are
 * computed, at three times the speed of f32; else one of f32, which VDPBF16PS,
 * twice, does not reach (test/bench/machine).  W_dec alone in bf16 would lose
 * 2^-9.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/lut-precompute/job.h"
#include "core/clock.h"
#include "core/format/stw.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/kernel/screen.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"
#include "core/sig.h"

/* Memory is the packed weights of the layer and this, whatever the number of
 * latents. */
#define TILE_BYTES ((size_t)64 << 20)
#define MIN_ROWS   64
#define PROBE_S    0.4

/* The products of a tile stay in the caches: 12 MiB of 6144 outputs.  More
 * rows where many threads share them. */
#define TILE_ROWS    512
#define TILE_THREADS 16 /* that these rows are enough for */

/* A tensor's piece is written while the next one is computed. */
struct writer {
    struct par_worker *worker; /* NULL: writing waits */
    struct stw *w;
    int tensor;
    const void *data;
    size_t nbytes, offset;
    int rc;
    struct err err;
};

struct tile_part {
    struct tiles *t;
    size_t col; /* of the table, where the part's columns begin */
};

struct tiles {
    struct gemm *gemm;
    const struct target_layer *target;
    const struct sae *sae;
    enum dtype dtype;
    bool fold;  /* centring into encoder_bias */
    bool split; /* two bf16 products, which AMX makes faster than one of f32 */
    size_t rows, ld;
    size_t item, width; /* bytes of a number, the larger of in and out */
    float *f32;         /* [rows, in] */
    uint16_t *hi, *lo;  /* [rows, ld]; lo NULL: f32 is bf16 */
    float *p;           /* [rows, out], unrounded */
    void *rounded[2];   /* [rows, width]: one is filled, one written */
    int filling;
    int shadow_tensor;  /* handle of its scale; error, int8 follow; or -1 */
    double *bias, *b64; /* [n] encoder_bias, [in] decoder_bias */
    double *sums;       /* [out] */
    int8_t *shadow;     /* [rows, in], of --screen, or NULL */
    float *scale;       /* [n] */
    float *error;       /* [n] */
    struct hash *file_sums[LUT_SUMS]; /* of --screen */
    void *memory;                     /* of all these */
    size_t nbytes;
    atomic_size_t bad; /* first row of a tile with what dtype cannot hold */
    struct writer writer;
    struct tile_part parts[LUT_MAX_PARTS];
    struct gemm_job jobs[LUT_MAX_PARTS];
    struct gemm_panels panels[LUT_MAX_PARTS];
    size_t packed_nbytes[LUT_MAX_PARTS];
};

/* ---- writing ---- */

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

/* The rounded rows first .. first + n - 1 of a tensor go to the file. */
static int
put_rows(struct tiles *t, int tensor, size_t first, size_t n, size_t cols,
         struct err *err)
{
    struct writer *w = &t->writer;

    if (writer_wait(w, err) < 0)
        return -1;
    w->tensor = tensor;
    w->data = t->rounded[t->filling];
    w->nbytes = n * cols * t->item;
    w->offset = first * cols * t->item;
    t->filling = !t->filling;
    if (w->worker) {
        par_submit(w->worker, write_piece, w);
        return 0;
    }
    write_piece(w);
    return writer_wait(w, err);
}

/* ---- numbers to the table's dtype ---- */

/* Rounds n numbers of the tile's row, from column 'col' of 'cols' on. */
static void
round_some(struct tiles *t, const float *from, size_t row, size_t col,
           size_t cols, size_t n)
{
    char *to = (char *)t->rounded[t->filling] + (row * cols + col) * t->item;

    cvt_from_f32(to, t->dtype, from, n);
    if (!cvt_fits(from, t->dtype, n)) {
        /* Whatever order threads find them in, the first one stays. */
        size_t first = atomic_load(&t->bad);

        while (row < first &&
               !atomic_compare_exchange_weak(&t->bad, &first, row))
            ;
    }
}

/* A number that is not finite, or that the dtype cannot hold. */
static int
bad_number(const struct tiles *t, const char *name, const char *place, double v,
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
bad_row(const struct tiles *t, const char *name, const float *from, size_t row,
        struct err *err)
{
    char place[48];
    size_t c = 0;

    while (cvt_fits(&from[c], t->dtype, 1))
        c++;
    snprintf(place, sizeof(place), "%zu, %zu", row, c);
    return bad_number(t, name, place, (double)from[c], err);
}

/* A vector of sums in double, each rounded once. */
static int
put_sums(struct tiles *t, enum lut_tensor tensor, const double *sums, size_t n,
         struct err *err)
{
    void *rounded = t->rounded[t->filling];
    char place[24];

    for (size_t at = 0, some; at < n; at += some) {
        some = smaller(n - at, t->target->out);
        for (size_t i = 0; i < some; i++) {
            double v = sums[at + i];

            /* to f32 with a sticky bit, so that rounding twice is once */
            t->p[i] = t->dtype == DT_F32 ? (float)v : f64_to_odd(v);
            if (cvt_fits(&t->p[i], t->dtype, 1))
                continue;
            snprintf(place, sizeof(place), "%zu", at + i);
            return bad_number(t, lut_tensor_names[tensor], place, v, err);
        }
        cvt_from_f32(rounded, t->dtype, t->p, some);
        if (stw_write(t->writer.w, (int)tensor, rounded, some * t->item,
                      at * t->item, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- rows of the SAE ---- */

struct sae_rows {
    struct tiles *t;
    bool decoder;
    size_t first, n;
};

/* Row i of them, rounded as the file has it, in int8. */
static void
shadow_row(const struct sae_rows *r, size_t i)
{
    struct tiles *t = r->t;
    const struct gemm_matrix rows = { .weight = { .data =
                                                      t->rounded[t->filling],
                                                  .dtype = t->dtype,
                                                  .ld = t->sae->in },
                                      .n = r->n,
                                      .k = t->sae->in };

    screen_shadow_row(&rows, i, t->shadow + i * t->sae->in,
                      &t->scale[r->first + i], &t->error[r->first + i]);
}

static void
round_sae_rows(void *ctx, size_t begin, size_t end)
{
    const struct sae_rows *r = ctx;
    struct tiles *t = r->t;
    const struct sae *sae = t->sae;
    size_t in = sae->in;

    matrix_rows(NULL, r->decoder ? &sae->decoder_weight : &sae->encoder_weight,
                r->first + begin, end - begin, t->f32 + begin * in, in);
    for (size_t i = begin; i < end; i++) {
        float *row = t->f32 + i * in;
        double *bias = &t->bias[r->first + i];

        if (!r->decoder && t->fold)
            *bias -= dot64(row, t->b64, in);
        if (!r->decoder && sae->norms)
            *bias *= sae->norms[r->first + i];
        sae_fold(sae, r->first + i, r->decoder, row);
        round_some(t, row, i, 0, in, in);
        if (!r->decoder && t->shadow)
            shadow_row(r, i);
    }
}

/* Rows of an SAE's matrix: to t->f32, and rounded to the file.  Those of the
 * encoder complete its bias. */
static int
write_sae_rows(struct tiles *t, bool decoder, size_t first, size_t n,
               struct err *err)
{
    const struct sae *sae = t->sae;
    enum lut_tensor tensor = decoder ? LUT_DECODER_WEIGHT : LUT_ENCODER_WEIGHT;
    bool by_col =
        decoder ? sae->decoder_weight.by_col : sae->encoder_weight.by_col;
    struct sae_rows r = { t, decoder, first, n };
    size_t bad;

    atomic_store(&t->bad, SIZE_MAX);
    par_for(gemm_par(t->gemm), n, by_col ? 64 : 8, round_sae_rows, &r);
    bad = atomic_load(&t->bad);
    if (bad != SIZE_MAX)
        return bad_row(t, lut_tensor_names[tensor], t->f32 + bad * sae->in,
                       first + bad, err);
    if (!decoder && t->shadow) {
        hash_add(t->file_sums[LUT_SUM_WEIGHT], t->rounded[t->filling],
                 n * sae->in * t->item);
        hash_add(t->file_sums[LUT_SUM_SHADOW], t->shadow, n * sae->in);
        if (writer_wait(&t->writer, err) < 0 ||
            stw_write(t->writer.w, t->shadow_tensor + 2, t->shadow, n * sae->in,
                      first * sae->in, err) < 0)
            return -1;
    }
    return put_rows(t, (int)tensor, first, n, sae->in, err);
}

static int
write_shadow_vectors(struct tiles *t, struct err *err)
{
    struct stw *w = t->writer.w;
    size_t n = t->sae->n;
    char hex[HASH_MAX_HEX];
    int rc = 0;

    if (!t->shadow)
        return 0;
    hash_add_numbers(t->file_sums[LUT_SUM_SCALE], t->scale, n, 4);
    hash_add_numbers(t->file_sums[LUT_SUM_ERROR], t->error, n, 4);
    for (size_t i = 0; i < LUT_SUMS && rc == 0; i++) {
        hash_end(t->file_sums[i], hex);
        t->file_sums[i] = NULL;
        rc = stw_late(w, lut_sums[i], hex, err);
    }
    if (rc < 0 ||
        stw_write_numbers(w, t->shadow_tensor, t->scale, n, 4, err) < 0)
        return -1;
    return stw_write_numbers(w, t->shadow_tensor + 1, t->error, n, 4, err);
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

/* Products of the n rows of t->f32 from 'row' on. */
static void
multiply(struct tiles *t, const struct gemm_job *jobs, size_t row, size_t n)
{
    size_t in = t->target->in, n_jobs = t->target->n_parts;
    const float *f32 = t->f32 + row * in;
    uint16_t *hi = t->hi + row * t->ld;
    uint16_t *lo = t->lo ? t->lo + row * t->ld : NULL;

    if (!t->split) {
        gemm_exact(t->gemm, jobs, n_jobs, f32, in, n);
        return;
    }
    if (lo)
        gemm_split(t->gemm, hi, lo, f32, in, n, in);
    else
        gemm_to_bf16(t->gemm, hi, f32, in, n, in);
    gemm_bf16(t->gemm, jobs, n_jobs, hi, lo, t->ld, n);
}

static int
write_products(struct tiles *t, size_t first, size_t n, struct err *err)
{
    struct gemm_job jobs[LUT_MAX_PARTS];
    size_t bad;

    atomic_store(&t->bad, SIZE_MAX);
    multiply(t, t->jobs, 0, n);
    bad = atomic_load(&t->bad);
    if (bad == SIZE_MAX)
        return put_rows(t, LUT_PRODUCTS, first, n, t->target->out, err);
    /* the first row with one that is too large, again, unrounded */
    for (size_t i = 0; i < t->target->n_parts; i++) {
        jobs[i] = t->jobs[i];
        jobs[i].end = (struct gemm_end){ 0 };
        jobs[i].c = t->p + t->parts[i].col;
        jobs[i].ldc = t->target->out;
    }
    multiply(t, jobs, bad, 1);
    return bad_row(t, lut_tensor_names[LUT_PRODUCTS], t->p, first + bad, err);
}

static void
round_weight_rows(void *ctx, size_t begin, size_t end)
{
    struct tiles *t = ctx;
    size_t out = t->target->out;

    for (size_t i = begin; i < end; i++)
        round_some(t, t->p + i * out, i, 0, out, out);
}

/* compensation_weight_t [in, out]: the parts' W, transposed. */
static int
write_weight_t(struct tiles *t, struct err *err)
{
    size_t in = t->target->in, out = t->target->out, bad;
    struct par *par = gemm_par(t->gemm);

    for (size_t first = 0; first < in; first += t->rows) {
        size_t n = smaller(t->rows, in - first);

        for (size_t i = 0; i < t->target->n_parts; i++) {
            const struct gemm_matrix *w = &t->target->parts[i].w;
            const struct gemm_matrix w_t = { w->weight, w->k, w->n, !w->by_k,
                                             false };

            matrix_weights(par, &w_t, first, n, t->p + t->parts[i].col, out);
        }
        atomic_store(&t->bad, SIZE_MAX);
        par_for(par, n, 8, round_weight_rows, t);
        bad = atomic_load(&t->bad);
        if (bad != SIZE_MAX)
            return bad_row(t, lut_tensor_names[LUT_WEIGHT_T], t->p + bad * out,
                           first + bad, err);
        if (put_rows(t, LUT_WEIGHT_T, first, n, out, err) < 0)
            return -1;
    }
    return writer_wait(&t->writer, err);
}

/* ---- memory ---- */

static void
tiles_close(struct tiles *t)
{
    for (size_t i = 0; i < t->target->n_parts; i++)
        if (t->panels[i].data)
            mem_big_free(t->panels[i].data, t->packed_nbytes[i], 1);
    for (size_t i = 0; i < LUT_SUMS; i++)
        hash_free(t->file_sums[i]);
    if (t->memory)
        mem_big_free(t->memory, t->nbytes, 1);
}

static int
open_memory(struct tiles *t, struct err *err)
{
    size_t in = t->target->in, out = t->target->out, n = t->sae->n;
    bool screen = t->shadow_tensor >= 0;
    bool lo =
        t->split && (t->sae->decoder_weight.dtype != DT_BF16 || t->sae->norms);
    const struct mem_array arrays[] = {
        { &t->f32, t->rows, in, sizeof(*t->f32) },
        { &t->p, t->rows, out, sizeof(*t->p) },
        { &t->rounded[0], t->rows, t->width, t->item },
        { &t->rounded[1], t->rows, t->width, t->item },
        { &t->bias, 1, n, sizeof(*t->bias) },
        { &t->b64, 1, in, sizeof(*t->b64) },
        { &t->sums, 1, out, sizeof(*t->sums) },
        { screen ? &t->shadow : NULL, screen ? t->rows : 0, in, 1 },
        { screen ? &t->scale : NULL, screen, n, sizeof(*t->scale) },
        { screen ? &t->error : NULL, screen, n, sizeof(*t->error) },
        { &t->hi, t->split ? t->rows : 0, t->ld, sizeof(*t->hi) },
        { lo ? &t->lo : NULL, lo ? t->rows : 0, t->ld, sizeof(*t->lo) },
    };

    t->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &t->nbytes,
                           "a tile of products", err);
    return t->memory ? 0 : -1;
}

/* -1 with 'err' set: EX_SOFTWARE, no memory. */
static int
tiles_open(struct tiles *t, const struct layer_job *job, struct gemm *gemm,
           int shadow, struct err *err)
{
    const struct target_layer *target = job->target;
    const struct sae *sae = job->sae;
    size_t in = target->in, out = target->out, row, col = 0;
    size_t threads = (size_t)par_threads(gemm_par(gemm));

    *t = (struct tiles){ .gemm = gemm,
                         .target = target,
                         .sae = sae,
                         .dtype = job->cmd->dtype,
                         .fold = sae->centered && !job->cmd->keep_centering,
                         .shadow_tensor = shadow,
                         .item = dtype_size(job->cmd->dtype),
                         .width = larger(in, out),
                         .ld = gemm_ld_bf16(in) };
    t->split = job->cmd->bf16 && t->dtype != DT_F32 && cpu_isa() == ISA_AMX;
    for (size_t i = 0; i < target->n_parts; i++)
        t->split &= target->parts[i].w.weight.dtype == DT_BF16;
    row = (in + out) * sizeof(float) + 2 * t->width * t->item +
          (t->split ? 4 * t->ld : 0) + (shadow >= 0 ? in : 0);
    t->rows = smaller(TILE_BYTES / row / MIN_ROWS * MIN_ROWS,
                      TILE_ROWS * (1 + threads / TILE_THREADS));
    t->rows = smaller(t->rows ? t->rows : MIN_ROWS, sae->n);
    if (open_memory(t, err) < 0)
        return -1;
    for (size_t i = 0; i < LUT_SUMS && shadow >= 0; i++)
        t->file_sums[i] = hash_new(HASH_XXH3);
    for (size_t i = 0; i < target->n_parts; i++) {
        struct gemm_job *g = &t->jobs[i];

        t->parts[i] = (struct tile_part){ t, col };
        *g = (struct gemm_job){
            .w = target->parts[i].w,
            .end = { .hook = round_block, .ctx = &t->parts[i] },
        };
        col += g->w.n;
        if (!t->split)
            continue;
        t->packed_nbytes[i] = gemm_packed_nbytes(GEMM_BF16, g->w.n, g->w.k);
        t->panels[i].class = GEMM_BF16;
        t->panels[i].data =
            mem_big(t->packed_nbytes[i], 1, "packed weights", err);
        if (!t->panels[i].data) {
            tiles_close(t);
            return -1;
        }
        gemm_pack(gemm, &t->panels[i], &g->w);
        g->panels = &t->panels[i];
    }
    matrix_vector(&sae->encoder_bias, t->bias);
    matrix_vector(&sae->decoder_bias, t->b64);
    return 0;
}

/* ---- all of a table ---- */

int
tiles_write(const struct layer_job *job, const struct job_threads *threads,
            struct stw *w, int shadow, struct progress *progress,
            uint64_t *done, struct err *err)
{
    const struct target_layer *target = job->target;
    const struct sae *sae = job->sae;
    struct tiles t;
    struct err other;
    int rc = 0;

    if (tiles_open(&t, job, threads->gemm, job->cmd->screen ? shadow : -1,
                   err) < 0)
        return -1;
    t.writer = (struct writer){ .worker = threads->writing, .w = w };
    for (size_t first = 0, n; first < sae->n && rc == 0; first += n) {
        n = smaller(t.rows, sae->n - first);
        /* the decoder's rows last: multiply() takes them */
        if (sig_stop())
            rc = job_stopped(err);
        else if (write_sae_rows(&t, false, first, n, err) < 0 ||
                 write_sae_rows(&t, true, first, n, err) < 0 ||
                 write_products(&t, first, n, err) < 0)
            rc = -1;
        else
            progress_at(progress, *done += 2 * n * target->in * target->out);
    }
    for (size_t i = 0; i < target->n_parts && rc == 0; i++)
        matrix_times(gemm_par(t.gemm), &target->parts[i].w, t.b64,
                     &target->parts[i].bias, t.sums + t.parts[i].col);
    if (rc == 0 &&
        (writer_wait(&t.writer, err) < 0 ||
         put_sums(&t, LUT_BIAS_PRODUCT, t.sums, target->out, err) < 0 ||
         put_sums(&t, LUT_DECODER_BIAS, t.b64, sae->in, err) < 0 ||
         put_sums(&t, LUT_ENCODER_BIAS, t.bias, sae->n, err) < 0 ||
         write_shadow_vectors(&t, err) < 0))
        rc = -1;
    if (rc == 0 && job->cmd->store_weights)
        rc = write_weight_t(&t, err);
    if (rc < 0)
        writer_wait(&t.writer, &other);
    tiles_close(&t);
    return rc;
}

int
tiles_probe(const struct layer_job *job, const struct job_threads *threads,
            double *rate, struct err *err)
{
    double began, s, done = 0;
    struct tiles t;
    size_t n;

    if (tiles_open(&t, job, threads->gemm, -1, err) < 0)
        return -1;
    n = smaller(t.rows, t.sae->n);
    matrix_rows(threads->par, &t.sae->decoder_weight, 0, n, t.f32, t.sae->in);
    multiply(&t, t.jobs, 0, smaller(n, 32)); /* threads and pages wake up */
    began = clock_s();
    do {
        multiply(&t, t.jobs, 0, n);
        done += (double)n;
        s = clock_s() - began;
    } while (s < PROBE_S);
    *rate = 2e-9 * done * (double)t.target->in * (double)t.target->out / s;
    tiles_close(&t);
    return 0;
}
