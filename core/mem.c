/* SPDX-License-Identifier: ISC */
#include "core/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/out.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* Ends the program: see mem.h.  Not by exit(): what that tears down, other
 * threads are still using.  Other threads that fail, too, wait. */
static void
out_of_memory(size_t nbytes)
{
    static atomic_flag met = ATOMIC_FLAG_INIT;
    char line[160], size[40] = "";
    ssize_t n;

    if (nbytes < SIZE_MAX / 2) /* else a library's, or an overflow */
        snprintf(size, sizeof(size), " (%zu bytes)", nbytes);
    while (atomic_flag_test_and_set(&met))
        pause();
    n = snprintf(line, sizeof(line), "%s: out of memory%s\n", program_name(),
                 size);
    n = write(2, line, (size_t)n);
    (void)n;
    out_abort_all();
    _exit(EX_SOFTWARE);
}

void *
xmalloc(size_t nbytes)
{
    void *p = malloc(nbytes ? nbytes : 1);

    if (!p)
        out_of_memory(nbytes);
    return p;
}

void *
xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        out_of_memory(n * size);
    return p;
}

void *
xrealloc(void *p, size_t n, size_t size)
{
    size_t nbytes = SIZE_MAX;

    if (!size_mul(n, size, &nbytes) || !(p = realloc(p, nbytes ? nbytes : 1)))
        out_of_memory(nbytes);
    return p;
}

void *
xgrow(void *p, size_t n, size_t *cap, size_t size)
{
    *cap = n ? 2 * n : 64;
    return xrealloc(p, *cap, size);
}

char *
xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *
xstrndup(const char *s, size_t n)
{
    char *p = xmalloc(n + 1);

    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

void *
mem_try(size_t n, size_t size, const char *what, struct err *err)
{
    size_t nbytes;
    void *p = NULL;

    if (!size_mul(n, size, &nbytes))
        err_set(err, EX_SOFTWARE, "%s: %zu x %zu bytes is too large", what, n,
                size);
    else if (!(p = malloc(nbytes ? nbytes : 1)))
        err_set(err, EX_SOFTWARE, "%s: out of memory (%zu bytes)", what,
                nbytes);
    return p;
}

/* Whole huge pages from 4 MiB on; whole pages (of at most 64 KiB) below. */
static bool
rounded(size_t n, size_t size, size_t *nbytes)
{
    size_t unit;

    if (!size_mul(n, size, nbytes))
        return false;
    unit = *nbytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 65536;
    if (*nbytes > SIZE_MAX - 2 * unit)
        return false;
    *nbytes = (*nbytes + unit - 1) / unit * unit;
    if (*nbytes == 0)
        *nbytes = unit;
    return true;
}

void *
mem_big(size_t n, size_t size, const char *what, struct err *err)
{
    size_t nbytes;
    void *p;

    if (!rounded(n, size, &nbytes)) {
        err_set(err, EX_SOFTWARE, "%s: %zu x %zu bytes is too large", what, n,
                size);
        return NULL;
    }
    p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
    if (p == MAP_FAILED) {
        err_set(err, EX_SOFTWARE, "%s: out of memory (%zu bytes)", what,
                nbytes);
        return NULL;
    }
    if (nbytes >= 2 * HUGE_PAGE)
        pages_huge(p, nbytes);
    return p;
}

void
mem_big_free(void *p, size_t n, size_t size)
{
    size_t nbytes;

    if (p && rounded(n, size, &nbytes))
        munmap(p, nbytes);
}

/* Adds an array to a size. */
static bool
add_array(const struct mem_array *a, size_t *nbytes)
{
    size_t n;

    return size_mul(a->rows, a->cols, &n) && size_mul(n, a->size, &n) &&
           size_add(n, 63, &n) && size_add(*nbytes, n / 64 * 64, nbytes);
}

bool
mem_arrays_nbytes(const struct mem_array *arrays, size_t n, size_t *nbytes)
{
    bool fits = true;

    *nbytes = 0;
    for (size_t i = 0; i < n; i++)
        fits = fits && add_array(&arrays[i], nbytes);
    return fits;
}

void *
mem_arrays(const struct mem_array *arrays, size_t n, size_t *nbytes,
           const char *what, struct err *err)
{
    size_t at = 0;
    char *p, *to;

    if (!mem_arrays_nbytes(arrays, n, nbytes)) {
        err_set(err, EX_SOFTWARE, "%s: more bytes than 64 bits can count",
                what);
        return NULL;
    }
    p = mem_big(*nbytes, 1, what, err);
    for (size_t i = 0; p && i < n; i++) {
        to = p + at;
        if (arrays[i].to) /* a pointer of any type */
            memcpy(arrays[i].to, &to, sizeof(to));
        add_array(&arrays[i], &at);
    }
    return p;
}
