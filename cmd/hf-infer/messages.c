/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/messages.h"

#include <string.h>

#include "cmd/hf-infer/prompt.h"
#include "core/format/stdir.h"
#include "core/jpull.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"

#define MAX_WARNED 32 /* names of variables */

int
messages_check_json(const char *text, size_t nbytes, const char *name,
                    struct err *err)
{
    size_t mark = js_mark(text, nbytes);
    struct jpull j = jpull_start(text + mark, nbytes - mark, JS_DEPTH);

    return jpull_skip(&j)
               ? 0
               : err_data(err, name, "has NaN or Infinity, which are not JSON");
}

json_t *
messages_read(const struct run *run, struct err *err)
{
    static const char *const none[] = { NULL };
    const char *name =
        strcmp(run->messages, "-") ? run->messages : "standard input";
    struct str text = { 0 };
    json_t *v = NULL, *vars = NULL;
    struct js root;

    if (file_read_all(run->messages, JS_MAX_BYTES, &text, err) == 0)
        v = js_parse_nuls(text.n ? text.s : "", text.n, name, err);
    if (v && messages_check_json(text.s, text.n, name, err) < 0) {
        json_decref(v);
        v = NULL;
    }
    str_free(&text);
    if (!v)
        return NULL;
    if (json_is_array(v))
        v = json_pack("{s:o}", "messages", v);
    root = js_root(v, name);
    if (json_is_object(v))
        vars = chat_vars(&root, none, err);
    else
        js_bad(&root, "an array of messages, or an object with messages", err);
    json_decref(v);
    return vars;
}

int
messages_check(struct run *run, struct err *err)
{
    run->variables = json_object();
    for (size_t i = 0; i < run->template_vars.n; i++) {
        const char *arg = run->template_vars.item[i];

        if (!strncmp(arg, "messages=", strlen("messages=")))
            return err_set(err, TU_USAGE,
                           "--template-var messages: --messages gives these");
        if (chat_set_var(run->variables, arg, run->strict_utf8, err) < 0)
            return -1;
    }
    return 0;
}

int
messages_open(struct run *run, struct err *err)
{
    return stdir_check(run->dir, false, err) < 0
               ? -1
               : chat_open(&run->templates, run->dir, run->template, err);
}

/* --system is the first message, where there is none of the system's. */
static int
add_system(const struct run *run, const char *where, json_t *vars,
           struct err *err)
{
    json_t *messages = json_object_get(vars, "messages");
    const char *role =
        json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    json_t *text;

    if (role && (!strcmp(role, "system") || !strcmp(role, "developer")))
        return err_set(err, EX_DATAERR,
                       "%s: the messages begin with one of the %s (--system "
                       "gives another)",
                       where, role);
    text = chat_text("--system", run->system, strlen(run->system),
                     run->strict_utf8, err);
    if (!text)
        return -1;
    return json_array_insert_new(
        messages, 0, json_pack("{s:s,s:o}", "role", "system", "content", text));
}

/* Warns of variables that say something, which the template does not read. */
static void
warn_unused(struct run *run, json_t *vars)
{
    const char *key;
    json_t *v;

    json_object_foreach(vars, key, v)
    {
        if (json_is_null(v) ||
            ((json_is_array(v) || json_is_object(v)) && !json_array_size(v) &&
             !json_object_size(v)) ||
            chat_mentions(run->templates, vars, key) ||
            json_object_get(run->unused, key) ||
            json_object_size(run->unused) == MAX_WARNED)
            continue;
        err_warn("%s: does not use \"%s\", which is ignored",
                 chat_name(run->templates), key);
        if (!run->unused)
            run->unused = json_object();
        json_object_set_new(run->unused, key, json_true());
    }
}

int
messages_render(struct run *run, const char *where, json_t *vars,
                struct rendered *rendered, struct err *err)
{
    struct err cause;

    if (run->system &&
        add_system(run, where ? where : prompt_name(run), vars, err) < 0)
        return -1;
    json_object_update_missing(vars, run->variables);
    warn_unused(run, vars);
    if (!json_object_get(vars, "add_generation_prompt"))
        json_object_set_new(vars, "add_generation_prompt", json_true());
    if (chat_render(run->templates, vars, rendered, &cause) == 0)
        return 0;
    return err_set(err, cause.status, "%s%s%s", where ? where : "",
                   where ? ": " : "", cause.what);
}

int
messages_ids(struct run *run, const char *where, json_t *vars, struct ids *ids,
             struct err *err)
{
    struct rendered rendered = { 0 };
    int rc = messages_render(run, where, vars, &rendered, err);

    if (rc == 0)
        rc = chat_encode(run->tok, &rendered, NULL, 0, 0, ids, err);
    rendered_free(&rendered);
    return rc;
}
