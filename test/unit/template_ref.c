/* SPDX-License-Identifier: ISC */
/*
 * Chat templates against Jinja2 itself, set up as transformers sets it up:
 * test/ref/chat_template_ref.py says what each case must give.
 * TEMPLATE_CASES=N: so many of the random ones, TEMPLATE_SEED=S: others.
 */
#include "core/text/template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/unit/data.h"
#include "test/unit/tap.h"

#define SHOWN 20 /* failures of a mode, at most */

struct tally {
    size_t n, n_texts, n_raised, n_refused, n_owned, n_said, n_wrong;
    size_t n_features;
    size_t n_unsupported; /* templates of which Jinja makes a text, with what
                           * no chat template uses */
};

static const char *
text_of(json_t *c, const char *key)
{
    return json_string_value(json_object_get(c, key));
}

static void
show(struct tally *t, json_t *c, const char *what, const char *got,
     size_t nbytes)
{
    json_t *fault = json_object();
    json_t *text = json_stringn_nocheck(got, nbytes);
    char *line;

    json_object_update(fault, c);
    json_object_del(fault, "of");
    json_object_set_new(fault, "what", json_string(what));
    json_object_set_new(fault, "got", text ? text : json_null());
    line = json_dumps(fault, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (t->n_wrong++ < SHOWN || getenv("TEMPLATE_CASES"))
        printf("# %s\n", line ? line : "?");
    free(line);
    json_decref(fault);
}

/* Is each byte from where the reference says?  It does not know all. */
static bool
owns(const struct rendered *r, const json_t *of)
{
    size_t at = 0, run = 0, i;
    json_t *part;

    json_array_foreach(of, i, part)
    {
        json_int_t n = json_integer_value(json_array_get(part, 0));
        json_int_t want = json_integer_value(json_array_get(part, 1));

        for (; n > 0; n--, at++) {
            while (run < r->n_runs && r->runs[run].end <= at)
                run++;
            if (run == r->n_runs)
                return false;
            if (want != -1 &&
                r->runs[run].of != (want == -2 ? RENDERED_DATA : want))
                return false;
        }
    }
    return at == r->text.n && r->n_runs > 0 && r->runs[r->n_runs - 1].end == at;
}

/* Runs ascend, and end with the text. */
static bool
sound(const struct rendered *r)
{
    size_t end = 0;

    for (size_t i = 0; i < r->n_runs; i++) {
        if (r->runs[i].end <= end)
            return false;
        end = r->runs[i].end;
    }
    return end == r->text.n;
}

static bool
said(const struct rendered *r, const json_t *spans)
{
    json_t *span;
    size_t i;

    if (r->n_said != json_array_size(spans))
        return false;
    json_array_foreach(spans, i, span)
    {
        if (r->said[i].begin !=
                (size_t)json_integer_value(json_array_get(span, 0)) ||
            r->said[i].end !=
                (size_t)json_integer_value(json_array_get(span, 1)))
            return false;
    }
    return true;
}

static void
check_text(struct tally *t, json_t *c, const struct rendered *r)
{
    const json_t *want = json_object_get(c, "expected");
    const json_t *of = json_object_get(c, "of");

    t->n_texts++;
    t->n_owned += json_is_array(of);
    t->n_said += r->n_said;
    if (r->text.n != json_string_length(want) ||
        memcmp(r->text.n ? r->text.s : "", json_string_value(want),
               r->text.n) != 0)
        show(t, c, "the text", r->text.n ? r->text.s : "", r->text.n);
    else if (!sound(r) || (json_is_array(of) && !owns(r, of)))
        show(t, c, "whose bytes they are", "", 0);
    else if (json_object_get(c, "said") && !said(r, json_object_get(c, "said")))
        show(t, c, "what the model says", "", 0);
}

static void
check_error(struct tally *t, json_t *c, const struct err *err)
{
    const char *raised = text_of(c, "raised"), *says = text_of(c, "says");
    json_int_t line = json_integer_value(json_object_get(c, "line"));
    char where[40];

    snprintf(where, sizeof(where), "t: line %lld: ", (long long)line);
    t->n_raised += raised != NULL;
    t->n_refused += raised == NULL;
    if (err->status != EX_DATAERR || strncmp(err->what, "t: line ", 8) != 0)
        show(t, c, "the error", err->what, strlen(err->what));
    else if (raised && !strstr(err->what, raised) &&
             strlen(raised) < sizeof(err->what) / 2)
        show(t, c, "the message", err->what, strlen(err->what));
    else if (json_is_true(json_object_get(c, "exact")) &&
             (strncmp(err->what, where, strlen(where)) != 0 ||
              !strstr(err->what, says)))
        show(t, c, "what the error says", err->what, strlen(err->what));
}

static void
run_case(struct tally *t, json_t *c)
{
    const json_t *text = json_object_get(c, "template");
    struct template *template = NULL;
    struct rendered r = { 0 };
    struct err err = { 0 };
    int rc = template_open(&template, "t", json_string_value(text),
                           json_string_length(text), &err);

    t->n++;
    if (rc == 0)
        rc = template_render(template, json_object_get(c, "vars"), &r, &err);
    if (json_object_get(c, "reference"))
        show(t, c, "the reference", "", 0);
    else if (json_is_false(json_object_get(c, "judge")))
        ;
    else if (rc == 0 && json_object_get(c, "expected"))
        check_text(t, c, &r);
    else if (rc == 0)
        show(t, c, "an error", r.text.n ? r.text.s : "", r.text.n);
    else if (json_is_true(json_object_get(c, "more")) &&
             strncmp(err.what, "t: line ", 8) == 0)
        t->n_unsupported++;
    else if (json_object_get(c, "expected"))
        show(t, c, "a text", err.what, strlen(err.what));
    else
        check_error(t, c, &err);
    rendered_free(&r);
    template_close(template);
}

/* What test/templates has of all that templates use. */
static void
check_features(struct tally *t, json_t *c)
{
    t->n_features = (size_t)json_integer_value(json_object_get(c, "features"));
    if (json_array_size(json_object_get(c, "lacks")))
        show(t, c, "a template that uses it", "", 0);
}

/* All cases of a mode; why there are none, or NULL. */
static const char *
run_cases(struct tally *t, const char *mode)
{
    static char why[100];
    const char *python = getenv("PYTHON");
    char command[4400], *line = NULL;
    size_t cap = 0;
    ssize_t n;
    FILE *f;

    snprintf(command, sizeof(command), "%s test/ref/chat_template_ref.py %s",
             python ? python : "python3", mode);
    *why = '\0';
    f = popen(command, "r");
    while (f && (n = getline(&line, &cap, f)) > 0) {
        json_t *c = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        const char *skip = text_of(c, "skip");

        if (skip)
            snprintf(why, sizeof(why), "%s", skip);
        else if (json_object_get(c, "lacks"))
            check_features(t, c);
        else if (c)
            run_case(t, c);
        else
            t->n_wrong++;
        json_decref(c);
    }
    if (!f || pclose(f) != 0)
        t->n_wrong++;
    free(line);
    return *why ? why : NULL;
}

static void
test_own(void)
{
    struct tally t = { 0 };
    const char *why = run_cases(&t, "own");

    if (why) {
        tap_skip("templates: test/templates", why);
        return;
    }
    tap_ok(t.n_texts > 50 && t.n_raised >= 3 && t.n_refused > 3,
           "templates: test/templates with each conversation: %zu texts, %zu "
           "times raise_exception, %zu other errors",
           t.n_texts, t.n_raised, t.n_refused);
    tap_ok(t.n_owned > t.n_texts / 2,
           "templates: of %zu texts it is known whose bytes they are",
           t.n_owned);
    tap_ok(t.n_said > 5, "templates: %zu texts are said to be the model's",
           t.n_said);
    tap_ok(t.n_wrong == 0, "templates: %zu of %zu differ from Jinja's",
           t.n_wrong, t.n);
    memset(&t, 0, sizeof(t));
    run_cases(&t, "features");
    tap_ok(t.n_wrong == 0 && t.n_features > 100,
           "templates: test/templates uses %zu features, all that are known",
           t.n_features);
}

static void
test_shared(void)
{
    const char *dir = data_path("templates");
    struct tally t = { 0 };
    char mode[4200];
    const char *why;

    snprintf(mode, sizeof(mode), "%s/FEATURES.txt", dir);
    if (access(mode, R_OK) != 0) {
        tap_skip("templates: published ones", "no templates in TEST_DATA");
        return;
    }
    snprintf(mode, sizeof(mode), "shared '%s'", dir);
    why = run_cases(&t, mode);
    if (why)
        tap_skip("templates: published ones", why);
    else
        tap_ok(t.n_wrong == 0 && t.n_texts > 100 && t.n_raised > 3,
               "templates: published ones: %zu of %zu differ from Jinja's",
               t.n_wrong, t.n);
}

static void
test_forms(void)
{
    struct tally t = { 0 };
    const char *why = run_cases(&t, "forms");

    if (why)
        tap_skip("templates: forms", why);
    else
        tap_ok(t.n_wrong == 0 && t.n_texts > 900 && t.n_refused > 30,
               "templates: spaces, spellings, errors: %zu of %zu differ from "
               "Jinja's",
               t.n_wrong, t.n);
}

static void
test_random(void)
{
    const char *n = getenv("TEMPLATE_CASES"), *seed = getenv("TEMPLATE_SEED");
    struct tally t = { 0 };
    const char *why;
    char mode[100];

    snprintf(mode, sizeof(mode), "random %d %d",
             n            ? atoi(n)
             : tap_slow() ? 100
                          : 300,
             seed ? atoi(seed) : 1);
    why = run_cases(&t, mode);
    if (why)
        tap_skip("templates: random ones", why);
    else
        tap_ok(t.n_wrong == 0 && t.n_texts > t.n / 3,
               "templates: random ones: %zu of %zu differ from Jinja's (%zu "
               "texts, %zu errors, %zu unsupported)",
               t.n_wrong, t.n, t.n_texts, t.n_refused + t.n_raised,
               t.n_unsupported);
}

int
main(void)
{
    setenv("SOURCE_DATE_EPOCH", "1767323045", 1); /* 2026-01-02 03:04:05 */
    setenv("TZ", "UTC", 1);
    test_own();
    test_shared();
    test_forms();
    test_random();
    return tap_done();
}
