/*
 * Writing adapters in PEFT's form.
 * Source: Hugging Face peft 0.17, LoraConfig and get_pattern_key().
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/sft.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/outdir.h"
#include "core/pyjson.h"

#define ROOT PEFT_ROOT "model."

struct to {
    const struct adapter *const *adapters; /* [n], in order of their layers */
    size_t n;
    const char *dir;
};

/* ---- adapter_config.json ---- */

static bool
same_rank(const struct adapter *a, const struct adapter *b)
{
    return a->rank == b->rank;
}

static bool
same_alpha(const struct adapter *a, const struct adapter *b)
{
    return a->alpha == b->alpha;
}

static void
put_rank(const struct adapter *a, struct str *text)
{
    str_addf(text, "%zu", a->rank);
}

/* What layers have otherwise than the first one: patterns of their modules. */
static void
put_patterns(const struct to *to, const char *key,
             bool (*same)(const struct adapter *, const struct adapter *),
             void (*put)(const struct adapter *, struct str *),
             struct str *text)
{
    const char *comma = "";

    str_addf(text, "\"%s\": {", key);
    for (size_t i = 1; i < to->n; i++) {
        const struct adapter *a = to->adapters[i];

        if (same(a, to->adapters[0]))
            continue;
        str_addf(text,
                 "%s\"layers\\\\.%lld\\\\.mlp\\\\.experts\\\\..*\": ", comma,
                 (long long)a->layer);
        put(a, text);
        comma = ", ";
    }
    str_adds(text, "}, ");
}

/* The fields that PEFT needs, and those that say what the tensors are. */
static void
put_config(const struct to *to, struct str *text)
{
    str_adds(text, "{");
    put_patterns(to, "alpha_pattern", same_alpha, adapter_put_alpha, text);
    str_adds(text, "\"auto_mapping\": null, "
                   "\"base_model_name_or_path\": null, \"bias\": \"none\", "
                   "\"fan_in_fan_out\": false, \"inference_mode\": true, "
                   "\"init_lora_weights\": true, "
                   "\"layers_pattern\": \"layers\", "
                   "\"layers_to_transform\": [");
    for (size_t i = 0; i < to->n; i++)
        str_addf(text, "%s%lld", i ? ", " : "",
                 (long long)to->adapters[i]->layer);
    str_adds(text, "], \"lora_alpha\": ");
    adapter_put_alpha(to->adapters[0], text);
    str_addf(text,
             ", \"lora_dropout\": 0.0, \"modules_to_save\": null, "
             "\"peft_type\": \"LORA\", \"r\": %zu, ",
             to->adapters[0]->rank);
    put_patterns(to, "rank_pattern", same_rank, put_rank, text);
    str_adds(text, "\"revision\": null, \"target_modules\": [\"down_proj\", "
                   "\"gate_proj\", \"up_proj\"], "
                   "\"task_type\": \"CAUSAL_LM\", "
                   "\"use_dora\": false, \"use_rslora\": false}");
}

static int
write_config(const struct to *to, struct err *err)
{
    struct str text = { 0 }, lines = { 0 }, path = { 0 };
    int rc;

    put_config(to, &text);
    str_addf(&path, "%s/" PEFT_CONFIG, to->dir);
    rc = pyjson_indent(&lines, text.s, text.n, 2, PEFT_CONFIG, err);
    if (rc == 0)
        rc = out_put(path.s, 0, lines.s, lines.n, err);
    str_free(&text);
    str_free(&lines);
    str_free(&path);
    return rc;
}

/* ---- adapter_model.safetensors ---- */

static int
add_tensors(const struct adapter *a, struct stw *w, struct err *err)
{
    struct moe_config config = adapter_config(a, 1);
    struct str name = { 0 };
    int rc = 0;

    for (int i = 0; rc >= 0 && i < MOE_N_LORA * (int)a->n_experts; i++) {
        uint64_t shape[3];

        moe_lora_shape(&config, i % MOE_N_LORA, shape);
        str_clear(&name);
        str_addf(&name, ROOT "layers.%lld.mlp.experts.%d.%s",
                 (long long)a->layer, i / MOE_N_LORA,
                 peft_tails[i % MOE_N_LORA]);
        rc = stw_add(w, name.s, adapter_dtype(a), 2, shape + 1, err);
    }
    str_free(&name);
    return rc < 0 ? -1 : 0;
}

static int
write_tensors(const struct to *to, struct stw *w, const char *path,
              struct err *err)
{
    int tensor = 0;

    for (size_t i = 0; i < to->n; i++)
        if (add_tensors(to->adapters[i], w, err) < 0)
            return -1;
    if (stw_open(w, path, 0, err) < 0)
        return -1;
    for (size_t i = 0; i < to->n; i++)
        for (size_t k = 0; k < MOE_N_LORA * to->adapters[i]->n_experts; k++)
            if (adapter_put(to->adapters[i], w, tensor++,
                            (enum moe_lora_matrix)(k % MOE_N_LORA),
                            (int64_t)(k / MOE_N_LORA), err) < 0)
                return -1;
    for (size_t i = 0; i < to->n; i++)
        if (adapter_unchanged(to->adapters[i], err) < 0)
            return -1;
    return stw_commit(w, err);
}

static int
write_model(const struct to *to, struct err *err)
{
    struct str path = { 0 };
    struct stw *w = stw_new();
    int rc;

    str_addf(&path, "%s/" PEFT_MODEL, to->dir);
    rc = write_tensors(to, w, path.s, err);
    stw_free(w);
    str_free(&path);
    return rc;
}

int
adapter_write_peft(const struct adapter *const *adapters, size_t n,
                   const char *dir, int flags, struct err *err)
{
    struct to to = { adapters, n, NULL };
    struct folder f;

    if (folder_open(&f, dir, flags, err) < 0)
        return -1;
    to.dir = outdir_path(f.dir);
    if (write_config(&to, err) < 0 || write_model(&to, err) < 0) {
        folder_abort(&f);
        return -1;
    }
    return folder_commit(&f, err);
}
