#include "cmd/kvc-convert/rebuild.h"

#include <string.h>

#include "cmd/kvc-convert/pth.h"
#include "core/mem.h"

#define MAX_KEY 100 /* bytes; torch's have at most 20 */

/* Of torch and torch.cuda; the size is in bytes. */
static const struct {
    const char *storage, *name; /* torch.FloatStorage, torch.float32 */
    int dtype;
    size_t size;
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
    return v->kind == PK_STR && v->n == strlen(s) && !memcmp(v->u.s, s, v->n);
}

static bool
get_size(const struct pth_value *v, size_t *n)
{
    if (v->kind != PK_INT || v->u.i < 0)
        return false;
    *n = (size_t)v->u.i;
    return true;
}

/* The row of a storage class or, with 'dtype', of torch.float32; or -1. */
static int
find_type(const struct pth_value *v, bool dtype)
{
    const struct pth_global *g = v->u.global;

    if (v->kind != PK_GLOBAL || strncmp(g->module, "torch", 5) != 0)
        return -1;
    for (size_t i = 0; i < N_TYPES; i++) {
        const char *name = dtype ? types[i].name : types[i].storage;

        if (name && *name && !strcmp(g->name, name))
            return (int)i;
    }
    return -1;
}

static struct pth_value *
fail(struct pickle *p, const char *what)
{
    pickle_bad(p, "%s", what);
    return NULL;
}

/* The legacy stream's (view_key, offset, size): a part of a storage. */
static int
apply_view(struct pickle *p, struct pth_storage *s, const struct pth_value *v)
{
    size_t offset, n, end;

    if (v->kind == PK_NONE)
        return 0;
    if (v->kind != PK_TUPLE || v->n != 3 || !get_size(v->u.items[1], &offset) ||
        !get_size(v->u.items[2], &n))
        return pickle_bad(p, "a storage's view is not (key, offset, size)");
    if (!size_add(offset, n, &end) || end > s->n)
        return pickle_bad(p,
                          "a view of %zu elements at %zu, but the storage has "
                          "%zu",
                          n, offset, s->n);
    s->base = offset;
    s->n = n;
    return 0;
}

/* ('storage', class, key, location, numel[, view]) */
static int
read_storage(struct pickle *p, struct pth_storage *s, struct pth_value **id,
             uint32_t n)
{
    int type = find_type(id[1], false);
    size_t nbytes;

    if (type < 0 && id[1]->kind == PK_GLOBAL)
        return pickle_bad(p, "storage class %.100s.%.100s is not known",
                          id[1]->u.global->module, id[1]->u.global->name);
    if (type < 0 || id[2]->kind != PK_STR || !get_size(id[4], &s->n))
        return pickle_bad(p, "a storage's id is not ('storage', class, key, "
                             "location, size)");
    if (id[2]->n > MAX_KEY)
        return pickle_bad(p, "a storage's key of %u bytes", id[2]->n);
    s->type = id[1];
    s->key = id[2];
    s->total = s->n;
    s->dtype = types[type].dtype;
    s->size = types[type].size;
    s->at = p->op;
    if (!size_mul(s->n, s->size, &nbytes) || nbytes > INT64_MAX)
        return pickle_bad(p, "a storage of %zu elements overflows 63 bits",
                          s->n);
    return n > 5 ? apply_view(p, s, id[5]) : 0;
}

struct pth_value *
rebuild_persistent(struct pickle *p, struct pth_value *id)
{
    struct pth_value *v;
    struct pth_storage *s;

    if (id->kind == PK_TUPLE && id->n > 0 && is_str(id->u.items[0], "module") &&
        id->n > 1)
        return id->u.items[1]; /* its source code follows: not for us */
    if (id->kind != PK_TUPLE || id->n < 5 || id->n > 6 ||
        !is_str(id->u.items[0], "storage"))
        return fail(p, "a persistent id is not ('storage', ...)");
    v = pickle_value(p, PK_STORAGE);
    s = v ? pickle_alloc(p, 1, sizeof(*s)) : NULL;
    if (!s || read_storage(p, s, id->u.items, id->n) < 0)
        return NULL;
    s->next = p->storages;
    p->storages = s;
    v->u.storage = s;
    return v;
}

