/* SPDX-License-Identifier: ISC */
#include "core/model/family.h"

#include <string.h>

#include "core/model/family_keys.h"

static const struct model_family *const tables[] = { family_text,
                                                     family_vision };
enum { N_TABLES = sizeof(tables) / sizeof(*tables) };

const struct model_family *
family_next(const struct model_family *f)
{
    bool found = !f;

    for (size_t i = 0; i < N_TABLES; i++)
        for (const struct model_family *row = tables[i]; row->model_type;
             row++) {
            if (found)
                return row;
            found = row == f;
        }
    return NULL;
}

const struct model_family *
family_find(const char *model_type)
{
    const struct model_family *f = NULL;
    size_t n;

    do {
        f = family_next(f);
        n = f ? strlen(f->model_type) : 0;
    } while (f && (strncmp(f->model_type, model_type, n) != 0 ||
                   (model_type[n] && strcmp(model_type + n, "_text") != 0)));
    return f;
}

bool
family_has_text(const char *model_type)
{
    /* not those that tell their text model more than its text_config does:
     * paligemma to look both ways, mllama to look at images in its layers */
    static const char *const types[] = {
        "aya_vision",      "cohere2_vision", "gemma3",
        "internvl",        "llava",          "llava_next",
        "mistral3",        "qwen2_5_vl",     "llava_next_video",
        "llava_onevision", "vipllava",       "qwen3_5",
        "qwen3_5_moe",     "kimi_k25",
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(model_type, types[i]))
            return true;
    return false;
}

void
family_list(struct str *to, bool vision)
{
    const char *comma = "";

    for (const struct model_family *f = NULL; (f = family_next(f));)
        if (!f->variant && !f->vision == !vision) {
            str_addf(to, "%s%s", comma, f->model_type);
            comma = ", ";
        }
}

const struct family_stack *
family_stack(const struct model_family *f)
{
    static const struct family_stack by_rows = { .gate_up = "gate_up_proj",
                                                 .down = "down_proj" };

    return !f->experts         ? NULL
           : f->experts->stack ? f->experts->stack
                               : &by_rows;
}

const char *
family_key(const struct model_family *f, const char *key)
{
    for (const struct family_alias *a = f->aliases; a && a->key; a++)
        if (!strcmp(a->key, key))
            return a->own;
    return key;
}
