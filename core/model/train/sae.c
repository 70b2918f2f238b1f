/* SPDX-License-Identifier: ISC */
#include "core/model/train/sae.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/f64.h"
#include "core/mem.h"
#include "core/model/train/sae_impl.h"
#include "core/rng.h"

#define KEYS_BYTES ((size_t)16 << 20) /* of all threads' candidates */
#define MAX_CHUNK  ((size_t)1024)     /* rows: W_enc is read once for them */
#define MIN_CHUNK  ((size_t)128)
#define ROUNDS     100  /* of Weiszfeld's method: as dictionary_learning */
#define CLOSE      1e-5 /* a round that moves less is the last */
#define STREAM     0    /* of random numbers */
#define KEEPS      0.99 /* of batchtopk's threshold, a step */

/* ---- one autoencoder ---- */

struct sae_tensors
sae_tensors(const struct sae_trainer *t, float *array)
{
    size_t all = t->set.n * t->set.d;

    return (struct sae_tensors){ array, array + all, array + 2 * all,
                                 array + 2 * all + t->set.n };
}

int
sae_trainer_open(struct sae_trainer *t, const struct sae_settings *set,
                 struct err *err)
{
    size_t n = 2 * set->n * set->d + set->n + set->d;

    *t = (struct sae_trainer){
        .set = *set,
        .adamw = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    };
    if (adamw_open(&t->adamw, n, err) < 0)
        return -1;
    t->idle = mem_try(set->n, sizeof(*t->idle), "counters of latents", err);
    if (t->idle && set->clip > 0)
        t->grad = mem_big(n, sizeof(float), "gradients", err);
    t->stored = t->adamw.master;
    if (SAE_SWAPS && t->idle)
        t->stored = mem_big(n, sizeof(float), "weights", err);
    if (!t->idle || !t->stored || (set->clip > 0 && !t->grad)) {
        sae_trainer_close(t);
        return -1;
    }
    memset(t->idle, 0, set->n * sizeof(*t->idle));
    return 0;
}

void
sae_trainer_close(struct sae_trainer *t)
{
    if (t->grad)
        mem_big_free(t->grad, t->adamw.n, sizeof(float));
    if (t->stored != t->adamw.master)
        mem_big_free(t->stored, t->adamw.n, sizeof(float));
    adamw_close(&t->adamw);
    free(t->idle);
    *t = (struct sae_trainer){ 0 };
}

/* The rate of step t = 1, 2, .. */
static double
lr_of(const struct sae_settings *s, uint64_t t)
{
    double lr = s->lr, falls = round(s->decay * (double)s->total);

    if (t < s->warmup)
        lr *= (double)t / (double)s->warmup;
    if (t <= s->total && (double)t > (double)s->total - falls)
        lr *= ((double)s->total - (double)t + 1) / (falls + 1);
    return lr;
}

/* ---- the workspace ---- */

void
sae_work_close(struct sae_work *w)
{
    if (!w)
        return;
    sae_dead_close(w);
    latents_work_close(w->latents);
    mem_big_free(w->memory, w->nbytes, 1);
    free(w);
}

