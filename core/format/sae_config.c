/* SPDX-License-Identifier: ISC */
#include "core/format/sae_config.h"

#include <dirent.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/sae_file.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

/* "hadamard" or "outlier" in a name, of either case; or NULL. */
static const char *
names_transform(const char *name)
{
    if (strcasestr(name, "hadamard"))
        return "hadamard";
    return strcasestr(name, "outlier") ? "outlier" : NULL;
}

int
sae_check_directory(const char *dir, struct err *err)
{
    struct dirent **list;
    int rc = file_is_dir(dir, err), n;

    if (rc <= 0)
        return rc;
    n = dir_list(&list, dir, err);
    rc = n < 0 ? -1 : 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (names_transform(list[i]->d_name))
            rc =
                err_set(err, EX_DATAERR,
                        "%s/%s: an SAE of transformed inputs (%s) is not "
                        "supported",
                        dir, list[i]->d_name, names_transform(list[i]->d_name));
    if (n >= 0)
        dir_list_free(list, n);
    return rc;
}

/* Is a switch on: true, a number but 0, a word but "none"? */
static bool
is_on(const json_t *v)
{
    if (json_is_number(v))
        return json_number_value(v) != 0;
    if (json_is_string(v))
        return *json_string_value(v) && strcmp(json_string_value(v), "none") &&
               strcmp(json_string_value(v), "None");
    return v && !json_is_null(v) && !json_is_false(v);
}

/* Keeps the refusal of what only some readers can do. */
static void
set_transform(struct sae *s, const struct err *refusal)
{
    free(s->transform);
    s->transform = xstrdup(refusal->what);
}

/* SAELens's normalize_activations, with the factor of the second. */
static int
read_input(const struct js *root, struct sae *s, struct err *err)
{
    static const char *const words[] = {
        [SAE_INPUT_LAYER] = "layer_norm",
        [SAE_INPUT_NORM] = "constant_norm_rescale",
        [SAE_INPUT_FACTOR] = "expected_average_only_in",
    };
    struct js js = js_get(root, "normalize_activations");
    struct js factor = js_get(root, "norm_scaling_factor");
    struct js metadata = js_get(root, "metadata");

    if (!is_on(js.v))
        return 0;
    for (int i = SAE_INPUT_LAYER; i <= SAE_INPUT_FACTOR; i++)
        if (json_is_string(js.v) && !strcmp(json_string_value(js.v), words[i]))
            s->input = (enum sae_input)i;
    js_bad(&js, "off: it is not supported", err);
    if (s->input == SAE_INPUT_PLAIN)
        return -1;
    set_transform(s, err);
    if (s->input != SAE_INPUT_FACTOR)
        return 0;
    if (js_absent(&factor) && js_is(&metadata, JSON_OBJECT))
        factor = js_get(&metadata, "norm_scaling_factor");
    if (js_absent(&factor))
        return js_bad(&js, "off, as there is no norm_scaling_factor", err);
    if (js_f64(&factor, &s->factor, err) < 0)
        return -1;
    return s->factor > 0 && s->factor <= FLT_MAX
               ? 0
               : js_bad(&factor, "a float over 0", err);
}

/* Keys that are refused where they are on, by any library's name. */
static int
check_switches(const struct js *root, struct sae *s, enum sae_layout layout,
               struct err *err)
{
    static const char *const off[] = {
        "transcode", "skip_connection", "signed",
        "tiled",     "gated",           "normalize_activations",
        "is_gated",  "is_transcoder",   "finetuning_scaling_factor",
        "W_skip",    "use_threshold",   "affine_connection",
    };
    /* what TransformerLens makes of a model before its activations are taken */
    static const char *const processing[] = {
        "fold_ln", "center_writing_weights", "center_unembed",
        "fold_value_biases", "refactor_factored_attn_matrices"
    };
    static const char *const heads[] = { "hook_head_index",
                                         "hook_point_head_index",
                                         "hook_head_index_out" };
    struct js kwargs = js_get(root, "model_from_pretrained_kwargs");
    const char *key;
    json_t *v;

    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        struct js js = js_get(root, off[i]);

