/* SPDX-License-Identifier: ISC */
/* cmd/moe-sft/base: a hostile config.json and header of base weights, the
 * layer named or not; what opens can be read, all of it. */
#include "cmd/moe-sft/base.h"
#include "test/fuzz/files.h"

static void
try(int64_t layer)
{
    struct hash *hash;
    struct err err = { 0 };
    struct base base;

    if (base_open(&base, fuzz_dir, layer, &err) < 0) {
        MUST((err.status == EX_DATAERR || err.status == TU_USAGE) && *err.what);
        return;
    }
    MUST(base.n_experts && base.hidden && base.intermediate);
    hash = hash_new(HASH_XXH3);
    base_digest(&base, hash);
    hash_free(hash);
    MUST(base_nbytes(&base) <= FUZZ_MAX_DATA);
    base_close(&base);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n };

    fuzz_file("config.json", next_part(&rest));
    fuzz_st("model.safetensors", next_part(&rest));
    try(-1);
    try(3);
    return 0;
}
