/* SPDX-License-Identifier: ISC */
#include "core/format/lut.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/compat.h"
#include "core/format/stwant.h"
#include "core/hash.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define MAX_DIM ((int64_t)1 << 31)

/* Fused layers by the last word of their name. */
static const struct {
    const char *word;
    const char *parts[LUT_MAX_PARTS];
    const char *sae; /* the part whose SAE and threshold scripts use */
} fused[] = {
    { "qkv_proj", { "q_proj", "k_proj", "v_proj" }, "q_proj" },
    { "gate_up_proj", { "gate_proj", "up_proj" }, "up_proj" },
};
#define N_FUSED (sizeof(fused) / sizeof(fused[0]))

const char *const lut_tensor_names[LUT_N_TENSORS] = {
    [LUT_ENCODER_WEIGHT] = "encoder_weight",
    [LUT_ENCODER_BIAS] = "encoder_bias",
    [LUT_DECODER_WEIGHT] = "decoder_weight",
    [LUT_DECODER_BIAS] = "decoder_bias",
    [LUT_PRODUCTS] = "precomputed_products",
    [LUT_BIAS_PRODUCT] = "bias_product",
    [LUT_WEIGHT_T] = "compensation_weight_t",
};

size_t
lut_shape(enum lut_tensor tensor, size_t n, size_t in, size_t out,
          uint64_t shape[2])
{
    static const char dims[LUT_N_TENSORS][3] = { "ni", "n", "ni", "i",
                                                 "no", "o", "io" };
    size_t n_dims = 0;

    for (; dims[tensor][n_dims]; n_dims++)
        shape[n_dims] = dims[tensor][n_dims] == 'n'   ? n
                        : dims[tensor][n_dims] == 'i' ? in
                                                      : out;
    return n_dims;
}

char *
lut_name(const char *name)
{
    struct str s = { 0 };

    str_addf(&s, "%s%s", strncmp(name, "model.", 6) ? "model." : "", name);
    return s.s;
}

/* Offset of the last word of a name. */
static size_t
last_word(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) + 1 : 0;
}

/* A fused layer's index in the table, or -1. */
static int
find_fused(const char *name)
{
    for (size_t i = 0; i < N_FUSED; i++)
        if (!strcmp(name + last_word(name), fused[i].word))
            return (int)i;
    return -1;
}

/* A name with another last word. */
static char *
with_word(const char *name, const char *word)
{
    struct str s = { 0 };

    str_add(&s, name, last_word(name));
    str_adds(&s, word);
    return s.s;
}

size_t
lut_parts(const char *name, char *parts[LUT_MAX_PARTS])
{
    int f = find_fused(name);
    size_t n = 0;

    if (f < 0) {
        parts[0] = xstrdup(name);
        return 1;
    }
    for (; n < LUT_MAX_PARTS && fused[f].parts[n]; n++)
        parts[n] = with_word(name, fused[f].parts[n]);
    return n;
}

char *
lut_fused(const char *name)
{
    const char *word = name + last_word(name);

    for (size_t i = 0; i < N_FUSED; i++)
        for (size_t k = 0; k < LUT_MAX_PARTS && fused[i].parts[k]; k++)
            if (!strcmp(word, fused[i].parts[k]))
                return with_word(name, fused[i].word);
    return NULL;
}

char *
lut_fused_sae(const char *name)
{
    int f = find_fused(name);

    return f < 0 ? NULL : with_word(name, fused[f].sae);
}

/* ---- metadata.json ---- */

static int
read_size(const struct js *obj, const char *key, size_t *v, struct err *err)
{
    struct js js = js_get(obj, key);
    int64_t n;

    if (js_i64(&js, 1, MAX_DIM, &n, err) < 0)
        return -1;
    *v = (size_t)n;
    return 0;
}

size_t
lut_elbow_names(const char *name, char *names[LUT_ELBOW_NAMES])
{
    char *of_fused = lut_fused_sae(name);
    const char *part = of_fused ? of_fused : name, *dot;
    const char *plain[] = { name, name + 6, part, part + 6 };
    struct str key = { 0 };
    size_t n = 0;

    for (; n < 4; n++)
        names[n] = xstrdup(plain[n]);
    if (!strncmp(part, "model.layers.", 13) && (dot = strchr(part + 13, '.'))) {
        str_addf(&key, "layer_%.*s/%s", (int)(dot - part - 13), part + 13,
                 dot + 1);
        for (size_t i = 0; i < key.n; i++)
            key.s[i] = key.s[i] == '.' ? '_' : key.s[i];
        names[n++] = key.s;
    }
    free(of_fused);
    return n;
}

