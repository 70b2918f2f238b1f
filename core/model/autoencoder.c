/* SPDX-License-Identifier: ISC */
#include "core/model/autoencoder.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"

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

void
autoencoder_apply(struct latents_work *work, const struct autoencoder *a,
                  float *y, const float *x, size_t n)
{
    latents_encode(work, &a->latents, x, a->d, n);
    latents_select(work, &a->latents);
    latents_decode(work, &a->decoder, y, a->d, n);
}
