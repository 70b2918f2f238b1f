/* core/format/lut: any bytes as metadata.json; what is taken keeps its
 * promises. */
#include "core/format/lut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
check(const struct lut *lut)
{
    for (size_t i = 0; i < lut->n_layers; i++) {
        const struct lut_layer *l = &lut->layers[i];
        char *parts[LUT_MAX_PARTS];
        size_t n = lut_parts(l->name, parts);

        if (lut_find(lut, l->name) != l || l->k < 1 || l->k > l->n_basis ||
            l->in < 1 || l->out < 1 || n < 1 || n > LUT_MAX_PARTS ||
            strchr(l->file, '/') || strncmp(l->name, "model.", 6) != 0)
            abort();
        while (n > 0)
            free(parts[--n]);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char dir[] = "/tmp/lut-fuzz.XXXXXX", path[64];
    struct lut lut;
    struct err err = { 0 };
    FILE *f;

    if (!*path) {
        if (!mkdtemp(dir))
            abort();
        snprintf(path, sizeof(path), "%s/metadata.json", dir);
    }
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
    if (lut_open(&lut, dir, &err) < 0) {
        if (err.status != EX_DATAERR || lut.layers || lut.path)
            abort();
        return 0;
    }
    check(&lut);
    lut_close(&lut);
    return 0;
}
