/* SPDX-License-Identifier: ISC */
/*
 * A hostile tokenizer.json and a text to encode with it: what stands before
 * and after "\n%%\n" (the text is the whole input, where that is missing).
 */
#include <stdlib.h>
#include <string.h>

#include "core/text/tok.h"
#include "test/fuzz/must.h"

/* Streamed text is whole characters, and ends as the text decoded at once, or
 * as that does not. */
static void
check_decoding(const struct tok *tok, const struct ids *ids, bool skip)
{
    struct tok_stream *stream = tok_stream_new(tok, skip);
    struct str all = { 0 }, parts = { 0 };
    struct err err;
    int all_rc = tok_decode(tok, ids->id, ids->n, skip, &all, &err), rc = 0;

    for (size_t i = 0; i < ids->n && rc == 0; i++) {
        rc = tok_stream_add(stream, ids->id[i], &parts, &err);
        if (parts.n > all.n)
            abort();
    }
    if (rc == 0)
        rc = tok_stream_end(stream, &parts, &err);
    if (rc != all_rc || all.n != parts.n ||
        utf8_valid(all.n ? all.s : "", all.n) != all.n ||
        (all.n && memcmp(all.s, parts.s, all.n) != 0))
        abort();
    tok_stream_free(stream);
    str_free(&all);
    str_free(&parts);
}

/* The text as a template's and somebody's, in turns of a byte's bits. */
static void
check_marked(const struct tok *tok, const char *text, size_t n)
{
    uint8_t *data = malloc(n + 1);
    struct ids ids = { 0 };
    struct err err;

    for (size_t i = 0; i < n; i++)
        data[i] = ((uint8_t)text[i & ~(size_t)7] >> (i & 7)) & 1;
    if (tok_encode_marked(tok, text, data, n, 0, &ids, &err) < 0 &&
        (err.status != EX_DATAERR || ids.n))
        abort();
    ids_free(&ids);
    free(data);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data, *text = json;
    const char *mark = memmem(data, size, "\n%%\n", 4);
    size_t n_json = mark ? (size_t)(mark - json) : size, n_text = size;
    struct tok *tok;
    struct err err;

    if (mark) {
        text = mark + 4;
        n_text = size - n_json - 4;
    }
    if (tok_parse(&tok, json, n_json, "t", &err) < 0)
        return 0;
    for (int flags = 0; flags < 8; flags += 3) {
        struct ids ids = { 0 };

        tok_encode(tok, text, n_text, flags, &ids, &err);
        for (size_t i = 0; i < ids.n; i++)
            if (ids.id[i] < 0)
                abort();
        for (size_t i = 0; i < n_text && i < 64; i++)
            ids_add(&ids, (int8_t)text[i]);
        check_decoding(tok, &ids, flags & TOK_SPECIAL);
        ids_free(&ids);
    }
    check_marked(tok, text, n_text);
    tok_close(tok);
    return 0;
}
