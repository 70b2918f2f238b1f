/* SPDX-License-Identifier: ISC */
/*
 * The .npy reader on any bytes.  What is accepted must keep the promises of
 * core/format/npy.h and come back from its own header.
 */
#include "core/format/npy.h"

#include <stdlib.h>
#include <string.h>

#include "test/fuzz/must.h"

static void
check(const struct npy *npy, size_t size)
{
    uint64_t n = 1, nbytes = 0;
    struct str s = { 0 };
    struct err err = { 0 };
    struct npy again;

    MUST(npy->data_offset <= size && npy->n_dims <= NPY_MAX_DIMS);
    MUST(npy->note_offset + npy->note_nbytes <= npy->data_offset);
    for (size_t i = 0; i < npy->n_dims; i++)
        n *= npy->shape[i];
    MUST(n == npy->n_elements);
    MUST(dtype_nbytes(npy->dtype, n, &nbytes) && nbytes == npy->nbytes);
    MUST(npy_header(&s, npy->dtype, npy->n_dims, npy->shape, &err) == 0);
    MUST(s.n % 64 == 0);
    MUST(npy_parse(&again, s.s, s.n, "g", &err) == 0);
    MUST(again.dtype == npy->dtype && again.n_dims == npy->n_dims &&
         again.nbytes == npy->nbytes && again.data_offset == s.n &&
         !memcmp(again.shape, npy->shape, npy->n_dims * sizeof(n)));
    str_free(&s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct npy npy;

    if (npy_parse(&npy, data, size, "f", &err) < 0)
        MUST(err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3));
    else
        check(&npy, size);
    return 0;
}
