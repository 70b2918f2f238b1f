#include "core/model/splice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/names.h"

#define N_POINTS (TAP_IN_DOWN + 1)

struct splice {
    struct autoencoder a;
    char *hook;
    enum tap_point point;
    int64_t layer;
};

struct splices {
    struct model *model;
    struct splice *list; /* [n] */
    size_t n;
    bool zero;
    const struct splice **at; /* [n_layers + 1, N_POINTS]: of layers from -1 */
};

/* ---- hook points ---- */

/* What follows "layers.N" of a module's name, and "blocks.N" of a
 * TransformerLens hook.  A decoder layer and the halves of it are known by
 * their outputs, linear layers by their inputs. */
static const struct hook_name {
    const char *name;
    enum tap_point point;
    int layer; /* added to N */
} modules[] = {
    { "", TAP_RESID, 0 },
    { ".self_attn", TAP_ATTN, 0 },
    { ".mlp", TAP_MLP, 0 },
    { ".self_attn.q_proj", TAP_IN_QKV, 0 },
    { ".self_attn.k_proj", TAP_IN_QKV, 0 },
    { ".self_attn.v_proj", TAP_IN_QKV, 0 },
    { ".self_attn.qkv_proj", TAP_IN_QKV, 0 },
    { ".self_attn.o_proj", TAP_IN_O, 0 },
    { ".mlp.gate_proj", TAP_IN_GATE_UP, 0 },
    { ".mlp.up_proj", TAP_IN_GATE_UP, 0 },
    { ".mlp.gate_up_proj", TAP_IN_GATE_UP, 0 },
    { ".mlp.down_proj", TAP_IN_DOWN, 0 },
}, tl_hooks[] = {
    { ".hook_resid_pre", TAP_RESID, -1 },
    { ".hook_resid_post", TAP_RESID, 0 },
    { ".hook_attn_out", TAP_ATTN, 0 },
    { ".hook_mlp_out", TAP_MLP, 0 },
    { ".attn.hook_z", TAP_IN_O, 0 },
};

bool
splice_find(const char *hook, enum tap_point *point, int64_t *layer)
{
    const char *name = names_short(hook), *end;
    bool is_layer = names_layer(name, layer, &end) == name;
    bool is_tl = *name == 'b';
    size_t n = is_tl ? sizeof(tl_hooks) / sizeof(*tl_hooks)
                     : sizeof(modules) / sizeof(*modules);

    for (size_t i = 0; is_layer && *layer < INT64_MAX && i < n; i++) {
        const struct hook_name *h = is_tl ? &tl_hooks[i] : &modules[i];

        if (strcmp(end, h->name) != 0)
            continue;
        *point = h->point;
        *layer += h->layer;
        return true;
    }
    *point = TAP_RESID;
    *layer = -1;
    return !strcmp(name, "embed_tokens");
}

void
splice_compare(const struct sae *sae, const char *at)
{
    enum tap_point points[2];
    int64_t layers[2];

    if (sae->hook && splice_find(sae->hook, &points[0], &layers[0]) &&
        splice_find(at, &points[1], &layers[1]) &&
        (points[0] != points[1] || layers[0] != layers[1]))
        err_warn("%s: is of %s, by its configuration, and is used at %s",
                 sae->path, sae->hook, at);
}

static int
check_hook(struct splices *ss, struct splice *s, bool is_given, struct err *err)
{
    const struct config *c = &ss->model->config;
    int status = is_given ? TU_USAGE : EX_DATAERR;
    const char *path = s->a.sae.path;
    const struct splice **at;

    if (!splice_find(s->hook, &s->point, &s->layer))
        return err_set(err, status,
                       "%s: \"%s\" is not a hook point (layers.3, "
                       "layers.3.mlp, layers.3.mlp.gate_proj, ..)",
                       path, s->hook);
    if (s->layer >= c->n_layers)
        return err_set(err, status,
                       "%s: %s is not in %s, which has %lld layers", path,
                       s->hook, ss->model->dir.path, (long long)c->n_layers);
    if (s->point == TAP_IN_DOWN && c->sparse && c->sparse[s->layer])
        return err_set(err, status,
                       "%s: layer %lld has experts, and each has its own "
                       "down_proj",
                       path, (long long)s->layer);
    if (s->a.d != tap_dim(c, s->point))
        return err_set(err, EX_DATAERR,
                       "%s: is of rows of %zu numbers, but %s has %zu", path,
                       s->a.d, s->hook, tap_dim(c, s->point));
    at = &ss->at[(size_t)(s->layer + 1) * N_POINTS + s->point];
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
