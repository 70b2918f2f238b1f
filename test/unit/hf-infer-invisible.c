/* SPDX-License-Identifier: ISC */
/* core/invisible's table against utf8proc's, another reading of Unicode: of the
 * code points that the latter's version has assigned, for a newer one may give
 * others the property.  It has none for those that are only reserved. */
#include <stdlib.h>
#include <utf8proc.h>

#include "core/str.h"
#include "test/unit/tap.h"

#define TABLE_UNICODE 15.0 /* as the first line of core/invisible.c says */

/* Is utf8proc's version of Unicode newer than ours?  2.2 and older, which do
 * not say, have 11 and before. */
static bool
is_newer(void)
{
#if UTF8PROC_VERSION_MAJOR > 2 || UTF8PROC_VERSION_MINOR > 2
    return strtod(utf8proc_unicode_version(), NULL) > TABLE_UNICODE;
#else
    return false;
#endif
}

int
main(void)
{
    size_t n = 0, n_wrong = 0, n_missing = 0;

    for (int32_t c = 0; c <= 0x10ffff; c++) {
        const utf8proc_property_t *p = utf8proc_get_property(c);

        if (p->category == UTF8PROC_CATEGORY_CN)
            continue;
        n += p->ignorable;
        n_wrong += invisible((uint32_t)c) && !p->ignorable;
        n_missing += !invisible((uint32_t)c) && p->ignorable;
    }
    tap_ok(n > 300 && n_wrong == 0, "what is invisible() is so for utf8proc");
    tap_ok(n_missing == 0 || is_newer(),
           "what is so for utf8proc is invisible()");
    return tap_done();
}
