/*
 * cmd/kvc-convert/pickle with torch's globals on any bytes.  A tree that is
 * accepted can be walked by recursion, finds its keys, and has no tensor that
 * leaves its storage, by arithmetic in 128 bits.
 */
#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pickle_close.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pickle_global.h"
#include "cmd/kvc-convert/rebuild.h"
#include "test/fuzz/must.h"

__extension__ typedef unsigned __int128 uint128;

static void
check_tensor(const struct pth_tensor *t)
{
    size_t size = dtype_table[t->dtype].bits / 8;
    uint128 n = 1, last = t->offset;

    MUST(t->n_dims <= PTH_MAX_DIMS);
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->shape[i] == 0) {
            MUST(t->n_elements == 0);
            return;
        }
    for (size_t i = 0; i < t->n_dims; i++) {
        MUST(t->shape[i] > 0 && t->strides[i] >= 0);
        n *= (uint64_t)t->shape[i];
        MUST(n <= INT64_MAX);
        last += (uint128)(t->shape[i] - 1) * (uint64_t)t->strides[i];
        MUST(last <= UINT64_MAX);
    }
    MUST(n == t->n_elements && n * size <= INT64_MAX);
    MUST((last + 1) * size <= (uint128)t->storage->n * t->storage->size);
    MUST(t->storage->base + t->storage->n <= t->storage->total);
}

static void
check_key(const struct pth_value *dict, size_t i)
{
    char key[PICKLE_MAX_KEY + 1];
    size_t n;
    const char *s = pth_str(pth_key(dict, i), &n);

    if (!s || n > PICKLE_MAX_KEY || memchr(s, '\0', n))
        return;
    memcpy(key, s, n);
    key[n] = '\0';
    MUST(pth_get(dict, key) == pth_item(dict, i));
}

static void
check(const struct pth_value *v, size_t depth, size_t *n)
{
    MUST(depth <= PTH_MAX_DEPTH && ++*n <= PTH_MAX_VALUES);
    if (pth_kind(v) == PTH_TENSOR)
        check_tensor(pth_tensor(v));
    for (size_t i = 0; i < pth_n(v); i++) {
        if (pth_kind(v) == PTH_DICT)
            check_key(v, i);
        check(pth_item(v, i), depth + 1, n);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct pickle p = { .path = "f",
                        .where = "",
                        .data = data,
                        .size = size,
                        .err = &err,
                        .call = rebuild_call,
                        .persistent = rebuild_persistent };
    struct pth_value *v;
    size_t end = 0, n = 0;

    v = pickle_run(&p, 0, &end);
    if (!v || pickle_close(&p, v) < 0) {
        MUST(err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3));
    } else {
        MUST(end > 0 && end <= size);
        check(v, 0, &n);
    }
    MUST(p.memory <= PICKLE_MAX_MEMORY);
    for (const struct pth_global *g = p.globals; g; g = g->next)
        MUST(g->at < size && pickle_listed(g->module, g->name));
    pickle_free(&p);
    return 0;
}
