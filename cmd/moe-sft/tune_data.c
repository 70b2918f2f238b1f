/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/tune_data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/train/lm.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/text/turns.h"
#include "core/tty.h"

#define DATA_MAX ((size_t)1 << 36) /* bytes of what is no regular file */

/* A line as it is read. */
struct line {
    struct tune_data *data;
    struct tune_text *text;
    char *where; /* "chats.jsonl: line 7" */
    struct js root;
};

/* ---- what the model says of text ---- */

/* The eos_token of tokenizer_config.json, which may be an object with its
 * content, or else the first that config.json or generation_config.json has. */
static int
find_eos(struct tune_text *t, struct err *err)
{
    struct str path = { 0 };
    struct js root, js;
    json_t *config = NULL;
    const char *name;
    int rc = 0;

    t->eos = t->config->n_eos ? t->config->eos[0] : -1;
    str_addf(&path, "%s/tokenizer_config.json", t->dir);
    if (!file_missing(path.s)) {
        config = js_load(path.s, err);
        rc = config ? 0 : -1;
    }
    root = js_root(config, path.s);
    js = js_get(&root, "eos_token");
    if (js_is(&js, JSON_OBJECT))
        js = js_get(&js, "content");
    name = json_string_value(js.v);
    if (name && tok_id(t->tok, name) >= 0)
        t->eos = tok_id(t->tok, name);
    json_decref(config);
    str_free(&path);
    return rc;
}

static int
open_tok(struct tune_text *t, struct err *err)
{
    struct str path = { 0 };
    int rc;

    if (t->tok)
        return 0;
    str_addf(&path, "%s/tokenizer.json", t->dir);
    rc = tok_open(&t->tok, path.s, err);
    str_free(&path);
    return rc < 0 ? -1 : find_eos(t, err);
}

static int
open_chat(struct tune_text *t, struct err *err)
{
    json_t *vars = (json_t *)(uintptr_t)t->vars, *v;
    const char *key;

    if (t->chat)
        return 0;
    if (chat_open(&t->chat, t->dir, t->template, err) < 0)
        return -1;
    json_object_foreach(vars, key, v)
    {
        if (!chat_mentions(t->chat, vars, key))
            err_warn("%s: does not use \"%s\", which is ignored",
                     chat_name(t->chat), key);
    }
    return 0;
}

void
tune_text_close(struct tune_text *t)
{
    tok_close(t->tok);
    chat_close(t->chat);
    t->tok = NULL;
    t->chat = NULL;
}

/* ---- the forms of a line ---- */

/* Puts the line before what is wrong in a text. */
static int
at_line(const struct line *line, const struct err *cause, struct err *err)
{
    return err_set(err, cause->status, "%s: %s", line->where, cause->what);
}

static void
put_labels(const struct line *line, size_t n, bool target)
{
    struct ids *labels = &line->data->labels;
    const struct ids *ids = &line->data->ids;

    for (size_t i = 0; i < n; i++)
        ids_add(labels, target ? ids->id[labels->n] : LM_NO_LABEL);
}

/* Appends the eos, unless the line has an end already. */
static int
put_eos(const struct line *line, size_t begin, struct err *err)
{
    struct ids *ids = &line->data->ids;
    int32_t eos = line->text->eos;

    if (eos < 0)
        return err_set(err, EX_DATAERR,
                       "%s: has no eos token, which text ends with",
                       line->text->dir);
    if (ids->n == begin || ids->id[ids->n - 1] != eos)
        ids_add(ids, eos);
    return 0;
}

static int
read_text(const struct line *line, const struct js *js, int flags,
          struct err *err)
{
    struct ids *ids = &line->data->ids;
    size_t first = ids->n, n;
    struct err cause;
    const char *s;

    if (js_str(js, &s, &n, err) < 0 || open_tok(line->text, err) < 0)
        return -1;
    if (tok_encode(line->text->tok, s, n, flags, ids, &cause) < 0)
        return at_line(line, &cause, err);
    /* an end of the example is as it should be */
    if (ids->n > first)
        tok_warn_added(line->text->tok, ids->id + first, ids->n - first,
                       flags | TOK_OPEN, &line->text->said);
    return 0;
}

static int
add_text(const struct line *line, struct err *err)
{
    struct js text = js_get(&line->root, "text");
    size_t begin = line->data->ids.n;

    if (read_text(line, &text, TOK_SPECIAL, err) < 0 ||
        put_eos(line, begin, err) < 0)
        return -1;
    put_labels(line, line->data->ids.n - begin, true);
    return 0;
}