/* A threshold under one of the names that scripts give a layer, or NaN. */
static double
read_elbow(const struct js *root, const char *name)
{
    const json_t *all = js_get(root, "elbow_thresholds").v, *v = NULL;
    char *names[LUT_ELBOW_NAMES];
    size_t n = lut_elbow_names(name, names);

    for (size_t i = 0; i < n; i++) {
        v = v ? v : json_object_get(all, names[i]);
        free(names[i]);
    }
    if (json_is_object(v))
        v = json_object_get(v, "elbow_value");
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Which directions are active: "topk", if it does not say so. */
static int
read_activation(const struct js *layer, bool *over, struct err *err)
{
    struct js js = js_get(layer, "activation");
    const char *s;

    *over = false;
    if (js_absent(&js))
        return 0;
    if (js_str(&js, &s, NULL, err) < 0)
        return -1;
    *over = !strcmp(s, "threshold");
    return *over || !strcmp(s, "topk")
               ? 0
               : js_bad(&js, "\"topk\" or \"threshold\"", err);
}

/* *silent: it does not say whether it is centred. */
static int
read_layer(struct lut *lut, const struct js *root, const char *key,
           bool *silent, struct err *err)
{
    struct lut_layer *l = &lut->layers[lut->n_layers++];
    struct js layers = js_get(root, "layers"), js = js_get(&layers, key);
    struct js all = js_get(root, "sae_config");
    struct js own_n = js_get(&js, "num_basis"), own_k = js_get(&js, "k_active");
    struct js file = js_get(&js, "file"), encoder = js_get(&js, "encoder");
    struct js centering = js_get(&encoder, "input_centering");
    const char *s;
    size_t n;

    *l = (struct lut_layer){ .name = lut_name(key) };
    if (!js_is(&js, JSON_OBJECT))
        return js_bad(&js, "an object", err);
    if (read_size(&js, "input_dim", &l->in, err) < 0 ||
        read_size(&js, "output_dim", &l->out, err) < 0 ||
        js_str(&file, &s, &n, err) < 0)
        return -1;
    if (n == 0 || strlen(s) != n || strchr(s, '/') || s[0] == '.')
        return js_bad(&file, "the name of a file in this directory", err);
    l->file = xstrdup(s);
    if (read_size(js_absent(&own_n) ? &all : &js, "num_basis", &l->n_basis,
                  err) < 0 ||
        read_size(js_absent(&own_k) ? &all : &js, "k_active", &l->k, err) < 0 ||
        js_bool_or(&js, "target_bias", false, &l->target_bias, err) < 0 ||
        read_activation(&js, &l->over, err) < 0)
        return -1;
    if (!js_absent(&encoder) && !js_is(&encoder, JSON_OBJECT))
        return js_bad(&encoder, "an object", err);
    l->centered = lut->from_exporter;
    *silent |= js_absent(&centering);
    if (!js_absent(&centering) && js_bool(&centering, &l->centered, err) < 0)
        return -1;
    if (l->k > l->n_basis)
        return err_data(err, js.file,
                        "%s: k_active is %zu (expected at most num_basis, %zu)",
                        l->name, l->k, l->n_basis);
    l->elbow = read_elbow(root, l->name);
    return 0;
}

static int
by_name(const void *a, const void *b)
{
    const struct lut_layer *x = a, *y = b;

    return natural_order(x->name, y->name);
}

struct inode {
    dev_t dev;
    ino_t ino;
    const struct lut_layer *of;
};

static int
by_inode(const void *a, const void *b)
{
    const struct inode *x = a, *y = b;

    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return (x->ino > y->ino) - (x->ino < y->ino);
}

/* One file of a thousand layers, also by links, would be mapped and widened for
 * each of them.  A missing one is reported when it is opened. */
static int
check_files(const struct lut *lut, const char *path, struct err *err)
{
    struct inode *v = xcalloc(lut->n_layers, sizeof(*v));
    struct str file = { 0 };
    struct stat st;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < lut->n_layers; i++) {
        str_clear(&file);
        str_addf(&file, "%s/%s", lut->path, lut->layers[i].file);
        if (stat(file.s, &st) == 0)
            v[n++] = (struct inode){ st.st_dev, st.st_ino, &lut->layers[i] };
    }
    qsort(v, n, sizeof(*v), by_inode);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (by_inode(&v[i - 1], &v[i]) == 0)
            rc = err_data(err, path,
                          "%.200s of %s and %.200s of %s are one file "
                          "(expected one for each layer)",
                          v[i - 1].of->file, v[i - 1].of->name, v[i].of->file,
                          v[i].of->name);
    str_free(&file);
    free(v);
    return rc;
}

