/*
 * Checkpoints of torch before 1.6: five pickles in a row (a magic number, the
 * protocol, the machine, the tree, the keys of the storages), then for each
 * key its number of elements in 8 bytes and its bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pth.h"
#include "core/le.h"
#include "core/mem.h"

#define PROTOCOL 1001

/* 0x1950a86a20f9469cfc6c */
static const uint8_t magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                 0x20, 0x6a, 0xa8, 0x50, 0x19 };

static int
by_key(const void *a, const void *b)
{
    const struct pth_storage *const *x = a, *const *y = b;

    return pickle_key_cmp((*x)->key, (*y)->key);
}

/* Finds the bytes of each storage: those of a key are for all storages that
 * have it.  '*sum' is how many they are. */
static int
read_storages(struct pickle *p, const struct pth_value *keys, size_t at,
              size_t *sum)
{
    struct pth_storage **list, **found, *s;
    size_t n = 0, i = 0, n_keys;
    struct pth_value **key = pth_items(keys, &n_keys);

    for (s = p->storages; s; s = s->next)
        n++;
    list = pickle_alloc(p, n, sizeof(*list));
    if (!list)
        return -1;
    for (s = p->storages; s; s = s->next)
        list[i++] = s;
    qsort(list, n, sizeof(*list), by_key);
    for (size_t k = 0; k < n_keys; k++, key++) {
        const struct pth_storage probe = { .key = *key }, *pointer = &probe;
        const char *name = (*key)->u.s;
        int name_n = (int)(*key)->n;
        size_t left = p->size - at, count, nbytes;

        found = (*key)->kind == PTH_STR
                    ? bsearch(&pointer, list, n, sizeof(*list), by_key)
                    : NULL;
        if (!found)
            return pickle_bad(p, "key %zu of the storages is not in the tree",
                              k);
        while (found > list && by_key(found - 1, found) == 0)
            found--;
        s = *found;
        p->op = at;
        if (left < 8)
            return pickle_bad(p,
                              "the file ends, but storage %.*s should be here",
                              name_n, name);
        count = le64(p->data + at);
        if (!size_mul(count, s->size, &nbytes) || nbytes > left - 8)
            return pickle_bad(p,
                              "storage %.*s has %zu elements of %zu bytes, but "
                              "%zu bytes are left",
                              name_n, name, count, s->size, left - 8);
        for (; found < list + n && by_key(found, &s) == 0; found++) {
            if ((*found)->total != count || (*found)->size != s->size)
                return pickle_bad(p,
                                  "storage %.*s has %zu elements of %zu bytes "
                                  "(expected %zu of %zu, says byte %zu)",
                                  name_n, name, count, s->size, (*found)->total,
                                  (*found)->size, (*found)->at);
            if ((*found)->data)
                return pickle_bad(p, "storage %.*s occurs twice", name_n, name);
            (*found)->data = p->data + at + 8;
        }
        at += 8 + nbytes;
        *sum += nbytes;
    }
    for (i = 0; i < n; i++)
        if (!list[i]->data) {
            p->op = list[i]->at;
            return pickle_bad(p, "storage %.*s is not in the file",
                              (int)list[i]->key->n, list[i]->key->u.s);
        }
    return 0;
}

struct pth_value *
pth_legacy(struct pickle *p, size_t *nbytes)
{
    size_t at = 0;
    struct pth_value *root, *v = pickle_run(p, at, &at);
    const struct pth_value *little;

    if (!v)
        return NULL;
    if (v->kind != PTH_LONG || v->n != sizeof(magic) ||
        memcmp(v->u.s, magic, sizeof(magic)) != 0) {
        err_data(p->err, p->path,
                 "is a pickle, but not one of torch.save() (its magic number "
                 "is missing)");
        return NULL;
    }
    v = pickle_run(p, at, &at);
    if (!v)
        return NULL;
    if (v->kind != PTH_INT) {
        pickle_bad(p, "torch.save()'s protocol is not an integer (expected %d)",
                   PROTOCOL);
        return NULL;
    }
    if (v->u.i != PROTOCOL) {
        pickle_bad(p, "torch.save()'s protocol is %lld (expected %d)",
                   (long long)v->u.i, PROTOCOL);
        return NULL;
    }
    v = pickle_run(p, at, &at);
    if (!v || pickle_close(p, v) < 0)
        return NULL;
    little = pth_get(v, "little_endian");
    if (little && little->kind == PTH_BOOL && !little->u.i) {
        err_data(p->err, p->path, "its byte order is big (expected little)");
        return NULL;
    }
    root = pickle_run(p, at, &at);
    v = root ? pickle_run(p, at, &at) : NULL;
    if (!v)
        return NULL;
    if (v->kind != PTH_LIST) {
        pickle_bad(p, "the storages' keys are not a list");
        return NULL;
    }
    return read_storages(p, v, at, nbytes) < 0 ? NULL : root;
}
