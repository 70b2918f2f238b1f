/*
 * Checkpoints of torch before 1.6: five pickles in a row (a magic number, the
 * protocol, the machine, the tree, the keys of the storages), then for each
 * key its number of elements in 8 bytes and its bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pickle_close.h"
#include "cmd/kvc-convert/pth.h"
#include "cmd/kvc-convert/pth_impl.h"
#include "cmd/kvc-convert/rebuild.h"
#include "core/le.h"
#include "core/mem.h"

#define PROTOCOL 1001

/* 0x1950a86a20f9469cfc6c */
static const uint8_t magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                 0x20, 0x6a, 0xa8, 0x50, 0x19 };

static int
read_head(struct pth *pth, size_t *at, struct err *err)
{
    struct pickle *p = &pth->pickle;
    const struct pth_value *v = pickle_run(p, *at, at);
    const struct pth_value *little;

    if (!v)
        return -1;
    if (v->kind != PK_LONG || v->n != sizeof(magic) ||
        memcmp(v->u.s, magic, sizeof(magic)) != 0)
        return err_set(err, EX_DATAERR,
                       "%s: is a pickle, but not one of torch.save() (its "
                       "magic number is missing)",
                       pth->path);
    v = pickle_run(p, *at, at);
    if (!v)
        return -1;
    if (v->kind != PK_INT)
        return pickle_bad(p,
                          "torch.save()'s protocol is no integer "
                          "(expected %d)",
                          PROTOCOL);
    if (v->u.i != PROTOCOL)
        return pickle_bad(p, "torch.save()'s protocol is %lld (expected %d)",
                          (long long)v->u.i, PROTOCOL);
    v = pickle_run(p, *at, at);
    if (!v || pickle_close(p, v) < 0)
        return -1;
    little = pth_get(v, "little_endian");
    if (little && little->kind == PK_BOOL && !little->u.i)
        return err_set(err, EX_DATAERR,
                       "%s: its byte order is big (expected little)",
                       pth->path);
    return 0;
}

static int
key_cmp(const struct pth_value *a, const struct pth_value *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return memcmp(a->u.s, b->u.s, a->n);
}

static int
by_key(const void *a, const void *b)
{
    const struct pth_storage *const *x = a, *const *y = b;

    return key_cmp((*x)->key, (*y)->key);
}

/* The storages of the tree, sorted by key. */
static struct pth_storage **
sorted(struct pickle *p, size_t *n)
{
    struct pth_storage **list;
    size_t i = 0;

    *n = 0;
    for (struct pth_storage *s = p->storages; s; s = s->next)
        ++*n;
    list = pickle_alloc(p, *n, sizeof(*list));
    if (!list)
        return NULL;
    for (struct pth_storage *s = p->storages; s; s = s->next)
        list[i++] = s;
    qsort(list, *n, sizeof(*list), by_key);
    return list;
}

/* The first storage of that key; 'n' if there is none. */
static size_t
find(struct pth_storage *const *list, size_t n, const struct pth_value *key)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (key_cmp(list[mid]->key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && key_cmp(list[lo]->key, key) == 0 ? lo : n;
}

/* The bytes of one key, at '*at', are those of all storages in list[i..n);
 * they are added to '*sum'. */
static int
read_storage(struct pickle *p, struct pth_storage **list, size_t n, size_t *at,
             size_t *sum)
{
    const struct pth_value *key = list[0]->key;
    size_t left = p->size - *at, count, nbytes;

    p->op = *at;
    if (left < 8)
        return pickle_bad(p, "the file ends, but storage %.*s should be here",
                          (int)key->n, key->u.s);
    count = le64(p->data + *at);
    if (!size_mul(count, list[0]->size, &nbytes) || nbytes > left - 8)
        return pickle_bad(p,
                          "storage %.*s has %zu elements of %zu bytes, but %zu "
                          "bytes are there",
                          (int)key->n, key->u.s, count, list[0]->size,
                          left - 8);
    for (size_t i = 0; i < n && key_cmp(list[i]->key, key) == 0; i++) {
        if (list[i]->total != count || list[i]->size != list[0]->size)
            return pickle_bad(p,
                              "storage %.*s has %zu elements of %zu bytes "
                              "(expected %zu of %zu, says byte %zu)",
                              (int)key->n, key->u.s, count, list[0]->size,
                              list[i]->total, list[i]->size, list[i]->at);
        if (list[i]->data)
            return pickle_bad(p, "storage %.*s is there twice", (int)key->n,
                              key->u.s);
        list[i]->data = p->data + *at + 8;
    }
    *at += 8 + nbytes;
    *sum += nbytes;
    return 0;
}

static int
read_storages(struct pickle *p, const struct pth_value *keys, size_t at,
              size_t *sum)
{
    size_t n;
    struct pth_storage **list = sorted(p, &n);

    if (!list)
        return -1;
    for (size_t k = 0; k < keys->u.list->n; k++) {
        const struct pth_value *key = keys->u.list->items[k];
        size_t i = key->kind == PK_STR ? find(list, n, key) : n;

        if (i == n)
            return pickle_bad(p, "key %zu of the storages is not in the tree",
                              k);
        if (read_storage(p, list + i, n - i, &at, sum) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (!list[i]->data) {
            p->op = list[i]->at;
            return pickle_bad(p, "storage %.*s is not in the file",
                              (int)list[i]->key->n, list[i]->key->u.s);
        }
    return 0;
}

int
pth_legacy_open(struct pth *pth, struct err *err)
{
    struct pickle *p = &pth->pickle;
    const struct pth_value *keys;
    size_t at = 0;

    p->data = pth->map.data;
    p->size = pth->map.size;
    p->where = "";
    if (read_head(pth, &at, err) < 0)
        return -1;
    pth->root = pickle_run(p, at, &at);
    keys = pth->root ? pickle_run(p, at, &at) : NULL;
    if (!keys)
        return -1;
    if (keys->kind != PK_LIST)
        return pickle_bad(p, "the storages' keys are no list");
    return read_storages(p, keys, at, &pth->nbytes);
}
