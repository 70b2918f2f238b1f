/*
 * The values that a pickle becomes.  They live as long as their struct pickle.
 */
#ifndef KVC_CONVERT_PICKLE_VALUE_H
#define KVC_CONVERT_PICKLE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/kvc-convert/pth.h"

enum pickle_kind {
    PK_NONE,
    PK_BOOL,
    PK_INT,
    PK_LONG, /* beyond 64 bits: u.s is its little-endian two's complement */
    PK_FLOAT,
    PK_STR,
    PK_BYTES,
    PK_TUPLE,
    PK_LIST,
    PK_SET,
    PK_DICT,
    PK_GLOBAL,
    PK_STORAGE,
    PK_TENSOR,
    PK_OPAQUE,
};

/* Items of a list or a set; of a dict keys and values in turn. */
struct pickle_list {
    struct pth_value **items;
    uint32_t n, cap;
    uint32_t *order; /* [n_keys] of a dict: strings and ints, sorted */
    uint32_t n_keys;
    bool dict;
    bool closed; /* by pickle_close() */
    bool lazy;   /* a key among items[0 .. n_searched) is "conj" or "neg" */
    uint32_t n_searched;
    struct pickle_list *next;
};

struct pth_value {
    uint8_t kind; /* enum pickle_kind */
    uint32_t n;   /* bytes of a STR, BYTES or LONG, items of a TUPLE */
    union {
        int64_t i; /* BOOL, INT */
        double f;
        const char *s;             /* not NUL-terminated */
        struct pth_value **items;  /* TUPLE */
        struct pickle_list *list;  /* LIST, SET, DICT */
        struct pth_global *global; /* GLOBAL; of an OPAQUE or NULL */
        struct pth_storage *storage;
        struct pth_tensor *tensor;
    } u;
};

struct pickle; /* of pickle.h */

/* New values; NULL with an error set. */
struct pth_value *pickle_value(struct pickle *p, enum pickle_kind kind);
struct pth_value *pickle_opaque(struct pickle *p,
                                const struct pth_value *callee);
struct pth_value *pickle_list(struct pickle *p, enum pickle_kind kind);

/* Adds 'n' items to a LIST or SET, or keys and items to a DICT. */
int pickle_extend(struct pickle *p, struct pth_value *list,
                  struct pth_value **items, size_t n);

/* pickle_global() names a global: one that is listed, or that p->allowed has
 * and that is not dangerous; NULL with an error set. */
struct pth_value *pickle_global(struct pickle *p, const char *module,
                                size_t module_n, const char *name,
                                size_t name_n);

/* Is it the global module.name? */
bool pickle_is(const struct pth_value *v, const char *module, const char *name);

#endif
