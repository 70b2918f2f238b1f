/* SPDX-License-Identifier: ISC */
/*
 * What a tokenizer.json may cost: tables that no keys make slow, added tokens
 * of any length found at one speed, and a text that no step makes longer than
 * 64 times its bytes and 1 MiB.  Steps of look-ups are counted, in the tables
 * themselves; lengths are worked out by hand.
 */
#include <stdlib.h>
#include <time.h>
#include <xxhash.h>

#include "core/keyed.h"
#include "core/map.h"
#include "core/text/tok_impl.h"
#include "test/unit/tap.h"
#include "test/unit/tok.h"

enum {
    N_KEYS = 20000,
    N_SLOTS = 32768, /* the power of 2 that they fill to three quarters */
    MAX_STEPS = 100  /* of a look-up, on average: 4 where keys are spread */
};

/* Steps of a look-up of what is not there, on average over where it begins:
 * full slots in a row are gone through to their end. */
static double
steps(const bool *full, size_t n)
{
    double sum = 0;
    size_t run = 0;

    for (size_t i = 0; i < 2 * n; i++) { /* twice: the last row may continue */
        run = full[i % n] ? run + 1 : 0;
        sum += i >= n ? (double)run : 0;
    }
    return sum / (double)n;
}

static double
strmap_steps(const struct strmap *map)
{
    bool *full = xcalloc(map->n_slots, sizeof(*full));
    double n;

    for (size_t i = 0; i < map->n_slots; i++)
        full[i] = map->slot[i].id >= 0;
    n = steps(full, map->n_slots);
    free(full);
    return n;
}

static double
mergemap_steps(const struct mergemap *map)
{
    bool *full = xcalloc(map->n_slots, sizeof(*full));
    double n;

    for (size_t i = 0; i < map->n_slots; i++)
        full[i] = map->slot[i].pair != UINT64_MAX;
    n = steps(full, map->n_slots);
    free(full);
    return n;
}

/* Keys that share a 64th of the table under XXH3 without a key. */
static void
test_vocab(void)
{
    struct str json = { 0 }, key = { 0 };
    struct tok *tok;
    struct err err = { 0 };

    str_adds(&json, "{\"model\":{\"merges\":[],\"vocab\":{");
    for (unsigned i = 0, k = 0; k < N_KEYS; i++) {
        str_clear(&key);
        str_addf(&key, "%x", i);
        if ((XXH3_64bits(key.s, key.n) & (N_SLOTS - 1)) >= N_SLOTS / 64)
            continue;
        str_addf(&json, "%s\"%s\":%u", k ? "," : "", key.s, k);
        k++;
    }
    str_adds(&json, "}}}");
    tok_parse(&tok, json.s, json.n, "t", &err);
    tap_ok(tok && tok->vocab.n == N_KEYS && tok->vocab.n_slots == N_SLOTS &&
               strmap_steps(&tok->vocab) < MAX_STEPS,
           "vocab: keys that collide without a secret: %.1f steps a look-up %s",
           tok ? strmap_steps(&tok->vocab) : 0, err.what);
    tok_close(tok);
    str_free(&json);
    str_free(&key);
}

/* Pairs (id, 0) that share a 16th of the table under Fibonacci hashing; token 0
 * is empty, so that each gives its left one again. */
static void
test_merges(void)
{
    struct str json = { 0 }, merges = { 0 };
    struct tok *tok;
    struct err err = { 0 };

    str_adds(&json, "{\"model\":{\"vocab\":{\"\":0");
    for (uint64_t id = 1, k = 0; k < N_KEYS; id++) {
        uint64_t hash = (id << 32) * 0x9e3779b97f4a7c15;

        if (((hash ^ hash >> 32) & (N_SLOTS - 1)) >= N_SLOTS / 16)
            continue;
        str_addf(&json, ",\"%x\":%u", (unsigned)id, (unsigned)id);
        str_addf(&merges, "%s[\"%x\",\"\"]", k++ ? "," : "", (unsigned)id);
    }
    str_addf(&json, "},\"merges\":[%s]}}", merges.s);
    tok_parse(&tok, json.s, json.n, "t", &err);
    tap_ok(tok && mergemap_steps(&tok->merges) < MAX_STEPS &&
               mergemap_get(&tok->merges, 1 << 22, 0).rank == NO_RANK,
           "merges: pairs that collide without a secret: %.1f steps a look-up "
           "%s",
           tok ? mergemap_steps(&tok->merges) : 0, err.what);
    tok_close(tok);
    str_free(&merges);
    str_free(&json);
}

