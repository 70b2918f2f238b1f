/* SPDX-License-Identifier: ISC */
/*
 * The safetensors reader on any bytes: as a whole file, and as a header whose
 * length and file size fit, so that mutations of the JSON get far.  What is
 * accepted must keep the promises of core/format/st.h.
 */
#include "core/format/st.h"

#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/str.h"
#include "test/fuzz/must.h"

static void
check_tensor(const struct st *st, const struct st_tensor *t)
{
    uint64_t n = 1, nbytes = 0;
    size_t data = st->file_size - st->data_offset;

    MUST(t->nbytes <= data && t->begin <= data - t->nbytes);
    MUST(t->name[t->name_n] == '\0');
    MUST(utf8_valid(t->name, t->name_n) == t->name_n);
    for (size_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    MUST(n == t->n_elements);
    MUST(dtype_nbytes(t->dtype, n, &nbytes) && nbytes == t->nbytes);
    if (!memchr(t->name, '\0', t->name_n))
        MUST(st_find(st, t->name) == t);
}

/* The bytes add up and no two overlap: then they are contiguous.  A few
 * tensors only, for it is quadratic. */
static void
check_places(const struct st *st)
{
    size_t sum = 0;

    for (size_t i = 0; i < st->n_tensors; i++)
        sum += st->tensors[i].nbytes;
    MUST(st->data_offset + sum == st->file_size);
    for (size_t i = 0; i < st->n_tensors && i < 100; i++)
        for (size_t k = 0; k < i; k++) {
            const struct st_tensor *a = st->tensors + i, *b = st->tensors + k;

            MUST(a->begin + a->nbytes <= b->begin ||
                 b->begin + b->nbytes <= a->begin);
        }
}

static void
check_order(const struct st *st)
{
    for (size_t i = 1; i < st->n_tensors; i++) {
        const struct st_tensor *a = st->tensors + st->by_name[i - 1];
        const struct st_tensor *b = st->tensors + st->by_name[i];

        MUST(st_name_cmp(a->name, a->name_n, b->name, b->name_n) < 0);
    }
}

static void
try(const uint8_t *file, size_t nbytes, size_t file_size)
{
    struct err err = { 0 };
    struct st st;

    if (st_parse(&st, file, nbytes, file_size, "f", &err) < 0) {
        MUST(err.status == EX_DATAERR && !strncmp(err.what, "f: ", 3));
        MUST(!st.arena);
        return;
    }
    MUST(st.file_size == file_size && st.data_offset == 8 + st.header_n);
    for (size_t i = 0; i < st.n_tensors; i++)
        check_tensor(&st, st.tensors + i);
    for (size_t i = 0; i < st.n_meta; i++)
        MUST(st.meta[i].key[st.meta[i].key_n] == '\0' &&
             st.meta[i].value[st.meta[i].value_n] == '\0');
    check_places(&st);
    check_order(&st);
    st_close(&st);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *file;
    size_t n;

    try(data, size, size);
    if (size < 1)
        return 0;
    n = size - 1; /* the first byte is the size of the data */
    file = malloc(8 + n);
    MUST(file);
    put_le64(file, n);
    memcpy(file + 8, data + 1, n);
    try(file, 8 + n, 8 + n + data[0]);
    free(file);
    return 0;
}
