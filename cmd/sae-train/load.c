#include "cmd/sae-train/load.h"

static void
widen(float *to, const struct matrix *m)
{
    for (size_t i = 0; i < m->rows; i++)
        for (size_t j = 0; j < m->cols; j++)
            to[i * m->cols + j] = (float)matrix_get(m, i, j);
}

void
load_sae(const struct sae *s, float *encoder, float *decoder,
         float *encoder_bias, float *decoder_bias)
{
    widen(encoder, &s->encoder_weight);
    widen(decoder, &s->decoder_weight);
    widen(encoder_bias, &s->encoder_bias);
    widen(decoder_bias, &s->decoder_bias);
    for (size_t i = 0; i < s->n; i++) {
        sae_fold(s, i, false, encoder + i * s->in);
        sae_fold(s, i, true, decoder + i * s->in);
        if (s->norms)
            encoder_bias[i] = (float)((double)encoder_bias[i] * s->norms[i]);
    }
}
