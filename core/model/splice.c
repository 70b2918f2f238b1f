/* SPDX-License-Identifier: ISC */
#include "core/model/splice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/places.h"

/* ---- hook points ---- */

void
splice_compare(const struct sae *sae, const char *at, const struct config *c)
{
    struct place is, was;

    if (sae->hook && place_find(&was, sae->hook) && place_find(&is, at) &&
        !place_same(&was, &is, c))
        err_warn("%s: is of %s, by its configuration, and is used at %s",
                 sae->path, sae->hook, at);
}

static int
check_hook(struct splices *ss, struct splice *s, bool is_given, struct err *err)
{
    const struct config *c = &ss->model->config;
    int status = is_given ? TU_USAGE : EX_DATAERR;
    const char *path = s->a.sae.path;
    const struct place *p = &s->place;
    const struct splice **at;
    struct str hint = { 0 }, why = { 0 };

    if (!place_find(&s->place, s->hook)) {
        place_hint(&hint, s->hook);
        err_set(err, status, "%s: \"%s\" is not a hook point%s", path, s->hook,
                hint.n ? hint.s
                       : " (layers.3, layers.3.mlp, "
                         "layers.3.mlp.gate_proj, ..)");
        str_free(&hint);
        return -1;
    }
    place_settle(&s->place, c);
    if (p->layer >= c->n_layers)
        return err_set(err, status,
                       "%s: %s is not in %s, which has %lld layers", path,
                       s->hook, ss->model->dir.path, (long long)c->n_layers);
    if (place_missing(&why, c, p)) {
        err_set(err, status, "%s: %s", path, why.s);
        str_free(&why);
        return -1;
    }
    if (s->a.d != tap_dim(c, p->point, p->layer))
        return err_set(err, EX_DATAERR,
                       "%s: is of rows of %zu numbers, but %s has %zu", path,
                       s->a.d, s->hook, tap_dim(c, p->point, p->layer));
    at = &ss->at[(size_t)(p->layer + 1) * N_TAP_POINTS + p->point];
    if (*at)
        return err_set(err, s->kind == SPLICE_SAE ? EX_DATAERR : TU_USAGE,
                       "%s: is at the same hook point as %s%s", path,
                       (*at)->a.sae.path,
                       s->kind == SPLICE_SAE ? ""
                       : (*at)->kind == SPLICE_SAE
                           ? ", which replaces what is to be changed"
                           : " (one --steer has all changes of a hook)");
    *at = s;
    return 0;
}

/* ---- opening ---- */

/* Which rows the SAE leaves alone. */
static int
open_rows(struct splices *ss, struct splice *s, const struct splices_options *o,
          struct err *err)
{
    const struct sae_without *r = &s->a.sae.without;
    size_t n = (size_t)ss->model->config.vocab_size;

    if (o->open_end && sae_without_from_end(r))
        return err_set(err, EX_DATAERR,
                       "%s: its seqpos_slice counts from the end, which a text "
                       "that is being generated does not have",
                       s->a.sae.path);
    if (!o->special && sae_without_any(r))
        return err_set(err, EX_DATAERR,
                       "%s: leaves out rows of a text (expected an SAE of all "
                       "rows)",
                       s->a.sae.path);
    if (r->special || r->n_ids)
        s->without = xcalloc(n, sizeof(*s->without));
    for (size_t i = 0; i < r->n_ids; i++)
        if ((size_t)r->ids[i] < n)
            s->without[r->ids[i]] = true;
    if (r->special && o->special(o->ctx, s->without, n, err) < 0) {
        struct err cause = *err;

        return err_set(err, cause.status,
                       "%s: its exclude_special_tokens is true: %s",
                       s->a.sae.path, cause.what);
    }
    return 0;
}

/* Are rows encoded for it? */
static bool
encodes(const struct splices *ss, const struct splice *s)
{
    return s->kind == SPLICE_SAE ? !ss->zero : s->steer.reads;
}

