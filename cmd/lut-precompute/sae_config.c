/*
 * What stands beside a checkpoint: cfg.json or config.json, and files that say
 * that its inputs are not the layer's.
 */
#include "cmd/lut-precompute/sae_config.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/st.h"
#include "core/js.h"
#include "core/mem.h"

#define MAX_K ((int64_t)1 << 31)

/* The folder that a path lies in. */
static char *
folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? xstrndup(path, (size_t)(slash - path) + (slash == path))
                 : xstrdup(".");
}

/* "hadamard" or "outlier" in a name, of either case; or NULL. */
static const char *
names_transform(const char *name)
{
    if (strcasestr(name, "hadamard"))
        return "hadamard";
    return strcasestr(name, "outlier") ? "outlier" : NULL;
}

int
sae_beside(const char *folder, struct err *err)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int rc;

    if (!d)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : err_sys(err, file_status(errno), "%s: cannot be listed",
                             folder);
    while ((rc = folder_next(d, folder, &e, err)) > 0)
        if (names_transform(e->d_name)) {
            rc = err_set(err, EX_DATAERR,
                         "%s/%s: an SAE of transformed inputs (%s) is not "
                         "supported",
                         folder, e->d_name, names_transform(e->d_name));
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
        "W_skip",    "use_threshold",   "rescale_acts_by_decoder_norm",
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
take_k(const struct js *root, const char *key, struct sae_config *c,
       struct err *err)
{
    struct js js = js_get(root, key);
    int64_t k;

    if (js_absent(&js))
        return 0;
    if (js_i64(&js, 1, MAX_K, &k, err) < 0)
        return -1;
    c->k = (size_t)k;
    return 0;
}

/* ---- the libraries ---- */

static int
sparsify(const struct js *root, struct sae_config *c, struct err *err)
{
    static const char *const activations[] = { "topk", NULL };

    c->centered = true;
    if (check_word(root, "activation", activations, "\"topk\"", err) < 0)
        return -1;
    return take_k(root, "k", c, err);
}

static int
six(const struct js *root, struct sae_config *c, struct err *err)
{
    struct js centering = js_get(root, "input_centering");

    c->unsure = js_absent(&centering);
    if (js_bool_or(root, "input_centering", false, &c->centered, err) < 0 ||
        take_k(root, "k", c, err) < 0)
        return -1;
    return take_k(root, "k_active", c, err);
}

static int
saelens(const struct js *root, struct sae_config *c, struct err *err)
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
        js_bool_or(root, "apply_b_dec_to_input", true, &c->centered, err) < 0 ||
        take_k(root, "k", c, err) < 0)
        return -1;
    return js_is(&args, JSON_OBJECT) ? take_k(&args, "k", c, err) : 0;
}

static int
dictionary(const struct js *root, struct sae_config *c, struct err *err)
{
    static const char *const known[] = { "AutoEncoder", "AutoEncoderTopK",
                                         NULL };
    struct js trainer = js_get(root, "trainer");
    const struct js *js = js_absent(&trainer) ? root : &trainer;
    struct js class = js_get(js, "dict_class");
    const char *name = json_string_value(class.v);

    c->centered = true;
    if (check_switches(js, err) < 0 ||
        check_word(js, "dict_class", known,
                   "\"AutoEncoderTopK\" or \"AutoEncoder\"", err) < 0)
        return -1;
    c->ignore_threshold = name && !strcmp(name, "AutoEncoderTopK");
    return take_k(js, "k", c, err);
}

/* The configuration beside a checkpoint; 1, or 0 if there is none. */
static int
load(json_t **v, struct str *path, const char *folder, struct err *err)
{
    static const char *const names[] = { "cfg.json", "config.json" };

    for (size_t i = 0; i < 2; i++) {
        str_clear(path);
        str_addf(path, "%s/%s", folder, names[i]);
        if (file_missing(path->s))
            continue;
        *v = js_load(path->s, err);
        return *v ? 1 : -1;
    }
    return 0;
}

/* What of a layer's entry, or of all layers, a checkpoint needs. */
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

/* A table's file as a checkpoint: its own metadata say what it is. */
static int
from_metadata(const struct sae *sae, json_t **v, struct str *path,
              struct err *err)
{
    const struct st_meta *m = st_meta_find(&sae->st, "lut");
    json_t *lut;

    if (!m)
        return 0;
    str_addf(path, "%s: __metadata__ lut", sae->path);
    lut = js_parse(m->value, m->value_n, path->s, err);
    if (!lut)
        return -1;
    *v = of_entry(json_object_get(lut, "entry"), NULL);
    json_decref(lut);
    return 1;
}

/* A table's file that says nothing: metadata.json beside it does, or it is the
 * Python exporter's, whose encoders are centred. */
static int
from_index(const struct sae *sae, json_t **v, struct str *path,
           const char *folder, struct err *err)
{
    const char *slash = strrchr(sae->path, '/');
    const char *file = slash ? slash + 1 : sae->path, *key;
    json_t *index, *e;

    str_clear(path);
    str_addf(path, "%s/metadata.json", folder);
    if (file_missing(path->s))
        return 0;
    if (!(index = js_load(path->s, err)))
        return -1;
    json_object_foreach(json_object_get(index, "layers"), key, e)
    {
        const char *name = json_string_value(json_object_get(e, "file"));

        if (*v || !name || strcmp(name, file) != 0)
            continue;
        *v = of_entry(e, json_object_get(index, "sae_config"));
        if (!json_object_get(*v, "input_centering") &&
            json_object_get(json_object_get(index, "creation_info"),
                            "script_version"))
            json_object_set_new(*v, "input_centering", json_true());
    }
    json_decref(index);
    return *v != NULL;
}

int
sae_config(struct sae_config *c, enum layout layout, const struct sae *sae,
           struct err *err)
{
    static int (*const libraries[])(const struct js *root, struct sae_config *c,
                                    struct err *err) = {
        [SPARSIFY] = sparsify,
        [SIX] = six,
        [SAELENS] = saelens,
        [DICTIONARY] = dictionary,
    };
    char *folder = folder_of(sae->path);
    struct str path = { 0 };
    json_t *v = NULL;
    int rc = sae_beside(folder, err);

    *c = (struct sae_config){ .centered = layout != SIX,
                              .unsure = layout == SIX };
    if (rc == 0 && layout == SIX)
        rc = from_metadata(sae, &v, &path, err);
    if (rc == 0)
        rc = load(&v, &path, folder, err);
    if (rc == 0 && layout == SIX)
        rc = from_index(sae, &v, &path, folder, err);
    if (rc > 0) {
        struct js root = js_root(v, path.s);

        rc = -1;
        if (!js_is(&root, JSON_OBJECT))
            js_bad(&root, "an object", err);
        else if (check_switches(&root, err) == 0)
            rc = libraries[layout](&root, c, err);
    }
    json_decref(v);
    str_free(&path);
    free(folder);
    return rc;
}
