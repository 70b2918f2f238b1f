/* SPDX-License-Identifier: ISC */
#include "core/text/tok_added.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "core/mem.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_map.h"
#include "core/text/tok_norm.h"

static uint32_t
trie_child(const struct trie *trie, uint32_t at, uint8_t byte)
{
    uint32_t child = at ? trie->node[at].child : trie->first[byte];

    while (child && trie->node[child].byte != byte)
        child = trie->node[child].sibling;
    return child;
}

/* The node after a byte: the longest string that ends with it and that some
 * token ends with. */
static inline uint32_t
trie_next(const struct trie *trie, uint32_t at, uint8_t byte)
{
    uint32_t child;

    while (!(child = trie_child(trie, at, byte)) && at)
        at = trie->node[at].fail;
    return child;
}

static uint32_t
new_node(struct trie *trie, uint8_t byte)
{
    if (trie->n == trie->cap)
        trie->node =
            xgrow(trie->node, trie->n, &trie->cap, sizeof(*trie->node));
    trie->node[trie->n] = (struct trie_node){ .added = -1, .byte = byte };
    return (uint32_t)trie->n++;
}

void
trie_add(struct trie *trie, const struct str *s, int32_t added)
{
    uint32_t at = 0, child;

    if (trie->n == 0)
        new_node(trie, 0);
    for (size_t i = s->n; i-- > 0; at = child) {
        uint8_t byte = (uint8_t)s->s[i];

        child = trie_child(trie, at, byte);
        if (child)
            continue;
        child = new_node(trie, byte);
        if (at == 0) {
            trie->first[byte] = child;
        } else {
            trie->node[child].sibling = trie->node[at].child;
            trie->node[at].child = child;
        }
    }
    if (at && trie->node[at].added < 0)
        trie->node[at].added = added;
}

void
trie_link(struct trie *trie)
{
    uint32_t *queue = xmalloc(trie->n * sizeof(*queue));
    size_t n = 0;

    for (size_t byte = 0; byte < 256; byte++)
        if (trie->first[byte])
            queue[n++] = trie->first[byte];
    for (size_t i = 0; i < n; i++) {
        struct trie_node *node = &trie->node[queue[i]];

        if (node->added < 0)
            node->added = trie->node[node->fail].added;
        for (uint32_t c = node->child; c; c = trie->node[c].sibling) {
            trie->node[c].fail =
                trie_next(trie, node->fail, trie->node[c].byte);
            queue[n++] = c;
        }
    }
    free(queue);
}

/*
 * Goes backwards, one step for each byte: where a string of the trie ends, a
 * token begins, and this finds the longest.  Going forwards, each byte could
 * begin a walk as long as the longest token.
 */
void
added_begin(struct added_iter *it)
{
    uint32_t at = 0;
    size_t cap = 0;
    int32_t added;

    for (size_t i = it->trie->n ? it->n : 0; i-- > 0;) {
        if (!at && !it->trie->first[(uint8_t)it->s[i]])
            continue;
        at = trie_next(it->trie, at, (uint8_t)it->s[i]);
        added = it->trie->node[at].added;
        if (added < 0)
            continue;
        if (it->n_hits == cap)
            it->hit = xgrow(it->hit, it->n_hits, &cap, sizeof(*it->hit));
        it->hit[it->n_hits++] = (struct added_hit){ (uint32_t)i, added };
    }
}

void
added_end(struct added_iter *it)
{
    free(it->hit);
}

/* Rust's \w. */
static bool
is_word(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    /* letters, marks, digits; connectors; circled letters are alphabetic, too;
     * joiners count as well */
    return (category >= UTF8PROC_CATEGORY_LU &&
            category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
}

/* The character that ends at 'at', which is not 0. */
static uint32_t
char_before(const char *s, size_t at, size_t *start)
{
    uint32_t c = 0;

    *start = at - 1;
    while (*start > 0 && ((uint8_t)s[*start] & 0xc0) == 0x80)
        --*start;
    utf8_next(s + *start, at - *start, &c);
    return c;
}

/* Is a special token at [a, b) text?  Where the template's text begins in it,
 * or ends, the search goes on: a token of the template alone may overlap it. */
static bool
is_text(struct added_iter *it, const struct added *added, size_t a, size_t b)
{
    bool marked = it->data && (it->data[a] || it->data[b - 1]);

    if (!it->plain && !marked)
        return false;
    if (strmap_get(&it->tok->special_set, added->content.s, added->content.n) <
        0)
        return false;
    if (marked && !(it->data[a] && it->data[b - 1]))
        it->pos = a + 1;
    return true;
}

/* Sets the leftmost token at it->pos or later that counts, and of those the
 * longest; false if there is none. */
static bool
next_token(struct added_iter *it)
{
    size_t n = it->n, start;
    const char *s = it->s;
    uint32_t c;
    int length;

    while (it->n_hits > 0) {
        struct added_hit hit = it->hit[--it->n_hits];
        const struct added *added = &it->tok->added[hit.added];
        size_t a = hit.at, b = a + added->pattern.n;

        if (a < it->pos)
            continue;
        it->pos = b; /* the search continues after it, whatever it strips */
        if (is_text(it, added, a, b))
            continue;
        if (added->single_word &&
            ((a > 0 && is_word(char_before(s, a, &start))) ||
             (b < n && utf8_next(s + b, n - b, &c) && is_word(c))))
            continue;
        /* lstrip and rstrip: white space next to the token belongs to it */
        while (added->lstrip && a > it->start &&
               is_white_space(char_before(s, a, &start)))
            a = start;
        if (added->lstrip && a < it->start)
            a = it->start;
        if (added->rstrip && b >= it->run_a && b < it->run_b) {
            b = it->run_b; /* each run of white space is scanned once */
        } else if (added->rstrip) {
            it->run_a = b;
            while (b < n && (length = utf8_next(s + b, n - b, &c)) &&
                   is_white_space(c))
                b += (size_t)length;
            it->run_b = b;
        }
        if (a >= b) /* the token before it has all its white space */
            continue;
        it->held = hit.added;
        it->held_a = a;
        it->held_b = b;
        return true;
    }
    return false;
}

bool
added_next(struct added_iter *it, size_t *a, size_t *b, int32_t *added)
{
    *added = -1;
    *a = it->start;
    if (it->held < 0 && !next_token(it)) {
        *b = it->start = it->n;
        return *a < it->n;
    }
    if (it->start < it->held_a) {
        *b = it->start = it->held_a;
        return true;
    }
    *a = it->held_a;
    *b = it->start = it->held_b;
    *added = it->held;
    it->held = -1;
    return true;
}