/* A tuple or list of sizes; false if they are none. */
static int
read_dims(struct pickle *p, const struct pth_value *v, size_t *n,
          int64_t **dims, const char *what)
{
    struct pth_value **items = v->u.items;

    *n = v->n;
    if (v->kind == PK_LIST) {
        items = v->u.list->items;
        *n = v->u.list->n;
    } else if (v->kind != PK_TUPLE) {
        return pickle_bad(p, "a tensor's %s is no tuple", what);
    }
    if (*n > PTH_MAX_DIMS)
        return pickle_bad(p, "a tensor of %zu dims (expected at most %d)", *n,
                          PTH_MAX_DIMS);
    *dims = pickle_alloc(p, *n ? *n : 1, sizeof(**dims));
    if (!*dims)
        return -1;
    for (size_t i = 0; i < *n; i++) {
        size_t d;

        if (!get_size(items[i], &d))
            return pickle_bad(p, "a tensor's %s[%zu] is no number >= 0", what,
                              i);
        (*dims)[i] = (int64_t)d;
    }
    return 0;
}

/* Is every element within the storage?  'room': its elements, of t's type. */
static int
check_bounds(struct pickle *p, struct pth_tensor *t, size_t room)
{
    size_t n = 1, last = t->offset, step, nbytes;
    bool sound = true;

    for (size_t i = 0; i < t->n_dims; i++)
        if (t->shape[i] == 0)
            return t->n_elements = 0, 0;
    for (size_t i = 0; sound && i < t->n_dims; i++)
        sound =
            size_mul(n, (size_t)t->shape[i], &n) &&
            size_mul((size_t)t->shape[i] - 1, (size_t)t->strides[i], &step) &&
            size_add(last, step, &last);
    if (!sound || !size_mul(n, dtype_table[t->dtype].bits / 8, &nbytes) ||
        nbytes > INT64_MAX)
        return pickle_bad(p, "a tensor's shape and strides overflow 63 bits");
    if (last >= room)
        return pickle_bad(p,
                          "a tensor reaches element %zu of a storage of %zu "
                          "elements",
                          last, room);
    t->n_elements = n;
    return 0;
}

static int
read_tensor(struct pickle *p, struct pth_tensor *t, struct pth_value **args)
{
    size_t n_strides;
    int64_t *shape, *strides;

    if (!get_size(args[1], &t->offset))
        return pickle_bad(p, "a tensor's offset is no number >= 0");
    if (read_dims(p, args[2], &t->n_dims, &shape, "shape") < 0 ||
        read_dims(p, args[3], &n_strides, &strides, "strides") < 0)
        return -1;
    if (n_strides != t->n_dims)
        return pickle_bad(p, "a tensor of %zu dims with %zu strides", t->n_dims,
                          n_strides);
    t->shape = shape;
    t->strides = strides;
    return check_bounds(p, t,
                        t->storage->n * t->storage->size /
                            (dtype_table[t->dtype].bits / 8));
}

/* (storage, offset, shape, strides, ...): 'dtype' < 0 is the storage's. */
static struct pth_value *
tensor(struct pickle *p, struct pth_value *args, int dtype)
{
    struct pth_value *v;
    struct pth_tensor *t;

    if (args->n < 4 || args->u.items[0]->kind != PK_STORAGE)
        return fail(p, "a tensor without (storage, offset, shape, strides)");
    if (dtype < 0)
        dtype = args->u.items[0]->u.storage->dtype;
    if (dtype < 0) /* complex128, quantized */
        return pickle_opaque(p, args->u.items[0]->u.storage->type);
    v = pickle_value(p, PK_TENSOR);
    t = v ? pickle_alloc(p, 1, sizeof(*t)) : NULL;
    if (!t)
        return NULL;
    t->dtype = (enum dtype)dtype;
    t->storage = args->u.items[0]->u.storage;
    t->at = p->op;
    v->u.tensor = t;
    return read_tensor(p, t, args->u.items) < 0 ? NULL : v;
}

/* Does args[i], a tensor's metadata, say that it is the conjugate or the
 * negative of what is stored?  (torch 2.0 and later)  Many tensors may share
 * one dict, and it may grow between them: each key is looked at once. */
static bool
is_lazy(const struct pth_value *args, uint32_t i)
{
    const struct pth_value *v = args->n > i ? args->u.items[i] : NULL;
    struct pickle_list *list = v && v->kind == PK_DICT ? v->u.list : NULL;

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
    return is_lazy(args, 6) ? pickle_opaque(p, callee) : tensor(p, args, -1);
}

/* (storage, offset, shape, strides, requires_grad, hooks, dtype, ...) */
static struct pth_value *
call_tensor_v3(struct pickle *p, struct pth_value *callee,
               struct pth_value *args)
{
    int type = args->n < 7 ? -1 : find_type(args->u.items[6], true);

    if (type < 0 || types[type].dtype < 0 || is_lazy(args, 7))
        return pickle_opaque(p, callee);
    return tensor(p, args, types[type].dtype);
}