#define DEMO "demo/qwen3-tiny/tokenizer.json"

/* The README's ids under a key of nothing but 'byte', and their text. */
static void
encode_under(int byte, const struct str *json, const struct str *text,
             struct ids *ids, struct str *again)
{
    struct hash_key key;
    struct tok *tok;
    struct err err = { 0 };

    memset(&key, byte, sizeof(key));
    if (byte < 0)
        hash_key_draw(&key);
    if (tok_parse_keyed(&tok, json->s, json->n, "t", &key, &err) == 0 &&
        tok_encode(tok, text->s, text->n, TOK_SPECIAL, ids, &err) == 0)
        tok_decode(tok, ids->id, ids->n, false, again, &err);
    tok_close(tok);
}

static void
test_keys(void)
{
    struct str json = { 0 }, text = { 0 };
    struct ids want = { 0 };
    struct err err = { 0 };
    struct hash_key a = { { 0 } }, b = { { 0 } };

    if (file_read_all(DEMO, 1 << 30, &json, &err) < 0 ||
        file_read_all("README.md", 1 << 30, &text, &err) < 0) {
        tap_ok(false, "%s", err.what);
        return;
    }
    for (int byte = -1; byte < 3; byte++) {
        struct ids ids = { 0 };
        struct str again = { 0 };

        encode_under(byte, &json, &text, &ids, &again);
        if (byte < 0)
            for (size_t i = 0; i < ids.n; i++)
                ids_add(&want, ids.id[i]);
        tap_ok(ids.n > 0 && ids.n == want.n &&
                   !memcmp(ids.id, want.id, ids.n * sizeof(*ids.id)) &&
                   same_text(&again, text.s, text.n),
               "key %d: the same %zu ids, and their text", byte, ids.n);
        ids_free(&ids);
        str_free(&again);
    }
    hash_key_draw(&a);
    hash_key_draw(&b);
    tap_ok(memcmp(&a, &b, sizeof(a)) != 0 &&
               keyed_hash(&a, "abc", 3) != keyed_hash(&b, "abc", 3),
           "two keys that are drawn are two");
    str_free(&json);
    str_free(&text);
    ids_free(&want);
}

#define MODEL                                               \
    "\"model\":{\"vocab\":{\"a\":0,\"A\":1},\"merges\":[]," \
    "\"ignore_merges\":true}"

/* A Replace of 'what' by n times 'by'. */
static void
add_replace(struct str *json, const char *what, char by, int n)
{
    str_addf(json,
             "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"%s\"},"
             "\"content\":\"",
             what);
    for (int i = 0; i < n; i++)
        str_addc(json, by);
    str_adds(json, "\"}");
}

/* Encodes n times 'unit' with these parts; 'message' NULL: and may. */
static void
encodes(const char *name, const char *parts, const char *unit, size_t n,
        const char *message)
{
    struct str json = { 0 }, text = { 0 };
    struct ids ids = { 0 };
    struct tok *tok;
    struct err err = { 0 };
    int rc;

    str_addf(&json, "{%s" MODEL "}", parts);
    for (size_t i = 0; i < n; i++)
        str_adds(&text, unit);
    rc = tok_parse(&tok, json.s, json.n, "t", &err);
    if (rc == 0)
        rc = tok_encode(tok, text.s, text.n, 0, &ids, &err);
    tap_ok(message ? rc < 0 && err.status == EX_DATAERR &&
                         !strcmp(err.what, message)
                   : rc == 0,
           "%s, %zu bytes: %s", name, text.n, rc < 0 ? err.what : "encoded");
    tok_close(tok);
    ids_free(&ids);
    str_free(&text);
    str_free(&json);
}

