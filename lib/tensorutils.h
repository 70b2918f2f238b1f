/*
 * tensorutils from C: libtensorutils(3) is the manual, with examples.
 *
 * Handles are opaque, and one thread at a time may use one; different handles
 * are independent.  A function that can fail returns 0, or -1 with 'err' set,
 * which may be NULL.  A NULL, a size that does not fit and a call at the wrong
 * time are such errors.  Nothing is printed, and only small allocations end
 * the program when memory is gone.
 */
#ifndef TENSORUTILS_H
#define TENSORUTILS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_API __attribute__((visibility("default")))

/* err.status: whose fault it is.  From 65 on as in <sysexits.h>. */
enum tu_status {
    TU_BAD_CALL = 2,   /* the caller's: an argument, or the order of calls */
    TU_BAD_DATA = 65,  /* a file's: it breaks its format, or is not supported */
    TU_NO_INPUT = 66,  /* there is no such file, or no permission to read it */
    TU_NO_MEMORY = 70, /* memory, address space, threads */
    TU_IO_ERROR = 74   /* a file could be opened, but not read */
};

/* Set by a function that has returned -1, and untouched by the others. */
struct tu_err {
    int status;     /* enum tu_status */
    char what[512]; /* "file: what is wrong (found, expected)", no newline */
};

TU_API const char *tu_version(void); /* "0.1": of the library, not of this */

/*
 * tu_on_warning(): 'fn' gets what a caller should know but can live with, a
 * line as in tu_err, from any thread that calls the library; NULL, as in the
 * beginning: nobody does.
 */
TU_API void tu_on_warning(void (*fn)(const char *what));

/* ---- safetensors ---- */

/* A tensor of an open file; all of it is the file's, until tu_st_close().
 * Later versions may add fields at the end. */
struct tu_tensor {
    const char *name;      /* UTF-8, NUL-terminated */
    size_t name_n;         /* its bytes: a name may hold NULs */
    const char *dtype;     /* "BF16", as in the file */
    size_t n_dims;         /* 0: a scalar */
    const uint64_t *shape; /* [n_dims], outermost first */
    uint64_t n;            /* numbers: the product of shape */
    size_t nbytes;
    const void *data; /* little-endian, C order, at any address, mapped:
                       * see CAVEATS of libtensorutils(3) */
};

/*
 * tu_st_open() opens a safetensors file, or a directory with one or with shards
 * and their index, and checks all headers; tensors are sorted by name.
 * tu_st_at() is tensor i, tu_st_find() the one of a name, tu_st_metadata() the
 * value of a key in the first file's __metadata__; NULL where there is none.
 * Any number of threads may read an open file.
 */
struct tu_st;
TU_API int tu_st_open(struct tu_st **st, const char *path, struct tu_err *err);
TU_API void tu_st_close(struct tu_st *st); /* NULL is fine, as for all */
TU_API size_t tu_st_count(const struct tu_st *st);
TU_API const struct tu_tensor *tu_st_at(const struct tu_st *st, size_t i);
TU_API const struct tu_tensor *tu_st_find(const struct tu_st *st,
                                          const char *name);
TU_API const char *tu_st_metadata(const struct tu_st *st, const char *key);

/*
 * tu_st_read_f32() reads numbers first .. first + n - 1 of a tensor of 'st' as
 * f32: exact, but for F64 and large integers, which are rounded.  Not of
 * complex numbers, nor of types with less than 8 bits.
 */
TU_API int tu_st_read_f32(const struct tu_st *st, const struct tu_tensor *t,
                          uint64_t first, size_t n, float *to,
                          struct tu_err *err);

#ifdef __cplusplus
}
#endif

#endif
