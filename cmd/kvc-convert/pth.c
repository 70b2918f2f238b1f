#include "cmd/kvc-convert/pth.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/pth_impl.h"
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
