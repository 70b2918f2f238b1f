/* SPDX-License-Identifier: ISC */
#include "core/format/pth.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/st.h"
#include "core/le.h"
#include "core/mem.h"

/* Values take some 700 bytes a tensor: a file of more tensors than the fixed
 * limit allows for is read if they have 45 kB each, on average. */
#define FILE_PER_MEMORY 64

static bool
is_zip(const uint8_t *d, size_t n)
{
    return n >= 4 && (!memcmp(d, "PK\3\4", 4) || !memcmp(d, "PK\5\6", 4));
}

static bool
is_pickle(const uint8_t *d, size_t n)
{
    return n >= 2 && d[0] == 0x80 && d[1] >= 2 && d[1] <= 5;
}

bool
pth_sniff(const uint8_t *head, size_t n)
{
    return is_zip(head, n) || is_pickle(head, n);
}

static int
find_storage(struct pth *pth, struct pth_storage *s, struct err *err)
{
    char name[128] = "data/";

    memcpy(name + 5, s->key->u.s, s->key->n);
    s->member = zip_find(&pth->zip, name, 5 + s->key->n);
    if (!s->member && s->n > 0)
        return err_data(err, pth->pickle.path,
                        "data.pkl: byte %zu: storage %.*s is not in the "
                        "archive",
                        s->at, (int)s->key->n, s->key->u.s);
    if (!s->member)
        return 0;
    if (!s->member->storage)
        pth->nbytes += s->member->nbytes;
    s->member->storage = true;
    if (s->member->nbytes == s->n * s->size)
        return 0;
    return err_data(err, pth->pickle.path,
                    "data.pkl: byte %zu: storage %.*s has %zu elements of "
                    "%zu bytes, but its member has %zu bytes",
                    s->at, (int)s->key->n, s->key->u.s, s->n, s->size,
                    s->member->nbytes);
}

/* A zip archive of data.pkl, which is the tree, and data/KEY, one for each
 * storage. */
static int
open_zip(struct pth *pth, const uint8_t *d, size_t size, struct err *err)
{
    struct pickle *p = &pth->pickle;
    struct zip *z = &pth->zip;
    struct zip_unpacked u = { 0 };
    struct zip_member *pkl, *order;
    size_t end;

    if (zip_open(z, d, size, p->path, err) < 0)
        return -1;
    if (zip_find(z, "constants.pkl", 13))
        return err_data(err, p->path,
                        "is a TorchScript archive, a program (expected what "
                        "torch.save() writes of a state_dict)");
    pkl = zip_find(z, "data.pkl", 8);
    if (!pkl)
        return err_data(err, p->path,
                        "is a zip archive, but not a PyTorch checkpoint "
                        "(there is no data.pkl)");
    order = zip_find(z, "byteorder", 9);
    if (order && order->nbytes > 16)
        return err_data(err, p->path,
                        "member byteorder has %zu bytes (expected 6, "
                        "\"little\")",
                        order->nbytes);
    if (order) {
        const uint8_t *data = zip_data(&u, z, order, err);

        if (data && (order->nbytes < 6 || memcmp(data, "little", 6) != 0)) {
            err_data(err, p->path, "its byte order is %.*s (expected little)",
                     (int)order->nbytes, (const char *)data);
            data = NULL;
        }
        zip_unpacked_free(&u);
        if (!data)
            return -1;
    }
    if (pkl->nbytes > PICKLE_MAX_NBYTES)
        return err_data(err, p->path,
                        "data.pkl has %zu bytes (expected at most %zu)",
                        pkl->nbytes, PICKLE_MAX_NBYTES);
    p->data = zip_data(&pth->pkl, z, pkl, err);
    if (!p->data)
        return -1;
    p->size = pkl->nbytes;
    p->where = "data.pkl: ";
    pth->root = pickle_run(p, 0, &end);
    if (!pth->root)
        return -1;
    for (struct pth_storage *storage = p->storages; storage;
         storage = storage->next)
        if (find_storage(pth, storage, err) < 0)
            return -1;
    return 0;
}

/* ---- torch before 1.6 ---- */

/*
 * Five pickles in a row (a magic number, the protocol, the machine, the tree,
 * the keys of the storages), then for each key its number of elements in 8
 * bytes and its bytes.
 */
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
            if ((*found)->n != count || (*found)->size != s->size)
                return pickle_bad(p,
                                  "storage %.*s has %zu elements of %zu bytes "
                                  "(expected %zu of %zu, says byte %zu)",
                                  name_n, name, count, s->size, (*found)->n,
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

/* Opens such a stream in p->data, and sets '*nbytes', those of all storages.
 * Returns the root, or NULL with p->err set. */
static struct pth_value *
open_legacy(struct pickle *p, size_t *nbytes)
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
    if (v->kind != PTH_INT)
        return pickle_fail(
            p, "torch.save()'s protocol is not an integer (expected %d)",
            PROTOCOL);
    if (v->u.i != PROTOCOL)
        return pickle_fail(p, "torch.save()'s protocol is %lld (expected %d)",
                           (long long)v->u.i, PROTOCOL);
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
    if (v->kind != PTH_LIST)
        return pickle_fail(p, "the storages' keys are not a list");
    return read_storages(p, v, at, nbytes) < 0 ? NULL : root;
}

