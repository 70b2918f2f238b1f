/* SPDX-License-Identifier: ISC */
/*
 * A hostile config.json, and a generation_config.json after "\n%%\n": it is
 * refused, or its numbers are safe to compute sizes and positions with.
 */
#include "core/model/config.h"

#include <math.h>

#include "test/fuzz/files.h"

static void
check_positions(const struct config *c)
{
    size_t half = (size_t)c->rotary_dim / 2;
    double *freq = calloc(half, sizeof(*freq));
    float *cosines = calloc(half, sizeof(*cosines));
    float *sines = calloc(half, sizeof(*sines));

    for (const struct rope_config *r = c->rope;
         r < c->rope + CONFIG_MAX_ROPES && half; r++) {
        rope_inv_freq(freq, r, 2 * half);
        rope_table(cosines, sines, r, freq, half, (size_t)c->max_positions - 1);
        for (size_t i = 0; i < half; i++)
            MUST(freq[i] >= 0 && freq[i] <= 1e6 && isfinite(cosines[i]) &&
                 isfinite(sines[i]));
    }
    free(freq);
    free(cosines);
    free(sines);
}

static void
check_config(const struct config *c)
{
    MUST(c->n_layers > 0 && c->n_layers <= 4096);
    MUST(c->n_kv_heads > 0 && c->n_heads % c->n_kv_heads == 0);
    MUST(c->head_dim >= 2 && c->head_dim % 2 == 0);
    MUST(c->n_heads * c->head_dim <= 1 << 24);
    MUST(c->hidden_size * c->vocab_size <= (int64_t)1 << 44);
    MUST(c->max_positions > 0 && c->intermediate_size > 0);
    MUST(c->n_eos <= CONFIG_MAX_EOS && c->temperature >= 0);
    MUST(c->repetition_penalty > 0 && c->top_k >= 0);
    for (int64_t i = 0; i < c->n_layers; i++) {
        MUST(c->window[i] >= 0 && c->rotation[i] <= ROTATION_NONE);
        MUST(!c->sparse[i] || c->n_experts > 0);
    }
    MUST(c->n_experts >= 0 && c->n_experts <= 4096);
    MUST(c->n_experts_used <= c->n_experts);
    MUST((c->n_experts_used > 0 && c->expert_size > 0) == (c->n_experts > 0));
    check_positions(c);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = { data, size };
    struct config c;
    struct err err = { 0 };

    fuzz_file("config.json", next_part(&rest));
    if (rest.n)
        fuzz_file("generation_config.json", rest);
    else
        unlink(fuzz_path("generation_config.json"));
    if (config_load(&c, fuzz_dir, &err)) {
        MUST(err.status == EX_DATAERR && *err.what && !c.window && !c.sparse);
        return 0;
    }
    check_config(&c);
    config_free(&c);
    return 0;
}
