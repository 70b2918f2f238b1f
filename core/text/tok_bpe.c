/* SPDX-License-Identifier: ISC */
#include "core/text/tok_bpe.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/keyed.h"
#include "core/mem.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_map.h"
#include "core/text/tok_utf8.h"

enum {
    CACHED_WORD = 64,    /* bytes: longer words hardly ever come again */
    CACHE_KEYS = 1 << 22 /* bytes of words before the cache is emptied */
};

static void
add_symbol(struct encoder *enc, int32_t id)
{
    if (enc->n_symbols == enc->cap_symbols)
        enc->symbol = xgrow(enc->symbol, enc->n_symbols, &enc->cap_symbols,
                            sizeof(*enc->symbol));
    enc->symbol[enc->n_symbols++].id = id;
}

/*
 * One character and its id, or -1. An unknown token waits in *unk for others to
 * fuse with; byte tokens do not flush it, as in the reference.
 */
static int
add_char(struct encoder *enc, const char *s, size_t n, int32_t id, bool *unk)
{
    const struct tok *tok = enc->tok;
    bool as_bytes = tok->byte_fallback;

    if (id >= 0) {
        if (*unk)
            add_symbol(enc, tok->unk_id);
        *unk = false;
        add_symbol(enc, id);
        return 0;
    }
    for (size_t i = 0; as_bytes && i < n; i++) /* all of them, or none */
        as_bytes = tok->byte_id[(uint8_t)s[i]] >= 0;
    for (size_t i = 0; as_bytes && i < n; i++)
        add_symbol(enc, tok->byte_id[(uint8_t)s[i]]);
    if (as_bytes || !tok->unk_token)
        return 0;
    if (tok->unk_id < 0)
        return err_set(enc->err, EX_DATAERR,
                       "%s: model.unk_token \"%s\" is needed, but not in the "
                       "vocabulary",
                       tok->name, tok->unk_token);
    if (*unk && !tok->fuse_unk)
        add_symbol(enc, tok->unk_id);
    *unk = true;
    return 0;
}

/* The id of a character of the vocabulary, or -1. */
static int32_t
char_id(const struct tok *tok, const char *s, size_t n)
{
    return (uint8_t)*s < 0x80 ? tok->ascii_id[(uint8_t)*s]
                              : strmap_get(&tok->vocab, s, n);
}

/* The word's characters as symbols. */
static int
add_word(struct encoder *enc, const char *s, size_t n)
{
    const struct tok *tok = enc->tok;
    bool unk = false;
    char utf8[4];
    uint32_t c;

    enc->n_symbols = 0;
    for (size_t i = 0, length = 1; i < n; i += length) {
        uint8_t b = (uint8_t)s[i];
        int rc;

        if (tok->bytes) {
            int32_t id = tok->alphabet_id[b];

            rc = add_char(enc, utf8, id < 0 ? alphabet_put(utf8, b) : 0, id,
                          &unk);
        } else {
            length = b < 0x80 ? 1 : (size_t)utf8_next(s + i, n - i, &c);
            rc =
                add_char(enc, s + i, length, char_id(tok, s + i, length), &unk);
        }
        if (rc < 0)
            return -1;
    }
    if (unk)
        add_symbol(enc, tok->unk_id);
    return 0;
}

static void
rank_pair(const struct tok *tok, struct symbol *left,
          const struct symbol *right)
{
    struct bpe_merge merge = mergemap_get(&tok->merges, left->id, right->id);

    left->rank = merge.rank;
    left->merged = merge.id;
}

/* A binary heap of rank << 32 | position, the smallest on top. */
static void
sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= v)
            break;
        heap[i] = heap[child];
    }
    heap[i] = v;
}

static void
push(uint64_t *heap, size_t *n, const struct symbol *y, size_t i)
{
    uint64_t v = (uint64_t)y[i].rank << 32 | i;
    size_t at, parent;

    if (y[i].rank == NO_RANK)
        return;
    for (at = (*n)++; at > 0 && heap[parent = (at - 1) / 2] > v; at = parent)
        heap[at] = heap[parent];
    heap[at] = v;
}

