/* The opcodes, in the order of pickletools. */
#include <string.h>

#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/pickle_text.h"
#include "core/le.h"

/* What many nodes of a tree are: nobody changes these. */
static struct pth_value none_value = { .kind = PK_NONE };
static struct pth_value bool_values[2] = {
    { .kind = PK_BOOL, .u.i = 0 },
    { .kind = PK_BOOL, .u.i = 1 },
};

static int
push_int(struct pickle *p, int64_t i)
{
    struct pth_value *v = pickle_value(p, PK_INT);

    if (v)
        v->u.i = i;
    return pickle_push(p, v);
}

static int
op_binint(struct pickle *p)
{
    const uint8_t *b = pickle_take(p, p->arg);

    if (!b)
        return -1;
    return push_int(p, p->arg == 1   ? *b
                       : p->arg == 2 ? le16(b)
                                     : (int32_t)le32(b));
}

/* A length in 'width' bytes, then so many bytes. */
static const uint8_t *
counted(struct pickle *p, size_t width, uint32_t *n)
{
    const uint8_t *b = pickle_take(p, width);
    uint64_t len;

    if (!b)
        return NULL;
    len = width == 1 ? *b : width == 4 ? le32(b) : le64(b);
    if (len > p->end - p->pos) {
        pickle_bad(p, "%zu bytes are named, but %zu are there", (size_t)len,
                   p->end - p->pos);
        return NULL;
    }
    *n = (uint32_t)len; /* <= PICKLE_MAX_NBYTES */
    return pickle_take(p, len);
}

static int
push_bytes(struct pickle *p, enum pickle_kind kind, size_t width)
{
    uint32_t n = 0;
    const uint8_t *b = counted(p, width, &n);
    struct pth_value *v = b ? pickle_value(p, kind) : NULL;

    if (!v)
        return -1;
    v->u.s = (const char *)b;
    v->n = n;
    return pickle_push(p, v);
}

static int
op_str(struct pickle *p)
{
    return push_bytes(p, PK_STR, p->arg);
}

static int
op_bytes(struct pickle *p)
{
    return push_bytes(p, PK_BYTES, p->arg);
}

/* Little-endian two's complement of any length, as short as it can be made. */
static int
op_long(struct pickle *p)
{
    uint32_t n = 0;
    const uint8_t *b = counted(p, p->arg, &n);
    uint64_t u = b && n > 0 && b[n - 1] & 0x80 ? UINT64_MAX : 0;
    struct pth_value *v;

    if (!b)
        return -1;
    while (n > 1 && b[n - 1] == (b[n - 2] & 0x80 ? 0xff : 0))
        n--; /* the sign once more */
    if (n > 8) {
        v = pickle_value(p, PK_LONG);
        if (v) {
            v->u.s = (const char *)b;
            v->n = n;
        }
        return pickle_push(p, v);
    }
    for (uint32_t i = n; i-- > 0;)
        u = u << 8 | b[i];
    return push_int(p, (int64_t)u);
}

static int
op_none(struct pickle *p)
{
    return pickle_push(p, &none_value);
}

static int
op_bool(struct pickle *p)
{
    return pickle_push(p, &bool_values[p->arg]);
}

static int
op_binfloat(struct pickle *p)
{
    const uint8_t *b = pickle_take(p, 8);
    struct pth_value *v = b ? pickle_value(p, PK_FLOAT) : NULL;
    uint64_t u = 0;

    if (!v)
        return -1;
    for (int i = 0; i < 8; i++)
        u = u << 8 | b[i];
    memcpy(&v->u.f, &u, sizeof(u));
    return pickle_push(p, v);
}

static int
op_empty(struct pickle *p)
{
    return pickle_push(p, pickle_list(p, (enum pickle_kind)p->arg));
}

