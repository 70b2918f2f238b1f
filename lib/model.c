/* SPDX-License-Identifier: ISC */
/* Models and sessions for programs. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/places.h"
#include "core/par.h"
#include "lib/lib.h"

#define MAX_CHUNK 65536 /* as hf-infer --chunk */

_Static_assert(TU_COMPUTE_BF16 == (int)COMPUTE_BF16 &&
                   TU_RESID == (int)TAP_RESID && TU_ATTN == (int)TAP_ATTN &&
                   TU_MLP == (int)TAP_MLP && TU_IN_QKV == (int)TAP_IN_QKV &&
                   TU_IN_O == (int)TAP_IN_O &&
                   TU_IN_GATE_UP == (int)TAP_IN_GATE_UP &&
                   TU_IN_DOWN == (int)TAP_IN_DOWN &&
                   TU_EMBED == (int)TAP_EMBED &&
                   TU_ATTN_OUT == (int)TAP_ATTN_OUT &&
                   TU_MLP_OUT == (int)TAP_MLP_OUT &&
                   TU_RESID_MID == (int)TAP_RESID_MID,
               "the header's numbers are those of core");

struct tu_model {
    struct model *model;
    struct tu_model_info info;
    atomic_size_t n_users; /* its handle and its sessions */
};

struct tu_session {
    struct tu_model *model;
    struct par *par;
    struct engine *engine;
    struct session *session;
    size_t max_tokens;
    int64_t reach; /* layers that have all tokens' keys: 0 .. reach - 1 */
    struct tap tap;
    tu_tap_fn *fn; /* NULL: no tap */
    void *ctx;
    bool is_feeding, closed_inside; /* by its tap */
};

/* ---- models ---- */

static struct tu_model_info
info_of(const struct config *c)
{
    struct tu_model_info info = {
        .n_layers = (size_t)c->n_layers,
        .hidden = (size_t)c->hidden_size,
        .intermediate = (size_t)c->intermediate_size,
        .n_heads = (size_t)c->n_heads,
        .n_kv_heads = (size_t)c->n_kv_heads,
        .head_dim = (size_t)c->head_dim,
        .vocab_size = (size_t)c->vocab_size,
        .max_positions = (size_t)c->max_positions,
        .n_experts = (size_t)c->n_experts,
        .bos = c->bos,
        .n_eos = c->n_eos,
        .eos = c->eos,
    };

    snprintf(info.family, sizeof(info.family), "%s", c->family->model_type);
    return info;
}

int
tu_model_open(struct tu_model **model, const char *dir, struct tu_err *to)
{
    struct err err = { 0 };
    struct model *m;

    if (lib_null(to, "tu_model_open", "model", model, "dir", dir, NULL) < 0)
        return -1;
    *model = NULL;
    if (cpu_check(&err) < 0 || model_open(&m, dir, &err) < 0)
        return lib_fail(to, &err);
    *model = xcalloc(1, sizeof(**model));
    (*model)->model = m;
    (*model)->info = info_of(&m->config);
    atomic_init(&(*model)->n_users, 1);
    return 0;
}

void
tu_model_close(struct tu_model *model)
{
    if (!model || atomic_fetch_sub(&model->n_users, 1) > 1)
        return;
    model_close(model->model);
    free(model);
}

const struct tu_model_info *
tu_model_info(const struct tu_model *model)
{
    return model ? &model->info : NULL;
}

/* ---- sessions ---- */

static int
check_options(struct tu_session_options *o, const struct tu_model *model,
              struct tu_err *to)
{
    const struct tu_model_info *info = &model->info;
    const struct rope_config *rope = model->model->config.rope;

