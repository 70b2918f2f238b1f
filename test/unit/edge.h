/* SPDX-License-Identifier: ISC */
/* Memory that ends where nothing more may be read, for the tests of kernels. */
#ifndef TEST_UNIT_EDGE_H
#define TEST_UNIT_EDGE_H

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/le.h"
#include "test/unit/isa.h"

/* edge_make() returns the end of 'nbytes', whole pages; none follows it. */
static char *
edge_make(size_t nbytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, nbytes + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p + nbytes, page, PROT_NONE) < 0)
        exit(1);
    return p + nbytes;
}

/* edge_weights() lays n random numbers before 'end'; *v: their values. */
static __attribute__((unused)) char *
edge_weights(char *end, enum dtype dtype, size_t n, double *v)
{
    char *w = end - n * (dtype == DT_F32 ? 4 : 2);

    for (size_t i = 0; i < n; i++) {
        float f = rnd();

        if (dtype == DT_F32)
            put_le32(w + 4 * i, f32_bits(f));
        else
            put_le16(w + 2 * i,
                     dtype == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f));
        v[i] = dtype_get(dtype, w, i);
    }
    return w;
}

#endif
