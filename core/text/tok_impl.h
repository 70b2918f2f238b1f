/*
 * The tokenizer's inside: tables that tok_load.c builds from tokenizer.json
 * and that the other tok_*.c files read.  The flow of tok_encode():
 *
 *   text -> valid UTF-8 -> cut at added tokens (tok_added.c)
 *        -> normalize (tok_norm.c) -> cut at normalized added tokens
 *        -> split into words (tok_split.c) -> merge (tok_bpe.c) -> ids
 */
#ifndef CORE_TEXT_TOK_IMPL_H
#define CORE_TEXT_TOK_IMPL_H

#include "core/js.h"
#include "core/mem.h"
#include "core/regex.h"
#include "core/text/tok.h"

enum {
    TOK_MAX_STEPS = 16, /* of a normalizer, a pre-tokenizer, a decoder */
    TOK_MAX_ID = (1 << 23) - 1, /* bounds the table of tokens by id */
    TOK_MAX_TOKEN = 16384,      /* bytes of a token in the vocabulary */
    TOK_MAX_PIECE = 1024,      /* bytes of an added token or of a replacement */
    TOK_MAX_AROUND = 1024,     /* ids before a text, and after it */
    TOK_MAX_TEXT = 1 << 30,    /* bytes of one text */
    TOK_MAX_GROWTH = 64,       /* of a text by all steps: NFKD needs 11 */
    TOK_MAX_MORE = 1 << 20,    /* and bytes more, for a short text */
    TOK_MAX_GROWN = INT32_MAX, /* bytes of a text: positions fit 32 bits */
};

/*
 * What the steps of one part made of a text: of all its pieces together, each
 * step at most TOK_MAX_GROWTH times its bytes and TOK_MAX_MORE, and 'most'.
 */
struct growth {
    const char *file, *part; /* for messages */
    size_t most;             /* TOK_MAX_GROWN, or SIZE_MAX */
    size_t nbytes;           /* of the text as it came, so far */
    size_t grown[TOK_MAX_STEPS];
};

static inline size_t
growth_most(const struct growth *g)
{
    return smaller(g->nbytes * TOK_MAX_GROWTH + TOK_MAX_MORE, g->most);
}

/* How many bytes a step may still make. */
static inline size_t
growth_room(const struct growth *g, size_t i_step)
{
    return growth_most(g) - g->grown[i_step];
}

/* growth_over() is -1 with 'err' set (EX_DATAERR). */
int growth_over(const struct growth *g, size_t i_step, struct err *err);

/* growth_add() adds the bytes that a step made of a piece, if it may. */
static inline int
growth_add(struct growth *g, size_t i_step, size_t nbytes, struct err *err)
{
    if (nbytes > growth_room(g, i_step))
        return growth_over(g, i_step, err);
    g->grown[i_step] += nbytes;
    return 0;
}

/* tok_map.c: strings to ids, and pairs of ids to their merge.  No file can
 * make keys collide, as 'key' (core/keyed.h) is another in each run. */

struct hash_key;

struct map_slot {
    uint32_t hash, off, n;
    int32_t id; /* -1: the slot is empty */
};

/* Open addressing; starts as { key }.  Keys are copied into 'text'. */
struct strmap {
    const struct hash_key *key;
    struct str text;
    struct map_slot *slot;
    size_t n_slots, n;
};

void strmap_reserve(struct strmap *map, size_t n);
/* strmap_put() says where the key lies in 'text'; false: it was there. */
bool strmap_put(struct strmap *map, const char *s, size_t n, int32_t id,
                uint32_t *off);
int32_t strmap_get(const struct strmap *map, const char *s, size_t n);
void strmap_free(struct strmap *map);

#define NO_RANK UINT32_MAX

struct merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank; /* lower is merged first; NO_RANK: not a pair */
    int32_t id;
};

struct mergemap {
    const struct hash_key *key;
    struct merge *slot;
    size_t n_slots;
};

/* mergemap_init() makes room for n merges; mergemap_get() is the merge of a
 * pair, with rank NO_RANK where there is none. */
void mergemap_init(struct mergemap *map, const struct hash_key *key, size_t n);
void mergemap_put(struct mergemap *map, struct merge merge);
struct merge mergemap_get(const struct mergemap *map, int32_t left,
                          int32_t right);
void mergemap_free(struct mergemap *map);

/* tok_scan.c: the two big parts of the file, which jansson would be slow at. */

struct hot {
    struct str slim;            /* the file with vocab and merges emptied */
    const char *vocab, *merges; /* where they start in the file; or NULL */
};

/* A reader of JSON text; every function is false at what is not JSON. */
struct scan {
    const char *p, *end;
};

bool scan_skip(struct scan *scan);                  /* one value of any kind */
bool scan_string(struct scan *scan, struct str *s); /* sets s, decoded */
bool scan_int(struct scan *scan, int64_t *v);
bool scan_char(struct scan *scan, char c); /* after white space */
bool scan_hot(const char *json, size_t nbytes, struct hot *hot);

