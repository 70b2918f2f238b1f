/* SPDX-License-Identifier: ISC */
#include "core/text/tok.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/tok_added.h"
#include "core/text/tok_bpe.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_norm.h"
#include "core/text/tok_split.h"
#include "core/text/tok_utf8.h"
#include "core/tty.h"

void
ids_add(struct ids *ids, int32_t id)
{
    if (ids->n == ids->cap)
        ids->id = xgrow(ids->id, ids->n, &ids->cap, sizeof(*ids->id));
    ids->id[ids->n++] = id;
}

void
ids_append(struct ids *ids, const struct ids *from, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids_add(ids, from->id[at + i]);
}

void
ids_free(struct ids *ids)
{
    free(ids->id);
    *ids = (struct ids){ 0 };
}

/* Makes 'fixed' the text with U+FFFD where it is not UTF-8, and returns in how
 * many places.  'fixed' stays empty if the text is valid. */
static size_t
fix_utf8(const char *s, size_t n, struct str *fixed)
{
    size_t i = 0, good, n_bad = 0;
    bool cut;

    for (;; n_bad++) {
        good = utf8_valid(s + i, n - i);
        if (good == n) /* at once */
            return 0;
        str_add(fixed, s + i, good);
        i += good;
        if (i == n)
            return n_bad;
        str_adds(fixed, REPLACEMENT);
        i += utf8_bad(s + i, n - i, &cut);
    }
}

int
tok_utf8(const char *name, const char *text, size_t nbytes, bool strict,
         struct str *fixed, struct err *err)
{
    size_t good = utf8_valid(text, nbytes), n_bad;

    if (good == nbytes)
        return 0;
    if (strict)
        return err_set(err, EX_DATAERR, "%s: byte %zu (0x%02x) is not UTF-8",
                       name, good, (uint8_t)text[good]);
    n_bad = fix_utf8(text, nbytes, fixed);
    err_warn("%s: not UTF-8 in %zu place%s: U+FFFD there", name, n_bad,
             plural(n_bad));
    return 0;
}

/*
 * Makes 'marks' those of the text in enc->normal, which s is normalized: run by
 * run of equal marks, which must give the same text.
 */
static int
mark_normal(struct encoder *enc, const char *s, const uint8_t *data, size_t n,
            struct str *marks)
{
    const struct tok *tok = enc->tok;
    struct growth growth = { tok->name, "normalizer", TOK_MAX_GROWN, n, { 0 } };
    struct regex_work work = { .nbytes = n };
    struct norm_step steps[TOK_MAX_STEPS];
    struct str run = { 0 }, all = { 0 };
    size_t n_steps = 0, a, b;
    bool at_start = true;
    int rc = 0;

    for (a = 0; rc == 0 && a < n; a = b) {
        for (b = a + 1; b < n && (data[b] == data[a] || (s[b] & 0xc0) == 0x80);)
            b++;
        n_steps = 0;
        for (size_t i = 0; i < tok->n_norm; i++)
            if (a == 0 || tok->norm[i].type != NORM_PREPEND)
                steps[n_steps++] = tok->norm[i];
        rc = norm_run(steps, n_steps, s + a, b - a, &growth, &work, &run,
                      &at_start, enc->err);
        str_add(&all, run.n ? run.s : "", run.n);
        for (size_t i = 0; i < run.n; i++)
            str_addc(marks, (char)data[a]);
    }
    if (rc == 0 && (all.n != enc->normal.n ||
                    (all.n && memcmp(all.s, enc->normal.s, all.n) != 0)))
        rc = err_set(enc->err, EX_DATAERR,
                     "%s: its normalizer joins what a message says with the "
                     "template's text around it: special tokens in it cannot "
                     "be told from the template's",
                     tok->name);
    regex_work_free(&work);
    str_free(&run);
    str_free(&all);
    return rc;
}

/* Cuts a text at the added tokens of 'trie'.  What is between the raw ones is
 * normalized and cut again, at the normalized ones; what is between those is
 * split into words. */
static int
encode(struct encoder *enc, const struct trie *trie, const char *s,
       const uint8_t *data, size_t n, bool first, int flags)
{
    const struct tok *tok = enc->tok;
    struct added_iter it = { .tok = tok,
                             .trie = trie,
                             .s = s,
                             .n = n,
                             .data = data,
                             .held = -1,
                             .plain = flags & TOK_PLAIN };
    struct str marks = { 0 };
    size_t a, b;
    int32_t i;
    int rc = 0;

    added_begin(&it);
    while (rc == 0 && added_next(&it, &a, &b, &i)) {
        bool at_start = first && a == 0;
        const uint8_t *of = data && tok->special_normalized ? data + a : NULL;

        if (i >= 0) {
            ids_add(enc->out, tok->added[i].id);
        } else if (trie == &tok->normalized) {
            rc = split_run(enc, 0, s + a, b - a, at_start);
        } else if (tok->n_norm == 0) {
            rc = encode(enc, &tok->normalized, s + a, of, b - a, at_start,
                        flags);
        } else {
            rc = norm_run(tok->norm, tok->n_norm, s + a, b - a, &enc->norm,
                          &enc->regexes, &enc->normal, &at_start, enc->err);
            str_clear(&marks);
            if (rc == 0 && of)
                rc = mark_normal(enc, s + a, of, b - a, &marks);
            if (rc == 0)
                rc = encode(enc, &tok->normalized, enc->normal.s,
                            of ? (const uint8_t *)marks.s : NULL, enc->normal.n,
                            at_start, flags);
        }
    }
    str_free(&marks);
    added_end(&it);
    return rc;
}