static int
add_completion(const struct line *line, struct err *err)
{
    struct js prompt = js_get(&line->root, "prompt");
    struct js completion = js_get(&line->root, "completion");
    size_t begin = line->data->ids.n, middle;

    if (read_text(line, &prompt, TOK_SPECIAL | TOK_OPEN, err) < 0)
        return -1;
    middle = line->data->ids.n;
    put_labels(line, middle - begin, false);
    if (read_text(line, &completion, middle > begin ? TOK_MORE : 0, err) < 0 ||
        put_eos(line, middle, err) < 0)
        return -1;
    put_labels(line, line->data->ids.n - middle, true);
    return 0;
}

/* The variables of a conversation, and those of all of them that it does not
 * have itself.  NaN may be where the template does not look. */
static json_t *
read_vars(const struct line *line, struct err *err)
{
    static const char *const none[] = { NULL };
    json_t *vars = chat_vars(&line->root, none, err), *v;
    const struct js root = js_root(vars, line->where);
    const char *key;

    json_object_foreach(vars, key, v)
    {
        struct js js = js_get(&root, key);

        if (chat_mentions(line->text->chat, vars, key) &&
            js_finite(&js, err) < 0) {
            json_decref(vars);
            return NULL;
        }
    }
    if (vars && line->text->vars)
        json_object_update_missing(vars, (json_t *)(uintptr_t)line->text->vars);
    if (vars) /* all is said, and nothing is asked */
        json_object_set_new(vars, "add_generation_prompt", json_false());
    return vars;
}

/* What ends a reply: ids at 'eos' [1 + CONFIG_MAX_EOS]. */
static size_t
find_ends(const struct tune_text *t, int32_t *eos)
{
    size_t n = t->eos >= 0;

    eos[0] = t->eos;
    for (size_t i = 0; i < t->config->n_eos; i++)
        eos[n++] = t->config->eos[i];
    return n;
}

static void
put_turns(const struct line *line, const struct chat_turn *turns, size_t n)
{
    struct ids *labels = &line->data->labels;
    size_t begin = labels->n;

    for (size_t i = 0; i < n; i++) {
        put_labels(line, begin + turns[i].first_id - labels->n, false);
        put_labels(line, turns[i].end_id - turns[i].first_id, true);
    }
    put_labels(line, line->data->ids.n - labels->n, false);
}

static int
add_rendered(const struct line *line, const json_t *vars, struct err *err)
{
    const struct tune_text *t = line->text;
    struct rendered whole = { 0 };
    int32_t eos[1 + CONFIG_MAX_EOS];
    struct chat_turn *turns = NULL;
    struct ids one = { 0 };
    struct err cause;
    size_t n = 0;
    int rc = 0;

    if (chat_render(t->chat, vars, &whole, &cause) < 0 ||
        chat_turns(t->chat, t->tok, eos, find_ends(t, eos), vars, &whole,
                   &turns, &n, &cause) < 0 ||
        /* by itself: it begins a text */
        chat_encode(t->tok, &whole, turns, n, 0, &one, &cause) < 0)
        rc = at_line(line, &cause, err);
    else if (one.n == 0)
        rc = err_set(err, EX_DATAERR, "%s: %s renders nothing of it",
                     line->where, chat_name(t->chat));
    if (rc == 0) {
        ids_append(&line->data->ids, &one, 0, one.n);
        put_turns(line, turns, n);
    }
    free(turns);
    ids_free(&one);
    rendered_free(&whole);
    return rc;
}

static int
add_messages(const struct line *line, struct err *err)
{
    struct js list = js_get(&line->root, "messages");
    struct tune_text *t = line->text;
    json_t *vars;
    int rc = 0;

    if (!js_is(&list, JSON_ARRAY) || json_array_size(list.v) == 0)
        return js_bad(&list, "an array of messages", err);
    if (open_tok(t, err) < 0 || open_chat(t, err) < 0)
        return -1;
    vars = read_vars(line, err);
    if (!vars)
        return -1;
    for (size_t i = 0; rc == 0 && i < json_array_size(list.v); i++) {
        struct js message = js_at(&list, i), role = js_get(&message, "role");
        const char *name;

        rc = js_str(&role, &name, NULL, err);
    }
    if (rc == 0)
        rc = add_rendered(line, vars, err);
    json_decref(vars);
    return rc;
}

