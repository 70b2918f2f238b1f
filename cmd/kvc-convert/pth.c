#include "cmd/kvc-convert/pth.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pickle_close.h"
#include "cmd/kvc-convert/pth_impl.h"
#include "cmd/kvc-convert/rebuild.h"
#include "cmd/kvc-convert/zip.h"
#include "core/format/st.h"
#include "core/mem.h"

/* Values take some 700 bytes a tensor: a file of more tensors than the fixed
 * limit allows for is read if they have 45 kB each, on average. */
#define FILE_PER_MEMORY 64

static int
refuse(const struct pth *pth, struct err *err)
{
    const struct map *m = &pth->map;
    const char *what =
        m->size ? st_sniff(m->data, m->size < 512 ? m->size : 512) : NULL;

    if (m->size == 0)
        return err_set(err, EX_DATAERR, "%s: is empty (0 bytes)", pth->path);
    if (what)
        return err_set(err, EX_DATAERR, "%s: is %s, no PyTorch checkpoint",
                       pth->path, what);
    return err_set(err, EX_DATAERR,
                   "%s: is no PyTorch checkpoint (found byte 0x%02x at its "
                   "start, expected a zip archive or a pickle)",
                   pth->path, m->data[0]);
}

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
open_map(struct pth *pth, const char *const *allowed, struct err *err)
{
    const uint8_t *d = pth->map.data;
    size_t n = pth->map.size;

    pth->pickle = (struct pickle){ .path = pth->path,
                                   .err = err,
                                   .allowed = allowed,
                                   .extra = n / FILE_PER_MEMORY,
                                   .call = rebuild_call,
                                   .persistent = rebuild_persistent };
    if (is_zip(d, n))
        return pth_zip_open(pth, err);
    if (is_pickle(d, n))
        return pth_legacy_open(pth, err);
    return refuse(pth, err);
}

int
pth_open(struct pth **to, const char *path, const char *const *allowed,
         struct err *err)
{
    struct pth *pth = xcalloc(1, sizeof(*pth));

    *to = NULL;
    pth->path = xstrdup(path);
    pth->storages = xcalloc(1, sizeof(*pth->storages));
    if (map_open(&pth->map, path, err) < 0 || open_map(pth, allowed, err) < 0 ||
        pickle_close(&pth->pickle, pth->root) < 0) {
        pth_close(pth);
        return -1;
    }
    pth->pickle.err = NULL;
    *to = pth;
    return 0;
}

void
pth_close(struct pth *pth)
{
    if (!pth)
        return;
    pickle_free(&pth->pickle);
    unpacked_free(&pth->storages->one);
    unpacked_free(&pth->storages->shared);
    unpacked_free(&pth->pkl);
    zip_close(&pth->zip);
    map_close(&pth->map);
    free(pth->storages);
    free(pth->path);
    free(pth);
}

const struct pth_value *
pth_root(const struct pth *pth)
{
    return pth->root;
}

size_t
pth_nbytes(const struct pth *pth)
{
    return pth->nbytes;
}

const struct pth_global *
pth_globals(const struct pth *pth)
{
    return pth->pickle.globals;
}

enum pth_kind
pth_kind(const struct pth_value *v)
{
    static const enum pth_kind kinds[] = {
        [PK_NONE] = PTH_NONE,      [PK_BOOL] = PTH_BOOL,
        [PK_INT] = PTH_INT,        [PK_LONG] = PTH_OPAQUE,
        [PK_FLOAT] = PTH_FLOAT,    [PK_STR] = PTH_STR,
        [PK_BYTES] = PTH_OPAQUE,   [PK_TUPLE] = PTH_LIST,
        [PK_LIST] = PTH_LIST,      [PK_SET] = PTH_LIST,
        [PK_DICT] = PTH_DICT,      [PK_GLOBAL] = PTH_OPAQUE,
        [PK_STORAGE] = PTH_OPAQUE, [PK_TENSOR] = PTH_TENSOR,
        [PK_OPAQUE] = PTH_OPAQUE,
    };

    return kinds[v->kind];
}

size_t
pth_n(const struct pth_value *v)
{
    switch (v->kind) {
    case PK_TUPLE:
        return v->n;
    case PK_LIST:
    case PK_SET:
        return v->u.list->n;
    case PK_DICT:
        return v->u.list->n / 2;
    default:
        return 0;
    }
}

const struct pth_value *
pth_key(const struct pth_value *dict, size_t i)
{
    return dict->u.list->items[2 * i];
}

const struct pth_value *
pth_item(const struct pth_value *v, size_t i)
{
    if (v->kind == PK_TUPLE)
        return v->u.items[i];
    return v->u.list->items[v->kind == PK_DICT ? 2 * i + 1 : i];
}

const struct pth_value *
pth_get(const struct pth_value *dict, const char *key)
{
    struct pth_value want = { .kind = PK_STR };
    size_t n = strlen(key);

    if (dict->kind != PK_DICT || n > PICKLE_MAX_KEY)
        return NULL;
    want.n = (uint32_t)n;
    want.u.s = key;
    return pickle_find(dict->u.list, &want);
}

const char *
pth_str(const struct pth_value *v, size_t *nbytes)
{
    if (v->kind != PK_STR)
        return NULL;
    *nbytes = v->n;
    return v->u.s;
}

bool
pth_int(const struct pth_value *v, int64_t *i)
{
    if (v->kind != PK_INT && v->kind != PK_BOOL)
        return false;
    *i = v->u.i;
    return true;
}

bool
pth_float(const struct pth_value *v, double *f)
{
    if (v->kind != PK_FLOAT)
        return false;
    *f = v->u.f;
    return true;
}

const struct pth_tensor *
pth_tensor(const struct pth_value *v)
{
    return v->kind == PK_TENSOR ? v->u.tensor : NULL;
}

