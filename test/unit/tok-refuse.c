/* SPDX-License-Identifier: ISC */
/*
 * What a tokenizer.json may not have is refused, by its name and with 65.
 */
#include <time.h>

#include "test/unit/tap.h"
#include "test/unit/tok.h"

static double
cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}"

static void
refuses(const char *json, const char *message)
{
    struct tok *tok = NULL;
    struct err err = { 0 };
    int rc = tok_parse(&tok, json, strlen(json), "t", &err);

    tap_ok(rc < 0 && !tok && err.status == EX_DATAERR &&
               strcmp(err.what, message) == 0,
           "%s", message);
    if (strcmp(err.what, message) != 0)
        printf("# got: %s\n", err.what);
    tok_close(tok);
}

static void
test_model(void)
{
#define IN_MODEL(more) \
    "{\"model\":{" more ",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"
    refuses(IN_MODEL("\"type\":\"Unigram\""),
            "t: model.type \"Unigram\" is not supported (BPE)");
    refuses(IN_MODEL("\"dropout\":0.5"),
            "t: model.dropout is 0.5 (expected null or 0: ids would be "
            "random)");
    refuses(IN_MODEL("\"continuing_subword_prefix\":\"##\""),
            "t: model.continuing_subword_prefix is \"##\" (expected null or "
            "\"\")");
    refuses(IN_MODEL("\"end_of_word_suffix\":\"</w>\""),
            "t: model.end_of_word_suffix is \"</w>\" (expected null or \"\")");
    refuses(IN_MODEL("\"fuse_unk\":1"),
            "t: model.fuse_unk is 1 (expected true or false)");
    refuses("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.5]]}}",
            "t: model.type \"Unigram\" is not supported (BPE)");
    refuses("{\"model\":{\"merges\":[]}}", "t: model has no vocab (an object)");
    refuses("{\"model\":{\"vocab\":{}}}", "t: model has no merges (an array)");
    refuses("{}", "t: model is missing (expected an object)");
    refuses("{\"version\":\"2.0\"," MODEL "}",
            "t: version is \"2.0\" (expected \"1.0\")");
}

static void
test_tables(void)
{
#define VOCAB(vocab) "{\"model\":{\"vocab\":{" vocab "},\"merges\":[]}}"
#define MERGES(merges) \
    "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[" merges "]}}"
    refuses(VOCAB("\"a\":0,\"b\":8388608"),
            "t: model.vocab: entry 1 has an id that is too large");
    refuses(VOCAB("\"a\":0,\"b\":0"),
            "t: model.vocab: entry 1 has an id that another has");
    refuses(VOCAB("\"a\":0,\"a\":1"), "t: model.vocab: entry 1 appears twice");
    refuses(VOCAB("\"a\":-1"),
            "t: model.vocab: entry 0 is not a string with an id");
    refuses(VOCAB("\"a\":1.5"),
            "t: model.vocab: entry 0 is not a string with an id");
    refuses(VOCAB("\"\\ud800\":1"), "t: model.vocab: entry 0 is not UTF-8");
    refuses(VOCAB("\"a\":0,\"\xff\":1"),
            "t: line 1, column 26: unable to decode byte 0xff near '\"'");
    refuses(MERGES("\"a b\",\"a c\""),
            "t: model.merges: entry 1 has a right part that is not in vocab");
    refuses(MERGES("[\"c\",\"a\"]"),
            "t: model.merges: entry 0 has a left part that is not in vocab");
    refuses(MERGES("\"b a\""),
            "t: model.merges: entry 0 gives a token that is not in vocab");
    refuses(MERGES("\"ab\""),
            "t: model.merges: entry 0 is not a pair of tokens");
    refuses(MERGES("\"a b ab\""),
            "t: model.merges: entry 0 is not a pair of tokens");
    refuses(MERGES("[\"a\",\"b\",\"ab\"]"),
            "t: model.merges: entry 0 is not a pair of tokens");
    refuses(MERGES("\"a b\" \"a b\""),
            "t: line 1, column 60: ']' expected near '\"a b\"'");
}

