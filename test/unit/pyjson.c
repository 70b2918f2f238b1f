/* core/pyjson against Python itself: test/ref/pyjson_corpus.py. */
#include "core/pyjson.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/tap.h"

/* One case: the same bytes, or both refuse. */
static int
agree(const char *text, size_t n, const char *want)
{
    struct str got = { 0 };
    struct err err = { 0 };
    int rc = pyjson_dumps(&got, text, n, "corpus", &err);
    int good = rc < 0 ? !strcmp(want, "!") && err.status == EX_DATAERR
                      : got.s && !strcmp(got.s, want);

    if (!good)
        printf("# %.100s: %.100s (expected %.100s)\n", text,
               rc < 0 ? err.what : got.s, want);
    str_free(&got);
    return good;
}

static void
test_corpus(void)
{
    const char *python = getenv("PYTHON");
    char command[512];
    char *text = NULL, *want = NULL;
    size_t cap = 0, want_cap = 0, n = 0, n_refused = 0, n_wrong = 0;
    ssize_t k;
    FILE *f;

    snprintf(command, sizeof(command), "%s test/ref/pyjson_corpus.py",
             python ? python : "python3");
    f = popen(command, "r");
    while (f && (k = getline(&text, &cap, f)) > 0) {
        ssize_t w = getline(&want, &want_cap, f);

        if (w <= 0)
            break;
        text[--k] = want[--w] = '\0';
        n++;
        n_refused += !strcmp(want, "!");
        n_wrong += !agree(text, (size_t)k, want);
        if (n_wrong > 20)
            break;
    }
    if (f)
        pclose(f);
    free(text);
    free(want);
    tap_ok(n >= 100000, "pyjson: the corpus has %zu texts, 100000 at least", n);
    tap_ok(n_refused > 5000, "pyjson: Python refuses %zu of them", n_refused);
    tap_ok(n_wrong == 0, "pyjson: each gives Python's bytes or is refused");
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
    str_free(&out);
}

int
main(void)
{
    test_corpus();
    test_error();
    return tap_done();
}
