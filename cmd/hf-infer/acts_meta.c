/* --acts-meta: the metadata.json that saev-write takes with the dump. */
#include <string.h>

#include "cmd/hf-infer/acts.h"
#include "core/js.h"

/* Activations a shard, the SAEV default, if one window does not need more. */
#define SHARD_TOKENS 2400000

/* The folder as it was named, without a slash at its end. */
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
    if (a->sha256) {
        str_adds(s, ", ");
        put_text(s, "ids_sha256", a->sha256);
    }
    str_adds(s, "}\n}\n");
}
