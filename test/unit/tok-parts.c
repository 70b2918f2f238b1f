/* SPDX-License-Identifier: ISC */
/*
 * The parts of a tokenizer.json, one small file each.  Expectations are the
 * documented behaviour of the reference library, most of them its own tests',
 * or worked out by hand.
 */
#include "test/unit/tap.h"
#include "test/unit/tok.h"

/* Does the text come apart into exactly these words? */
static void
splits_with(int flags, const char *name, const char *parts, const char *text,
            const char *const *words)
{
    struct str json = { 0 };
    struct ids ids = { 0 };
    struct tok *tok = NULL;
    struct err err = { 0 };
    bool ok;

    make_json(&json, parts, words);
    ok = tok_parse(&tok, json.s, json.n, "t", &err) == 0 &&
         tok_encode(tok, text, strlen(text), flags, &ids, &err) == 0;
    for (size_t i = 0; i < ids.n; i++)
        ok &= words[i] && ids.id[i] == index_of(words, words[i]);
    for (size_t i = 0; words[i]; i++)
        ok &= i < ids.n;
    tap_ok(ok, "%s %s", name, err.what);
    tok_close(tok);
    ids_free(&ids);
    str_free(&json);
}

static void
splits(const char *name, const char *parts, const char *text,
       const char *const *words)
{
    splits_with(0, name, parts, text, words);
}

#define SPLIT(pattern, behavior, invert)                          \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{" pattern \
    "},\"behavior\":\"" behavior "\",\"invert\":" invert "},"
#define NO_SPACE "\"Regex\":\"[\\\\p{L}\\\\p{N}]+|[^\\\\p{L}\\\\p{N}\\\\s]+\""
#define DASH     "\"String\":\"-\""

static void
test_split(void)
{
    const char *how = "How are you doing?", *dash = "The-final--countdown";

    splits("Split: Removed, inverted", SPLIT(NO_SPACE, "Removed", "true"), how,
           WORDS("How", "are", "you", "doing", "?"));
    splits("Split: Isolated, inverted", SPLIT(NO_SPACE, "Isolated", "true"),
           how, WORDS("How", " ", "are", " ", "you", " ", "doing", "?"));
    splits("Split: MergedWithPrevious, inverted",
           SPLIT(NO_SPACE, "MergedWithPrevious", "true"), how,
           WORDS("How ", "are ", "you ", "doing", "?"));
    splits("Split: MergedWithNext, inverted",
           SPLIT(NO_SPACE, "MergedWithNext", "true"), how,
           WORDS("How", " are", " you", " doing", "?"));
    splits("Split: Contiguous, inverted", SPLIT(NO_SPACE, "Contiguous", "true"),
           how, WORDS("How", " ", "are", " ", "you", " ", "doing?"));
    splits("Split: Removed", SPLIT(DASH, "Removed", "false"), dash,
           WORDS("The", "final", "countdown"));
    splits("Split: Isolated", SPLIT(DASH, "Isolated", "false"), dash,
           WORDS("The", "-", "final", "-", "-", "countdown"));
    splits("Split: MergedWithPrevious",
           SPLIT(DASH, "MergedWithPrevious", "false"), dash,
           WORDS("The-", "final-", "-", "countdown"));
    splits("Split: MergedWithNext", SPLIT(DASH, "MergedWithNext", "false"),
           dash, WORDS("The", "-final", "-", "-countdown"));
    splits("Split: Contiguous", SPLIT(DASH, "Contiguous", "false"), dash,
           WORDS("The", "-", "final", "--", "countdown"));
    splits("Split: a String pattern is no regex",
           SPLIT("\"String\":\"a.\"", "Removed", "false"), "xa.yabz",
           WORDS("x", "yabz"));
}

