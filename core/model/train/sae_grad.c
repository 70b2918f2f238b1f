/* SPDX-License-Identifier: ISC */
/*
 * Reconstruction, gradients, moves.  Gradients are made latent by latent, from
 * the rows in which it was active, ascending: the order fixes their bits, and a
 * latent's row of W_enc and W_dec, its gradients and its moments are touched
 * once a step, by one thread.  No gradient is stored, but with --clip, whose
 * norm must be known before anything moves.
 */
#include <math.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/train/loss.h"
#include "core/model/train/sae_impl.h"

#define LINE 16 /* floats of a cache line */

struct step {
    struct sae_work *w;
    struct sae_trainer *t;
    struct sae_tensors of;
    bool dead;              /* reconstruct() is of dead latents */
    float scale, aux_scale; /* of errors, to gradients of x^ and e^ */
    struct adamw_rates rates;
    size_t first; /* of the latents that are moved */
};

/* ---- reconstruction ---- */

/* error = x^ - x, or dead.error = e^ - e with e = x - x^; and its square. */
static void
reconstruct(void *ctx, size_t begin, size_t end)
{
    const struct step *s = ctx;
    struct sae_work *w = s->w;
    const struct sae_active *a = s->dead ? &w->dead.active : &w->active;
    size_t d = w->max.d;

    for (size_t r = begin; r < end; r++) {
        float *y = (s->dead ? w->dead.error : w->error) + r * d;
        const float *x = (s->dead ? w->error : w->x) + r * d;
        const struct sparse_sum active = {
            .y = y,
            .w = sae_tensors(s->t, s->t->stored).decoder,
            .idx = a->idx + a->begin[r],
            .v = a->v + a->begin[r],
            .ldw = d,
            .cols = d,
            .n = a->n[r],
            .w_dtype = DT_F32,
        };
        double sum = 0;

        if (s->dead)
            memset(y, 0, d * sizeof(*y));
        else
            memcpy(y, s->of.decoder_bias, d * sizeof(*y));
        sparse_sum(&active);
        for (size_t c = 0; c < d; c++) {
            y[c] += s->dead ? x[c] : -x[c];
            sum += (double)y[c] * (double)y[c];
        }
        w->row_sum[r] = sum;
    }
}

/* aux, or 0 where it is not finite. */
static double
aux_loss(struct sae_work *w, struct step *s)
{
    double error, aux;

    s->dead = true;
    par_for(w->par, w->rows, 16, reconstruct, s);
    error = sae_sum(w->row_sum, w->rows);
    sae_column_sums(w, w->error, NULL, w->rows);
    for (size_t c = 0; c < w->max.d; c++)
        w->sums[c] /= (double)w->rows;
    sae_distances(w, w->error, w->sums, w->rows);
    w->dead.variance = sae_sum(w->row_sum, w->rows);
    aux = error / w->dead.variance;
    return isfinite(aux) ? aux : 0;
}

void
sae_reconstruct(struct sae_work *w, struct sae_trainer *t, struct sae_record *r)
{
    struct step s = { .w = w, .t = t, .of = sae_tensors(t, t->adamw.master) };
    size_t active = w->by.first[t->set.n];

    par_for(w->par, w->rows, 16, reconstruct, &s);
    r->fvu = sae_sum(w->row_sum, w->rows) / w->variance;
    r->l0 = (double)active / (double)w->rows;
    r->aux = w->dead.k ? aux_loss(w, &s) : 0;
    r->loss = r->fvu + t->set.aux_coef * r->aux;
}

/* ---- the gradients of a latent ---- */

/* What the rows in which a latent was active add to its gradients. */
struct gradient {
    float *encoder, *decoder; /* [d] */
    double bias;
};

static void
add_rows(const struct step *s, const struct sae_by_latent *by, size_t i,
         const float *error, float scale, struct gradient *g)
{
    size_t d = s->w->max.d;
    const float *row = s->of.decoder + i * d;

    for (size_t p = by->first[i]; p < by->first[i + 1]; p++) {
        size_t r = by->row[p - by->base];
        const float *e = error + r * d, *x = s->w->x + r * d;
        float back;

        /* rows are anywhere: these waits were a tenth of a step */
        if (p + 1 < by->first[i + 1]) {
            size_t next = by->row[p + 1 - by->base] * d;

            for (size_t c = 0; c < d; c += LINE) {
                __builtin_prefetch(error + next + c);
                __builtin_prefetch(s->w->x + next + c);
            }
        }
        back = scale * vec_dot(e, row, d);

        vec_axpy(g->decoder, scale * by->h[p - by->base], e, d);
        vec_axpy_diff(g->encoder, back, x, s->of.decoder_bias, d);
        g->bias += (double)back;
    }
}

/* g -= (g.w)/(w.w) w */
static void
remove_parallel(float *g, const float *w, size_t d)
{
    float size = vec_dot(w, w, d);

    if (size > 0)
        vec_axpy(g, -vec_dot(g, w, d) / size, w, d);
}

static void
normalize(float *row, size_t d)
{
    double size = sqrt((double)vec_dot(row, row, d));

    if (size > 0)
        vec_scale(row, (float)(1 / size), d);
}