static struct pth_value *
tuple(struct pickle *p, struct pth_value **items, size_t n)
{
    struct pth_value *v = pickle_value(p, PK_TUPLE);

    if (!v || n == 0)
        return v;
    v->n = (uint32_t)n; /* fewer than the bytes of a pickle */
    v->u.items = pickle_alloc(p, n, sizeof(*items));
    if (!v->u.items)
        return NULL;
    memcpy(v->u.items, items, n * sizeof(*items));
    return v;
}

static int
op_tuple_of(struct pickle *p)
{
    struct pth_value *items[3];
    size_t n = p->arg;

    for (size_t i = n; i-- > 0;) {
        items[i] = pickle_pop(p);
        if (!items[i])
            return -1;
    }
    return pickle_push(p, tuple(p, items, n));
}

static int
op_tuple(struct pickle *p)
{
    size_t n = 0;
    struct pth_value **items = pickle_pop_mark(p, &n);

    return items ? pickle_push(p, tuple(p, items, n)) : -1;
}

/* LIST, DICT, FROZENSET: of all that stands above the mark. */
static int
op_list(struct pickle *p)
{
    enum pickle_kind kind = (enum pickle_kind)p->arg;
    size_t n = 0;
    struct pth_value **items = pickle_pop_mark(p, &n);
    struct pth_value *v = items ? pickle_list(p, kind) : NULL;

    if (!v)
        return -1;
    if (kind == PK_DICT && n % 2)
        return pickle_bad(p, "DICT with a key without a value");
    return pickle_extend(p, v, items, n) < 0 ? -1 : pickle_push(p, v);
}

/* Adds items to what is now on top; those of opaque objects are of no use. */
static int
add_items(struct pickle *p, struct pth_value **items, size_t n)
{
    enum pickle_kind kind = (enum pickle_kind)p->arg;
    struct pth_value *v = items ? pickle_top(p) : NULL;

    if (!v)
        return -1;
    if (v->kind == kind && kind == PK_DICT && n % 2)
        return pickle_bad(p, "a key without a value");
    if (v->kind == kind)
        return pickle_extend(p, v, items, n);
    if (v->kind == PK_OPAQUE)
        return 0;
    return pickle_bad(p, "%s on what is no %s",
                      pickle_opcodes[p->data[p->op]].name,
                      kind == PK_DICT  ? "dict"
                      : kind == PK_SET ? "set"
                                       : "list");
}

static int
op_add_marked(struct pickle *p)
{
    size_t n = 0;
    struct pth_value **items = pickle_pop_mark(p, &n);

    return add_items(p, items, n);
}

static int
op_append(struct pickle *p)
{
    struct pth_value *item = pickle_pop(p);

    return item ? add_items(p, &item, 1) : -1;
}

static int
op_setitem(struct pickle *p)
{
    struct pth_value *items[2];

    items[1] = pickle_pop(p);
    items[0] = items[1] ? pickle_pop(p) : NULL;
    return items[0] ? add_items(p, items, 2) : -1;
}

/* A mark on top counts as something to pop, as in CPython. */
static int
op_pop(struct pickle *p)
{
    if (p->n_marks > 0 && p->marks[p->n_marks - 1] == p->n_stack) {
        p->n_marks--;
        return 0;
    }
    return pickle_pop(p) ? 0 : -1;
}

static int
op_dup(struct pickle *p)
{
    return pickle_push(p, pickle_top(p));
}

static int
op_pop_mark(struct pickle *p)
{
    size_t n;

    return pickle_pop_mark(p, &n) ? 0 : -1;
}

/* The number of a memo in one byte or four. */
static bool
read_id(struct pickle *p, uint32_t *id)
{
    const uint8_t *b = pickle_take(p, p->arg);

    if (b)
        *id = p->arg == 1 ? *b : le32(b);
    return b;
}

static int
op_get(struct pickle *p)
{
    uint32_t id;

    return read_id(p, &id) ? pickle_memo_get(p, id) : -1;
}

static int
op_put(struct pickle *p)
{
    uint32_t id;

    return read_id(p, &id) ? pickle_memo_put(p, id) : -1;
}

