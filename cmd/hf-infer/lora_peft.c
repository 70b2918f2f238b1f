/*
 * --lora: folders of PEFT, adapter_config.json and adapter_model.safetensors.
 * Source: Hugging Face peft, LoraConfig and what save_pretrained() writes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "cmd/hf-infer/engine.h"
#include "core/kernel/gemv.h"
#include "core/mem.h"

#define ROOT   "base_model.model."
#define TAIL_A ".lora_A.weight"
#define TAIL_B ".lora_B.weight"

/* Steps of backtracking in one match: far beyond any honest pattern. */
#define MATCH_LIMIT 1000000

struct peft {
    struct model *model;
    struct adapter *adapter;
    struct js config;
    int64_t r;
    double alpha;
    bool rslora;
    struct err *err;
};

/* ---- adapter_config.json ---- */

/* Keys that would change numbers, unless they are false, empty or null. */
static const char *const refused[] = {
    "use_dora",
    "lora_bias",
    "fan_in_fan_out",
    "use_qalora",
    "modules_to_save",
    "target_parameters",
    "layer_replication",
    "arrow_config",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "use_bdlora",
    "megatron_config",
};

static bool
says_nothing(const struct js *js)
{
    return js_absent(js) || json_is_false(js->v) ||
           (js_is(js, JSON_ARRAY) && json_array_size(js->v) == 0) ||
           (js_is(js, JSON_OBJECT) && json_object_size(js->v) == 0);
}

static int
refuse(const struct peft *p)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        struct js js = js_get(&p->config, refused[i]);

        if (!says_nothing(&js))
            return err_set(p->err, EX_DATAERR, "%s: %s is not supported",
                           js.file, js.path);
    }
    return 0;
}

/* A string that must be one of some, if it is there. */
static int
one_of(const struct peft *p, const char *key, const char *const *known,
       const char *list)
{
    struct js js = js_get(&p->config, key);
    const char *s;
    size_t n;

    if (js_absent(&js) || js_is(&js, JSON_TRUE) || js_is(&js, JSON_FALSE))
        return 0;
    if (js_str(&js, &s, &n, p->err))
        return -1;
    for (size_t i = 0; known[i]; i++)
        if (!strcmp(s, known[i]))
            return 0;
    return js_unsupported(&js, s, list, p->err);
}

/* Initializations that change the model's own weights are not in its files. */
static int
read_config(struct peft *p)
{
    static const char *const types[] = { "LORA", NULL };
    static const char *const biases[] = { "none", NULL };
    static const char *const starts[] = { "gaussian", "eva", "orthogonal",
                                          NULL };
    struct js type = js_get(&p->config, "peft_type");
    struct js r = js_get(&p->config, "r");
    struct js alpha = js_get(&p->config, "lora_alpha");
    struct js rs = js_get(&p->config, "use_rslora");

    if (!js_is(&p->config, JSON_OBJECT))
        return js_bad(&p->config, "an object", p->err);
    if (!js_is(&type, JSON_STRING))
        return js_bad(&type, "\"LORA\"", p->err);
    if (one_of(p, "peft_type", types, "LORA") || refuse(p) ||
        one_of(p, "bias", biases, "none") ||
        one_of(p, "init_lora_weights", starts,
               "true, false, gaussian, eva, orthogonal") ||
        js_i64(&r, 1, INT32_MAX, &p->r, p->err) ||
        js_f64(&alpha, &p->alpha, p->err))
        return -1;
    return js_absent(&rs) ? 0 : js_bool(&rs, &p->rslora, p->err);
}

/* ---- rank_pattern, alpha_pattern ---- */

/* Does a pattern take a module's name, or an end of it after a dot? */
static int
matches(const struct js *js, const char *pattern, const char *module,
        struct err *err)
{
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_match_data *match = NULL;
    struct str s = { 0 };
    pcre2_code *code;
    PCRE2_SIZE at;
    int number, rc;

    str_addf(&s, "^(?:.*\\.)?(?:%s)$", pattern);
    code = pcre2_compile((PCRE2_SPTR)s.s, s.n, PCRE2_UTF | PCRE2_DOLLAR_ENDONLY,
                         &number, &at, NULL);
    if (code && limits) {
        match = pcre2_match_data_create_from_pattern(code, NULL);
        pcre2_set_match_limit(limits, MATCH_LIMIT);
    }
    rc = match ? pcre2_match(code, (PCRE2_SPTR)module, strlen(module), 0, 0,
                             match, limits)
               : PCRE2_ERROR_NOMEMORY;
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    pcre2_match_context_free(limits);
    str_free(&s);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return err_set(err, EX_DATAERR,
                       "%s: %s: \"%s\" is no pattern that works", js->file,
                       js->path, pattern);
    return rc > 0;
}

/* The value of the first pattern that takes the module; absent: none does. */
static int
find_pattern(const struct peft *p, const char *key, const char *module,
             struct js *value)
{
    struct js js = js_get(&p->config, key);
    void *it;

