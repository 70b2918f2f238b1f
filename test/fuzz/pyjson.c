/* core/pyjson: any bytes; what is taken must be a fixed point. */
#include "core/pyjson.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test/fuzz/must.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str once = { 0 }, twice = { 0 };
    struct err err = { 0 };

    if (pyjson_dumps(&once, (const char *)data, size, "f", &err) < 0) {
        if (err.status != EX_DATAERR || !*err.what)
            abort();
    } else {
        for (size_t i = 0; i < once.n; i++)
            if (once.s[i] < ' ' || once.s[i] > '~')
                abort();
        if (pyjson_dumps(&twice, once.s, once.n, "f", &err) < 0 ||
            once.n != twice.n || memcmp(once.s, twice.s, once.n) != 0)
            abort();
    }
    str_free(&once);
    str_free(&twice);
    return 0;
}
