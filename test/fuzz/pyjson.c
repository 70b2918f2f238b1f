/* SPDX-License-Identifier: ISC */
/* core/pyjson: any bytes; what is taken must be a fixed point, in lines, too,
 * and those of a bounded size. */
#include "core/pyjson.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test/fuzz/must.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = { 0 }, twice = { 0 }, lines = { 0 };
    struct err err = { 0 };

    if (pyjson_indent(&once, (const char *)data, size, 0, "f", &err) < 0) {
        if (err.status != EX_DATAERR || !*err.what)
            abort();
    } else {
        for (size_t i = 0; i < once.n; i++)
            if (once.s[i] < ' ' || once.s[i] > '~')
                abort();
        if (pyjson_indent(&twice, once.s, once.n, 0, "f", &err) < 0 ||
            once.n != twice.n || memcmp(once.s, twice.s, once.n) != 0)
            abort();
        MUST(once.n <= 6 * size);
        MUST(pyjson_indent(&lines, (const char *)data, size, 4, "f", &err) ==
             0);
        MUST(lines.n <= 4 * PYJSON_DEPTH * size);
        str_clear(&twice);
        MUST(pyjson_indent(&twice, lines.s, lines.n, 0, "f", &err) == 0);
        MUST(once.n == twice.n && memcmp(once.s, twice.s, once.n) == 0);
    }
    str_free(&once);
    str_free(&twice);
    str_free(&lines);
    return 0;
}