        if (is_on(js.v) && !(layout == LAYOUT_SAELENS &&
                             !strcmp(off[i], "normalize_activations")))
            return js_bad(&js, "off: it is not supported", err);
    }
    for (size_t i = 0; i < sizeof(processing) / sizeof(*processing); i++) {
        struct js js = js_get(&kwargs, processing[i]);

        if (!is_on(js.v))
            continue;
        js_bad(&js, "off: the model's weights are used as they are", err);
        if (strcmp(processing[i], "center_writing_weights") != 0)
            return -1;
        s->mean_off = true;
        set_transform(s, err);
    }
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct js js = js_get(root, heads[i]);

        if (!js_absent(&js))
            return js_bad(&js, "null: one head is not supported", err);
    }
    json_object_foreach((json_t *)(uintptr_t)root->v, key, v)
    {
        struct js js = js_get(root, key);

        if (names_transform(key) && is_on(v))
            return js_bad(&js, "off: it is not supported", err);
        if (!strcmp(key, "num_tiles") && json_number_value(v) > 1)
            return js_bad(&js, "1: tiles are not supported", err);
    }
    return 0;
}

/* Sizes, which the tensors have, too, and where the output is. */
static int
check_sizes(const struct js *root, const struct sae *s, struct err *err)
{
    static const struct {
        const char *key;
        bool of_latents;
    } sizes[] = {
        { "d_in", false },       { "activation_dim", false },
        { "d_model", false },    { "d_out", false },
        { "d_sae", true },       { "dict_size", true },
        { "num_latents", true }, { "width", true },
    };
    static const char *const hooks[][2] = {
        { "hook_name", "hook_name_out" },
        { "hf_hook_point_in", "hf_hook_point_out" },
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && s->n; i++) {
        struct js js = js_get(root, sizes[i].key);
        size_t n = sizes[i].of_latents ? s->n : s->in;
        double v = json_number_value(js.v);
        char expected[96];

        /* sparsify's 0 latents are expansion_factor times d_in */
        if (js_absent(&js) || v == (double)n ||
            (v == 0 && js_is(&js, JSON_INTEGER) &&
             !strcmp(sizes[i].key, "num_latents")))
            continue;
        snprintf(expected, sizeof(expected), "%zu, as the tensors have%s", n,
                 strcmp(sizes[i].key, "d_out")
                     ? ""
                     : ": transcoders are not supported");
        return js_bad(&js, expected, err);
    }
    for (size_t i = 0; i < 2; i++) {
        struct js in = js_get(root, hooks[i][0]);
        struct js out = js_get(root, hooks[i][1]);

        if (!js_absent(&out) &&
            !json_equal((json_t *)(uintptr_t)in.v, (json_t *)(uintptr_t)out.v))
            return js_bad(&out,
                          "where the inputs are: transcoders are not "
                          "supported",
                          err);
    }
    return 0;
}

/* A word that must be one of 'known', as "topk|relu", if it is there. */
static int
check_word(const struct js *root, const char *key, const char *known,
           struct err *err)
{
    struct js js = js_get(root, key);
    struct str expected = { 0 };
    const char *s;
    size_t n;

    if (js_absent(&js))
        return 0;
    if (js_str(&js, &s, NULL, err) < 0)
        return -1;
    for (const char *at = known; *at; at += n + (at[n] == '|')) {
        n = strcspn(at, "|");
        if (strlen(s) == n && !strncasecmp(s, at, n)) {
            str_free(&expected);
            return 0;
        }
        str_addf(&expected, "%s\"%.*s\"",
                 at == known       ? ""
                 : strchr(at, '|') ? ", "
                                   : " or ",
                 (int)n, at);
    }
    js_bad(&js, expected.s, err);
    str_free(&expected);
    return -1;
}

static int
read_k(const struct js *root, const char *key, struct sae *s, struct err *err)
{
    struct js js = js_get(root, key);
    int64_t k;

    if (js_absent(&js))
        return 0;
    if (js_i64(&js, 1, SAE_MAX_K, &k, err) < 0)
        return -1;
    if (s->k && s->k != (size_t)k) {
        char expected[64];

        snprintf(expected, sizeof(expected), "%zu, as it says before", s->k);
        return js_bad(&js, expected, err);
    }
    s->k = (size_t)k;
    return 0;
}