static void
test_types(void)
{
#define PART(part, json) "{\"" part "\":" json "," MODEL "}"
    refuses(PART("normalizer", "{\"type\":\"Precompiled\"}"),
            "t: normalizer.type \"Precompiled\" is not supported (NFC, NFD, "
            "NFKC, NFKD, Prepend, Replace, Sequence)");
    refuses(PART("normalizer", "{\"type\":\"NFX\"}"),
            "t: normalizer.type \"NFX\" is not supported (NFC, NFD, NFKC, "
            "NFKD, Prepend, Replace, Sequence)");
    refuses(PART("normalizer", "{}"),
            "t: normalizer.type is missing (expected a string)");
    refuses(PART("pre_tokenizer",
                 "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                 "\"Whitespace\"}]}"),
            "t: pre_tokenizer.pretokenizers[0].type \"Whitespace\" is not "
            "supported (ByteLevel, Split, Digits, Metaspace, Sequence)");
    refuses(PART("post_processor", "{\"type\":\"BertProcessing\"}"),
            "t: post_processor.type \"BertProcessing\" is not supported "
            "(ByteLevel, TemplateProcessing, Sequence)");
    refuses(PART("decoder", "{\"type\":\"WordPiece\"}"),
            "t: decoder.type \"WordPiece\" is not supported (ByteLevel, "
            "Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence)");
    refuses(PART("decoder", "{\"type\":\"Sequence\"}"),
            "t: decoder.decoders is missing (expected an array)");
}

static void
test_members(void)
{
#define SPLIT(more) PART("pre_tokenizer", "{\"type\":\"Split\"," more "}")
#define REGEX(regex) \
    SPLIT("\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"" regex "\"}")
#define AT_REGEX "t: pre_tokenizer.pattern.Regex: regex"
#define META(more)        \
    PART("pre_tokenizer", \
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"" more "}")
    refuses(SPLIT("\"pattern\":{\"String\":\"a\"},\"behavior\":\"removed\""),
            "t: pre_tokenizer.behavior is \"removed\" (expected Removed, "
            "Isolated, MergedWithPrevious, MergedWithNext or Contiguous)");
    refuses(REGEX("(a"), AT_REGEX ": missing closing parenthesis (at byte 2)");
    refuses(REGEX("[a&&b]"), AT_REGEX " with && in brackets is not supported");
    refuses(REGEX("[a[b]]"),
            AT_REGEX " with brackets in brackets is not supported");
    refuses(REGEX("[[:alpha:]]"), AT_REGEX " with [:name:] is not supported");
    refuses(REGEX("a{1,3}+"), AT_REGEX " with \"}+\" is not supported");
    refuses(REGEX("(?im)a"),
            AT_REGEX " with an option other than i and x is not supported");
    refuses(REGEX("\\\\h"), AT_REGEX " with \\h is not supported");
    refuses(META(",\"prepend_scheme\":\"last\""),
            "t: pre_tokenizer.prepend_scheme is \"last\" (expected always, "
            "never or first)");
    refuses(META(",\"prepend_scheme\":\"first\",\"add_prefix_space\":false"),
            "t: pre_tokenizer.prepend_scheme is \"first\" (expected never: "
            "add_prefix_space is false)");
    refuses(PART("pre_tokenizer",
                 "{\"type\":\"Metaspace\",\"replacement\":\"__\"}"),
            "t: pre_tokenizer.replacement is \"__\" (expected one character)");
    refuses(PART("pre_tokenizer", "{\"type\":\"Digits\"}"),
            "t: pre_tokenizer.individual_digits is missing (expected true or "
            "false)");
    refuses(PART("decoder", "{\"type\":\"Strip\",\"content\":\"ab\",\"start\":"
                            "1,\"stop\":0}"),
            "t: decoder.content is \"ab\" (expected one character)");
    refuses(PART("decoder", "{\"type\":\"Strip\",\"content\":\"a\",\"start\":"
                            "1,\"stop\":1}"),
            "t: decoder.stop is 1 (expected 0)");
    refuses(PART("added_tokens", "[{\"id\":-1,\"content\":\"x\"}]"),
            "t: added_tokens[0].id is -1 (expected a whole number from 0 to "
            "8388607)");
    refuses(PART("post_processor",
                 "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{"
                 "\"id\":\"B\"}}]}"),
            "t: post_processor.single[0].Sequence.id is \"B\" (expected one "
            "\"A\")");
    refuses(PART("post_processor",
                 "{\"type\":\"TemplateProcessing\",\"single\":[{"
                 "\"SpecialToken\":{\"id\":\"<s>\"}}],\"special_tokens\":{}}"),
            "t: post_processor.special_tokens.<s>.ids is missing (expected an "
            "array of ids)");
    refuses(
        PART("post_processor",
             "{\"type\":\"TemplateProcessing\",\"single\":[]}"),
        "t: post_processor.single is an empty array (expected a template with "
        "the sequence \"A\")");
}

