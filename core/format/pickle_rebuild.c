/* SPDX-License-Identifier: ISC */
/*
 * What the objects of a PyTorch checkpoint become: storages, which a persistent
 * id names, tensors, parameters and the standard containers.  A pickle makes
 * each by calling a global with a tuple of arguments; calls[], at the end, has
 * those that are known here.  All others become opaque values.
 * Source: torch/_utils.py and torch/serialization.py, 0.1.12 to 2.9.
 */
#include <string.h>

#include "core/format/pickle.h"
#include "core/mem.h"

#define MAX_KEY 100 /* bytes of a storage's key; torch's have at most 20 */

/* The element types, by the classes of their storages and by torch.dtype. */
static const struct {
    const char
        *storage;     /* torch.FloatStorage, ..; "": has no class of its own */
    const char *name; /* torch.float32, ..; NULL: none */
    int dtype;        /* enum dtype; -1: tensors of it are opaque */
    size_t size;      /* bytes of an element */
} types[] = {
    { "FloatStorage", "float32", DT_F32, 4 },
    { "HalfStorage", "float16", DT_F16, 2 },
    { "BFloat16Storage", "bfloat16", DT_BF16, 2 },
    { "DoubleStorage", "float64", DT_F64, 8 },
    { "LongStorage", "int64", DT_I64, 8 },
    { "IntStorage", "int32", DT_I32, 4 },
    { "ShortStorage", "int16", DT_I16, 2 },
    { "CharStorage", "int8", DT_I8, 1 },
    { "ByteStorage", "uint8", DT_U8, 1 },
    { "BoolStorage", "bool", DT_BOOL, 1 },
    { "ComplexFloatStorage", "complex64", DT_C64, 8 },
    { "ComplexDoubleStorage", "complex128", -1, 16 },
    { "QUInt8Storage", "quint8", -1, 1 },
    { "QInt8Storage", "qint8", -1, 1 },
    { "QInt32Storage", "qint32", -1, 4 },
    { "QUInt4x2Storage", "quint4x2", -1, 1 },
    { "QUInt2x4Storage", "quint2x4", -1, 1 },
    { "UntypedStorage", NULL, -1, 1 },
    { "_UntypedStorage", NULL, -1, 1 },
    { "", "uint16", DT_U16, 2 },
    { "", "uint32", DT_U32, 4 },
    { "", "uint64", DT_U64, 8 },
    { "", "float8_e4m3fn", DT_F8_E4M3, 1 },
    { "", "float8_e5m2", DT_F8_E5M2, 1 },
    { "", "float8_e4m3fnuz", DT_F8_E4M3FNUZ, 1 },
    { "", "float8_e5m2fnuz", DT_F8_E5M2FNUZ, 1 },
    { "", "float8_e8m0fnu", DT_F8_E8M0, 1 },
    { "", "half", DT_F16, 2 },
    { "", "float", DT_F32, 4 },
    { "", "double", DT_F64, 8 },
    { "", "short", DT_I16, 2 },
    { "", "int", DT_I32, 4 },
    { "", "long", DT_I64, 8 },
    { "", "cfloat", DT_C64, 8 },
};

#define N_TYPES (sizeof(types) / sizeof(*types))

static bool
is_str(const struct pth_value *v, const char *s)
{
    return v->kind == PTH_STR && v->n == strlen(s) && !memcmp(v->u.s, s, v->n);
}

static bool
get_size(const struct pth_value *v, size_t *n)
{
    if (v->kind != PTH_INT || v->u.i < 0)
        return false;
    *n = (size_t)v->u.i;
    return true;
}

/* The row of types[] of a storage class or, if 'is_dtype', of a torch.dtype;
 * -1: it is neither. */
static int
find_type(const struct pth_value *v, bool is_dtype)
{
    const struct pth_global *g = v->u.global;

    if (v->kind != PTH_GLOBAL || strncmp(g->module, "torch", 5) != 0)
        return -1;
    for (size_t i = 0; i < N_TYPES; i++) {
        const char *name = is_dtype ? types[i].name : types[i].storage;

        if (name && *name && !strcmp(g->name, name))
            return (int)i;
    }
    return -1;
}

/*
 * A persistent id is ('storage', class, key, location, numel[, view]).  'view',
 * only in legacy streams, is None since torch 0.4.  An id ('module', class,
 * source..) stands for the class.
 */
