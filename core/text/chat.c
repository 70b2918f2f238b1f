/* SPDX-License-Identifier: ISC */
#include "core/text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

struct chat {
    char *name;
    struct template *given, *tools; /* tools: NULL without "tool_use" */
    struct err no_tools;            /* why "tool_use" is wrong, if it is */
    json_t *tokens;                 /* "bos_token": text */
    struct hash *hash;
    char digest[HASH_MAX_HEX];
};

/* ---- files ---- */

/* A file of a model's directory: 1, 0 if it is not there, or -1. */
static int
load(const char *dir, const char *name, json_t **v, struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    str_addf(&path, "%s/%s", dir, name);
    *v = NULL;
    if (!file_missing(path.s)) {
        *v = js_load(path.s, err);
        rc = *v ? 1 : -1;
    }
    str_free(&path);
    return rc;
}

static int
read_file(const char *path, struct str *text, struct str *name, struct err *err)
{
    str_adds(name, path);
    return file_read_regular(path, TEMPLATE_MAX_BYTES, text, err) < 0 ? -1 : 1;
}

/* The template of a name among those of tokenizer_config.json; and all their
 * names. */
static int
find_in(const char *dir, const json_t *config, const char *which,
        struct str *text, struct str *name, struct str *names, struct err *err)
{
    struct js root, own;
    int rc = 0;

    str_addf(name, "%s/tokenizer_config.json", dir);
    root = js_root(config, name->s);
    own = js_get(&root, "chat_template");
    if (js_absent(&own) || (!json_is_string(own.v) && !json_is_array(own.v)))
        rc = js_absent(&own)
                 ? 0
                 : js_bad(&own, "a string, or an array of objects", err);
    else if (json_is_string(own.v) && !strcmp(which, "default"))
        rc = 1;
    for (size_t i = 0; json_is_array(own.v) && i < json_array_size(own.v);
         i++) {
        struct js each = js_at(&own, i), its = js_get(&each, "name");
        struct js found = js_get(&each, "template");
        const char *s;
        size_t n;

        if (js_str(&its, &s, NULL, err) < 0 || js_str(&found, &s, &n, err) < 0)
            return -1;
        s = json_string_value(its.v);
        str_addf(names, "%s%s", names->n ? ", " : "", s);
        if (rc == 0 && !strcmp(s, which)) {
            own.v = found.v;
            rc = 1;
        }
    }
    if (rc == 1) {
        str_adds(name, ": chat_template");
        if (json_object_get(config, "chat_template") != own.v)
            str_addf(name, " %s", which);
        str_add(text, json_string_value(own.v), json_string_length(own.v));
    }
    return rc;
}

/* Finds one of the model's own templates: 1, 0 if there is none, or -1. */
static int
find(const char *dir, const json_t *config, const char *which, struct str *text,
     struct str *name, struct str *names, struct err *err)
{
    struct str path = { 0 }, more = { 0 };
    int rc = 0;

    str_addf(&path, "%s/chat_template.jinja", dir);
    str_addf(&more, "%s/additional_chat_templates/%s.jinja", dir, which);
    if (!file_missing(path.s) && !strcmp(which, "default"))
        rc = read_file(path.s, text, name, err);
    else if (!file_missing(more.s))
        rc = read_file(more.s, text, name, err);
    else if (file_missing(path.s))
        rc = find_in(dir, config, which, text, name, names, err);
    str_free(&path);
    str_free(&more);
    return rc;
}

static bool
is_file(const char *which)
{
    return strchr(which, '/') || str_ends(which, ".jinja") ||
           !file_missing(which);
}

/* Opens the template 'which', a file or a name, or none: 1, 0 or -1. */
static int
open_one(struct chat *chat, struct template **t, const char *dir,
         const json_t *config, const char *which, bool file, struct str *names,
         struct err *err)
{
    struct str text = { 0 }, name = { 0 };
    int rc = file ? read_file(which, &text, &name, err)
                  : find(dir, config, which, &text, &name, names, err);

    if (rc == 1)
        rc = template_open(t, name.s, text.n ? text.s : "", text.n, err) < 0
                 ? -1
                 : 1;
    if (rc == 1 && !chat->name)
        chat->name = xstrdup(name.s);
    hash_add(chat->hash, text.n ? text.s : "", text.n);
    str_free(&text);
    str_free(&name);
    return rc;
}

