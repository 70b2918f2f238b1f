/* SPDX-License-Identifier: ISC */
/* quantization_config: what it says, and which modules it is about. */
#include "core/model/form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/js.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/config_impl.h"
#include "core/model/form_impl.h"
#include "core/model/names.h"
#include "core/regex.h"

#define MAX_GROUPS 64
#define MAX_BLOCK  (1 << 20)

/* ---- keys ---- */

/* Whose key it is: a method's, or of a part of that of compressed-tensors. */
enum {
    FP8 = 1,
    AWQ = 2,
    GPTQ = 4,
    MXFP4 = 8,
    PACKED = 16,
    GROUP = 32,
    WEIGHTS = 64,
    ANY = 127
};

/* Keys that a reader of weights can pass over, or that are read below; or one
 * that may be absent, or have one of these values. */
static const struct {
    unsigned of;
    const char *keys, *values;
} known_keys[] = {
    /* about how it was made, or is run elsewhere */
    { ANY,
      "quant_method, version, global_compression_ratio, damp_percent, "
      "damp_auto_increment, static_groups, true_sequential, meta, tokenizer, "
      "model_name_or_path, model_file_base_name, dataset, batch_size, "
      "cache_block_outputs, modules_in_block_to_quantize, pad_token_id, "
      "module_name_preceding_first_block, block_name_to_quantize, mse, "
      "use_exllama, disable_exllama, exllama_config, use_cuda_fp16, backend, "
      "max_input_length, model_seqlen, quantizer, hyb_act, act_group_aware, "
      "do_fuse, fuse_max_seq_len, modules_to_fuse, provider, packing_format, "
      "nsamples, seqlen, lm_head, dequantize, run_compressed, _group_index, "
      "ignore, ignored_layers, modules_to_not_convert",
      NULL },
    { FP8, "weight_block_size, activation_scheme, scale_fmt", NULL },
    { AWQ | GPTQ, "bits, group_size, sym, checkpoint_format, format", NULL },
    { GPTQ, "desc_act, dynamic", NULL },
    { PACKED, "format, config_groups, kv_cache_scheme, sparsity_config", NULL },
    { PACKED, "transform_config", NULL },
    { GROUP, "format, targets, weights, input_activations", NULL },
    { GROUP, "output_activations", NULL },
    { WEIGHTS, "num_bits, type, symmetric, strategy, block_structure", NULL },
    { WEIGHTS, "group_size, actorder, observer, observer_kwargs", NULL },
    { WEIGHTS, "scale_dtype, zp_dtype", NULL },
    { FP8, "fmt", "e4m3, float8_e4m3fn" },
    { AWQ, "version", "gemm" },
    { AWQ, "zero_point", "true" },
    { GPTQ, "is_marlin_format", "false" },
    { AWQ | GPTQ, "pack_dtype", "int32" },
    { PACKED, "quantization_status", "compressed" },
    { WEIGHTS, "dynamic", "false" },
};
#define N(table) (sizeof(table) / sizeof(*(table)))

/* Which of "one, two, .." a word is, 1 or more; 0: none. */
static size_t
which(const char *words, const char *word,
      int (*cmp)(const char *a, const char *b, size_t n))
{
    for (size_t i = 1, n; *words; i++) {
        n = strcspn(words, ",");
        if (!cmp(words, word, n) && !word[n])
            return i;
        words += words[n] ? n + 2 : n;
    }
    return 0;
}

/* Which of these texts, as which() has it; 0: it is absent. */
static int
one_of(const struct js *o, const char *key, const char *texts, size_t *index,
       struct err *err)
{
    struct js js = js_get(o, key);
    const char *s;
    size_t n;

    *index = 0;
    if (js_absent(&js))
        return 0;
    if (js_str(&js, &s, &n, err))
        return -1;
    *index = which(texts, s, strncasecmp);
    return *index ? 0 : js_unsupported(&js, s, texts, err);
}