const struct pth_global *
pth_global(const struct pth_value *v)
{
    return v->kind == PK_GLOBAL || v->kind == PK_OPAQUE ? v->u.global : NULL;
}

void
pth_want(struct pth *pth, const struct pth_tensor *t)
{
    struct zip_member *m = t->storage->member;

    (void)pth;
    if (m && t->n_elements > 0) {
        m->shared = m->wanted;
        m->wanted = true;
    }
}

/* Unpacks all shared storages: each is wanted sooner or later, and in between
 * no other may take its place. */
static int
unpack_shared(const struct pth *pth, struct err *err)
{
    const struct zip *z = &pth->zip;
    struct unpacked *u = &pth->storages->shared;
    struct zip_member **m = xmalloc(z->n_members * sizeof(*m));
    size_t n = 0, at = 0;
    int rc = 0;

    for (size_t i = 0; i < z->n_members && rc == 0; i++)
        if (z->members[i].shared && z->members[i].method == ZIP_DEFLATE) {
            m[n++] = z->members + i;
            rc = zip_packed(z, z->members + i, err) ? 0 : -1;
        }
    if (rc == 0)
        rc = unpack(u, z, m, n, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        m[i]->unpacked = u->data + at;
        at += m[i]->nbytes;
    }
    free(m);
    return rc;
}

/* A storage's bytes, checked when they are first needed. */
static const uint8_t *
storage_data(const struct pth *pth, const struct pth_storage *s,
             struct err *err)
{
    struct storages *held = pth->storages;
    struct zip_member *m = s->member;
    const uint8_t *data = m ? zip_packed(&pth->zip, m, err) : s->data;

    if (!data)
        return NULL;
    if (m && m->method == ZIP_STORED) {
        if (zip_check(&pth->zip, m, data, err) < 0)
            return NULL;
    } else if (m && m->shared) {
        if (!m->unpacked && unpack_shared(pth, err) < 0)
            return NULL;
        data = m->unpacked;
    } else if (m) {
        if (held->last != m) {
            held->last = NULL;
            if (unpack(&held->one, &pth->zip, &m, 1, err) < 0)
                return NULL;
            held->last = m;
        }
        data = held->one.data;
    }
    return data + s->base * s->size;
}

/* A tensor as blocks that are contiguous in its storage, each of the last
 * dims; the dims before them are walked, those of 1 left out. */
struct walk {
    const uint8_t *from;
    size_t size; /* bytes of an element */
    size_t n_dims;
    size_t block; /* elements */
    int64_t shape[PTH_MAX_DIMS], strides[PTH_MAX_DIMS];
    size_t index[PTH_MAX_DIMS];
    size_t at; /* element of the storage: that of 'index' */
};

static void
walk_start(struct walk *w, const struct pth_tensor *t, const uint8_t *data,
           size_t first)
{
    w->from = data;
    w->size = dtype_table[t->dtype].bits / 8;
    w->block = 1;
    w->at = t->offset;
    w->n_dims = 0;
    for (size_t d = 0; d < t->n_dims; d++)
        if (t->shape[d] != 1) {
            w->shape[w->n_dims] = t->shape[d];
            w->strides[w->n_dims++] = t->strides[d];
        }
    while (w->n_dims > 0 && (size_t)w->strides[w->n_dims - 1] == w->block)
        w->block *= (size_t)w->shape[--w->n_dims];
    first /= w->block;
    for (size_t d = w->n_dims; d-- > 0;) {
        w->index[d] = first % (size_t)w->shape[d];
        w->at += w->index[d] * (size_t)w->strides[d];
        first /= (size_t)w->shape[d];
    }
}

/* Goes 'n' blocks on, not beyond the end of the last dim that is walked. */
static void
walk_on(struct walk *w, size_t n)
{
    size_t d = w->n_dims;

    if (d == 0)
        return;
    w->index[--d] += n;
    w->at += n * (size_t)w->strides[d];
    while (w->index[d] == (size_t)w->shape[d] && d > 0) {
        w->at -= w->index[d] * (size_t)w->strides[d];
        w->index[d] = 0;
        w->index[--d]++;
        w->at += (size_t)w->strides[d];
    }
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

/* Part of a block: elements 'skip' .. 'skip' + n - 1. */
static void
copy_part(const struct walk *w, uint8_t *to, size_t skip, size_t n)
{
    memcpy(to, w->from + (w->at + skip) * w->size, n * w->size);
}

static void
gather(struct walk *w, size_t first, size_t n, uint8_t *to)
{
    size_t skip = first % w->block;

    if (skip > 0 || w->n_dims == 0) {
        size_t part = n < w->block - skip ? n : w->block - skip;

        copy_part(w, to, skip, part);
        to += part * w->size;
        n -= part;
        walk_on(w, 1);
    }
    while (n >= w->block && w->n_dims > 0) {
        size_t d = w->n_dims - 1;
        size_t left = (size_t)w->shape[d] - w->index[d];
        size_t blocks = n / w->block < left ? n / w->block : left;

        copy_steps(to, w->from + w->at * w->size, blocks, w->block * w->size,
                   (size_t)w->strides[d] * w->size);
        to += blocks * w->block * w->size;
        n -= blocks * w->block;
        walk_on(w, blocks);
    }
    if (n > 0)
        copy_part(w, to, 0, n);
}

int
pth_read(const struct pth *pth, const struct pth_tensor *t, size_t first,
         size_t n, void *to, struct err *err)
{
    const uint8_t *data;
    struct walk w;

    if (n == 0)
        return 0;
    data = storage_data(pth, t->storage, err);
    if (!data)
        return -1;
    walk_start(&w, t, data, first);
    gather(&w, first, n, to);
    return 0;
}
