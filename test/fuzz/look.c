/* SPDX-License-Identifier: ISC */
/*
 * core/format/look: a RUN of any look.json, header and data; of one that opens
 * all examples are asked for, and what they promise is there.
 */
#include "core/format/look.h"

#include "test/fuzz/files.h"

/* A header, and data that are as many as it asks for. */
static void
tensors(struct bytes header, struct bytes data)
{
    size_t n = fuzz_st_nbytes(header);
    struct bytes file = { .n = 8 + header.n + n };
    uint8_t *bytes = calloc(1, file.n);

    put_le64(bytes, header.n);
    if (header.n)
        memcpy(bytes + 8, header.data, header.n);
    if (data.n && n)
        memcpy(bytes + 8 + header.n, data.data, data.n < n ? data.n : n);
    file.data = bytes;
    fuzz_file(LOOK_TENSORS, file);
    free(bytes);
}

static void
examples(const struct look *l, const struct look_examples *of)
{
    for (size_t i = 0; i < l->m; i++)
        for (size_t j = 0; j <= of->n; j++) {
            struct err err = { 0 };
            struct look_example e;
            int rc = look_example(l, of, i, j, &e, &err);

            MUST(rc >= 0 ||
                 (err.status == EX_DATAERR && !strchr(err.what, '\n')));
            if (rc <= 0)
                continue;
            MUST(e.at < e.n && e.acts[e.at] == e.value && e.value <= l->max[i]);
            for (size_t k = 0; k < e.n; k++)
                MUST((e.acts[k] == -1 || e.acts[k] >= 0) &&
                     (!e.ids || e.ids[k] >= -1));
        }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n }, header;
    struct err err = { 0 };
    struct look l;

    fuzz_file(LOOK_JSON, next_part(&rest));
    header = next_part(&rest);
    tensors(header, rest);
    if (look_open(&l, fuzz_dir, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what && !strchr(err.what, '\n'));
        look_close(&l);
        return 0;
    }
    for (size_t i = 0; i < l.m; i++) {
        MUST(look_find(&l, l.latent[i]) == i && (size_t)l.latent[i] < l.n);
        MUST(look_density(&l, i) >= 0 && look_density(&l, i) <= 1);
        MUST(look_mean(&l, i) >= 0);
    }
    for (size_t k = 0; k < l.p; k++)
        for (size_t i = 0; i < l.n; i++)
            MUST(l.pairs[k * l.n + i] >= 0);
    examples(&l, &l.top);
    examples(&l, &l.sample);
    look_close(&l);
    return 0;
}