static double
square(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static void
move_latent(struct sae_trainer *t, const struct adamw_rates *rates, size_t i,
            const float *encoder, const float *decoder, const float *bias)
{
    size_t d = t->set.d, n = t->set.n;

    adamw_move(&t->adamw, rates, i * d, d, encoder);
    adamw_move(&t->adamw, rates, (n + i) * d, d, decoder);
    adamw_move(&t->adamw, rates, 2 * n * d + i, 1, bias);
    if (t->set.normalize)
        normalize(sae_tensors(t, t->adamw.master).decoder + i * d, d);
}

/* Makes the gradients of a group of latents, and moves them, or with --clip
 * keeps the gradients. */
static void
move_group(struct step *s, size_t group, int thread)
{
    struct sae_work *w = s->w;
    struct sae_trainer *t = s->t;
    size_t d = t->set.d, n = t->set.n, last;
    float *back = w->back + group * d;

    last = smaller((group + 1) * SAE_GROUP, n);
    for (size_t i = group * SAE_GROUP; i < last; i++) {
        struct gradient g = { .encoder = w->grads + (size_t)thread * 2 * d };
        float bias;

        g.decoder = g.encoder + d;
        if (t->grad) {
            g.encoder = sae_tensors(t, t->grad).encoder + i * d;
            g.decoder = sae_tensors(t, t->grad).decoder + i * d;
        }
        memset(g.encoder, 0, d * sizeof(float));
        memset(g.decoder, 0, d * sizeof(float));
        add_rows(s, &w->by, i, w->error, s->scale, &g);
        if (w->dead.k)
            add_rows(s, &w->dead.by, i, w->dead.error, s->aux_scale, &g);
        if (t->set.normalize)
            remove_parallel(g.decoder, s->of.decoder + i * d, d);
        bias = (float)g.bias;
        vec_axpy(back, bias, s->of.encoder + i * d, d);
        w->norm2[i] = square(g.encoder, d) + square(g.decoder, d) +
                      (double)bias * (double)bias;
        if (t->grad)
            sae_tensors(t, t->grad).encoder_bias[i] = bias;
        else
            move_latent(t, &s->rates, i, g.encoder, g.decoder, &bias);
    }
}

static void
move_groups(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *s = ctx;

    for (size_t g = begin; g < end; g++)
        move_group(s, s->first / SAE_GROUP + g, thread);
}

static void
move_clipped(void *ctx, size_t begin, size_t end)
{
    struct step *s = ctx;
    struct sae_trainer *t = s->t;
    const struct sae_tensors grad = sae_tensors(t, t->grad);
    size_t d = t->set.d;

    for (size_t i = begin; i < end; i++)
        move_latent(t, &s->rates, i, grad.encoder + i * d, grad.decoder + i * d,
                    grad.encoder_bias + i);
}

/* b_dec is in x^ and, less, in what is encoded.  Returns its norm, squared. */
static double
shift_gradient(const struct step *s)
{
    struct sae_work *w = s->w;
    size_t d = s->t->set.d;

    sae_column_sums(w, w->error, NULL, w->rows);
    for (size_t c = 0; c < d; c++)
        w->sums[c] *= (double)s->scale;
    for (size_t g = 0; g * SAE_GROUP < s->t->set.n; g++)
        for (size_t c = 0; c < d; c++)
            w->sums[c] -= (double)w->back[g * d + c];
    for (size_t c = 0; c < d; c++)
        w->shift[c] = (float)w->sums[c];
    return square(w->shift, d);
}

void
sae_move(struct sae_work *w, struct sae_trainer *t, struct sae_record *r)
{
    struct step s = { .w = w, .t = t, .of = sae_tensors(t, t->adamw.master) };
    size_t d = t->set.d, n = t->set.n;

    s.scale = (float)(2 / w->variance);
    if (w->dead.k && r->aux > 0)
        s.aux_scale = (float)(2 * t->set.aux_coef / w->dead.variance);
    s.rates = adamw_rates(&t->adamw, 1, r->lr, t->step + 1);
    memset(w->back, 0, (n + SAE_GROUP - 1) / SAE_GROUP * d * sizeof(float));
    if (w->dead.k)
        sae_count(&w->dead.by, &w->dead.active, w->rows, n);
    for (size_t end; s.first < n; s.first = end) {
        end = n;
        if (w->dead.k)
            end = sae_sort(&w->dead.by, &w->dead.active, w->rows, n, s.first);
        par_for_thread(w->par, (end - s.first + SAE_GROUP - 1) / SAE_GROUP, 1,
                       move_groups, &s);
    }
    r->grad_norm = sqrt(sae_sum(w->norm2, n) + shift_gradient(&s));
    if (t->grad) {
        s.rates = adamw_rates(&t->adamw, clip_scale(r->grad_norm, t->set.clip),
                              r->lr, t->step + 1);
        par_for(w->par, n, SAE_GROUP, move_clipped, &s);
    }
    adamw_move(&t->adamw, &s.rates, 2 * n * d + n, d, w->shift);
}