/* Is a member this word, as check_word() compares? */
static bool
is_word(const struct js *root, const char *key, const char *word)
{
    const json_t *v = js_get(root, key).v;

    return json_is_string(v) && !strcasecmp(json_string_value(v), word);
}

static int
read_hook(const struct js *root, const char *key, struct sae *s,
          struct err *err)
{
    struct js js = js_get(root, key);
    const char *hook;

    if (js_absent(&js))
        return 0;
    if (js_str(&js, &hook, NULL, err) < 0)
        return -1;
    if (s->hook && strcmp(s->hook, hook) != 0) {
        struct str expected = { 0 };

        js_put_str(&expected, s->hook, strlen(s->hook));
        str_adds(&expected, ", as it says before");
        js_bad(&js, expected.s, err);
        str_free(&expected);
        return -1;
    }
    free(s->hook);
    s->hook = xstrdup(hook);
    return 0;
}

/* What was read must be the same wherever it is said, by whatever name. */
static int
check_again(const struct js *part, struct sae *s, struct err *err)
{
    static const char *const hooks[] = { "hook", "hook_name", "hook_point" };

    for (size_t i = 0; i < 3 && s->hook; i++)
        if (read_hook(part, hooks[i], s, err) < 0)
            return -1;
    return s->k ? read_k(part, "k", s, err) : 0;
}

/* 'hook', 'threshold' and "batchtopk" are sae_write()'s. */
static int
sparsify(const struct js *root, struct sae *s, struct err *err)
{
    struct js threshold = js_get(root, "threshold");

    s->centered = true;
    if (check_word(root, "activation", "topk|batchtopk", err) < 0 ||
        read_hook(root, "hook", s, err) < 0)
        return -1;
    s->batchtopk = is_word(root, "activation", "batchtopk");
    if (!js_absent(&threshold)) {
        if (!s->batchtopk)
            return js_bad(&threshold, "none, as activation is \"topk\"", err);
        if (js_f64(&threshold, &s->threshold, err) < 0)
            return -1;
        if (!(s->threshold >= 0 && s->threshold <= FLT_MAX))
            return js_bad(&threshold, "a float from 0 on", err);
    }
    return read_k(root, "k", s, err);
}

static int
six(const struct js *root, struct sae *s, struct err *err)
{
    struct js centering = js_get(root, "input_centering");

    if (check_word(root, "activation", "topk|threshold", err) < 0)
        return -1;
    s->uses_threshold = is_word(root, "activation", "threshold");
    s->unsure = js_absent(&centering);
    if (js_bool_or(root, "input_centering", false, &s->centered, err) < 0 ||
        read_k(root, "k", s, err) < 0)
        return -1;
    return read_k(root, "k_active", s, err);
}

/* dictionary_learning's classes whose tensors have SAELens's names. */
static int
dictionary_columns(const struct js *trainer, struct sae *s, struct err *err)
{
    struct js class = js_get(trainer, "dict_class");

    if (js_absent(&class))
        return js_bad(&class, "a class", err);
    if (check_word(trainer, "dict_class",
                   "JumpReluAutoEncoder|MatryoshkaBatchTopKSAE", err) < 0)
        return -1;
    s->uses_threshold = true;
    s->batchtopk = is_word(trainer, "dict_class", "MatryoshkaBatchTopKSAE");
    s->centered = s->batchtopk;
    return read_k(trainer, "k", s, err);
}

