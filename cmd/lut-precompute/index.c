/*
 * metadata.json from the files of a directory.  Array jobs write files without
 * coordination; any of them, or a last one, writes the index.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-precompute/cmd.h"
#include "core/format/lut.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"

#define MAX_TRIES 100

/* Names in natural order. */
struct names {
    size_t n;
    char **names;
};

static int
by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static void
names_add(struct names *l, const char *name)
{
    l->names = xrealloc(l->names, l->n + 1, sizeof(*l->names));
    l->names[l->n++] = xstrdup(name);
}

static void
names_sort(struct names *l)
{
    if (l->n)
        qsort(l->names, l->n, sizeof(*l->names), by_name);
}

static void
names_free(struct names *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    *l = (struct names){ 0 };
}

/* The tables of a directory. */
static int
list_files(struct names *l, const char *dir, struct err *err)
{
    const size_t n_end = strlen(LUT_SUFFIX);
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc;

    *l = (struct names){ 0 };
    if (!d)
        return err_sys(err, file_status(errno), "%s", dir);
    while ((rc = dir_next(d, dir, &e, err)) > 0) {
        size_t n = strlen(e->d_name);

        if (e->d_name[0] != '.' && n > n_end &&
            strcmp(e->d_name + n - n_end, LUT_SUFFIX) == 0)
            names_add(l, e->d_name);
    }
    closedir(d);
    names_sort(l);
    return rc;
}

/* What a file says of itself; NULL where that is nothing, or with 'err' set. */
static json_t *
describe(const char *dir, const char *name, struct err *err)
{
    struct str path = { 0 };
    json_t *v = NULL;
    struct st st;

    str_addf(&path, "%s/%s", dir, name);
    if (st_open(&st, path.s, err) == 0) {
        const struct st_meta *m = st_meta_find(&st, "lut");

        if (m)
            v = js_parse(m->value, m->value_n, path.s, err);
        st_close(&st);
    }
    str_free(&path);
    if (v && json_is_object(json_object_get(v, "entry")) &&
        json_is_string(json_object_get(v, "layer")))
        return v;
    json_decref(v);
    return NULL;
}

struct index {
    const char *dir;
    bool prune;
    json_t *old;    /* what metadata.json was; NULL: nothing */
    json_t *layers; /* new, by full names */
    json_t *first;  /* what the first of our files says */
    struct err bad; /* of the first damaged one, if 'prune'; status 0: none */
};

/* Damaged files are left out; one that cannot be read now might be sound. */
static int
add_files(struct index *x, const struct names *files, struct err *err)
{
    for (size_t i = 0; i < files->n; i++) {
        const char *file = files->names[i];
        struct err why = { 0 };
        json_t *self = describe(x->dir, file, &why);
        json_t *entry = json_object_get(self, "entry");
        struct str own = { 0 };
        char *layer;

        if (why.status && why.status != EX_DATAERR) {
            *err = why;
            return -1;
        }
        if (why.status && x->prune && !x->bad.status)
            x->bad = why;
        else if (why.status)
            err_warn("%s", why.what);
        if (!self)
            continue;
        layer = lut_name(json_string_value(json_object_get(self, "layer")));
        str_addf(&own, "%s" LUT_SUFFIX, layer);
        if (strcmp(file, own.s) != 0 &&
            bsearch(&own.s, files->names, files->n, sizeof(char *), by_name)) {
            err_warn("%s/%s: is a table of %s, which has its own file: left "
                     "out",
                     x->dir, file, layer);
        } else {
            json_object_set_new(entry, "file", json_string(file));
            json_object_set(x->layers, layer, entry);
        }
        if (!x->first)
            x->first = json_incref(self);
        json_decref(self);
        str_free(&own);
        free(layer);
    }
    return 0;
}

/* Layers of the old index stay as they are where their files do not describe
 * themselves. */
static void
add_old(struct index *x)
{
    const char *key;
    json_t *entry;

    json_object_foreach(json_object_get(x->old, "layers"), key, entry)
    {
        const char *file = json_string_value(json_object_get(entry, "file"));
        char *layer = lut_name(key);
        struct str path = { 0 };

        str_addf(&path, "%s/%s", x->dir, file ? file : "");
        if (json_object_get(x->layers, layer))
            ;
        else if (!x->prune || (file && !file_missing(path.s)))
            json_object_set(x->layers, layer, entry);
        else
            err_warn("%s: %s: its file is missing, left out", x->dir, key);
        str_free(&path);
        free(layer);
    }
}

/* num_basis and k_active of the first layer, if all have their own. */
static json_t *
sae_config_of(const struct index *x, json_t *layers)
{
    json_t *old = json_object_get(x->old, "sae_config"), *config = NULL, *e;
    const char *key;

    json_object_foreach(layers, key, e)
    {
        json_t *n = json_object_get(e, "num_basis");
        json_t *k = json_object_get(e, "k_active");

        if (!n || !k) {
            json_decref(config);
            return json_incref(old);
        }
        if (!config)
            config = json_pack("{s:O, s:O}", "num_basis", n, "k_active", k);
    }
    return config ? config : json_incref(old);
}