/* A flag that may have one value alone. */
static int
only(const struct js *o, const char *key, bool value, struct err *err)
{
    struct js js = js_get(o, key);
    bool v;

    if (js_bool_or(o, key, value, &v, err))
        return -1;
    return v == value ? 0 : js_bad(&js, value ? "true" : "false", err);
}

/* The keys of an object, all of which must be known. */
static int
check_keys(const struct js *o, unsigned of, struct err *err)
{
    static const char *const none[] = { NULL };
    void *at = NULL;
    const char *key;
    size_t i, index;

    for (i = 0; i < N(known_keys); i++) {
        const char *name = known_keys[i].keys, *is = known_keys[i].values;
        bool yes = is && !strcmp(is, "true");

        if (is && known_keys[i].of & of &&
            (yes || !strcmp(is, "false") ? only(o, name, yes, err)
                                         : one_of(o, name, is, &index, err)))
            return -1;
    }
    while ((key = js_unknown(o, none, &at))) {
        for (i = 0; i < N(known_keys); i++)
            if (known_keys[i].of & of &&
                which(known_keys[i].keys, key, strncmp))
                break;
        if (i == N(known_keys))
            return err_data(err, o->file,
                            "%s.%s is not known, and may change weights",
                            o->path, key);
    }
    return 0;
}

/* [rows, columns], or nothing. */
static int
read_block(struct quantized_group *g, const struct js *o, const char *key,
           struct err *err)
{
    struct js js = js_get(o, key);
    int64_t n[2];

    if (js_absent(&js))
        return 0;
    if (!js_is(&js, JSON_ARRAY) || json_array_size(js.v) != 2)
        return js_bad(&js, "[rows, columns]", err);
    for (size_t i = 0; i < 2; i++) {
        struct js size = js_at(&js, i);

        if (js_i64(&size, 1, MAX_BLOCK, &n[i], err))
            return -1;
    }
    g->scale_of = SCALE_BLOCK;
    g->rows = (size_t)n[0];
    g->cols = (size_t)n[1];
    return 0;
}

/* A group's columns; -1 is a whole row, 0 and absent none of a group. */
static int
read_group_size(struct quantized_group *g, const struct js *o, bool needed,
                struct err *err)
{
    struct js js = js_get(o, "group_size");
    int64_t n = 0;

    if (js_absent(&js) && !needed)
        return 0;
    if (js_i64(&js, -1, MAX_BLOCK, &n, err))
        return -1;
    if (n == 0)
        return js_bad(&js, "a number from 1, or -1", err);
    g->scale_of = n < 0 ? SCALE_CHANNEL : SCALE_GROUP;
    g->rows = 1;
    g->cols = n < 0 ? 0 : (size_t)n;
    return 0;
}

static void
name_type(struct quantized_group *g)
{
    int n = snprintf(g->type, sizeof(g->type), "%s%u",
                     g->is_float ? "fp" : "int", g->bits);
    char *end = g->type + n;
    size_t room = sizeof(g->type) - (size_t)n;

    if (g->is_float && g->bits == 4)
        snprintf(g->type, sizeof(g->type), "mxfp4");
    else if (g->scale_of == SCALE_GROUP)
        snprintf(end, room, " g%zu", g->cols);
    else if (g->scale_of == SCALE_BLOCK)
        snprintf(end, room, " %zux%zu", g->rows, g->cols);
}

/* ---- names ---- */

/* A name as it is, or if 'pattern' of all that it matches, as Python's
 * re.match() does. */
