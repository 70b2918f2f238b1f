/* SPDX-License-Identifier: ISC */
#include "lib/lib.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(TU_BAD_CALL == (int)TU_USAGE && TU_BAD_DATA == EX_DATAERR &&
                   TU_NO_INPUT == EX_NOINPUT && TU_NO_MEMORY == EX_SOFTWARE &&
                   TU_IO_ERROR == EX_IOERR,
               "the header's numbers are those of core");

int
lib_fail(struct tu_err *to, const struct err *err)
{
    size_t n;

    if (!to)
        return -1;
    to->status = err->status;
    n = strnlen(err->what, sizeof(to->what) - 1);
    memcpy(to->what, err->what, n);
    to->what[n] = '\0';
    if (err->what[n] != '\0')
        memcpy(to->what + n - 3, "...", 3);
    return -1;
}

int
lib_refuse(struct tu_err *to, const char *fmt, ...)
{
    struct err err = { .status = TU_BAD_CALL };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err.what, sizeof(err.what), fmt, ap);
    va_end(ap);
    return lib_fail(to, &err);
}

int
lib_null(struct tu_err *to, const char *fn, ...)
{
    const char *name;
    va_list ap;
    int rc = 0;

    va_start(ap, fn);
    while (rc == 0 && (name = va_arg(ap, const char *)))
        if (!va_arg(ap, const void *))
            rc = lib_refuse(to, "%s: %s is NULL", fn, name);
    va_end(ap);
    return rc;
}

int
lib_threads(int n_threads, struct tu_err *err)
{
    const int most = 4096;

    return n_threads >= 0 && n_threads <= most
               ? 0
               : lib_refuse(err, "n_threads is %d (expected 0 to %d)",
                            n_threads, most);
}

int
lib_struct(void *to, size_t nbytes, const void *from, const char *name,
           struct tu_err *err)
{
    const char *bytes = from;
    size_t size;

    if (!from)
        return lib_refuse(err, "struct %s is NULL", name);
    memcpy(&size, from, sizeof(size));
    /* all fields are of the first version */
    if (size < nbytes || size > nbytes + 4096)
        return lib_refuse(err, "struct %s has size %zu (expected sizeof, %zu)",
                          name, size, nbytes);
    for (size_t i = nbytes; i < size; i++)
        if (bytes[i] != 0)
            return lib_refuse(err,
                              "struct %s sets a field that tensorutils %s does "
                              "not have",
                              name, VERSION);
    memcpy(to, from, nbytes);
    return 0;
}

const char *
tu_version(void)
{
    return VERSION;
}

void
tu_on_warning(void (*fn)(const char *what))
{
    err_warn_hook(fn);
}

void
tu_free(void *p)
{
    free(p);
}
