/* SPDX-License-Identifier: ISC */
#include "core/model/splice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/places.h"

#define N_POINTS (TAP_IN_DOWN + 1)

struct splice {
    struct autoencoder a;
    char *hook;
    struct place place;
};

struct splices {
    struct model *model;
    struct splice *list; /* [n] */
    size_t n;
    bool zero;
    const struct splice **at; /* [n_layers + 1, N_POINTS]: of layers from -1 */
};

/* ---- hook points ---- */

void
splice_compare(const struct sae *sae, const char *at)
{
    struct place is, was;

    if (sae->hook && place_find(&was, sae->hook) && place_find(&is, at) &&
        (was.point != is.point || was.layer != is.layer))
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
    struct str hint = { 0 };

    if (!place_find(&s->place, s->hook)) {
        place_hint(&hint, s->hook);
        err_set(err, status, "%s: \"%s\" is not a hook point%s", path, s->hook,
                hint.n ? hint.s
                       : " (layers.3, layers.3.mlp, "
                         "layers.3.mlp.gate_proj, ..)");
        str_free(&hint);
        return -1;
    }
    if (p->layer >= c->n_layers)
        return err_set(err, status,
                       "%s: %s is not in %s, which has %lld layers", path,
                       s->hook, ss->model->dir.path, (long long)c->n_layers);
    if (place_split(c, p))
        return err_set(err, status,
                       "%s: layer %lld has experts, and each has its own "
                       "down_proj",
                       path, (long long)p->layer);
    if (s->a.d != tap_dim(c, p->point))
        return err_set(err, EX_DATAERR,
                       "%s: is of rows of %zu numbers, but %s has %zu", path,
                       s->a.d, s->hook, tap_dim(c, p->point));
    at = &ss->at[(size_t)(p->layer + 1) * N_POINTS + p->point];
    if (*at)
        return err_set(err, EX_DATAERR, "%s: is at the same hook point as %s",
                       path, (*at)->a.sae.path);
    *at = s;
    return 0;
}

/* ---- opening ---- */

static int
open_splice(struct splices *ss, const char *spec, struct err *err)
{
    struct splice *s = &ss->list[ss->n];
    const char *hook = NULL;
    char *path = file_split(spec, '@', &hook);
    int rc = autoencoder_open(&s->a, path ? path : spec, err);

    free(path);
    ss->n++;
    if (rc < 0)
        return -1;
    if (!hook && !s->a.sae.hook)
        return err_set(err, EX_DATAERR,
                       "%s: does not say where in a model its rows are from "
                       "(as %s@layers.3.mlp.gate_proj does)",
                       s->a.sae.path, spec);
    s->hook = xstrdup(hook ? hook : s->a.sae.hook);
    rc = check_hook(ss, s, hook != NULL, err);
    if (rc == 0)
        splice_compare(&s->a.sae, s->hook);
    return rc;
}

int
splices_open(struct splices **splices, struct model *model,
             const char *const *specs, size_t n,
             const struct splices_options *options, struct err *err)
{
    struct splices *ss = xcalloc(1, sizeof(*ss));
    int rc = 0;

    *splices = NULL;
    ss->model = model;
    ss->zero = options->zero;
    ss->list = xcalloc(n, sizeof(*ss->list));
    ss->at = xcalloc((size_t)(model->config.n_layers + 1) * N_POINTS,
                     sizeof(*ss->at));
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = open_splice(ss, specs[i], err);
        if (rc == 0 && options->screen && !ss->zero)
            autoencoder_screen(&ss->list[i].a);
    }
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
        free(ss->list[i].hook);
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
splices_file(const struct splices *ss, size_t i)
{
    return ss->list[i].a.sae.path;
}

const char *
splices_hook(const struct splices *ss, size_t i)
{
    return ss->list[i].hook;
}

/* ---- running ---- */

int
splices_work_open(struct engine *e, struct err *err)
{
    const struct splices *ss = e->model->splices;
    struct latents_sizes sizes = { 0 };

    if (!ss || ss->zero)
        return 0;
    for (size_t i = 0; i < ss->n; i++)
        latents_size(&sizes, &ss->list[i].a.latents);
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
    return m->splices ? m->splices->at[(size_t)(layer + 1) * N_POINTS + point]
                      : NULL;
}

bool
splice_is_at(const struct model *m, int64_t layer, enum tap_point point)
{
    return find(m, layer, point) != NULL;
}

void
splice_apply(struct engine *e, int64_t layer, enum tap_point point, float *rows,
             size_t n)
{
    const struct splice *s = find(e->model, layer, point);
    size_t k;

    if (s && e->model->splices->zero)
        memset(rows, 0, n * s->a.d * sizeof(*rows));
    for (size_t i = 0; s && !e->model->splices->zero && i < n; i += k) {
        float *at = rows + i * s->a.d;

        k = smaller(n - i, latents_rows(e->splice_work));
        autoencoder_apply(e->splice_work, e->par, &s->a, at, at, k);
    }
}