static int
add_name(struct quantized_name **names, size_t *n, const struct js *js,
         const char *s, const char *pattern, struct err *err)
{
    struct quantized_name name = { 0 };
    struct str text = { 0 }, where = { 0 };
    int rc = 0;

    if (pattern) {
        str_addf(&text, "\\A(?:%s)", pattern);
        str_addf(&where, "%s: %s", js->file, js->path);
        rc = regex_compile(&name.re, text.s, text.n, REGEX_UNICODE, where.s,
                           err);
        str_free(&where);
        str_free(&text);
    }
    if (rc < 0)
        return -1;
    name.name = xstrdup(s);
    *names = xrealloc(*names, *n + 1, sizeof(**names));
    (*names)[(*n)++] = name;
    return 0;
}

static int
read_names(struct quantized_name **names, size_t *n, const struct js *o,
           const char *key, struct err *err)
{
    struct js list = js_get(o, key);
    const char *s;

    if (js_absent(&list))
        return 0;
    if (!js_is(&list, JSON_ARRAY))
        return js_bad(&list, "an array", err);
    for (size_t i = 0; i < json_array_size(list.v); i++) {
        struct js js = js_at(&list, i);

        if (js_str(&js, &s, NULL, err) ||
            add_name(names, n, &js, s, strncmp(s, "re:", 3) ? NULL : s + 3,
                     err))
            return -1;
    }
    return 0;
}

static int
finds(const struct quantized_name *by, const char *module, struct err *err)
{
    struct regex_work work = { .nbytes = strlen(module) };
    size_t a, b;
    int rc = regex_find(by->re, &work, module, strlen(module), 0, &a, &b, err);

    regex_work_free(&work);
    return rc;
}

/* Whole words between dots of a name, "self_attn" or "layers.3.mlp"?  Loaders
 * differ in what more they accept. */
static bool
is_part(const char *part, const char *module)
{
    size_t n = strlen(part);

    while (n && (part[n - 1] == '.' || part[n - 1] == '*'))
        n--;
    for (const char *s = module; n && s; s = strchr(s, '.')) {
        s += s != module; /* a dot */
        if (!strncmp(s, part, n) && (!s[n] || s[n] == '.'))
            return true;
    }
    return false;
}

/* How a name of quantization_config may match a module. */
enum match { MATCH_NAME, MATCH_PATTERN, MATCH_CLASS, N_MATCHES };

static int
matches(const struct quantized_name *by, enum match how, const char *module,
        struct err *err)
{
    const char *word = strrchr(module, '.');
    bool embeds;

    word = word ? word + 1 : module;
    embeds = strstr(word, "embed") || !strcmp(word, "wte");
    if (how == MATCH_PATTERN)
        return by->re ? finds(by, module, err) : 0;
    if (by->re)
        return 0;
    return how == MATCH_NAME
               ? !strcmp(names_short(by->name), names_short(module))
               : !strcmp(by->name, embeds ? "Embedding" : "Linear");
}

int
quantization_group(const struct quantized_group **group,
                   const struct quantization *q, const char *module,
                   struct err *err)
{
    int rc = 0;

    *group = NULL;
    /* as compressed-tensors ranks them */
    for (enum match how = 0; how < N_MATCHES && rc == 0; how++)
        for (size_t i = 0; i < q->n_groups && rc == 0; i++) {
            const struct quantized_group *g = &q->groups[i];

            if (!g->n_targets)
                rc = 1;
            for (size_t k = 0; k < g->n_targets && rc == 0; k++)
                rc = matches(&g->targets[k], how, module, err);
            if (rc > 0)
                *group = g;
        }
    return rc;
}

int
quantization_ignores(const struct quantization *q, const char *module,
                     struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < q->n_ignored && rc == 0; i++) {
        const struct quantized_name *by = &q->ignored[i];

        for (enum match how = 0; how < N_MATCHES && rc == 0; how++)
            rc = matches(by, how, module, err);
        if (rc == 0 && !q->names_are_exact)
            rc = is_part(by->name, module);
    }
    return rc;
}

/* ---- methods ---- */

static struct quantized_group *
new_group(struct quantization *q, struct quantized_group group)
{
    q->groups = xrealloc(q->groups, q->n_groups + 1, sizeof(*q->groups));
    q->groups[q->n_groups] = group;
    return &q->groups[q->n_groups++];
}