/* One number of "ids" or "labels". */
static int
read_id(const struct line *line, const struct js *js, bool label, int32_t *id,
        struct err *err)
{
    int64_t most = line->text->config->vocab_size - 1, v;
    char expected[80];

    if (js_i64(js, label ? LM_NO_LABEL : 0, most, &v, err) == 0 &&
        (v >= 0 || v == LM_NO_LABEL)) {
        *id = (int32_t)v;
        return 0;
    }
    snprintf(expected, sizeof(expected),
             "a token id, an integer from 0 to %lld%s", (long long)most,
             label ? ", or -100" : "");
    return js_bad(js, expected, err);
}

static int
add_ids(const struct line *line, struct err *err)
{
    struct js ids = js_get(&line->root, "ids");
    struct js labels = js_get(&line->root, "labels");
    size_t n = json_array_size(ids.v), n_labels = json_array_size(labels.v);

    if (!js_is(&ids, JSON_ARRAY) || n == 0)
        return js_bad(&ids, "an array of token ids", err);
    if (!js_is(&labels, JSON_ARRAY))
        return js_bad(&labels, "an array of labels", err);
    if (n != n_labels)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu id%s and %zu label%s (expected as many)",
                       line->where, n, plural(n), n_labels, plural(n_labels));
    for (size_t i = 0; i < n; i++) {
        struct js id = js_at(&ids, i), label = js_at(&labels, i);
        int32_t v;

        if (read_id(line, &id, false, &v, err) < 0)
            return -1;
        ids_add(&line->data->ids, v);
        if (read_id(line, &label, true, &v, err) < 0)
            return -1;
        ids_add(&line->data->labels, v);
    }
    return 0;
}

static int
add_form(const struct line *line, struct err *err)
{
    static const struct {
        const char *member, *other; /* of which there is one, or both */
        int (*add)(const struct line *line, struct err *err);
    } forms[] = { { "messages", "messages", add_messages },
                  { "prompt", "completion", add_completion },
                  { "text", "text", add_text },
                  { "ids", "labels", add_ids } };
    const size_t n_forms = sizeof(forms) / sizeof(*forms);
    size_t found = n_forms;

    if (!js_is(&line->root, JSON_OBJECT))
        return err_set(err, EX_DATAERR, "%s: is not a JSON object",
                       line->where);
    for (size_t i = 0; i < n_forms; i++) {
        struct js a = js_get(&line->root, forms[i].member);
        struct js b = js_get(&line->root, forms[i].other);

        if (js_absent(&a) && js_absent(&b))
            continue;
        if (found < n_forms)
            return err_set(err, EX_DATAERR,
                           "%s: has \"%s\" and \"%s\" (expected one kind of "
                           "example)",
                           line->where, forms[found].member, forms[i].member);
        found = i;
    }
    if (found == n_forms)
        return err_set(err, EX_DATAERR,
                       "%s: has none of \"messages\", \"prompt\" and "
                       "\"completion\", \"text\", \"ids\" and \"labels\"",
                       line->where);
    return forms[found].add(line, err);
}

/* ---- an example ---- */

/* Cuts what the line has added, and counts it. */
static int
end_example(const struct line *line, size_t begin, size_t number, size_t ctx,
            struct err *err)
{
    struct tune_data *d = line->data;
    const struct config *c = line->text->config;
    size_t n = d->ids.n - begin, n_targets = 0;
    bool cut = n > ctx;

    if (cut)
        n = ctx;
    d->ids.n = d->labels.n = begin + n;
    d->labels.id[begin] = LM_NO_LABEL;
    for (size_t i = 0; i < n; i++) {
        n_targets += d->labels.id[begin + i] != LM_NO_LABEL;
        if (d->ids.id[begin + i] >= c->vocab_size)
            return err_set(err, EX_DATAERR,
                           "%s: token id %d is not in the vocabulary (0 to "
                           "%lld)",
                           line->where, (int)d->ids.id[begin + i],
                           (long long)c->vocab_size - 1);
    }
    d->n_truncated += cut;
    if (cut && n_targets == 0) {
        d->n_dropped++;
        d->ids.n = d->labels.n = begin;
        return 0;
    }
    if (n > (size_t)c->max_positions)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu token%s (the model has %lld position%s; "
                       "--ctx cuts)",
                       line->where, n, plural(n), (long long)c->max_positions,
                       plural((uint64_t)c->max_positions));
    if (d->n == d->cap)
        d->examples = xgrow(d->examples, d->n, &d->cap, sizeof(*d->examples));
    d->examples[d->n++] =
        (struct tune_example){ .first = begin, .n = n, .line = number };
    d->n_targets += n_targets;
    d->longest = larger(d->longest, n);
    return 0;
}