static void
test_regex(void)
{
    splits("regex: ^ and $ are those of lines, as in Oniguruma",
           SPLIT("\"Regex\":\"^a|b$\"", "Removed", "false"), "ac\nad\neb\nbf",
           WORDS("c\n", "d\ne", "\nbf"));
    splits("regex: U+180E is no space, NEL and U+2003 are",
           SPLIT("\"Regex\":\"\\\\s\"", "Removed", "false"),
           "a\xe1\xa0\x8e"
           "b\xc2\x85"
           "c\xe2\x80\x83"
           "d",
           WORDS("a\xe1\xa0\x8e"
                 "b",
                 "c", "d"));
    splits("regex: nor is U+180E in brackets",
           SPLIT("\"Regex\":\"[^\\\\S\\\\n]+\"", "Removed", "false"),
           "a\xe1\xa0\x8e\t\n \xe3\x80\x80\xe2\x81\x9f"
           "b",
           WORDS("a\xe1\xa0\x8e", "\n", "b"));
    splits("regex: an ignored case reaches U+017F",
           SPLIT("\"Regex\":\"(?i:'s)\"", "Isolated", "false"),
           "a'Sb'\xc5\xbf"
           "c",
           WORDS("a", "'S", "b", "'\xc5\xbf", "c"));
    splits("regex: empty matches split between characters",
           SPLIT("\"Regex\":\"(?=b)\"", "Removed", "false"), "abcb",
           WORDS("a", "bc", "b"));
}

/* Answers of the reference library, tokenizers 0.23.2. */
static void
test_regex_reference(void)
{
    splits("regex: a script is of that script alone",
           SPLIT("\"Regex\":\"\\\\p{Han}+\"", "Removed", "false"),
           "\xe6\xbc\xa2\xe3\x80\x81\xe5\xad\x97\xe3\x83\xbc"
           "b",
           WORDS("\xe3\x80\x81", "\xe3\x83\xbc"
                                 "b"));
    splits("regex: and so it is in brackets, and turned round",
           SPLIT("\"Regex\":\"[^\\\\P{^Katakana}a]\"", "Removed", "false"),
           "a\xe3\x82\xab\xe3\x83\xbc", WORDS("a\xe3\x82\xab"));
    splits("regex: (?i) at the beginning",
           SPLIT("\"Regex\":\"(?i)b|c\"", "Removed", "false"), "aBxCy",
           WORDS("a", "x", "y"));
    splits("regex: \\p{L}+ is no interval",
           SPLIT("\"Regex\":\"\\\\p{L}+\"", "Removed", "true"), "ab1c",
           WORDS("ab", "c"));
}

#define BYTE_LEVEL(prefix, regex)                                            \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix \
    ",\"trim_offsets\":true,\"use_regex\":" regex "},"

static void
test_byte_level(void)
{
    const char *hello = "Hello my friend, how is your day going?";

    splits("ByteLevel: GPT-2's regex", BYTE_LEVEL("false", "true"), hello,
           WORDS("Hello", G "my", G "friend", ",", G "how", G "is", G "your",
                 G "day", G "going", "?"));
    splits("ByteLevel: without its regex, and a space in front",
           BYTE_LEVEL("true", "false"), hello,
           WORDS(G "Hello" G "my" G "friend," G "how" G "is" G "your" G "day" G
                   "going?"));
    splits("ByteLevel: no second space in front", BYTE_LEVEL("true", "true"),
           " Hello", WORDS(G "Hello"));
    splits("ByteLevel: newlines", BYTE_LEVEL("false", "true"),
           "Hello there\nHello there",
           WORDS("Hello", G "there", "\xc4\x8a", "Hello", G "there"));
    splits("ByteLevel: the last of many spaces goes with the word",
           BYTE_LEVEL("false", "true"), "Hello there       dear",
           WORDS("Hello", G "there", G G G G G G, G "dear"));
    splits("ByteLevel: a character that is split up",
           BYTE_LEVEL("false", "true"), "i\xe2\xad\xa2j",
           WORDS("i", "\xc3\xa2\xc5\x83\xc2\xa2", "j"));
    splits("ByteLevel: what follows it sees its alphabet",
           "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
           "\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
           "\"use_regex\":false},{\"type\":\"Split\",\"pattern\":{\"String\":"
           "\"" G "\"},\"behavior\":\"Removed\",\"invert\":false}]},",
           "a b", WORDS("a", "b"));
}