/* The form of a format of compressed-tensors. */
static int
read_format(const struct weight_form **form, const struct js *o,
            const struct js *group, struct err *err)
{
    static const char method[] = "compressed-tensors";
    struct js js = js_get(group, "format");
    struct str known = { 0 };
    const char *s;

    if (js_absent(&js))
        js = js_get(o, "format");
    if (js_str(&js, &s, NULL, err))
        return -1;
    *form = form_row(method, s);
    if (*form)
        return 0;
    form_list(&known, method);
    js_unsupported(&js, s, known.s, err);
    str_free(&known);
    return -1;
}

/* What a form can hold. */
static int
check_numbers(const struct quantized_group *g, const struct js *weights,
              struct err *err)
{
    struct js type = js_get(weights, "type");
    struct js bits = js_get(weights, "num_bits");
    enum form_layout layout = g->form->layout;

    if (layout == LAYOUT_MXFP4 && !g->is_float)
        return js_bad(&type, "\"float\"", err);
    if (layout == LAYOUT_WORDS && g->is_float)
        return js_bad(&type, "\"int\"", err);
    if (layout == LAYOUT_BYTES && g->is_float && g->bits != 8)
        return js_bad(&bits, "8", err);
    if (layout == LAYOUT_MXFP4 && g->bits != 4)
        return js_bad(&bits, "4", err);
    return g->is_float ? only(weights, "symmetric", true, err) : 0;
}

static int
read_weights(struct quantized_group *g, const struct js *weights,
             struct err *err)
{
    struct js js = js_get(weights, "num_bits");
    struct js order = js_get(weights, "actorder");
    int64_t bits = 8;
    size_t type, strategy, which_order = 0;

    if (!js_is(weights, JSON_OBJECT))
        return js_bad(weights, "an object", err);
    if (check_keys(weights, WEIGHTS, err) ||
        (!js_absent(&js) && js_i64(&js, 1, 8, &bits, err)) ||
        one_of(weights, "type", "int, float", &type, err) ||
        js_bool_or(weights, "symmetric", true, &g->symmetric, err) ||
        one_of(weights, "strategy", "tensor, channel, group, block", &strategy,
               err) ||
        (!js_is(&order, JSON_TRUE) && !js_is(&order, JSON_FALSE) &&
         one_of(weights, "actorder", "weight, static, group, dynamic",
                &which_order, err)))
        return -1;
    g->bits = (unsigned)bits;
    g->is_float = type == 2;
    g->by_index = which_order > 2 || js_is(&order, JSON_TRUE);
    js = js_get(weights, "block_structure");
    if (strategy == 4 && js_absent(&js))
        return js_bad(&js, "[rows, columns]", err);
    if ((strategy == 4 && read_block(g, weights, "block_structure", err)) ||
        (strategy % 3 == 0 && read_group_size(g, weights, strategy == 3, err)))
        return -1;
    if (strategy == 1 || strategy == 2)
        g->scale_of = strategy == 1 ? SCALE_TENSOR : SCALE_CHANNEL;
    js = js_get(weights, "group_size");
    if (g->form->layout == LAYOUT_MXFP4 &&
        (g->scale_of != SCALE_GROUP || g->cols != 32))
        return js_bad(&js, "32", err);
    return check_numbers(g, weights, err);
}

static int
read_config_group(struct quantization *q, const struct js *o,
                  const struct js *js, struct err *err)
{
    static const char *const unused[] = { "input_activations",
                                          "output_activations" };
    struct js weights = js_get(js, "weights");
    struct quantized_group *g;

    if (!js_is(js, JSON_OBJECT))
        return js_bad(js, "an object", err);
    if (js_absent(&weights)) /* a group of caches or activations */
        return 0;
    g = new_group(q, (struct quantized_group){ .symmetric = true });
    if (check_keys(js, GROUP, err) || read_format(&g->form, o, js, err) ||
        read_names(&g->targets, &g->n_targets, js, "targets", err) ||
        read_weights(g, &weights, err))
        return -1;
    for (size_t i = 0; i < 2; i++) {
        struct js of = js_get(js, unused[i]);

        if (!js_absent(&of))
            q->unused = unused[i];
    }
    return 0;
}