static int
open_templates(struct chat *chat, const char *dir, const char *which,
               const json_t *config, struct err *err)
{
    struct str names = { 0 };
    int rc =
        open_one(chat, &chat->given, dir, config, which ? which : "default",
                 which && is_file(which), &names, err);

    if (rc == 1 && !which) /* if it is wrong, the other is no worse */
        open_one(chat, &chat->tools, dir, config, "tool_use", false, &names,
                 &chat->no_tools);
    if (rc == 0 && which)
        err_set(err, EX_DATAERR, "%s: has no chat template \"%s\"%s%s%s", dir,
                which, names.n ? " (it has " : "", names.n ? names.s : "",
                names.n ? ")" : "");
    else if (rc == 0 && names.n)
        err_set(err, EX_DATAERR,
                "%s: has no default chat template (--template NAME: %s)", dir,
                names.s);
    else if (rc == 0)
        err_set(err, EX_DATAERR,
                "%s: has no chat template (--template FILE gives one, in the "
                "language of chat_template.jinja)",
                dir);
    str_free(&names);
    return rc == 1 ? 0 : -1;
}

/* ---- special tokens ---- */

/* Members that end with _token, strings or objects with a content. */
static void
add_tokens(json_t *to, json_t *from)
{
    const char *key;
    json_t *v;

    json_object_foreach(from, key, v)
    {
        json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;

        if (str_ends(key, "_token") && json_is_string(text) &&
            !json_object_get(to, key))
            json_object_set(to, key, text);
    }
}

static void
end_digest(struct chat *chat)
{
    char *tokens = json_dumps(chat->tokens, JSON_SORT_KEYS);

    hash_add(chat->hash, tokens, strlen(tokens));
    hash_end(chat->hash, chat->digest);
    free(tokens);
}

int
chat_open(struct chat **out, const char *dir, const char *which,
          struct err *err)
{
    struct chat *chat = xcalloc(1, sizeof(*chat));
    json_t *config, *map = NULL;
    int rc = load(dir, "tokenizer_config.json", &config, err);

    chat->tokens = json_object();
    chat->hash = hash_new(HASH_XXH3);
    if (rc >= 0)
        rc = load(dir, "special_tokens_map.json", &map, err);
    if (rc >= 0) {
        add_tokens(chat->tokens, config);
        add_tokens(chat->tokens,
                   json_object_get(config, "extra_special_tokens"));
        add_tokens(chat->tokens, map);
        rc = open_templates(chat, dir, which, config, err);
    }
    json_decref(config);
    json_decref(map);
    end_digest(chat);
    if (rc < 0) {
        chat_close(chat);
        chat = NULL;
    }
    *out = chat;
    return rc < 0 ? -1 : 0;
}

void
chat_close(struct chat *chat)
{
    if (!chat)
        return;
    template_close(chat->given);
    template_close(chat->tools);
    json_decref(chat->tokens);
    free(chat->name);
    free(chat);
}

const char *
chat_name(const struct chat *chat)
{
    return chat->name;
}

const char *
chat_digest(const struct chat *chat)
{
    return chat->digest;
}

/* ---- conversations ---- */

/* Does a template get lists of objects where it expects some?  Each character
 * of a string of JSON would be an item to it.  Looks from the k-th name on. */
static int
check_lists(const json_t *vars, const char *file, int k, struct err *err)
{
    static const char *const names[][3] = {
        { "messages", "an array of messages", "a message, an object" },
        { "tools", "an array of objects", "a tool, an object" },
        { "documents", "an array of objects", "a document, an object" }
    };
    const struct js root = js_root(vars, file);

    for (; k < 3; k++) {
        struct js list = js_get(&root, names[k][0]);

        if (k > 0 && js_absent(&list))
            continue;
        if (!js_is(&list, JSON_ARRAY))
            return js_bad(&list, names[k][1], err);
        for (size_t i = 0; i < json_array_size(list.v); i++) {
            struct js each = js_at(&list, i);

            if (!js_is(&each, JSON_OBJECT))
                return js_bad(&each, names[k][2], err);
        }
    }
    return 0;
}

json_t *
chat_vars(const struct js *object, const char *const *settings, struct err *err)
{
    struct js more = js_get(object, "chat_template_kwargs");
    json_t *vars, *kwargs, *v;
    const char *key;
    int rc = 0;

    if (!js_absent(&more) && !js_is(&more, JSON_OBJECT)) {
        js_bad(&more, "an object", err);
        return NULL;
    }
    vars = json_copy((json_t *)(uintptr_t)object->v);
    json_object_del(vars, "chat_template_kwargs");
    for (; *settings; settings++)
        json_object_del(vars, *settings);
    kwargs = (json_t *)(uintptr_t)more.v;
    json_object_foreach(kwargs, key, v)
    {
        if (json_object_get(vars, key) && rc == 0)
            rc = err_data(err, object->file,
                          "\"%s\" stands in chat_template_kwargs and next to "
                          "it",
                          key);
        json_object_set(vars, key, v);
    }
    if (rc == 0 && check_lists(vars, object->file, 0, err) == 0)
        return vars;
    json_decref(vars);
    return NULL;
}

