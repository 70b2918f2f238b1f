/* SPDX-License-Identifier: ISC */
/*
 * Python's pickles, protocols 2 to 5, read without Python: a stack machine
 * that builds plain values and calls nothing.  Where a pickle calls a function
 * or makes an object, pickle_rebuild.c decides what that becomes.
 * Source: CPython 3.13, Lib/pickletools.py and Modules/_pickle.c.
 */
#ifndef CORE_FORMAT_PICKLE_H
#define CORE_FORMAT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

/*
 * The tree that a checkpoint is: plain values, and opaque nodes for what would
 * have been a Python object of another kind.  All nodes live as long as the
 * struct pickle that made them.
 */
#define PTH_MAX_DIMS 64   /* torch's own limit */
#define PTH_MAX_KEY  1024 /* bytes; pth_get() finds keys up to this size */

enum pth_kind {
    PTH_NONE,
    PTH_BOOL,
    PTH_INT,
    PTH_LONG, /* beyond 64 bits: u.s is its little-endian two's complement */
    PTH_FLOAT,
    PTH_STR, /* also str of Python 2 */
    PTH_BYTES,
    PTH_TUPLE,
    PTH_LIST, /* also torch.Size */
    PTH_SET,
    PTH_DICT,   /* also OrderedDict, defaultdict */
    PTH_GLOBAL, /* a class or function that the pickle names */
    PTH_STORAGE,
    PTH_TENSOR, /* torch.Tensor, torch.nn.Parameter */
    PTH_OPAQUE, /* any other object; u.global: what made it, or NULL */
};

struct pth_global {
    const char *module, *name; /* as in the file: escape before printing */
    size_t at;                 /* byte of the pickle where it is named */
    struct pth_global *next;   /* in the order of the file */
};

/* Items of a list or a set; of a dict keys and values alternate. */
struct pth_list {
    struct pth_value **items;
    uint32_t n, cap;
    uint32_t *order; /* [n_keys] of a dict: strings and ints, sorted */
    uint32_t n_keys;
    bool dict;
    bool closed; /* by pickle_close() */
    bool lazy;   /* a key among items[0 .. n_searched) is "conj" or "neg" */
    uint32_t n_searched;
    struct pth_list *next; /* of all lists */
};

/* A storage as a persistent id names it; its bytes are found later. */
struct pth_storage {
    struct pth_storage *next;
    const struct pth_value *type, *key; /* GLOBAL, STR */
    int dtype;                          /* -1: it has no name here */
    size_t size;                        /* bytes of an element */
    size_t n;                           /* elements */
    size_t at;                          /* byte of the pickle, for messages */
    const uint8_t *data;                /* [n * size], of a legacy stream */
    struct zip_member *member;          /* of a zip archive */
};

struct pth_tensor {
    enum dtype dtype;
    size_t n_dims;          /* 0 (a scalar) .. PTH_MAX_DIMS */
    const int64_t *shape;   /* [n_dims], outermost first; a 0 is legal */
    const int64_t *strides; /* [n_dims], in elements, >= 0 */
    size_t n_elements;      /* product of shape; times the size of dtype it
                               fits 63 bits, but may by far exceed the file:
                               a stride can be 0 */
    size_t offset;          /* of the first element in the storage */
    const struct pth_storage *storage;
};

struct pth_value {
    uint8_t kind; /* enum pth_kind */
    uint32_t n;   /* bytes of a STR, BYTES or LONG, items of a TUPLE */
    union {
        int64_t i; /* BOOL, INT */
        double f;
        const char *s;             /* as in the file, not NUL-terminated */
        struct pth_value **items;  /* TUPLE */
        struct pth_list *list;     /* LIST, SET, DICT */
        struct pth_global *global; /* GLOBAL, OPAQUE */
        struct pth_storage *storage;
        struct pth_tensor *tensor;
    } u;
};

/* pth_items() returns the '*n' items of a container: keys and values of a DICT
 * alternate, in the order of insertion.  '*n' is 0 for all else. */
struct pth_value **pth_items(const struct pth_value *v, size_t *n);

#define PICKLE_MAX_NBYTES ((size_t)256 << 20) /* of one pickle */
#define PICKLE_MAX_MEMORY ((size_t)40 << 20)  /* for all values of a file */
#define PICKLE_MAX_DEPTH  128 /* of containers in containers, from the root */
#define PICKLE_MAX_VALUES ((size_t)1 << 24) /* counted on every path */

struct pickle {
    const char *path, *where; /* "FILE", "data.pkl: " or "": for messages */
    const uint8_t *data;      /* [size]; strings of the values point into it */
    size_t size;
    size_t extra; /* bytes of memory beyond the limit: large files need them */
    struct err *err;
    const char *const *allowed; /* as for pth_open() */

    struct pth_global *globals, *last_global;
    struct pth_list *lists; /* all of them */
    struct pth_storage *storages;