static int
saelens(const struct js *root, struct sae *s, struct err *err)
{
    struct js args = js_get(root, "activation_fn_kwargs");
    struct js metadata = js_get(root, "metadata");
    struct js trainer = js_get(root, "trainer");

    if ((!js_absent(&trainer) || js_get(root, "dict_class").v))
        return dictionary_columns(js_absent(&trainer) ? root : &trainer, s,
                                  err);
    if (check_word(root, "architecture", "topk|standard|jumprelu", err) < 0 ||
        check_word(root, "activation_fn", "topk|relu", err) < 0 ||
        check_word(root, "activation_fn_str", "topk|relu", err) < 0 ||
        check_word(root, "reshape_activations", "none|hook_z", err) < 0 ||
        js_bool_or(root, "apply_b_dec_to_input", true, &s->centered, err) < 0 ||
        js_bool_or(root, "rescale_acts_by_decoder_norm", false, &s->scaled,
                   err) < 0 ||
        read_k(root, "k", s, err) < 0 ||
        read_hook(root, "hook_name", s, err) < 0 ||
        read_hook(root, "hook_point", s, err) < 0 ||
        (js_is(&metadata, JSON_OBJECT) &&
         (read_hook(&metadata, "hook_name", s, err) < 0 ||
          read_hook(&metadata, "hook_point", s, err) < 0)))
        return -1;
    if (js_bool_or(root, "prepend_bos", false, &s->prepend_bos, err) < 0 ||
        (js_is(&metadata, JSON_OBJECT) &&
         js_bool_or(&metadata, "prepend_bos", s->prepend_bos, &s->prepend_bos,
                    err) < 0))
        return -1;
    s->uses_threshold = is_word(root, "architecture", "jumprelu");
    if (s->uses_threshold && s->scaled) {
        struct js js = js_get(root, "rescale_acts_by_decoder_norm");

        return js_bad(&js, "off, as architecture is \"jumprelu\"", err);
    }
    if (js_is(&args, JSON_OBJECT) && read_k(&args, "k", s, err) < 0)
        return -1;
    if (!is_word(root, "architecture", "topk") &&
        !is_word(root, "activation_fn", "topk") &&
        !is_word(root, "activation_fn_str", "topk"))
        s->activation = SAE_RELU;
    return 0;
}

static int
dictionary(const struct js *root, struct sae *s, struct err *err)
{
    struct js trainer = js_get(root, "trainer");
    const struct js *js = js_absent(&trainer) ? root : &trainer;
    struct js class = js_get(js, "dict_class");
    const char *name = json_string_value(class.v);

    s->centered = true;
    if (check_word(js, "dict_class", "AutoEncoderTopK|BatchTopKSAE|AutoEncoder",
                   err) < 0)
        return -1;
    if (is_word(js, "dict_class", "AutoEncoder"))
        s->activation = SAE_RELU;
    s->ignores_threshold = name && !strcmp(name, "AutoEncoderTopK");
    s->batchtopk = is_word(js, "dict_class", "BatchTopKSAE");
    s->uses_threshold = s->batchtopk;
    return read_k(js, "k", s, err);
}

/* saev's first line.  Its encoder took x - b_dec before schema 3 and, with
 * schema 2 still, x. */
static int
saev(const struct js *root, struct sae *s, struct err *err)
{
    struct js schema = js_get(root, "schema"), cfg = js_get(root, "cfg");
    struct js activation = js_get(&cfg, "activation");
    struct js class = js_get(&activation, "cls");
    struct js params = js_get(&activation, "params");
    int64_t version = 0;

    if (!js_is(&schema, JSON_INTEGER) ||
        js_i64(&schema, 0, INT64_MAX, &version, err) < 0 || version < 3 ||
        version > 5)
        return js_bad(&schema,
                      "3 to 5: earlier ones do not say whether x or x - b_dec "
                      "is encoded",
                      err);
    if (js_absent(&class))
        return js_bad(&class, "a class", err);
    if (check_word(&activation, "cls", "TopK|BatchTopK|Relu", err) < 0)
        return -1;
    s->centered = false;
    s->batchtopk = is_word(&activation, "cls", "BatchTopK");
    s->uses_threshold = s->batchtopk;
    if (is_word(&activation, "cls", "Relu"))
        s->activation = SAE_RELU;
    return read_k(&params, "top_k", s, err);
}

/* Gemma Scope 2's places are modules and which side of them is meant, as
 * "model.layers.3.output". */
