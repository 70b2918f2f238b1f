/* SPDX-License-Identifier: ISC */
/* HOST in the names of this machine's temporaries. */
#ifndef HOST_H
#define HOST_H

#include <stdlib.h>
#include <string.h>

#include "core/tmpname.h"

static inline void
own_host(char host[128])
{
    char *name = tmp_name("x"); /* ".x.tmp.HOST.PID.SERIAL" */

    *strrchr(name, '.') = '\0';
    *strrchr(name, '.') = '\0';
    strncpy(host, name + strlen(".x.tmp."), 127);
    free(name);
}

#endif