#define DIGITS(each) \
    "\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":" each "},"
#define METASPACE(members)                                           \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" M \
    "\"" members "},"
#define CUT_AT_S                                            \
    "{\"type\":\"Split\",\"pattern\":{\"String\":\"<s>\"}," \
    "\"behavior\":\"Isolated\",\"invert\":false}"

static void
test_digits_metaspace(void)
{
    splits("Digits: together", DIGITS("false"), "Hey 123 friend!",
           WORDS("Hey ", "123", " friend!"));
    splits("Digits: each by itself", DIGITS("true"), "Hey 123 friend!",
           WORDS("Hey ", "1", "2", "3", " friend!"));
    splits("Digits: any numeric character", DIGITS("false"),
           "a\xc2\xbd\xe2\x85\xa7z", WORDS("a", "\xc2\xbd\xe2\x85\xa7", "z"));
    splits("Metaspace: always, by default", METASPACE(""), "Hey friend!",
           WORDS(M "Hey", M "friend!"));
    splits("Metaspace: many spaces", METASPACE(""), "Hey   friend!",
           WORDS(M "Hey", M, M, M "friend!"));
    splits("Metaspace: never", METASPACE(",\"prepend_scheme\":\"never\""),
           "Hey friend!", WORDS("Hey", M "friend!"));
    splits("Metaspace: the old add_prefix_space",
           METASPACE(",\"add_prefix_space\":false"), "Hey", WORDS("Hey"));
    splits("Metaspace: no second replacement in front", METASPACE(""), " Hey",
           WORDS(M "Hey"));
    splits(
        "Metaspace: first, without splitting",
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" CUT_AT_S
        ",{\"type\":\"Metaspace\",\"replacement\":\"" M "\","
        "\"prepend_scheme\":\"first\",\"split\":false}]},",
        "Hey my friend <s>how" M "are you",
        WORDS(M "Hey" M "my" M "friend" M, "<s>", "how" M "are" M "you"));
    splits(
        "Metaspace: first is the text's start, not a piece's",
        METASPACE(",\"prepend_scheme\":\"first\"") "\"added_tokens\":[" ADDED(
            "<s>", ",\"special\":true") "],",
        "<s>how", WORDS("<s>", "how"));
}

#define NORMALIZER(json) "\"normalizer\":" json ","
#define RULE(from, to)                                             \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"}," \
    "\"content\":\"" to "\"}"

static void
test_normalizers(void)
{
    splits("normalizer: null", "\"normalizer\":null,", "e\xcc\x81",
           WORDS("e\xcc\x81"));
    splits("NFC: composes, also across a run of marks",
           NORMALIZER("{\"type\":\"NFC\"}"), "xe\xcc\xa3\xcc\x82z\xe2\x84\xaa",
           WORDS("x\xe1\xbb\x87zK"));
    splits("NFC: marks are put in order first",
           NORMALIZER("{\"type\":\"NFC\"}"), "q\xcc\x87\xcc\xa3",
           WORDS("q\xcc\xa3\xcc\x87"));
    splits("NFC: Hangul composes", NORMALIZER("{\"type\":\"NFC\"}"),
           "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", WORDS("\xed\x95\x9c"));
    splits("NFC: Hangul and a trailing jamo", NORMALIZER("{\"type\":\"NFC\"}"),
           "\xed\x95\x98\xe1\x86\xab", WORDS("\xed\x95\x9c"));
    splits("NFD: Hangul falls apart", NORMALIZER("{\"type\":\"NFD\"}"),
           "\xed\x95\x9c\xc3\xa9",
           WORDS("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"
                 "e\xcc\x81"));
    splits("NFKC: a ligature and a half", NORMALIZER("{\"type\":\"NFKC\"}"),
           "\xef\xac\x81\xc2\xbd",
           WORDS("fi1\xe2\x81\x84"
                 "2"));
    splits("Prepend",
           NORMALIZER("{\"type\":\"Prepend\",\"prepend\":\"" M "\"}"), "Hello",
           WORDS(M "Hello"));
    splits("Replace: a String",
           NORMALIZER("{\"type\":\"Replace\",\"pattern\":{\"String\":\"''\"},"
                      "\"content\":\"\\\"\"}"),
           "This is a ''test''", WORDS("This is a \"test\""));
    splits("Replace: a Regex",
           NORMALIZER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
                      "\"\\\\s+\"},\"content\":\" \"}"),
           "This     is   a         test", WORDS("This is a test"));
    splits(
        "Sequence: in order, and nested",
        NORMALIZER(
            "{\"type\":\"Sequence\",\"normalizers\":[" RULE("B", "b") ",{\"type\":\"Sequence\",\"normalizers\":[" RULE(
                "b", "c") ","
                          "{\"type\":\"Prepend\",\"prepend\":\"X\"}]}]}"),
        "aB b", WORDS("Xac c"));
}