static int
op_memoize(struct pickle *p)
{
    return pickle_memo_put(p, (uint32_t)p->n_memo);
}

static int
op_global(struct pickle *p)
{
    size_t module_n = 0, name_n = 0;
    const char *module = pickle_line(p, &module_n);
    const char *name = module ? pickle_line(p, &name_n) : NULL;

    return name ? pickle_push(p,
                              pickle_global(p, module, module_n, name, name_n))
                : -1;
}

static int
op_stack_global(struct pickle *p)
{
    struct pth_value *name = pickle_pop(p);
    struct pth_value *module = name ? pickle_pop(p) : NULL;

    if (!module)
        return -1;
    if (name->kind != PK_STR || module->kind != PK_STR)
        return pickle_bad(p, "STACK_GLOBAL of what are no strings");
    return pickle_push(
        p, pickle_global(p, module->u.s, module->n, name->u.s, name->n));
}

/* REDUCE and NEWOBJ alike: a class is called. */
static int
op_reduce(struct pickle *p)
{
    struct pth_value *args = pickle_pop(p);
    struct pth_value *callee = args ? pickle_pop(p) : NULL;

    if (!callee)
        return -1;
    if (args->kind != PK_TUPLE)
        return pickle_bad(p, "%s with arguments that are no tuple",
                          pickle_opcodes[p->data[p->op]].name);
    return pickle_push(p, p->call(p, callee, args));
}

static int
op_newobj_ex(struct pickle *p)
{
    return pickle_pop(p) ? op_reduce(p) : -1; /* without the keywords */
}

/* The state of an object: nothing that we make has one of use. */
static int
op_build(struct pickle *p)
{
    return pickle_pop(p) && pickle_top(p) ? 0 : -1;
}

static int
op_inst(struct pickle *p)
{
    size_t n = 0;
    struct pth_value **items;
    struct pth_value *callee;

    if (op_global(p) < 0 || !(callee = pickle_pop(p)) ||
        !(items = pickle_pop_mark(p, &n)))
        return -1;
    return pickle_push(p, pickle_opaque(p, callee));
}

static int
op_obj(struct pickle *p)
{
    size_t n = 0;
    struct pth_value **items = pickle_pop_mark(p, &n);

    if (!items)
        return -1;
    if (n == 0)
        return pickle_bad(p, "OBJ without a class");
    return pickle_push(p, pickle_opaque(p, items[0]));
}

static int
op_binpersid(struct pickle *p)
{
    struct pth_value *id = pickle_pop(p);

    return id ? pickle_push(p, p->persistent(p, id)) : -1;
}

static int
op_proto(struct pickle *p)
{
    const uint8_t *b = pickle_take(p, 1);

    if (!b)
        return -1;
    return *b <= 5 ? 0 : pickle_bad(p, "pickle protocol %d", *b);
}

/* A frame only says how much may be read at once. */
static int
op_frame(struct pickle *p)
{
    const uint8_t *b = pickle_take(p, 8);

    if (!b)
        return -1;
    if (le64(b) <= p->end - p->pos)
        return 0;
    return pickle_bad(p, "FRAME of %zu bytes, but %zu are there",
                      (size_t)le64(b), p->end - p->pos);
}