    const struct pickle_opcode *opcode; /* the current one */
    size_t op;                          /* its offset */
    struct arena *arena;                /* of all values */
    size_t memory;   /* bytes taken, of PICKLE_MAX_MEMORY + extra */
    size_t pos, end; /* the next byte, and the first after the pickle */
    struct pth_value **stack;
    size_t n_stack, cap_stack;
    size_t *marks; /* heights of the stack */
    size_t n_marks, cap_marks;
    void **memo; /* a tree of four levels, a byte of the id each */
    size_t n_memo;
};

/*
 * pickle_run() reads the pickle that starts at 'at' and ends with STOP; '*end'
 * is the byte after it.  'path' to 'allowed' of the struct are the caller's to
 * set before; all else starts as zeros, and adds up from one pickle to the
 * next.
 * Returns the value, or NULL with p->err set (EX_DATAERR).
 * Memory: PICKLE_MAX_MEMORY + p->extra at most.  Never recurses.
 */
struct pth_value *pickle_run(struct pickle *p, size_t at, size_t *end);

/*
 * pickle_close() must follow the last pickle_run() before values are used
 * outside: it checks that the tree below 'root' is free of cycles, at most
 * PICKLE_MAX_DEPTH deep, and has at most PICKLE_MAX_VALUES nodes counted on
 * every path from the root, so that it can be walked by recursion.  It drops
 * all but the last item of equal keys (strings of at most PTH_MAX_KEY bytes,
 * and integers), and sorts these for pth_get().
 * Returns 0, or -1 with p->err set (EX_DATAERR).
 */
int pickle_close(struct pickle *p, const struct pth_value *root);

/* Orders two keys: short strings first, then integers, of which True is one. */
int pickle_key_cmp(const struct pth_value *a, const struct pth_value *b);

void pickle_free(struct pickle *p); /* with every value; zeroed is fine */

/* pickle_bad() is err_set() with "FILE: data.pkl: byte N: " before it. */
int pickle_bad(struct pickle *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* pickle_fail() is that where a pointer is returned: NULL. */
#define pickle_fail(...) (pickle_bad(__VA_ARGS__), NULL)

/* Memory that lives as long as the values; NULL with an error set. */
void *pickle_alloc(struct pickle *p, size_t n, size_t size);

/* New values; NULL with an error set. */
struct pth_value *pickle_value(struct pickle *p, enum pth_kind kind);
struct pth_value *pickle_opaque(struct pickle *p,
                                const struct pth_value *callee);
struct pth_value *pickle_list(struct pickle *p, enum pth_kind kind);

/* Adds 'n' items to a LIST or SET, or keys and items to a DICT. */
int pickle_extend(struct pickle *p, struct pth_value *list,
                  struct pth_value **items, size_t n);

/* pickle_global() names a global: one that is listed, or that p->allowed has
 * and that is not dangerous; NULL with an error set. */
struct pth_value *pickle_global(struct pickle *p, const char *module,
                                size_t module_n, const char *name,
                                size_t name_n);

/*
 * pickle_listed(): is module.name data, or does it make data, and is it found
 * in checkpoints?  pickle_dangerous(): is it not listed, and of a module that
 * runs code or touches files?  Each part of a dotted name counts.  None is ever
 * looked up or called here; but whoever loads the file with Python next may
 * call it.
 */
bool pickle_listed(const char *module, const char *name);
bool pickle_dangerous(const char *module, const char *name);

/* Is it a global of one of these modules and names?  Words. */
bool pickle_is(const struct pth_value *v, const char *modules,
               const char *names);

/* rebuild_call() returns what callee(*args) becomes, for REDUCE, NEWOBJ and
 * the like; rebuild_persistent() the object of a persistent id.  'callee' and
 * 'id' may be anything, 'args' is a TUPLE.  NULL with an error set. */
struct pth_value *rebuild_call(struct pickle *p, struct pth_value *callee,
                               struct pth_value *args);
struct pth_value *rebuild_persistent(struct pickle *p, struct pth_value *id);

/* Parts of pickle_run(), for the opcodes. */
typedef int pickle_op(struct pickle *p);
struct pickle_opcode {
    const char *name;
    pickle_op *run;
    uint8_t arg;  /* bytes of its argument's width, or a count */
    uint8_t kind; /* enum pth_kind: what it makes or changes */
};
extern const struct pickle_opcode pickle_opcodes[256];

enum { PICKLE_TEXT = 254 }; /* as 'arg' */

/* What to do with a file of before torch 0.4, or of other tools. */
#define PICKLE_AGAIN "torch.load() and torch.save() write it anew"

/* The next n bytes; NULL with an error set. */
const uint8_t *pickle_take(struct pickle *p, size_t n);
int pickle_push(struct pickle *p, struct pth_value *v); /* NULL: -1 */
struct pth_value *pickle_pop(struct pickle *p); /* NULL with an error set */
struct pth_value *pickle_top(struct pickle *p); /* NULL with an error set */
int pickle_mark(struct pickle *p);
/* Items above the last mark, which is removed; they are still at 'items' until
 * the next push.  NULL with an error set. */
struct pth_value **pickle_pop_mark(struct pickle *p, size_t *n);

#endif
