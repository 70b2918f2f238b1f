/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/peft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/model/parts.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/pyjson.h"
#include "core/str.h"

void
peft_put_alpha(struct str *to, double v)
{
    if (v == floor(v) && fabs(v) < 1e9)
        str_addf(to, "%.0f", v);
    else
        py_float_repr(to, v);
}

int
peft_write_config(const struct peft_written *p, const char *dir, int flags,
                  struct err *err)
{
    struct str text = { 0 }, lines = { 0 }, path = { 0 };
    int rc;

    str_addf(&text,
             "{\"alpha_pattern\": %s, \"auto_mapping\": null, "
             "\"base_model_name_or_path\": ",
             p->alpha_pattern ? p->alpha_pattern : "{}");
    if (p->base_model)
        js_put_str(&text, p->base_model, strlen(p->base_model));
    else
        str_adds(&text, "null");
    str_addf(&text,
             ", \"bias\": \"none\", \"fan_in_fan_out\": %s, "
             "\"inference_mode\": true, \"init_lora_weights\": true, "
             "\"layers_pattern\": %s, \"layers_to_transform\": %s, "
             "\"lora_alpha\": ",
             p->in_out ? "true" : "false", p->layers ? "\"layers\"" : "null",
             p->layers ? p->layers : "null");
    peft_put_alpha(&text, p->alpha);
    str_addf(&text,
             ", \"lora_dropout\": 0.0, \"modules_to_save\": null, "
             "\"peft_type\": \"LORA\", \"r\": %zu, \"rank_pattern\": %s, "
             "\"revision\": null, \"target_modules\": %s, "
             "\"task_type\": \"CAUSAL_LM\", \"use_dora\": false, "
             "\"use_rslora\": %s}",
             p->rank, p->rank_pattern ? p->rank_pattern : "{}", p->targets,
             p->rslora ? "true" : "false");
    str_addf(&path, "%s/" PEFT_CONFIG, dir);
    rc = pyjson_indent(&lines, text.s, text.n, 2, PEFT_CONFIG, err);
    if (rc == 0)
        rc = out_put(path.s, flags, lines.s, lines.n, err);
    str_free(&text);
    str_free(&lines);
    str_free(&path);
    return rc;
}

/* What layers have otherwise than the first one, rank or alpha: patterns of
 * their modules. */
static void
put_patterns(struct str *text, const struct expert_adapter *const *adapters,
             size_t n, bool rank)
{
    const struct expert_adapter *first = adapters[0];
    const char *comma = "";

    str_adds(text, "{");
    for (size_t i = 1; i < n; i++) {
        const struct expert_adapter *a = adapters[i];

        if (rank ? a->rank == first->rank : a->alpha == first->alpha)
            continue;
        str_addf(text,
                 "%s\"layers\\\\.%lld\\\\.mlp\\\\.experts\\\\..*\": ", comma,
                 (long long)a->layer);
        if (rank)
            str_addf(text, "%zu", a->rank);
        else
            peft_put_alpha(text, (double)a->alpha);
        comma = ", ";
    }
    str_adds(text, "}");
}

static int
write_config(const struct expert_adapter *const *adapters, size_t n,
             const char *dir, struct err *err)
{
    struct str ranks = { 0 }, alphas = { 0 }, layers = { 0 };
    int rc;

    put_patterns(&ranks, adapters, n, true);
    put_patterns(&alphas, adapters, n, false);
    for (size_t i = 0; i < n; i++)
        str_addf(&layers, "%s%lld", i ? ", " : "[",
                 (long long)adapters[i]->layer);
    str_adds(&layers, "]");

    struct peft_written p = {
        .rank = adapters[0]->rank,
        .alpha = (double)adapters[0]->alpha,
        .rank_pattern = ranks.s,
        .alpha_pattern = alphas.s,
        .layers = layers.s,
        .targets = "[\"down_proj\", \"gate_proj\", \"up_proj\"]",
    };

    rc = peft_write_config(&p, dir, 0, err);
    str_free(&ranks);
    str_free(&alphas);
    str_free(&layers);
    return rc;
}

/* adapter_model.safetensors: an expert's six matrices follow each other. */
static int
write_model(const struct expert_adapter *const *adapters, size_t n,
            const char *dir, struct err *err)
{
    struct str s = { 0 };
    struct stw *w = stw_new();
    int tensor = 0, rc = 0;

    for (size_t i = 0; rc >= 0 && i < n; i++) {
        const struct expert_adapter *a = adapters[i];
        struct moe_config config = adapter_config(a, 1);

        for (size_t k = 0; rc >= 0 && k < MOE_N_LORA * a->n_experts; k++) {
            enum moe_lora_matrix m = (enum moe_lora_matrix)(k % MOE_N_LORA);
            uint64_t shape[3];

            moe_lora_shape(&config, m, shape);
            str_clear(&s);
            str_adds(&s, PEFT_ROOT);
            part_name(&s, NULL,
                      (struct part_at){ PART_EXPERT_GATE + m / 2,
                                        (size_t)a->layer, k / MOE_N_LORA });
            str_addf(&s, ".lora_%c.weight", m % 2 ? 'B' : 'A');
            rc = stw_add(w, s.s, adapter_dtype(a), 2, shape + 1, err);
        }
    }
    str_clear(&s);
    str_addf(&s, "%s/" PEFT_MODEL, dir);
    if (rc >= 0)
        rc = stw_open(w, s.s, 0, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        for (size_t k = 0; rc == 0 && k < MOE_N_LORA * adapters[i]->n_experts;
             k++)
            rc = adapter_put(adapters[i], w, tensor++,
                             (enum moe_lora_matrix)(k % MOE_N_LORA),
                             (int64_t)(k / MOE_N_LORA), err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = adapter_unchanged(adapters[i], err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    str_free(&s);
    return rc;
}

int
adapter_write_peft(const struct expert_adapter *const *adapters, size_t n,
                   const char *dir, int flags, struct err *err)
{
    struct outdir_at f;

    if (outdir_at_open(&f, dir, flags, err) < 0)
        return -1;
    if (write_config(adapters, n, outdir_path(f.dir), err) < 0 ||
        write_model(adapters, n, outdir_path(f.dir), err) < 0) {
        outdir_at_abort(&f);
        return -1;
    }
    return outdir_at_commit(&f, err);
}
