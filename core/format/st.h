/* SPDX-License-Identifier: ISC */
/*
 * safetensors, reading: validate everything on opening, then never fail.
 * Source: huggingface/safetensors README and, where they differ, its Rust
 * reference; man/st-inspect.5 has the rules.
 */
#ifndef CORE_FORMAT_ST_H
#define CORE_FORMAT_ST_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/map.h"

#define ST_MAX_HEADER ((uint64_t)100000000) /* bytes; the reference's limit */

struct st_tensor {
    const char *name; /* UTF-8, NUL-terminated, may hold NULs: see name_n */
    size_t name_n;    /* bytes of name; escape before printing */
    enum dtype dtype;
    size_t n_dims;         /* 0: a scalar */
    const uint64_t *shape; /* [n_dims], outermost first; a 0 is legal */
    uint64_t n_elements;   /* product of shape */
    uint64_t begin;        /* first byte, counted from the end of the header */
    size_t nbytes;         /* n_elements * bits / 8 */
};

struct st_meta {
    const char *key, *value; /* UTF-8, NUL-terminated */
    size_t key_n, value_n;
};

/*
 * An open file.  Everything in it belongs to it and dies with st_close().
 * Read-only after opening: any number of threads may share it.
 */
struct st {
    char *path;
    int fd;             /* -1 for st_parse() */
    struct map map;     /* empty until st_map() */
    size_t file_size;   /* bytes */
    size_t header_n;    /* bytes of JSON, padding included */
    size_t data_offset; /* 8 + header_n */
    size_t n_tensors;
    const struct st_tensor *tensors; /* [n_tensors], in order of the header */
    const uint32_t *by_name; /* [n_tensors], their indices sorted by name */
    size_t n_meta;
    const struct st_meta *meta; /* [n_meta], in order of the header */
    struct st_arena *arena;     /* names, shapes, tables: private */
};

/*
 * st_open() opens the file at 'path' and checks all of its header: afterwards
 * every tensor's name, shape and range are known to be sound.  The data are
 * not touched.  0, or -1 with 'err' set: EX_NOINPUT (cannot be opened),
 * EX_DATAERR (breaks the format, or is another format: the line says which),
 * EX_IOERR, EX_SOFTWARE (memory).  After an error there is nothing to close.
 * Cost: one pass over the header, O(n log n) in tensors; memory about twice
 * the header (test/bench/st).
 */
int st_open(struct st *st, const char *path, struct err *err);

/*
 * st_parse() checks a header in memory: 'file' holds the first 'nbytes' bytes
 * of a file of 'file_size' bytes, at least 8 + the header.  For streams,
 * fuzzers and tests; 'st' keeps no pointer into 'file'.
 */
int st_parse(struct st *st, const void *file, size_t nbytes, size_t file_size,
             const char *path, struct err *err);

/* st_map() maps the whole file, so that st_data() works.  -1 with 'err' set:
 * EX_IOERR, also if the size of the file has changed, or EX_SOFTWARE if there
 * is no address space. */
int st_map(struct st *st, struct err *err);

/* st_unchanged(): is the file as long as when it was opened?  The part of a
 * mapped file that was cut off reads as zeros.  0, or -1 with 'err' set
 * (EX_IOERR). */
int st_unchanged(const struct st *st, struct err *err);

void st_close(struct st *st); /* a zeroed struct is fine */

/* st_find() finds a tensor by name in O(log n); NULL if there is none.
 * st_find_n() takes any name, one with a NUL as well. */
const struct st_tensor *st_find(const struct st *st, const char *name);
const struct st_tensor *st_find_n(const struct st *st, const char *name,
                                  size_t n);

/* st_meta_find() is the entry of 'key' in the file's __metadata__, or NULL;
 * st_meta() its value alone. */
const struct st_meta *st_meta_find(const struct st *st, const char *key);
const char *st_meta(const struct st *st, const char *key);

/* st_meta_f64() reads a value that is a finite number: 1, 0 where the key is
 * not there, or -1 with 'err' set (EX_DATAERR). */
int st_meta_f64(const struct st *st, const char *key, double *v,
                struct err *err);

/* st_name_cmp() orders names by their bytes, as by_name is: < 0, 0, > 0. */
int st_name_cmp(const char *a, size_t a_n, const char *b, size_t b_n);

/* st_hash() adds a tensor's name and a 0, type and shape. */
struct hash;
void st_hash(struct hash *hash, const struct st_tensor *t);

/* st_data() is a tensor's bytes: little-endian, C order, no alignment
 * promised.  After st_map(). */
const void *st_data(const struct st *st, const struct st_tensor *t);

/* st_pread() reads 'nbytes' of a tensor from 'offset' within it. */
int st_pread(const struct st *st, const struct st_tensor *t, void *buf,
             size_t nbytes, size_t offset, struct err *err);

/* st_read_numbers() reads n of a tensor's numbers of 'item' bytes, 4 or 8, from
 * number 'first' on, in this machine's order. */
int st_read_numbers(const struct st *st, const struct st_tensor *t,
                    size_t first, void *to, size_t n, size_t item,
                    struct err *err);

/*
 * st_sniff() says what a file that is not safetensors seems to be, from its
 * first bytes: "a git-lfs pointer (run git lfs pull)", or NULL.
 */
const char *st_sniff(const void *head, size_t nbytes);

#endif
