/* SPDX-License-Identifier: ISC */
/*
 * The tokenizer: loading, in ratio to what jansson needs for the same file,
 * and encoding and decoding in MB/s; a megabyte without a space costs as much
 * a byte as a tenth of it, or merging is not linear.
 *   bench/tok [TOKENIZER_JSON]
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/text/tok.h"
#include "test/bench/bench.h"

#define DEMO "demo/qwen3-tiny/tokenizer.json"

enum { TEXT_BYTES = 8 << 20, RUN_BYTES = 1 << 20, ROUNDS = 5 };

static uint32_t
draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)*state * below >> 32);
}

/* Words of syllables, the first ones far more often, and some punctuation. */
static void
make_text(struct str *text)
{
    static const char *const syllables[] = { "the", "in", "er", "an", "ti",
                                             "on",  "re", "al", "st", "com",
                                             "pre", "ly", "ing" };
    char word[4000][24];
    uint32_t state = 1;

    for (size_t i = 0; i < 4000; i++) {
        word[i][0] = '\0';
        for (size_t n = 1 + draw(&state, 4); n > 0; n--)
            strcat(word[i], syllables[draw(&state, 13)]);
    }
    while (text->n < TEXT_BYTES) {
        uint32_t i = draw(&state, 4000);

        str_adds(text, word[draw(&state, i + 1)]);
        i = draw(&state, 40);
        str_adds(text, i == 0   ? ".\n\n"
                       : i == 1 ? ", 1984, "
                       : i == 2 ? " \xc3\xa9tude "
                       : i == 3 ? " \xe4\xbd\xa0\xe5\xa5\xbd "
                                : " ");
    }
}

static void
bench_load(const struct str *json)
{
    double tok_s = 1e9, jansson_s = 1e9, start;
    char shape[32];
    struct tok *tok;
    struct err err;
    json_t *v;

    for (int i = 0; i < ROUNDS; i++) {
        start = cpu_s();
        if (tok_parse(&tok, json->s, json->n, "bench", &err) == 0)
            tok_close(tok);
        tok_s = min(tok_s, cpu_s() - start);
        start = cpu_s();
        v = json_loadb(json->s, json->n, 0, NULL);
        json_decref(v);
        jansson_s = min(jansson_s, cpu_s() - start);
    }
    snprintf(shape, sizeof(shape), "load %.3g MB", 1e-6 * (double)json->n);
    row("tokenizer.json", shape, "-", 1, 1e-6 * (double)json->n / tok_s, "MB/s",
        jansson_s / tok_s, "jansson alone");
}

/* Encodes, and returns nanoseconds a byte. */
static double
bench_text(const struct tok *tok, const char *name, const char *s, size_t n)
{
    double encode_s = 1e9, decode_s = 1e9, start;
    struct ids ids = { 0 };
    struct str text = { 0 };
    struct err err;

    for (int i = 0; i < ROUNDS; i++) {
        ids.n = 0;
        str_clear(&text);
        start = cpu_s();
        tok_encode(tok, s, n, 0, &ids, &err);
        encode_s = min(encode_s, cpu_s() - start);
        start = cpu_s();
        tok_decode(tok, ids.id, ids.n, false, &text, &err);
        decode_s = min(decode_s, cpu_s() - start);
    }
    row("encode", name, "-", 1, 1e-6 * (double)n / encode_s, "MB/s", 0, "");
    row("decode", name, "-", 1, 1e-6 * (double)text.n / decode_s, "MB/s", 0,
        "");
    ids_free(&ids);
    str_free(&text);
    return 1e9 * encode_s / (double)n;
}

static void
bench_run(const struct tok *tok, const char *name, const char *longer,
          uint32_t n_letters)
{
    char *s = xmalloc(RUN_BYTES);
    uint32_t state = 1;
    double tenth, all;

    for (size_t i = 0; i < RUN_BYTES; i++)
        s[i] = (char)('a' + draw(&state, n_letters));
    tenth = bench_text(tok, name, s, RUN_BYTES / 10);
    all = bench_text(tok, longer, s, RUN_BYTES);
    row("encode, a byte", longer, "-", 1, all, "ns", tenth / all,
        "a tenth of it");
    free(s);
}

int
main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : DEMO;
    struct str json = { 0 }, text = { 0 };
    struct tok *tok;
    struct err err;

    if (file_read_all(path, (size_t)1 << 30, &json, &err) < 0 ||
        tok_parse(&tok, json.s, json.n, path, &err) < 0) {
        fprintf(stderr, "bench/tok: %s\n", err.what);
        return 1;
    }
    make_text(&text);
    bench_load(&json);
    bench_text(tok, "text", text.s, text.n);
    bench_run(tok, "0.1 MB letters", "1 MB letters", 26);
    bench_run(tok, "0.1 MB aaaa", "1 MB aaaa", 1);
    tok_close(tok);
    str_free(&json);
    str_free(&text);
    return 0;
}