/* "x" becomes 2^20 bytes, and then 64 or 65 more. */
static void
test_normalizer(void)
{
    struct str parts = { 0 };

    for (int n = 64; n < 66; n++) {
        str_clear(&parts);
        str_adds(&parts, "\"normalizer\":{\"type\":\"Sequence\","
                         "\"normalizers\":[");
        add_replace(&parts, "x", 'b', 1024);
        str_addc(&parts, ',');
        add_replace(&parts, "b", 'c', 1024);
        str_addf(&parts, ",{\"type\":\"Prepend\",\"prepend\":\"%0*d\"}]},", n,
                 0);
        encodes("normalizer: 64 bytes for one and 1 MiB", parts.s, "x", 1,
                n == 64 ? NULL
                        : "t: normalizer: step 3 makes a text of 1 byte longer "
                          "than 1048640");
    }
    str_clear(&parts);
    str_adds(&parts, "\"normalizer\":");
    add_replace(&parts, "x", 'b', 65);
    str_addc(&parts, ',');
    if (tap_slow())
        tap_skip("a text of 1 MiB", "slow here");
    else {
        encodes("normalizer: 65 times", parts.s, "x", 1 << 20, NULL);
        encodes("normalizer: 65 times", parts.s, "x", (1 << 20) + 1,
                "t: normalizer: step 1 makes a text of 1048577 bytes longer "
                "than 68157504");
    }
    str_free(&parts);
}

/* Between added tokens are pieces, and each gets 1024 bytes more. */
static void
test_pieces(void)
{
    struct str parts = { 0 };

    str_addf(&parts,
             "\"added_tokens\":[{\"id\":0,\"content\":\"a\",\"normalized\":"
             "false}],\"normalizer\":{\"type\":\"Prepend\",\"prepend\":"
             "\"%01024d\"},",
             0);
    encodes("normalizer: the pieces of a text together", parts.s, "ax", 1168,
            NULL);
    encodes("normalizer: the pieces of a text together", parts.s, "ax", 1169,
            "t: normalizer: step 1 makes a text of 2338 bytes longer than "
            "1198208");
    str_free(&parts);
}

/* A space has two bytes in ByteLevel's alphabet, and each of them two again:
 * seven times; the eighth is the last and is not spelled. */
static void
test_pre_tokenizer(void)
{
    struct str parts = { 0 };

    str_adds(&parts, "\"pre_tokenizer\":{\"type\":\"Sequence\","
                     "\"pretokenizers\":[");
    for (int i = 0; i < 8; i++)
        str_addf(&parts,
                 "%s{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                 "\"use_regex\":false}",
                 i ? "," : "");
    str_adds(&parts, "]},");
    encodes("pre_tokenizer: 128 times", parts.s, " ", 16384, NULL);
    encodes("pre_tokenizer: 128 times", parts.s, " ", 16385,
            "t: pre_tokenizer: step 14 makes a text of 16385 bytes longer than "
            "2097216");
    str_clear(&parts);
    str_adds(&parts, "\"pre_tokenizer\":{\"type\":\"Sequence\","
                     "\"pretokenizers\":[");
    for (int i = 0; i < 7; i++) /* each character a word, and one before it */
        str_addf(&parts,
                 "%s{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},"
                 "\"behavior\":\"Isolated\"},{\"type\":\"Metaspace\","
                 "\"replacement\":\"%c\"}",
                 i ? "," : "", 'A' + i);
    str_adds(&parts, "]},");
    encodes("pre_tokenizer: characters as words", parts.s, "x", 16384, NULL);
    encodes("pre_tokenizer: characters as words", parts.s, "x", 16385,
            "t: pre_tokenizer: step 14 makes a text of 16385 bytes longer than "
            "2097216");
    str_free(&parts);
}

/* Of added tokens of 7 bytes, 1024 more are in each pattern. */
static void
test_added(void)
{
    for (int n = 1798; n < 1800; n++) {
        struct str parts = { 0 };

        str_addf(&parts,
                 "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"%01024d\"}"
                 ",\"added_tokens\":[",
                 0);
        for (int i = 0; i < n; i++)
            str_addf(&parts, "%s{\"id\":%d,\"content\":\"%07d\"}", i ? "," : "",
                     2 + i, i);
        str_adds(&parts, "],");
        encodes(n == 1798 ? "1798 added tokens" : "1799 added tokens", parts.s,
                "x", 1,
                n == 1798 ? NULL
                          : "t: added_tokens: step 1 makes a text of 12593 "
                            "bytes longer than 1854528");
        str_free(&parts);
    }
}

