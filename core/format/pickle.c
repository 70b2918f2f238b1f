/* SPDX-License-Identifier: ISC */
/* The machine: memory, values, stack, marks. */
#include "core/format/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/tty.h"

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)256 << 10)
#define MAX_NAME  1000 /* bytes of a module, or of a name in it */

struct arena {
    struct arena *next;
    size_t used, size;
    uint8_t bytes[] __attribute__((aligned(16)));
};

int
pickle_bad(struct pickle *p, const char *fmt, ...)
{
    char what[900];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_data(p->err, p->path, "%sbyte %zu: %s", p->where, p->op, what);
}

static bool
charge(struct pickle *p, size_t nbytes)
{
    size_t most = PICKLE_MAX_MEMORY + p->extra;

    if (nbytes > most - p->memory) {
        pickle_bad(p, "its values need more than %zu MiB", most >> 20);
        return false;
    }
    p->memory += nbytes;
    return true;
}

void *
pickle_alloc(struct pickle *p, size_t n, size_t size)
{
    struct arena *a = p->arena;
    size_t nbytes = SIZE_MAX;
    void *v;

    if (!size_mul(n, size, &nbytes) || nbytes > SIZE_MAX / 2)
        nbytes = SIZE_MAX / 2; /* more than is left: an error */
    nbytes = (nbytes + 15) & ~(size_t)15;
    if (!a || nbytes > a->size - a->used) {
        size_t chunk = a ? smaller(2 * a->size, CHUNK_MAX) : CHUNK_MIN;

        chunk = larger(chunk, nbytes);
        if (!charge(p, sizeof(*a) + chunk))
            return NULL;
        a = xcalloc(1, sizeof(*a) + chunk);
        a->size = chunk;
        a->next = p->arena;
        p->arena = a;
    }
    v = a->bytes + a->used;
    a->used += nbytes;
    return v;
}

struct pth_value *
pickle_value(struct pickle *p, enum pth_kind kind)
{
    struct pth_value *v = pickle_alloc(p, 1, sizeof(*v));

    if (v)
        v->kind = (uint8_t)kind;
    return v;
}

struct pth_value *
pickle_opaque(struct pickle *p, const struct pth_value *callee)
{
    struct pth_value *v = pickle_value(p, PTH_OPAQUE);

    if (v && (callee->kind == PTH_GLOBAL || callee->kind == PTH_OPAQUE))
        v->u.global = callee->u.global;
    return v;
}

struct pth_value *
pickle_list(struct pickle *p, enum pth_kind kind)
{
    struct pth_value *v = pickle_value(p, kind);
    struct pth_list *list = v ? pickle_alloc(p, 1, sizeof(*list)) : NULL;

    if (!list)
        return NULL;
    v->u.list = list;
    list->dict = kind == PTH_DICT;
    list->next = p->lists;
    p->lists = list;
    return v;
}

int
pickle_extend(struct pickle *p, struct pth_value *v, struct pth_value **items,
              size_t n)
{
    struct pth_list *list = v->u.list;
    size_t need = list->n + n;

    if (need > UINT32_MAX / 2)
        return pickle_bad(p, "%zu items are too many", need);
    if (need > list->cap) {
        size_t cap = larger(need, 2 * (size_t)list->cap);
        struct pth_value **more = pickle_alloc(p, cap, sizeof(*more));

        if (!more)
            return -1;
        if (list->n > 0)
            memcpy(more, list->items, list->n * sizeof(*more));
        list->items = more;
        list->cap = (uint32_t)cap;
    }
    if (n > 0)
        memcpy(list->items + list->n, items, n * sizeof(*items));
    list->n = (uint32_t)need;
    return 0;
}

struct pth_value *
pickle_global(struct pickle *p, const char *module_s, size_t module_n,
              const char *name_s, size_t name_n)
{
    struct pth_value *v = pickle_value(p, PTH_GLOBAL);
    struct pth_global *g = v ? pickle_alloc(p, 1, sizeof(*g)) : NULL;
    char *module, *name;

    if (module_n > MAX_NAME || name_n > MAX_NAME)
        return pickle_fail(p,
                           "a global's name of %zu bytes (expected at most %d)",
                           module_n > MAX_NAME ? module_n : name_n, MAX_NAME);
    module = g ? pickle_alloc(p, module_n + 1, 1) : NULL;
    name = module ? pickle_alloc(p, name_n + 1, 1) : NULL;
    if (!name)
        return NULL;
    memcpy(module, module_s, module_n);
    memcpy(name, name_s, name_n);
    if (strlen(module) != module_n || strlen(name) != name_n)
        return pickle_fail(p, "a global's name has a NUL in it");
    if (pickle_dangerous(module, name))
        return pickle_fail(p,
                           "global %.200s.%.200s could run code: no checkpoint "
                           "needs it",
                           module, name);
    if (!pickle_listed(module, name)) {
        const char *const *ok = p->allowed;

        while (ok && *ok &&
               (strncmp(*ok, module, module_n) || (*ok)[module_n] != '.' ||
                strcmp(*ok + module_n + 1, name)))
            ok++;
        if (!ok)
            return pickle_fail(
                p, "global %.200s.%.200s is not one that weights need", module,
                name);
        if (!*ok)
            return pickle_fail(p,
                               "global %.200s.%.200s is not one that weights "
                               "need (--allow %.200s.%.200s ignores it)",
                               module, name, module, name);
    }
    *g = (struct pth_global){ .module = module, .name = name, .at = p->op };
    if (p->last_global)
        p->last_global->next = g;
    else
        p->globals = g;
    p->last_global = g;
    v->u.global = g;
    return v;
}

