/* SPDX-License-Identifier: ISC */
/* core/model/rows: any bytes as rows: .npy, or raw, whole or by layers, in
 * batches of 3, from a row on. */
#include <math.h>

#include "core/model/rows.h"
#include "test/fuzz/files.h"

#define BATCH 3

static void
read_all(struct row_stream *in, bool by_layers)
{
    struct err err = { 0 };
    ssize_t n;

    for (int step = 0; step < 100 && (n = rows_batch(in, &err)) > 0; step++) {
        MUST(n <= BATCH && rows_after(in) >= in->taken + (uint64_t)n);
        if (step < 99) /* rows_close() would be a stop */
            rows_ahead(in);
        for (size_t l = 0; l < in->n_layers; l++)
            for (size_t i = 0; i < (size_t)n * in->d; i++)
                MUST(isfinite(rows_layer(in, l)[i]));
        MUST(in->n_layers == (by_layers ? 2 : 1));
    }
    MUST(!err.status || (err.status == EX_DATAERR && *err.what));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = { "a", "b" };
    unsigned how = n ? data[0] : 0;
    const char *path =
        fuzz_file("x.npy", (struct bytes){ data + (n > 0), n ? n - 1 : 0 });
    char *paths[] = { (char *)(uintptr_t)path };
    bool by_layers = how & 1, raw = how & 2;
    const struct row_options o = {
        .paths = paths,
        .n_paths = 1,
        .dim = raw ? 2 : 0,
        .dtype = raw ? (how & 4 ? DT_BF16 : DT_F16) : -1,
        .tokens = raw && by_layers ? 5 : 0,
        .n_layers = by_layers ? 2 : 0,
        .layers = by_layers ? names : NULL,
        .skip_bad = !by_layers && how & 8,
    };
    struct row_stream in = { 0 };
    struct err err = { 0 };

    if (rows_open(&in, &o, &err) < 0 || rows_room(&in, BATCH, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
    } else {
        if (how & 16)
            (void)rows_wrap(&in, &err);
        if (!(how & 32) || rows_skip(&in, how >> 6, &err) == 0)
            read_all(&in, by_layers);
    }
    rows_close(&in);
    return 0;
}
