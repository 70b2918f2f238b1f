/* SPDX-License-Identifier: ISC */
/* cmd/moe-sft's activations: any bytes as a .npy, and as the header of a
 * tensor's file; all batches of what opens can be read. */
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/data.h"
#include "cmd/moe-sft/verbs.h"
#include "test/fuzz/files.h"

static void
try(const char *path)
{
    static const uint16_t zeros[3] = { 0 };
    const struct base base = {
        .path = "b",
        .n_experts = 1,
        .hidden = 3,
        .top_k = 1,
        .router = { .weight = { .data = zeros, .dtype = DT_BF16, .ld = 3 },
                    .n = 1,
                    .k = 3 },
    };
    const struct cmd cmd = { .input = path, .length = 2, .train.target = path };
    struct err err = { 0 };
    struct batch batch;
    struct data data;

    if (data_open(&data, &cmd, &base, NULL, &err) < 0)
        MUST(err.status == EX_DATAERR && *err.what);
    else
        for (uint64_t i = 0; i < data.n && i < 100; i++) {
            MUST(data_get(&data, i, &batch, &err) == 1);
            MUST(batch.qlen >= 1 && batch.qlen <= 2 && batch.expert_ids);
            batch_close(&batch);
        }
    data_close(&data);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char tensor[300];

    try(fuzz_file("x.npy", (struct bytes){ data, n }));
    snprintf(tensor, sizeof(tensor), "%s:x",
             fuzz_st("x.safetensors", (struct bytes){ data, n }));
    try(tensor);
    return 0;
}
