/* SPDX-License-Identifier: ISC */
/*
 * cmd/lut-precompute/target: a hostile config.json and header of a
 * model, and --layers; the layers that are planned can be opened, or
 * are refused.
 */
#include "cmd/lut-precompute/target.h"
#include "test/fuzz/files.h"

static void
make_plan(const struct precompute_cmd *cmd, const struct target_model *model)
{
    struct err err = { 0 };
    struct target_layer target;
    struct table_plan plan;

    if (plan_make(&plan, cmd, model, &err) < 0) {
        MUST(*err.what);
        plan_free(&plan);
        return;
    }
    for (size_t i = 0; i < plan.n; i++) {
        int rc = target_open(&target, model, plan.work[i].layer, &err);

        MUST(rc == 1 || (rc < 0 && *err.what));
        MUST(rc < 0 || (target.n_parts && target.in && target.out));
        if (rc == 1)
            target_close(&target);
    }
    plan_free(&plan);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, layers;
    struct precompute_cmd cmd = { .model = fuzz_path("."), .fuse_qkv = n & 1 };
    struct target_model model;
    struct err err = { 0 };

    fuzz_file("config.json", next_part(&rest));
    fuzz_st("model.safetensors", next_part(&rest));
    cmd.sae = fuzz_st("sae.safetensors", (struct bytes){ data, 0 });
    layers = next_part(&rest);
    if (target_model_open(&model, fuzz_dir, &err) < 0) {
        MUST(*err.what);
        return 0;
    }
    cmd.layers = strndup((const char *)layers.data, layers.n);
    make_plan(&cmd, &model);
    free((char *)(uintptr_t)cmd.layers);
    target_model_close(&model);
    return 0;
}
