/*
 * metadata.json from the files of a folder.  Array jobs write files without
 * asking each other, and any of them, or a last one, makes the index.
 */
#include "cmd/lut-precompute/index.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/lut.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"

#define TRIES 100

/* Files of layers, by name in natural order. */
struct list {
    size_t n;
    char **names;
};

static int
by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static void
list_free(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    *l = (struct list){ 0 };
}

static int
list_make(struct list *l, const char *dir, struct err *err)
{
    const size_t n_end = strlen(LUT_SUFFIX);
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc;

    *l = (struct list){ 0 };
    if (!d)
        return err_sys(err, file_status(errno), "%s", dir);
    while ((rc = folder_next(d, dir, &e, err)) > 0) {
        size_t n = strlen(e->d_name);

        if (e->d_name[0] == '.' || n <= n_end ||
            strcmp(e->d_name + n - n_end, LUT_SUFFIX) != 0)
            continue;
        l->names = xrealloc(l->names, l->n + 1, sizeof(*l->names));
        l->names[l->n++] = xstrdup(e->d_name);
    }
    closedir(d);
    if (l->n)
        qsort(l->names, l->n, sizeof(*l->names), by_name);
    return rc;
}

static bool
list_same(const struct list *a, const struct list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    return true;
}

/* What a file says of itself; NULL where that is nothing. */
static json_t *
self_of(const char *dir, const char *name, struct err *err)
{
    struct str path = { 0 };
    json_t *v = NULL;
    struct st st;
    int rc;

    str_addf(&path, "%s/%s", dir, name);
    rc = st_open(&st, path.s, err);
    if (rc == 0) {
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

static bool
is_there(const char *dir, const json_t *entry)
{
    const char *file = json_string_value(json_object_get(entry, "file"));
    struct str path = { 0 };
    bool there;

    str_addf(&path, "%s/%s", dir, file ? file : "");
    there = file && !file_missing(path.s);
    str_free(&path);
    return there;
}

struct index {
    const char *dir;
    bool prune;
    json_t *old;    /* what metadata.json was; NULL: nothing */
    json_t *layers; /* new, by full names */
    json_t *first;  /* what the first of our files says */
    struct err bad; /* of the first damaged one, if 'prune'; status 0: none */
};

/* A copy under another name, beside the layer's own file. */
static bool
is_copy(const struct list *files, const char *file, const char *layer)
{
    struct str own = { 0 };
    bool copy;

    str_addf(&own, "%s" LUT_SUFFIX, layer);
    copy = strcmp(file, own.s) != 0 &&
           bsearch(&own.s, files->names, files->n, sizeof(char *), by_name);
    str_free(&own);
    return copy;
}

/* A damaged file is left out; one that cannot be read now might be sound. */
static int
add_files(struct index *x, const struct list *files, struct err *err)
{
    for (size_t i = 0; i < files->n; i++) {
        struct err why = { 0 };
        json_t *self = self_of(x->dir, files->names[i], &why);
        json_t *entry = json_object_get(self, "entry");
        char *name;

        if (why.status && why.status != EX_DATAERR) {
            *err = why;
            return -1;
        }
        if (!self) {
            if (why.status && x->prune && !x->bad.status)
                x->bad = why;
            else if (why.status)
                err_warn("%s", why.what);
            continue;
        }
        name = lut_name(json_string_value(json_object_get(self, "layer")));
        if (is_copy(files, files->names[i], name)) {
            err_warn("%s/%s: is of %s, which has a file of its own: left out",
                     x->dir, files->names[i], name);
        } else {
            json_object_set_new(entry, "file", json_string(files->names[i]));
            json_object_set(x->layers, name, entry);
        }
        if (!x->first)
            x->first = json_incref(self);
        json_decref(self);
        free(name);
    }
    return 0;
}

/* Layers that the old index has: they stay, as it says, where their files say
 * nothing. */
static void
keep_old(struct index *x)
{
    const char *key;
    json_t *entry;

    json_object_foreach(json_object_get(x->old, "layers"), key, entry)
    {
        char *name = lut_name(key);
        bool known = json_object_get(x->layers, name) != NULL;

        if (!known && (!x->prune || is_there(x->dir, entry)))
            json_object_set(x->layers, name, entry);
        else if (!known)
            err_warn("%s: %s: its file is not there, left out", x->dir, key);
        free(name);
    }
}

/* An object's members in natural order of their names. */
static json_t *
sorted(json_t *o)
{
    json_t *to = json_object();
    struct list l = { 0 };
    const char *key;
    json_t *v;

    json_object_foreach(o, key, v)
    {
        l.names = xrealloc(l.names, l.n + 1, sizeof(*l.names));
        l.names[l.n++] = xstrdup(key);
    }
    if (l.n)
        qsort(l.names, l.n, sizeof(*l.names), by_name);
    for (size_t i = 0; i < l.n; i++)
        json_object_set(to, l.names[i], json_object_get(o, l.names[i]));
    list_free(&l);
    return to;
}

/* num_basis and k_active of all: of the first layer that has its own. */
static json_t *
sae_config_of(const struct index *x, json_t *layers)
{
    json_t *old = json_object_get(x->old, "sae_config"), *config = NULL;
    const char *key;
    json_t *e;

    json_object_foreach(layers, key, e)
    {
        json_t *n = json_object_get(e, "num_basis");
        json_t *k = json_object_get(e, "k_active");

        if (!n || !k) {
            json_decref(config);
            return json_incref(old);
        }
        if (config)
            continue;
        config = json_object();
        json_object_set(config, "num_basis", n);
        json_object_set(config, "k_active", k);
    }
    return config ? config : json_incref(old);
}

/* The document: its own keys first, then whatever else the old one had. */
static json_t *
document(const struct index *x)
{
    static const char *const kept[] = { "model_config", "creation_info" };
    json_t *doc = json_object(), *layers = sorted(x->layers), *v, *config;
    const char *key;

    v = json_object_get(x->old, "version");
    json_object_set_new(doc, "version",
                        v ? json_incref(v) : json_string(LUT_VERSION));
    config = sae_config_of(x, layers);
    if (config)
        json_object_set_new(doc, "sae_config", config);
    v = json_object_get(x->old, kept[0]);
    v = v ? v : json_object_get(x->first, kept[0]);
    if (v)
        json_object_set(doc, kept[0], v);
    json_object_set_new(doc, "layers", layers);
    v = json_object_get(x->old, kept[1]);
    v = v ? v : json_object_get(x->first, kept[1]);
    if (v)
        json_object_set(doc, kept[1], v);
    json_object_foreach(x->old, key, v)
    {
        if (!json_object_get(doc, key))
            json_object_set(doc, key, v);
    }
    return doc;
}

static int
write_json(const char *path, const json_t *doc, struct err *err)
{
    char *text = json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    struct str lines = { 0 };
    int rc;

    if (!text)
        return err_set(err, EX_DATAERR, "%s: cannot be written as JSON", path);
    js_put_json(&lines, text, strlen(text));
    str_addc(&lines, '\n');
    /* an entry lies one level deeper here than in its table */
    rc = js_check(lines.s, lines.n, path, 1, err);
    if (rc == 0)
        rc = out_put(path, OUT_FORCE, lines.s, lines.n, err);
    str_free(&lines);
    free(text);
    return rc;
}

/* metadata.json as it is; none is no error.  What is of another format is not
 * to be mixed with tables. */
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

/* 'bad' is x.bad. */
static int
write_once(const char *dir, bool prune, const struct list *files,
           struct err *bad, struct err *err)
{
    struct index x = { .dir = dir, .prune = prune };
    struct str path = { 0 };
    json_t *doc;
    int rc;

    str_addf(&path, "%s/metadata.json", dir);
    rc = load_old(&x.old, path.s, err);
    if (rc == 0 && !x.old && files->n == 0)
        rc = err_set(err, EX_NOINPUT, "%s: has no tables (*.lut.safetensors)",
                     dir);
    if (rc == 0) {
        x.layers = json_object();
        rc = add_files(&x, files, err);
    }
    if (rc == 0) {
        keep_old(&x);
        doc = document(&x);
        rc = write_json(path.s, doc, err);
        json_decref(doc);
    }
    *bad = x.bad;
    json_decref(x.old);
    json_decref(x.layers);
    json_decref(x.first);
    str_free(&path);
    return rc;
}

int
index_folder(const char *dir, bool prune, struct err *err)
{
    struct list files, after = { 0 };
    struct err bad = { 0 };
    int rc = list_make(&files, dir, err);

    /* a file that another run published in between is not to be left out */
    for (int i = 0; i < TRIES && rc == 0; i++) {
        rc = write_once(dir, prune, &files, &bad, err);
        if (rc < 0 || (rc = list_make(&after, dir, err)) < 0 ||
            list_same(&files, &after))
            break;
        list_free(&files);
        files = after;
        after = (struct list){ 0 };
    }
    list_free(&files);
    list_free(&after);
    if (rc < 0 || !bad.status)
        return rc;
    *err = bad;
    return -1;
}
