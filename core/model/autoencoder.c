#include "core/model/autoencoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/sums.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"

#define CHUNK_BYTES ((size_t)32 << 20) /* of pre-activations */

struct autoencoder_work {
    struct gemm *gemm;
    struct autoencoder_sizes max;
    size_t rows;
    float *z;       /* [rows, max.n] */
    float *shifted; /* [rows, max.d] x - decoder_bias */
    uint64_t *keys; /* [threads, 2, topk_cap(max.k)] */
    uint32_t *idx;  /* [rows, max.k] */
    float *f;       /* [rows, max.k] */
    size_t *n;      /* [rows] */
    bool *is_bad;   /* [rows] */
    void *memory;
    size_t nbytes;
};

/* ---- an autoencoder ---- */

/* Rows of one of the matrices, without norms. */
static void
widen(const struct sae *s, bool decoder, float *to)
{
    const struct matrix *m = decoder ? &s->decoder_weight : &s->encoder_weight;

    matrix_rows(NULL, m, 0, s->n, to, s->in);
    for (size_t i = 0; i < s->n && s->norms; i++)
        sae_fold(s, i, decoder, to + i * s->in);
}

static void
widen_biases(const struct sae *s, float *encoder_bias, float *decoder_bias)
{
    matrix_rows(NULL, &s->encoder_bias, 0, 1, encoder_bias, s->n);
    matrix_rows(NULL, &s->decoder_bias, 0, 1, decoder_bias, s->in);
    for (size_t i = 0; i < s->n && s->norms; i++)
        encoder_bias[i] = (float)((double)encoder_bias[i] * s->norms[i]);
}

void
autoencoder_tensors(const struct sae *s, float *encoder, float *decoder,
                    float *encoder_bias, float *decoder_bias)
{
    widen(s, false, encoder);
    widen(s, true, decoder);
    widen_biases(s, encoder_bias, decoder_bias);
}

/* One of the matrices as products read it: in the file, or a copy. */
static const void *
matrix_data(const struct sae *s, bool decoder, float **copy, enum dtype *dtype,
            struct err *err)
{
    const struct matrix *m = decoder ? &s->decoder_weight : &s->encoder_weight;
    size_t all = s->n * s->in;

    *dtype = m->dtype;
    if (!m->by_col && !s->norms)
        return m->data;
    *copy = mem_try(all, sizeof(float), "an SAE", err);
    if (!*copy)
        return NULL;
    widen(s, decoder, *copy);
    *dtype = DT_F32;
    cvt_from_f32(*copy, DT_F32, *copy, all);
    return *copy;
}

int
autoencoder_open(struct autoencoder *a, const char *path, struct err *err)
{
    const struct sae *s = &a->sae;

    *a = (struct autoencoder){ 0 };
    if (sae_open(&a->sae, path, err) < 0)
        return -1;
    if (s->k == 0 && !s->thresholds && s->activation != SAE_RELU)
        return err_data(err, s->path,
                        "does not say how many latents are active (\"k\" in "
                        "a cfg.json next to it does)");
    a->n = s->n;
    a->d = s->in;
    a->k =
        s->thresholds || s->activation == SAE_RELU ? s->n : smaller(s->k, s->n);
    a->encoder_bias = xcalloc(a->n, sizeof(float));
    a->decoder_bias = xcalloc(a->d, sizeof(float));
    widen_biases(s, a->encoder_bias, a->decoder_bias);
    a->encoder =
        matrix_data(s, false, &a->encoder_copy, &a->encoder_dtype, err);
    if (a->encoder)
        a->decoder =
            matrix_data(s, true, &a->decoder_copy, &a->decoder_dtype, err);
    return a->decoder ? 0 : -1;
}

void
autoencoder_close(struct autoencoder *a)
{
    free(a->encoder_copy);
    free(a->decoder_copy);
    free(a->encoder_bias);
    free(a->decoder_bias);
    sae_close(&a->sae);
    *a = (struct autoencoder){ 0 };
}

/* ---- the workspace ---- */

void
autoencoder_size(struct autoencoder_sizes *sizes, const struct autoencoder *a)
{
    sizes->n = larger(sizes->n, a->n);
    sizes->d = larger(sizes->d, a->d);
    sizes->k = larger(sizes->k, a->k);
}