/* What PCRE2 takes for something else than Oniguruma does. */
static void
test_regexes(void)
{
    static const char *const others[][2] = {
        { "\\\\C", "\\C" },
        { "\\\\K", "\\K" },
        { "\\\\N", "\\N" },
        { "\\\\Qa\\\\E", "\\Q" },
        { "[\\\\V]", "\\V" },
        { "\\\\cA", "\\c" },
        { "\\\\o{7}", "\\o" },
        { "\\\\pL", "\\p without {NAME}" },
        { "a{,3}", "\"{,\"" },
        { "\\\\xe9", "a byte of \\x80 and more" },
        { "(*UTF)a", "\"(*\"" },
        { "(?|a)", "a group that only PCRE2 knows" },
        { "(?P<a>b)", "a group that only PCRE2 knows" },
        { "(?U)a", "an option other than i and x" },
        { "x(?i)b|c", "(?i) before alternatives" },
        { "a{2}?", "\"{n}?\"" },
        { "a\\\\", "a backslash at the end" },
        { "[\\\\W]", "\\W" },
        { "a\\\\b", "\\b" },
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        struct str json = { 0 }, want = { 0 };

        str_addf(&json, REGEX("%s"), others[i][0]);
        str_addf(&want, AT_REGEX " with %s is not supported", others[i][1]);
        refuses(json.s, want.s);
        str_free(&json);
        str_free(&want);
    }
}

static void
test_templates(void)
{
#define TEMPLATE                                                            \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":"   \
    "\"A\"}},{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{\"s\":" \
    "{\"ids\":[0]}}}"
    refuses(PART("post_processor", "{\"type\":\"Sequence\",\"processors\":"
                                   "[" TEMPLATE "," TEMPLATE "]}"),
            "t: post_processor.processors[1]: a second template that adds "
            "something is not supported");
}

#define GROW                                                            \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":" \
    "\"aaaaaaaaaa\"}"