/* Opens SAE[@HOOK], and gets a HOOK: where the SAE acts. */
static int
open_sae(struct splice *s, const char *spec, const char **hook, struct err *err)
{
    char *path = file_split(spec, '@', hook);
    int rc = autoencoder_open(&s->a, path ? path : spec, err);

    free(path);
    if (rc == 0 && !*hook && !s->a.sae.hook)
        return err_set(err, EX_DATAERR,
                       "%s: does not say where in a model its rows are from "
                       "(as %s@layers.3.mlp.gate_proj does)",
                       s->a.sae.path, spec);
    if (rc == 0)
        s->hook = xstrdup(*hook ? *hook : s->a.sae.hook);
    return rc;
}

static int
open_splice(struct splices *ss, enum splice_kind kind, const char *spec,
            const struct splices_options *o, struct err *err)
{
    static const char *const names[] = { "--sae", "--steer", "--ablate",
                                         "--ablate-each" };
    struct splice *s = &ss->list[ss->n++];
    const char *colon = kind == SPLICE_SAE ? NULL : strrchr(spec, ':');
    const char *hook = NULL;
    char *of = xstrndup(spec, colon ? (size_t)(colon - spec) : strlen(spec));
    int rc = 0;

    s->kind = kind;
    if (kind != SPLICE_SAE && !colon)
        rc = err_set(err, TU_USAGE, "%s: \"%s\" says no %s (as %s:%s does)",
                     names[kind], spec,
                     kind == SPLICE_STEER ? "changes" : "latents", spec,
                     kind == SPLICE_STEER ? "17+8" : "17");
    if (rc == 0)
        rc = open_sae(s, of, &hook, err);
    if (rc == 0 && kind != SPLICE_SAE)
        rc = (kind == SPLICE_STEER ? steer_parse : steer_ablate)(
            &s->steer, names[kind], colon + 1, s->a.n, err);
    if (rc == 0)
        rc = check_hook(ss, s, hook != NULL, err);
    free(of);
    if (rc < 0)
        return -1;
    s->a.sae.mean_off |= o->center;
    s->a.centers =
        autoencoder_centers(&s->a.sae, &s->place, ss->model->config.family);
    splice_compare(&s->a.sae, s->hook, &ss->model->config);
    if (o->screen && encodes(ss, s))
        autoencoder_screen(&s->a);
    return open_rows(ss, s, o, err);
}

int
splices_open(struct splices **splices, struct model *model,
             const struct splices_options *o, struct err *err)
{
    struct splices *ss = xcalloc(1, sizeof(*ss));
    bool centers = false;
    size_t n = 0;
    int rc = 0;

    for (int kind = 0; kind < N_SPLICE_KINDS; kind++)
        n += o->specs[kind].n;
    *splices = NULL;
    ss->model = model;
    ss->zero = o->zero;
    ss->steer_at = o->at;
    ss->list = xcalloc(n, sizeof(*ss->list));
    ss->at = xcalloc((size_t)(model->config.n_layers + 1) * N_TAP_POINTS,
                     sizeof(*ss->at));
    for (int kind = 0; kind < N_SPLICE_KINDS; kind++)
        for (size_t i = 0; i < o->specs[kind].n && rc == 0; i++)
            rc = open_splice(ss, (enum splice_kind)kind, o->specs[kind].item[i],
                             o, err);
    for (size_t i = 0; i < ss->n; i++)
        centers |= ss->list[i].a.centers;
    if (rc == 0 && o->center && !centers)
        rc = err_set(err, TU_USAGE, "--sae-center: no rows are centred: %s",
                     model->config.form.norm.form == NORM_LAYER
                         ? "these SAEs are of none that are written to the "
                           "residual stream"
                         : "the model's norms are RMSNorm");
    model->splices = ss;
    if (rc < 0)
        splices_close(ss);
    else
        *splices = ss;
    return rc;
}

void
splices_close(struct splices *ss)
{
    if (!ss)
        return;
    for (size_t i = 0; i < ss->n; i++) {
        autoencoder_close(&ss->list[i].a);
        steer_free(&ss->list[i].steer);
        free(ss->list[i].hook);
        free(ss->list[i].without);
    }
    ss->model->splices = NULL;
    free(ss->list);
    free(ss->at);
    free(ss);
}

void
splices_screened(const struct splices *ss, struct screen_counts *to)
{
    for (size_t i = 0; ss && i < ss->n; i++)
        screen_count(ss->list[i].a.latents.screen, to);
}

