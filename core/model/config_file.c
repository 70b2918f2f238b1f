/* SPDX-License-Identifier: ISC */
#include "core/model/config_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/format/stdir.h"
#include "core/jpull.h"
#include "core/map.h"
#include "core/mem.h"

static void
add_path(struct str *to, const char *dir)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    str_addf(to, "%.*s/config.json", (int)n, dir);
}

int
config_file_open(struct config_file *f, const char *dir, struct err *err)
{
    *f = (struct config_file){ 0 };
    add_path(&f->path, dir);
    f->v = js_load(f->path.s, err);
    f->root = js_root(f->v, f->path.s);
    if (!f->v && file_missing(f->path.s)) /* what is there, then? */
        stdir_check(dir, true, err);
    return f->v ? stdir_check(dir, false, err) : -1;
}

void
config_file_close(struct config_file *f)
{
    json_decref(f->v);
    str_free(&f->path);
    *f = (struct config_file){ 0 };
}

const struct model_family *
config_file_family(const struct config_file *f)
{
    struct js text = js_get(&f->root, "text_config");
    struct js type = js_get(&text, "model_type");
    struct js whole = js_get(&f->root, "model_type");
    const struct model_family *vision =
        js_is(&whole, JSON_STRING) ? family_find(json_string_value(whole.v))
                                   : NULL;

    if (vision && vision->vision) /* the text's half does not run */
        return vision;
    if (!js_is(&type, JSON_STRING))
        type = whole;
    return js_is(&type, JSON_STRING) ? family_find(json_string_value(type.v))
                                     : NULL;
}

int
config_file_near(struct config_file *f, const char *path, struct err *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    bool is_file = stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
    char *dir = !is_file ? xstrdup(path)
                : slash  ? xstrndup(path, (size_t)(slash - path) + 1)
                         : xstrdup(".");
    struct str name = { 0 };
    int rc = 0;

    *f = (struct config_file){ 0 };
    add_path(&name, dir);
    if (!file_missing(name.s))
        rc = config_file_open(f, dir, err) == 0 ? 1 : -1;
    str_free(&name);
    free(dir);
    return rc;
}

int
config_family(const struct model_family **family, const char *path,
              struct err *err)
{
    struct config_file f;
    int rc = config_file_near(&f, path, err);

    *family = rc > 0 ? config_file_family(&f) : NULL;
    config_file_close(&f);
    return rc < 0 ? -1 : 0;
}

int
config_refuse_vision(const struct model_family *f, const char *dir,
                     struct err *err)
{
    return f && f->vision
               ? err_set(err, EX_DATAERR,
                         "%s/config.json: model_type \"%s\" is a vision "
                         "encoder, which reads no text (hf-infer --images)",
                         dir, f->model_type)
               : 0;
}

int
config_file_text(struct str *to, const char *dir, struct err *err)
{
    struct str path = { 0 };
    int rc;

    add_path(&path, dir);
    rc = file_read_regular(path.s, JS_MAX_BYTES, to, err);
    str_free(&path);
    return rc;
}

static const struct config_edit *
find_edit(const struct config_edit *edits, size_t n, const struct jspan *key)
{
    for (size_t i = 0; i < n; i++)
        if (jspan_is(key, edits[i].key))
            return &edits[i];
    return NULL;
}

int
config_file_edit(struct str *to, const char *dir,
                 const struct config_edit *edits, size_t n, struct err *err)
{
    struct str text = { 0 };
    uint64_t done = 0; /* a bit for each edit */
    const char *opened, *end, *lead = "\n  ";
    size_t n_lead = 3, n_kept = 0;
    struct jspan key;
    struct jpull j;
    int rc = config_file_text(&text, dir, err);

    j = jpull_start(text.s, text.n, JS_DEPTH);
    j.python = true;
    jpull_peek(&j);
    opened = end = j.p + 1;
    if (jpull_enter(&j, '{', "an object"))
        str_add(to, text.s, (size_t)(end - text.s));
    while (jpull_member(&j, &key)) {
        const char *value = j.p;
        const struct config_edit *e = find_edit(edits, n, &key);

        if (!jpull_skip(&j))
            break;
        end += strspn(end, " \t\r\n");
        lead = *end == ',' ? end + 1 : opened;
        n_lead = (size_t)(key.s - 1 - lead);
        end = j.p;
        done |= e ? (uint64_t)1 << (e - edits) : 0;
        if (e && !e->value)
            continue;
        str_adds(to, n_kept++ ? "," : "");
        str_add(to, lead, (size_t)((e ? value : end) - lead));
        str_adds(to, e ? e->value : "");
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (edits[i].value && !edits[i].if_there && !(done >> i & 1)) {
            str_adds(to, n_kept++ ? "," : "");
            str_addf(to, "%.*s\"%s\": %s", (int)n_lead, lead, edits[i].key,
                     edits[i].value);
        }
    if (rc == 0 && !jpull_done(&j))
        rc = err_set(err, EX_DATAERR, "%s/config.json: is not an object", dir);
    else if (rc == 0)
        str_add(to, end, (size_t)(text.s + text.n - end));
    str_free(&text);
    return rc;
}
