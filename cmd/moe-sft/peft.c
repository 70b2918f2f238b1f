/*
 * Adapters in PEFT's form: a folder with adapter_config.json and
 * adapter_model.safetensors, a pair of matrices for each linear layer.
 * Source: Hugging Face peft 0.17, LoraConfig and save_pretrained().
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/moe-sft/sft.h"
#include "cmd/moe-sft/tensor.h"
#include "core/format/peft.h"
#include "core/format/stw.h"
#include "core/format/stwant.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/outdir.h"
#include "core/pyjson.h"

#define ROOT PEFT_ROOT "model."

#define MAX_EXPERTS 65536LL /* where no base says how many */

struct from {
    struct adapter *a;
    const struct base *base;
    struct peft config;
    struct stdir dir;
    struct str prefix; /* of the layer: "...mlp.experts." */
    size_t n_used;
};

/* ---- the tensors ---- */

static void
put_tail(struct str *s, enum moe_lora_matrix m)
{
    str_addf(s, "%s.lora_%c.weight", base_names[m / 2], "AB"[m % 2]);
}

/* Takes a tensor's name apart if it is of some expert. */
static bool
is_expert(const struct st_tensor *t, struct name *name)
{
    struct str tail = { 0 };
    bool found = false;

    for (int m = 0; !found && m < MOE_N_LORA; m++) {
        str_clear(&tail);
        put_tail(&tail, m);
        found = name_parse(name, t, tail.s) && name->expert >= 0;
    }
    str_free(&tail);
    return found;
}

/* The layer's prefix, and how many experts the names speak of. */
static int
find_layer(struct from *p, int64_t layer, struct err *err)
{
    int64_t low = -1, high = -1, last = -1;
    bool two = false;

    for (size_t i = 0; i < p->dir.n_tensors; i++) {
        const struct st_tensor *t = p->dir.tensors[i].t;
        struct name name;

        if (!is_expert(t, &name))
            continue;
        low = low < 0 || name.layer < low ? name.layer : low;
        high = name.layer > high ? name.layer : high;
        if (layer >= 0 && name.layer != layer)
            continue;
        if (!p->prefix.n)
            str_add(&p->prefix, t->name, name.prefix_n);
        if (p->prefix.n == name.prefix_n &&
            !memcmp(p->prefix.s, t->name, name.prefix_n))
            last = name.expert > last ? name.expert : last;
        else
            two = true;
        p->a->layer = name.layer;
    }
    if (layer < 0 && low != high)
        return err_set(err, TU_USAGE,
                       "%s: has adapters of layers %lld to %lld: --layer N "
                       "names one",
                       p->dir.path, (long long)low, (long long)high);
    if (!p->prefix.n || two)
        return err_set(err, EX_DATAERR, "%s: has %s of experts%s", p->dir.path,
                       two ? "two adapters" : "no adapter",
                       layer < 0 ? "" : " of that layer");
    if (last >= (p->base ? (int64_t)p->base->n_experts : MAX_EXPERTS))
        return err_set(err, EX_DATAERR,
                       "%s: has an adapter of expert %lld (expected %lld "
                       "experts)",
                       p->dir.path, (long long)last,
                       p->base ? (long long)p->base->n_experts : MAX_EXPERTS);
    p->a->n_experts = (size_t)last + 1;
    return 0;
}

static const struct stdir_tensor *
find(const struct from *p, enum moe_lora_matrix m, size_t expert)
{
    struct str s = { 0 };
    const struct stdir_tensor *t;

    str_addf(&s, "%s%zu.", p->prefix.s, expert);
    put_tail(&s, m);
    t = stdir_find(&p->dir, s.s);
    str_free(&s);
    return t;
}

/* The sizes that no base gives: of the first tensor that has them. */
static int
take_sizes(struct from *p, struct err *err)
{
    struct adapter *a = p->a;

    if (p->base) {
        a->n_experts = p->base->n_experts;
        a->hidden = p->base->hidden;
        a->intermediate = p->base->intermediate;
        return 0;
    }
    for (size_t i = 0; i < p->dir.n_tensors; i++) {
        const struct st_tensor *t = p->dir.tensors[i].t;
        struct name name;
        bool down = name_parse(&name, t, "down_proj.lora_A.weight");

        if (!is_expert(t, &name) || t->n_dims != 2)
            continue;
        if (strstr(t->name, ".lora_A."))
            *(down ? &a->intermediate : &a->hidden) = t->shape[1];
        else
            *(strstr(t->name, "down_proj") ? &a->hidden : &a->intermediate) =
                t->shape[0];
    }
    if (a->hidden && a->intermediate)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: the experts' sizes do not show (-b BASE tells them)",
                   p->dir.path);
}