static int
read_metadata(struct lut *lut, const struct js *root, struct err *err)
{
    struct js version = js_get(root, "version");
    struct js layers = js_get(root, "layers");
    struct js info = js_get(root, "creation_info");
    bool silent = false;
    const char *s, *key;
    json_t *v;
    size_t n;

    if (!js_is(root, JSON_OBJECT))
        return js_bad(root, "an object", err);
    if (js_str(&version, &s, &n, err) < 0)
        return -1;
    if (strncmp(s, "1.", 2) != 0)
        return js_bad(&version,
                      strncmp(s, "2.", 2)
                          ? "1.x"
                          : "1.x: tables of routed experts are not supported",
                      err);
    if (!js_is(&layers, JSON_OBJECT))
        return js_bad(&layers, "an object", err);
    lut->from_exporter = json_object_get(info.v, "script_version") != NULL;
    lut->layers = xcalloc(json_object_size(layers.v), sizeof(*lut->layers));
    json_object_foreach((json_t *)(uintptr_t)layers.v, key, v)
    {
        if (read_layer(lut, root, key, &silent, err) < 0)
            return -1;
    }
    qsort(lut->layers, lut->n_layers, sizeof(*lut->layers), by_name);
    for (size_t i = 1; i < lut->n_layers; i++)
        if (!strcmp(lut->layers[i - 1].name, lut->layers[i].name))
            return err_data(err, root->file, "has the layer %s twice",
                            lut->layers[i].name);
    if (check_files(lut, root->file, err) < 0)
        return -1;
    if (silent && !lut->from_exporter)
        err_warn("%s: does not say encoder.input_centering: inputs are not "
                 "centred",
                 root->file);
    return 0;
}

int
lut_open(struct lut *lut, const char *dir, struct err *err)
{
    static const char *const places[] = { "", "/lut", "" };
    struct str path = { 0 };
    struct js root;
    json_t *v;
    int rc = -1;

    for (int i = 0; i < 3 && (i == 0 || file_missing(path.s)); i++) {
        str_clear(&path);
        str_addf(&path, "%s%s/metadata.json", dir, places[i]);
    }
    *lut = (struct lut){ .path = xstrndup(path.s,
                                          path.n - strlen("/metadata.json")) };
    v = js_load(path.s, err);
    if (v) {
        root = js_root(v, path.s);
        rc = read_metadata(lut, &root, err);
    }
    json_decref(v);
    str_free(&path);
    if (rc < 0)
        lut_close(lut);
    return rc;
}

void
lut_close(struct lut *lut)
{
    for (size_t i = 0; i < lut->n_layers; i++) {
        free(lut->layers[i].name);
        free(lut->layers[i].file);
    }
    free(lut->layers);
    free(lut->path);
    *lut = (struct lut){ 0 };
}

const struct lut_layer *
lut_find(const struct lut *lut, const char *name)
{
    struct lut_layer key = { .name = lut_name(name) };
    const struct lut_layer *l =
        lut->n_layers
            ? bsearch(&key, lut->layers, lut->n_layers, sizeof(key), by_name)
            : NULL;

    free(key.name);
    return l;
}

/* ---- a layer's file ---- */

