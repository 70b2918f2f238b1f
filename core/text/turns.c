/* SPDX-License-Identifier: ISC */
#include "core/text/turns.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"
#include "core/text/tok_impl.h"
#include "core/tty.h"

#define SHOWN 60 /* columns of a text in a message */

struct finder {
    const struct tok *tok;
    const int32_t *eos; /* [n_eos] */
    size_t n_eos;
    const struct rendered *whole;
    bool first[256]; /* bytes that special tokens begin with */
};

/* The run that byte 'at' is in; n_runs behind the last. */
static size_t
run_at(const struct rendered *r, size_t at)
{
    size_t low = 0, high = r->n_runs;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (r->runs[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool
is_data(const struct rendered *r, size_t at)
{
    size_t run = run_at(r, at);

    return run < r->n_runs && r->runs[run].of != 0;
}

/* The longest special token that the text has at 'at', a byte of the template,
 * or NULL. */
static const struct added *
special_at(const struct finder *f, size_t at, size_t end)
{
    const struct added *best = NULL;
    const char *s = f->whole->text.s;

    for (size_t i = 0; i < f->tok->n_added; i++) {
        const struct added *a = &f->tok->added[i];
        size_t n = a->content.n;

        if (a->special && n > (best ? best->content.n : 0) && n <= end - at &&
            s[at] == a->content.s[0] && !memcmp(s + at, a->content.s, n) &&
            !is_data(f->whole, at + n - 1))
            best = a;
    }
    return best;
}

/* Goes to the next special token of the template in [*at, end): its end is *at
 * then; or NULL. */
static const struct added *
next_special(const struct finder *f, size_t *at, size_t end)
{
    const struct rendered *r = f->whole;

    for (size_t run = run_at(r, *at); run < r->n_runs && *at < end; run++)
        for (; *at < end && *at < r->runs[run].end; ++*at) {
            const struct added *a;

            if (r->runs[run].of != 0) {
                *at = smaller(end, r->runs[run].end);
                break;
            }
            a = f->first[(unsigned char)r->text.s[*at]]
                    ? special_at(f, *at, end)
                    : NULL;
            if (a) {
                *at += a->content.n; /* "|>" is another run's, after a name */
                return a;
            }
        }
    return NULL;
}

static bool
is_eos(const struct finder *f, int32_t id)
{
    for (size_t i = 0; i < f->n_eos; i++)
        if (f->eos[i] == id)
            return true;
    return false;
}

/* Where what message i says from 'begin' on ends; the reply before it ends at
 * 'before'. */
static size_t
find_end(const struct finder *f, size_t i, size_t before, size_t begin)
{
    const struct rendered *r = f->whole;
    size_t limit = r->text.n, own = begin, at = begin;
    const struct added *a, *opener = NULL;

    while ((a = next_special(f, &before, begin)))
        opener = a;
    for (size_t k = run_at(r, begin); k < r->n_runs; k++) {
        if (r->runs[k].of == i + 1) {
            own = r->runs[k].end;
        } else if (r->runs[k].of != 0) {
            limit = larger(begin, k ? r->runs[k - 1].end : 0);
            break;
        }
    }
    while ((a = next_special(f, &at, limit)))
        if (is_eos(f, a->id))
            return at;
    at = own;
    a = next_special(f, &at, limit);
    return a && a != opener ? at : own;
}

/* Where the last run ends that is not the template's, or with *of of that
 * source, which becomes *of; 0: there is none. */
static size_t
last_data(const struct rendered *r, uint32_t *of)
{
    for (size_t k = r->n_runs; k-- > 0;)
        if (*of ? r->runs[k].of == *of : r->runs[k].of != 0) {
            *of = r->runs[k].of;
            return r->runs[k].end;
        }
    return 0;
}

/* The bytes of 'prompt' from 'at' on stand in the text at 'to'. */
static bool
stands_at(const struct rendered *r, size_t to, const struct rendered *prompt,
          size_t at)
{
    size_t n = prompt->text.n - at;

    return r->text.n >= to && r->text.n - to >= n &&
           (n == 0 || !memcmp(r->text.s + to, prompt->text.s + at, n));
}

static int
no_prompt(size_t i, const struct rendered *prompt, size_t at, struct err *err)
{
    struct str end = { 0 };

    if (at == prompt->text.n)
        at = 0;
    str_esc_end(&end, prompt->text.s + at, prompt->text.n - at, SHOWN);
    err_set(err, EX_DATAERR,
            "messages[%zu]: its prompt ends with \"%s\", which the whole "
            "conversation does not have there, so its reply is not found "
            "(--template FILE can mark replies by {%% generation %%})",
            i, end.s ? end.s : "");
    str_free(&end);
    return -1;
}

/* Where the reply of message i begins. */
static int
find_begin(const struct finder *f, size_t i, const struct rendered *prompt,
           size_t *begin, struct err *err)
{
    uint32_t of = 0;
    size_t at, to;

    if (stands_at(f->whole, 0, prompt, 0)) {
        *begin = prompt->text.n;
        return 0;
    }
    at = last_data(prompt, &of);
    to = last_data(f->whole, &of);
    if (at == prompt->text.n || !stands_at(f->whole, to, prompt, at))
        return no_prompt(i, prompt, at, err);
    *begin = to + prompt->text.n - at;
    return 0;
}

/* Renders the first n messages as a prompt. */
static int
render_prompt(const struct chat *chat, const json_t *vars, size_t n,
              struct rendered *prompt, struct err *err)
{
    json_t *some = json_copy((json_t *)(uintptr_t)vars), *list = json_array();
    const json_t *all = json_object_get(vars, "messages");
    struct err cause;
    int rc = 0;

    for (size_t i = 0; i < n; i++)
        json_array_append(list, json_array_get(all, i));
    json_object_set_new(some, "messages", list);
    json_object_set_new(some, "add_generation_prompt", json_true());
    if (chat_render(chat, some, prompt, &cause) < 0)
        rc = err_set(err, cause.status,
                     "messages[%zu]: its prompt, the %zu message%s before it: "
                     "%s",
                     n, n, plural(n), cause.what);
    json_decref(some);
    return rc;
}

static bool
is_reply(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));

    return role &&
           (!strcmp(role, "assistant") || !strcmp(role, "assistant_tool_call"));
}

static void
add_turn(struct chat_turn **turns, size_t *n, size_t *cap, size_t begin,
         size_t end)
{
    if (begin >= end)
        return;
    if (*n == *cap)
        *turns = xgrow(*turns, *n, cap, sizeof(**turns));
    (*turns)[(*n)++] = (struct chat_turn){ .begin = begin, .end = end };
}

int
chat_turns(const struct chat *chat, const struct tok *tok, const int32_t *eos,
           size_t n_eos, const json_t *vars, const struct rendered *whole,
           struct chat_turn **turns, size_t *n, struct err *err)
{
    struct finder f = {
        .tok = tok, .eos = eos, .n_eos = n_eos, .whole = whole
    };
    const json_t *messages = json_object_get(vars, "messages");
    size_t cap = 0, begin, end = 0;
    int rc = 0;

    *turns = NULL;
    *n = 0;
    if (whole->has_generation) {
        for (size_t i = 0; i < whole->n_said; i++)
            add_turn(turns, n, &cap, whole->said[i].begin, whole->said[i].end);
        return 0;
    }
    for (size_t i = 0; i < tok->n_added; i++)
        if (tok->added[i].special && tok->added[i].content.n)
            f.first[(unsigned char)tok->added[i].content.s[0]] = true;
    for (size_t i = 0; rc == 0 && i < json_array_size(messages); i++) {
        struct rendered prompt = { 0 };

        if (!is_reply(json_array_get(messages, i)))
            continue;
        rc = render_prompt(chat, vars, i, &prompt, err);
        if (rc == 0)
            rc = find_begin(&f, i, &prompt, &begin, err);
        if (rc == 0 && begin < end)
            rc = err_set(err, EX_DATAERR,
                         "messages[%zu]: the template does not render it after "
                         "the reply before it",
                         i);
        if (rc == 0) {
            end = find_end(&f, i, end, begin);
            add_turn(turns, n, &cap, begin, end);
        }
        rendered_free(&prompt);
    }
    if (rc < 0) {
        free(*turns);
        *turns = NULL;
        *n = 0;
    }
    return rc;
}
