/* SPDX-License-Identifier: ISC */
/*
 * core/format/pickle with torch's globals on any bytes.  A tree that is
 * accepted can be walked by recursion, finds its keys, and has no tensor that
 * leaves its storage, by arithmetic in 128 bits.
 */
#include "core/format/pth.h"

#include <stdlib.h>
#include <string.h>

#include "test/fuzz/must.h"

__extension__ typedef unsigned __int128 uint128;

static void
check_tensor(const struct pth_tensor *t)
{
    size_t size = dtype_size(t->dtype);
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
}

static void
check_key(const struct pth_value *dict, size_t i)
{
    char key[PTH_MAX_KEY + 1];
    size_t n;
    struct pth_value **pair = pth_items(dict, &n) + i;

    n = pair[0]->n;
    if (pair[0]->kind != PTH_STR || n > PTH_MAX_KEY ||
        memchr(pair[0]->u.s, '\0', n))
        return;
    memcpy(key, pair[0]->u.s, n);
    key[n] = '\0';
    MUST(pth_get(dict, key) == pair[1]);
}

static void
check(const struct pth_value *v, size_t depth, size_t *n)
{
    size_t n_items;
    struct pth_value **items = pth_items(v, &n_items);

    MUST(depth <= PICKLE_MAX_DEPTH && ++*n <= PICKLE_MAX_VALUES);
    if (v->kind == PTH_TENSOR)
        check_tensor(v->u.tensor);
    for (size_t i = 0; i < n_items; i++) {
        if (v->kind == PTH_DICT && i % 2 == 0)
            check_key(v, i);
        check(items[i], depth + 1, n);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct pickle p = {
        .path = "f", .where = "", .data = data, .size = size, .err = &err
    };
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
