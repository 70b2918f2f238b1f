/* SPDX-License-Identifier: ISC */
#include "core/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void (*warn_hook)(const char *what);

/* Formats into a buffer; what does not fit is replaced by "...". */
static __attribute__((format(printf, 3, 0))) void
format(char *buf, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(buf, size, fmt, ap);

    if (n < 0)
        buf[0] = '\0';
    else if ((size_t)n >= size)
        memcpy(buf + size - 4, "...", 4);
}

int
err_set(struct err *err, int status, const char *fmt, ...)
{
    va_list ap;

    err->status = status;
    err->error = 0;
    va_start(ap, fmt);
    format(err->what, sizeof(err->what), fmt, ap);
    va_end(ap);
    return -1;
}

int
err_data(struct err *err, const char *file, const char *fmt, ...)
{
    size_t size = sizeof(err->what), n;
    va_list ap;

    err_set(err, EX_DATAERR, "%s: ", file);
    n = strlen(err->what);
    va_start(ap, fmt);
    format(err->what + n, size - n, fmt, ap);
    va_end(ap);
    return -1;
}

int
err_sys(struct err *err, int status, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;
    size_t n;

    err->status = status;
    err->error = saved;
    va_start(ap, fmt);
    format(err->what, sizeof(err->what) - 64, fmt, ap);
    va_end(ap);
    n = strlen(err->what);
    snprintf(err->what + n, sizeof(err->what) - n, ": %s", strerror(saved));
    return -1;
}

void
err_warn_hook(void (*hook)(const char *what))
{
    warn_hook = hook;
}

void
err_warn(const char *fmt, ...)
{
    char what[1024];
    va_list ap;

    if (!warn_hook)
        return;
    va_start(ap, fmt);
    format(what, sizeof(what), fmt, ap);
    va_end(ap);
    warn_hook(what);
}
