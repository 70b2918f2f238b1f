/* SPDX-License-Identifier: ISC */
/* generation_config.json: how the next token is drawn. */
#include <string.h>

#include "core/mem.h"
#include "core/model/config_impl.h"

#define TOP_K 50 /* of transformers, which saves no default */

/* What is done here, or changes no text: it is about speed, or about what else
 * transformers returns, or belongs to a key that is passed over itself. */
static const char *const known[] = {
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
    "max_new_tokens", "renormalize_logits", "remove_invalid_values",
    "_from_model_config", "_commit_hash", "transformers_version",
    "trust_remote_code", "use_cache", "cache_implementation", "cache_config",
    "return_legacy_cache", "prefill_chunk_size", "compile_config",
    "disable_compile", "low_memory", "output_attentions",
    "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
    "prompt_lookup_num_tokens", "max_matching_ngram_size",
    /* of beams */
    "early_stopping", "length_penalty", "diversity_penalty", NULL
};

/* Numbers that ask for nothing. */
static const struct {
    const char *key;
    double neutral;
} neutral[] = {
    { "num_beams", 1 },
    { "num_beam_groups", 1 },
    { "num_return_sequences", 1 },
    { "penalty_alpha", 0 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "encoder_repetition_penalty", 1 },
    { "encoder_no_repeat_ngram_size", 0 },
    { "no_repeat_ngram_size", 0 },
    { "max_length", 20 }, /* what transformers has without the key */
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "guidance_scale", 1 },
    { "forced_bos_token_id", -1 },
    { "forced_eos_token_id", -1 },
};

/* Lists what else the file asks for. */
static void
pass_over(struct config *c, const struct js *root)
{
    const char *key;

    for (void *at = NULL; (key = js_unknown(root, known, &at));) {
        struct js js = js_get(root, key);
        /* as in transformers, max_new_tokens is before max_length */
        bool skip = c->max_new_tokens && !strcmp(key, "max_length");

        for (size_t i = 0; i < sizeof(neutral) / sizeof(*neutral); i++)
            skip |= !strcmp(key, neutral[i].key) && json_is_number(js.v) &&
                    json_number_value(js.v) == neutral[i].neutral;
        if (skip)
            continue;
        c->passed_over = xrealloc(c->passed_over, c->n_passed_over + 1,
                                  sizeof(*c->passed_over));
        c->passed_over[c->n_passed_over++] = xstrdup(key);
    }
}

int
config_sampler(struct config *c, const struct js *root, struct err *err)
{
    struct js top_k = js_get(root, "top_k");
    struct js max_new = js_get(root, "max_new_tokens");

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
    pass_over(c, root);
    return js_absent(&top_k)
               ? 0
               : js_i64(&top_k, 0, CONFIG_MAX_VOCAB, &c->top_k, err);
}