static int
read_compressed(struct quantization *q, const struct js *o, struct err *err)
{
    struct js groups = js_get(o, "config_groups");
    struct js sparsity = js_get(o, "sparsity_config");
    struct js transform = js_get(o, "transform_config");
    struct js transforms = js_get(&transform, "config_groups");
    struct js kv = js_get(o, "kv_cache_scheme");
    size_t index;
    void *at;

    if (!js_is(&groups, JSON_OBJECT))
        return js_bad(&groups, "an object", err);
    if (one_of(&sparsity, "format", "dense", &index, err))
        return -1;
    if (js_is(&transforms, JSON_OBJECT) && json_object_size(transforms.v))
        return js_bad(&transforms, "an empty object", err);
    if (json_object_size(groups.v) > MAX_GROUPS)
        return js_bad(&groups, "at most 64", err);
    for (at = json_object_iter((json_t *)(uintptr_t)groups.v); at;
         at = json_object_iter_next((json_t *)(uintptr_t)groups.v, at)) {
        struct js js = js_get(&groups, json_object_iter_key(at));

        if (read_config_group(q, o, &js, err))
            return -1;
    }
    if (!js_absent(&kv))
        q->unused = "kv_cache_scheme";
    q->names_are_exact = true;
    return 0;
}

static int
read_fp8(struct quantization *q, const struct js *o, struct err *err)
{
    q->unused = "activation_scheme";
    return read_block(q->groups, o, "weight_block_size", err);
}

static int
read_awq(struct quantization *q, const struct js *o, struct err *err)
{
    struct js bits = js_get(o, "bits");
    int64_t n;
    size_t index;

    return js_i64(&bits, 4, 4, &n, err) ||
                   one_of(o, "format", "gemm", &index, err) ||
                   one_of(o, "checkpoint_format", "gemm", &index, err) ||
                   read_group_size(q->groups, o, true, err)
               ? -1
               : 0;
}

static int
read_gptq(struct quantization *q, const struct js *o, struct err *err)
{
    struct quantized_group *g = q->groups;
    struct js js = js_get(o, "bits");
    struct js dynamic = js_get(o, "dynamic");
    size_t format, other;
    int64_t bits;

    if (js_i64(&js, 2, 8, &bits, err))
        return -1;
    if (bits > 4 && bits < 8)
        return js_bad(&js, "2, 3, 4 or 8", err);
    if (!js_absent(&dynamic) && !js_is(&dynamic, JSON_OBJECT) &&
        !js_is(&dynamic, JSON_FALSE))
        return js_bad(&dynamic, "an object", err);
    for (void *at = json_object_iter((json_t *)(uintptr_t)dynamic.v); at;
         at = json_object_iter_next((json_t *)(uintptr_t)dynamic.v, at)) {
        const char *s = json_object_iter_key(at);

        if (strncmp(s, "-:", 2) != 0)
            return js_unsupported(&dynamic, s, "-: and what is not packed",
                                  err);
        if (add_name(&q->ignored, &q->n_ignored, &dynamic, s, s + 2, err))
            return -1;
    }
    if (one_of(o, "checkpoint_format", "gptq, gptq_v2", &format, err) ||
        one_of(o, "format", "gptq, gptq_v2", &other, err) ||
        js_bool_or(o, "desc_act", false, &g->by_index, err) ||
        read_group_size(g, o, true, err))
        return -1;
    g->bits = (unsigned)bits;
    g->zero_less_1 = format < 2 && other < 2;
    return 0;
}

