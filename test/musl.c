/* SPDX-License-Identifier: ISC */
/*
 * What Debian's static libraries, compiled for glibc, want of it and musl has
 * not, so that programs can be linked with musl here
 * (scripts/check-compilers.sh): the functions that glibc's headers call in
 * place of others with _FORTIFY_SOURCE, and those of libcrypto's tasks, which
 * nothing starts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
__vsnprintf_chk(char *s, size_t n, int flag, size_t room, const char *f,
                va_list ap)
{
    (void)flag;
    (void)room;
    return vsnprintf(s, n, f, ap);
}

int
__snprintf_chk(char *s, size_t n, int flag, size_t room, const char *f, ...)
{
    va_list ap;
    int rc;

    va_start(ap, f);
    rc = __vsnprintf_chk(s, n, flag, room, f, ap);
    va_end(ap);
    return rc;
}

int
__vfprintf_chk(FILE *to, int flag, const char *f, va_list ap)
{
    (void)flag;
    return vfprintf(to, f, ap);
}

int
__fprintf_chk(FILE *to, int flag, const char *f, ...)
{
    va_list ap;
    int rc;

    va_start(ap, f);
    rc = __vfprintf_chk(to, flag, f, ap);
    va_end(ap);
    return rc;
}

void *
__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
    (void)room;
    return memcpy(to, from, n);
}

void *
__memset_chk(void *to, int c, size_t n, size_t room)
{
    (void)room;
    return memset(to, c, n);
}

char *
__strncpy_chk(char *to, const char *from, size_t n, size_t room)
{
    (void)room;
    return strncpy(to, from, n);
}

_Noreturn void
__longjmp_chk(jmp_buf env, int value)
{
    longjmp(env, value);
}

long
__fdelt_chk(long fd)
{
    return fd / (8 * (long)sizeof(long));
}

void
getcontext(void)
{
    abort();
}

void
setcontext(void)
{
    abort();
}

void
makecontext(void)
{
    abort();
}
