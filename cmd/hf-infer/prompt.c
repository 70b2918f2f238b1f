/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/prompt.h"

#include <stdio.h>
#include <string.h>

#include "cmd/hf-infer/messages.h"
#include "core/jpull.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/splice.h"

#define FIRST_LINES 8 /* of a text, that may be JSON objects */

#define PROMPT_MAX ((size_t)1 << 30) /* bytes */

void
put_ids(struct str *str, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        str_addf(str, "%s%d", i ? " " : "", (int)ids[i]);
}

void
put_json_ids(struct str *str, const int32_t *ids, size_t n)
{
    str_addc(str, '[');
    for (size_t i = 0; i < n; i++)
        str_addf(str, "%s%d", i ? "," : "", (int)ids[i]);
    str_addc(str, ']');
}

static bool
is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
}

int
ids_parse(const char *text, size_t nbytes, const char *name, struct ids *ids,
          struct err *err)
{
    for (size_t i = 0;;) {
        size_t start;
        int64_t id = 0;

        while (i < nbytes && is_separator(text[i]))
            i++;
        if (i == nbytes)
            return 0;
        start = i;
        while (i < nbytes && text[i] >= '0' && text[i] <= '9' &&
               id <= INT32_MAX)
            id = id * 10 + (text[i++] - '0');
        if (i == start || (i < nbytes && !is_separator(text[i])) ||
            id > INT32_MAX)
            return err_set(err, EX_DATAERR,
                           "%s: \"%.*s\" is not a token id (0 to %d)", name,
                           (int)smaller(strcspn(text + start, " ,\n\t\r"), 40),
                           text + start, INT32_MAX);
        ids_add(ids, (int32_t)id);
    }
}

int
ids_check(const int32_t *ids, size_t n, int64_t vocab_size, const char *name,
          struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= vocab_size)
            return err_set(err, EX_DATAERR,
                           "%s: token id %d is not in the vocabulary "
                           "(0 to %lld)",
                           name, (int)ids[i], (long long)vocab_size - 1);
    return 0;
}

const char *
prompt_name(const struct run *run)
{
    const char *file = run->ids_text ? run->ids_text : run->prompt_file;

    if (run->prompt)
        return "-p";
    if (!file || !strcmp(file, "-"))
        return "standard input";
    return run->ids_text ? "--ids" : file;
}

int
prompt_is_text(const struct run *run, const char *name, const struct str *text,
               struct err *err)
{
    static const char *const prompts[] = { "text", "prompt", "messages",
                                           "ids" };
    const char *s = text->s ? text->s : "";
    size_t mark = js_mark(s, text->n), found = 4;
    struct jpull j = jpull_start(s + mark, text->n - mark, JS_DEPTH);
    bool jsonl = run->mode == MODE_GENERATE || run->mode == MODE_NLL ||
                 run->mode == MODE_ACTS || run->mode == MODE_RENDER;
    struct jspan key;

    if (run->as_text)
        return 0;
    j.python = true;
    if (jpull_peek(&j) == '[') { /* objects in an array are read no better */
        jpull_enter(&j, '[', "an array");
        jpull_item(&j, ']');
    }
    for (int line = 0; line < FIRST_LINES && found == 4 && !j.expected &&
                       jpull_peek(&j) == '{';
         line++) {
        jpull_enter(&j, '{', "an object");
        while (jpull_member(&j, &key)) {
            for (size_t i = 0; i < 4 && found == 4; i++)
                if (jspan_is(&key, prompts[i]))
                    found = i;
            jpull_skip(&j);
        }
    }
    if (j.expected || found == 4)
        return 0;
    return err_set(err, TU_USAGE,
                   "%s: begins with a JSON object that has \"%s\": %s%s"
                   "--as-text takes it as plain text",
                   name, prompts[found],
                   found == 2 ? "--chat --messages reads a conversation, " : "",
                   jsonl ? "--jsonl reads one object per line, " : "");
}

