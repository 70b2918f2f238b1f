/* SPDX-License-Identifier: ISC */
/* The opcodes, in the order of pickletools. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/pickle.h"
#include "core/le.h"
#include "core/mem.h"

/* Shared by all nodes that have these values, which nobody changes. */
static struct pth_value constants[] = {
    { .kind = PTH_NONE },
    { .kind = PTH_BOOL, .u.i = 0 },
    { .kind = PTH_BOOL, .u.i = 1 },
};

static int
push_int(struct pickle *p, int64_t i)
{
    struct pth_value *v = pickle_value(p, PTH_INT);

    if (v)
        v->u.i = i;
    return pickle_push(p, v);
}

static int
op_binint(struct pickle *p)
{
    size_t width = p->opcode->arg;
    const uint8_t *b = pickle_take(p, width);

    if (!b)
        return -1;
    return push_int(p, width == 1   ? *b
                       : width == 2 ? le16(b)
                                    : (int32_t)le32(b));
}

/* The bytes up to a newline, which is skipped; NULL with an error set. */
static const char *
line(struct pickle *p, size_t *n)
{
    const char *s = (const char *)p->data + p->pos;
    const char *end = memchr(s, '\n', p->end - p->pos);

    if (!end)
        return pickle_fail(p, "a line without an end");
    *n = (size_t)(end - s);
    p->pos += *n + 1;
    return s;
}

/* A line of digits: Python 2 writes integers beyond 32 bits so in protocol 2,
 * and False and True as 00 and 01 in those before. */
static int
op_int(struct pickle *p)
{
    char text[24] = "";
    size_t n = 0;
    const char *s = line(p, &n);
    struct pth_value *v;

    if (!s)
        return -1;
    memcpy(text, s, smaller(n, sizeof(text) - 1));
    s = text + (*text == '-');
    if (!*s || strlen(text) != n || s[strspn(s, "0123456789")])
        return pickle_bad(p, "an integer with characters that are not digits");
    v = pickle_value(p, n == 2 && *s == '0' ? PTH_BOOL : PTH_INT);
    if (!v)
        return -1;
    errno = 0;
    v->u.i = strtoll(text, NULL, 10);
    return errno ? pickle_bad(p, "INT exceeds 64 bits") : pickle_push(p, v);
}

/* Reads a count, as wide as the opcode says, and that many bytes. */
static const uint8_t *
counted(struct pickle *p, uint32_t *n)
{
    size_t width = p->opcode->arg;
    const uint8_t *b = pickle_take(p, width);
    uint64_t nbytes;

    if (!b)
        return NULL;
    nbytes = width == 1 ? *b : width == 4 ? le32(b) : le64(b);
    if (nbytes > p->end - p->pos)
        return pickle_fail(p, "%zu bytes are promised, but %zu are left",
                           (size_t)nbytes, p->end - p->pos);
    *n = (uint32_t)nbytes; /* <= PICKLE_MAX_NBYTES */
    return pickle_take(p, nbytes);
}

static int
push_bytes(struct pickle *p, enum pth_kind kind, const uint8_t *b, uint32_t n)
{
    struct pth_value *v = pickle_value(p, kind);

    if (v) {
        v->u.s = (const char *)b;
        v->n = n;
    }
    return pickle_push(p, v);
}

static int
op_bytes(struct pickle *p)
{
    uint32_t n = 0;
    const uint8_t *b = counted(p, &n);

    return b ? push_bytes(p, p->opcode->kind, b, n) : -1;
}

/* A two's complement integer of any size, little-endian. */
static int
op_long(struct pickle *p)
{
    uint32_t n = 0;
    const uint8_t *b = counted(p, &n);
    uint64_t u = b && n > 0 && b[n - 1] & 0x80 ? UINT64_MAX : 0;

    if (!b)
        return -1;
    while (n > 1 && b[n - 1] == (b[n - 2] & 0x80 ? 0xff : 0))
        n--; /* repeats the sign */
    if (n > 8)
        return push_bytes(p, PTH_LONG, b, n);
    for (uint32_t i = n; i-- > 0;)
        u = u << 8 | b[i];
    return push_int(p, (int64_t)u);
}