static int
find_tensors(struct lut_table *t, struct err *err)
{
    const struct lut_layer *l = t->layer;
    const void *data[LUT_N_TENSORS] = { 0 };
    float **vectors[LUT_N_TENSORS] = { [LUT_ENCODER_BIAS] = &t->encoder_bias,
                                       [LUT_DECODER_BIAS] = &t->decoder_bias,
                                       [LUT_BIAS_PRODUCT] = &t->bias_product };

    for (int i = 0; i < LUT_N_TENSORS; i++) {
        const struct st_tensor *x = st_find(&t->st, lut_tensor_names[i]);
        struct st_want want = { 0 };

        if (!x && i == LUT_WEIGHT_T)
            break;
        if (!x)
            return st_missing(t->st.path, lut_tensor_names[i], err);
        want.n_dims = lut_shape((enum lut_tensor)i, l->n_basis, l->in, l->out,
                                want.shape);
        if (st_want(t->st.path, x, &want, err) < 0)
            return -1;
        t->dtypes[i] = x->dtype;
        data[i] = st_data(&t->st, x);
        if (!vectors[i])
            continue;
        *vectors[i] = xcalloc(want.shape[0], sizeof(float));
        for (size_t k = 0; k < want.shape[0]; k++)
            (*vectors[i])[k] = (float)dtype_get(x->dtype, data[i], k);
    }
    t->encoder_weight = data[LUT_ENCODER_WEIGHT];
    t->decoder_weight = data[LUT_DECODER_WEIGHT];
    t->products = data[LUT_PRODUCTS];
    t->compensation_weight_t = data[LUT_WEIGHT_T];
    return 0;
}

static int
find_thresholds(struct lut_table *t, struct err *err)
{
    const struct st_tensor *x = st_find(&t->st, LUT_THRESHOLD);
    size_t n = t->layer->n_basis;
    const struct st_want want = { .n_dims = x && x->n_dims, .shape = { n } };

    if (!x && t->layer->over)
        return st_missing(t->st.path, LUT_THRESHOLD, err);
    if (x && !t->layer->over)
        return err_data(err, t->st.path,
                        "has " LUT_THRESHOLD ", but metadata.json does not say "
                        "that activation is \"threshold\"");
    if (!x)
        return 0;
    if (st_want(t->st.path, x, &want, err) < 0)
        return -1;
    t->thresholds = xcalloc(n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        double v = dtype_get(x->dtype, st_data(&t->st, x), x->n_dims ? i : 0);

        if (!(v >= 0 && v <= FLT_MAX))
            return err_data(err, t->st.path,
                            LUT_THRESHOLD
                            "[%zu] is %g (expected a number from 0 on)",
                            i, v);
        t->thresholds[i] = (float)v;
    }
    return 0;
}

/* Does the file's own entry, if it has one, say the same of activation? */
static int
check_activation(const struct lut_table *t, const json_t *entry,
                 struct err *err)
{
    const char *s = json_string_value(json_object_get(entry, "activation"));
    bool over = s && !strcmp(s, "threshold"), ours = t->layer->over;

    if (!json_is_object(entry) || over == ours)
        return 0;
    return err_data(err, t->st.path,
                    "says that activation is %s, but metadata.json %s "
                    "(lut-precompute --index rewrites it)",
                    over ? "threshold" : "topk", ours ? "threshold" : "topk");
}

const char *const lut_sums[LUT_SUMS] = {
    [LUT_SUM_WEIGHT] = "encoder_weight_xxh3",
    [LUT_SUM_SHADOW] = LUT_SHADOW "_xxh3",
    [LUT_SUM_SCALE] = LUT_SHADOW_SCALE "_xxh3",
    [LUT_SUM_ERROR] = LUT_SHADOW_ERROR "_xxh3",
};

/* Are a shadow and its encoder what was written?  A proof of what a shadow
 * leaves out is only as good as its numbers. */