static int
gemma_2(const struct js *root, struct sae *s, struct err *err)
{
    const char *word;
    char *dot;

    if (check_word(root, "architecture", "jump_relu|jumprelu", err) < 0 ||
        check_word(root, "type", "sae", err) < 0 ||
        read_hook(root, "hf_hook_point_in", s, err) < 0)
        return -1;
    dot = s->hook ? strrchr(s->hook, '.') : NULL;
    if (!dot)
        return 0;
    *dot = '\0';
    word = strrchr(s->hook, '.');
    word = word ? word + 1 : s->hook;
    /* linear layers stand for their inputs, others for their outputs */
    if (strcmp(dot + 1, strstr(word, "_proj") ? "input" : "output") != 0 ||
        (!strstr(word, "_proj") && strspn(word, "0123456789") != strlen(word) &&
         strcmp(word, "mlp") != 0 && strcmp(word, "self_attn") != 0))
        *dot = '.';
    return 0;
}

/* Qwen Scope's files, layerN.sae.pt, are of the residual stream after layer N,
 * and have no configuration: people write one. */
static int
qwen(const struct js *root, struct sae *s, struct err *err)
{
    return read_hook(root, "hook", s, err) < 0 ? -1 : read_k(root, "k", s, err);
}

/* k, input_centering and activation of a layer's entry, or of all layers. */
static json_t *
of_entry(const json_t *entry, const json_t *all)
{
    const json_t *encoder = json_object_get(entry, "encoder");
    json_t *k = json_object_get(entry, "k_active"), *v = json_object();

    json_object_set(v, "k", k ? k : json_object_get(all, "k_active"));
    json_object_set(v, "input_centering",
                    json_object_get(encoder, "input_centering"));
    json_object_set(v, "activation", json_object_get(entry, "activation"));
    return v;
}

/*
 * A checkpoint's configuration, and its path for messages: 1, 0 if there is
 * none, or -1.  A table's own metadata say what it is, else the metadata.json
 * next to it does, where the Python exporter's tables are all centred.  saev's
 * is the first line of the file, Gemma Scope's SAEs are all alike.
 */
static int
load_config(json_t **v, struct str *path, const struct sae *sae,
            enum sae_layout layout, const char *dir, struct err *err)
{
    static const char *const names[] = { "cfg.json", "config.json",
                                         "metadata.json" };
    const char *slash = strrchr(sae->path, '/');
    const char *file = slash ? slash + 1 : sae->path, *key;
    const struct sae_file *f = sae->file;
    const struct st_meta *m =
        layout == LAYOUT_SIX && f->container == SAE_SAFETENSORS
            ? st_meta_find(&f->st, "lut")
            : NULL;
    json_t *doc, *info, *e;
    size_t i = 0;

    *v = NULL;
    if (f->container == SAE_NPZ)
        return 0;
    if (layout == LAYOUT_SAEV) {
        str_adds(path, sae->path);
        *v = js_parse(f->head, f->head_n, path->s, err);
        return *v ? 1 : -1;
    }
    if (m) {
        str_addf(path, "%s: __metadata__ lut", sae->path);
        doc = js_parse(m->value, m->value_n, path->s, err);
        if (doc)
            *v = of_entry(json_object_get(doc, "entry"), NULL);
        json_decref(doc);
        return *v ? 1 : -1;
    }
    for (; i < 3; i++) {
        str_clear(path);
        str_addf(path, "%s/%s", dir, names[i]);
        if (!file_missing(path->s))
            break;
    }
    if (i == 3 || (i == 2 && layout != LAYOUT_SIX))
        return 0;
    doc = js_load(path->s, err);
    if (!doc)
        return -1;
    if (i < 2) {
        *v = doc;
        return 1;
    }
    info = json_object_get(doc, "creation_info");
    json_object_foreach(json_object_get(doc, "layers"), key, e)
    {
        const char *name = json_string_value(json_object_get(e, "file"));

        if (*v || !name || strcmp(name, file) != 0)
            continue;
        *v = of_entry(e, json_object_get(doc, "sae_config"));
        if (!json_object_get(*v, "input_centering") &&
            json_object_get(info, "script_version"))
            json_object_set_new(*v, "input_centering", json_true());
    }
    json_decref(doc);
    return *v != NULL;
}

/* As many inputs as latents: which way W_enc is stored shows in what only
 * SAELens and dictionary_learning say, or in what people write. */
static int
square_layout(const struct sae *s, const struct js *root,
              enum sae_layout *layout, struct err *err)
{
    static const char *const said[] = { "architecture", "d_sae", "dict_class",
                                        "trainer" };

