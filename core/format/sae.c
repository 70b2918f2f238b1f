/*
 * SAE checkpoints.  The names of the tensors say which library wrote one and
 * so which way they are stored; shapes are only checked.
 * Source: EleutherAI sparsify, SAELens, dictionary_learning; man/lut.5.
 */
#include "core/format/sae.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/lut.h"
#include "core/format/stwant.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/str.h"

enum layout { SPARSIFY, SIX, SAELENS, DICTIONARY };

enum which { E_WEIGHT, E_BIAS, D_WEIGHT, D_BIAS, N_WHICH };

/* Each layout is known by its first two names, which no two share. */
static const struct layout_info {
    const char *names[N_WHICH];
    const char *or_bias; /* another name of the last */
    bool e_by_col, d_by_col;
} layouts[] = {
    [SPARSIFY] = { { "encoder.weight", "encoder.bias", "W_dec", "b_dec" },
                   NULL,
                   false,
                   false },
    [SIX] = { { "encoder_weight", "encoder_bias", "decoder_weight",
                "decoder_bias" },
              NULL,
              false,
              false },
    [SAELENS] = { { "W_enc", "b_enc", "W_dec", "b_dec" }, NULL, true, false },
    [DICTIONARY] = { { "encoder.weight", "encoder.bias", "decoder.weight",
                       "bias" },
                     "b_dec",
                     false,
                     true },
};
#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* Tensors of what is not a plain SAE. */
static const struct {
    const char *name, *what;
} refused[] = {
    { "W_skip", "a transcoder's skip connection" },
    { "W_gate", "a gated SAE" },
    { "b_gate", "a gated SAE" },
    { "r_mag", "a gated SAE" },
    { "b_mag", "a gated SAE" },
    { "gate_bias", "a gated SAE" },
    { "mag_bias", "a gated SAE" },
    { "log_threshold", "JumpReLU" },
    { "b_dec_out", "a transcoder" },
    { "scaling_factor", "a fine-tuned SAE" },
};

/* What may be there and is not used: a table's other tensors, and what
 * training leaves. */
static const char *const ignored[] = { "precomputed_products", "bias_product",
                                       "compensation_weight_t", "k",
                                       "num_tokens_since_fired" };

static const char *const files[] = { SAE_SPARSIFY_FILE, SAE_SAELENS_FILE,
                                     "ae.safetensors" };

/* ---- what is next to them ---- */

#define MAX_K ((int64_t)1 << 31)

/* "hadamard" or "outlier" in a name, of either case; or NULL. */
static const char *
names_transform(const char *name)
{
    if (strcasestr(name, "hadamard"))
        return "hadamard";
    return strcasestr(name, "outlier") ? "outlier" : NULL;
}

/* Are there files in a directory that say that inputs are transformed?  -1 with
 * 'err' set. */