static int
op_constant(struct pickle *p)
{
    return pickle_push(p, &constants[p->opcode->arg]);
}

static int
op_binfloat(struct pickle *p)
{
    const uint8_t *b = pickle_take(p, 8);
    struct pth_value *v = b ? pickle_value(p, PTH_FLOAT) : NULL;
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
    return pickle_push(p, pickle_list(p, p->opcode->kind));
}

#define MARKED 255 /* as an opcode's count: all above the last mark */

/* Pops as many items as the opcode's argument says; they are still there until
 * the next push.  NULL with an error set. */
static struct pth_value **
pop_items(struct pickle *p, size_t *n)
{
    static struct pth_value *none;

    *n = p->opcode->arg;
    if (*n == MARKED)
        return pickle_pop_mark(p, n);
    for (size_t i = 0; i < *n; i++)
        if (!pickle_pop(p))
            return NULL;
    return *n ? p->stack + p->n_stack : &none;
}

static int
op_tuple(struct pickle *p)
{
    size_t n = 0;
    struct pth_value **items = pop_items(p, &n);
    struct pth_value *v = items ? pickle_value(p, PTH_TUPLE) : NULL;

    if (v && n > 0) {
        v->n = (uint32_t)n; /* fewer than the bytes of a pickle */
        v->u.items = pickle_alloc(p, n, sizeof(*items));
        if (!v->u.items)
            return -1;
        memcpy(v->u.items, items, n * sizeof(*items));
    }
    return pickle_push(p, v);
}

/* LIST, DICT, FROZENSET: of all items above the mark. */
static int
op_list(struct pickle *p)
{
    enum pth_kind kind = p->opcode->kind;
    size_t n = 0;
    struct pth_value **items = pickle_pop_mark(p, &n);
    struct pth_value *v = items ? pickle_list(p, kind) : NULL;

    if (!v)
        return -1;
    if (kind == PTH_DICT && n % 2)
        return pickle_bad(p, "DICT with a key without a value");
    return pickle_extend(p, v, items, n) < 0 ? -1 : pickle_push(p, v);
}

