/* SPDX-License-Identifier: ISC */
/*
 * Byte-pair merges: a word to ids, with a cache of words.
 */
#ifndef CORE_TEXT_TOK_BPE_H
#define CORE_TEXT_TOK_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "core/regex.h"
#include "core/text/tok.h"
#include "core/text/tok_growth.h"

struct symbol {
    int32_t id, prev, next; /* id -1: merged into its left neighbour */
    uint32_t rank;          /* of the pair with 'next' */
    int32_t merged;         /* that pair's id */
};

struct cached {
    uint64_t hash;
    uint32_t key, n_key, ids, n_ids; /* n_key 0: empty */
};

/* One tok_encode() in progress. */
struct encoder {
    const struct tok *tok;
    struct ids *out;
    struct err *err;
    bool no_special;           /* no word is a special token */
    struct growth norm, split; /* of the text */
    struct regex_work regexes; /* of all steps */
    struct str scratch[TOK_MAX_STEPS];
    struct str normal; /* a piece, normalized */
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

/* word_encode() appends a word's ids to enc->out; -1 with enc->err set.  It is
 * text or, after ByteLevel, raw bytes. */
int word_encode(struct encoder *enc, const char *s, size_t n);

/* The tables of 'tok' that are derived from those in the file. */
void bpe_tables(struct tok *tok); /* after vocab and merges are there */
void bpe_joins(struct tok *tok);  /* for words of text, not of bytes */

#endif