/* One module's rank and alpha, which must be those of the ones before. */
static int
take_scale(struct from *p, const char *module, bool *first, struct err *err)
{
    struct peft_pair pair;

    if (peft_target(&p->config, module, err) < 0 ||
        peft_pair(&p->config, module, &pair, err) < 0)
        return -1;
    if (*first) {
        p->a->rank = (size_t)pair.r;
        p->a->alpha = (float)pair.alpha;
        *first = false;
    }
    if (p->a->rank == (size_t)pair.r && p->a->alpha == (float)pair.alpha)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: %s has rank %lld and alpha %.9g, others have %zu and "
                   "%.9g: experts of different ones are not supported",
                   p->config.path, module, (long long)pair.r, pair.alpha,
                   p->a->rank, (double)p->a->alpha);
}

/* The experts have one rank and one alpha, whatever patterns say it. */
static int
take_scales(struct from *p, struct err *err)
{
    struct str module = { 0 };
    bool first = true;
    int rc = 0;

    for (size_t e = 0; rc == 0 && e < p->a->n_experts; e++)
        for (int i = 0; rc == 0 && i < BASE_N; i++) {
            if (!find(p, 2 * i, e) && !find(p, 2 * i + 1, e))
                continue;
            str_clear(&module);
            str_addf(&module, "%s%zu.%s", p->prefix.s, e, base_names[i]);
            rc = take_scale(p, module.s, &first, err);
        }
    str_free(&module);
    return rc;
}

static int
check_tensor(const struct from *p, const struct stdir_tensor *t,
             enum moe_lora_matrix m, struct err *err)
{
    struct moe_config config = adapter_config(p->a, 1);
    struct st_want want = { .n_dims = 2 };
    uint64_t shape[3];

    moe_lora_shape(&config, m, shape);
    want.shape[0] = shape[1];
    want.shape[1] = shape[2];
    return st_want(p->dir.path, t->t, &want, err);
}

/* A pair of matrices: both are there, or neither. */
static int
read_pair(struct from *p, enum base_matrix which, size_t expert,
          struct err *err)
{
    for (int m = 2 * (int)which; m < 2 * (int)which + 2; m++) {
        const struct stdir_tensor *t = find(p, m, expert);

        if (!t && !find(p, m ^ 1, expert))
            return 0;
        if (!t)
            return err_set(err, EX_DATAERR,
                           "%s: tensor %s%zu.%s.lora_%c.weight is missing",
                           p->dir.path, p->prefix.s, expert, base_names[which],
                           "AB"[m % 2]);
        if (check_tensor(p, t, m, err) < 0)
            return -1;
        adapter_take(p->a, m, expert * t->t->n_elements, t->st, t->t);
        p->n_used++;
    }
    return 0;
}

static int
read_all(struct from *p, struct err *err)
{
    for (size_t e = 0; e < p->a->n_experts; e++)
        for (int i = 0; i < BASE_N; i++)
            if (read_pair(p, i, e, err) < 0)
                return -1;
    if (p->n_used < p->dir.n_tensors)
        err_warn("%s: %zu tensors are not of these experts, ignored",
                 p->dir.path, p->dir.n_tensors - p->n_used);
    return 0;
}

/* PEFT's file, whatever lies beside it; else the only one there is. */
static int
open_tensors(struct from *p, const char *dir, struct err *err)
{
    struct str path = { 0 };
    int rc;

    str_addf(&path, "%s/" PEFT_MODEL, dir);
    rc = stdir_open(&p->dir, file_missing(path.s) ? dir : path.s, err);
    str_free(&path);
    return rc;
}

static int
open_all(struct from *p, const char *dir, int64_t layer, bool exact,
         struct err *err)
{
    if (peft_open(&p->config, dir, err) < 0 || open_tensors(p, dir, err) < 0 ||
        stdir_map(&p->dir, err) < 0 || find_layer(p, layer, err) < 0 ||
        take_sizes(p, err) < 0 || take_scales(p, err) < 0 ||
        adapter_alloc(p->a, exact, err) < 0)
        return -1;
    return read_all(p, err);
}

