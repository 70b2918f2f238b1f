/*
 * PyTorch checkpoints (torch.save): the zip archives of 1.6 and later and the
 * stream before that, pickle protocols 2 to 5.  Nothing in a file is ever
 * executed: a checkpoint becomes a tree of plain values, and what would have
 * been a Python object of another kind is an opaque node of that tree.
 */
#ifndef KVC_CONVERT_PTH_H
#define KVC_CONVERT_PTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

#define PTH_MAX_DIMS   64  /* torch's own limit */
#define PTH_MAX_DEPTH  128 /* of containers in containers, from the root */
#define PTH_MAX_VALUES ((size_t)1 << 24) /* on all ways from the root */

struct pth;       /* an open checkpoint */
struct pth_value; /* a node; lives as long as the struct pth */

enum pth_kind {
    PTH_NONE,
    PTH_BOOL,
    PTH_INT,
    PTH_FLOAT,
    PTH_STR,    /* str, of Python 2 as well; bytes are opaque */
    PTH_DICT,   /* dict, OrderedDict, defaultdict */
    PTH_LIST,   /* list, tuple, set, frozenset, torch.Size */
    PTH_TENSOR, /* torch.Tensor, torch.nn.Parameter */
    PTH_OPAQUE, /* any other object, class or function: see pth_global() */
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
    size_t at; /* byte of the pickle that made it, for messages */
};

/* A class or function that the pickle names. */
struct pth_global {
    const char *module, *name; /* as in the file: escape before printing */
    size_t at;                 /* byte of the pickle where it is named */
    const struct pth_global *next;
};

/* pth_sniff(): do these first n bytes of a file begin a checkpoint? */
bool pth_sniff(const uint8_t *head, size_t n);

/*
 * pth_open() maps the checkpoint at 'path' and reads all of it but the
 * tensors' bytes.  Afterwards the tree is free of cycles, at most
 * PTH_MAX_DEPTH deep, and has at most PTH_MAX_VALUES nodes counted on every
 * way from the root, so that it can be walked by recursion; each tensor lies
 * within its storage, and each storage within the file.
 *
 * The classes and functions that a file names have to be on a list, that of
 * torch's weights_only and some more, or among 'allowed': "module.name" each,
 * the last NULL; or NULL.
 *
 * Returns 0, or -1 with 'err' set: EX_NOINPUT (cannot be opened), EX_DATAERR
 * (breaks a format, names a global that is not allowed, or is something else:
 * the message says what), EX_IOERR, EX_CANTCREAT (scratch for
 * a compressed member, in $TMPDIR).
 * Owner: the caller, until pth_close(), also of '*pth' == NULL after failing.
 * Memory: some 800 bytes a tensor; whatever is in the file, at most 64 MiB and
 * 1/64 of its size.
 */
int pth_open(struct pth **pth, const char *path, const char *const *allowed,
             struct err *err);
void pth_close(struct pth *pth); /* NULL is fine */

/* pth_root() is the value that was saved: it lives as long as 'pth'. */
const struct pth_value *pth_root(const struct pth *pth);

/* pth_globals() is the first of the globals that the file names, in its
 * order; NULL: none. */
const struct pth_global *pth_globals(const struct pth *pth);

/* pth_nbytes() is how many bytes all storages have, each counted once, however
 * many tensors lie in it; at most 1032 times those of the file. */
size_t pth_nbytes(const struct pth *pth);

/* pth_kind() says which of the functions below apply. */
enum pth_kind pth_kind(const struct pth_value *v);

/* Of a PTH_DICT or PTH_LIST; 0 for all else. */
size_t pth_n(const struct pth_value *v);

/* The i-th key of a dict in the order of insertion, i < pth_n(). */
const struct pth_value *pth_key(const struct pth_value *dict, size_t i);

/* The i-th item of a dict or a list, i < pth_n(). */
const struct pth_value *pth_item(const struct pth_value *v, size_t i);

/* The item of a string key (of at most 1024 bytes), or NULL: no such key, or
 * not a dict.  O(log n). */
const struct pth_value *pth_get(const struct pth_value *dict, const char *key);

/* A PTH_STR's bytes, as in the file, without a NUL; NULL for all else. */
const char *pth_str(const struct pth_value *v, size_t *nbytes);

/* False unless a PTH_INT or PTH_BOOL; a PTH_FLOAT. */
bool pth_int(const struct pth_value *v, int64_t *i);
bool pth_float(const struct pth_value *v, double *f);

/* NULL unless a PTH_TENSOR. */
const struct pth_tensor *pth_tensor(const struct pth_value *v);

/* What a PTH_OPAQUE is, or was made by; NULL if that has no name. */
const struct pth_global *pth_global(const struct pth_value *v);

/*
 * pth_want() says that a tensor will be read.  Where all that will be are named
 * so before the first pth_read(), and read one after the other, a compressed
 * storage is unpacked once; else again each time that another was read since.
 * Scratch: the bytes of those that several tensors lie in, over 4 MiB.
 */
void pth_want(struct pth *pth, const struct pth_tensor *t);

/*
 * pth_read() writes elements first .. first+n-1 of a tensor, counted in C
 * order whatever its strides, to 'to': contiguous, in the file's dtype,
 * little-endian.  first + n <= n_elements.
 * 0, or -1 with 'err' set: EX_DATAERR (a checksum, or compressed bytes that
 * are damaged), EX_IOERR and EX_CANTCREAT as above.  The checksum of a
 * storage is verified when it is first read from.
 * Threads: one at a time.
 */
int pth_read(const struct pth *pth, const struct pth_tensor *t, size_t first,
             size_t n, void *to, struct err *err);

#endif