/* tok_regex.c: PCRE2 made to behave as the reference's Oniguruma. */

struct tok_regex {
    struct regex *re; /* NULL: none, or literal text */
    struct str literal;
    bool is_literal;
    char *where; /* "tokenizer.json: pre_tokenizer.pattern" */
};

/* tok_regex_parse() takes {"Regex": ..} or {"String": ..}; -1 with 'err' set
 * (EX_DATAERR) at what PCRE2 cannot say. */
int tok_regex_parse(struct tok_regex *regex, const struct js *pattern,
                    struct err *err);
void tok_regex_free(struct tok_regex *regex);

/* Matches of one regex in one text, in the reference's order. */
struct tok_regex_iter {
    const struct tok_regex *regex;
    struct regex_work *work; /* of all the text that is bounded together */
    const char *s;
    size_t n, pos;
    size_t last_end; /* of the last match; SIZE_MAX before it */
};

/* tok_regex_next() is 1: a match at [a, b); 0: no more; -1 with 'err' set. */
int tok_regex_next(struct tok_regex_iter *iter, size_t *a, size_t *b,
                   struct err *err);

/* tok_norm.c */

enum norm_type {
    NORM_UNICODE,
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_LOWER,
    NORM_STRIP
};

struct norm_step {
    enum norm_type type;
    bool compose, compat;   /* NORM_UNICODE: NFC is compose alone */
    bool left, right;       /* NORM_STRIP */
    struct str content;     /* NORM_PREPEND, NORM_REPLACE */
    struct tok_regex regex; /* NORM_REPLACE */
};

/* norm_run() makes 'out' the normalized form of s, a piece of what 'growth'
 * counts; 'work' bounds the regexes.  *at_start becomes false if the first
 * character of s is not what 'out' begins with. */
int norm_run(const struct norm_step *steps, size_t n_steps, const char *s,
             size_t n, struct growth *growth, struct regex_work *work,
             struct str *out, bool *at_start, struct err *err);
int norm_parse(struct tok *tok, const struct js *js, struct err *err);
void norm_free(struct norm_step *step);
bool is_white_space(uint32_t c);

/* tok_split.c */

enum split_type {
    SPLIT_BYTE_LEVEL,
    SPLIT_MAP_BYTES,
    SPLIT_PATTERN,
    SPLIT_DIGITS,
    SPLIT_METASPACE
};
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_PREVIOUS,
    SPLIT_NEXT,
    SPLIT_CONTIGUOUS
};
enum prepend { PREPEND_ALWAYS, PREPEND_NEVER, PREPEND_FIRST };

struct metaspace {
    char replacement[5];
    size_t n;
    enum prepend prepend;
    bool split;
};

struct split_step {
    enum split_type type;
    struct tok_regex regex; /* SPLIT_PATTERN; SPLIT_BYTE_LEVEL, if any */
    enum split_behavior behavior;
    bool invert;
    bool add_prefix_space;
    struct metaspace metaspace;
};

struct encoder;

/* split_run() hands each word of a piece to word_encode(), in order. */
int split_run(struct encoder *enc, size_t i_step, const char *s, size_t n,
              bool first);
int split_parse(struct tok *tok, const struct js *js, struct err *err);
int metaspace_parse(struct metaspace *meta, const struct js *js,
                    struct err *err);
void split_free(struct split_step *step);

/* tok_bpe.c: a word is text or, after ByteLevel, raw bytes. */

int word_encode(struct encoder *enc, const char *s, size_t n);
void bpe_tables(struct tok *tok); /* after vocab and merges are there */
void bpe_joins(struct tok *tok);  /* for words of text, not of bytes */

/* tok_added.c */

struct added {
    struct str content;
    struct str pattern; /* what is matched and decoded: maybe normalized */
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
};

struct trie_node {
    uint32_t child, sibling; /* 0: none */
    uint32_t fail;           /* the node of the longest end of this string */
    int32_t added;           /* the longest token that this string, read
                              * backwards, begins with; or -1 */
    uint8_t byte;
};

struct trie {
    struct trie_node *node; /* [0] is the root */
    size_t n, cap;
    uint32_t first[256]; /* the root's children by byte */
};

/* trie_add() adds a token's text, backwards; trie_link() makes the automaton of
 * Aho and Corasick of them all; added_parse() reads "added_tokens". */
void trie_add(struct trie *trie, const struct str *s, int32_t added);
void trie_link(struct trie *trie);
int added_parse(struct tok *tok, const struct js *list, struct err *err);

struct added_hit {
    uint32_t at;   /* where the token begins: TOK_MAX_GROWN fits */
    int32_t added; /* its index */
};

/* A text being cut at added tokens; the first five are given. */
struct added_iter {
    const struct tok *tok;
    const struct trie *trie;
    const char *s;
    size_t n;
    bool plain;            /* TOK_PLAIN */
    struct added_hit *hit; /* [n_hits] still to come, the next one last */
    size_t n_hits;
    size_t start; /* of what was not handed out */
    size_t pos;   /* of the search */
    int32_t held; /* a token waiting behind the text before it, or -1 */
    size_t held_a, held_b;
    size_t run_a, run_b; /* white space that an rstrip went over */
};

