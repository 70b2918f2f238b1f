/* SPDX-License-Identifier: ISC */
/*
 * The model, decoders, post-processors and ids of small tokenizers.
 * Expectations are the documented behaviour of the reference library, most of
 * them its own tests', or worked out by hand.
 */
#include "test/unit/tap.h"
#include "test/unit/tok.h"

#define IDS(...)        \
    (const int32_t[])   \
    {                   \
        __VA_ARGS__, -1 \
    }

/* A model and what its ids are. */
static void
encodes(const char *name, const char *model, const char *text,
        const int32_t *want)
{
    struct str json = { 0 };
    struct ids ids = { 0 };
    struct tok *tok = NULL;
    struct err err = { 0 };
    size_t n = 0;
    bool ok;

    str_addf(&json, "{\"model\":{%s}}", model);
    while (want[n] >= 0)
        n++;
    ok = tok_parse(&tok, json.s, json.n, "t", &err) == 0 &&
         tok_encode(tok, text, strlen(text), 0, &ids, &err) == 0 &&
         ids.n == n && (n == 0 || memcmp(ids.id, want, n * sizeof(*want)) == 0);
    tap_ok(ok, "%s %s", name, err.what);
    tok_close(tok);
    ids_free(&ids);
    str_free(&json);
}

#define AB "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2},\"merges\":[]"
#define BELIRTILEN                                                           \
    "\"vocab\":{\".:.:\":0,\".\":2,\":\":3,\"bel\":4,\".:\":7,\"be\":10,"    \
    "\"l\":11,\"ir\":12,\"ti\":13,\"en\":14,\"irtil\":15,\"irti\":16,\"i\":" \
    "17,\"r\":18,\"t\":19,\"b\":20,\"e\":21,\"n\":22},\"merges\":["

static void
test_model(void)
{
    encodes("unk_token: one for each character", AB ",\"unk_token\":\"<unk>\"",
            "accb", IDS(1, 0, 0, 2));
    encodes("fuse_unk: one for all",
            AB ",\"unk_token\":\"<unk>\",\"fuse_unk\":true", "accb",
            IDS(1, 0, 2));
    encodes("without unk_token: unknown characters are dropped", AB, "accb",
            IDS(1, 2));
    encodes("byte_fallback: a byte if it is there, else unk_token",
            "\"vocab\":{\"<unk>\":0,\"<0x61>\":1,\"<0xC3>\":2,\"<0xA9>\":3},"
            "\"merges\":[],\"unk_token\":\"<unk>\",\"byte_fallback\":true",
            "\xc3\xa9"
            "a\xc3\xa8",
            IDS(2, 3, 1, 0));
    encodes("byte_fallback: unk_token waits behind bytes, as the reference's",
            "\"vocab\":{\"<unk>\":0,\"<0x61>\":1,\"b\":2},\"merges\":[],"
            "\"unk_token\":\"<unk>\",\"byte_fallback\":true",
            "cab", IDS(1, 0, 2));
    encodes("merges: by rank, not from the left",
            BELIRTILEN "\". :\",\"b e\",\"be l\",\"i r\",\"t i\",\"ir ti\","
                       "\"e n\",\"irti l\"]",
            ".:.:belirtilen", IDS(7, 7, 4, 15, 14));
    encodes("merges: pairs as arrays",
            BELIRTILEN "[\".\",\":\"],[\"b\",\"e\"],[\"be\",\"l\"]]", ".:bel",
            IDS(7, 4));
    encodes("ignore_merges: a whole word in the vocabulary stays whole",
            BELIRTILEN "\". :\"],\"ignore_merges\":true", ".:.:", IDS(0));
    encodes("merges: of one rank, the leftmost first",
            "\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"]", "aaa",
            IDS(1, 0));
    encodes("merges: a line of version is no merge",
            "\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"#version: 0.2\","
            "\"a a\"]",
            "aa", IDS(1));
    encodes("vocab: \\u escapes and surrogate pairs",
            "\"vocab\":{\"\\ud83d\\ude00\":0,\"\\u00e9\\n\":1,\"\\u00e9\":2,"
            "\"\\n\":3},\"merges\":[\"\\u00e9 \\n\"]",
            "\xf0\x9f\x98\x80\xc3\xa9\n", IDS(0, 1));
}

