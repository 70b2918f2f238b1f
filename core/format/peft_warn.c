/* SPDX-License-Identifier: ISC */
/* What of an adapter has no effect, or is not there. */
#include <stdlib.h>
#include <string.h>

#include "core/format/peft.h"
#include "core/mem.h"
#include "core/str.h"
#include "core/tty.h"

#define ROOT   "model." /* of most models' names, but for lm_head */
#define TAIL   ".weight"
#define TAIL_A ".lora_A.weight"

#define MAX_SHOWN 8

/* Members that may be true or objects without an effect on the numbers. */
static const char *const harmless[] = {
    "alpha_pattern",  "auto_mapping",   "corda_config",   "ensure_weight_tying",
    "eva_config",     "fan_in_fan_out", "inference_mode", "init_lora_weights",
    "lora_ga_config", "loftq_config",   "rank_pattern",   "use_rslora",
};

static void
warn_unknown(const struct peft *p)
{
    struct str names = { 0 };
    const char *key;
    json_t *v;
    size_t n = 0;

    json_object_foreach(p->root, key, v)
    {
        bool known = !json_is_true(v) && json_object_size(v) == 0;

        for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
            known = known || !strcmp(key, harmless[i]);
        if (!known && n++ < MAX_SHOWN)
            str_addf(&names, "%s\"%.80s\"", n > 1 ? ", " : "", key);
    }
    if (n)
        err_warn("%s: %s %s not known, ignored", p->path, names.s,
                 n == 1           ? "is"
                 : n <= MAX_SHOWN ? "are"
                                  : "and others are");
    str_free(&names);
}

static void
warn_unused(const struct peft *p, const struct peft_patterns *of)
{
    const char *first;
    size_t n = peft_unused(of, &first);

    if (n)
        err_warn("%s: %s is used for no module%s", p->path, first,
                 n > 1 ? ", and others are not either" : "");
}

static bool
has_tail(const struct st_tensor *t, const char *tail)
{
    size_t n = strlen(tail);

    return t->name_n > n && !memcmp(t->name + t->name_n - n, tail, n);
}

/* Is there an A of this module? */
static bool
has_a(const struct stdir *tensors, const char *module)
{
    struct str s = { 0 };
    bool yes;

    str_addf(&s, PEFT_ROOT "%s" TAIL_A, module);
    yes = stdir_find(tensors, s.s);
    str_free(&s);
    return yes;
}

/* The name of a tensor of the base, without its root. */
static const char *
short_name(const struct st_tensor *t)
{
    return strncmp(t->name, ROOT, strlen(ROOT)) ? t->name
                                                : t->name + strlen(ROOT);
}

/* What the adapter has before the names of the base: "model.", "", or as of a
 * GPT-2 whose file has "h.0.." "transformer.". */
static void
add_root(struct str *to, const struct st_tensor *a, const struct stdir *base)
{
    const char *module = a->name + strlen(PEFT_ROOT);
    size_t n = strlen(module) - strlen(TAIL_A);

    for (size_t i = 0; i < base->n_tensors; i++) {
        const char *name = short_name(base->tensors[i].t);
        const char *end = str_ends(name, TAIL);
        size_t k = end ? (size_t)(end - name) : 0;

        if (k > 0 && k <= n && !memcmp(module + n - k, name, k) &&
            (k == n || module[n - k - 1] == '.')) {
            str_add(to, module, n - k);
            return;
        }
    }
}

/* 'root': what the adapter has before names.  'experts': has it any? */
static int
warn_missing(struct peft *p, const struct stdir *tensors,
             const struct stdir *base, const bool *used, const char *under,
             const char *root, bool experts, struct err *err)
{
    struct str module = { 0 }, first = { 0 };
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < base->n_tensors; i++) {
        const struct st_tensor *t = base->tensors[i].t;
        const char *name = short_name(t);
        bool yes = false;

        if ((used && !used[i]) || t->n_dims != 2 || !has_tail(t, TAIL) ||
            strncmp(t->name, under, strlen(under)) != 0 ||
            (!experts && strstr(name, ".experts.")))
            continue;
        str_clear(&module);
        str_addf(&module, "%s%.*s", strcmp(name, "lm_head" TAIL) ? root : "",
                 (int)(strlen(name) - strlen(TAIL)), name);
        if (has_a(tensors, module.s))
            continue;
        rc = peft_adapts(p, module.s, &yes, err);
        if (yes && n++ == 0)
            str_adds(&first, module.s);
    }
    if (rc == 0 && n)
        err_warn("%s: no tensors of %zu module%s that target_modules has, "
                 "which stay%s as in the base (the first is %s)",
                 tensors->path, n, plural(n), n == 1 ? "s" : "", first.s);
    str_free(&module);
    str_free(&first);
    return rc;
}

int
peft_warn(struct peft *p, const struct stdir *tensors, const struct stdir *base,
          const bool *used, const char *under, struct err *err)
{
    const struct st_tensor *a = NULL;      /* the first one in a layer */
    const struct st_tensor *expert = NULL; /* the base may have no such name */
    struct str root = { 0 };
    int rc = 0;

    for (size_t i = 0; i < tensors->n_tensors; i++) {
        const struct st_tensor *t = tensors->tensors[i].t;

        if (!has_tail(t, TAIL_A))
            continue;
        if (strstr(t->name, ".experts."))
            expert = t;
        else if (!a && !has_tail(t, "lm_head" TAIL_A))
            a = t;
    }
    warn_unknown(p);
    warn_unused(p, &p->r_of);
    warn_unused(p, &p->alpha_of);
    a = a ? a : expert;
    if (base && a)
        add_root(&root, a, base);
    if (base)
        rc = warn_missing(p, tensors, base, used, under, root.s ? root.s : "",
                          expert, err);
    str_free(&root);
    return rc;
}