const char *
splices_bos(const struct splices *ss)
{
    for (size_t i = 0; ss && i < ss->n; i++)
        if (ss->list[i].a.sae.prepend_bos)
            return ss->list[i].a.sae.path;
    return NULL;
}

/* ---- running ---- */

size_t
splices_before(const struct splices *ss)
{
    const struct place *p = &ss->list[ss->n - 1].place;

    /* after a layer it is its last step; the embedding's layer is -1 */
    return (size_t)(p->layer + (p->layer < 0 || p->point == TAP_RESID ? 1 : 0));
}

int
splices_work_open(struct engine *e, struct err *err)
{
    const struct splices *ss = e->model->splices;
    struct latents_sizes sizes = { 0 };

    for (size_t i = 0; ss && i < ss->n; i++)
        if (encodes(ss, &ss->list[i]))
            latents_size(&sizes, &ss->list[i].a.latents);
    if (sizes.in == 0)
        return 0;
    return latents_work_open(&e->splice_work, e->gemm, &sizes, e->options.chunk,
                             err);
}

void
splices_work_close(struct engine *e)
{
    latents_work_close(e->splice_work);
}

static const struct splice *
find(const struct model *m, int64_t layer, enum tap_point point)
{
    return m->splices
               ? m->splices->at[(size_t)(layer + 1) * N_TAP_POINTS + point]
               : NULL;
}

bool
splice_is_at(const struct model *m, int64_t layer, enum tap_point point)
{
    return find(m, layer, point) != NULL;
}

/* Which rows of the chunk stay as they are. */
static void
find_rows_that_stay(bool *stays, const struct engine *e, const struct splice *s,
                    const struct chunk *chunk, const float *rows)
{
    const struct steer_at *steer_at = &e->model->splices->steer_at;
    const struct sae_without *r = &s->a.sae.without;

    for (size_t i = 0; i < chunk->n_spans; i++) {
        const struct span *span = &chunk->spans[i];

        for (size_t k = 0; k < span->n; k++) {
            size_t at = span->row + k;
            const float *x = rows + at * s->a.d;
            double lane[SAE_NORM_LANES] = { 0 };

            if (r->max_norm > 0)
                sae_norm_add(lane, x, s->a.d);
            stays[at] =
                (s->without && s->without[e->ids[at]]) ||
                !sae_without_at(r, span->first + k,
                                span->session->max_tokens) ||
                sae_norm(lane) > r->max_norm ||
                (s->kind != SPLICE_SAE &&
                 !steer_is_at(steer_at, span->first + k, span->generated));
        }
    }
}

/* The rows that do not stay: several at once, where they follow each other. */
void
splice_apply(struct engine *e, const struct chunk *chunk, int64_t layer,
             enum tap_point point, float *rows)
{
    const struct splice *s = find(e->model, layer, point);
    const struct splices *ss = e->model->splices;
    struct steering steering;
    size_t most;
    bool *stays;

    if (!s || chunk->n_rows == 0)
        return;
    steering = (struct steering){ &s->a, &s->steer, e->splice_work, e->par,
                                  s->kind == SPLICE_EACH ? e->each : NULL };
    most = encodes(ss, s) ? latents_rows(e->splice_work) : chunk->n_rows;
    stays = xcalloc(chunk->n_rows, sizeof(*stays));
    if (s->kind != SPLICE_SAE || sae_without_any(&s->a.sae.without))
        find_rows_that_stay(stays, e, s, chunk, rows);
    for (size_t i = 0, n; i < chunk->n_rows; i += larger(n, 1)) {
        float *x = rows + i * s->a.d;

        for (n = 0; n < most && i + n < chunk->n_rows && !stays[i + n];)
            n++;
        if (n > 0 && s->kind != SPLICE_SAE)
            /* a window is fed alone: its chunks have one span */
            steer_rows(&steering, x, n, chunk->spans->first + i);
        else if (n > 0 && !ss->zero)
            autoencoder_apply(e->splice_work, &s->a, x, x, n);
        else
            memset(x, 0, n * s->a.d * sizeof(*x));
    }
    free(stays);
}
