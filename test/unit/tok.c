/* SPDX-License-Identifier: ISC */
/*
 * The tokenizer against the reference library: ids and text that it gave for
 * a real byte-level vocabulary and for a SentencePiece-like one.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/tok.h"
#include "test/unit/data.h"
#include "test/unit/tap.h"
#include "test/unit/tok.h"

static bool
same_ids(const struct ids *ids, const json_t *want)
{
    if (ids->n != json_array_size(want))
        return false;
    for (size_t i = 0; i < ids->n; i++)
        if (json_integer_value(json_array_get(want, i)) != ids->id[i])
            return false;
    return true;
}

static void
unbase64(const char *s, struct str *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqr"
                                 "stuvwxyz0123456789+/";
    unsigned v = 0, bits = 0;

    for (; *s && *s != '='; s++) {
        v = v << 6 | (unsigned)(strchr(digits, *s) - digits);
        bits += 6;
        if (bits >= 8)
            str_addc(out, (char)(v >> (bits -= 8) & 0xff));
    }
}

static void
qwen_case(const struct tok *tok, const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *text = json_object_get(c, "text"), *want, *ids_special;
    struct str in = { 0 };
    struct ids ids = { 0 }, special = { 0 };
    struct err err = { 0 };
    bool ok;

    if (text)
        str_add(&in, json_string_value(text), json_string_length(text));
    else
        unbase64(json_string_value(json_object_get(c, "bytes_b64")), &in);
    ok = tok_encode(tok, in.s ? in.s : "", in.n, 0, &ids, &err) == 0 &&
         same_ids(&ids, json_object_get(c, "ids"));
    ids_special = json_object_get(c, "ids_with_special");
    ok &= tok_encode(tok, in.s ? in.s : "", in.n, TOK_SPECIAL, &special,
                     &err) == 0 &&
          same_ids(&special,
                   ids_special ? ids_special : json_object_get(c, "ids"));
    tap_ok(ok, "%s: text gives the reference's ids", name);
    want = json_object_get(c, "decoded");
    if (!want && json_is_true(json_object_get(c, "roundtrip")))
        want = text;
    if (want)
        tap_ok(decodes(tok, &ids, false, json_string_value(want),
                       json_string_length(want)),
               "%s: ids give the reference's text, at once and streamed", name);
    want = json_object_get(c, "decoded_skip_special");
    if (want)
        tap_ok(decodes(tok, &ids, true, json_string_value(want),
                       json_string_length(want)),
               "%s: and without special tokens", name);
    ids_free(&ids);
    ids_free(&special);
    str_free(&in);
}

static void
read_pipe(const char *command, struct str *text)
{
    FILE *f = popen(command, "r");
    char buf[65536];
    size_t n;

    while (f && (n = fread(buf, 1, sizeof(buf), f)) > 0)
        str_add(text, buf, n);
    if (f)
        pclose(f);
}

static void
test_qwen(void)
{
    FILE *f = fopen(data_path("qwen3-tokenizer/cases.jsonl"), "r");
    struct str json = { 0 }, command = { 0 };
    struct tok *tok = NULL;
    struct err err = { 0 };
    char *line = NULL;
    size_t cap = 0;

    if (!f) {
        tap_skip("the reference's ids for Qwen3", "no such TEST_DATA");
        return;
    }
    str_addf(&command, "gzip -dc '%s'",
             data_path("qwen3-tokenizer/tokenizer.json.gz"));
    read_pipe(command.s, &json);
    str_free(&command);
    tok_parse(&tok, json.s ? json.s : "", json.n, "qwen3", &err);
    if (tap_ok(tok != NULL, "Qwen3's tokenizer.json opens %s", err.what)) {
        while (getline(&line, &cap, f) > 0) {
            json_t *c = json_loads(line, 0, NULL);

            qwen_case(tok, c);
            json_decref(c);
        }
        tap_ok(tok_size(tok) == 151669, "Qwen3 has 151669 tokens");
        tap_ok(tok_id(tok, "<|im_end|>") == 151645 &&
                   tok_is_special(tok, 151645) && !tok_is_special(tok, 151667),
               "<|im_end|> is 151645 and special, <think> is not");
    }
    tok_close(tok);
    free(line);
    fclose(f);
    str_free(&json);
}

static bool
stories_text(const struct tok *tok, const json_t *want_ids, const char *text)
{
    struct ids ids = { 0 };
    bool ok;

    for (size_t i = 0; i < json_array_size(want_ids); i++)
        ids_add(&ids, (int32_t)json_integer_value(json_array_get(want_ids, i)));
    ok = decodes(tok, &ids, true, text, strlen(text));
    ids_free(&ids);
    return ok;
}

static void
test_stories(void)
{
    json_t *cases =
        json_load_file(data_path("stories260K/greedy.json"), 0, NULL);
    struct tok *tok = NULL;
    struct err err = { 0 };

    if (!cases) {
        tap_skip("the reference's ids for stories260K", "no such TEST_DATA");
        return;
    }
    if (!tap_ok(tok_open(&tok, data_path("stories260K/tokenizer.json"), &err) ==
                    0,
                "stories260K's tokenizer.json opens %s", err.what))
        return;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *prompt = json_string_value(json_object_get(c, "prompt"));
        const json_t *prompt_ids = json_object_get(c, "prompt_ids");
        struct ids ids = { 0 };

        tap_ok(tok_encode(tok, prompt, strlen(prompt), TOK_SPECIAL, &ids,
                          &err) == 0 &&
                   same_ids(&ids, prompt_ids),
               "stories260K: \"%s\" gives the reference's ids", prompt);
        tap_ok(stories_text(tok, prompt_ids, prompt),
               "stories260K: and those ids the text");
        ids_free(&ids);
    }
    tok_close(tok);
    json_decref(cases);
}

int
main(void)
{
    test_qwen();
    test_stories();
    return tap_done();
}
