/* --acts-meta: the metadata.json that saev-write takes with the dump. */
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "core/js.h"
#include "core/text/chat.h"

/* Activations a shard, the SAEV default, if one window does not need more. */
#define SHARD_TOKENS 2400000

/* The directory as it was named, without a slash at its end. */
static void
put_ckpt(struct str *s, const char *dir)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    js_put_str(s, dir, n);
}

static void
put_text(struct str *s, const char *key, const char *value)
{
    str_addf(s, "\"%s\": ", key);
    js_put_str(s, value, strlen(value));
}

static void
add_text(struct str *s, const char *key, const char *value)
{
    if (!value)
        return;
    str_adds(s, ", ");
    put_text(s, key, value);
}

static void
add_true(struct str *s, const char *key, bool value)
{
    if (value)
        str_addf(s, ", \"%s\": true", key);
}

/* Options that change the numbers, where they were given: saev-write names a
 * dump's directory by a hash of these words. */
static void
add_how(struct str *s, const struct run *run)
{
    for (size_t i = 0; i < run->lora.n; i++) {
        str_adds(s, i ? ", " : ", \"lora\": [");
        js_put_str(s, run->lora.item[i], strlen(run->lora.item[i]));
    }
    str_adds(s, run->lora.n ? "]" : "");
    add_text(s, "lut", run->lut);
    add_text(s, "lut_layers", run->lut_layers);
    if (run->lut_ratio >= 0) {
        str_adds(s, ", \"ratio\": ");
        js_put_f64(s, run->lut_ratio);
    }
    if (run->compute == COMPUTE_BF16)
        add_text(s, "compute", "bf16");
    if (run->kv_dtype != DT_F32)
        add_text(s, "kv_dtype", run->kv_dtype == DT_F16 ? "f16" : "bf16");
    add_true(s, "raw", run->raw);
    add_true(s, "plain", run->plain);
    add_true(s, "chat", run->chat);
    if (run->format >= 0)
        add_text(s, "template", chat_name(run->format));
    add_text(s, "system", run->system);
}

void
acts_meta(struct str *s, const struct run *run, const struct acts_shape *a)
{
    size_t tokens = a->spec->n_layers * a->n_tokens;

    str_adds(s, "{\n    ");
    put_text(s, "vit_family", run->config->arch);
    str_adds(s, ",\n    \"vit_ckpt\": ");
    put_ckpt(s, run->dir);
    str_adds(s, ",\n    \"layers\": [");
    for (size_t i = 0; i < a->spec->n_layers; i++)
        str_addf(s, "%s%lld", i ? ", " : "", (long long)a->spec->layers[i]);
    str_addf(s,
             "],\n    \"n_patches_per_img\": %zu,\n    \"cls_token\": false,\n"
             "    \"d_vit\": %zu,\n    \"seed\": 0,\n",
             a->n_tokens, a->dim);
    if (a->n_windows_known)
        str_addf(s, "    \"n_imgs\": %zu,\n", a->n_windows);
    str_addf(s, "    \"max_patches_per_shard\": %zu,\n    \"data\": {",
             tokens > SHARD_TOKENS ? tokens : (size_t)SHARD_TOKENS);
    put_text(s, "acts", a->spec->name);
    str_adds(s, ", ");
    put_text(s, "input", a->input);
    str_adds(s, ", ");
    put_text(s, "windows", a->windows);
    add_how(s, run);
    add_text(s, "ids_sha256", a->sha256);
    str_adds(s, "}\n}\n");
}