#define BOTH ",\"lstrip\":true,\"rstrip\":true"
#define LOWER                                                   \
    NORMALIZER("{\"type\":\"Sequence\",\"normalizers\":[" RULE( \
        "M", "m") "," RULE("A", "a") "]}")

static void
test_added(void)
{
    splits("added tokens: leftmost longest",
           "\"added_tokens\":[" ADDED("ab", "") "," ADDED("abcd", "") "," ADDED(
               "bcd", "") "],",
           "abcd abc bcd", WORDS("abcd", " ", "ab", "c ", "bcd"));
    splits(
        "added tokens: lstrip and rstrip, on normalized text",
        LOWER
        "\"added_tokens\":[" ADDED("my", BOTH ",\"normalized\":true") "," ADDED(
            "[CLS]", ",\"special\":true,\"normalized\":false") "],",
        "[CLS] My name", WORDS("[CLS]", "my", "name"));
    splits("added tokens: without normalized, on the raw text",
           LOWER "\"added_tokens\":[" ADDED("My", ",\"normalized\":false") "],",
           "my My", WORDS("my ", "My"));
    splits("added tokens: single_word",
           LOWER "\"added_tokens\":[" ADDED(
               "<mask>", ",\"single_word\":true,\"normalized\":true") "],",
           "<mask> My name <mask> A<mask> <mask>ony <mask>",
           WORDS("<mask>", " my name ", "<mask>", " a<mask> <mask>ony ",
                 "<mask>"));
    splits("added tokens: a combining mark is of a word",
           LOWER "\"added_tokens\":[" ADDED(
               "<mask>", ",\"single_word\":true,\"normalized\":true") "],",
           "<mask>, <mask>- \xe2\x97\x8c\xcc\xb0<mask>",
           WORDS("<mask>", ", ", "<mask>", "- \xe2\x97\x8c\xcc\xb0<mask>"));
    splits("added tokens: strips Unicode's spaces, none twice",
           "\"added_tokens\":[" ADDED("<mask>",
                                      ",\"lstrip\":true,\"rstrip\":"
                                      "true,\"normalized\":false") "],",
           "Hi <mask> there\t<mask>\t<mask>\xe2\x80\x80",
           WORDS("Hi", "<mask>", "there", "<mask>", "<mask>"));
    splits("added tokens: one that rstrip has swallowed is none",
           "\"added_tokens\":[" ADDED("  ", ",\"lstrip\":true,\"rstrip\":true,"
                                            "\"normalized\":false") "],",
           "x    y", WORDS("x", "  ", "y"));
    splits_with(TOK_PLAIN, "TOK_PLAIN: special ones are text, others are not",
                "\"added_tokens\":[" ADDED(
                    "<pad>", ",\"special\":true") "," ADDED("ask>", "") "],",
                "a <pad><mask>", WORDS("a <pad><m", "ask>"));
}

int
main(void)
{
    test_split();
    test_regex();
    test_regex_reference();
    test_byte_level();
    test_digits_metaspace();
    test_normalizers();
    test_added();
    return tap_done();
}
