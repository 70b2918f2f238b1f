/* SPDX-License-Identifier: ISC */
/* core/format/kvc: any bytes are a file or an error; what opens can be checked
 * and its small MLPs run. */
#include "core/format/kvc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/model/compressor.h"
#include "test/fuzz/must.h"

#define MAX_DIM 256

static void
tell(void *ctx, const char *what)
{
    *(size_t *)ctx += strlen(what);
}

static void
run(const struct kvc *k)
{
    struct compressor_mlp m;
    struct err err;
    float *x, *scratch;

    if (compressor_mlp_load(&m, k, 0, KVC_TEXT_K, &err) < 0)
        return;
    if (m.dims[0] <= MAX_DIM && m.dims[1] <= MAX_DIM && m.dims[2] <= MAX_DIM) {
        size_t rows = m.dims[0] / m.dims[KVC_SLOTS] + 1;

        x = calloc(rows, m.dims[KVC_SLOTS] * sizeof(*x));
        scratch = calloc(compressor_mlp_scratch(&m), sizeof(*scratch));
        compressor_mlp_run(&m, x, x, rows, scratch);
        free(x);
        free(scratch);
    }
    compressor_mlp_free(&m);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char path[] = "/tmp/kvc-fuzz.XXXXXX";
    static int fd = -1;
    struct kvc k;
    struct err err;
    size_t told = 0;

    if (fd < 0)
        fd = mkstemp(path);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, n, 0) != (ssize_t)n)
        return 0;
    if (kvc_open(&k, path, &err) < 0)
        return 0;
    kvc_check(&k, 1, tell, &told);
    run(&k);
    kvc_close(&k);
    return 0;
}
