/* SPDX-License-Identifier: ISC */
/*
 * cmd/hf-infer/model: a hostile config.json and header of model.safetensors;
 * a small model that opens can be run, and a vision encoder.
 */
#include "core/model/model.h"
#include "core/model/engine.h"
#include "core/model/vision.h"

#include "test/fuzz/files.h"

#define SMALL 128

static bool
is_small(const struct config *c)
{
    return c->vocab_size <= SMALL && c->n_layers <= SMALL &&
           c->hidden_size <= SMALL && c->intermediate_size <= SMALL &&
           c->n_heads * c->head_dim <= SMALL && c->n_experts <= SMALL &&
           c->expert_size <= SMALL;
}

static void
run(const struct model *model)
{
    const struct engine_options options = { .chunk = 2, .kv = DT_F32 };
    const int32_t ids[] = { 0, 0, 0 };
    float logits[3 * SMALL];
    struct engine *engine;
    struct session *session;
    struct err err;

    MUST(engine_open(&engine, model, NULL, &options, &err) == 0);
    session = session_new(engine, 3);
    MUST(session_feed(session, ids, 3, logits, 3, &err) ==
         (session->max_tokens < 3 ? -1 : 0));
    session_close(session);
    engine_close(engine);
}

/* Does nothing if it is of tokens. */
static void
run_vision(void)
{
    static const float pixels[3 * SMALL * SMALL];
    const struct vision_options options = { .batch = 1 };
    const struct vision_shape *s;
    struct vision *v;
    struct err err = { 0 };
    float features[SMALL];

    if (vision_open(&v, fuzz_dir, NULL, &options, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
        return;
    }
    s = &v->shape;
    if (is_small(&v->model->config) && s->n_features <= SMALL &&
        s->height <= SMALL && s->width <= SMALL)
        vision_run(v, pixels, 1, NULL, features);
    vision_close(v);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n };
    struct model *model;
    struct err err = { 0 };

    fuzz_file("config.json", next_part(&rest));
    fuzz_st("model.safetensors", next_part(&rest));
    if (model_open(&model, fuzz_dir, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
        run_vision();
        return 0;
    }
    MUST(!model_linear(model, "model.layers.9999.mlp.up_proj"));
    if (is_small(&model->config))
        run(model);
    model_close(model);
    return 0;
}
