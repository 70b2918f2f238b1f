/* SPDX-License-Identifier: ISC */
/* What the tests of the tokenizer share. */
#ifndef TEST_UNIT_TOK_H
#define TEST_UNIT_TOK_H

#include <string.h>

#include "core/js.h"
#include "core/str.h"
#include "core/text/tok.h"

#define G                    "\xc4\xa0" /* a space in ByteLevel's alphabet */
#define M                    "\xe2\x96\x81" /* SentencePiece's space */
#define ADDED(content, more) "{\"id\":1,\"content\":\"" content "\"" more "}"
#define WORDS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static inline bool
same_text(const struct str *text, const char *want, size_t n)
{
    return text->n == n && memcmp(text->n ? text->s : "", want, n) == 0;
}

/* Streamed: at every step whole characters, and never one to take back. */
static inline bool
streams(const struct tok *tok, const struct ids *ids, bool skip,
        const char *want, size_t n)
{
    struct tok_stream *stream = tok_stream_new(tok, skip);
    struct str text = { 0 };
    struct err err;
    bool ok = true;

    for (size_t i = 0; i < ids->n; i++) {
        ok &= tok_stream_add(stream, ids->id[i], &text, &err) == 0;
        ok &= utf8_valid(text.s ? text.s : "", text.n) == text.n;
        ok &= text.n <= n && memcmp(text.n ? text.s : "", want, text.n) == 0;
    }
    ok &= tok_stream_end(stream, &text, &err) == 0;
    ok &= same_text(&text, want, n);
    tok_stream_free(stream);
    str_free(&text);
    return ok;
}

static inline bool
decodes(const struct tok *tok, const struct ids *ids, bool skip,
        const char *want, size_t n)
{
    struct str text = { 0 };
    struct err err;
    bool ok = tok_decode(tok, ids->id, ids->n, skip, &text, &err) == 0;

    ok &= same_text(&text, want, n) && streams(tok, ids, skip, want, n);
    str_free(&text);
    return ok;
}

static inline int32_t
index_of(const char *const *words, const char *word)
{
    int32_t id = 1; /* 0 is [UNK] */

    for (size_t i = 0; strcmp(words[i], word) != 0; i++) {
        bool seen = false;

        for (size_t k = 0; k < i; k++)
            seen |= strcmp(words[k], words[i]) == 0;
        id += !seen;
    }
    return id;
}

/* A vocabulary of [UNK] and these words, whole words taken without merges. */
static inline void
make_json(struct str *json, const char *parts, const char *const *words)
{
    str_addf(json,
             "{%s\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,"
             "\"unk_token\":\"[UNK]\",\"merges\":[],\"vocab\":{\"[UNK]\":0",
             parts);
    for (int32_t i = 0, next = 1; words[i]; i++) {
        if (index_of(words, words[i]) != next)
            continue;
        str_addc(json, ',');
        js_put_str(json, words[i], strlen(words[i]));
        str_addf(json, ":%d", next++);
    }
    str_adds(json, "}}}");
}

#endif
