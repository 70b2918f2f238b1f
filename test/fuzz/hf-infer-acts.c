/* cmd/hf-infer/acts_spec: any word as --acts; what is taken are layers of the
 * model, each once. */
#include "cmd/hf-infer/acts.h"

#include "test/fuzz/files.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bool sparse[12] = { [3] = true }, seen[13] = { false };
    struct config config = { .n_layers = 12, .sparse = sparse };
    char *text = strndup((const char *)data, n);
    struct acts_spec spec = { 0 };
    struct err err = { 0 };

    if (acts_spec_parse(&spec, text, &config, &err) < 0) {
        MUST(err.status == TU_USAGE && *err.what);
    } else {
        MUST(spec.n_layers > 0 && !strncmp(text, spec.name, strlen(spec.name)));
        for (size_t i = 0; i < spec.n_layers; i++) {
            int64_t layer = spec.layers[i];

            MUST(layer >= (spec.point == TAP_RESID ? -1 : 0) && layer < 12);
            MUST(!seen[layer + 1]);
            seen[layer + 1] = true;
        }
    }
    acts_spec_free(&spec);
    free(text);
    return 0;
}
