/* SPDX-License-Identifier: ISC */
#include "core/model/config_file.h"

#include <stdint.h>
#include <string.h>

#include "core/format/stdir.h"
#include "core/jpull.h"
#include "core/map.h"

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
    return f->v ? 0 : -1;
}

void
config_file_close(struct config_file *f)
{
    json_decref(f->v);
    str_free(&f->path);
    *f = (struct config_file){ 0 };
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

int
config_file_untied(struct str *to, const char *dir, struct err *err)
{
    struct str text = { 0 };
    struct jspan key;
    struct jpull j;
    int rc = config_file_text(&text, dir, err);

    j = jpull_start(text.s, text.n, JS_DEPTH);
    j.python = true;
    jpull_peek(&j);
    for (jpull_enter(&j, '{', "an object"); jpull_member(&j, &key);) {
        const char *value = j.p;

        if (jpull_skip(&j) && jspan_is(&key, "tie_word_embeddings"))
            str_addf(to, "%.*sfalse%s", (int)(value - text.s), text.s, j.p);
    }
    if (rc == 0 && !to->n)
        rc = err_set(err, EX_DATAERR,
                     "%s/config.json: has changed while it was read", dir);
    str_free(&text);
    return rc;
}
