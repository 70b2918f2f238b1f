/* The machine: memory, stack, marks, memo. */
#include "cmd/kvc-convert/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define CHUNK_MIN 16384
#define CHUNK_MAX 262144

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
    return err_set(p->err, EX_DATAERR, "%s: %sbyte %zu: %s", p->path, p->where,
                   p->op, what);
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

static bool
new_chunk(struct pickle *p, size_t nbytes)
{
    size_t size = p->arena ? 2 * p->arena->size : CHUNK_MIN;
    struct arena *a;

    size = size < CHUNK_MAX ? size : CHUNK_MAX;
    size = size > nbytes ? size : nbytes;
    if (!charge(p, sizeof(*a) + size))
        return false;
    a = xcalloc(1, sizeof(*a) + size);
    a->size = size;
    a->next = p->arena;
    p->arena = a;
    return true;
}

void *
pickle_alloc(struct pickle *p, size_t n, size_t size)
{
    size_t nbytes = SIZE_MAX;
    void *v;

    if (!size_mul(n, size, &nbytes) || nbytes > SIZE_MAX / 2)
        nbytes = SIZE_MAX / 2; /* more than is left: an error */
    nbytes = (nbytes + 15) & ~(size_t)15;
    if ((!p->arena || nbytes > p->arena->size - p->arena->used) &&
        !new_chunk(p, nbytes))
        return NULL;
    v = p->arena->bytes + p->arena->used;
    p->arena->used += nbytes;
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

    if (n > p->end - p->pos) {
        pickle_bad(p, "%zu bytes of the pickle are missing",
                   n - (p->end - p->pos));
        return NULL;
    }
    p->pos += n;
    return b;
}

const char *
pickle_line(struct pickle *p, size_t *n)
{
    const char *s = (const char *)p->data + p->pos;
    const char *end = memchr(s, '\n', p->end - p->pos);

    if (!end) {
        pickle_bad(p, "a line without an end");
        return NULL;
    }
    *n = (size_t)(end - s);
    p->pos += *n + 1;
    return s;
}

/* What lies below the last mark cannot be popped. */
static size_t
floor_of(const struct pickle *p)
{
    return p->n_marks ? p->marks[p->n_marks - 1] : 0;
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
    if (p->n_stack > floor_of(p))
        return p->stack[p->n_stack - 1];
    pickle_bad(p, "%s has nothing on the stack",
               pickle_opcodes[p->data[p->op]].name);
    return NULL;
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

    if (p->n_marks == 0) {
        pickle_bad(p, "%s without a MARK", pickle_opcodes[p->data[p->op]].name);
        return NULL;
    }
    at = p->marks[--p->n_marks];
    *n = p->n_stack - at;
    p->n_stack = at;
    return p->stack ? p->stack + at : &none;
}

/* The slot of an id in the tree; with 'make', NULL is an error. */
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

int
pickle_memo_put(struct pickle *p, uint32_t id)
{
    struct pth_value *v = pickle_top(p);
    void **slot = v ? memo_slot(p, id, true) : NULL;

    if (!slot)
        return -1;
    p->n_memo += !*slot;
    *slot = v;
    return 0;
}

int
pickle_memo_get(struct pickle *p, uint32_t id)
{
    void **slot = memo_slot(p, id, false);

    if (slot && *slot)
        return pickle_push(p, *slot);
    return pickle_bad(p, "memo %u was never set", id);
}

static int
step(struct pickle *p, bool *stop)
{
    const uint8_t *b;
    pickle_op *run;

    p->op = p->pos;
    b = pickle_take(p, 1);
    if (!b)
        return -1;
    *stop = *b == '.';
    run = pickle_opcodes[*b].run;
    p->arg = pickle_opcodes[*b].arg;
    if (run)
        return run(p);
    if (*stop)
        return 0;
    return pickle_bad(p, "opcode 0x%02x is %s", *b,
                      pickle_opcodes[*b].name ? "not supported" : "none");
}

static int
check_protocol(struct pickle *p)
{
    const uint8_t *b = p->data + p->pos;
    size_t left = p->end - p->pos;

    p->op = p->pos;
    if (left >= 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5)
        return 0;
    if (left >= 2 && b[0] == 0x80)
        return pickle_bad(p, "pickle protocol %d (expected 2 to 5)", b[1]);
    return pickle_bad(p, "no pickle of protocol 2 to 5 starts here");
}

struct pth_value *
pickle_run(struct pickle *p, size_t at, size_t *end)
{
    size_t left = p->size - at;
    struct pth_value *v;
    bool stop = false;

    p->pos = at;
    p->end = at + (left < PICKLE_MAX_NBYTES ? left : PICKLE_MAX_NBYTES);
    p->n_stack = p->n_marks = p->n_memo = 0;
    p->memo = NULL;
    if (check_protocol(p) < 0)
        return NULL;
    while (!stop)
        if (step(p, &stop) < 0)
            return NULL;
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
