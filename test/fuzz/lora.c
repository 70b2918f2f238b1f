/* SPDX-License-Identifier: ISC */
/*
 * --lora: a hostile adapter_config.json and header of the adapter's tensors,
 * or that alone: moe-sft's file.  The model is a seed of model.
 */
#include "core/model/lora.h"
#include "core/model/model.h"

#include "test/fuzz/files.h"

#define MODEL "test/fuzz/model.seeds/moe"

static void
check(const struct model *m)
{
    for (const struct adapter *a = m->adapters; a; a = a->next)
        for (size_t i = 0; i < a->n_parts; i++) {
            const struct lora *l = &a->parts[i];

            MUST(l->a.w.data && l->b.w.data && l->a.out == l->b.in &&
                 l->a.out > 0);
        }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, first = next_part(&rest);
    const char *path = fuzz_path("peft");
    struct model *model;
    struct err err = { 0 };

    mkdir(path, 0700);
    MUST(model_open(&model, fuzz_model(MODEL), &err) == 0);
    if (rest.n) {
        fuzz_file("peft/adapter_config.json", first);
        fuzz_st("peft/adapter_model.safetensors", next_part(&rest));
    } else {
        path = fuzz_st("stacked.safetensors", first);
    }
    if (lora_open(model, path, &err) < 0)
        MUST(err.status == EX_DATAERR && *err.what);
    else
        check(model);
    model_close(model);
    return 0;
}
