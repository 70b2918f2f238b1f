/* SPDX-License-Identifier: ISC */
/* core/pyjson against Python itself: test/ref/pyjson_corpus.py, an eighth of
 * what it draws with TU_WAYS=one. */
#include "core/pyjson.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "test/unit/ref.h"

/* One case: the same bytes, or both refuse; '\1' stands for a new line. */
static int
agree(const char *text, size_t n, const char *want, int indent)
{
    struct str got = { 0 };
    struct err err = { 0 };
    int rc = indent ? pyjson_indent(&got, text, n, indent, "corpus", &err)
                    : pyjson_indent(&got, text, n, 0, "corpus", &err);
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
    char *line[3] = { NULL }, *dir = ref_dir();
    size_t few = tap_one_way() ? 5 : 1;
    size_t n = 0, n_refused = 0, n_wrong = 0, n_indented = 0;
    FILE *f = dir && ref_kept(tap_one_way() ? "pyjson_corpus.py --few"
                                            : "pyjson_corpus.py",
                              dir, "json")
                  ? fopen(ref_path(dir, "corpus"), "r")
                  : NULL;

    while (f && n_wrong + n_indented < 20 && next_case(f, line)) {
        n++;
        n_refused += !strcmp(line[1], "!");
        n_wrong += !agree(line[0], strlen(line[0]), line[1], 0);
        n_indented += !agree(line[0], strlen(line[0]), line[2], 4);
    }
    if (f)
        fclose(f);
    if (dir)
        ref_remove(dir);
    for (int i = 0; i < 3; i++)
        free(line[i]);
    tap_ok(n >= 100000 / few, "pyjson: the corpus has %zu texts", n);
    tap_ok(n_refused > 5000 / few, "pyjson: Python refuses %zu of them",
           n_refused);
    tap_ok(n_wrong == 0, "pyjson: each gives Python's bytes or is refused");
    tap_ok(n_indented == 0, "pyjson_indent: so does each with indent=4");
}

static void
test_error(void)
{
    struct str out = { 0 };
    struct err err = { 0 };

    pyjson_indent(&out, "{\n \"a\": [1 2]}", 14, 0, "m.json", &err);
    tap_ok(!strcmp(err.what, "m.json: line 2, column 10: expected ',' or ']'"),
           "pyjson: an error names line and column (%s)", err.what);
    tap_ok(pyjson_indent(&out, "\"a\xff\"", 4, 0, "d", &err) < 0 &&
               strstr(err.what, "expected valid UTF-8"),
           "pyjson: what is not UTF-8 is refused");
    tap_ok(pyjson_members("\xef\xbb\xbf{}", 5, "d", NULL, NULL, &err) < 0 &&
               strstr(err.what, "byte order mark"),
           "pyjson_members: a byte order mark is refused");
    tap_ok(pyjson_members("{} {}", 5, "d", NULL, NULL, &err) < 0 &&
               strstr(err.what, "column 4: expected nothing but spaces after"),
           "pyjson_members: what follows the object is refused");
    str_free(&out);
}

/* 'n' zeros in an array, that in brackets: 'depth' levels in all. */
static struct str
nested(const char *open, const char *close, int depth, size_t n)
{
    struct str s = { 0 };

    for (int i = 1; i < depth; i++)
        str_adds(&s, open);
    str_adds(&s, "[0");
    for (size_t i = 1; i < n; i++)
        str_adds(&s, ",0");
    str_addc(&s, ']');
    for (int i = 1; i < depth; i++)
        str_adds(&s, close);
    return s;
}

static int
no_member(void *ctx, const struct pyjson_member *m, struct err *err)
{
    (void)ctx, (void)m, (void)err;
    return 0;
}

/* The same limit for all three, whatever it is that nests. */
static void
test_depth(void)
{
    static const char *const of[][3] = { { "[", "]", "65" },
                                         { "{\"a\":", "}", "321" } };
    struct err err = { 0 };

    for (size_t i = 0; i < 2; i++)
        for (int depth = 64; depth <= 65; depth++) {
            struct str t = nested(of[i][0], of[i][1], depth, 1), out = { 0 };
            int want = depth == 64 ? 0 : -1;
            char what[80];

            snprintf(what, sizeof(what),
                     "d: line 1, column %s: nested 65 levels deep (expected at "
                     "most 64)",
                     of[i][2]);
            tap_ok(pyjson_indent(&out, t.s, t.n, 0, "d", &err) == want &&
                       pyjson_indent(&out, t.s, t.n, 4, "d", &err) == want &&
                       (i == 0 || pyjson_members(t.s, t.n, "d", no_member, NULL,
                                                 &err) == want) &&
                       (want == 0 || !strcmp(err.what, what)),
                   "pyjson: %d levels of %s (%s)", depth, of[i][0], err.what);
            str_free(&t);
            str_free(&out);
        }
}

/* 4 spaces a level: at its most with few brackets around each number. */
static void
test_size(void)
{
    struct str t = { 0 }, out = { 0 };
    struct err err = { 0 };
    size_t most = 0;

    for (int more = 0; more <= 7; more++) {
        str_clear(&t);
        for (int i = 0; i < 64 - more; i++)
            str_addc(&t, '[');
        for (int i = 0; i < 3000; i++)
            str_addf(&t, "%s%.*s0%.*s", i ? "," : "", more, "[[[[[[[", more,
                     "]]]]]]]");
        for (int i = 0; i < 64 - more; i++)
            str_addc(&t, ']');
        str_clear(&out);
        if (pyjson_indent(&out, t.s, t.n, 4, "d", &err) < 0)
            break;
        most = out.n / t.n > most ? out.n / t.n : most;
    }
    tap_ok(most > 200 && most < PYJSON_DEPTH * 4,
           "pyjson_indent: of a byte %zu at most are made", most);
    str_free(&t);
    str_free(&out);
}

static long
page_faults(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt;
}

/* Pages that are touched on the way to 64 MB of lines. */
static long
pages_of(const char *open, const char *close)
{
    struct str t = nested(open, close, 64, 250000), out = { 0 };
    struct err err = { 0 };
    long before = page_faults(), n;
    int rc = pyjson_indent(&out, t.s, t.n, 4, "d", &err);

    n = rc == 0 && out.n > 64000000 ? page_faults() - before : -1;
    str_free(&t);
    str_free(&out);
    return n;
}

/* An object's members are not copied into the next, and that into the next:
 * arrays never were. */
static void
test_copies(void)
{
    long arrays = pages_of("[", "]"), objects = pages_of("{\"a\":", "}");

    tap_ok(arrays >= 0 && objects >= 0 && objects <= 4 * arrays + 4000,
           "pyjson_indent: objects in objects are copied once (%ld pages, %ld "
           "of arrays)",
           objects, arrays);
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
        snprintf(want, sizeof(want), "m: the key %s appears twice", t[i].key);
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
    test_depth();
    test_size();
    test_copies();
    return tap_done();
}