/* Room for one more of 'size' bytes in one of the machine's own arrays. */
static int
grow(struct pickle *p, void *array, size_t n, size_t *cap, size_t size)
{
    void **a = array;
    size_t more = *cap ? *cap : 64;

    if (n < *cap)
        return 0;
    if (!charge(p, more * size))
        return -1;
    *cap += more;
    *a = xrealloc(*a, *cap, size);
    return 0;
}

const uint8_t *
pickle_take(struct pickle *p, size_t n)
{
    const uint8_t *b = p->data + p->pos;

    if (n > p->end - p->pos)
        return pickle_fail(p, "the pickle is cut short: %zu byte%s missing",
                           n - (p->end - p->pos),
                           plural(n - (p->end - p->pos)));
    p->pos += n;
    return b;
}

int
pickle_push(struct pickle *p, struct pth_value *v)
{
    struct pth_value **stack = p->stack;

    if (!v || grow(p, &stack, p->n_stack, &p->cap_stack, sizeof(*stack)) < 0)
        return -1;
    p->stack = stack;
    p->stack[p->n_stack++] = v;
    return 0;
}

struct pth_value *
pickle_top(struct pickle *p)
{
    /* what lies below the last mark cannot be popped */
    if (p->n_stack > (p->n_marks ? p->marks[p->n_marks - 1] : 0))
        return p->stack[p->n_stack - 1];
    return pickle_fail(p, "%s has nothing on the stack", p->opcode->name);
}

struct pth_value *
pickle_pop(struct pickle *p)
{
    struct pth_value *v = pickle_top(p);

    if (v)
        p->n_stack--;
    return v;
}

int
pickle_mark(struct pickle *p)
{
    size_t *marks = p->marks;

    if (grow(p, &marks, p->n_marks, &p->cap_marks, sizeof(*marks)) < 0)
        return -1;
    p->marks = marks;
    p->marks[p->n_marks++] = p->n_stack;
    return 0;
}

struct pth_value **
pickle_pop_mark(struct pickle *p, size_t *n)
{
    static struct pth_value *none;
    size_t at;

    if (p->n_marks == 0)
        return pickle_fail(p, "%s without a MARK", p->opcode->name);
    at = p->marks[--p->n_marks];
    *n = p->n_stack - at;
    p->n_stack = at;
    return p->stack ? p->stack + at : &none;
}

struct pth_value *
pickle_run(struct pickle *p, size_t at, size_t *end)
{
    const uint8_t *b = p->data + at;
    size_t left = p->size - at;
    struct pth_value *v;

    p->pos = p->op = at;
    p->end = at + smaller(left, PICKLE_MAX_NBYTES);
    p->n_stack = p->n_marks = p->n_memo = 0;
    p->memo = NULL;
    if (left < 2 || b[0] != 0x80)
        return pickle_fail(
            p, "no pickle of protocol 2 to 5 starts here (" PICKLE_AGAIN ")");
    if (b[1] < 2 || b[1] > 5)
        return pickle_fail(p, "pickle protocol %d (expected 2 to 5)", b[1]);
    for (;;) {
        p->op = p->pos;
        b = pickle_take(p, 1);
        if (!b)
            return NULL;
        p->opcode = &pickle_opcodes[*b];
        if (*b == '.')
            break;
        if (p->opcode->arg == PICKLE_TEXT)
            return pickle_fail(
                p, "%s is an opcode of protocol 0 (" PICKLE_AGAIN ")",
                p->opcode->name);
        if (!p->opcode->run)
            return pickle_fail(p, "opcode 0x%02x is %s", *b,
                               p->opcode->name ? "not supported" : "unknown");
        if (p->opcode->run(p) < 0)
            return NULL;
    }
    v = pickle_pop(p);
    *end = p->pos;
    return v;
}

void
pickle_free(struct pickle *p)
{
    struct arena *next;

    for (struct arena *a = p->arena; a; a = next) {
        next = a->next;
        free(a);
    }
    free(p->stack);
    free(p->marks);
    *p = (struct pickle){ 0 };
}
