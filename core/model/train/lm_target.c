/* SPDX-License-Identifier: ISC */
#include "core/model/train/lm_target.h"

#include <string.h>

static const char *const names[LM_N_TARGETS] = {
    "q",   "k",      "v",    "o",    "gate", "up", "down",
    "q_b", "in_qkv", "in_z", "in_b", "in_a", "out"
};

enum model_part
lm_target_part(const struct config *c, enum lm_target t)
{
    const struct model_form *f = &c->form;

    if (t >= LM_IN_QKV && f->fused_gdn)
        return t == LM_IN_QKV ? PART_GDN_QKVZ
               : t == LM_IN_B ? PART_GDN_BA
               : t == LM_OUT  ? PART_GDN_OUT
                              : N_PARTS;
    if (t >= LM_IN_QKV)
        return c->n_states ? PART_GDN_QKV + (t - LM_IN_QKV) : N_PARTS;
    if (t == LM_Q_B || (t == LM_Q && c->q_rank))
        return !c->q_rank ? N_PARTS : t == LM_Q ? PART_Q_A : PART_Q_B;
    if (f->mla && (t == LM_K || t == LM_V))
        return t == LM_K ? PART_KV_A : PART_KV_B;
    if (t <= LM_V && f->qkv != FUSED_NOT)
        return t == LM_Q ? PART_QKV : N_PARTS;
    if ((t == LM_GATE || t == LM_UP) && f->gate_up)
        return t == LM_GATE ? PART_GATE_UP : N_PARTS;
    if (t == LM_GATE && f->plain_mlp)
        return N_PARTS;
    return PART_Q + t;
}

const char *
lm_target_name(const struct config *c, enum lm_target t)
{
    enum model_part part = lm_target_part(c, t);

    return part == PART_QKV        ? "qkv"
           : part == PART_Q_A      ? "q_a"
           : part == PART_KV_A     ? "kv_a"
           : part == PART_KV_B     ? "kv_b"
           : part == PART_GATE_UP  ? "gate_up"
           : part == PART_GDN_QKVZ ? "in_qkvz"
           : part == PART_GDN_BA   ? "in_ba"
                                   : names[t];
}

/* The module's name after the layer's number: "attn.c_proj". */
static void
module_of(struct str *to, const struct config *c, enum lm_target t)
{
    struct str name = { 0 };

    part_module(&name, c->family,
                (struct part_at){ .part = lm_target_part(c, t) }, 0);
    str_adds(to, strchr(name.s, '0') + 2);
    str_free(&name);
}

unsigned
lm_target_find(const struct config *c, const char *word, size_t n)
{
    struct str module = { 0 };
    unsigned found = 0;

    for (enum lm_target t = LM_Q; t < LM_N_TARGETS; t++) {
        const char *name = lm_target_name(c, t), *end;

        if (lm_target_part(c, t) == N_PARTS)
            continue;
        str_clear(&module);
        str_addc(&module, '.');
        module_of(&module, c, t);
        end = n > 0 && n < module.n ? module.s + module.n - n : NULL;
        if ((strlen(name) == n && !memcmp(name, word, n)) ||
            (end && end[-1] == '.' && !memcmp(end, word, n)))
            found |= 1u << t;
    }
    str_free(&module);
    return found;
}

void
lm_target_modules(struct str *to, const struct config *c, unsigned targets,
                  const char *quote)
{
    struct str module = { 0 };
    unsigned named = 0;

    for (enum lm_target t = LM_Q; t < LM_N_TARGETS; t++) {
        const char *word;

        if (!(targets & ~named & 1u << t) || lm_target_part(c, t) == N_PARTS)
            continue;
        str_clear(&module);
        module_of(&module, c, t);
        word = strrchr(module.s, '.') + 1;
        if (lm_target_find(c, word, strlen(word)) & ~targets)
            word = module.s;
        str_addf(to, "%s%s%s%s", named ? ", " : "", quote, word, quote);
        named |= lm_target_find(c, word, strlen(word));
    }
    str_free(&module);
}
