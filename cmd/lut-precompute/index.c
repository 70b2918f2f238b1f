/* SPDX-License-Identifier: ISC */
/*
 * metadata.json from the files of a directory.  Array jobs write files without
 * coordination; any of them, or a last one, writes the index.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cmd/lut-precompute/cmd.h"
#include "core/compat.h"
#include "core/format/lut.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/pyjson.h"
#include "core/sig.h"
#include "core/str.h"

#define MAX_TRIES 100

/* The tables of a directory: how many.  Owner: as of dir_list(). */
static int
list_tables(struct dirent ***list, const char *dir, struct err *err)
{
    int n = dir_list(list, dir, err), n_tables = 0;

    for (int i = 0; i < n; i++)
        if (str_ends((*list)[i]->d_name, LUT_SUFFIX))
            (*list)[n_tables++] = (*list)[i];
        else
            free((*list)[i]);
    return n < 0 ? -1 : n_tables;
}

/* A table file's description of itself; NULL if it has none, or with 'err' set.
 */
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
    json_t *named;  /* an object of what files of their own call their layers */
    json_t *first;  /* what the first of our files says */
    struct err bad; /* of the first damaged one, if 'prune'; status 0: none */
};

/* Does the old index have a layer of this file? */
static bool
is_listed(const struct index *x, const char *file)
{
    const char *key, *has;
    json_t *old;

    json_object_foreach(json_object_get(x->old, "layers"), key, old)
    {
        has = json_string_value(json_object_get(old, "file"));
        if (has && !strcmp(has, file))
            return true;
    }
    return false;
}

/* Damaged files are left out; one that cannot be read now might be sound.
 * Layers of the old index stay as they are where their files do not describe
 * themselves. */
static int
add_layers(struct index *x, struct dirent **files, int n, struct err *err)
{
    const char *key;
    json_t *old;

    for (int i = 0; i < n; i++) {
        const char *file = files[i]->d_name;
        struct err why = { 0 };
        json_t *self = describe(x->dir, file, &why);
        json_t *entry = json_object_get(self, "entry");
        const char *name = json_string_value(json_object_get(self, "layer"));
        struct str own = { 0 };
        bool is_own;
        char *layer;

        if (!self && !why.status && !is_listed(x, file))
            err_set(&why, EX_DATAERR, "%s/%s: does not say what it is of",
                    x->dir, file);
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
        layer = lut_name(name);
        str_addf(&own, "%s/%s" LUT_SUFFIX, x->dir, name);
        is_own = strcmp(file, own.s + strlen(x->dir) + 1) == 0;
        if (is_own ? json_object_get(x->named, layer) != NULL
                   : !file_missing(own.s)) {
            err_warn("%s/%s: is a table of %s, which has its own file: left "
                     "out",
                     x->dir, file, layer);
        } else {
            json_object_set_new(entry, "file", json_string(file));
            json_object_set(x->layers, layer, entry);
            json_object_set_new(x->named, layer, json_string(name));
        }
        if (!x->first)
            x->first = json_incref(self);
        json_decref(self);
        str_free(&own);
        free(layer);
    }
    json_object_foreach(json_object_get(x->old, "layers"), key, old)
    {
        const char *file = json_string_value(json_object_get(old, "file"));
        char *layer = lut_name(key);
        struct str path = { 0 };

        str_addf(&path, "%s/%s", x->dir, file ? file : "");
        if (json_object_get(x->layers, layer))
            ;
        else if (!x->prune || (file && !file_missing(path.s)))
            json_object_set(x->layers, layer, old);
        else
            err_warn("%s: %s: its file is missing, left out", x->dir, key);
        str_free(&path);
        free(layer);
    }
    return 0;
}

/* num_basis and k_active of most layers, if all have their own. */
static json_t *
sae_config_of(const struct index *x, json_t *layers)
{
    json_t *old = json_object_get(x->old, "sae_config"), *config = NULL;
    size_t most = 0;
    const char *key;
    json_t *e;

    json_object_foreach(layers, key, e)
    {
        json_t *n = json_object_get(e, "num_basis"), *other;
        json_t *k = json_object_get(e, "k_active");
        size_t count = 0;
        const char *name;

        json_object_foreach(layers, name, other)
        {
            count += json_equal(json_object_get(other, "num_basis"), n) &&
                     json_equal(json_object_get(other, "k_active"), k);
        }
        if (n && k && count <= most)
            continue;
        json_decref(config);
        if (!n || !k)
            return json_incref(old);
        config = json_pack("{s:O, s:O}", "num_basis", n, "k_active", k);
        most = count;
    }
    if (x->prune && most < json_object_size(layers) && !json_equal(config, old))
        err_warn(
            "%s/metadata.json: layers differ in num_basis or k_active: "
            "sae_config has the most frequent, %lld and %lld",
            x->dir,
            (long long)json_integer_value(json_object_get(config, "num_basis")),
            (long long)json_integer_value(json_object_get(config, "k_active")));
    return config ? config : json_incref(old);
}

static int
by_name(const void *a, const void *b)
{
    return natural_order(*(const char *const *)a, *(const char *const *)b);
}