static int
check_directory(const char *dir, struct err *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc;

    if (!d)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : err_sys(err, file_status(errno), "%s: cannot be listed",
                             dir);
    while ((rc = dir_next(d, dir, &e, err)) > 0)
        if (names_transform(e->d_name)) {
            rc = err_set(err, EX_DATAERR,
                         "%s/%s: an SAE of transformed inputs (%s) is not "
                         "supported",
                         dir, e->d_name, names_transform(e->d_name));
            break;
        }
    closedir(d);
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

/* Keys that are refused where they are on, by any library's name. */
static int
check_switches(const struct js *root, struct err *err)
{
    static const char *const off[] = {
        "transcode", "skip_connection", "signed",
        "tiled",     "gated",           "normalize_activations",
        "is_gated",  "is_transcoder",   "finetuning_scaling_factor",
        "W_skip",    "use_threshold",
    };
    const char *key;
    json_t *v;

    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        struct js js = js_get(root, off[i]);

        if (is_on(js.v))
            return js_bad(&js, "off: it is not supported", err);
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

/* A word that must be one of 'known', if it is there. */
static int
check_word(const struct js *root, const char *key, const char *const *known,
           const char *expected, struct err *err)
{
    struct js js = js_get(root, key);
    const char *s;
    size_t n;

    if (js_absent(&js))
        return 0;
    if (js_str(&js, &s, &n, err) < 0)
        return -1;
    for (size_t i = 0; known[i]; i++)
        if (!strcasecmp(s, known[i]))
            return 0;
    return js_bad(&js, expected, err);
}

static int
read_k(const struct js *root, const char *key, struct sae *s, struct err *err)
{
    struct js js = js_get(root, key);
    int64_t k;

    if (js_absent(&js))
        return 0;
    if (js_i64(&js, 1, MAX_K, &k, err) < 0)
        return -1;
    s->k = (size_t)k;
    return 0;
}

static int
sparsify(const struct js *root, struct sae *s, struct err *err)
{
    static const char *const activations[] = { "topk", NULL };

    s->centered = true;
    if (check_word(root, "activation", activations, "\"topk\"", err) < 0)
        return -1;
    return read_k(root, "k", s, err);
}

static int
six(const struct js *root, struct sae *s, struct err *err)
{
    struct js centering = js_get(root, "input_centering");

    s->unsure = js_absent(&centering);
    if (js_bool_or(root, "input_centering", false, &s->centered, err) < 0 ||
        read_k(root, "k", s, err) < 0)
        return -1;
    return read_k(root, "k_active", s, err);
}

static int
saelens(const struct js *root, struct sae *s, struct err *err)
{
    static const char *const known[] = { "topk", "standard", NULL };
    static const char *const activations[] = { "topk", "relu", NULL };
    static const char *const shapes[] = { "none", "hook_z", NULL };
    struct js args = js_get(root, "activation_fn_kwargs");

    if (check_word(root, "architecture", known, "\"topk\" or \"standard\"",
                   err) < 0 ||
        check_word(root, "activation_fn", activations, "\"topk\" or \"relu\"",
                   err) < 0 ||
        check_word(root, "activation_fn_str", activations,
                   "\"topk\" or \"relu\"", err) < 0 ||
        check_word(root, "reshape_activations", shapes, "\"none\"", err) < 0 ||
        js_bool_or(root, "apply_b_dec_to_input", true, &s->centered, err) < 0 ||
        js_bool_or(root, "rescale_acts_by_decoder_norm", false, &s->scaled,
                   err) < 0 ||
        read_k(root, "k", s, err) < 0)
        return -1;
    return js_is(&args, JSON_OBJECT) ? read_k(&args, "k", s, err) : 0;
}

static int
dictionary(const struct js *root, struct sae *s, struct err *err)
{
    static const char *const known[] = { "AutoEncoder", "AutoEncoderTopK",
                                         NULL };
    struct js trainer = js_get(root, "trainer");
    const struct js *js = js_absent(&trainer) ? root : &trainer;
    struct js class = js_get(js, "dict_class");
    const char *name = json_string_value(class.v);

    s->centered = true;
    if (check_switches(js, err) < 0 ||
        check_word(js, "dict_class", known,
                   "\"AutoEncoderTopK\" or \"AutoEncoder\"", err) < 0)
        return -1;
    s->ignores_threshold = name && !strcmp(name, "AutoEncoderTopK");
    return read_k(js, "k", s, err);
}

/* k and input_centering of a layer's entry, or of all layers. */
static json_t *
of_entry(const json_t *entry, const json_t *all)
{
    const json_t *encoder = json_object_get(entry, "encoder");
    json_t *k = json_object_get(entry, "k_active"), *v = json_object();

    json_object_set(v, "k", k ? k : json_object_get(all, "k_active"));
    json_object_set(v, "input_centering",
                    json_object_get(encoder, "input_centering"));
    return v;
}

/*
 * A checkpoint's configuration, and its path for messages: 1, 0 if there is
 * none, or -1.  A table's own metadata say what it is, else the metadata.json
 * next to it does, where the Python exporter's tables are all centred.
 */
static int
load_config(json_t **v, struct str *path, const struct sae *sae,
            enum layout layout, const char *dir, struct err *err)
{
    static const char *const names[] = { "cfg.json", "config.json",
                                         "metadata.json" };
    const char *slash = strrchr(sae->path, '/');
    const char *file = slash ? slash + 1 : sae->path, *key;
    const struct st_meta *m =
        layout == SIX ? st_meta_find(&sae->st, "lut") : NULL;
    json_t *doc, *info, *e;
    size_t i = 0;

    *v = NULL;
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
    if (i == 3 || (i == 2 && layout != SIX))
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

static int
read_config(struct sae *sae, enum layout layout, struct err *err)
{
    static int (*const libraries[])(const struct js *root, struct sae *s,
                                    struct err *err) = {
        [SPARSIFY] = sparsify,
        [SIX] = six,
        [SAELENS] = saelens,
        [DICTIONARY] = dictionary,
    };
    const char *slash = strrchr(sae->path, '/');
    size_t n = slash ? (size_t)(slash - sae->path) : 0;
    char *dir = slash ? xstrndup(sae->path, n ? n : 1) : xstrdup(".");
    struct str path = { 0 };
    json_t *v = NULL;
    int rc = check_directory(dir, err);

    sae->centered = layout != SIX;
    sae->unsure = layout == SIX;
    if (rc == 0)
        rc = load_config(&v, &path, sae, layout, dir, err);
    if (rc > 0) {
        struct js root = js_root(v, path.s);
        struct js scaled = js_get(&root, "rescale_acts_by_decoder_norm");

        rc = -1;
        if (!js_is(&root, JSON_OBJECT))
            js_bad(&root, "an object", err);
        else if (layout != SAELENS && is_on(scaled.v))
            js_bad(&scaled, "off: it is not supported", err);
        else if (check_switches(&root, err) == 0)
            rc = libraries[layout](&root, sae, err);
    }
    json_decref(v);
    str_free(&path);
    free(dir);
    return rc;
}

/* ---- where they are ---- */

/* The checkpoint in a directory, or NULL. */
static char *
in_directory(const char *dir)
{
    struct str s = { 0 };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        str_clear(&s);
        str_addf(&s, "%s/%s", dir, files[i]);
        if (!file_missing(s.s))
            return s.s;
    }
    str_free(&s);
    return NULL;
}

int
sae_is_one(const char *path, struct err *err)
{
    int is_dir = file_is_dir(path, err), rc = 1;
    char *file;

    if (is_dir <= 0)
        return is_dir < 0 ? -1 : 1;
    file = in_directory(path);
    if (!file)
        return check_directory(path, err);
    if (access(file, F_OK) < 0)
        rc = err_sys(err, file_status(errno), "%s", file);
    free(file);
    return rc;
}

char *
sae_path(const char *dir, const char *layer, const char *or_name,
         struct err *err)
{
    static const char *const ends[] = { "", ".safetensors", LUT_SUFFIX };
    const char *names[] = { layer, or_name };
    struct str s = { 0 };

    for (size_t i = 0; i < 6; i++) {
        str_clear(&s);
        str_addf(&s, "%s/%s%s", dir, names[i % 2], ends[i / 2]);
        if (access(s.s, F_OK) == 0)
            return s.s;
        if (errno != ENOENT && errno != ENOTDIR) {
            err_sys(err, file_status(errno), "%s", s.s);
            break;
        }
    }
    str_free(&s);
    return NULL;
}

/* ---- what they hold ---- */

static bool
is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (names[i] && !strcmp(name, names[i]))
            return true;
    return false;
}

/* A tensor of one number, or NaN. */
static double
scalar(const struct sae *s, const struct st_tensor *t)
{
    return t->n_elements == 1 && dtype_table[t->dtype].bits % 8 == 0
               ? dtype_get(t->dtype, st_data(&s->st, t), 0)
               : NAN;
}

/* Every tensor must be known: another one may change what the SAE computes.
 * AutoEncoderTopK keeps a threshold that it does not use without use_threshold.
 */
static int
check_names(const struct sae *s, enum layout layout, struct err *err)
{
    for (size_t i = 0; i < s->st.n_tensors; i++) {
        const struct st_tensor *t = &s->st.tensors[i];

        for (size_t j = 0; j < sizeof(refused) / sizeof(refused[0]); j++)
            if (!strcmp(t->name, refused[j].name))
                return err_set(err, EX_DATAERR,
                               "%s: has %s: %s is not supported", s->path,
                               t->name, refused[j].what);
        if (!strcmp(t->name, "threshold")) {
            /* -1: dictionary_learning's for none */
            if (s->ignores_threshold ||
                (layout == DICTIONARY && scalar(s, t) == -1))
                continue;
            return err_set(err, EX_DATAERR,
                           "%s: has %s: JumpReLU is not supported (a TopK SAE "
                           "is)",
                           s->path, t->name);
        }
        if (!is_one_of(t->name, layouts[layout].names, N_WHICH) &&
            !is_one_of(t->name, &layouts[layout].or_bias, 1) &&
            !is_one_of(t->name, ignored, sizeof(ignored) / sizeof(ignored[0])))
            return err_set(err, EX_DATAERR,
                           "%s: has %s, whose meaning is not known", s->path,
                           t->name);
    }
    return 0;
}

/* A matrix of this shape, or of any where that is ST_OPEN; with 0 rows a
 * vector.  'by_col': stored transposed. */
static int
find(const struct sae *s, struct matrix *to, const char *name, bool by_col,
     size_t rows, size_t cols, struct err *err)
{
    const struct st_tensor *t = st_find(&s->st, name);
    const struct st_want want = {
        .n_dims = rows ? 2 : 1,
        .shape = { by_col || !rows ? cols : rows, by_col ? rows : cols },
        .open = by_col ? "inputs, latents" : "latents, inputs",
    };

    if (!t)
        return st_missing(s->path, name, err);
    if (st_want(s->path, t, &want, err) < 0)
        return -1;
    if (t->n_elements == 0)
        return err_set(err, EX_DATAERR, "%s: %s is empty", s->path, name);
    *to = (struct matrix){ .data = st_data(&s->st, t),
                           .dtype = t->dtype,
                           .rows = rows ? (size_t)t->shape[by_col] : 1,
                           .cols = (size_t)t->shape[rows && !by_col],
                           .by_col = by_col };
    return 0;
}

static int
load(struct sae *s, struct err *err)
{
    enum layout layout = SPARSIFY;
    const struct layout_info *l = NULL;
    const struct st_tensor *t;
    const char *bias;

    for (size_t i = 0; i < N_LAYOUTS && !l; i++)
        if (st_find(&s->st, layouts[i].names[E_WEIGHT]) &&
            st_find(&s->st, layouts[i].names[D_WEIGHT])) {
            layout = (enum layout)i;
            l = &layouts[i];
        }
    if (!l)
        return err_set(err, EX_DATAERR,
                       "%s: is not a known SAE: it has neither encoder.weight "
                       "and W_dec (sparsify), nor encoder.weight and "
                       "decoder.weight (dictionary_learning), W_enc and W_dec "
                       "(SAELens), encoder_weight and decoder_weight",
                       s->path);
    if (read_config(s, layout, err) < 0 || check_names(s, layout, err) < 0 ||
        find(s, &s->encoder_weight, l->names[E_WEIGHT], l->e_by_col, ST_OPEN,
             ST_OPEN, err) < 0)
        return -1;
    s->n = s->encoder_weight.rows;
    s->in = s->encoder_weight.cols;
    t = layout == DICTIONARY && !s->k ? st_find(&s->st, "k") : NULL;
    if (t && scalar(s, t) >= 1 && scalar(s, t) <= (double)MAX_K)
        s->k = (size_t)scalar(s, t);
    bias = l->names[D_BIAS];
    if (l->or_bias && !st_find(&s->st, bias))
        bias = l->or_bias;
    if (find(s, &s->encoder_bias, l->names[E_BIAS], false, 0, s->n, err) < 0 ||
        find(s, &s->decoder_weight, l->names[D_WEIGHT], l->d_by_col, s->n,
             s->in, err) < 0 ||
        find(s, &s->decoder_bias, bias, false, 0, s->in, err) < 0)
        return -1;
    if (s->scaled) {
        const struct matrix *m = &s->decoder_weight;

        s->norms = xcalloc(s->n, sizeof(*s->norms));
        for (size_t i = 0; i < s->n; i++) {
            for (size_t j = 0; j < s->in; j++) {
                double v = matrix_get(m, i, j);

                s->norms[i] += v * v;
            }
            s->norms[i] = sqrt(s->norms[i]);
        }
    }
    return 0;
}

void
sae_fold(const struct sae *s, size_t i, bool decoder, float *row)
{
    double norm = s->norms ? s->norms[i] : 1;

    if (norm == 1)
        return;
    for (size_t j = 0; j < s->in; j++)
        row[j] = (float)(!decoder    ? (double)row[j] * norm
                         : norm == 0 ? 0
                                     : (double)row[j] / norm);
}

int
sae_open(struct sae *s, const char *path, struct err *err)
{
    int is_dir = file_is_dir(path, err);

    *s = (struct sae){ 0 };
    if (is_dir < 0)
        return -1;
    s->path = is_dir ? in_directory(path) : xstrdup(path);
    if (!s->path)
        return err_set(err, EX_NOINPUT,
                       "%s: has no sae.safetensors, sae_weights.safetensors "
                       "or ae.safetensors",
                       path);
    if (st_open(&s->st, s->path, err) == 0 && st_map(&s->st, err) == 0 &&
        load(s, err) == 0)
        return 0;
    sae_close(s);
    return -1;
}

void
sae_close(struct sae *s)
{
    st_close(&s->st);
    free(s->norms);
    free(s->path);
    *s = (struct sae){ 0 };
}