/*
 * The long way (a heap) gives what the short way gives: "ab" repeated, pairs
 * ranked so that every level of merging halves the number of symbols.
 */
static void
test_long_word(void)
{
    static const char model[] =
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3,"
        "\"abababab\":4,\"ba\":5},\"merges\":[\"a b\",\"ab ab\",\"abab abab\","
        "\"b a\"]}}";
    struct tok *tok = NULL;
    struct err err = { 0 };
    struct str text = { 0 };
    bool ok = tok_parse(&tok, model, sizeof(model) - 1, "t", &err) == 0;

    for (size_t n = 1; ok && n <= 200; n++) {
        struct ids ids = { 0 };
        size_t at = 0;

        str_adds(&text, "ab");
        ok &= tok_encode(tok, text.s, text.n, 0, &ids, &err) == 0;
        ok &= ids.n == n / 4 + (n % 4 >= 2) + n % 2;
        for (; ok && at < n / 4; at++)
            ok &= ids.id[at] == 4;
        if (ok && n % 4 >= 2)
            ok &= ids.id[at++] == 3;
        if (ok && n % 2)
            ok &= ids.id[at] == 2;
        ids_free(&ids);
    }
    tap_ok(ok, "merges: words of 2 to 400 characters alike");
    str_free(&text);
    tok_close(tok);
}

/*
 * A text of 40 words as one word, as SentencePiece's: in one vocabulary no
 * merge reaches over a space, in the other all do.
 */