int
adapter_open_peft(struct adapter *a, const char *dir, int64_t layer,
                  const struct base *base, bool exact, struct err *err)
{
    struct from p = { .a = a, .base = base };
    int rc;

    *a = (struct adapter){ .layer = -1, .dtype = -1 };
    if (layer < 0 && base)
        layer = base->layer;
    rc = open_all(&p, dir, layer, exact, err);
    stdir_close(&p.dir);
    peft_close(&p.config);
    str_free(&p.prefix);
    if (rc < 0)
        adapter_close(a);
    return rc;
}

/* ---- writing ---- */

/* The fields that PEFT needs, and those that say what the tensors are. */
static void
put_config(const struct adapter *a, struct str *text)
{
    str_adds(text, "{\"alpha_pattern\": {}, \"auto_mapping\": null, "
                   "\"base_model_name_or_path\": null, \"bias\": \"none\", "
                   "\"fan_in_fan_out\": false, \"inference_mode\": true, "
                   "\"init_lora_weights\": true, ");
    str_addf(text,
             "\"layers_pattern\": \"layers\", \"layers_to_transform\": [%lld], "
             "\"lora_alpha\": ",
             (long long)a->layer);
    adapter_put_alpha(a, text);
    str_addf(text,
             ", \"lora_dropout\": 0.0, \"modules_to_save\": null, "
             "\"peft_type\": \"LORA\", \"r\": %zu, \"rank_pattern\": {}, "
             "\"revision\": null, \"target_modules\": [\"down_proj\", "
             "\"gate_proj\", \"up_proj\"], \"task_type\": \"CAUSAL_LM\", "
             "\"use_dora\": false, \"use_rslora\": false}",
             a->rank);
}

static int
write_config(const struct adapter *a, const char *dir, struct err *err)
{
    struct str text = { 0 }, lines = { 0 }, path = { 0 };
    int rc;

    put_config(a, &text);
    str_addf(&path, "%s/" PEFT_CONFIG, dir);
    rc = pyjson_indent(&lines, text.s, text.n, 2, PEFT_CONFIG, err);
    if (rc == 0)
        rc = out_put(path.s, 0, lines.s, lines.n, err);
    str_free(&text);
    str_free(&lines);
    str_free(&path);
    return rc;
}

static void
put_name(const struct adapter *a, enum moe_lora_matrix m, size_t expert,
         struct str *name)
{
    str_clear(name);
    str_addf(name, ROOT "layers.%lld.mlp.experts.%zu.", (long long)a->layer,
             expert);
    put_tail(name, m);
}

static int
write_tensors(const struct adapter *a, struct stw *w, const char *path,
              struct err *err)
{
    struct moe_config config = adapter_config(a, 1);
    struct str name = { 0 };
    int rc = 0;

    for (int i = 0; rc >= 0 && i < MOE_N_LORA * (int)a->n_experts; i++) {
        uint64_t shape[3];

        moe_lora_shape(&config, i % MOE_N_LORA, shape);
        put_name(a, i % MOE_N_LORA, (size_t)(i / MOE_N_LORA), &name);
        rc = stw_add(w, name.s, adapter_dtype(a), 2, shape + 1, err);
    }
    str_free(&name);
    if (rc < 0 || stw_open(w, path, 0, err) < 0)
        return -1;
    for (size_t i = 0; i < MOE_N_LORA * a->n_experts; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i % MOE_N_LORA);
        uint64_t shape[3];
        size_t n;

        moe_lora_shape(&config, m, shape);
        n = shape[1] * shape[2];
        if (adapter_put(a, w, (int)i, m, i / MOE_N_LORA * n, n, err) < 0)
            return -1;
    }
    return stw_commit(w, err);
}

static int
write_model(const struct adapter *a, const char *dir, struct err *err)
{
    struct str path = { 0 };
    struct stw *w = stw_new();
    int rc;

    str_addf(&path, "%s/" PEFT_MODEL, dir);
    rc = write_tensors(a, w, path.s, err);
    stw_free(w);
    str_free(&path);
    return rc;
}

int
adapter_write_peft(const struct adapter *a, const char *dir, int flags,
                   struct err *err)
{
    struct folder f;

    if (folder_open(&f, dir, flags, err) < 0)
        return -1;
    if (write_config(a, outdir_path(f.dir), err) < 0 ||
        write_model(a, outdir_path(f.dir), err) < 0) {
        folder_abort(&f);
        return -1;
    }
    return folder_commit(&f, err);
}
