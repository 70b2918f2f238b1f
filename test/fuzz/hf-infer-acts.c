/* SPDX-License-Identifier: ISC */
/* cmd/hf-infer/acts_spec: any word as --acts; what is taken are layers of the
 * model, each once. */
#include "cmd/hf-infer/acts.h"
#include "core/model/family.h"

#include "test/fuzz/files.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bool sparse[12] = { [3] = true }, seen[13][N_TAP_POINTS] = { { false } };
    struct config config = { .family = family_find("llama"),
                             .n_layers = 12,
                             .sparse = sparse };
    char *text = strndup((const char *)data, n);
    struct acts_spec spec = { 0 };
    struct err err = { 0 };

    if (acts_spec_parse(&spec, text, &config, &err) < 0) {
        MUST(err.status == TU_USAGE && *err.what);
    } else {
        MUST(spec.n > 0);
        for (size_t i = 0; i < spec.n; i++) {
            enum tap_point point = spec.places[i].point;
            int64_t layer = spec.places[i].layer;

            MUST(layer >= (point == TAP_RESID ? -1 : 0) && layer < 12);
            MUST(!seen[layer + 1][point]);
            seen[layer + 1][point] = true;
        }
    }
    acts_spec_free(&spec);
    free(text);
    return 0;
}