/* The document: its own keys first, then whatever else the old one had. */
static json_t *
document(const struct index *x)
{
    json_t *version = json_object_get(x->old, "version");
    json_t *doc = json_object(), *layers = json_object(), *v;
    const char *key, **names;
    size_t n = 0;

    names = xcalloc(json_object_size(x->layers), sizeof(*names));
    json_object_foreach(x->layers, key, v) names[n++] = key;
    qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++) {
        const char *name =
            json_string_value(json_object_get(x->named, names[i]));

        json_object_set(layers, name ? name : names[i],
                        json_object_get(x->layers, names[i]));
    }
    free(names);
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

/* Loads metadata.json, if there is one.  One of another format is an error: it
 * must not be replaced. */
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

/* JSON with each real number in the fewest digits that read back as it:
 * jansson writes 0.69 as 0.68999999999999995. */
static void
put_shortest(struct str *to, const char *json)
{
    while (*json) {
        size_t n = strspn(json, "+-.0123456789eE");

        if (*json == '"') {
            for (n = 1; json[n] != '"'; n++)
                n += json[n] == '\\';
            n++;
        }
        if (strchr("-0123456789", *json) && strcspn(json, ".eE") < n) {
            py_float_repr(to, strtod(json, NULL));
        } else {
            n = n ? n : 1;
            str_add(to, json, n);
        }
        json += n;
    }
}

/* Writes metadata.json. */
static int
put_document(const char *path, const json_t *doc, struct err *err)
{
    struct str shortest = { 0 }, lines = { 0 };
    char *text = json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    int rc;

    if (!text)
        return err_set(err, EX_DATAERR, "%s: cannot be written as JSON", path);
    put_shortest(&shortest, text);
    js_put_json(&lines, shortest.s, shortest.n);
    str_addc(&lines, '\n');
    /* an entry is one level deeper here than in its table */
    rc = js_check(lines.s, lines.n, path, 1, err);
    if (rc == 0)
        rc = out_put(path, OUT_RUN, lines.s, lines.n, err);
    str_free(&shortest);
    str_free(&lines);
    free(text);
    return rc;
}

/* *bad is x.bad. */
static int
write_once(const char *dir, bool prune, struct dirent **files, int n,
           struct err *bad, struct err *err)
{
    struct index x = { .dir = dir, .prune = prune };
    struct str path = { 0 };
    json_t *doc;
    int rc;

    str_addf(&path, "%s/metadata.json", dir);
    rc = load_old(&x.old, path.s, err);
    if (rc == 0 && !x.old && n == 0)
        rc = err_set(err, EX_NOINPUT, "%s: has no tables (*" LUT_SUFFIX ")",
                     dir);
    x.layers = json_object();
    x.named = json_object();
    if (rc == 0)
        rc = add_layers(&x, files, n, err);
    if (rc == 0 && json_object_size(x.layers) == 0 && x.bad.status) {
        *err = x.bad;
        rc = -1;
    }
    if (rc == 0) {
        doc = document(&x);
        rc = put_document(path.s, doc, err);
        json_decref(doc);
    }
    *bad = x.bad;
    json_decref(x.old);
    json_decref(x.layers);
    json_decref(x.named);
    json_decref(x.first);
    str_free(&path);
    return rc;
}

/* Waits until no other run writes DIR/metadata.json from what it was; where
 * directories cannot be locked, -1. */
static int
lock(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    while (fd >= 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR && !sig_stop())
        ;
    return fd;
}

static void
unlock(int fd)
{
    if (fd >= 0)
        close(fd);
}

int
index_write(const char *dir, bool prune, struct err *err)
{
    struct err bad = { 0 };
    struct dirent **files;
    int n = list_tables(&files, dir, err), before = -1;

    /* until no other run has published a file in between */
    for (int i = 0; i < MAX_TRIES && n >= 0 && n != before; i++) {
        int fd = lock(dir), rc = write_once(dir, prune, files, n, &bad, err);

        unlock(fd);
        dir_list_free(files, n);
        before = n;
        n = rc < 0 ? -1 : list_tables(&files, dir, err);
    }
    if (n >= 0)
        dir_list_free(files, n);
    if (n < 0 || !bad.status)
        return n < 0 ? -1 : 0;
    *err = bad;
    return -1;
}

int
index_elbow(const char *dir, const char *layer, double p, double value,
            struct err *err)
{
    int fd = lock(dir), rc;
    char *names[LUT_ELBOW_NAMES];
    size_t n = lut_elbow_names(layer, names);
    struct str path = { 0 };
    json_t *doc, *all;

    str_addf(&path, "%s/metadata.json", dir);
    rc = load_old(&doc, path.s, err);
    if (rc == 0 && !doc)
        rc = err_set(err, EX_NOINPUT, "%s: is gone", path.s);
    all = json_object_get(doc, "elbow_thresholds");
    if (rc == 0 && !json_is_object(all)) {
        all = json_object();
        json_object_set_new(doc, "elbow_thresholds", all);
    }
    for (size_t i = 0; i < n; i++) {
        if (i < n - 1) /* names that are looked up before it */
            json_object_del(all, names[i]);
        else if (rc == 0)
            json_object_set_new(
                all, names[i],
                json_pack("{s:f, s:f}", "elbow_p", p, "elbow_value", value));
        free(names[i]);
    }
    if (rc == 0)
        rc = put_document(path.s, doc, err);
    json_decref(doc);
    str_free(&path);
    unlock(fd);
    return rc;
}
