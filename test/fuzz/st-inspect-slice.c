/* SPDX-License-Identifier: ISC */
/* cmd/st-inspect/slice: any word as --slice of a shape; what is taken lies in
 * the tensor. */
#include "cmd/st-inspect/slice.h"
#include "test/fuzz/files.h"

__extension__ typedef __int128 int128;

static void
check(const struct slice *s, const uint64_t *shape)
{
    uint64_t n = 1;

    for (size_t i = 0; i < s->n_dims; i++) {
        const struct slice_axis *a = &s->axis[i];
        int128 last = a->start;

        n *= a->count;
        if (a->count == 0)
            continue;
        last += (int128)a->step * (int128)(a->count - 1);
        MUST(a->start >= 0 && (uint64_t)a->start < shape[i]);
        MUST(last >= 0 && (uint64_t)last < shape[i]);
        MUST(a->keep || a->count == 1);
    }
    MUST(n == s->n);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint64_t shape[] = { 3, 1, 70000, 0, INT64_MAX };
    size_t n_dims = n ? data[0] % 6 : 0;
    char *text = strndup((const char *)data + (n > 0), n - (n > 0));
    struct err err = { 0 };
    struct slice s;

    if (slice_parse(&s, text, n_dims, shape, &err) == 0)
        check(&s, shape);
    else
        MUST(err.status == TU_USAGE && *err.what);
    slice_free(&s);
    free(text);
    return 0;
}