/* Positions fit 32 bits: a symbol is at least a byte of its word. */
_Static_assert(TOK_MAX_GROWN <= INT32_MAX, "positions of symbols are int32_t");

/* Lowest rank first, and of equal ones the leftmost. */
static size_t
merge(struct encoder *enc)
{
    const struct tok *tok = enc->tok;
    struct symbol *y = enc->symbol;
    size_t n = enc->n_symbols, n_heap = 0, n_left = 0;
    uint64_t *heap;

    /* Each merge removes one entry and adds at most two. */
    if (enc->cap_heap < 2 * n) {
        enc->cap_heap = 2 * n;
        enc->heap = xrealloc(enc->heap, enc->cap_heap, sizeof(*enc->heap));
    }
    heap = enc->heap;
    for (size_t i = 0; i < n; i++) {
        y[i].prev = (int32_t)i - 1;
        y[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        y[i].rank = NO_RANK;
        if (i + 1 < n)
            rank_pair(tok, &y[i], &y[i + 1]);
        if (y[i].rank != NO_RANK)
            heap[n_heap++] = (uint64_t)y[i].rank << 32 | i;
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift_down(heap, n_heap, i);
    while (n_heap) {
        uint64_t top = heap[0];
        size_t i = (uint32_t)top;
        struct symbol *left = &y[i], *right;

        heap[0] = heap[--n_heap];
        if (n_heap)
            sift_down(heap, n_heap, 0);
        if (left->rank != top >> 32) /* that pair is no more */
            continue;
        right = &y[left->next];
        left->id = left->merged;
        left->next = right->next;
        left->rank = NO_RANK;
        right->id = -1;
        right->rank = NO_RANK;
        if (left->next >= 0) {
            y[left->next].prev = (int32_t)i;
            rank_pair(tok, left, &y[left->next]);
            push(heap, &n_heap, y, i);
        }
        if (left->prev >= 0) {
            rank_pair(tok, &y[left->prev], left);
            push(heap, &n_heap, y, (size_t)left->prev);
        }
    }
    for (size_t i = 0; i < n; i++)
        if (y[i].id >= 0)
            y[n_left++].id = y[i].id;
    return n_left;
}

static bool
has_special(const struct encoder *enc, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tok_is_special(enc->tok, enc->symbol[i].id))
            return true;
    return false;
}

static int
merge_word(struct encoder *enc, const char *s, size_t n)
{
    const struct tok *tok = enc->tok;
    struct str *mapped = &enc->mapped;
    int32_t whole = -1; /* the word's id, if the vocabulary has it */
    char utf8[4];
    size_t n_left;

    if (tok->ignore_merges && tok->bytes) {
        str_clear(mapped);
        for (size_t i = 0; i < n; i++)
            str_add(mapped, utf8, alphabet_put(utf8, (uint8_t)s[i]));
        whole = strmap_get(&tok->vocab, mapped->s, mapped->n);
    } else if (tok->ignore_merges) {
        whole = strmap_get(&tok->vocab, s, n);
    }
    if (whole >= 0 && !(enc->no_special && tok_is_special(tok, whole))) {
        ids_add(enc->out, whole);
        return 0;
    }
    if (add_word(enc, s, n) < 0)
        return -1;
    n_left = merge(enc);
    if (enc->no_special && has_special(enc, n_left)) { /* then characters */
        if (add_word(enc, s, n) < 0)
            return -1;
        n_left = enc->n_symbols;
    }
    for (size_t i = 0; i < n_left; i++)
        ids_add(enc->out, enc->symbol[i].id);
    return 0;
}

static int
encode_part(struct encoder *enc, const char *s, size_t n)
{
    struct cached *slot;
    size_t first_id = enc->out->n;
    uint64_t hash;

    if (n > CACHED_WORD || !enc->n_cache)
        return merge_word(enc, s, n);
    hash = XXH3_64bits(s, n);
    slot = &enc->cache[hash & (enc->n_cache - 1)];
    if (slot->hash == hash && slot->n_key == n &&
        memcmp(enc->keys.s + slot->key, s, n) == 0) {
        ids_append(enc->out, &enc->values, slot->ids, slot->n_ids);
        return 0;
    }
    if (merge_word(enc, s, n) < 0)
        return -1;
    slot->hash = hash;
    if (enc->keys.n > CACHE_KEYS) {
        memset(enc->cache, 0, enc->n_cache * sizeof(*enc->cache));
        str_clear(&enc->keys);
        enc->values.n = 0;
    }
    slot->key = (uint32_t)enc->keys.n;
    slot->n_key = (uint32_t)n;
    slot->ids = (uint32_t)enc->values.n;
    slot->n_ids = (uint32_t)(enc->out->n - first_id);
    str_add(&enc->keys, s, n);
    ids_append(&enc->values, enc->out, first_id, slot->n_ids);
    return 0;
}

/*
 * A long word is cut between two characters that no merge joins:
 * SentencePiece's "word" is a whole text, and its merges rarely cross a space.
 */
int
word_encode(struct encoder *enc, const char *s, size_t n)
{
    const struct tok *tok = enc->tok;
    int32_t left = -1, right;
    size_t start = 0, length;
    uint32_t c;

    if (n <= CACHED_WORD || !tok->joins.slot)
        return encode_part(enc, s, n);
    for (size_t i = 0; i < n; i += length, left = right) {
        length = (size_t)utf8_next(s + i, n - i, &c);
        right = char_id(tok, s + i, length);
        if (left < 0 || right < 0 ||
            mergemap_get(&tok->joins, left, right).rank != NO_RANK)
            continue;
        if (encode_part(enc, s + start, i - start) < 0)
            return -1;
        start = i;
    }
    return encode_part(enc, s + start, n - start);
}

void
bpe_tables(struct tok *tok)
{
    char s[16];

    for (unsigned b = 0; b < 256; b++) {
        snprintf(s, sizeof(s), "<0x%02X>", b);
        tok->byte_id[b] = strmap_get(&tok->vocab, s, 6);
        tok->alphabet_id[b] =
            strmap_get(&tok->vocab, s, alphabet_put(s, (uint8_t)b));
    }
    for (unsigned b = 0; b < 128; b++) {
        s[0] = (char)b;
        tok->ascii_id[b] = strmap_get(&tok->vocab, s, 1);
    }
    tok->unk_id = tok->unk_token ? strmap_get(&tok->vocab, tok->unk_token,
                                              strlen(tok->unk_token))
                                 : -1;
}

void
bpe_joins(struct tok *tok)
{
    mergemap_init(&tok->joins, tok->key, tok->merges.n_slots / 4 * 3);
    for (size_t i = 0; i < tok->merges.n_slots; i++) {
        uint64_t pair = tok->merges.slot[i].pair;
        struct text_span a, b;
        const char *left, *right;
        int32_t last, next;
        size_t n;
        uint32_t c;

        if (pair == UINT64_MAX)
            continue;
        a = tok->span[pair >> 32];
        b = tok->span[(uint32_t)pair];
        left = tok->vocab.text.s + a.off;
        right = tok->vocab.text.s + b.off;
        if (a.n == 0 || b.n == 0)
            continue;
        n = 1; /* of the last character's bytes */
        while (n < a.n && ((uint8_t)left[a.n - n] & 0xc0) == 0x80)
            n++;
        last = char_id(tok, left + a.n - n, n);
        next = char_id(tok, right, (size_t)utf8_next(right, b.n, &c));
        if (last >= 0 && next >= 0) /* else no text is cut there anyway */
            mergemap_put(&tok->joins,
                         (struct bpe_merge){
                             (uint64_t)last << 32 | (uint32_t)next, 0, 0 });
    }
}
