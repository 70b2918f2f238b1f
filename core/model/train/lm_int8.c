/* SPDX-License-Identifier: ISC */
/* Experts' base weights in int8, symmetric, a scale for each row. */
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"
#include "core/model/train/lm_impl.h"
#include "core/sig.h"

enum { ROWS = 64 }; /* quantized together, in the engine's workspace */

static void
quantize(struct engine *e, struct linear *l, int8_t *to, float *scale)
{
    size_t ld = gemm_ld_int8(l->in), max = smaller(ROWS, e->options.chunk);
    const struct gemm_matrix w = linear_job(l, NULL, false).w;
    int8_t *rows = (int8_t *)e->rounded;

    for (size_t i = 0, n; i < l->out; i += n) {
        n = smaller(l->out - i, max);
        matrix_weights(e->par, &w, i, n, e->widened, l->in);
        gemm_to_int8(e->gemm, rows, scale + i, e->widened, l->in, n, l->in);
        for (size_t k = 0; k < n; k++)
            memcpy(to + (i + k) * l->in, rows + k * ld, l->in);
    }
    l->w = (struct weight){ to, DT_I8, l->in, .scale = scale };
}

int
lm_quantize(struct lm *lm, struct err *err)
{
    const struct config *c = &lm->model->config;
    struct lm_work *w = lm->work;
    int8_t *to = w->int8;
    float *scale = w->int8_scale;

    for (int64_t i = 0; i < c->n_layers; i++)
        for (int64_t e = 0; c->sparse[i] && e < c->n_experts; e++) {
            struct mlp *m = &lm->model->layers[i].experts[e];
            struct linear *const of[] = { &m->gate, &m->up, &m->down };

            for (int k = 0; k < 3; k++) {
                if (sig_stop())
                    return sig_stopped("no step was begun", err);
                quantize(w->engine, of[k], to, scale);
                to += of[k]->out * of[k]->in;
                scale += of[k]->out;
            }
        }
    return 0;
}
