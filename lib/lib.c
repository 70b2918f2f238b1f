#include "lib/lib.h"

#include <stdarg.h>
#include <stdio.h>
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
