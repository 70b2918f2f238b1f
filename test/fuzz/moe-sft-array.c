/* cmd/moe-sft's activations: any bytes as a .npy, and as the header of a
 * tensor's file; all of what opens can be read. */
#include "cmd/moe-sft/train.h"

#include "test/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
try(const char *path, size_t cols)
{
    struct err err = { 0 };
    struct array a;

    if (array_open(&a, path, cols, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
    } else {
        size_t n = a.rows * a.cols * (dtype_table[a.dtype].bits / 8), sum = 0;

        MUST(!cols || a.cols == cols);
        for (size_t i = 0; i < n; i++)
            sum += a.data[i];
        MUST(sum <= n * 255);
    }
    array_close(&a);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char tensor[300];

    try(fuzz_file("x.npy", (struct bytes){ data, n }), 0);
    snprintf(tensor, sizeof(tensor), "%s:x",
             fuzz_st("x.safetensors", (struct bytes){ data, n }));
    try(tensor, 3);
    return 0;
}
