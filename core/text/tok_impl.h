/* SPDX-License-Identifier: ISC */
/*
 * The tokenizer's tables, which tok_load.c builds from tokenizer.json and the
 * other tok_*.c files read.  The flow of tok_encode():
 *
 *   text -> valid UTF-8 -> cut at added tokens (tok_added.c)
 *        -> normalize (tok_norm.c) -> cut at normalized added tokens
 *        -> split into words (tok_split.c) -> merge (tok_bpe.c) -> ids
 */
#ifndef CORE_TEXT_TOK_IMPL_H
#define CORE_TEXT_TOK_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/keyed.h"
#include "core/text/tok_added.h"
#include "core/text/tok_decode.h"
#include "core/text/tok_map.h"
#include "core/text/tok_norm.h"

/* Where a token's text is in vocab.text. */
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
    bool special_normalized; /* a special token is of the latter */

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

/* tok_parse_keyed() is tok_parse() with a given key for the hash tables, on
 * which no result depends. */
int tok_parse_keyed(struct tok **tok, const char *json, size_t nbytes,
                    const char *name, const struct hash_key *key,
                    struct err *err);

#endif
