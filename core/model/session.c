#include "core/model/session.h"

#include <stdlib.h>

#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/model.h"

struct session *
session_new(struct engine *engine, size_t max_tokens)
{
    const struct config *c = &engine->model->config;
    struct session *s = xcalloc(1, sizeof(*s));

    s->engine = engine;
    s->max_tokens = max_tokens;
    s->kv.n_layers = (size_t)c->n_layers;
    s->kv.n_heads = (size_t)c->n_kv_heads;
    s->kv.head_dim = (size_t)c->head_dim;
    s->kv.dtype = engine->options.kv;
    return s;
}

void
session_close(struct session *s)
{
    if (!s)
        return;
    kv_free(&s->kv);
    free(s);
}

size_t
session_length(const struct session *session)
{
    return session->n;
}

size_t
session_cached(const struct session *s)
{
    return s->n - s->gone;
}

int
session_feed(struct session *s, const int32_t *ids, size_t n, float *logits,
             size_t n_logits, struct err *err)
{
    const struct feed feed = { s, ids, n, n_logits, false };

    return engine_feed(s->engine, &feed, 1, logits, err);
}

int
session_step(struct session *s, int32_t id, float *logits, struct err *err)
{
    const struct feed feed = { s, &id, 1, 1, true };

    return engine_feed(s->engine, &feed, 1, logits, err);
}
