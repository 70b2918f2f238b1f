/* SPDX-License-Identifier: ISC */
/* core/format/lut: any bytes as metadata.json, and as the header of a table's
 * file; what is taken keeps its promises. */
#include "core/format/lut.h"

#include <math.h>

#include "test/fuzz/files.h"

static void
check_table(const struct lut *lut, const struct lut_layer *l)
{
    struct lut_table t;
    struct err err = { 0 };
    float sum = 0;

    if (lut_table_open(&t, lut, l, &err) < 0) {
        MUST(err.status && *err.what && !t.encoder_bias);
        return;
    }
    MUST(l->n_basis * l->in <= FUZZ_MAX_DATA);
    for (size_t i = 0; i < l->n_basis; i++)
        sum += t.encoder_bias[i];
    for (size_t i = 0; i < l->in; i++)
        sum += t.decoder_bias[i];
    for (size_t i = 0; i < l->out; i++)
        sum += t.bias_product[i];
    MUST((t.thresholds != NULL) == l->over);
    for (size_t i = 0; l->over && i < l->n_basis; i++)
        MUST(t.thresholds[i] >= 0 && isfinite(t.thresholds[i]));
    MUST(sum <= 0 || sum > 0 || isnan(sum)); /* all could be read */
    lut_table_close(&t);
}

static void
check(const struct lut *lut)
{
    for (size_t i = 0; i < lut->n_layers; i++) {
        const struct lut_layer *l = &lut->layers[i];
        char *parts[LUT_MAX_PARTS];
        size_t n = lut_parts(l->name, parts);

        MUST(lut_find(lut, l->name) == l && l->k >= 1 && l->k <= l->n_basis);
        MUST(l->in >= 1 && l->out >= 1 && n >= 1 && n <= LUT_MAX_PARTS);
        MUST(!strchr(l->file, '/') && !strncmp(l->name, "model.", 6));
        while (n > 0)
            free(parts[--n]);
        check_table(lut, l);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes rest = { data, n };
    struct err err = { 0 };
    struct lut lut;

    fuzz_file("metadata.json", next_part(&rest));
    fuzz_st("t.lut.safetensors", next_part(&rest));
    if (lut_open(&lut, fuzz_dir, &err) < 0) {
        MUST(err.status == EX_DATAERR && !lut.layers && !lut.path);
        return 0;
    }
    check(&lut);
    lut_close(&lut);
    return 0;
}
