/* SPDX-License-Identifier: ISC */
/*
 * cmd/moe-sft's adapters: a hostile adapter_config.json and header of PEFT's
 * tensors, or that alone: our own file.  What opens can be read, and comes back
 * from our file as it was.
 */
#include "cmd/moe-sft/adapter.h"
#include "core/out.h"
#include "test/fuzz/files.h"

static void
digest(const struct expert_adapter *a, char hex[HASH_MAX_HEX])
{
    struct hash *hash = hash_new(HASH_XXH3);

    adapter_digest(a, hash);
    hash_end(hash, hex);
}

static void
check(struct expert_adapter *a)
{
    const char *path = fuzz_path("again.safetensors");
    char first[HASH_MAX_HEX], again[HASH_MAX_HEX];
    struct expert_adapter b;
    struct err err;

    MUST(a->n_experts && a->rank && a->hidden && a->intermediate);
    digest(a, first);
    MUST(adapter_write(a, path, OUT_FORCE, &err) == 0);
    MUST(adapter_open(&b, path, NULL, &err) == 0);
    digest(&b, again);
    MUST(!strcmp(first, again) && a->layer == b.layer);
    adapter_close(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, first = next_part(&rest);
    const char *path = fuzz_path("peft");
    struct expert_adapter a;
    struct err err = { 0 };

    mkdir(path, 0700);
    if (rest.n) {
        fuzz_file("peft/adapter_config.json", first);
        fuzz_st("peft/adapter_model.safetensors", next_part(&rest));
    } else {
        path = fuzz_st("stacked.safetensors", first);
    }
    if (adapter_open(&a, path, NULL, &err) < 0) {
        MUST((err.status == EX_DATAERR || err.status == TU_USAGE) && *err.what);
        return 0;
    }
    check(&a);
    adapter_close(&a);
    return 0;
}