    if (lib_threads(o->n_threads, to) < 0)
        return -1;
    if (o->compute != TU_COMPUTE_F32 && o->compute != TU_COMPUTE_BF16)
        return lib_refuse(to, "compute is %d, none of enum tu_compute",
                          (int)o->compute);
    if (o->kv != TU_KV_F32 && o->kv != TU_KV_F16 && o->kv != TU_KV_BF16)
        return lib_refuse(to, "kv is %d, none of enum tu_kv", (int)o->kv);
    if (o->max_tokens > info->max_positions)
        return lib_refuse(to, "max_tokens is %zu, but the model's context %zu",
                          o->max_tokens, info->max_positions);
    if (o->chunk > MAX_CHUNK)
        return lib_refuse(to, "chunk is %zu (expected 0 to %d)", o->chunk,
                          MAX_CHUNK);
    if (o->max_tokens == 0) /* more of longrope would be another model */
        o->max_tokens = rope->type == ROPE_LONG
                            ? (size_t)rope->original_max_positions
                            : info->max_positions;
    if (o->chunk == 0)
        o->chunk = 512;
    if (o->n_threads == 0)
        o->n_threads = par_default();
    return 0;
}

int
tu_session_open(struct tu_session **session, struct tu_model *model,
                const struct tu_session_options *options, struct tu_err *to)
{
    static const enum dtype kv[] = { DT_F32, DT_F16, DT_BF16 };
    struct tu_session_options o = { .size = sizeof(o) };
    struct engine_options of_engine;
    struct err err = { 0 };
    struct tu_session *s;

    if (session)
        *session = NULL;
    if (lib_null(to, "tu_session_open", "session", session, "model", model,
                 NULL) < 0 ||
        (options &&
         lib_struct(&o, sizeof(o), options, "tu_session_options", to) < 0) ||
        check_options(&o, model, to) < 0)
        return -1;
    s = xcalloc(1, sizeof(*s));
    s->model = model;
    s->max_tokens = o.max_tokens;
    s->reach = model->model->config.n_layers;
    atomic_fetch_add(&model->n_users, 1);
    of_engine = (struct engine_options){ .chunk = o.chunk,
                                         .compute = (enum compute)o.compute,
                                         .kv = kv[o.kv] };
    if (par_open(&s->par, o.n_threads, &err) < 0 ||
        engine_open(&s->engine, model->model, s->par, &of_engine, &err) < 0) {
        tu_session_close(s);
        return lib_fail(to, &err);
    }
    s->session = session_new(s->engine, s->max_tokens);
    *session = s;
    return 0;
}

void
tu_session_close(struct tu_session *s)
{
    if (s && s->is_feeding)
        s->closed_inside = true;
    if (!s || s->is_feeding)
        return;
    session_close(s->session);
    engine_close(s->engine);
    par_close(s->par);
    tu_model_close(s->model);
    free(s);
}

/* A session that is there, and not in use below us. */
static int
check_session(const struct tu_session *s, const char *fn, struct tu_err *to)
{
    if (!s)
        return lib_refuse(to, "%s: session is NULL", fn);
    if (s->is_feeding)
        return lib_refuse(to, "%s: called by the session's tap", fn);
    return 0;
}

static int
check_feed(const struct tu_session *s, const int32_t *ids, size_t n,
           const float *logits, size_t n_floats, struct tu_err *to)
{
    size_t vocab = s->model->info.vocab_size;

    if (!ids && n > 0)
        return lib_refuse(to, "tu_session_feed: ids is NULL");
    if (!logits && n_floats > 0)
        return lib_refuse(to, "tu_session_feed: logits is NULL");
    if (n_floats % vocab != 0 || n_floats / vocab > n)
        return lib_refuse(to,
                          "room for %zu logits of %zu token%s (expected a "
                          "multiple of %zu, for at most each token)",
                          n_floats, n, n == 1 ? "" : "s", vocab);
    if (n > s->max_tokens - s->session->n)
        return lib_refuse(to,
                          "%zu token%s after %zu, but the session has room for "
                          "%zu",
                          n, n == 1 ? "" : "s", s->session->n, s->max_tokens);
    return 0;
}