/* Adds items to what is below them; opaque objects ignore them. */
static int
op_add(struct pickle *p)
{
    enum pth_kind kind = p->opcode->kind;
    size_t n = 0;
    struct pth_value **items = pop_items(p, &n);
    struct pth_value *v = items ? pickle_top(p) : NULL;

    if (!v)
        return -1;
    if (v->kind == kind && kind == PTH_DICT && n % 2)
        return pickle_bad(p, "a key without a value");
    if (v->kind == kind)
        return pickle_extend(p, v, items, n);
    if (v->kind == PTH_OPAQUE)
        return 0;
    return pickle_bad(p, "%s on what is not a %s", p->opcode->name,
                      kind == PTH_DICT  ? "dict"
                      : kind == PTH_SET ? "set"
                                        : "list");
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

/* The slot of an id in the memo; NULL: not set, or, with 'make', an error. */
static void **
memo_slot(struct pickle *p, uint32_t id, bool make)
{
    void **node = (void **)&p->memo;

    for (int shift = 24; shift >= 0; shift -= 8) {
        if (!*node && make)
            *node = pickle_alloc(p, 256, sizeof(void *));
        if (!*node)
            return NULL;
        node = (void **)*node + (id >> shift & 255);
    }
    return node;
}

/* A memo's id in one byte or in four. */
static bool
read_id(struct pickle *p, uint32_t *id)
{
    size_t width = p->opcode->arg;
    const uint8_t *b = pickle_take(p, width);

    if (b)
        *id = width == 1 ? *b : le32(b);
    return b;
}

static int
op_get(struct pickle *p)
{
    uint32_t id;
    void **slot;

    if (!read_id(p, &id))
        return -1;
    slot = memo_slot(p, id, false);
    if (slot && *slot)
        return pickle_push(p, *slot);
    return pickle_bad(p, "memo %u was never set", id);
}

static int
memo_put(struct pickle *p, uint32_t id)
{
    struct pth_value *v = pickle_top(p);
    void **slot = v ? memo_slot(p, id, true) : NULL;

    if (!slot)
        return -1;
    p->n_memo += !*slot;
    *slot = v;
    return 0;
}

static int
op_put(struct pickle *p)
{
    uint32_t id;

    return read_id(p, &id) ? memo_put(p, id) : -1;
}

static int
op_memoize(struct pickle *p)
{
    return memo_put(p, (uint32_t)p->n_memo);
}

static int
op_global(struct pickle *p)
{
    size_t module_n = 0, name_n = 0;
    const char *module = line(p, &module_n);
    const char *name = module ? line(p, &name_n) : NULL;

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
    if (name->kind != PTH_STR || module->kind != PTH_STR)
        return pickle_bad(p, "STACK_GLOBAL of values that are not strings");
    return pickle_push(
        p, pickle_global(p, module->u.s, module->n, name->u.s, name->n));
}

/* REDUCE and NEWOBJ alike: a class is called; NEWOBJ_EX: without the keywords
 * on top. */
static int
op_reduce(struct pickle *p)
{
    struct pth_value *args, *callee;

    if (p->opcode->arg && !pickle_pop(p))
        return -1;
    args = pickle_pop(p);
    callee = args ? pickle_pop(p) : NULL;
    if (!callee)
        return -1;
    if (args->kind != PTH_TUPLE)
        return pickle_bad(p, "%s with arguments that are not a tuple",
                          p->opcode->name);
    return pickle_push(p, rebuild_call(p, callee, args));
}

/* The state of an object, which no value here needs. */
static int
op_build(struct pickle *p)
{
    return pickle_pop(p) && pickle_top(p) ? 0 : -1;
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

    return id ? pickle_push(p, rebuild_persistent(p, id)) : -1;
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
    return pickle_bad(p, "FRAME of %zu bytes, but %zu are left",
                      (size_t)le64(b), p->end - p->pos);
}

/* A name without a function: known to Python, not supported; PICKLE_TEXT: only
 * protocol 0 has it. */
const struct pickle_opcode pickle_opcodes[256] = {
    ['('] = { "MARK", pickle_mark, 0, 0 },
    [')'] = { "EMPTY_TUPLE", op_tuple, 0, 0 },
    ['.'] = { "STOP", NULL, 0, 0 },
    ['0'] = { "POP", op_pop, 0, 0 },
    ['1'] = { "POP_MARK", op_pop_mark, 0, 0 },
    ['2'] = { "DUP", op_dup, 0, 0 },
    ['B'] = { "BINBYTES", op_bytes, 4, PTH_BYTES },
    ['C'] = { "SHORT_BINBYTES", op_bytes, 1, PTH_BYTES },
    ['F'] = { "FLOAT", NULL, PICKLE_TEXT, 0 },
    ['G'] = { "BINFLOAT", op_binfloat, 0, 0 },
    ['I'] = { "INT", op_int, 0, 0 },
    ['J'] = { "BININT", op_binint, 4, 0 },
    ['K'] = { "BININT1", op_binint, 1, 0 },
    ['L'] = { "LONG", NULL, PICKLE_TEXT, 0 },
    ['M'] = { "BININT2", op_binint, 2, 0 },
    ['N'] = { "NONE", op_constant, 0, 0 },
    ['P'] = { "PERSID", NULL, PICKLE_TEXT, 0 },
    ['Q'] = { "BINPERSID", op_binpersid, 0, 0 },
    ['R'] = { "REDUCE", op_reduce, 0, 0 },
    ['S'] = { "STRING", NULL, PICKLE_TEXT, 0 },
    ['T'] = { "BINSTRING", op_bytes, 4, PTH_STR },
    ['U'] = { "SHORT_BINSTRING", op_bytes, 1, PTH_STR },
    ['V'] = { "UNICODE", NULL, PICKLE_TEXT, 0 },
    ['X'] = { "BINUNICODE", op_bytes, 4, PTH_STR },
    [']'] = { "EMPTY_LIST", op_empty, 0, PTH_LIST },
    ['a'] = { "APPEND", op_add, 1, PTH_LIST },
    ['b'] = { "BUILD", op_build, 0, 0 },
    ['c'] = { "GLOBAL", op_global, 0, 0 },
    ['d'] = { "DICT", op_list, 0, PTH_DICT },
    ['e'] = { "APPENDS", op_add, MARKED, PTH_LIST },
    ['g'] = { "GET", NULL, PICKLE_TEXT, 0 },
    ['h'] = { "BINGET", op_get, 1, 0 },
    ['i'] = { "INST", NULL, PICKLE_TEXT, 0 },
    ['j'] = { "LONG_BINGET", op_get, 4, 0 },
    ['l'] = { "LIST", op_list, 0, PTH_LIST },
    ['o'] = { "OBJ", op_obj, 0, 0 },
    ['p'] = { "PUT", NULL, PICKLE_TEXT, 0 },
    ['q'] = { "BINPUT", op_put, 1, 0 },
    ['r'] = { "LONG_BINPUT", op_put, 4, 0 },
    ['s'] = { "SETITEM", op_add, 2, PTH_DICT },
    ['t'] = { "TUPLE", op_tuple, MARKED, 0 },
    ['u'] = { "SETITEMS", op_add, MARKED, PTH_DICT },
    ['}'] = { "EMPTY_DICT", op_empty, 0, PTH_DICT },
    [0x80] = { "PROTO", op_proto, 0, 0 },
    [0x81] = { "NEWOBJ", op_reduce, 0, 0 },
    [0x82] = { "EXT1", NULL, 0, 0 },
    [0x83] = { "EXT2", NULL, 0, 0 },
    [0x84] = { "EXT4", NULL, 0, 0 },
    [0x85] = { "TUPLE1", op_tuple, 1, 0 },
    [0x86] = { "TUPLE2", op_tuple, 2, 0 },
    [0x87] = { "TUPLE3", op_tuple, 3, 0 },
    [0x88] = { "NEWTRUE", op_constant, 2, 0 },
    [0x89] = { "NEWFALSE", op_constant, 1, 0 },
    [0x8a] = { "LONG1", op_long, 1, 0 },
    [0x8b] = { "LONG4", op_long, 4, 0 },
    [0x8c] = { "SHORT_BINUNICODE", op_bytes, 1, PTH_STR },
    [0x8d] = { "BINUNICODE8", op_bytes, 8, PTH_STR },
    [0x8e] = { "BINBYTES8", op_bytes, 8, PTH_BYTES },
    [0x8f] = { "EMPTY_SET", op_empty, 0, PTH_SET },
    [0x90] = { "ADDITEMS", op_add, MARKED, PTH_SET },
    [0x91] = { "FROZENSET", op_list, 0, PTH_SET },
    [0x92] = { "NEWOBJ_EX", op_reduce, 1, 0 },
    [0x93] = { "STACK_GLOBAL", op_stack_global, 0, 0 },
    [0x94] = { "MEMOIZE", op_memoize, 0, 0 },
    [0x95] = { "FRAME", op_frame, 0, 0 },
    [0x96] = { "BYTEARRAY8", op_bytes, 8, PTH_BYTES },
    [0x97] = { "NEXT_BUFFER", NULL, 0, 0 },
    [0x98] = { "READONLY_BUFFER", NULL, 0, 0 },
};
