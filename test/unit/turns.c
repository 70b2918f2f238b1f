/* SPDX-License-Identifier: ISC */
/*
 * What of a rendered conversation the model says: test/ref/turns_ref.py has the
 * cases, and of each what that is by hand, and by trl's way of finding it.
 */
#include "core/text/turns.h"

#include <sys/stat.h>

#include "test/unit/data.h"
#include "test/unit/ref.h"
#include "test/unit/tok.h"

static char *dir;

static struct chat *
open_chat(const json_t *template, struct err *err)
{
    const char *path = ref_path(dir, "template.jinja");
    FILE *f = fopen(path, "w");
    struct chat *chat = NULL;

    if (!f || fputs(json_string_value(template), f) < 0 || fclose(f))
        return NULL;
    chat_open(&chat, dir, path, err);
    return chat;
}

/* Are these the ids of the turn's text, and of no other? */
static bool
has_ids(const struct tok *tok, const struct ids *ids,
        const struct chat_turn *turn, const struct rendered *whole)
{
    struct str text = { 0 };
    struct err err;
    bool same =
        tok_decode(tok, ids->id + turn->first_id, turn->end_id - turn->first_id,
                   false, &text, &err) == 0 &&
        same_text(&text, whole->text.s + turn->begin, turn->end - turn->begin);

    str_free(&text);
    return same;
}

static void
check_said(const json_t *c, const struct tok *tok, const struct rendered *whole,
           struct chat_turn *turns, size_t n)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *said = json_object_get(c, "said"), *trl;
    struct ids ids = { 0 };
    struct err err = { 0 };
    bool same = n == json_array_size(said), coded;
    size_t k = 0, n_trl;

    for (size_t i = 0; same && i < n; i++) {
        const json_t *want = json_array_get(said, i);
        size_t nbytes = json_string_length(want);

        same = turns[i].end - turns[i].begin == nbytes &&
               !memcmp(whole->text.s + turns[i].begin, json_string_value(want),
                       nbytes);
    }
    if (!tap_ok(same, "%s: is said, by hand", name))
        for (size_t i = 0; i < n; i++)
            printf("# \"%.*s\"\n", (int)(turns[i].end - turns[i].begin),
                   whole->text.s + turns[i].begin);
    coded = chat_encode(tok, whole, turns, n, 0, &ids, &err) == 0;
    for (size_t i = 0; coded && i < n; i++)
        coded = has_ids(tok, &ids, &turns[i], whole);
    tap_ok(coded, "%s: has ids of its own %s", name, err.what);
    trl = json_object_get(c, "trl");
    n_trl = json_array_size(trl);
    same = true;
    for (size_t i = 0; i < n_trl; i++) {
        const json_t *span = json_array_get(trl, i);
        size_t begin = (size_t)json_integer_value(json_array_get(span, 0));
        const json_t *end = json_array_get(span, 1);

        if (k < n && turns[k].begin == begin) {
            same &= json_is_null(end) ||
                    turns[k].end == (size_t)json_integer_value(end);
            k++;
        } else {
            same &=
                json_is_null(end) || begin >= (size_t)json_integer_value(end);
        }
    }
    if (n_trl)
        tap_ok(same && k == n, "%s: is what trl's prefixes give", name);
    ids_free(&ids);
}

static void
check_case(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const char *text = json_string_value(json_object_get(c, "text"));
    const char *says = json_string_value(json_object_get(c, "error"));
    const json_t *json = json_object_get(c, "tokenizer"),
                 *vars = json_object_get(c, "vars"),
                 *list = json_object_get(c, "eos");
    struct rendered whole = { 0 };
    struct chat_turn *turns = NULL;
    struct tok *tok = NULL;
    struct err err = { 0 };
    int32_t eos[8];
    size_t n = 0, n_eos = json_array_size(list);
    struct chat *chat = open_chat(json_object_get(c, "template"), &err);

    for (size_t i = 0; i < n_eos; i++)
        eos[i] = (int32_t)json_integer_value(json_array_get(list, i));
    if (!tap_ok(chat &&
                    tok_parse(&tok, json_string_value(json),
                              json_string_length(json), "t", &err) == 0 &&
                    chat_render(chat, vars, &whole, &err) == 0 &&
                    same_text(&whole.text, text, strlen(text)),
                "%s: is rendered as by Jinja2", name)) {
        printf("# %s\n", err.what);
    } else if (chat_turns(chat, tok, eos, n_eos, vars, &whole, &turns, &n,
                          &err) < 0) {
        if (!tap_ok(says && err.status == EX_DATAERR && !turns &&
                        !strncmp(err.what, says, strlen(says)),
                    "%s: is refused, and why", name))
            printf("# %s\n", err.what);
    } else {
        tap_ok(!says, "%s: is found", name);
        check_said(c, tok, &whole, turns, n);
    }
    free(turns);
    rendered_free(&whole);
    tok_close(tok);
    chat_close(chat);
}

static void
check_all(const char *folder)
{
    const char *python = getenv("PYTHON") ? getenv("PYTHON") : "python3";
    struct str command = { 0 };
    char *line = NULL;
    size_t cap = 0, n = 0;
    FILE *f;

    str_addf(&command, "%s test/ref/turns_ref.py %s", python, folder);
    f = popen(command.s, "r");
    while (f && getline(&line, &cap, f) > 0) {
        json_t *c = json_loads(line, 0, NULL);

        if (json_object_get(c, "skip"))
            tap_skip("replies", "Python has no jinja2");
        else
            check_case(c);
        json_decref(c);
        n++;
    }
    tap_ok(f && pclose(f) == 0 && n > 0, "turns_ref.py runs %s", folder);
    free(line);
    str_free(&command);
}

int
main(void)
{
    const char *folder = data_path("templates");
    struct stat st;

    setenv("SOURCE_DATE_EPOCH", "1767323045", 1); /* 2026-01-02 03:04:05 */
    setenv("TZ", "UTC", 1);
    dir = ref_dir();
    check_all("");
    if (stat(folder, &st) == 0)
        check_all(folder);
    else
        tap_skip("replies by published templates", "no such TEST_DATA");
    ref_remove(dir);
    return tap_done();
}