static bool
is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!memchr(" \t\r", s[i], 3))
            return false;
    return true;
}

static int
add_line(struct tune_data *d, const char *name, struct tune_text *text,
         const char *s, size_t nbytes, size_t number, size_t ctx,
         struct err *err)
{
    struct line line = { .data = d, .text = text };
    size_t begin = d->ids.n;
    struct str where = { 0 };
    json_t *v;
    int rc = -1;

    if (is_blank(s, nbytes))
        return 0;
    v = js_line(s, nbytes, name, number, err);
    if (!v)
        return -1;
    str_addf(&where, "%s: line %zu", name, number);
    line.where = where.s;
    line.root = js_root(v, where.s);
    if (add_form(&line, err) == 0)
        rc = end_example(&line, begin, number, ctx, err);
    str_free(&where);
    json_decref(v);
    return rc;
}

/* ---- the file ---- */

/* A file of another kind, which one bad line of JSON would not say. */
static int
check_lines(const char *name, const char *s, size_t nbytes, struct err *err)
{
    size_t at = js_mark(s, nbytes);

    while (at < nbytes && memchr(" \t\r\n", s[at], 4))
        at++;
    if (at == nbytes ||
        (s[at] == '{' && (at + 1 == nbytes || !memchr("\r\n", s[at + 1], 2))))
        return 0;
    return err_data(err, name, "is not JSON lines, an object on each line%s",
                    s[at] == '{'   ? " (jq -c . makes them)"
                    : s[at] == '[' ? " (jq -c '.[]' makes them of an array)"
                                   : ", such as {\"text\": \"..\"}");
}

static int
read_lines(struct tune_data *d, const char *name, struct tune_text *text,
           const char *s, size_t nbytes, size_t ctx, struct err *err)
{
    size_t number = 1;

    if (check_lines(name, s, nbytes, err) < 0)
        return -1;
    for (size_t at = js_mark(s, nbytes), n; at < nbytes;
         at += n + 1, number++) {
        const char *end = memchr(s + at, '\n', nbytes - at);

        n = end ? (size_t)(end - s) - at : nbytes - at;
        if (sig_stop())
            return sig_stopped("no step was begun", err);
        if (n > JS_MAX_BYTES)
            return err_set(err, EX_DATAERR, "%s: line %zu: over %zu bytes",
                           name, number, JS_MAX_BYTES);
        if (add_line(d, name, text, s + at, n, number, ctx, err) < 0)
            return -1;
    }
    if (d->n == 0)
        return err_set(err, EX_DATAERR, "%s: has no examples%s", name,
                       d->n_dropped ? " with a target within --ctx" : "");
    return 0;
}

static void
digest(struct tune_data *d)
{
    struct hash *hash = hash_new(HASH_XXH3);

    for (size_t i = 0; i < d->n; i++)
        hash_add_numbers(hash, &d->examples[i].n, 1, sizeof(size_t));
    hash_add_numbers(hash, d->ids.id, d->ids.n, sizeof(*d->ids.id));
    hash_add_numbers(hash, d->labels.id, d->labels.n, sizeof(*d->labels.id));
    hash_end(hash, d->digest);
}

int
tune_data_open(struct tune_data *d, const char *path, struct tune_text *text,
               size_t ctx, struct err *err)
{
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    struct str all = { 0 };
    struct map map = { 0 };
    struct stat st;
    int rc;

    *d = (struct tune_data){ 0 };
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        rc = map_open(&map, path, err);
        if (rc == 0)
            rc = read_lines(d, name, text, (const char *)map.data, map.size,
                            ctx, err);
    } else {
        rc = file_read_all(path, DATA_MAX, &all, err);
        if (rc == 0)
            rc = read_lines(d, name, text, all.s, all.n, ctx, err);
    }
    map_close(&map);
    str_free(&all);
    if (rc == 0)
        digest(d);
    return rc;
}

void
tune_data_close(struct tune_data *d)
{
    free(d->examples);
    ids_free(&d->ids);
    ids_free(&d->labels);
    *d = (struct tune_data){ 0 };
}
