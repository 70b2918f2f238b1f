#include "cmd/hf-infer/jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/unit/tap.h"

/* The error of one line, or "" if it is taken. */
static const char *
error_of(const char *s)
{
    static struct err err;
    struct jsonl_line line = { 0 };

    err.what[0] = '\0';
    if (jsonl_parse(&line, s, strlen(s), "f: line 7", &err) == 0)
        err.what[0] = '\0';
    jsonl_line_free(&line);
    return err.what;
}

static void
test_values(void)
{
    struct jsonl_line a = { 0 }, b = { 0 };
    struct err err;
    static const char text[] =
        "{\"x\":[1e999],\"id\":{\"k\":[12345678901234567890,1.0]},"
        "\"prompt\":\"a\\n\\u0000\\u00e9\\ud83d\\ude00\"}";
    static const char ids[] = "{\"ids\": [ 1,0 , 2147483647 ] }";

    tap_ok(jsonl_parse(&a, text, strlen(text), "f", &err) == 0 && a.text &&
               a.text_nbytes == 9 &&
               !memcmp(a.text, "a\n\0\xc3\xa9\xf0\x9f\x98\x80", 10) && !a.ids,
           "jsonl: a prompt's escapes, NUL and pairs of surrogates");
    tap_ok(a.id && !strcmp(a.id, "{\"k\": [12345678901234567890, 1.0]}"),
           "jsonl: an id is any value");
    tap_ok(jsonl_parse(&b, ids, strlen(ids), "f", &err) == 0 && !b.text &&
               b.n_ids == 3 && b.ids[0] == 1 && b.ids[1] == 0 &&
               b.ids[2] == 2147483647 && !b.id,
           "jsonl: ids, and no id");
    jsonl_line_free(&a);
    jsonl_line_free(&b);
}

static void
test_errors(void)
{
    static const char *const cases[][2] = {
        { "{\"text\":\"\"}", "" },
        { "{\"ids\":[]}", "" },
        { "[1]", "f: line 7: column 1: an object is missing" },
        { "{\"prompt\":\"a\" 1}",
          "f: line 7: column 15: ',' or '}' is missing" },
        { "{\"prompt\":\"a\"}{", "f: line 7: column 15: something follows the "
                                 "object" },
        { "{\"prompt\":3}", "f: line 7: \"prompt\" is 3 (expected a string)" },
        { "{\"prompt\":\"\\ud800\"}",
          "f: line 7: \"prompt\" is no Unicode text: half a surrogate pair "
          "(expected a string)" },
        { "{\"prompt\":\"\",\"ids\":[1]}",
          "f: line 7: both \"prompt\" and \"ids\" are there (expected one)" },
        { "{\"prompt\":\"\",\"text\":\"\"}",
          "f: line 7: both \"prompt\" and \"text\" are there (expected one)" },
        { "{}", "f: line 7: neither \"prompt\" nor \"ids\" is there" },
        { "{\"id\":1}", "f: line 7: neither \"prompt\" nor \"ids\" is there" },
        { "{\"id\":1,\"id\":1}", "f: line 7: the key \"id\" is there twice" },
        { "{\"ids\":[1,2.0]}",
          "f: line 7: \"ids\" is no array of token ids (its element 1 is not "
          "an integer of 0 to 2147483647)" },
        { "{\"ids\":[-1]}",
          "f: line 7: \"ids\" is no array of token ids (its element 0 is not "
          "an integer of 0 to 2147483647)" },
        { "{\"ids\":[2147483648]}",
          "f: line 7: \"ids\" is no array of token ids (its element 0 is not "
          "an integer of 0 to 2147483647)" },
        { "{\"ids\":\"1\"}",
          "f: line 7: \"ids\" is no array of token ids (its element 0 is not "
          "an integer of 0 to 2147483647)" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *what = error_of(cases[i][0]);

        tap_ok(!strcmp(what, cases[i][1]), "jsonl: %s", cases[i][0]);
        if (strcmp(what, cases[i][1]) != 0)
            printf("# %s\n", what);
    }
}

/* Lines that straddle reads, blank ones, and no end at the end. */
static void
test_stream(void)
{
    char path[] = "/tmp/jsonl.XXXXXX";
    int fd = mkstemp(path), n = 0, good = 1, rc;
    FILE *f = fdopen(fd, "w");
    struct jsonl_line line;
    struct jsonl *j;
    struct err err;

    for (int i = 0; i < 3000; i++)
        fprintf(f, "{\"id\":%d,\"prompt\":\"%*s\"}\n%s", i, i % 200, "",
                i % 3 ? "" : " \r\n");
    fprintf(f, "{\"id\":3000,\"prompt\":\"\"}");
    fclose(f);
    if (jsonl_open(&j, path, &err) < 0)
        return;
    while ((rc = jsonl_next(j, &line, &err)) > 0) {
        good &= atoi(line.id) == n && line.text_nbytes == (size_t)(n % 200) &&
                line.number == (size_t)(n + (n + 2) / 3 + 1);
        jsonl_line_free(&line);
        n++;
    }
    jsonl_close(j);
    unlink(path);
    tap_ok(rc == 0 && n == 3001 && good,
           "jsonl: every line of a file, numbered as an editor does");
    tap_ok(jsonl_open(&j, "/none", &err) < 0 && err.status == EX_NOINPUT,
           "jsonl: a file that is not there");
}

int
main(void)
{
    test_values();
    test_errors();
    test_stream();
    return tap_done();
}