static void
test_long_text(void)
{
#define SPM(merges)                                                         \
    "{\"model\":{\"unk_token\":\"u\",\"fuse_unk\":true,\"vocab\":{\"a\":0," \
    "\"b\":1,\"" M "\":2,\"ab\":3,\"" M "ab\":4,\"b" M "\":5,\"ab" M        \
    "\":6,\"u\":7},\"merges\":[" merges "]}}"
    static const struct {
        const char *json, *word;
        int32_t want[4];
        size_t n;
    } cases[] = {
        { SPM("\"a b\",\"" M " ab\""), M "ab", { 4 }, 1 },
        { SPM("\"b " M "\",\"a b" M "\""), "ab" M, { 6 }, 1 },
        { SPM("\"a b\",\"" M " ab\""), M "cdabe", { 2, 7, 3, 7 }, 4 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tok *tok = NULL;
        struct err err = { 0 };
        struct str text = { 0 };
        struct ids ids = { 0 };
        bool ok = tok_parse(&tok, cases[i].json, strlen(cases[i].json), "t",
                            &err) == 0;

        for (int k = 0; k < 40; k++)
            str_adds(&text, cases[i].word);
        ok = ok && tok_encode(tok, text.s, text.n, 0, &ids, &err) == 0 &&
             ids.n == 40 * cases[i].n;
        for (size_t k = 0; ok && k < ids.n; k++)
            ok = ids.id[k] == cases[i].want[k % cases[i].n];
        tap_ok(ok, "merges: 40 times %s as one word %s", cases[i].word,
               err.what);
        tok_close(tok);
        str_free(&text);
        ids_free(&ids);
    }
}

#define DECODER(json) "\"decoder\":" json ","
#define SEQUENCE(json) \
    DECODER("{\"type\":\"Sequence\",\"decoders\":[" json "]}")

/* The words as tokens, decoded. */
static void
joins(const char *name, const char *parts, const char *const *words,
      const char *want)
{
    struct str json = { 0 };
    struct ids ids = { 0 };
    struct tok *tok = NULL;
    struct err err = { 0 };
    bool ok;

    make_json(&json, parts, words);
    for (size_t i = 0; words[i]; i++)
        ids_add(&ids, index_of(words, words[i]));
    ok = tok_parse(&tok, json.s, json.n, "t", &err) == 0 &&
         decodes(tok, &ids, true, want, strlen(want));
    tap_ok(ok, "%s %s", name, err.what);
    tok_close(tok);
    ids_free(&ids);
    str_free(&json);
}

#define FFFD     "\xef\xbf\xbd"
#define FALLBACK DECODER("{\"type\":\"ByteFallback\"}")
#define BYTES    DECODER("{\"type\":\"ByteLevel\"}")
#define STRIP(c, start, stop)                                    \
    "{\"type\":\"Strip\",\"content\":\"" c "\",\"start\":" start \
    ",\"stop\":" stop "}"

/* One token in the middle of a text, part of a character or not. */
static void
shows(const char *name, const char *parts, const char *word, const char *want)
{
    struct str json = { 0 }, text = { 0 };
    struct tok *tok = NULL;
    struct err err = { 0 };
    bool ok;

    make_json(&json, parts, WORDS(word));
    ok = tok_parse(&tok, json.s, json.n, "t", &err) == 0 &&
         tok_bytes(tok, 1, &text) && same_text(&text, want, strlen(want)) &&
         !tok_bytes(tok, 2, &text) && !tok_bytes(tok, -1, &text);
    tap_ok(ok, "tok_bytes(): %s %s", name, err.what);
    tok_close(tok);
    str_free(&text);
    str_free(&json);
}

static void
test_bytes(void)
{
    static const char llama[] =
        SEQUENCE("{\"type\":\"Replace\",\"pattern\":{\"String\":\"" M
                 "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{"
                 "\"type\":\"Fuse\"}," STRIP(" ", "1", "0"));

    shows("no decoder", "", G "is", G "is");
    shows("ByteLevel's space", BYTES, G "is", " is");
    shows("ByteLevel's first byte of three", BYTES, "\xc3\xa2", "\xe2");
    shows("a byte in the middle of a character", BYTES, "\xc5\x83", "\xad");
    shows("SentencePiece's space, which Strip takes from texts", llama, M "x",
          " x");
    shows("SentencePiece's byte", llama, "<0x8f>", "\x8f");
    shows("Metaspace, as after a first token",
          DECODER("{\"type\":\"Metaspace\",\"replacement\":\"" M
                  "\",\"prepend_scheme\":\"always\"}"),
          M "Hey", " Hey");
}

static void
test_decoders(void)
{
    joins("no decoder: joined by spaces", "", WORDS("Hey", "friend"),
          "Hey friend");
    joins("ByteLevel: the alphabet's bytes", BYTES,
          WORDS("Hello", G "my", "\xc3\xa2\xc5\x83\xc2\xa2"),
          "Hello my\xe2\xad\xa2");
    joins("ByteLevel: a token outside the alphabet is its own text", BYTES,
          WORDS(G "a", "\xe4\xbb\x8a b"), " a\xe4\xbb\x8a b");
    joins("ByteLevel: a character in three tokens", BYTES,
          WORDS("\xc3\xa2", "\xc5\x83", "\xc2\xa2"), "\xe2\xad\xa2");
    joins("ByteLevel: one U+FFFD for each maximal subpart", BYTES,
          WORDS("\xc3\xa2", "\xc5\x83", "x", "\xc3\xa2", "\xc3\xa2"),
          FFFD "x" FFFD FFFD);
    joins("ByteFallback: bytes", FALLBACK, WORDS("<0x61>", "Hey"), "aHey");
    joins("ByteFallback: a character", FALLBACK,
          WORDS("<0xE5>", "<0x8f>", "<0xab>", "a"),
          "\xe5\x8f\xab"
          "a");
    joins("ByteFallback: one U+FFFD for each byte of a bad run", FALLBACK,
          WORDS("<0xE5>", "<0x8f>", "a"), FFFD FFFD "a");
    joins("ByteFallback: one bad byte spoils its whole run", FALLBACK,
          WORDS("<0x61>", "<0xff>"), FFFD FFFD);
    joins("Metaspace: the first token loses its space",
          DECODER("{\"type\":\"Metaspace\",\"replacement\":\"" M
                  "\",\"prepend_scheme\":\"always\"}"),
          WORDS(M "Hey", M "friend!"), "Hey friend!");
    joins("Metaspace: never",
          DECODER("{\"type\":\"Metaspace\",\"replacement\":\"" M
                  "\",\"prepend_scheme\":\"never\"}"),
          WORDS(M "Hey", M "friend!"), " Hey friend!");
    joins("Replace: in each token",
          DECODER("{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},"
                  "\"content\":\" \"}"),
          WORDS("hello", "_he_llo"), "hello he llo");
    joins("Replace: not across tokens",
          DECODER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"ab\"},"
                  "\"content\":\"-\"}"),
          WORDS("xa", "b", "ab"), "xab-");
}