    *value = (struct js){ 0 };
    if (js_absent(&js))
        return 0;
    if (!js_is(&js, JSON_OBJECT))
        return js_bad(&js, "an object", p->err);
    /* jansson hands out keys in the order of the file */
    for (it = json_object_iter((json_t *)(uintptr_t)js.v); it;
         it = json_object_iter_next((json_t *)(uintptr_t)js.v, it)) {
        const char *pattern = json_object_iter_key(it);
        int rc = matches(&js, pattern, module, p->err);

        if (rc > 0)
            *value = js_get(&js, pattern);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return 0;
}

/* What the configuration says of one module. */
static int
sizes_of(const struct peft *p, const char *module, int64_t *r, float *scale)
{
    struct js rank, alpha;
    double a = p->alpha;

    *r = p->r;
    if (find_pattern(p, "rank_pattern", module, &rank) ||
        find_pattern(p, "alpha_pattern", module, &alpha) ||
        (rank.v && js_i64(&rank, 1, INT32_MAX, r, p->err)) ||
        (alpha.v && js_f64(&alpha, &a, p->err)))
        return -1;
    *scale = (float)(a / (p->rslora ? sqrt((double)*r) : (double)*r));
    return 0;
}

/* ---- adapter_model.safetensors ---- */

static int
take_matrix(struct linear *l, const struct stdir_tensor *t, size_t rows,
            size_t cols, struct err *err)
{
    const uint64_t expected[] = { rows, cols };

    if (tensor_shape(t, expected, 2, "", err) ||
        tensor_dtype(t, gemv_known(t->t->dtype), err))
        return -1;
    *l = (struct linear){ .w = st_data(t->st, t->t),
                          .dtype = t->t->dtype,
                          .rows = rows,
                          .cols = cols };
    return 0;
}

/* The module of a tensor's name, without 'tail'; NULL: it has another one. */
static char *
module_of(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail), root = strlen(ROOT);

    if (n <= root + k || strncmp(name, ROOT, root) != 0 ||
        strcmp(name + n - k, tail) != 0)
        return NULL;
    return xstrndup(name + root, n - k - root);
}

/* Files saved from the base class lack a "model.". */
static struct linear *
find_module(const struct peft *p, const char *module)
{
    struct linear *l = model_linear(p->model, module);
    struct str s = { 0 };

    if (!l) {
        str_addf(&s, "model.%s", module);
        l = model_linear(p->model, s.s);
        str_free(&s);
    }
    return l;
}

static int
bind_pair(const struct peft *p, const char *module,
          const struct stdir_tensor *a, const struct stdir_tensor *b)
{
    struct linear *to = find_module(p, module);
    struct lora part = { 0 };
    int64_t r;

    if (!to)
        return err_set(p->err, EX_DATAERR, "%s: %s is of no linear layer of %s",
                       a->st->path, a->t->name, p->model->dir.path);
    if (sizes_of(p, module, &r, &part.scale) ||
        take_matrix(&part.a, a, (size_t)r, to->cols, p->err) ||
        take_matrix(&part.b, b, to->rows, (size_t)r, p->err))
        return -1;
    return lora_bind(p->model, p->adapter, to, &part, p->err);
}

/* The other tensor of a module's two. */
static const struct stdir_tensor *
find_other(const struct peft *p, const char *module, const char *tail)
{
    const struct stdir_tensor *t;
    struct str s = { 0 };

    str_addf(&s, ROOT "%s%s", module, tail);
    t = stdir_find(&p->adapter->dir, s.s);
    if (!t)
        err_set(p->err, EX_DATAERR, "%s: tensor %s is missing",
                p->adapter->dir.path, s.s);
    str_free(&s);
    return t;
}

static int
bind_tensor(const struct peft *p, const struct stdir_tensor *t)
{
    char *a = module_of(t->t->name, TAIL_A), *b = module_of(t->t->name, TAIL_B);
    const struct stdir_tensor *other = NULL;
    int rc = -1;

    if (a)
        other = find_other(p, a, TAIL_B);
    else if (b)
        other = find_other(p, b, TAIL_A);
    else
        err_set(p->err, EX_DATAERR,
                "%s: %s is not supported (" ROOT "MODULE" TAIL_A ", " TAIL_B
                ")",
                t->st->path, t->t->name);
    if (other)
        rc = a ? bind_pair(p, a, t, other) : 0;
    free(b);
    free(a);
    return rc;
}

static int
bind_all(struct peft *p)
{
    const struct stdir *dir = &p->adapter->dir;

    if (dir->n_tensors == 0)
        return err_set(p->err, EX_DATAERR, "%s: has no tensors", dir->path);
    p->adapter->parts = xcalloc(dir->n_tensors, sizeof(*p->adapter->parts));
    for (size_t i = 0; i < dir->n_tensors; i++)
        if (bind_tensor(p, &dir->tensors[i]))
            return -1;
    return 0;
}

int
lora_peft(struct model *model, struct adapter *adapter, const char *dir,
          struct err *err)
{
    struct peft p = { .model = model, .adapter = adapter, .err = err };
    struct str name = { 0 };
    json_t *config;
    int rc = -1;

    str_addf(&name, "%s/adapter_config.json", dir);
    config = js_load(name.s, err);
    p.config = js_root(config, name.s);
    if (config && !read_config(&p)) {
        struct str file = { 0 };

        str_addf(&file, "%s/adapter_model.safetensors", dir);
        rc = stdir_open(&adapter->dir, file.s, err);
        if (rc == 0)
            rc = stdir_map(&adapter->dir, err);
        if (rc == 0)
            rc = bind_all(&p);
        str_free(&file);
    }
    json_decref(config);
    str_free(&name);
    return rc;
}
