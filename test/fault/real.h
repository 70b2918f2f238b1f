/* SPDX-License-Identifier: ISC */
/*
 * For shims that are preloaded: the function that one of theirs stands before.
 */
#ifndef FAULT_REAL_H
#define FAULT_REAL_H

#include <dlfcn.h>
#include <string.h>

static inline void
real_load(void *to, const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);

    memcpy(to, &p, sizeof(p));
}

/* REAL(int, close, (int)) declares real(), the next close() there is. */
#define REAL(ret, name, params) \
    static ret(*real) params;   \
    if (!real)                  \
    real_load(&real, #name)

#endif
