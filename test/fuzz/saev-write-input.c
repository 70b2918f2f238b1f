/* SPDX-License-Identifier: ISC */
/* cmd/saev-write/input: any bytes as a stream of activations. */
#include "cmd/saev-write/input.h"
#include "test/fuzz/files.h"

static void
read_all(struct float_input *in, size_t nbytes, size_t per_img)
{
    static const struct saev saev = { .d = 3, .img_nbytes = 6 * 4 };
    size_t n_imgs = 0, n = 0;
    struct err err = { 0 };
    float x[7];
    ssize_t got;
    int rc = input_header(in, &saev, &n_imgs, &err);

    if (rc < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
        return;
    }
    while (input_more(in, &err) > 0) {
        got = input_read(in, x, 7, &err);
        MUST(got >= 0);
        n += (size_t)got;
        if (got < 7)
            break;
    }
    MUST(dtype_nbytes(in->dtype, n, &n) && n <= nbytes);
    MUST(rc == 0 || n_imgs < SIZE_MAX / per_img);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("x.npy", (struct bytes){ data, n });
    struct float_input in;
    struct err err;

    MUST(input_open(&in, path, n & 1 ? DT_F16 : DT_F32, &err) == 0);
    read_all(&in, n, 6);
    input_close(&in);
    return 0;
}