json_t *
chat_text(const char *name, const char *text, size_t n, bool strict_utf8,
          struct err *err)
{
    struct str fixed = { 0 };
    json_t *v = NULL;

    if (tok_utf8(name, text, n, strict_utf8, &fixed, err) == 0)
        v = fixed.n ? json_stringn(fixed.s, fixed.n)
                    : json_stringn_nocheck(text, n);
    str_free(&fixed);
    return v;
}

int
chat_set_var(json_t *vars, const char *arg, bool strict_utf8, struct err *err)
{
    const char *v = strchr(arg, '=');
    size_t n = v ? (size_t)(v - arg) : 0;
    struct str name = { 0 };
    json_t *value;
    int rc = 0;

    if (n == 0)
        return err_set(err, TU_USAGE,
                       "--template-var: \"%s\" is not NAME=VALUE", arg);
    str_add(&name, arg, n);
    if (json_object_get(vars, name.s))
        rc =
            err_set(err, TU_USAGE, "--template-var %s: is given twice", name.s);
    v++;
    value = json_loads(v, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (value && rc == 0)
        rc = js_check(v, strlen(v), "--template-var", 1, err);
    if (!value && rc == 0 &&
        !(value = chat_text("--template-var", v, strlen(v), strict_utf8, err)))
        rc = -1;
    if (rc == 0 && json_object_set(vars, name.s, value) < 0)
        rc = err_set(err, TU_USAGE, "--template-var: a name is not UTF-8");
    if (rc == 0)
        rc = check_lists(vars, "--template-var", 1, err);
    json_decref(value);
    str_free(&name);
    return rc;
}

static bool
has_tools(const json_t *vars)
{
    const json_t *tools = json_object_get(vars, "tools");

    return tools && !json_is_null(tools);
}

/* The template of a conversation. */
static const struct template *
template_of(const struct chat *chat, const json_t *vars)
{
    return chat->tools && has_tools(vars) ? chat->tools : chat->given;
}

bool
chat_mentions(const struct chat *chat, const json_t *vars, const char *variable)
{
    return template_mentions(template_of(chat, vars), variable);
}

int
chat_render(const struct chat *chat, const json_t *vars,
            struct rendered *rendered, struct err *err)
{
    json_t *all;
    int rc;

    if (chat->no_tools.status && has_tools(vars)) {
        *err = chat->no_tools;
        return -1;
    }
    all = json_pack("{s:n,s:n,s:b}", "tools", "documents",
                    "add_generation_prompt", 0);
    json_object_update(all, chat->tokens);
    json_object_update(all, (json_t *)(uintptr_t)vars);
    rc = template_render(template_of(chat, vars), all, rendered, err);
    json_decref(all);
    return rc;
}

int
chat_encode(const struct tok *tok, const struct rendered *rendered,
            struct chat_turn *turns, size_t n_turns, int flags, struct ids *ids,
            struct err *err)
{
    const char *text = rendered->text.n ? rendered->text.s : "";
    size_t n = rendered->text.n, at = 0, from = ids->n;
    uint8_t *data = xmalloc(n + 1);
    int rc = 0;

    for (size_t i = 0, a = 0; i < rendered->n_runs; a = rendered->runs[i++].end)
        memset(data + a, rendered->runs[i].of != 0, rendered->runs[i].end - a);
    /* the borders are each turn's begin and end, and the end of all */
    for (size_t i = 0; i <= 2 * n_turns && rc == 0; i++) {
        struct chat_turn *turn = i < 2 * n_turns ? &turns[i / 2] : NULL;
        size_t to = !turn ? n : i % 2 ? turn->end : turn->begin;

        if (to > at)
            rc = tok_encode_marked(tok, text + at, data + at, to - at,
                                   flags | (at ? TOK_MORE : 0), ids, err);
        at = to;
        if (turn)
            *(i % 2 ? &turn->end_id : &turn->first_id) = ids->n;
    }
    if (rc < 0)
        ids->n = from;
    free(data);
    return rc;
}