/* The CPU time of encoding 100 KB of "a" with one added token of n bytes. */
static double
token_s(size_t n)
{
    struct str json = { 0 };
    struct ids ids = { 0 };
    struct tok *tok;
    struct err err = { 0 };
    static char text[100000];
    clock_t start;

    memset(text, 'a', sizeof(text));
    str_adds(&json, "{\"added_tokens\":[{\"id\":2,\"content\":\"");
    str_add(&json, text, n - 1);
    str_adds(&json, "b\"}]," MODEL "}");
    tok_parse(&tok, json.s, json.n, "t", &err);
    start = clock();
    for (int i = 0; tok && i < 5; i++)
        tok_encode(tok, text, sizeof(text), 0, &ids, &err);
    start = clock() - start;
    tok_close(tok);
    ids_free(&ids);
    str_free(&json);
    return (double)start / CLOCKS_PER_SEC;
}

static uint32_t
draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)*state * below >> 32);
}

/* Ids of 20 random tokens in a random text, of "a" and "b"; 'want' is what a
 * search at each byte, the longest token first, finds. */
static void
random_tokens(uint32_t *state, struct str *json, char text[200],
              struct ids *want)
{
    char token[20][8];
    size_t n_tokens = 0, best;

    str_adds(json, "{\"added_tokens\":[");
    while (n_tokens < 20) {
        char *t = token[n_tokens];
        size_t n = 1 + draw(state, 7), i;

        for (i = 0; i < n; i++)
            t[i] = draw(state, 2) ? 'x' : 'y';
        t[n] = '\0';
        for (i = 0; strcmp(token[i], t) != 0; i++)
            ;
        if (i < n_tokens) /* twice */
            continue;
        str_addf(json, "%s{\"id\":%zu,\"content\":\"%s\"}", n_tokens ? "," : "",
                 2 + n_tokens, t);
        n_tokens++;
    }
    str_adds(json, "]," MODEL "}");
    for (size_t i = 0; i < 199; i++)
        text[i] = draw(state, 2) ? 'x' : 'y';
    text[199] = '\0';
    for (size_t i = 0; i < 199;) {
        best = 20;
        for (size_t k = 0; k < 20; k++)
            if (!strncmp(text + i, token[k], strlen(token[k])) &&
                (best == 20 || strlen(token[k]) > strlen(token[best])))
                best = k;
        if (best < 20)
            ids_add(want, (int32_t)(2 + best));
        i += best < 20 ? strlen(token[best]) : 1;
    }
}

static void
test_search(void)
{
    uint32_t state = 1;
    size_t n_wrong = 0;
    double plain_s = token_s(2), long_s = token_s(1024);

    tap_ok(
        long_s < 20 * plain_s + 0.02,
        "added tokens: one of 1024 bytes costs as much as one of 2: %.4f and "
        "%.4f s",
        long_s, plain_s);
    for (int i = 0; i < 500; i++) {
        struct str json = { 0 };
        struct ids want = { 0 }, ids = { 0 };
        struct err err = { 0 };
        struct tok *tok;
        char text[200];

        random_tokens(&state, &json, text, &want);
        n_wrong += tok_parse(&tok, json.s, json.n, "t", &err) < 0 ||
                   tok_encode(tok, text, 199, 0, &ids, &err) < 0 ||
                   ids.n != want.n ||
                   memcmp(ids.id, want.id, ids.n * sizeof(*ids.id)) != 0;
        tok_close(tok);
        ids_free(&ids);
        ids_free(&want);
        str_free(&json);
    }
    tap_ok(n_wrong == 0,
           "added tokens: the leftmost, and of those the longest "
           "(%zu of 500 wrong)",
           n_wrong);
}

