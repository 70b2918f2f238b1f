/* SPDX-License-Identifier: ISC */
/* core/format/saev: any bytes as metadata; what is taken keeps its promises. */
#include "core/format/saev.h"

#include <stdlib.h>
#include <string.h>

#include "test/fuzz/must.h"

/* The first and the last row of each view, there and back. */
static void
check_views(const struct saev *s)
{
    for (int tokens = SAEV_CLS; tokens <= SAEV_ALL; tokens++) {
        struct saev_view v;
        struct err err;

        if (saev_view_open(&v, s, (enum saev_tokens)tokens, SAEV_ALL_LAYERS,
                           &err) < 0 ||
            v.n_rows == 0)
            continue;
        for (int i = 0; i < 2; i++) {
            size_t row = i ? v.n_rows - 1 : 0;
            struct saev_place p = saev_view_at(&v, row);

            if (p.shard >= s->n_shards || p.img >= s->n_imgs ||
                p.offset + s->row_nbytes > saev_shard_nbytes(s, p.shard) ||
                saev_view_row(&v, p.img, p.layer, p.token) != (int64_t)row)
                abort();
        }
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char first[SAEV_HASH_MAX], again[SAEV_HASH_MAX];
    struct str text = { 0 };
    struct saev s, t;
    struct err err = { 0 };

    if (saev_parse(&s, (const char *)data, size, "f", 0, &err) < 0) {
        if (err.status != EX_DATAERR || strchr(err.what, '\n'))
            abort();
        return 0;
    }
    if (s.shard_imgs == 0 || s.n_tokens == 0 || s.n_layers == 0)
        abort();
    check_views(&s);
    if (saev_hash(&s, first, &err) < 0 || saev_json(&s, &text, &err) < 0 ||
        saev_parse(&t, text.s, text.n, "f", 0, &err) < 0 ||
        saev_hash(&t, again, &err) < 0 || strcmp(first, again) != 0)
        abort();
    saev_free(&t);
    saev_free(&s);
    str_free(&text);
    return 0;
}
