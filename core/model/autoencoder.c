/* SPDX-License-Identifier: ISC */
#include "core/model/autoencoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"
#include "core/model/places.h"

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

bool
autoencoder_centers(const struct sae *s, const struct place *at,
                    const struct model_family *family)
{
    struct place own;

    if (!at && s->hook && place_find(&own, s->hook))
        at = &own;
    return s->mean_off && (!family || family->form.norm.form == NORM_LAYER) &&
           (!at || (at->point != TAP_IN_O && at->point != TAP_IN_DOWN &&
                    at->point != TAP_IN_GATE_UP && at->point != TAP_IN_QKV));
}

int
sae_open_plain(struct sae *s, const char *path,
               const struct model_family *family, struct err *err)
{
    if (sae_open(s, path, err) < 0)
        return -1;
    if (s->input == SAE_INPUT_PLAIN && !autoencoder_centers(s, NULL, family))
        return 0;
    err_set(err, EX_DATAERR, "%s", s->transform);
    sae_close(s);
    return -1;
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
    a->centers = autoencoder_centers(s, NULL, NULL);
    a->n = s->n;
    a->d = s->in;
    a->encoder_bias = xcalloc(a->n, sizeof(float));
    a->decoder_bias = xcalloc(a->d, sizeof(float));
    widen_biases(s, a->encoder_bias, a->decoder_bias);
    if (!s->thresholds && s->activation == SAE_RELU)
        a->zeros = xcalloc(a->n, sizeof(float));
    a->latents = (struct latents){
        .w = { .weight = { .ld = a->d }, .n = a->n, .k = a->d },
        .bias = a->encoder_bias,
        .shift = s->centered ? a->decoder_bias : NULL,
        .thresholds = a->zeros ? a->zeros : s->thresholds,
        .k = smaller(s->k, s->n),
    };
    a->decoder.bias = a->decoder_bias;
    a->decoder.n = a->d;
    a->latents.w.weight.data = matrix_data(s, false, &a->encoder_copy,
                                           &a->latents.w.weight.dtype, err);
    if (a->latents.w.weight.data)
        a->decoder.w =
            matrix_data(s, true, &a->decoder_copy, &a->decoder.dtype, err);
    return a->decoder.w ? 0 : -1;
}

void
autoencoder_screen(struct autoencoder *a)
{
    if (!a->zeros)
        a->latents.screen = latents_screen(&a->latents, NULL, true);
}

void
autoencoder_close(struct autoencoder *a)
{
    screen_close(a->latents.screen);
    free(a->encoder_copy);
    free(a->decoder_copy);
    free(a->encoder_bias);
    free(a->decoder_bias);
    free(a->zeros);
    sae_close(&a->sae);
    *a = (struct autoencoder){ 0 };
}

/* Rows x, and y, which has room for them as the SAE's transform has them:
 * x' = (x - mean) in, and x^ = y' out + mean, with 'notes' of mean and out. */
struct transformed {
    const struct autoencoder *a;
    float *y;
    const float *x;
    double *notes; /* [n, 2] */
};

/* In f64, one number after another: the order is a row's length alone. */
static void
transform_rows(void *ctx, size_t begin, size_t end)
{
    const struct transformed *rows = ctx;
    const struct sae *s = &rows->a->sae;
    double d = (double)s->in;

    for (size_t r = begin; r < end; r++) {
        const float *x = rows->x + r * s->in;
        float *to = rows->y + r * s->in;
        double mean = 0, in = 1, out = 1, square = 0, sum = 0;

        for (size_t i = 0; i < s->in; i++)
            sum += (double)x[i];
        if (rows->a->centers || s->input == SAE_INPUT_LAYER)
            mean = sum / d;
        for (size_t i = 0; i < s->in; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean);
        if (s->input == SAE_INPUT_LAYER) {
            out = sqrt(square / (d - 1));
            in = 1 / (out + 1e-5);
        } else if (s->input == SAE_INPUT_NORM) {
            in = sqrt(d) / sqrt(square);
            out = 1 / in;
        } else if (s->input == SAE_INPUT_FACTOR) {
            in = s->factor;
            out = 1 / s->factor;
        }
        for (size_t i = 0; i < s->in; i++)
            to[i] = (float)(((double)x[i] - mean) * in);
        rows->notes[2 * r] = mean;
        rows->notes[2 * r + 1] = out;
    }
}

static void
undo_rows(void *ctx, size_t begin, size_t end)
{
    const struct transformed *rows = ctx;
    size_t d = rows->a->d;

    for (size_t i = begin * d; i < end * d; i++)
        rows->y[i] = (float)((double)rows->y[i] * rows->notes[i / d * 2 + 1] +
                             rows->notes[i / d * 2]);
}

bool
autoencoder_transforms(const struct autoencoder *a)
{
    return a->sae.input != SAE_INPUT_PLAIN || a->centers;
}

void
autoencoder_transform(const struct autoencoder *a, struct par *par, float *to,
                      const float *x, double *notes, size_t n)
{
    struct transformed rows = { a, to, x, notes };

    par_for(par, n, 4, transform_rows, &rows);
}

void
autoencoder_encode(struct latents_work *work, const struct autoencoder *a,
                   float *y, const float *x, size_t n)
{
    if (autoencoder_transforms(a)) {
        autoencoder_transform(a, latents_par(work), y, x, latents_notes(work),
                              n);
        x = y;
    }
    latents_encode(work, &a->latents, x, a->d, n);
    latents_select(work, &a->latents);
}

void
autoencoder_apply(struct latents_work *work, const struct autoencoder *a,
                  float *y, const float *x, size_t n)
{
    struct transformed rows = { a, y, NULL, latents_notes(work) };

    autoencoder_encode(work, a, y, x, n);
    latents_decode(work, &a->decoder, y, a->d, n);
    if (autoencoder_transforms(a))
        par_for(latents_par(work), n, 4, undo_rows, &rows);
}
