/* SPDX-License-Identifier: ISC */
/*
 * Added tokens: a text is cut at them before anything else.
 */
#ifndef CORE_TEXT_TOK_ADDED_H
#define CORE_TEXT_TOK_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text/tok.h"

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

/* trie_add() adds a token's text, backwards; trie_link() then makes the
 * Aho-Corasick automaton. */
void trie_add(struct trie *trie, const struct str *s, int32_t added);
void trie_link(struct trie *trie);

struct added_hit {
    uint32_t at;   /* where the token begins: TOK_MAX_GROWN fits */
    int32_t added; /* its index */
};

/* A text being cut at added tokens; the first six are given. */
struct added_iter {
    const struct tok *tok;
    const struct trie *trie;
    const char *s;
    size_t n;
    const uint8_t *data;   /* [n] of tok_encode_marked(); or NULL */
    bool plain;            /* TOK_PLAIN */
    struct added_hit *hit; /* [n_hits] still to come, the next one last */
    size_t n_hits;
    size_t start; /* of what was not returned yet */
    size_t pos;   /* of the search */
    int32_t held; /* the next token, after the text before it; or -1 */
    size_t held_a, held_b;
    size_t run_a, run_b; /* white space that an rstrip went over */
};

/* added_begin() finds the tokens; added_next() is the next piece of the text:
 * [a, b), 'added' its token's index or -1; false at the text's end. */
void added_begin(struct added_iter *iter);
void added_end(struct added_iter *iter);
bool added_next(struct added_iter *iter, size_t *a, size_t *b, int32_t *added);

#endif