/* The document: its own keys first, then whatever else the old one had. */
static json_t *
document(const struct index *x)
{
    json_t *version = json_object_get(x->old, "version");
    json_t *doc = json_object(), *layers = json_object(), *v;
    struct names names = { 0 };
    const char *key;

    json_object_foreach(x->layers, key, v) names_add(&names, key);
    names_sort(&names);
    for (size_t i = 0; i < names.n; i++)
        json_object_set(layers, names.names[i],
                        json_object_get(x->layers, names.names[i]));
    names_free(&names);
    json_object_set_new(doc, "version",
                        version ? json_incref(version)
                                : json_string(LUT_VERSION));
    json_object_set_new(doc, "sae_config", sae_config_of(x, layers));
    v = json_object_get(x->old, "model_config");
    json_object_set(doc, "model_config",
                    v ? v : json_object_get(x->first, "model_config"));
    json_object_set_new(doc, "layers", layers);
    v = json_object_get(x->old, "creation_info");
    json_object_set(doc, "creation_info",
                    v ? v : json_object_get(x->first, "creation_info"));
    json_object_foreach(x->old, key, v)
    {
        if (!json_object_get(doc, key))
            json_object_set(doc, key, v);
    }
    return doc;
}

/* metadata.json as it is; none is no error.  One of another format must not be
 * mixed with tables. */
static int
load_old(json_t **old, const char *path, struct err *err)
{
    struct js root, version, layers;
    const char *s;
    int rc = 0;
    size_t n;

    *old = NULL;
    if (file_missing(path))
        return 0;
    if (!(*old = js_load(path, err)))
        return -1;
    root = js_root(*old, path);
    version = js_get(&root, "version");
    layers = js_get(&root, "layers");
    if (!js_is(&root, JSON_OBJECT))
        rc = js_bad(&root, "an object", err);
    else if (!js_absent(&version))
        rc = js_str(&version, &s, &n, err);
    if (rc == 0 && !js_absent(&version) && strncmp(s, "1.", 2) != 0)
        rc = js_bad(&version, "1.x: tables of another format", err);
    if (rc == 0 && !js_is(&layers, JSON_OBJECT))
        rc = js_bad(&layers, "an object", err);
    if (rc < 0) {
        json_decref(*old);
        *old = NULL;
    }
    return rc;
}

int
index_check(const char *dir, struct err *err)
{
    struct str path = { 0 };
    json_t *old;
    int rc;

    str_addf(&path, "%s/metadata.json", dir);
    rc = load_old(&old, path.s, err);
    json_decref(old);
    str_free(&path);
    return rc;
}

/* *bad is x.bad. */
static int
write_once(const char *dir, bool prune, const struct names *files,
           struct err *bad, struct err *err)
{
    struct index x = { .dir = dir, .prune = prune };
    struct str path = { 0 }, lines = { 0 };
    char *text = NULL;
    json_t *doc;
    int rc;

    str_addf(&path, "%s/metadata.json", dir);
    rc = load_old(&x.old, path.s, err);
    if (rc == 0 && !x.old && files->n == 0)
        rc = err_set(err, EX_NOINPUT, "%s: has no tables (*" LUT_SUFFIX ")",
                     dir);
    x.layers = json_object();
    if (rc == 0)
        rc = add_files(&x, files, err);
    if (rc == 0) {
        add_old(&x);
        doc = document(&x);
        text = json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        json_decref(doc);
        if (!text)
            rc = err_set(err, EX_DATAERR, "%s: cannot be written as JSON",
                         path.s);
    }
    if (rc == 0) {
        js_put_json(&lines, text, strlen(text));
        str_addc(&lines, '\n');
        /* an entry is one level deeper here than in its table */
        rc = js_check(lines.s, lines.n, path.s, 1, err);
    }
    if (rc == 0)
        rc = out_put(path.s, OUT_FORCE | OUT_OWN, lines.s, lines.n, err);
    *bad = x.bad;
    json_decref(x.old);
    json_decref(x.layers);
    json_decref(x.first);
    str_free(&lines);
    str_free(&path);
    free(text);
    return rc;
}

int
index_write(const char *dir, bool prune, struct err *err)
{
    struct names files, after = { 0 };
    struct err bad = { 0 };
    bool same = false;
    int rc = list_files(&files, dir, err);

    /* until no other run has published a file in between */
    for (int i = 0; i < MAX_TRIES && rc == 0 && !same; i++) {
        rc = write_once(dir, prune, &files, &bad, err);
        if (rc < 0 || (rc = list_files(&after, dir, err)) < 0)
            break;
        same = files.n == after.n;
        for (size_t k = 0; same && k < files.n; k++)
            same = strcmp(files.names[k], after.names[k]) == 0;
        names_free(&files);
        files = after;
        after = (struct names){ 0 };
    }
    names_free(&files);
    names_free(&after);
    if (rc < 0 || !bad.status)
        return rc;
    *err = bad;
    return -1;
}