json_t *
prompt_say(const struct run *run, const char *name, const struct str *text,
           struct err *err)
{
    json_t *said =
        chat_text(name, text->n ? text->s : "", text->n, run->strict_utf8, err);

    return said ? json_pack("{s:[{s:s,s:o}]}", "messages", "role", "user",
                            "content", said)
                : NULL;
}

int
prompt_encode(struct run *run, const char *name, const struct str *text,
              struct ids *ids, struct err *err)
{
    struct str fixed = { 0 };
    const char *s = text->s ? text->s : "";
    size_t n = text->n, first = ids->n;
    int flags = run->plain ? TOK_PLAIN : 0, rc;
    json_t *vars;

    if (run->chat) {
        vars = prompt_say(run, name, text, err);
        rc = vars ? messages_ids(run, NULL, vars, ids, err) : -1;
        json_decref(vars);
        return rc;
    }
    if (tok_utf8(name, s, n, run->strict_utf8, &fixed, err) < 0)
        return -1;
    if (run->mode == MODE_ENCODE ? run->special : !run->raw)
        flags |= TOK_SPECIAL;
    rc = tok_encode(run->tok, fixed.n ? fixed.s : s, fixed.n ? fixed.n : n,
                    flags, ids, err);
    if (rc == 0 && run->mode != MODE_ENCODE && ids->n > first)
        tok_warn_added(run->tok, ids->id + first, ids->n - first, flags,
                       &run->said);
    str_free(&fixed);
    return rc;
}

int
prompt_bos(struct run *run, struct ids *ids, size_t first, struct err *err)
{
    const char *sae = splices_bos(run->splices);
    int32_t bos = run->config->bos;

    if (bos >= 0 && ids->n > first && ids->id[first] == bos)
        return 0;
    if (!run->prepend_bos) {
        if (sae && bos >= 0 && !run->said_bos)
            err_warn("%s: was trained on texts that begin with bos, by its "
                     "prepend_bos, and this one does not (--prepend-bos)",
                     sae);
        run->said_bos = true;
        return 0;
    }
    if (bos < 0)
        return err_set(err, EX_DATAERR,
                       "%s: config.json has no bos_token_id, for --prepend-bos",
                       run->dir);
    ids_add(ids, bos);
    memmove(ids->id + first + 1, ids->id + first,
            (ids->n - first - 1) * sizeof(*ids->id));
    ids->id[first] = bos;
    return 0;
}

/* Reads the prompt's text, or its ids. */
static int
read_text(const struct run *run, struct str *text, struct err *err)
{
    const char *list = run->ids_text, *file = run->prompt_file;
    int rc = 0;

    if (run->prompt)
        str_adds(text, run->prompt);
    else
        rc = file_read_all(file && !list ? file : "-", PROMPT_MAX, text, err);
    return rc == 0 && !run->prompt && !list
               ? prompt_is_text(run, prompt_name(run), text, err)
               : rc;
}

json_t *
prompt_vars(struct run *run, struct err *err)
{
    struct str text = { 0 };
    json_t *vars = NULL;

    if (run->messages)
        return messages_read(run, err);
    if (read_text(run, &text, err) == 0)
        vars = prompt_say(run, prompt_name(run), &text, err);
    str_free(&text);
    return vars;
}

int
prompt_ids(struct run *run, struct ids *ids, struct err *err)
{
    const char *list = run->ids_text, *name = prompt_name(run);
    struct str text = { 0 };
    json_t *vars;
    int rc;

    if (list && strcmp(list, "-") != 0)
        return ids_parse(list, strlen(list), name, ids, err);
    if (!list && run_open_tok(run, err) < 0)
        return -1;
    if (run->chat) {
        vars = prompt_vars(run, err);
        rc = vars ? messages_ids(run, NULL, vars, ids, err) : -1;
        json_decref(vars);
        return rc;
    }
    rc = read_text(run, &text, err);
    if (rc == 0)
        rc = list ? ids_parse(text.s, text.n, name, ids, err)
                  : prompt_encode(run, name, &text, ids, err);
    str_free(&text);
    return rc;
}