int
sae_work_open(struct sae_work **work, struct gemm *gemm,
              const struct sae_sizes *s, struct err *err)
{
    struct sae_work *w = xcalloc(1, sizeof(*w));
    const struct latents_sizes sizes = { .in = s->d,
                                         .k = s->k,
                                         .bf16 = s->bf16 };
    size_t threads = (size_t)par_threads(gemm_par(gemm)),
           pairs = s->rows * s->k;
    size_t shared = s->batchtopk ? topk_shared_cap(pairs) : 0;
    size_t chunk = KEYS_BYTES / (threads * topk_cap(s->k) * sizeof(*w->keys));

    *work = NULL;
    chunk = smaller(larger(smaller(chunk, MAX_CHUNK), MIN_CHUNK), s->rows);
    if (latents_work_open(&w->latents, gemm, &sizes, chunk, err) < 0) {
        free(w);
        return -1;
    }

    const struct mem_array arrays[] = {
        { &w->mean, s->d, 1, sizeof(*w->mean) },
        { &w->keys, shared, 1, sizeof(*w->keys) },
        { &w->room, shared, 1, sizeof(*w->room) },
        { &w->offered, s->batchtopk ? threads : 0, TOPK_OFFERS,
          sizeof(*w->offered) },
        { &w->offers, threads, 1, sizeof(*w->offers) },
        { &w->active.idx, pairs, 1, sizeof(*w->active.idx) },
        { &w->active.v, pairs, 1, sizeof(*w->active.v) },
        { &w->active.begin, s->rows, 1, sizeof(*w->active.begin) },
        { &w->active.n, s->rows, 1, sizeof(*w->active.n) },
        { &w->by.first, s->n + 1, 1, sizeof(*w->by.first) },
        { &w->by.taken, s->rows, 1, sizeof(*w->by.taken) },
        { &w->by.row, pairs, 1, sizeof(*w->by.row) },
        { &w->by.h, pairs, 1, sizeof(*w->by.h) },
        { &w->dead.latent, s->n, 1, sizeof(*w->dead.latent) },
        { &w->dead.before, s->n + 1, 1, sizeof(*w->dead.before) },
        { &w->error, s->rows, s->d, sizeof(*w->error) },
        { &w->part, (s->rows + SAE_ROWS - 1) / SAE_ROWS, s->d,
          sizeof(*w->part) },
        { &w->sums, s->d, 1, sizeof(*w->sums) },
        { &w->row_sum, s->rows, 1, sizeof(*w->row_sum) },
        { &w->grads, threads, 2 * s->d, sizeof(*w->grads) },
        { &w->back, (s->n + SAE_GROUP - 1) / SAE_GROUP, s->d,
          sizeof(*w->back) },
        { &w->norm2, s->n, 1, sizeof(*w->norm2) },
        { &w->shift, s->d, 1, sizeof(*w->shift) },
    };

    w->gemm = gemm;
    w->par = gemm_par(gemm);
    w->threads = threads;
    w->max = *s;
    w->by.cap = pairs;
    w->chunk = latents_rows(w->latents);
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of training", err);
    if (w->memory)
        *work = w;
    else
        sae_work_close(w);
    return *work ? 0 : -1;
}

/* ---- sums of rows ---- */

struct sums {
    struct sae_work *w;
    const float *x;
    const double *weight; /* of rows; or the point that is subtracted */
    size_t rows;
};

static void
block_sums(void *ctx, size_t begin, size_t end)
{
    const struct sums *s = ctx;
    size_t d = s->w->max.d;

    for (size_t b = begin; b < end; b++) {
        double *to = s->w->part + b * d;
        size_t last = smaller((b + 1) * SAE_ROWS, s->rows);

        memset(to, 0, d * sizeof(*to));
        for (size_t r = b * SAE_ROWS; r < last; r++) {
            const float *x = s->x + r * d;
            double by = s->weight ? s->weight[r] : 1;

            for (size_t c = 0; c < d; c++)
                to[c] += by * (double)x[c];
        }
    }
}

void
sae_column_sums(struct sae_work *w, const float *x, const double *weight,
                size_t rows)
{
    struct sums s = { w, x, weight, rows };
    size_t blocks = (rows + SAE_ROWS - 1) / SAE_ROWS, d = w->max.d;

    par_for(w->par, blocks, 1, block_sums, &s);
    memset(w->sums, 0, d * sizeof(*w->sums));
    for (size_t b = 0; b < blocks; b++)
        for (size_t c = 0; c < d; c++)
            w->sums[c] += w->part[b * d + c];
}