/* Decodes n times "a", at once and id by id; 'message' NULL: and may. */
static void
decodes_a(const char *name, const struct str *decoder, size_t n, size_t nbytes,
          const char *message)
{
    struct str json = { 0 }, text = { 0 }, parts = { 0 };
    struct ids ids = { 0 };
    struct tok *tok;
    struct tok_stream *stream;
    struct err err = { 0 };
    int rc, stream_rc = 0;

    str_addf(&json,
             "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s]}," MODEL
             "}",
             decoder->s);
    for (size_t i = 0; i < n; i++)
        ids_add(&ids, 0);
    if (tok_parse(&tok, json.s, json.n, "t", &err) < 0) {
        tap_ok(false, "%s", err.what);
        return;
    }
    stream = tok_stream_new(tok, false);
    for (size_t i = 0; i < n && stream_rc == 0; i++)
        stream_rc = tok_stream_add(stream, ids.id[i], &parts, &err);
    if (stream_rc == 0)
        stream_rc = tok_stream_end(stream, &parts, &err);
    rc = tok_decode(tok, ids.id, n, false, &text, &err);
    tap_ok(rc == stream_rc &&
               (message ? rc < 0 && err.status == EX_DATAERR &&
                              !strcmp(err.what, message)
                        : rc == 0 && text.n == nbytes &&
                              same_text(&text, parts.s, parts.n)),
           "%s: %s", name, rc < 0 ? err.what : "decoded");
    tok_stream_free(stream);
    tok_close(tok);
    ids_free(&ids);
    str_free(&parts);
    str_free(&text);
    str_free(&json);
}

static void
test_decoder(void)
{
    struct str steps_of = { 0 };

    for (int n = 65; n < 67; n++) {
        str_clear(&steps_of);
        add_replace(&steps_of, "a", 'b', 1024);
        str_addc(&steps_of, ',');
        add_replace(&steps_of, "b", 'c', 1024);
        str_addc(&steps_of, ',');
        add_replace(&steps_of, "\\\\Ac", 'd', n);
        decodes_a("decoder: 64 bytes for one and 1 MiB", &steps_of, 1, 1048640,
                  n == 65 ? NULL
                          : "t: decoder: step 3 makes a text of 1 byte longer "
                            "than 1048640");
    }
    str_clear(&steps_of);
    add_replace(&steps_of, "a", 'b', 1024);
    decodes_a("decoder: tokens together", &steps_of, 1092, 1092 * 1024, NULL);
    decodes_a("decoder: tokens together", &steps_of, 1093, 0,
              "t: decoder: step 1 makes a text of 1093 bytes longer than "
              "1118528");
    str_clear(&steps_of);
    str_adds(&steps_of, "{\"type\":\"Fuse\"},");
    add_replace(&steps_of, "a", 'b', 2);
    decodes_a("decoder: all of a long text is replaced", &steps_of, 3 << 19,
              3 << 20, NULL);
    str_free(&steps_of);
}

/* Tokens of the vocabulary, and ids around a text. */
static void
opens(const char *name, const struct str *json, const char *message)
{
    struct tok *tok;
    struct err err = { 0 };
    int rc = tok_parse(&tok, json->s, json->n, "t", &err);

    tap_ok(message ? rc < 0 && err.status == EX_DATAERR &&
                         !strcmp(err.what, message)
                   : rc == 0,
           "%s: %s", name, rc < 0 ? err.what : "opens");
    tok_close(tok);
}

static void
test_sizes(void)
{
    struct str json = { 0 };

    for (int n = 16384; n < 16386; n++) {
        str_clear(&json);
        str_addf(&json, "{\"model\":{\"vocab\":{\"%0*d\":0},\"merges\":[]}}", n,
                 0);
        opens("vocab: the longest token", &json,
              n == 16384 ? NULL
                         : "t: model.vocab: entry 0 has 16385 bytes (at most "
                           "16384)");
    }
    for (int n = 32; n < 34; n++) { /* pieces, of 32 ids each */
        str_clear(&json);
        str_adds(&json, "{\"post_processor\":{\"type\":\"TemplateProcessing\","
                        "\"single\":[{\"Sequence\":{\"id\":\"A\"}}");
        for (int i = 0; i < n; i++)
            str_adds(&json, ",{\"SpecialToken\":{\"id\":\"s\"}}");
        str_adds(&json, "],\"special_tokens\":{\"s\":{\"ids\":[0");
        for (int i = 1; i < 32; i++)
            str_adds(&json, ",0");
        str_adds(&json, "]}}}," MODEL "}");
        opens("post_processor: ids around a text", &json,
              n == 32 ? NULL
                      : "t: post_processor.special_tokens.s.ids[0]: more than "
                        "1024 ids on one side of a text");
    }
    str_free(&json);
}

int
main(void)
{
    test_vocab();
    test_merges();
    test_keys();
    test_normalizer();
    test_pieces();
    test_pre_tokenizer();
    test_added();
    test_search();
    test_decoder();
    test_sizes();
    return tap_done();
}
