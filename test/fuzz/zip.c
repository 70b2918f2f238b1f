/* SPDX-License-Identifier: ISC */
/* core/format/zip on any bytes: what is accepted keeps its promises, and
 * every member's data lies in the archive or unpacks to its size. */
#include "core/format/zip.h"

#include <stdlib.h>
#include <string.h>

#include "test/fuzz/must.h"

#define MOST ((size_t)1 << 20) /* bytes to unpack */

static void
check_member(const struct zip *z, struct zip_member *m)
{
    struct err err = { 0 };
    const uint8_t *p = zip_packed(z, m, &err);

    if (!p) {
        MUST(err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3));
        return;
    }
    MUST(p > z->data + m->header && p <= z->data + m->end &&
         m->end <= z->size &&
         m->packed_bytes <= (size_t)(z->data + m->end - p));
    if (m->method == ZIP_STORED)
        MUST(m->nbytes == m->packed_bytes);
    else
        MUST(m->nbytes / 1032 <= m->packed_bytes);
    if (m->method == ZIP_STORED) {
        zip_check(z, m, p, &err);
    } else if (m->nbytes <= MOST) {
        struct zip_unpacked u = { 0 };

        if (zip_data(&u, z, m, &err))
            MUST(m->checked);
        zip_unpacked_free(&u);
    }
}

static void
check(struct zip *z)
{
    size_t n = z->root_n + 1;

    for (size_t i = 0; i < z->n_members; i++) {
        struct zip_member *m = z->members + i;

        if (z->root_n > 0 && m->name_n >= n && !memcmp(m->name, z->root, n))
            MUST(zip_find(z, m->name + n, m->name_n - n) == m);
        check_member(z, m);
    }
    MUST(!zip_find(z, "no such member", 14));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zip z;
    struct err err = { 0 };

    if (zip_open(&z, data, size, "f", &err) < 0)
        MUST(err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3));
    else
        check(&z);
    zip_close(&z);
    return 0;
}