struct pth_value *
rebuild_persistent(struct pickle *p, struct pth_value *id)
{
    struct pth_value **items = id->u.items, *v;
    struct pth_storage *s;
    size_t nbytes;
    int type;

    if (id->kind == PTH_TUPLE && id->n > 1 && is_str(items[0], "module"))
        return items[1];
    if (id->kind != PTH_TUPLE || id->n < 5 || id->n > 6 ||
        !is_str(items[0], "storage"))
        return pickle_fail(p, "a persistent id is not ('storage', ...)");
    v = pickle_value(p, PTH_STORAGE);
    s = v ? pickle_alloc(p, 1, sizeof(*s)) : NULL;
    if (!s)
        return NULL;
    type = find_type(items[1], false);
    if (type < 0 && items[1]->kind == PTH_GLOBAL)
        return pickle_fail(p, "storage class %.100s.%.100s is not known",
                           items[1]->u.global->module,
                           items[1]->u.global->name);
    if (type < 0 || items[2]->kind != PTH_STR || !get_size(items[4], &s->n))
        return pickle_fail(p, "a storage's id is not ('storage', class, key, "
                              "location, size)");
    if (items[2]->n > MAX_KEY)
        return pickle_fail(p, "a storage's key of %u bytes", items[2]->n);
    s->type = items[1];
    s->key = items[2];
    s->dtype = types[type].dtype;
    s->size = types[type].size;
    s->at = p->op;
    if (!size_mul(s->n, s->size, &nbytes) || nbytes > INT64_MAX)
        return pickle_fail(p, "a storage of %zu elements overflows 63 bits",
                           s->n);
    if (id->n > 5 && items[5]->kind != PTH_NONE)
        return pickle_fail(p, "a storage that is a part of another, as torch "
                              "before 0.4 has them (" PICKLE_AGAIN ")");
    s->next = p->storages;
    p->storages = s;
    v->u.storage = s;
    return v;
}

/* A tuple or list of sizes. */
static int
read_dims(struct pickle *p, const struct pth_value *v, size_t *n,
          int64_t **dims, const char *what)
{
    struct pth_value **items = pth_items(v, n);

    if (v->kind != PTH_TUPLE && v->kind != PTH_LIST)
        return pickle_bad(p, "a tensor's %s is not a tuple", what);
    if (*n > PTH_MAX_DIMS)
        return pickle_bad(p, "a tensor of %zu dims (expected at most %d)", *n,
                          PTH_MAX_DIMS);
    *dims = pickle_alloc(p, *n ? *n : 1, sizeof(**dims));
    if (!*dims)
        return -1;
    for (size_t i = 0; i < *n; i++) {
        size_t d;

        if (!get_size(items[i], &d))
            return pickle_bad(p, "a tensor's %s[%zu] is not a number >= 0",
                              what, i);
        (*dims)[i] = (int64_t)d;
    }
    return 0;
}

/*
 * The tensor of (storage, offset, shape, strides, ...); 'dtype' -1: the
 * storage's.  Every element must be in the storage: the one with the largest
 * offset is, as strides are not negative.
 */
static struct pth_value *
rebuild_tensor(struct pickle *p, struct pth_value *args, int dtype)
{
    size_t n = 1, n_strides, last, extent, nbytes, size, stored;
    struct pth_value **items = args->u.items, *v;
    const struct pth_storage *s;
    int64_t *shape, *strides;
    struct pth_tensor *t;
    bool fits = true; /* in size_t */

    if (args->n < 4 || items[0]->kind != PTH_STORAGE)
        return pickle_fail(
            p, "a tensor without (storage, offset, shape, strides)");
    s = items[0]->u.storage;
    if (dtype < 0)
        dtype = s->dtype;
    if (dtype < 0) /* complex128, quantized */
        return pickle_opaque(p, s->type);
    v = pickle_value(p, PTH_TENSOR);
    t = v ? pickle_alloc(p, 1, sizeof(*t)) : NULL;
    if (!t)
        return NULL;
    t->dtype = (enum dtype)dtype;
    t->storage = s;
    v->u.tensor = t;
    if (!get_size(items[1], &t->offset))
        return pickle_fail(p, "a tensor's offset is not a number >= 0");
    if (read_dims(p, items[2], &t->n_dims, &shape, "shape") < 0 ||
        read_dims(p, items[3], &n_strides, &strides, "strides") < 0)
        return NULL;
    if (n_strides != t->n_dims)
        return pickle_fail(p, "a tensor of %zu dims with %zu strides",
                           t->n_dims, n_strides);
    t->shape = shape;
    t->strides = strides;
    for (size_t i = 0; i < t->n_dims; i++)
        if (shape[i] == 0)
            return v; /* no elements: nothing to check */
    last = t->offset;
    for (size_t i = 0; fits && i < t->n_dims; i++)
        fits = size_mul(n, (size_t)shape[i], &n) &&
               size_mul((size_t)shape[i] - 1, (size_t)strides[i], &extent) &&
               size_add(last, extent, &last);
    size = dtype_size(dtype);
    if (!fits || !size_mul(n, size, &nbytes) || nbytes > INT64_MAX)
        return pickle_fail(p, "a tensor's shape and strides overflow 63 bits");
    stored = s->n * s->size / size;
    if (last >= stored)
        return pickle_fail(
            p, "a tensor reaches element %zu of a storage of %zu elements",
            last, stored);
    t->n_elements = n;
    return v;
}

/*
 * Does args[i], a tensor's dict of metadata, say that its values are the
 * conjugate or the negative of the stored ones?  (torch 2.0 and later)  Many
 * tensors may share a dict, to which the pickle may add keys in between: a
 * search continues where the last one ended, or a file could make it quadratic.
 */
