/* SPDX-License-Identifier: ISC */
/* Published models that are not in this tree: TEST_DATA=DIR. */
#ifndef TEST_UNIT_DATA_H
#define TEST_UNIT_DATA_H

#include <stdio.h>
#include <stdlib.h>

/* data_path() is the path of NAME in that directory, for seven more calls. */
static const char *
data_path(const char *name)
{
    static char paths[8][4096];
    static unsigned n;
    const char *dir = getenv("TEST_DATA");
    char *path = paths[n++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s",
             dir && *dir ? dir : "../shared/data", name);
    return path;
}

#endif
