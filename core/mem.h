/* SPDX-License-Identifier: ISC */
/*
 * Memory: checked arithmetic on sizes from outside, small allocations that
 * die, and big ones that are checked, aligned and on huge pages.
 */
#ifndef CORE_MEM_H
#define CORE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

_Static_assert(sizeof(size_t) == 8, "tensorutils needs a 64-bit machine");

/* size_mul(), size_add(): false, and *r untouched, if the result overflows. */
static inline bool
size_mul(size_t a, size_t b, size_t *r)
{
    size_t p;

    if (__builtin_mul_overflow(a, b, &p))
        return false;
    *r = p;
    return true;
}

static inline bool
size_add(size_t a, size_t b, size_t *r)
{
    size_t s;

    if (__builtin_add_overflow(a, b, &s))
        return false;
    *r = s;
    return true;
}

static inline size_t
smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t
larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* by_i32(), by_i64(), by_f64(): the order of numbers, for qsort(3); none is
 * NaN. */
static inline int
by_i32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static inline int
by_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static inline int
by_f64(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/*
 * xmalloc() and its family are for small things whose size this program
 * chose: they die with one line and EX_SOFTWARE when memory is gone.  Sizes
 * named by a file or a user go through mem_try() or mem_big().
 */
void *xmalloc(size_t nbytes);
void *xcalloc(size_t n, size_t size); /* dies on overflow, too */
void *xrealloc(void *p, size_t n, size_t size);
/* xgrow() makes room for twice the n items that there are: *cap of them. */
void *xgrow(void *p, size_t n, size_t *cap, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);

/* mem_try() is malloc(n * size), or NULL with 'err' set (EX_SOFTWARE). */
void *mem_try(size_t n, size_t size, const char *what, struct err *err);

/*
 * mem_big() maps n * size zeroed bytes, 64-byte aligned or more, and advises
 * huge pages where that pays.  NULL with 'err' set (EX_SOFTWARE) if that
 * is impossible; 'what' names the thing in the message.  n * size may be 0.
 * Owner: the caller, until mem_big_free() with the same n and size.
 */
void *mem_big(size_t n, size_t size, const char *what, struct err *err);
void mem_big_free(void *p, size_t n, size_t size);

/* Arrays that share one mem_big(): rows * cols elements each, from a multiple
 * of 64 bytes on. */
struct mem_array {
    void *to; /* the pointer that gets its address: &p; NULL: none does */
    size_t rows, cols, size;
};

/*
 * mem_arrays() allocates n of them, and sets *nbytes to the size of all; free
 * with mem_big_free(p, nbytes, 1).  NULL with 'err' set (EX_SOFTWARE).
 * mem_arrays_nbytes() is that size alone; false if it leaves 64 bits.
 */
void *mem_arrays(const struct mem_array *arrays, size_t n, size_t *nbytes,
                 const char *what, struct err *err);
bool mem_arrays_nbytes(const struct mem_array *arrays, size_t n,
                       size_t *nbytes);

#endif
