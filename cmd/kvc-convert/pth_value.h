/*
 * The tree that a checkpoint is: plain values, and opaque nodes for what would
 * have been a Python object of another kind.  All nodes live as long as the
 * struct pickle that made them.
 */
#ifndef KVC_CONVERT_PTH_VALUE_H
#define KVC_CONVERT_PTH_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

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
    size_t total;                       /* elements in the file */
    size_t base, n;                     /* those that are this storage */
    size_t at;                          /* byte of the pickle, for messages */
    const uint8_t *data;                /* [total * size], of a legacy stream */
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

/* pth_get() returns the value of a string key (of at most PTH_MAX_KEY bytes),
 * or NULL: no such key, or not a dict.  O(log n), after pickle_close(). */
const struct pth_value *pth_get(const struct pth_value *dict, const char *key);

#endif
