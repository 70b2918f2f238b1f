/* SPDX-License-Identifier: ISC */
/*
 * core/format/sae: a hostile header of safetensors, or a file of torch.save(),
 * after saev's line or not, or of numpy's; cfg.json, and metadata.json beside
 * it; all of what opens can be read.
 */
#include "core/format/sae.h"
#include "core/model/matrix_rows.h"
#include "test/fuzz/files.h"

static void
read_all(const struct matrix *m)
{
    float *row = calloc(m->cols, sizeof(*row));

    for (size_t i = 0; i < m->rows && i < 100; i++)
        matrix_rows(NULL, m, i, 1, row, m->cols);
    if (m->rows)
        matrix_rows(NULL, m, m->rows - 1, 1, row, m->cols);
    free(row);
}

static void
optional(const char *name, struct bytes part)
{
    if (part.n)
        fuzz_file(name, part);
    else
        unlink(fuzz_path(name));
}

/* Not a header, which is text: is it a zip archive or a pickle, which may come
 * after a line? */
static bool
is_archive(struct bytes part)
{
    return memchr(part.data, 0, part.n) &&
           (part.data[0] == 'P' || part.data[0] == 0x80 ||
            memmem(part.data, part.n, "}\nP", 3) ||
            memmem(part.data, part.n, "}\n\x80", 3));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n };
    struct err err = { 0 };
    struct bytes tensors = next_part(&rest);
    struct sae sae;

    unlink(fuzz_path("sae.safetensors"));
    optional("ae.pt", is_archive(tensors) ? tensors : (struct bytes){ 0 });
    if (!is_archive(tensors))
        fuzz_st("sae.safetensors", tensors);
    optional("cfg.json", next_part(&rest));
    optional("metadata.json", next_part(&rest));
    MUST(sae_is_one(fuzz_dir, &err) == 1);
    if (sae_open(&sae, fuzz_dir, &err) < 0) {
        MUST(err.status == EX_DATAERR && *err.what && !sae.path && !sae.file);
        return 0;
    }
    MUST((sae.activation == SAE_JUMPRELU) == (sae.thresholds != NULL));
    for (size_t i = 0; sae.thresholds && i < sae.n; i++)
        MUST(sae.thresholds[i] >= 0 && sae.thresholds[i] < INFINITY);
    MUST(sae.n && sae.in && matrix_nbytes(&sae.encoder_weight));
    MUST(sae.decoder_weight.rows == sae.n && sae.decoder_weight.cols == sae.in);
    read_all(&sae.encoder_weight);
    read_all(&sae.encoder_bias);
    read_all(&sae.decoder_weight);
    read_all(&sae.decoder_bias);
    sae_close(&sae);
    return 0;
}
