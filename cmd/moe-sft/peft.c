#include "cmd/moe-sft/peft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/tensor.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/format/stwant.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/pyjson.h"
#include "core/str.h"
#include "core/tty.h"

struct from {
    struct expert_adapter *a;
    const struct base *base;
    struct peft_files *files;
    const struct stdir *dir; /* of the files */
    struct str prefix;       /* of the layer: "...mlp.experts." */
};

static const char *const peft_tails[MOE_N_LORA] = {
    "gate_proj.lora_A.weight", "gate_proj.lora_B.weight",
    "up_proj.lora_A.weight",   "up_proj.lora_B.weight",
    "down_proj.lora_A.weight", "down_proj.lora_B.weight",
};

/* ---- the tensors ---- */

/* Parses a tensor's name; false if it is not an expert's. */
static bool
is_expert(const struct st_tensor *t, struct name *name)
{
    for (int m = 0; m < MOE_N_LORA; m++)
        if (name_parse(name, t, peft_tails[m]) && name->expert >= 0)
            return true;
    return false;
}

/* Finds the layer's prefix, and its sizes: those of the base, or else of its
 * tensors. */
static int
find_layer(struct from *p, int64_t layer, struct err *err)
{
    struct expert_adapter *a = p->a;
    int64_t low = -1, high = -1, last = -1;
    int64_t most = p->base ? (int64_t)p->base->n_experts : MOE_MAX_EXPERTS;
    bool two = false;

    for (size_t i = 0; i < p->dir->n_tensors; i++) {
        const struct st_tensor *t = p->dir->tensors[i].t;
        struct name name;

        if (!is_expert(t, &name))
            continue;
        low = low < 0 || name.layer < low ? name.layer : low;
        high = name.layer > high ? name.layer : high;
        if (layer >= 0 && name.layer != layer)
            continue;
        if (!p->prefix.n)
            str_add(&p->prefix, t->name, name.prefix_n);
        a->layer = name.layer;
        if (p->prefix.n != name.prefix_n ||
            memcmp(p->prefix.s, t->name, name.prefix_n) != 0) {
            two = true;
            continue;
        }
        last = name.expert > last ? name.expert : last;
        if (t->n_dims == 2 && strstr(t->name, ".lora_A."))
            *(strstr(t->name, "down_proj") ? &a->intermediate : &a->hidden) =
                t->shape[1];
        else if (t->n_dims == 2)
            *(strstr(t->name, "down_proj") ? &a->hidden : &a->intermediate) =
                t->shape[0];
    }
    if (layer < 0 && low != high)
        return err_set(err, TU_USAGE,
                       "%s: has adapters of layers %lld to %lld: --layer N "
                       "names one",
                       p->dir->path, (long long)low, (long long)high);
    if (!p->prefix.n || two)
        return err_set(err, EX_DATAERR, "%s: has %s of experts%s", p->dir->path,
                       two ? "two adapters" : "no adapter",
                       layer < 0 ? "" : " of that layer");
    if (last >= most)
        return err_set(err, EX_DATAERR,
                       "%s: has an adapter of expert %lld (expected %lld "
                       "expert%s%s)",
                       p->dir->path, (long long)last, (long long)most,
                       plural(most), p->base ? "" : " at most");
    a->n_experts = (size_t)last + 1;
    if (p->base) {
        a->n_experts = p->base->n_experts;
        a->hidden = p->base->hidden;
        a->intermediate = p->base->intermediate;
    }
    if (a->hidden && a->intermediate)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: does not show the experts' sizes (-b BASE does)",
                   p->dir->path);
}

static const struct stdir_tensor *
find(const struct from *p, size_t m, size_t expert)
{
    struct str s = { 0 };
    const struct stdir_tensor *t;

    str_addf(&s, "%s%zu.%s", p->prefix.s, expert, peft_tails[m]);
    t = stdir_find(p->dir, s.s);
    str_free(&s);
    return t;
}

/* The experts have one rank and one alpha, whatever patterns say it. */
static int
take_scales(struct from *p, struct err *err)
{
    const struct peft *config = &p->files->config;
    struct expert_adapter *a = p->a;
    struct str module = { 0 };
    bool first = true;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < BASE_N * a->n_experts; i++) {
        size_t e = i / BASE_N, which = i % BASE_N;
        struct peft_pair pair;

        if (!find(p, 2 * which, e) && !find(p, 2 * which + 1, e))
            continue;
        str_clear(&module);
        str_addf(&module, "%s%zu.%s", p->prefix.s, e, base_names[which]);
        if (peft_target(config, module.s, err) < 0 ||
            peft_pair(config, module.s, &pair, err) < 0) {
            rc = -1;
            continue;
        }
        if (first) {
            a->rank = (size_t)pair.r;
            a->alpha = (float)pair.alpha;
            first = false;
        }
        if (a->rank != (size_t)pair.r || a->alpha != (float)pair.alpha)
            rc = err_set(err, EX_DATAERR,
                         "%s: %s has rank %lld and alpha %.9g, others have %zu "
                         "and %.9g: experts of different ones are not "
                         "supported",
                         config->path, module.s, (long long)pair.r, pair.alpha,
                         a->rank, (double)a->alpha);
    }
    str_free(&module);
    return rc;
}

