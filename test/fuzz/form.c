/* SPDX-License-Identifier: ISC */
/*
 * A hostile quantization_config, a header of tensors after "\n%%\n", and their
 * bytes after another one, again and again: packed layers are refused, or all
 * of their numbers can be read.
 */
#include "core/model/form.h"

#include "test/fuzz/files.h"

#define MOST 4096 /* numbers of a row that are read */

/* model.safetensors, whose data are 'part' until they are enough. */
static void
put_tensors(struct bytes header, struct bytes part)
{
    size_t n = fuzz_st_nbytes(header);
    struct bytes file = { .n = 8 + header.n + n };
    uint8_t *bytes = malloc(file.n);

    put_le64(bytes, header.n);
    if (header.n)
        memcpy(bytes + 8, header.data, header.n);
    for (size_t i = 0; i < n; i++)
        bytes[8 + header.n + i] = part.n ? part.data[i % part.n] : 0x38;
    file.data = bytes;
    fuzz_file("model.safetensors", file);
    free(bytes);
}

static void
read_all(const struct linear *l)
{
    static float row[MOST];

    for (size_t r = 0; r < l->out; r += 1 + l->out / 64)
        for (size_t c = 0; c < l->in; c += MOST)
            weight_read(row, &l->w, r, c, l->in - c < MOST ? l->in - c : MOST);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = { data, size }, header;
    struct form_memory memory = { 0 };
    struct quantization q = { 0 };
    struct stdir dir = { 0 };
    struct err err = { 0 };
    enum form_role role;
    size_t n;

    fuzz_file("config.json", next_part(&rest));
    header = next_part(&rest);
    put_tensors(header, rest);
    if (quantization_load(&q, fuzz_dir, &err) < 0 ||
        stdir_open(&dir, fuzz_dir, &err) < 0 || stdir_map(&dir, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what);
        goto out;
    }
    for (size_t i = 0; i < dir.n_tensors; i++) {
        struct form_tensors t;
        struct linear l;
        int rc = form_of(&t, &role, &n, &q, &dir, &dir.tensors[i], &err);

        MUST(rc >= 0 || (err.status == EX_DATAERR && *err.what));
        if (rc <= 0 || role != FORM_CODES)
            continue;
        MUST(t.out > 0 && t.in > 0 && t.n > 0 && n > 0);
        if (form_bind(&l, &t, t.n - 1, &memory, &err) == 0)
            read_all(&l);
        else
            MUST(err.status == EX_DATAERR && *err.what);
    }
out:
    form_memory_free(&memory);
    quantization_free(&q);
    stdir_close(&dir);
    return 0;
}
