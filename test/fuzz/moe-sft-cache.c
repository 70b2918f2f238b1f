/* SPDX-License-Identifier: ISC */
/* cmd/moe-sft/cache: a hostile header of a forward's cache. */
#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/cache.h"
#include "cmd/moe-sft/run.h"
#include "test/fuzz/files.h"

/* A run's sizes are all that reading asks for, and digests. */
static void
run_new(struct sft_run *run)
{
    static uint16_t zeros[3 * 2];
    static struct weight m[3];
    struct err err;

    for (int i = 0; i < 3; i++)
        m[i] = (struct weight){ zeros, DT_BF16, .ld = i == 2 ? 3 : 2 };
    *run = (struct sft_run){ .base = { .layer = -1,
                                       .n_experts = 1,
                                       .hidden = 2,
                                       .intermediate = 3,
                                       .matrices = m } };
    MUST(adapter_new(&run->adapter, &run->base, 1, 1, &err) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_st("cache", (struct bytes){ data, n });
    struct err err = { 0 };
    struct cache cache;
    struct sft_run run;

    run_new(&run);
    if (cache_open(&cache, &run, path, -1, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
    } else {
        MUST(cache.batch.hidden == 2 &&
             cache.n_rows <= cache.batch.qlen * cache.batch.top_k);
        cache_close(&cache);
    }
    adapter_close(&run.adapter);
    return 0;
}