/* What only encoding can find out. */
static void
test_encode(void)
{
    static const struct {
        const char *json, *text, *message;
    } cases[] = {
        { REGEX("(?:a|aa)*b|x"),
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          AT_REGEX " takes more than 1049984 steps for 88 bytes of text" },
        { PART("normalizer", "{\"type\":\"Sequence\",\"normalizers\":[" GROW
                             "," GROW "," GROW "," GROW "," GROW "," GROW "]}"),
          "aaaaaaaa",
          "t: normalizer: step 6 makes a text of 8 bytes longer than "
          "1049088" },
        { IN_MODEL("\"unk_token\":\"<unk>\""), "c",
          "t: model.unk_token \"<unk>\" is needed, but not in the "
          "vocabulary" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tok *tok = NULL;
        struct ids ids = { 0 };
        struct err err = { 0 };

        tok_parse(&tok, cases[i].json, strlen(cases[i].json), "t", &err);
        tap_ok(tok &&
                   tok_encode(tok, cases[i].text, strlen(cases[i].text), 0,
                              &ids, &err) < 0 &&
                   ids.n == 0 && err.status == EX_DATAERR &&
                   strcmp(err.what, cases[i].message) == 0,
               "encoding: %s", cases[i].message);
        if (strcmp(err.what, cases[i].message) != 0)
            printf("# got: %s\n", err.what);
        tok_close(tok);
        ids_free(&ids);
    }
}

/* Does a tokenizer with this pattern refuse the text so? */
static void
encodes_not(const char *json, const struct str *text, const char *message)
{
    struct tok *tok = NULL;
    struct ids ids = { 0 };
    struct err err = { 0 };
    double start = cpu_s(), took;
    int rc = tok_parse(&tok, json, strlen(json), "t", &err);

    if (rc == 0)
        rc = tok_encode(tok, text->s, text->n, 0, &ids, &err);
    took = cpu_s() - start;
    if (!tap_ok(rc < 0 && ids.n == 0 && err.status == EX_DATAERR &&
                    !strcmp(err.what, message) && (took < 30 || tap_slow()),
                "encoding %zu bytes: %s", text->n, message))
        printf("# got: %s, after %.3g s\n", err.what, took);
    tok_close(tok);
    ids_free(&ids);
}

/* Both would take 14 ms a character. */
static void
test_steps(void)
{
    struct str text = { 0 };

    for (size_t i = 0; i < (tap_slow() ? 2000 : 20000); i++)
        str_adds(&text, "a");
    if (tap_slow()) {
        tap_skip("the steps of long texts", "this machine is slow");
        str_free(&text);
        return;
    }
    encodes_not(REGEX("(?:(?:a|a){22}b)|[^x]"), &text,
                AT_REGEX " takes more than 1368576 steps for 20000 bytes of "
                         "text");
    encodes_not(PART("normalizer",
                     "{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
                     "\"(?:(?:a|a){22}b)|a\"},\"content\":\"a\"}"),
                &text,
                "t: normalizer.pattern.Regex: regex takes more than 1368576 "
                "steps for 20000 bytes of text");
    str_free(&text);
}

/* Each \\s becomes a list of all white space. */
static void
test_growing(void)
{
    static const struct {
        size_t n; /* of \\s */
        const char *message;
    } cases[] = {
        { 500, "" },
        { 1000, AT_REGEX " of 2000 bytes becomes more than 16384 as PCRE2's" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct str json = { 0 }, spaces = { 0 };
        struct tok *tok = NULL;
        struct err err = { 0 };

        for (size_t k = 0; k < cases[i].n; k++)
            str_adds(&spaces, "\\\\s");
        str_addf(&json, REGEX("%s"), spaces.s);
        tok_parse(&tok, json.s, json.n, "t", &err);
        tap_ok(strncmp(err.what, cases[i].message, strlen(cases[i].message)) ==
                       0 &&
                   (tok != NULL) == !*cases[i].message,
               "%zu times \\s: %s", cases[i].n, err.what);
        tok_close(tok);
        str_free(&json);
        str_free(&spaces);
    }
}

/* Limits that keep a hostile file from asking for more and more. */
static void
test_limits(void)
{
    struct str json = { 0 };

    str_adds(&json, "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[");
    for (int i = 0; i < 17; i++)
        str_addf(&json, "%s{\"type\":\"Fuse\"}", i ? "," : "");
    str_adds(&json, "]}," MODEL "}");
    refuses(json.s, "t: decoder.decoders[16]: more than 16 steps");
    str_clear(&json);
    str_addf(&json,
             "{\"added_tokens\":[{\"id\":1,\"content\":\"%01025d\"}],%s}", 0,
             MODEL);
    refuses(json.s, "t: added_tokens[0].content has 1025 bytes (at most 1024)");
    str_free(&json);
}

int
main(void)
{
    struct tok *tok;
    struct err err = { 0 };

    test_model();
    test_tables();
    test_types();
    test_members();
    test_regexes();
    test_templates();
    test_encode();
    test_steps();
    test_growing();
    test_limits();
    refuses("{\"model\":{\"vocab\":{\"a\":0,},\"merges\":[]}}",
            "t: line 1, column 26: string or '}' expected near '}'");
    refuses("[]", "t: is not a JSON object");
    refuses("{\"model\" 1}", "t: line 1, column 10: ':' expected near '1'");
    tap_ok(tok_open(&tok, "/nonexistent/t", &err) < 0 && !tok &&
               err.status == EX_NOINPUT,
           "a file that is not there: %s", err.what);
    return tap_done();
}