int
adapter_map_layer(struct expert_adapter *a, struct peft_files *files,
                  int64_t layer, const struct base *base, struct err *err)
{
    struct from p = {
        .a = a, .base = base, .files = files, .dir = &files->dir
    };
    struct moe_config config;
    int rc = -1;

    *a = (struct expert_adapter){ .layer = -1, .dtype = -1 };
    if (layer < 0 && base)
        layer = base->layer;
    if (find_layer(&p, layer, err) == 0 && take_scales(&p, err) == 0 &&
        adapter_parts(a, err) == 0)
        rc = 0;
    config = adapter_config(a, 1);
    for (size_t i = 0; rc == 0 && i < MOE_N_LORA * a->n_experts; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i % MOE_N_LORA);
        size_t e = i / MOE_N_LORA;
        const struct stdir_tensor *t = find(&p, m, e);
        struct st_want want = { .n_dims = 2 };
        uint64_t shape[3];

        /* both matrices of a pair are there, or neither */
        if (!t && !find(&p, m ^ 1, e))
            continue;
        if (!t) {
            rc = err_set(err, EX_DATAERR, "%s: tensor %s%zu.%s is missing",
                         p.dir->path, p.prefix.s, e, peft_tails[m]);
            continue;
        }
        moe_lora_shape(&config, m, shape);
        want.shape[0] = shape[1];
        want.shape[1] = shape[2];
        rc = st_want(p.dir->path, t->t, &want, err);
        if (rc == 0) {
            adapter_take(a, m, e, 1, t->st, t->t);
            files->n_used++;
        }
    }
    str_free(&p.prefix);
    if (rc < 0)
        adapter_close(a);
    return rc;
}

/* ---- the directory ---- */

int
peft_files_open(struct peft_files *p, const char *path, struct err *err)
{
    struct str model = { 0 };
    int rc;

    *p = (struct peft_files){ 0 };
    if (peft_open(&p->config, path, err) < 0)
        return -1;
    /* PEFT's name, or the only file of tensors */
    str_addf(&model, "%s/" PEFT_MODEL, path);
    rc = stdir_open(&p->dir, file_missing(model.s) ? path : model.s, err);
    str_free(&model);
    return rc < 0 ? -1 : stdir_map(&p->dir, err);
}

static int
by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int64_t *
peft_files_layers(const struct peft_files *p, size_t *n)
{
    int64_t *layers = xcalloc(p->dir.n_tensors + 1, sizeof(*layers));
    size_t n_all = 0;
    struct name name;

    for (size_t i = 0; i < p->dir.n_tensors; i++)
        if (is_expert(p->dir.tensors[i].t, &name) &&
            !(n_all && layers[n_all - 1] == name.layer))
            layers[n_all++] = name.layer;
    qsort(layers, n_all, sizeof(*layers), by_number);
    *n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (!*n || layers[*n - 1] != layers[i])
            layers[(*n)++] = layers[i];
    return layers;
}

bool
peft_files_others(const struct peft_files *p)
{
    static const char tail[] = ".lora_A.weight";
    const size_t k = strlen(tail);
    struct name name;

    for (size_t i = 0; i < p->dir.n_tensors; i++) {
        const struct st_tensor *t = p->dir.tensors[i].t;

        if (t->name_n >= k && !memcmp(t->name + t->name_n - k, tail, k) &&
            !is_expert(t, &name))
            return true;
    }
    return false;
}

int
peft_files_warn(struct peft_files *p, const struct stdir *base,
                const char *under, struct err *err)
{
    if (p->n_used < p->dir.n_tensors)
        err_warn("%s: %zu tensor%s not of these experts, ignored", p->dir.path,
                 p->dir.n_tensors - p->n_used,
                 plural(p->dir.n_tensors - p->n_used));
    return peft_warn(&p->config, &p->dir, base, under, err);
}

void
peft_files_close(struct peft_files *p)
{
    stdir_close(&p->dir);
    peft_close(&p->config);
    *p = (struct peft_files){ 0 };
}

/* ---- writing ---- */

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
             ", \"bias\": \"none\", \"fan_in_fan_out\": false, "
             "\"inference_mode\": true, \"init_lora_weights\": true, "
             "\"layers_pattern\": %s, \"layers_to_transform\": %s, "
             "\"lora_alpha\": ",
             p->layers ? "\"layers\"" : "null", p->layers ? p->layers : "null");
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
            str_addf(&s, PEFT_ROOT "model.layers.%lld.mlp.experts.%zu.%s",
                     (long long)a->layer, k / MOE_N_LORA, peft_tails[m]);
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