int
pth_open(struct pth *pth, const char *path, size_t skip,
         const char *const *allowed, struct err *err)
{
    struct pickle *p = &pth->pickle;
    const uint8_t *d;
    const char *what;
    size_t size;
    int rc = 0;

    *pth = (struct pth){
        .pickle = { .path = path, .where = "", .err = err, .allowed = allowed }
    };
    if (map_open(&pth->map, path, err) < 0)
        return -1;
    skip = smaller(skip, pth->map.size);
    d = skip ? pth->map.data + skip : pth->map.data; /* NULL: empty */
    size = pth->map.size - skip;
    p->extra = size / FILE_PER_MEMORY;
    if (is_zip(d, size)) {
        rc = open_zip(pth, d, size, err);
    } else if (is_pickle(d, size)) {
        p->data = d;
        p->size = size;
        pth->root = open_legacy(p, &pth->nbytes);
        rc = pth->root ? 0 : -1;
    } else if (size == 0) {
        rc = err_data(err, path, "is empty (0 bytes)");
    } else if ((what = st_sniff(d, smaller(size, 512)))) {
        rc = err_data(err, path, "is %s, not a PyTorch checkpoint", what);
    } else {
        rc = err_data(err, path,
                      "is not a PyTorch checkpoint (found byte 0x%02x at its "
                      "start, expected a zip archive or a pickle)",
                      *d);
    }
    if (rc == 0)
        rc = pickle_close(p, pth->root);
    if (rc < 0)
        pth_close(pth);
    p->err = NULL;
    return rc;
}

void
pth_close(struct pth *pth)
{
    pickle_free(&pth->pickle);
    zip_unpacked_free(&pth->unpacked);
    zip_unpacked_free(&pth->pkl);
    zip_close(&pth->zip);
    map_close(&pth->map);
    *pth = (struct pth){ 0 };
}

/* Unpacks all compressed storages, when the first of them is needed: most are
 * read, and in any order. */
static int
unpack(struct pth *pth, struct err *err)
{
    const struct zip *z = &pth->zip;
    struct zip_member **all =
        xcalloc(z->n_members, sizeof(struct zip_member *));
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < z->n_members; i++)
        if (z->members[i].storage && z->members[i].method == ZIP_DEFLATE)
            all[n++] = z->members + i;
    rc = zip_unpack(&pth->unpacked, z, all, n, err);
    for (size_t i = 0, at = 0; i < n && rc == 0; at += all[i++]->nbytes)
        all[i]->unpacked = pth->unpacked.data + at;
    free(all);
    return rc;
}

/* A storage's bytes, checked when they are first needed. */
static const uint8_t *
storage_data(struct pth *pth, const struct pth_storage *s, struct err *err)
{
    const struct zip *z = &pth->zip;
    struct zip_member *m = s->member;
    const uint8_t *data = m ? zip_packed(z, m, err) : s->data;

    if (!data || !m)
        return data;
    if (m->method == ZIP_STORED)
        return zip_check(z, m, data, err) < 0 ? NULL : data;
    return m->unpacked || unpack(pth, err) == 0 ? m->unpacked : NULL;
}

const void *
pth_data(struct pth *pth, const struct pth_tensor *t, struct err *err)
{
    const uint8_t *data;

    if (t->n_elements == 0)
        return "";
    data = storage_data(pth, t->storage, err);
    return data ? data + t->offset * dtype_size(t->dtype) : NULL;
}

#define COPY_STEPS(bytes)                                   \
    do {                                                    \
        for (size_t i = 0; i < n; i++)                      \
            memcpy(to + i * bytes, from + i * step, bytes); \
    } while (0)

/* n pieces of 'nbytes', 'step' bytes apart. */
static void
copy_steps(uint8_t *to, const uint8_t *from, size_t n, size_t nbytes,
           size_t step)
{
    switch (nbytes) {
    case 1:
        COPY_STEPS(1);
        break;
    case 2:
        COPY_STEPS(2);
        break;
    case 4:
        COPY_STEPS(4);
        break;
    case 8:
        COPY_STEPS(8);
        break;
    default:
        COPY_STEPS(nbytes);
    }
}

int
pth_read(struct pth *pth, const struct pth_tensor *t, size_t first, size_t n,
         void *to_v, struct err *err)
{
    size_t size = dtype_size(t->dtype), at = t->offset;
    size_t shape[PTH_MAX_DIMS], strides[PTH_MAX_DIMS], index[PTH_MAX_DIMS];
    size_t n_dims = 0, block = 1, skip;
    const uint8_t *data = n ? storage_data(pth, t->storage, err) : NULL;
    uint8_t *to = to_v;

    if (!data)
        return n ? -1 : 0;
    /* The tensor as blocks of elements that are contiguous in its storage,
     * each of the last dims; the dims before them are stepped through, those
     * of 1 left out. */
    for (size_t d = 0; d < t->n_dims; d++)
        if (t->shape[d] != 1) {
            shape[n_dims] = (size_t)t->shape[d];
            strides[n_dims++] = (size_t)t->strides[d];
        }
    while (n_dims > 0 && strides[n_dims - 1] == block)
        block *= shape[--n_dims];
    skip = first % block; /* of the first block */
    first /= block;
    for (size_t d = n_dims; d-- > 0;) {
        index[d] = first % shape[d];
        at += index[d] * strides[d];
        first /= shape[d];
    }
    for (size_t d; n > 0;) {
        const uint8_t *from = data + (at + skip) * size;
        size_t n_blocks = 1, n_read = smaller(n, block - skip);

        if (n_dims == 0 || n_read < block) {
            memcpy(to, from, n_read * size);
        } else {
            d = n_dims - 1;
            n_blocks = smaller(n / block, shape[d] - index[d]);
            n_read = n_blocks * block;
            copy_steps(to, from, n_blocks, block * size, strides[d] * size);
        }
        to += n_read * size;
        n -= n_read;
        skip = 0;
        if (n == 0)
            break;
        d = n_dims - 1;
        index[d] += n_blocks;
        at += n_blocks * strides[d];
        while (index[d] == shape[d] && d > 0) {
            at -= index[d] * strides[d];
            index[d] = 0;
            index[--d]++;
            at += strides[d];
        }
    }
    return 0;
}
