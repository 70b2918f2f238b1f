/* SPDX-License-Identifier: ISC */
/*
 * cmd/kvc-convert/convert: a header of safetensors, or any bytes as a
 * checkpoint; the .bin that is made of them is a sound one.
 */
#include <sys/stat.h>

#include "cmd/kvc-convert/cmd.h"
#include "core/format/kvc.h"
#include "core/out.h"
#include "test/fuzz/files.h"

static void
tell(void *ctx, const char *what)
{
    (void)ctx;
    MUST(*what);
}

static void
try(const char *path, int64_t layers)
{
    const char *output = fuzz_path("out.bin");
    struct convert_cmd cmd = { .input = path,
                               .output = output,
                               .dtype = -1,
                               .factor = -1,
                               .min_seq_len = -1,
                               .num_heads = -1,
                               .head_dim = -1,
                               .out_flags = OUT_FORCE,
                               .layers = layers };
    struct err err = { 0 };
    struct kvc k;
    struct stat st;

    if (convert(&cmd, &err) < 0) {
        MUST(err.status && *err.what);
        return;
    }
    MUST(kvc_open(&k, output, &err) == 0);
    /* numbers, and heads of blocks: a name is enough for 16 times 3 of them */
    MUST(stat(path, &st) == 0 &&
         k.map.size <= ((size_t)64 << 20) + 5000 * (size_t)st.st_size);
    kvc_check(&k, 1, tell, NULL);
    kvc_close(&k);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes all = { data, n };

    try(fuzz_st("in.safetensors", all), 0);
    try(fuzz_file("in.pth", all), n & 1);
    return 0;
}