static int
feed(struct tu_session *s, const int32_t *ids, size_t n, bool generated,
     float *logits, size_t n_floats, struct tu_err *to)
{
    const struct feed f = { s->session, ids, n,
                            n_floats / s->model->info.vocab_size, generated };
    int64_t need = s->fn && n_floats == 0 ? s->tap.last_layer + 1
                                          : (int64_t)s->model->info.n_layers;
    struct err err = { 0 };
    int rc;

    if (need > s->reach)
        return lib_refuse(to,
                          "tokens before went through %lld of %lld layers, as "
                          "a tap asked for no more (tu_session_reset)",
                          (long long)s->reach, (long long)need);
    s->is_feeding = true;
    rc = engine_feed(s->engine, &f, 1, s->fn ? &s->tap : NULL, logits, &err);
    s->is_feeding = false;
    if (rc < 0) {
        if (err.status == EX_DATAERR)
            err.status = TU_BAD_CALL;
        return lib_fail(to, &err);
    }
    if (n > 0)
        s->reach = need;
    if (!s->closed_inside)
        return 0;
    s->closed_inside = false;
    return lib_refuse(to, "tu_session_close: called by the session's tap");
}

int
tu_session_feed(struct tu_session *s, const int32_t *ids, size_t n,
                float *logits, size_t n_floats, struct tu_err *to)
{
    if (check_session(s, "tu_session_feed", to) < 0 ||
        check_feed(s, ids, n, logits, n_floats, to) < 0)
        return -1;
    return feed(s, ids, n, false, logits, n_floats, to);
}

int
tu_session_step(struct tu_session *s, int32_t id, float *logits,
                size_t n_floats, struct tu_err *to)
{
    if (check_session(s, "tu_session_step", to) < 0 ||
        check_feed(s, &id, 1, logits, n_floats, to) < 0)
        return -1;
    return feed(s, &id, 1, true, logits, n_floats, to);
}

size_t
tu_session_count(const struct tu_session *s)
{
    return s ? s->session->n : 0;
}

int
tu_session_reset(struct tu_session *s, struct tu_err *to)
{
    if (check_session(s, "tu_session_reset", to) < 0)
        return -1;
    session_close(s->session);
    s->session = session_new(s->engine, s->max_tokens);
    s->reach = s->model->model->config.n_layers;
    return 0;
}

/* ---- taps ---- */

static void
show(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    const struct tu_session *s = ctx;

    (void)session;
    if (layer <= s->tap.last_layer)
        s->fn(s->ctx, layer, first, n,
              tap_dim(&s->model->model->config, s->tap.point, layer), rows);
}

int
tu_hook(const char *name, enum tu_point *point, int64_t *layer,
        struct tu_err *to)
{
    struct str hint = { 0 };
    struct place place;

    if (lib_null(to, "tu_hook", "name", name, "point", point, "layer", layer,
                 NULL) < 0)
        return -1;
    if (!place_find(&place, name)) {
        place_hint(&hint, name);
        lib_refuse(to, "\"%s\" is not a hook point%s", name,
                   hint.n ? hint.s : "");
        str_free(&hint);
        return -1;
    }
    *point = (enum tu_point)place.point;
    *layer = place.layer;
    return 0;
}

int
tu_session_tap(struct tu_session *s, enum tu_point point, int64_t last_layer,
               tu_tap_fn *fn, void *ctx, struct tu_err *to)
{
    const struct place place = { (enum tap_point)point, last_layer, SIZE_MAX };
    struct str why = { 0 };
    int64_t n_layers, first, last;

    if (check_session(s, "tu_session_tap", to) < 0)
        return -1;
    n_layers = s->model->model->config.n_layers;
    if (fn && ((int)point < TU_RESID || point > TU_RESID_MID))
        return lib_refuse(to, "point is %d, none of enum tu_point", (int)point);
    place_layers(&place, n_layers, &first, &last);
    if (fn && (last_layer < first || last_layer > last))
        return lib_refuse(to, "last_layer is %lld, but the model has %lld",
                          (long long)last_layer, (long long)n_layers);
    if (fn && place_missing(&why, &s->model->model->config, &place)) {
        lib_refuse(to, "%s", why.s);
        str_free(&why);
        return -1;
    }
    s->fn = fn;
    s->ctx = ctx;
    s->tap = (struct tap){ (enum tap_point)point, last_layer, show, s, NULL };
    return 0;
}