static void
test_decoder_chains(void)
{
    joins("Fuse: then Replace works across them",
          SEQUENCE("{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{"
                   "\"Regex\":\"ab\"},\"content\":\"-\"}"),
          WORDS("xa", "b", "ab"), "x--");
    joins("Strip: from each token's start", DECODER(STRIP("H", "1", "0")),
          WORDS("Hey", " friend!", "HHH"), "ey friend!HH");
    joins("Strip: after Fuse, the text's beginning",
          SEQUENCE("{\"type\":\"Fuse\"}," STRIP(" ", "2", "0")),
          WORDS(" ", "  a", " b ", " "), " a b  ");
    joins("SentencePiece's sequence",
          SEQUENCE("{\"type\":\"Replace\",\"pattern\":{\"String\":\"" M
                   "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{"
                   "\"type\":\"Fuse\"}," STRIP(" ", "1", "0")),
          WORDS(M M "Hi", "<0xE5>", "<0x8f>", "<0xab>", M "x"),
          " Hi\xe5\x8f\xab x");
    joins("special tokens are left out, added ones are not",
          "\"added_tokens\":[" ADDED("<s>", ",\"special\":true") "," ADDED(
              "<t>", "") "]," BYTES,
          WORDS("<s>", "a", "<t>", "<s>"), "a<t>");
    joins("an added token outside the alphabet is its own text",
          "\"added_tokens\":[" ADDED("\xe4\xbb\x8a", "") "]," BYTES,
          WORDS("\xe4\xbb\x8a", G), "\xe4\xbb\x8a ");
}

#define TEMPLATE(single)                                                    \
    "{\"type\":\"TemplateProcessing\",\"single\":[" single                  \
    "],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[7," \
    "8],\"tokens\":[\"<s>\",\"x\"]},\"</s>\":{\"id\":\"</s>\",\"ids\":[9]," \
    "\"tokens\":[\"</s>\"]}}}"
#define PIECE(kind, id) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":0}}"

static void
test_post_processors(void)
{
    static const char both[] =
        "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
        "\"ByteLevel\",\"trim_offsets\":false}," TEMPLATE(
            PIECE("SpecialToken", "<s>") "," PIECE("Sequence", "A") "," PIECE(
                "SpecialToken", "</s>")) "]},\"model\":{" AB "}}";
    struct tok *tok = NULL;
    struct err err = { 0 };
    struct ids ids = { 0 };
    static const int32_t want[] = { 1, 2, 7, 8, 1, 9 };

    tok_parse(&tok, both, sizeof(both) - 1, "t", &err);
    tap_ok(tok && tok_encode(tok, "ab", 2, 0, &ids, &err) == 0 &&
               tok_encode(tok, "a", 1, TOK_SPECIAL, &ids, &err) == 0 &&
               ids.n == 6 && memcmp(ids.id, want, sizeof(want)) == 0,
           "TemplateProcessing: around the text, with TOK_SPECIAL alone %s",
           err.what);
    tok_close(tok);
    ids_free(&ids);
}

static char warning[1024];

static void
keep_warning(const char *what)
{
    snprintf(warning, sizeof(warning), "%s", what);
}