/* added_begin() finds the tokens; added_next() is the next piece of the text:
 * [a, b), 'added' its token's index or -1; false at the text's end. */
void added_begin(struct added_iter *iter);
void added_end(struct added_iter *iter);
bool added_next(struct added_iter *iter, size_t *a, size_t *b, int32_t *added);

/* tok_decode.c */

enum dec_type {
    DEC_BYTE_LEVEL,
    DEC_METASPACE,
    DEC_REPLACE,
    DEC_BYTE_FALLBACK,
    DEC_FUSE,
    DEC_STRIP
};

struct dec_step {
    enum dec_type type;
    struct metaspace metaspace;
    struct str content;     /* DEC_REPLACE; DEC_STRIP: one character */
    struct tok_regex regex; /* DEC_REPLACE */
    size_t start, stop;     /* DEC_STRIP */
};

/* dec_parse() reads the file's "decoder" into tok's steps. */
int dec_parse(struct tok *tok, const struct js *js, struct err *err);
void dec_free(struct dec_step *step);

/* Where a token's text lies in the map that 'added' chooses. */
struct text_span {
    uint32_t off, n; /* off == UINT32_MAX: no token has this id */
};

struct tok {
    char *name;           /* for messages */
    struct hash_key *key; /* of all the tables */
    struct strmap vocab;
    struct mergemap merges;
    struct mergemap joins;  /* characters that some merge brings together */
    struct text_span *span; /* [n_ids] into vocab.text */
    int32_t *added_of;      /* [n_ids] index of the added token, or -1 */
    size_t n_ids;
    struct strmap added_ids;   /* content of added tokens to ids */
    struct strmap special_set; /* content of special ones */
    struct added *added;
    size_t n_added;
    struct trie raw, normalized;

    bool byte_fallback, fuse_unk, ignore_merges;
    char *unk_token;          /* or NULL */
    int32_t unk_id;           /* -1: not in the vocabulary */
    int32_t byte_id[256];     /* "<0xHH>", or -1 */
    int32_t alphabet_id[256]; /* ByteLevel's character, or -1 */
    int32_t ascii_id[128];

    struct norm_step norm[TOK_MAX_STEPS];
    size_t n_norm;
    struct split_step split[TOK_MAX_STEPS];
    size_t n_split;
    bool bytes; /* words are raw bytes: the last step is ByteLevel */
    struct dec_step dec[TOK_MAX_STEPS];
    size_t n_dec;
    bool has_decoder;
    struct ids before, after; /* what the post-processor adds */
};

/* One tok_encode() in progress. */
struct symbol {
    int32_t id, prev, next; /* id -1: merged into its left neighbour */
    uint32_t rank;          /* of the pair with 'next' */
    int32_t merged;         /* that pair's id */
};

struct cached {
    uint64_t hash;
    uint32_t key, n_key, ids, n_ids; /* n_key 0: empty */
};

struct encoder {
    const struct tok *tok;
    struct ids *out;
    struct err *err;
    struct growth norm, split; /* of the text */
    struct regex_work regexes; /* of all steps */
    struct str scratch[TOK_MAX_STEPS];
    struct str mapped; /* a word in ByteLevel's alphabet */
    struct symbol *symbol;
    size_t n_symbols, cap_symbols;
    uint64_t *heap;
    size_t cap_heap;
    struct cached *cache;
    size_t n_cache;
    struct str keys;
    struct ids values;
};

/* tok_utf8.c */

/*
 * utf8_bad() is the length of the maximal subpart of an ill-formed sequence
 * at s: what becomes one U+FFFD.  *cut: all of it is there and only the end of
 * the text makes it ill-formed.
 */
size_t utf8_bad(const char *s, size_t n, bool *cut);
#define REPLACEMENT "\xef\xbf\xbd"

/* ByteLevel's alphabet: a byte's character as UTF-8, and back (or -1). */
size_t alphabet_put(char *s, uint8_t byte);
int alphabet_byte(uint32_t code_point);

int post_parse(struct tok *tok, const struct js *js,
               struct err *err); /* tok_parts.c */

/* What the parsers of parts share, in tok_load.c. */
int part_type(const struct js *js, const char **type, struct err *err);
int part_unknown(const struct js *js, const char *known, struct err *err);
int part_bool(const struct js *js, const char *key, int absent, bool *v,
              struct err *err); /* absent: 0, 1, or -1 for an error */
int part_too_many(const struct js *js, struct err *err);
int part_sequence(struct tok *tok, const struct js *js, const char *key,
                  int (*parse)(struct tok *, const struct js *, struct err *),
                  struct err *err);
int part_str(const struct js *js, const char *key, struct str *s,
             struct err *err);

/* tok_parse_keyed() is tok_parse() with tables under the given key, of which
 * nothing that is looked up depends. */
int tok_parse_keyed(struct tok **tok, const char *json, size_t nbytes,
                    const char *name, const struct hash_key *key,
                    struct err *err);

#endif