int
autoencoder_work_open(struct autoencoder_work **work, struct gemm *gemm,
                      const struct autoencoder_sizes *max, size_t rows,
                      struct err *err)
{
    struct autoencoder_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm));

    rows = larger(smaller(rows, CHUNK_BYTES / sizeof(float) / max->n), 1);

    const struct mem_array arrays[] = {
        { &w->z, rows, max->n, sizeof(*w->z) },
        { &w->shifted, rows, max->d, sizeof(*w->shifted) },
        { &w->keys, threads, 2 * topk_cap(max->k), sizeof(*w->keys) },
        { &w->idx, rows, max->k, sizeof(*w->idx) },
        { &w->f, rows, max->k, sizeof(*w->f) },
        { &w->n, rows, 1, sizeof(*w->n) },
        { &w->is_bad, rows, 1, sizeof(*w->is_bad) },
    };

    w->gemm = gemm;
    w->max = *max;
    w->rows = rows;
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of SAEs", err);
    *work = w->memory ? w : NULL;
    if (!w->memory)
        free(w);
    return *work ? 0 : -1;
}

void
autoencoder_work_close(struct autoencoder_work *w)
{
    if (w)
        mem_big_free(w->memory, w->nbytes, 1);
    free(w);
}

size_t
autoencoder_rows(const struct autoencoder_work *w)
{
    return w->rows;
}

struct autoencoder_row
autoencoder_row(const struct autoencoder_work *w, size_t i)
{
    return (struct autoencoder_row){ w->is_bad[i], w->n[i],
                                     w->idx + i * w->max.k,
                                     w->f + i * w->max.k };
}

/* ---- rows ---- */

struct apply_task {
    struct autoencoder_work *w;
    const struct autoencoder *a;
    const float *x;
    float *y;
};

static void
shift(void *ctx, size_t begin, size_t end, int thread)
{
    const struct apply_task *t = ctx;
    size_t d = t->a->d;

    (void)thread;
    for (size_t r = begin; r < end; r++)
        for (size_t i = 0; i < d; i++)
            t->w->shifted[r * d + i] = t->x[r * d + i] - t->a->decoder_bias[i];
}

/* All that are over their thresholds, which are not negative; false if one is
 * not finite. */
static bool
find_over(struct autoencoder_work *w, const struct autoencoder *a, size_t r)
{
    bool bad = false;

    w->n[r] = select_over(w->idx + r * w->max.k, w->f + r * w->max.k,
                          w->z + r * a->n, a->sae.thresholds, a->n, &bad);
    return !bad;
}

static bool
find_largest(struct autoencoder_work *w, const struct autoencoder *a, size_t r,
             int thread)
{
    size_t cap = topk_cap(w->max.k);
    uint64_t *keys = w->keys + (size_t)thread * 2 * cap;
    struct topk top;

    topk_start(&top, keys, keys + cap, a->k);
    topk_put(&top, w->z + r * a->n, 0, a->n);
    w->n[r] = topk_take(&top, w->idx + r * w->max.k, w->f + r * w->max.k);
    return !top.bad;
}

static void
reconstruct(void *ctx, size_t begin, size_t end, int thread)
{
    const struct apply_task *t = ctx;
    const struct autoencoder *a = t->a;
    struct autoencoder_work *w = t->w;

    for (size_t r = begin; r < end; r++) {
        float *y = t->y + r * a->d;
        struct sparse_sum sum = { .y = y,
                                  .w = a->decoder,
                                  .idx = w->idx + r * w->max.k,
                                  .v = w->f + r * w->max.k,
                                  .ldw = a->d,
                                  .cols = a->d,
                                  .w_dtype = a->decoder_dtype };

        w->is_bad[r] = !(a->sae.thresholds ? find_over(w, a, r)
                                           : find_largest(w, a, r, thread));
        if (w->is_bad[r])
            w->n[r] = 0;
        sum.n = w->n[r];
        memcpy(y, a->decoder_bias, a->d * sizeof(*y));
        sparse_sum(&sum);
        for (size_t i = 0; i < a->d && w->is_bad[r]; i++)
            y[i] = NAN;
    }
}

void
autoencoder_apply(struct autoencoder_work *w, const struct autoencoder *a,
                  float *y, const float *x, size_t n)
{
    struct par *par = n > 1 ? gemm_par(w->gemm) : NULL;
    struct apply_task t = { w, a, x, y };
    const struct gemm_job job = { .w = { .data = a->encoder,
                                         .dtype = a->encoder_dtype,
                                         .n = a->n,
                                         .k = a->d,
                                         .ld = a->d },
                                  .c = w->z,
                                  .ldc = a->n,
                                  .end = { .bias = a->encoder_bias } };

    if (a->sae.centered)
        par_for(par, n, 8, shift, &t);
    gemm_exact(w->gemm, &job, 1, a->sae.centered ? w->shifted : x, a->d, n);
    par_for(par, n, 8, reconstruct, &t);
}