static void
test_utf8(void)
{
    static const char bad[] = "a\xe2\x82 b\xff";
    static const char json[] =
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\" \":2,\"" FFFD
        "\":3},\"merges\":[]}}";
    static const int32_t want[] = { 0, 3, 2, 1, 3 };
    struct tok *tok = NULL;
    struct err err = { 0 };
    struct ids ids = { 0 };
    struct str fixed = { 0 };

    tok_parse(&tok, json, sizeof(json) - 1, "t", &err);
    err_warn_hook(keep_warning);
    tap_ok(tok_encode(tok, bad, sizeof(bad) - 1, 0, &ids, &err) == 0 &&
               ids.n == 5 && memcmp(ids.id, want, sizeof(want)) == 0 &&
               !warning[0],
           "text that is not UTF-8: one U+FFFD for each maximal subpart");
    tap_ok(tok_utf8("t", bad, sizeof(bad) - 1, true, &fixed, &err) < 0 &&
               err.status == EX_DATAERR && fixed.n == 0 &&
               strcmp(err.what, "t: byte 1 (0xe2) is not UTF-8") == 0,
           "strictly, an error that names the byte");
    tap_ok(tok_utf8("t", "a\xe4\xbd\xa0", 4, true, &fixed, &err) == 0 &&
               tok_utf8("t", "a\xe4\xbd\xa0", 4, false, &fixed, &err) == 0 &&
               fixed.n == 0 && !warning[0],
           "a sound text is as it is");
    tap_ok(tok_utf8("t", bad, sizeof(bad) - 1, false, &fixed, &err) == 0 &&
               fixed.n == 9 && !memcmp(fixed.s, "a" FFFD " b" FFFD, 9) &&
               strcmp(warning, "t: not UTF-8 in 2 places: U+FFFD there") == 0,
           "else U+FFFD, and one warning");
    str_free(&fixed);
    err_warn_hook(NULL);
    tok_close(tok);
    ids_free(&ids);
}

/* Ids are the reference's, whatever the file says. */
static void
test_ids(void)
{
    static const char json[] =
        "{\"truncation\":{\"max_length\":3},\"added_tokens\":[{\"id\":1,"
        "\"content\":\"a\",\"special\":true},{\"id\":9,\"content\":\"x\"},"
        "{\"id\":1,\"content\":\"a\",\"special\":false}],"
        "\"model\":{" AB "}}";
    struct tok *tok = NULL;
    struct err err = { 0 };
    struct str text = { 0 };
    int32_t beyond[] = { 1, 77, -5, 3 };
    size_t n;

    err_warn_hook(keep_warning);
    tok_parse(&tok, json, sizeof(json) - 1, "t", &err);
    err_warn_hook(NULL);
    tap_ok(tok && tok_id(tok, "x") == 3 && tok_size(tok) == 4 &&
               strcmp(warning, "t: added_tokens[1].id is 9, but the token gets "
                               "3: the vocabulary decides, as in the "
                               "reference") == 0,
           "added tokens: a new one gets the next id, with a warning %s",
           err.what);
    tap_ok(tok && tok_id(tok, "a") == 1 && tok_id(tok, "zz") == -1 &&
               tok_is_special(tok, 1) && !tok_is_special(tok, 2) &&
               strcmp(tok_text(tok, 3, &n), "x") == 0 && n == 1 &&
               !tok_text(tok, 4, &n) && !tok_text(tok, -1, &n),
           "tok_id(), tok_text(), tok_is_special()");
    tok_decode(tok, beyond, 4, false, &text, &err);
    tap_ok(same_text(&text, "a x", 3),
           "an id beyond the vocabulary is nothing");
    str_free(&text);
    tok_close(tok);
}

int
main(void)
{
    test_model();
    test_long_word();
    test_long_text();
    test_decoders();
    test_bytes();
    test_decoder_chains();
    test_post_processors();
    test_utf8();
    test_ids();
    return tap_done();
}
