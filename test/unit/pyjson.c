/* core/pyjson against Python itself: test/ref/pyjson_corpus.py. */
#include "core/pyjson.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/tap.h"

/* One case: the same bytes, or both refuse; '\1' stands for a new line. */
static int
agree(const char *text, size_t n, const char *want, int indent)
{
    struct str got = { 0 };
    struct err err = { 0 };
    int rc = indent ? pyjson_indent(&got, text, n, indent, "corpus", &err)
                    : pyjson_dumps(&got, text, n, "corpus", &err);
    int good;

    for (size_t i = 0; rc == 0 && i < got.n; i++)
        if (got.s[i] == '\n')
            got.s[i] = '\1';
    good = rc < 0 ? !strcmp(want, "!") && err.status == EX_DATAERR
                  : got.s && !strcmp(got.s, want);

    if (!good)
        printf("# %.100s: %.100s (expected %.100s)\n", text,
               rc < 0 ? err.what : got.s, want);
    str_free(&got);
    return good;
}

/* The corpus: text, one line sorted, indented by 4; false at its end. */
static bool
next_case(FILE *f, char *line[3])
{
    size_t cap = 0;

    for (int i = 0; i < 3; i++) {
        ssize_t n;

        free(line[i]);
        line[i] = NULL;
        n = getline(&line[i], &cap, f);
        cap = 0;
        if (n <= 0)
            return false;
        line[i][n - 1] = '\0';
    }
    return true;
}

static void
test_corpus(void)
{
    const char *python = getenv("PYTHON");
    char command[512], *line[3] = { NULL };
    size_t n = 0, n_refused = 0, n_wrong = 0, n_indented = 0;
    FILE *f;

    snprintf(command, sizeof(command), "%s test/ref/pyjson_corpus.py",
             python ? python : "python3");
    f = popen(command, "r");
    while (f && n_wrong + n_indented < 20 && next_case(f, line)) {
        n++;
        n_refused += !strcmp(line[1], "!");
        n_wrong += !agree(line[0], strlen(line[0]), line[1], 0);
        n_indented += !agree(line[0], strlen(line[0]), line[2], 4);
    }
    if (f)
        pclose(f);
    for (int i = 0; i < 3; i++)
        free(line[i]);
    tap_ok(n >= 100000, "pyjson: the corpus has %zu texts, 100000 at least", n);
    tap_ok(n_refused > 5000, "pyjson: Python refuses %zu of them", n_refused);
    tap_ok(n_wrong == 0, "pyjson: each gives Python's bytes or is refused");
    tap_ok(n_indented == 0, "pyjson_indent: so does each with indent=4");
}

static void
test_error(void)
{
    struct str out = { 0 };
    struct err err = { 0 };
    char deep[2 * (PYJSON_DEPTH + 1)];

    pyjson_dumps(&out, "{\n \"a\": [1 2]}", 14, "m.json", &err);
    tap_ok(
        !strcmp(err.what, "m.json: line 2, column 10: ',' or ']' is missing"),
        "pyjson: an error names line and column (%s)", err.what);
    memset(deep, '[', PYJSON_DEPTH + 1);
    memset(deep + PYJSON_DEPTH + 1, ']', PYJSON_DEPTH + 1);
    tap_ok(pyjson_dumps(&out, deep, sizeof(deep), "d", &err) < 0 &&
               strstr(err.what, "nested too deep"),
           "pyjson: nesting is bounded");
    tap_ok(pyjson_dumps(&out, "\"a\xff\"", 4, "d", &err) < 0 &&
               strstr(err.what, "not UTF-8"),
           "pyjson: what is not UTF-8 is refused");
    tap_ok(pyjson_members("\xef\xbb\xbf{}", 5, "d", NULL, NULL, &err) < 0 &&
               strstr(err.what, "byte order mark"),
           "pyjson_members: a byte order mark is refused");
    tap_ok(pyjson_members("{} {}", 5, "d", NULL, NULL, &err) < 0 &&
               strstr(err.what, "column 4: something follows"),
           "pyjson_members: what follows the object is refused");
    str_free(&out);
}

static void
test_twice(void)
{
    static const struct {
        const char *text, *key;
    } t[] = {
        { "{\"a\":1,\"a\":2}", "\"a\"" },
        { "{\"c\":0,\"b\":1,\"c\":2}", "\"c\"" },
        { "{\"b\":[{\"x\":1,\"\\u0078\":2}]}", "\"x\"" },
        { "{\"\":1,\"b\":1,\"\":1}", "\"\"" },
    };
    struct err err = { 0 };
    char want[80];

    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        snprintf(want, sizeof(want), "m: the key %s is there twice", t[i].key);
        tap_ok(pyjson_members(t[i].text, strlen(t[i].text), "m", NULL, NULL,
                              &err) < 0 &&
                   err.status == EX_DATAERR && !strcmp(err.what, want),
               "pyjson_members: %s: %s", t[i].text, err.what);
    }
}

/* "KEY|VALUE|KEY AS IN THE TEXT|VALUE AS IN THE TEXT;" */
static int
note_member(void *ctx, const struct pyjson_member *m, struct err *err)
{
    (void)err;
    str_addf(ctx, "%s|%s|%.*s|%.*s;", m->key, m->value, (int)m->key_text_nbytes,
             m->key_text, (int)m->value_text_nbytes, m->value_text);
    return 0;
}

static void
test_members(void)
{
    static const char text[] =
        " { \"b\\u0041\" : {\"z\":1.0,\"a\" :2} ,\n\"a\":[1, 2 ] }\n";
    struct str got = { 0 };
    struct err err = { 0 };

    tap_ok(pyjson_members(text, sizeof(text) - 1, "m", note_member, &got,
                          &err) == 0 &&
               !strcmp(got.s, "bA|{\"a\": 2, \"z\": 1.0}|\"b\\u0041\"|"
                              "{\"z\":1.0,\"a\" :2};a|[1, 2]|\"a\"|[1, 2 ];"),
           "pyjson_members: in canonical form and as in the text");
    str_free(&got);
}

int
main(void)
{
    test_corpus();
    test_members();
    test_twice();
    test_error();
    return tap_done();
}
