/*
 * Python's pickles, protocols 2 to 5, read without Python: a stack machine
 * that builds plain values and calls nothing.  Where a pickle calls a function
 * or makes an object, a hook decides what that is.
 * Source: CPython 3.13, Lib/pickletools.py and Modules/_pickle.c.
 */
#ifndef KVC_CONVERT_PICKLE_H
#define KVC_CONVERT_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/kvc-convert/pickle_value.h"

#define PICKLE_MAX_NBYTES ((size_t)256 << 20) /* of one pickle */
#define PICKLE_MAX_MEMORY ((size_t)40 << 20)  /* for all values of a file */

struct pickle {
    const char *path, *where; /* "FILE", "data.pkl: " or "": for messages */
    const uint8_t *data;      /* [size]; strings of the values point into it */
    size_t size;
    size_t extra; /* bytes of memory more: a large file may need them */
    size_t op;    /* where the current opcode lies */
    uint8_t arg;  /* of its row in pickle_opcodes */
    struct err *err;
    const char *const *allowed; /* as for pth_open() */

    /*
     * Called for REDUCE, NEWOBJ and the like: what is callee(*args)?  'callee'
     * may be anything, 'args' is a TUPLE.  NULL with an error set, or a value,
     * for instance pickle_opaque().
     */
    struct pth_value *(*call)(struct pickle *p, struct pth_value *callee,
                              struct pth_value *args);
    /* What is the object of this persistent id?  Likewise. */
    struct pth_value *(*persistent)(struct pickle *p, struct pth_value *id);

    struct pth_global *globals, *last_global;
    struct pickle_list *lists; /* all of them */
    struct pth_storage *storages;

    struct arena *arena; /* of all values */
    size_t memory;       /* bytes taken, of PICKLE_MAX_MEMORY + extra */
    size_t pos, end;     /* the next byte, and behind the last */
    struct pth_value **stack;
    size_t n_stack, cap_stack;
    size_t *marks; /* heights of the stack */
    size_t n_marks, cap_marks;
    void **memo; /* a tree of four levels, a byte of the id each */
    size_t n_memo;
};

/*
 * pickle_run() reads the pickle that starts at 'at' and ends with STOP; '*end'
 * is the byte behind it.  'path' to 'persistent' of the struct are the
 * caller's to set before; all else starts as zeros, and adds up from one
 * pickle to the next.
 * The value or NULL with p->err set (EX_DATAERR).  pickle_close() must follow
 * the last before values are looked at from outside.
 * Memory: PICKLE_MAX_MEMORY + p->extra at most.  Never recurses.
 */
struct pth_value *pickle_run(struct pickle *p, size_t at, size_t *end);

void pickle_free(struct pickle *p); /* with every value; zeroed is fine */

/* pickle_bad() is err_set() with "FILE: data.pkl: byte N: " before it. */
int pickle_bad(struct pickle *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Memory that lives as long as the values; NULL with an error set. */
void *pickle_alloc(struct pickle *p, size_t n, size_t size);

/* Parts of pickle_run(), for the tables of opcodes. */
typedef int pickle_op(struct pickle *p);
struct pickle_opcode {
    const char *name;
    pickle_op *run;
    uint8_t arg; /* a width in bytes, a count, or an enum pickle_kind */
};
extern const struct pickle_opcode pickle_opcodes[256];

/* The next n bytes; NULL with an error set. */
const uint8_t *pickle_take(struct pickle *p, size_t n);
/* The bytes up to a newline, which is skipped; NULL with an error set. */
const char *pickle_line(struct pickle *p, size_t *n);
int pickle_push(struct pickle *p, struct pth_value *v); /* NULL: -1 */
struct pth_value *pickle_pop(struct pickle *p); /* NULL with an error set */
struct pth_value *pickle_top(struct pickle *p); /* NULL with an error set */
int pickle_mark(struct pickle *p);
/* Items above the last mark, which is gone; they are still at 'items' until
 * the next push.  NULL with an error set. */
struct pth_value **pickle_pop_mark(struct pickle *p, size_t *n);
int pickle_memo_put(struct pickle *p, uint32_t id);
int pickle_memo_get(struct pickle *p, uint32_t id);

#endif