static bool
is_lazy(const struct pth_value *args, uint32_t i)
{
    const struct pth_value *v = args->n > i ? args->u.items[i] : NULL;
    struct pth_list *list = v && v->kind == PTH_DICT ? v->u.list : NULL;

    for (; list && list->n_searched + 1 < list->n; list->n_searched += 2) {
        const struct pth_value *key = list->items[list->n_searched];

        list->lazy |= is_str(key, "conj") || is_str(key, "neg");
    }
    return list && list->lazy;
}

/* (storage, offset, shape, strides[, requires_grad, hooks, metadata]) */
static struct pth_value *
call_tensor(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    return is_lazy(args, 6) ? pickle_opaque(p, callee)
                            : rebuild_tensor(p, args, -1);
}

/* (storage, offset, shape, strides, requires_grad, hooks, dtype, ...) */
static struct pth_value *
call_tensor_v3(struct pickle *p, struct pth_value *callee,
               struct pth_value *args)
{
    int type = args->n < 7 ? -1 : find_type(args->u.items[6], true);

    if (type < 0 || types[type].dtype < 0 || is_lazy(args, 7))
        return pickle_opaque(p, callee);
    return rebuild_tensor(p, args, types[type].dtype);
}

static struct pth_value *
call_parameter(struct pickle *p, struct pth_value *callee,
               struct pth_value *args)
{
    (void)callee;
    if (args->n > 0 && (args->u.items[0]->kind == PTH_TENSOR ||
                        args->u.items[0]->kind == PTH_OPAQUE))
        return args->u.items[0];
    return pickle_fail(p, "a Parameter without a tensor");
}

/* (function, type, args, state): a tensor of a subclass, or with attributes:
 * the tensor that function(*args) makes. */
static struct pth_value *
call_from_type(struct pickle *p, struct pth_value *callee,
               struct pth_value *args)
{
    struct pth_value **a = args->u.items;

    if (args->n < 3 || a[2]->kind != PTH_TUPLE || a[0]->kind != PTH_GLOBAL ||
        pickle_is(a[0], "torch._tensor", "_rebuild_from_type_v2"))
        return pickle_opaque(p, callee);
    return rebuild_call(p, a[0], a[2]);
}

/* dict(), dict(pairs), dict(dict), OrderedDict(..), defaultdict(function, ..).
 * Pickles mostly make them empty and add the items afterwards. */
static struct pth_value *
call_dict(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    bool is_defaultdict = pickle_is(callee, "collections", "defaultdict");
    uint32_t at = is_defaultdict ? 1 : 0; /* after its function */
    const struct pth_value *from = args->n > at ? args->u.items[at] : NULL;
    struct pth_value *v = pickle_list(p, PTH_DICT), **items;
    size_t n, n_pair;

    if (!v || !from || from->kind == PTH_SET)
        return v;
    items = pth_items(from, &n);
    if (from->kind == PTH_DICT)
        return pickle_extend(p, v, items, n) < 0 ? NULL : v;
    for (size_t i = 0; i < n; i++) {
        struct pth_value **pair = pth_items(items[i], &n_pair);

        if (n_pair != 2 ||
            (items[i]->kind != PTH_TUPLE && items[i]->kind != PTH_LIST))
            return pickle_fail(p, "a dict is made of items that are not pairs");
        if (pickle_extend(p, v, pair, 2) < 0)
            return NULL;
    }
    return v;
}

/* set([...]) of protocols 2 and 3, list(...), tuple(...), torch.Size(...) */
static struct pth_value *
call_list(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    const struct pth_value *from = args->n ? args->u.items[0] : NULL;
    struct pth_value *v = pickle_list(p, PTH_LIST), **items;
    size_t n;

    if (!v || !from)
        return v;
    items = pth_items(from, &n);
    if (from->kind != PTH_LIST && from->kind != PTH_SET &&
        from->kind != PTH_TUPLE)
        return pickle_opaque(p, callee);
    return pickle_extend(p, v, items, n) < 0 ? NULL : v;
}

static const struct {
    const char *modules, *names; /* words: any of these in any of those */
    struct pth_value *(*call)(struct pickle *, struct pth_value *,
                              struct pth_value *);
} calls[] = {
    { "torch._utils", "_rebuild_tensor_v2 _rebuild_tensor", call_tensor },
    { "torch._utils", "_rebuild_parameter _rebuild_parameter_with_state",
      call_parameter },
    { "collections", "OrderedDict defaultdict", call_dict },
    { "torch._utils", "_rebuild_tensor_v3", call_tensor_v3 },
    { "torch._tensor", "_rebuild_from_type_v2", call_from_type },
    { "torch", "Size", call_list },
    { "builtins __builtin__", "dict", call_dict },
    { "builtins __builtin__", "set frozenset list tuple", call_list },
};

struct pth_value *
rebuild_call(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        if (pickle_is(callee, calls[i].modules, calls[i].names))
            return calls[i].call(p, callee, args);
    return pickle_opaque(p, callee);
}