/* With p->arg.  A name without a function: known to Python, not supported. */
const struct pickle_opcode pickle_opcodes[256] = {
    ['('] = { "MARK", pickle_mark, 0 },
    [')'] = { "EMPTY_TUPLE", op_tuple_of, 0 },
    ['.'] = { "STOP", NULL, 0 },
    ['0'] = { "POP", op_pop, 0 },
    ['1'] = { "POP_MARK", op_pop_mark, 0 },
    ['2'] = { "DUP", op_dup, 0 },
    ['B'] = { "BINBYTES", op_bytes, 4 },
    ['C'] = { "SHORT_BINBYTES", op_bytes, 1 },
    ['F'] = { "FLOAT", pickle_op_float, 0 },
    ['G'] = { "BINFLOAT", op_binfloat, 0 },
    ['I'] = { "INT", pickle_op_int, 0 },
    ['J'] = { "BININT", op_binint, 4 },
    ['K'] = { "BININT1", op_binint, 1 },
    ['L'] = { "LONG", pickle_op_long, 0 },
    ['M'] = { "BININT2", op_binint, 2 },
    ['N'] = { "NONE", op_none, 0 },
    ['P'] = { "PERSID", NULL, 0 },
    ['Q'] = { "BINPERSID", op_binpersid, 0 },
    ['R'] = { "REDUCE", op_reduce, 0 },
    ['S'] = { "STRING", pickle_op_string, 0 },
    ['T'] = { "BINSTRING", op_str, 4 },
    ['U'] = { "SHORT_BINSTRING", op_str, 1 },
    ['V'] = { "UNICODE", pickle_op_unicode, 0 },
    ['X'] = { "BINUNICODE", op_str, 4 },
    [']'] = { "EMPTY_LIST", op_empty, PK_LIST },
    ['a'] = { "APPEND", op_append, PK_LIST },
    ['b'] = { "BUILD", op_build, 0 },
    ['c'] = { "GLOBAL", op_global, 0 },
    ['d'] = { "DICT", op_list, PK_DICT },
    ['e'] = { "APPENDS", op_add_marked, PK_LIST },
    ['g'] = { "GET", pickle_op_get, 0 },
    ['h'] = { "BINGET", op_get, 1 },
    ['i'] = { "INST", op_inst, 0 },
    ['j'] = { "LONG_BINGET", op_get, 4 },
    ['l'] = { "LIST", op_list, PK_LIST },
    ['o'] = { "OBJ", op_obj, 0 },
    ['p'] = { "PUT", pickle_op_put, 0 },
    ['q'] = { "BINPUT", op_put, 1 },
    ['r'] = { "LONG_BINPUT", op_put, 4 },
    ['s'] = { "SETITEM", op_setitem, PK_DICT },
    ['t'] = { "TUPLE", op_tuple, 0 },
    ['u'] = { "SETITEMS", op_add_marked, PK_DICT },
    ['}'] = { "EMPTY_DICT", op_empty, PK_DICT },
    [0x80] = { "PROTO", op_proto, 0 },
    [0x81] = { "NEWOBJ", op_reduce, 0 },
    [0x82] = { "EXT1", NULL, 0 },
    [0x83] = { "EXT2", NULL, 0 },
    [0x84] = { "EXT4", NULL, 0 },
    [0x85] = { "TUPLE1", op_tuple_of, 1 },
    [0x86] = { "TUPLE2", op_tuple_of, 2 },
    [0x87] = { "TUPLE3", op_tuple_of, 3 },
    [0x88] = { "NEWTRUE", op_bool, 1 },
    [0x89] = { "NEWFALSE", op_bool, 0 },
    [0x8a] = { "LONG1", op_long, 1 },
    [0x8b] = { "LONG4", op_long, 4 },
    [0x8c] = { "SHORT_BINUNICODE", op_str, 1 },
    [0x8d] = { "BINUNICODE8", op_str, 8 },
    [0x8e] = { "BINBYTES8", op_bytes, 8 },
    [0x8f] = { "EMPTY_SET", op_empty, PK_SET },
    [0x90] = { "ADDITEMS", op_add_marked, PK_SET },
    [0x91] = { "FROZENSET", op_list, PK_SET },
    [0x92] = { "NEWOBJ_EX", op_newobj_ex, 0 },
    [0x93] = { "STACK_GLOBAL", op_stack_global, 0 },
    [0x94] = { "MEMOIZE", op_memoize, 0 },
    [0x95] = { "FRAME", op_frame, 0 },
    [0x96] = { "BYTEARRAY8", op_bytes, 8 },
    [0x97] = { "NEXT_BUFFER", NULL, 0 },
    [0x98] = { "READONLY_BUFFER", NULL, 0 },
};
