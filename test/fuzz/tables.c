/* SPDX-License-Identifier: ISC */
/*
 * --lut: a hostile metadata.json, header of a table's tensors, and
 * --lut-layers.  The model is a seed of model.
 */
#include "core/model/tables.h"
#include "core/model/model.h"

#include "test/fuzz/files.h"

#define MODEL "test/fuzz/model.seeds/dense"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, globs;
    struct tables_options options = { .ratio = 0.5, .tau = -1 };
    struct tables *tables;
    struct model *model;
    struct err err = { 0 };
    char *list;

    MUST(model_open(&model, fuzz_model(MODEL), &err) == 0);
    fuzz_file("metadata.json", next_part(&rest));
    fuzz_st("t.lut.safetensors", next_part(&rest));
    globs = next_part(&rest);
    list = strndup((const char *)globs.data, globs.n);
    options.layers = globs.n ? list : NULL;
    if (tables_open(&tables, model, fuzz_dir, &options, &err) < 0)
        MUST(err.status == EX_DATAERR || err.status == EX_NOINPUT);
    else
        tables_close(tables);
    model_close(model);
    free(list);
    return 0;
}