    if (is_word(root, "library", "qwen-scope")) {
        *layout = LAYOUT_QWEN;
        return 0;
    }
    if (is_word(root, "library", "saelens"))
        return 0;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        if (json_object_get(root->v, said[i]))
            return 0;
    return err_data(err, s->path,
                    "W_enc is [%zu, %zu], and nothing says whether its rows "
                    "are latents (cfg.json: \"library\": \"qwen-scope\", or "
                    "\"saelens\" if columns are)",
                    s->n, s->in);
}

char *
sae_qwen_hook(const char *file)
{
    size_t n = strncmp(file, "layer", 5) ? 0 : strspn(file + 5, "0123456789");
    struct str hook = { 0 };

    if (n && !strcmp(file + 5 + n, ".sae.pt"))
        str_addf(&hook, "layers.%.*s", (int)n, file + 5);
    return hook.s;
}

int
sae_read_config(struct sae *sae, enum sae_layout *layout, struct err *err)
{
    static int (*const libraries[])(const struct js *root, struct sae *s,
                                    struct err *err) = {
        [LAYOUT_SPARSIFY] = sparsify, [LAYOUT_SIX] = six,
        [LAYOUT_SAELENS] = saelens,   [LAYOUT_DICTIONARY] = dictionary,
        [LAYOUT_SAEV] = saev,         [LAYOUT_GEMMA_2] = gemma_2,
        [LAYOUT_QWEN] = qwen,
    };
    static const char *const parts[] = { "trainer", "cfg", "metadata",
                                         "activation_fn_kwargs" };
    const char *slash = strrchr(sae->path, '/');
    size_t n = slash ? (size_t)(slash - sae->path) : 0;
    char *dir = slash ? xstrndup(sae->path, n ? n : 1) : xstrdup(".");
    struct str path = { 0 };
    struct js root;
    json_t *v = NULL;
    int rc = sae_check_directory(dir, err);

    if (rc == 0)
        rc = load_config(&v, &path, sae, *layout, dir, err);
    root = js_root(v, path.s);
    if (rc > 0 && !js_is(&root, JSON_OBJECT))
        rc = js_bad(&root, "an object", err);
    if (rc >= 0 && *layout == LAYOUT_SAELENS && sae->n && sae->n == sae->in &&
        square_layout(sae, &root, layout, err) < 0)
        rc = -1;
    sae->unsure = *layout == LAYOUT_SIX;
    sae->uses_threshold = *layout == LAYOUT_GEMMA || *layout == LAYOUT_GEMMA_2;
    sae->centered =
        !sae->unsure && !sae->uses_threshold && *layout != LAYOUT_QWEN;
    if (rc > 0) {
        struct js scaled = js_get(&root, "rescale_acts_by_decoder_norm");

        rc = check_switches(&root, sae, *layout, err) < 0 ||
                     check_sizes(&root, sae, err) < 0
                 ? -1
                 : 0;
        if (rc == 0 && *layout == LAYOUT_SAELENS)
            rc = read_input(&root, sae, err);
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && rc == 0; i++) {
            struct js part = js_get(&root, parts[i]);

            if (js_is(&part, JSON_OBJECT) &&
                (check_switches(&part, sae, LAYOUT_SPARSIFY, err) < 0 ||
                 check_sizes(&part, sae, err) < 0))
                rc = -1;
        }
        if (rc == 0 && *layout != LAYOUT_SAELENS && is_on(scaled.v))
            rc = js_bad(&scaled, "off: it is not supported", err);
        if (rc == 0)
            rc = libraries[*layout](&root, sae, err);
        if (rc == 0)
            rc = check_again(&root, sae, err);
        if (rc == 0)
            rc = sae_without_read(&sae->without, &root, err);
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) && rc == 0; i++) {
            struct js part = js_get(&root, parts[i]);

            if (js_is(&part, JSON_OBJECT))
                rc = check_again(&part, sae, err);
        }
    }
    if (rc == 0 && *layout == LAYOUT_QWEN && !sae->hook)
        sae->hook = sae_qwen_hook(slash ? slash + 1 : sae->path);
    json_decref(v);
    str_free(&path);
    free(dir);
    return rc;
}