/* The methods, and what all modules of one have. */
static const struct {
    const char *method;
    unsigned of;
    int (*read)(struct quantization *q, const struct js *o, struct err *err);
    struct quantized_group group;
} methods[] = {
    { "compressed-tensors", PACKED, read_compressed, { .bits = 0 } },
    { "fp8",
      FP8,
      read_fp8,
      { .bits = 8, .is_float = true, .symmetric = true } },
    { "awq", AWQ, read_awq, { .bits = 4 } },
    { "gptq", GPTQ, read_gptq, { .bits = 4 } },
    { "mxfp4",
      MXFP4,
      NULL,
      { .bits = 4,
        .is_float = true,
        .symmetric = true,
        .scale_of = SCALE_GROUP,
        .cols = 32 } },
};

static int
read_method(struct quantization *q, const struct js *o, struct err *err)
{
    static const char *const ignored[] = { "ignore", "ignored_layers",
                                           "modules_to_not_convert" };
    struct js js = js_get(o, "quant_method");
    struct quantized_group *g;
    struct str known = { 0 };
    const char *s;
    size_t i = 0;

    if (!js_is(o, JSON_OBJECT))
        return js_bad(o, "an object", err);
    if (js_str(&js, &s, NULL, err))
        return -1;
    q->file = xstrdup(o->file);
    while (i < N(methods) && strcmp(s, methods[i].method) != 0)
        i++;
    if (i == N(methods)) {
        form_list(&known, NULL);
        str_adds(&known, "; or weights in BF16, F16 or F32");
        js_unsupported(&js, s, known.s, err);
        str_free(&known);
        return -1;
    }
    if (methods[i].group.bits) {
        g = new_group(q, methods[i].group);
        g->form = form_row(s, NULL);
    }
    if (check_keys(o, methods[i].of, err) ||
        (methods[i].read && methods[i].read(q, o, err)))
        return -1;
    for (size_t k = 0; k < N(ignored); k++)
        if (read_names(&q->ignored, &q->n_ignored, o, ignored[k], err))
            return -1;
    for (size_t k = 0; k < q->n_groups; k++)
        name_type(&q->groups[k]);
    return 0;
}

int
quantization_parse(struct quantization *q, const struct js *root,
                   struct err *err)
{
    static const char *const parts[] = { "text_config", "vision_config" };
    struct js js = js_get(root, "quantization_config");

    *q = (struct quantization){ 0 };
    for (size_t i = 0; i < 2 && js_absent(&js); i++) {
        struct js part = js_get(root, parts[i]);

        js = js_get(&part, "quantization_config");
    }
    return js_absent(&js) ? 0 : read_method(q, &js, err);
}

int
quantization_load(struct quantization *q, const char *path, struct err *err)
{
    struct config_file f;
    int rc = config_file_near(&f, path, err);

    *q = (struct quantization){ 0 };
    if (rc > 0)
        rc = quantization_parse(q, &f.root, err);
    config_file_close(&f);
    return rc;
}

static void
free_names(struct quantized_name *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(names[i].name);
        regex_free(names[i].re);
    }
    free(names);
}

void
quantization_text(struct str *to, const struct quantization *q)
{
    for (size_t i = 0; i < q->n_groups; i++) {
        const struct weight_form *f = q->groups[i].form;

        str_addf(to, "%s%s (%s%s%s)", i ? ", " : "", q->groups[i].type,
                 f->method, f->format ? " " : "", f->format ? f->format : "");
    }
    if (q->unused)
        str_addf(to, "; %s is not applied", q->unused);
}

void
quantization_free(struct quantization *q)
{
    for (size_t i = 0; i < q->n_groups; i++)
        free_names(q->groups[i].targets, q->groups[i].n_targets);
    free(q->groups);
    free_names(q->ignored, q->n_ignored);
    free(q->file);
    *q = (struct quantization){ 0 };
}