static int
check_shadow(struct lut_table *t, struct err *err)
{
    for (size_t i = 0; i < LUT_SUMS; i++) {
        const char *sum = st_meta(&t->st, lut_sums[i]);
        size_t n = strlen(lut_sums[i]) - strlen("_xxh3");
        const struct st_tensor *x = st_find_n(&t->st, lut_sums[i], n);
        struct hash *hash;
        char hex[HASH_MAX_HEX];

        if (!sum) {
            err_warn("%s: its shadow has no %s: it is not used (lut-precompute "
                     "--screen --force writes a table with it)",
                     t->st.path, lut_sums[i]);
            t->shadow = t->shadow_scale = t->shadow_error = NULL;
            return 0;
        }
        hash = hash_new(HASH_XXH3);
        hash_add(hash, st_data(&t->st, x), x->nbytes);
        hash_end(hash, hex);
        if (strcmp(sum, hex) != 0)
            return err_data(err, t->st.path,
                            "%s has the XXH3 %s (expected %s, as the file "
                            "says)",
                            x->name, hex, sum);
    }
    for (size_t i = 0; i < t->layer->n_basis; i++) {
        double v = dtype_get(DT_F32, t->shadow_scale, i);

        if (!(v >= 0 && v <= FLT_MAX)) /* 0: of a row that it cannot have */
            return err_data(err, t->st.path,
                            LUT_SHADOW_SCALE
                            "[%zu] is %g (expected a number from 0 on)",
                            i, v);
    }
    return 0;
}

/* All three of its tensors, or none. */
static int
find_shadow(struct lut_table *t, struct err *err)
{
    const struct lut_layer *l = t->layer;
    const struct {
        const char *name;
        const void **to;
        enum dtype dtype;
        struct st_want want;
    } tensors[] = {
        { LUT_SHADOW,
          &t->shadow,
          DT_I8,
          { .n_dims = 2, .shape = { l->n_basis, l->in } } },
        { LUT_SHADOW_SCALE,
          &t->shadow_scale,
          DT_F32,
          { .n_dims = 1, .shape = { l->n_basis } } },
        { LUT_SHADOW_ERROR,
          &t->shadow_error,
          DT_F32,
          { .n_dims = 1, .shape = { l->n_basis } } },
    };

    for (size_t i = 0; st_find(&t->st, LUT_SHADOW) && i < 3; i++) {
        *tensors[i].to = st_want_data(&t->st, tensors[i].name, tensors[i].dtype,
                                      &tensors[i].want, err);
        if (!*tensors[i].to)
            return -1;
    }
    return t->shadow ? check_shadow(t, err) : 0;
}

int
lut_table_open(struct lut_table *t, const struct lut *lut,
               const struct lut_layer *layer, struct err *err)
{
    /* What changes y and shows in no shape must agree with the file's word. */
    static const char *const keys[] = { "input_centering", "target_bias" };
    const bool ours[] = { layer->centered, layer->target_bias };
    const struct st_meta *m;
    struct str path = { 0 };
    json_t *v = NULL;
    int rc;

    *t = (struct lut_table){ .layer = layer };
    str_addf(&path, "%s/%s", lut->path, layer->file);
    rc = st_open(&t->st, path.s, err);
    m = rc < 0 ? NULL : st_meta_find(&t->st, "lut");
    str_adds(&path, ": __metadata__ lut");
    if (m) {
        v = js_parse(m->value, m->value_n, path.s, err);
        rc = v ? 0 : -1;
    }
    for (int i = 0; i < 2 && rc == 0; i++) {
        const json_t *of = json_object_get(v, "entry"), *theirs;

        theirs =
            json_object_get(i ? of : json_object_get(of, "encoder"), keys[i]);
        if (json_is_boolean(theirs) && json_is_true(theirs) != ours[i])
            rc = err_data(err, t->st.path,
                          "says that %s is %s, but metadata.json %s "
                          "(lut-precompute --index rewrites it)",
                          keys[i], ours[i] ? "false" : "true",
                          ours[i] ? "true" : "false");
    }
    if (rc == 0)
        rc = check_activation(t, json_object_get(v, "entry"), err);
    json_decref(v);
    str_free(&path);
    if (rc == 0 && st_map(&t->st, err) == 0 && find_tensors(t, err) == 0 &&
        find_thresholds(t, err) == 0 && find_shadow(t, err) == 0)
        return 0;
    lut_table_close(t);
    return -1;
}

void
lut_table_close(struct lut_table *t)
{
    free(t->encoder_bias);
    free(t->decoder_bias);
    free(t->bias_product);
    free(t->thresholds);
    st_close(&t->st);
    *t = (struct lut_table){ 0 };
}