static struct pth_value *
call_parameter(struct pickle *p, struct pth_value *callee,
               struct pth_value *args)
{
    (void)callee;
    if (args->n > 0 && (args->u.items[0]->kind == PK_TENSOR ||
                        args->u.items[0]->kind == PK_OPAQUE))
        return args->u.items[0];
    return fail(p, "a Parameter without a tensor");
}

/* (function, type, args, state): a tensor of a subclass, or with a state. */
static struct pth_value *
call_from_type(struct pickle *p, struct pth_value *callee,
               struct pth_value *args)
{
    struct pth_value **a = args->u.items;

    if (args->n < 3 || a[2]->kind != PK_TUPLE || a[0]->kind != PK_GLOBAL ||
        pickle_is(a[0], "torch._tensor", "_rebuild_from_type_v2"))
        return pickle_opaque(p, callee);
    return rebuild_call(p, a[0], a[2]);
}

/* Each item a pair: the items of a dict. */
static int
extend_pairs(struct pickle *p, struct pth_value *dict, struct pth_value **items,
             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct pth_value *v = items[i];
        struct pth_value **pair = v->u.items;
        size_t n_pair = v->n;

        if (v->kind == PK_LIST) {
            pair = v->u.list->items;
            n_pair = v->u.list->n;
        } else if (v->kind != PK_TUPLE) {
            n_pair = 0;
        }
        if (n_pair != 2)
            return pickle_bad(p, "a dict of what are no pairs");
        if (pickle_extend(p, dict, pair, 2) < 0)
            return -1;
    }
    return 0;
}

/* dict(), dict(pairs), dict(dict) and its kin; the items come later, mostly. */
static struct pth_value *
new_dict(struct pickle *p, const struct pth_value *from)
{
    struct pth_value *v = pickle_list(p, PK_DICT);
    int rc = 0;

    if (!v || !from)
        return v;
    if (from->kind == PK_DICT)
        rc = pickle_extend(p, v, from->u.list->items, from->u.list->n);
    else if (from->kind == PK_LIST)
        rc = extend_pairs(p, v, from->u.list->items, from->u.list->n);
    else if (from->kind == PK_TUPLE)
        rc = extend_pairs(p, v, from->u.items, from->n);
    return rc < 0 ? NULL : v;
}

static struct pth_value *
call_dict(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    (void)callee;
    return new_dict(p, args->n ? args->u.items[0] : NULL);
}

static struct pth_value *
call_defaultdict(struct pickle *p, struct pth_value *callee,
                 struct pth_value *args)
{
    (void)callee;
    return new_dict(p, args->n > 1 ? args->u.items[1] : NULL);
}

/* set([...]) of protocols 2 and 3, list(...), tuple(...), torch.Size(...) */
static struct pth_value *
call_list(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    const struct pth_value *from = args->n ? args->u.items[0] : NULL;
    struct pth_value *v = pickle_list(p, PK_LIST);
    int rc = 0;

    if (!v || !from)
        return v;
    if (from->kind == PK_LIST || from->kind == PK_SET)
        rc = pickle_extend(p, v, from->u.list->items, from->u.list->n);
    else if (from->kind == PK_TUPLE)
        rc = pickle_extend(p, v, from->u.items, from->n);
    else
        return pickle_opaque(p, callee);
    return rc < 0 ? NULL : v;
}

static const struct {
    const char *module, *name;
    struct pth_value *(*call)(struct pickle *, struct pth_value *,
                              struct pth_value *);
} calls[] = {
    { "torch._utils", "_rebuild_tensor_v2", call_tensor },
    { "torch._utils", "_rebuild_parameter", call_parameter },
    { "collections", "OrderedDict", call_dict },
    { "torch._utils", "_rebuild_tensor", call_tensor },
    { "torch._utils", "_rebuild_tensor_v3", call_tensor_v3 },
    { "torch._utils", "_rebuild_parameter_with_state", call_parameter },
    { "torch._tensor", "_rebuild_from_type_v2", call_from_type },
    { "torch", "Size", call_list },
    { "collections", "defaultdict", call_defaultdict },
    { "builtins", "dict", call_dict },
    { "__builtin__", "dict", call_dict },
    { "builtins", "set", call_list },
    { "__builtin__", "set", call_list },
    { "builtins", "frozenset", call_list },
    { "__builtin__", "frozenset", call_list },
    { "builtins", "list", call_list },
    { "__builtin__", "list", call_list },
    { "builtins", "tuple", call_list },
    { "__builtin__", "tuple", call_list },
};

struct pth_value *
rebuild_call(struct pickle *p, struct pth_value *callee, struct pth_value *args)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        if (pickle_is(callee, calls[i].module, calls[i].name))
            return calls[i].call(p, callee, args);
    return pickle_opaque(p, callee);
}
