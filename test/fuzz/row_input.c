/* SPDX-License-Identifier: ISC */
/* core/model/row_input: any bytes as x, a .npy, and as the header of a tensor's
 * file; as many rows come as were promised. */
#include "core/model/row_input.h"
#include "test/fuzz/files.h"

static void
try(const char *path, int dtype)
{
    struct row_input in = { 0 };
    struct err err = { 0 };
    uint64_t rows = 0;
    float x[4 * 3];
    ssize_t n = -1;

    if (row_input_open(&in, path, dtype, 3, 4, &err) == 0)
        while ((n = row_input_rows(&in, x, 4, &err)) > 0)
            rows += (size_t)n;
    MUST(n == 0 || (*err.what && err.status));
    MUST(n != 0 || rows == in.n_rows);
    row_input_close(&in);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("x.npy", (struct bytes){ data, n });
    char tensor[300];

    try(path, -1);
    try(path, DT_F16);
    path = fuzz_st("x.safetensors", (struct bytes){ data, n });
    try(path, -1);
    snprintf(tensor, sizeof(tensor), "%s:x", path);
    try(tensor, -1);
    return 0;
}
