/* generation_config.json: how the next token is drawn. */
#include <string.h>

#include "core/model/config_impl.h"

#define TOP_K 50 /* of transformers, which saves no default */

/* What makes other texts there, and is not done here, unless it has one of
 * these values. */
static const struct {
    const char *key;
    double neutral; /* as is null, false, or an empty list */
} passed_over[] = {
    { "num_beams", 1 },
    { "num_beam_groups", 1 },
    { "penalty_alpha", 0 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "encoder_repetition_penalty", 1 },
    { "no_repeat_ngram_size", 0 },
    { "max_length", 20 }, /* what transformers has without the key */
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "guidance_scale", 1 },
    { "bad_words_ids", 0 },
    { "suppress_tokens", 0 },
    { "begin_suppress_tokens", 0 },
    { "forced_bos_token_id", -1 },
    { "forced_eos_token_id", -1 },
    { "exponential_decay_length_penalty", 0 },
    { "sequence_bias", 0 },
    { "stop_strings", 0 },
};
#define N_KEYS (sizeof(passed_over) / sizeof(passed_over[0]))

_Static_assert(N_KEYS < CONFIG_MAX_KEYS, "the last of them is NULL");

int
config_sampler(struct config *c, const struct js *root, struct err *err)
{
    struct js top_k = js_get(root, "top_k");
    struct js max_new = js_get(root, "max_new_tokens");
    size_t n = 0;

    c->temperature = c->top_p = c->repetition_penalty = 1;
    if (!root->v)
        return 0;
    if (config_ends(c, root, err) ||
        js_bool_or(root, "do_sample", false, &c->do_sample, err) ||
        config_range(root, "temperature", 0, 1e6, &c->temperature, err) ||
        config_range(root, "top_p", 0, 1, &c->top_p, err) ||
        config_range(root, "min_p", 0, 1, &c->min_p, err) ||
        config_range(root, "repetition_penalty", 1e-6, 1e6,
                     &c->repetition_penalty, err))
        return -1;
    if (c->do_sample && !top_k.v)
        c->top_k = TOP_K;
    if (c->temperature < 1e-6) { /* the limit of ever colder sampling */
        c->temperature = 0;
        c->do_sample = false;
    }
    if (!js_absent(&max_new) &&
        js_i64(&max_new, 1, INT32_MAX, &c->max_new_tokens, err))
        return -1;
    for (size_t i = 0; i < N_KEYS; i++) {
        struct js js = js_get(root, passed_over[i].key);
        const json_t *v = js.v;

        /* as in transformers, max_new_tokens is before max_length */
        if (c->max_new_tokens && !strcmp(passed_over[i].key, "max_length"))
            continue;
        if (js_absent(&js) || json_is_false(v) ||
            (json_is_number(v) &&
             json_number_value(v) == passed_over[i].neutral) ||
            (json_is_array(v) && json_array_size(v) == 0) ||
            (json_is_object(v) && json_object_size(v) == 0))
            continue;
        c->passed_over[n++] = passed_over[i].key;
    }
    return js_absent(&top_k)
               ? 0
               : js_i64(&top_k, 0, CONFIG_MAX_VOCAB, &c->top_k, err);
}