double
sae_sum(const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static void
distances(void *ctx, size_t begin, size_t end)
{
    const struct sums *s = ctx;
    size_t d = s->w->max.d;

    for (size_t r = begin; r < end; r++) {
        const float *x = s->x + r * d;
        double sum = 0;

        for (size_t c = 0; c < d; c++) {
            double e = (double)x[c] - s->weight[c];

            sum += e * e;
        }
        s->w->row_sum[r] = sum;
    }
}

void
sae_distances(struct sae_work *w, const float *x, const double *mean,
              size_t rows)
{
    struct sums s = { w, x, mean, rows };

    par_for(w->par, rows, 16, distances, &s);
}

void
sae_batch(struct sae_work *w, const float *x, size_t n_rows)
{
    w->x = x;
    w->rows = n_rows;
    sae_column_sums(w, x, NULL, n_rows);
    for (size_t c = 0; c < w->max.d; c++)
        w->mean[c] = w->sums[c] / (double)n_rows;
    sae_distances(w, x, w->mean, n_rows);
    w->variance = sae_sum(w->row_sum, n_rows);
}

/* ---- the first weights ---- */

/* Two numbers of a normal distribution (Box and Muller), then the next two. */
static void
random_row(float *row, size_t d, uint64_t seed, uint64_t first)
{
    double norm2 = 0;

    for (size_t c = 0; c < d; c += 2) {
        uint64_t i = first + c;
        double u = 1 - rng_f64(seed, STREAM, i); /* over 0 */
        double angle = 2 * M_PI * rng_f64(seed, STREAM, i + 1);
        double radius = sqrt(-2 * f64_log(u));

        row[c] = (float)(radius * f64_cos(angle));
        norm2 += (double)row[c] * (double)row[c];
        if (c + 1 == d)
            break;
        row[c + 1] = (float)(radius * f64_sin(angle));
        norm2 += (double)row[c + 1] * (double)row[c + 1];
    }
    for (size_t c = 0; c < d; c++)
        row[c] = (float)((double)row[c] / sqrt(norm2));
}

static void
random_rows(void *ctx, size_t begin, size_t end)
{
    struct sae_trainer *t = ctx;
    const struct sae_tensors to = sae_tensors(t, t->adamw.master);
    size_t d = t->set.d, each = (d + 1) / 2 * 2;

    for (size_t i = begin; i < end; i++) {
        random_row(to.decoder + i * d, d, t->set.seed, i * each);
        memcpy(to.encoder + i * d, to.decoder + i * d, d * sizeof(*to.encoder));
    }
}

/* b_dec = the geometric median of the batch's first rows. */
static void
median(struct sae_work *w, float *to)
{
    size_t rows = smaller(w->rows, SAE_MEDIAN_ROWS), d = w->max.d;
    double *guess = xcalloc(d, sizeof(*guess));

    sae_column_sums(w, w->x, NULL, rows);
    for (size_t c = 0; c < d; c++)
        guess[c] = w->sums[c] / (double)rows;
    for (int round = 0; round < ROUNDS; round++) {
        double all = 0, moved = 0;

        sae_distances(w, w->x, guess, rows);
        for (size_t r = 0; r < rows; r++) {
            /* a row that is the guess itself would have all the weight */
            w->row_sum[r] = 1 / fmax(sqrt(w->row_sum[r]), 1e-12);
            all += w->row_sum[r];
        }
        for (size_t r = 0; r < rows; r++)
            w->row_sum[r] /= all;
        sae_column_sums(w, w->x, w->row_sum, rows);
        for (size_t c = 0; c < d; c++) {
            moved += (w->sums[c] - guess[c]) * (w->sums[c] - guess[c]);
            guess[c] = w->sums[c];
        }
        if (sqrt(moved) < CLOSE)
            break;
    }
    for (size_t c = 0; c < d; c++)
        to[c] = (float)guess[c];
    free(guess);
}

void
sae_init(struct sae_work *w, struct sae_trainer *t)
{
    const struct sae_tensors to = sae_tensors(t, t->adamw.master);

    par_for(w->par, t->set.n, SAE_GROUP, random_rows, t);
    memset(to.encoder_bias, 0, t->set.n * sizeof(float));
    median(w, to.decoder_bias);
}

/* ---- a step ---- */

int
sae_step(struct sae_work *w, struct sae_trainer *t, struct sae_record *r,
         struct err *err)
{
    double least;

    if (SAE_SWAPS) /* products read weights as files have them */
        cvt_from_f32(t->stored, DT_F32, t->adamw.master, t->adamw.n);
    *r = (struct sae_record){ .lr = lr_of(&t->set, t->step + 1) };
    if (sae_find_dead(w, t, err) < 0)
        return -1;
    r->dead = (double)w->dead.n;
    least = sae_encode(w, t);
    sae_reconstruct(w, t, r);
    if (!isfinite(r->loss))
        return 0;
    sae_move(w, t, r);
    /* Source: SAELens, BatchTopKTrainingSAE.update_topk_threshold() */
    if (least > 0) {
        t->threshold = KEEPS * t->threshold + 0.01 * least;
        t->averaged++;
    }
    for (size_t i = 0; i < t->set.n; i++)
        t->idle[i] = w->by.first[i + 1] > w->by.first[i]
                         ? 0
                         : t->idle[i] + (double)w->rows;
    t->step++;
    t->rows += w->rows;
    r->rows = (double)t->rows;
    return 0;
}

double
sae_threshold(const struct sae_trainer *t)
{
    /* as Adam's means: it began with 0 */
    return t->averaged
               ? t->threshold / (1 - f64_pow(KEEPS, (double)t->averaged))
               : 0;
}