int
tok_encode_marked(const struct tok *tok, const char *text, const uint8_t *data,
                  size_t nbytes, int flags, struct ids *ids, struct err *err)
{
    struct encoder enc = {
        .tok = tok,
        .out = ids,
        .err = err,
        .no_special = data || flags & TOK_PLAIN,
        .norm = { tok->name, "normalizer", TOK_MAX_GROWN, nbytes, { 0 } },
        .split = { tok->name, "pre_tokenizer", TOK_MAX_GROWN, nbytes, { 0 } },
        .regexes.nbytes = nbytes,
    };
    size_t n_before = ids->n;
    struct str fixed = { 0 };
    int rc;

    if (nbytes > TOK_MAX_TEXT)
        return err_set(err, EX_DATAERR, "text: %zu bytes (at most %d)", nbytes,
                       TOK_MAX_TEXT);
    if (fix_utf8(text, nbytes, &fixed) > 0 && data) {
        str_free(&fixed);
        return err_set(err, EX_DATAERR, "text: is not UTF-8");
    }
    if (fixed.n > TOK_MAX_GROWN) {
        err_set(err, EX_DATAERR,
                "text: %zu bytes with U+FFFD for what is not UTF-8 (at most "
                "%d)",
                fixed.n, TOK_MAX_GROWN);
        str_free(&fixed);
        return -1;
    }
    if (nbytes >= 1024) { /* a shorter text has few words, and fewer twice */
        enc.n_cache = 256;
        while (enc.n_cache < 32768 && enc.n_cache < nbytes / 16)
            enc.n_cache *= 2;
        enc.cache = xcalloc(enc.n_cache, sizeof(*enc.cache));
    }
    if (flags & TOK_SPECIAL)
        ids_append(ids, &tok->before, 0, tok->before.n);
    rc = encode(&enc, &tok->raw, fixed.n ? fixed.s : text, data,
                fixed.n ? fixed.n : nbytes, !(flags & TOK_MORE), flags);
    if (rc == 0 && (flags & TOK_SPECIAL) && !(flags & TOK_OPEN))
        ids_append(ids, &tok->after, 0, tok->after.n);
    if (rc < 0)
        ids->n = n_before;
    for (size_t i = 0; i < TOK_MAX_STEPS; i++)
        str_free(&enc.scratch[i]);
    regex_work_free(&enc.regexes);
    str_free(&enc.normal);
    str_free(&enc.mapped);
    str_free(&enc.keys);
    ids_free(&enc.values);
    free(enc.symbol);
    free(enc.heap);
    free(enc.cache);
    str_free(&fixed);
    return rc;
}

int
tok_encode(const struct tok *tok, const char *text, size_t nbytes, int flags,
           struct ids *ids, struct err *err)
{
    return tok_encode_marked(tok, text, NULL, nbytes, flags, ids, err);
}

void
tok_warn_added(const struct tok *tok, const int32_t *ids, size_t n, int flags,
               int *said)
{
    const struct ids *before = &tok->before, *after = &tok->after;
    const char *name;
    size_t nbytes;

    if (!(flags & TOK_SPECIAL))
        return;
    if (before->n && n > before->n && ids[before->n] == before->id[0] &&
        !(*said & 1)) {
        name = tok_text(tok, before->id[0], &nbytes);
        err_warn("%s: adds %s (bos) to a text that begins with it: there are "
                 "two",
                 tok->name, name ? name : "a token");
        *said |= 1;
    }
    if (after->n && !(flags & TOK_OPEN) && !(*said & 2)) {
        name = tok_text(tok, after->id[after->n - 1], &nbytes);
        err_warn("%s: adds %s (eos) to the end of a text, as in transformers",
                 tok->name, name ? name : "a token");
        *said |= 2;
    }
}

static const struct added *
added_by_id(const struct tok *tok, int32_t id)
{
    if (id < 0 || (size_t)id >= tok->n_ids || tok->added_of[id] < 0)
        return NULL;
    return &tok->added[tok->added_of[id]];
}

int32_t
tok_id(const struct tok *tok, const char *token)
{
    int32_t id = strmap_get(&tok->added_ids, token, strlen(token));

    return id >= 0 ? id : strmap_get(&tok->vocab, token, strlen(token));
}

const char *
tok_text(const struct tok *tok, int32_t id, size_t *nbytes)
{
    const struct added *added = added_by_id(tok, id);

    *nbytes = 0;
    if (added) {
        *nbytes = added->content.n;
        return added->content.s;
    }
    if (id < 0 || (size_t)id >= tok->n_ids || tok->span[id].off == UINT32_MAX)
        return NULL;
    *nbytes = tok->span[id].n;
    return tok->vocab.text.s + tok->span[id].off;
}

bool
tok_is_special(const struct tok *tok, int32_t id)
{
    const struct added *added = added_by_id(tok, id);

    return added && strmap_get(&tok->special_set, added->content.s,
                               added->content.n) >= 0;
}

size_t
tok_size(const struct tok *tok)
{
    return tok->n_ids;
}
