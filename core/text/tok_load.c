/* SPDX-License-Identifier: ISC */
/* tokenizer.json to tables; what is not supported is named. */
#include <stdlib.h>
#include <string.h>

#include "core/jpull.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/text/tok_bpe.h"
#include "core/text/tok_decode.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_norm.h"
#include "core/text/tok_parts.h"

#define MAX_FILE ((size_t)1 << 30)

/* The two large parts of the file, which are read without a tree: jansson would
 * be slow. */
struct tables_json {
    struct str rest;            /* the file with both emptied */
    const char *copied;         /* the file up to here is in 'rest' */
    const char *vocab, *merges; /* where they start in the file; or NULL */
    size_t vocab_n, merges_n;   /* bytes */
};

static int
bad_entry(const struct tok *tok, const char *what, size_t i, const char *why,
          struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: model.%s: entry %zu %s", tok->name,
                   what, i, why);
}

/* Skips a value, and leaves the contents of its brackets out of 'rest'. */
static void
leave_out(struct jpull *j, struct tables_json *tables, const char **start,
          size_t *n)
{
    bool object = jpull_peek(j) == '{';

    *start = j->p;
    str_add(&tables->rest, tables->copied, (size_t)(j->p - tables->copied));
    str_adds(&tables->rest, object ? "{}" : "[]");
    jpull_skip(j);
    *n = (size_t)(j->p - *start);
    tables->copied = j->p;
}

/* Finds both; false where the text is not a JSON object. */
static bool
find_tables(const char *json, size_t nbytes, struct tables_json *tables)
{
    struct jpull j = jpull_start(json, nbytes, JS_DEPTH);
    struct jspan key;
    int model = 0; /* the depth of its members */

    j.python = true;
    tables->copied = json;
    jpull_peek(&j);
    jpull_enter(&j, '{', "an object");
    while (j.depth && !j.expected) {
        if (!jpull_member(&j, &key)) {
            model = 0;
        } else if (model == 0 && *j.p == '{' && jspan_is(&key, "model")) {
            jpull_enter(&j, '{', "an object");
            model = j.depth;
        } else if (model && *j.p == '{' && jspan_is(&key, "vocab")) {
            leave_out(&j, tables, &tables->vocab, &tables->vocab_n);
        } else if (model && *j.p == '[' && jspan_is(&key, "merges")) {
            leave_out(&j, tables, &tables->merges, &tables->merges_n);
        } else {
            jpull_skip(&j);
        }
    }
    str_add(&tables->rest, tables->copied,
            (size_t)(json + nbytes - tables->copied));
    return jpull_done(&j);
}

/* How many strings there can be in a text of JSON, for the tables. */
static size_t
count_quotes(const char *p, size_t nbytes)
{
    const char *end = p + nbytes;
    size_t n = 0;

    for (; (p = memchr(p, '"', (size_t)(end - p))); p++)
        n++;
    return n;
}

static int
load_vocab(struct tok *tok, const struct tables_json *tables, struct err *err)
{
    struct jpull j = jpull_start(tables->vocab, tables->vocab_n, JS_DEPTH);
    struct str text = { 0 };
    const char *bad = NULL;
    size_t cap = 0, n;
    struct jspan key;
    uint64_t id;
    int rc = 0;

    strmap_reserve(&tok->vocab,
                   count_quotes(tables->vocab, tables->vocab_n) / 2);
    str_reserve(&tok->vocab.text, tables->vocab_n / 2);
    jpull_enter(&j, '{', "an object");
    while (!bad && jpull_member(&j, &key)) {
        struct text_span span = { 0, 0 };

        str_clear(&text);
        jspan_add(&key, &text);
        if (!jpull_u64(&j, &id))
            bad = "is not a string with an id";
        else if (text.n > TOK_MAX_TOKEN)
            rc = err_set(err, EX_DATAERR,
                         "%s: model.vocab: entry %zu has %zu bytes (at most "
                         "%d)",
                         tok->name, tok->vocab.n, text.n, TOK_MAX_TOKEN);
        else if (id > TOK_MAX_ID)
            bad = "has an id that is too large";
        if (bad || rc < 0)
            break;
        for (n = cap ? cap : 1024; n <= id;)
            n *= 2;
        if (n > cap) {
            tok->span = xrealloc(tok->span, n, sizeof(*tok->span));
            memset(tok->span + cap, 0xff, (n - cap) * sizeof(*tok->span));
            cap = n;
        }
        tok->n_ids = larger(tok->n_ids, (size_t)id + 1);
        span.n = (uint32_t)text.n;
        if (tok->span[id].off != UINT32_MAX)
            bad = "has an id that another has";
        else if (!strmap_put(&tok->vocab, text.s, text.n, (int32_t)id,
                             &span.off))
            bad = "appears twice";
        else
            tok->span[id] = span;
    }
    if (rc == 0 && !bad && j.expected) /* a lone surrogate */
        bad = "is not UTF-8";
    str_free(&text);
    return bad ? bad_entry(tok, "vocab", tok->vocab.n, bad, err) : rc;
}

/* "left right" or ["left","right"]: *n is left's length in 'both'. */
static bool
read_pair(struct jpull *j, struct str *both, size_t *n)
{
    struct jspan s;
    char *space;
    int k = 0;

    str_clear(both);
    if (*j->p == '"') {
        if (!jpull_string(j, "", &s))
            return false;
        jspan_add(&s, both);
        space = memchr(both->s, ' ', both->n);
        if (!space)
            return false;
        *n = (size_t)(space - both->s);
        memmove(space, space + 1, both->n - *n); /* with the NUL */
        both->n--;
        return !memchr(space, ' ', both->n - *n);
    }
    jpull_enter(j, '[', "");
    for (; jpull_item(j, ']'); k++) {
        if (!jpull_string(j, "", &s))
            return false;
        *n = both->n; /* of the last: right's start */
        jspan_add(&s, both);
    }
    return k == 2;
}

static int
load_merges(struct tok *tok, const struct tables_json *tables, struct err *err)
{
    static const char comment[] = "\"#version";
    struct jpull j = jpull_start(tables->merges, tables->merges_n, JS_DEPTH);
    struct str both = { 0 };
    const char *bad = NULL;
    int32_t left, right, id;
    size_t rank = 0, n = 0;

    mergemap_init(&tok->merges, tok->key,
                  count_quotes(tables->merges, tables->merges_n) / 2);
    jpull_enter(&j, '[', "an array");
    while (jpull_item(&j, ']')) {
        if (strncmp(j.p, comment, sizeof(comment) - 1) == 0) {
            jpull_skip(&j);
            continue;
        }
        if (!read_pair(&j, &both, &n)) {
            bad = "is not a pair of tokens";
            break;
        }
        left = strmap_get(&tok->vocab, both.s, n);
        right = strmap_get(&tok->vocab, both.s + n, both.n - n);
        id = strmap_get(&tok->vocab, both.s, both.n);
        if (left < 0 || right < 0 || id < 0) {
            bad = left < 0    ? "has a left part that is not in vocab"
                  : right < 0 ? "has a right part that is not in vocab"
                              : "gives a token that is not in vocab";
            break;
        }
        mergemap_put(&tok->merges,
                     (struct bpe_merge){ (uint64_t)left << 32 | (uint32_t)right,
                                         (uint32_t)rank++, id });
    }
    str_free(&both);
    return bad ? bad_entry(tok, "merges", rank, bad, err) : 0;
}

static int
load_model(struct tok *tok, const struct js *js, struct err *err)
{
    static const char *const refused[] = { "continuing_subword_prefix",
                                           "end_of_word_suffix" };
    struct js at = js_get(js, "type");
    const char *s;
    double dropout;
    size_t n;

    if (!js_absent(&at)) { /* early files have no type: it is BPE */
        if (js_str(&at, &s, &n, err) < 0)
            return -1;
        if (strcmp(s, "BPE") != 0)
            return part_unknown(js, "BPE", err);
    }
    for (size_t i = 0; i < 2; i++) {
        at = js_get(js, refused[i]);
        if (!js_absent(&at) && (js_str(&at, &s, &n, err) < 0 || n))
            return js_bad(&at, "null or \"\"", err);
    }
    at = js_get(js, "dropout");
    if (!js_absent(&at) && (js_f64(&at, &dropout, err) < 0 || dropout != 0))
        return js_bad(&at, "null or 0: ids would be random", err);
    at = js_get(js, "unk_token");
    if (!js_absent(&at)) {
        if (js_str(&at, &s, &n, err) < 0)
            return -1;
        tok->unk_token = xstrndup(s, n);
    }
    if (part_bool(js, "byte_fallback", 0, &tok->byte_fallback, err) < 0 ||
        part_bool(js, "fuse_unk", 0, &tok->fuse_unk, err) < 0)
        return -1;
    return part_bool(js, "ignore_merges", 0, &tok->ignore_merges, err);
}

/* Warns of a setting that does not apply to encoding a prompt. */
static void
warn_of(const struct js *root, const char *key, const char *what)
{
    struct js at = js_get(root, key);

    if (!js_absent(&at))
        err_warn("%s: %s is ignored: %s", at.file, key, what);
}

static int
load(struct tok *tok, const char *json, size_t nbytes, struct err *err)
{
    struct tables_json tables = { 0 };
    struct js root, model, version, norm, split, dec, added, post;
    json_t *document = NULL;
    const char *s = "1.0";
    int rc = -1;

    /* jansson says best what is wrong, and where. */
    if (!find_tables(json, nbytes, &tables)) {
        document = js_parse(json, nbytes, tok->name, err);
        if (document)
            err_set(err, EX_DATAERR, "%s: is not a JSON object", tok->name);
        goto out;
    }
    document = js_parse(tables.rest.s, tables.rest.n, tok->name, err);
    if (!document)
        goto out;
    root = js_root(document, tok->name);
    version = js_get(&root, "version");
    model = js_get(&root, "model");
    norm = js_get(&root, "normalizer");
    split = js_get(&root, "pre_tokenizer");
    dec = js_get(&root, "decoder");
    added = js_get(&root, "added_tokens");
    post = js_get(&root, "post_processor");
    if (!js_is(&model, JSON_OBJECT)) {
        js_bad(&model, "an object", err);
        goto out;
    }
    if (!js_absent(&version) && js_str(&version, &s, NULL, err) < 0)
        goto out;
    if (strcmp(s, "1.0") != 0) {
        js_bad(&version, "\"1.0\"", err);
        goto out;
    }
    if (load_model(tok, &model, err) < 0)
        goto out;
    if (!tables.vocab || !tables.merges) {
        err_set(err, EX_DATAERR, "%s: model has no %s", tok->name,
                tables.vocab ? "merges (an array)" : "vocab (an object)");
        goto out;
    }
    if (load_vocab(tok, &tables, err) < 0 || load_merges(tok, &tables, err) < 0)
        goto out;
    bpe_tables(tok);
    warn_of(&root, "truncation", "text is never cut");
    warn_of(&root, "padding", "text is never padded");
    if ((!js_absent(&norm) && norm_parse(tok, &norm, err) < 0) ||
        (!js_absent(&split) && split_parse(tok, &split, err) < 0))
        goto out;
    if (tok->n_split && tok->split[tok->n_split - 1].type == SPLIT_MAP_BYTES) {
        tok->bytes = true; /* words need not be spelled in the alphabet */
        tok->n_split--;
    }
    if (!tok->bytes && !tok->ignore_merges)
        bpe_joins(tok);
    tok->has_decoder = !js_absent(&dec);
    if ((tok->has_decoder && dec_parse(tok, &dec, err) < 0) ||
        added_parse(tok, &added, err) < 0 ||
        (!js_absent(&post) && post_parse(tok, &post, err) < 0))
        goto out;
    rc = 0;
out:
    str_free(&tables.rest);
    json_decref(document);
    return rc;
}

int
tok_parse_keyed(struct tok **tok, const char *json, size_t nbytes,
                const char *name, const struct hash_key *key, struct err *err)
{
    *tok = xcalloc(1, sizeof(**tok));
    (*tok)->name = xstrdup(name);
    (*tok)->key = xmalloc(sizeof(*key));
    *(*tok)->key = *key;
    (*tok)->vocab.key = (*tok)->key;
    (*tok)->added_ids.key = (*tok)->key;
    (*tok)->special_set.key = (*tok)->key;
    if (nbytes > MAX_FILE)
        err_set(err, EX_DATAERR, "%s: %zu bytes (at most %zu)", name, nbytes,
                MAX_FILE);
    else if (load(*tok, json, nbytes, err) == 0)
        return 0;
    tok_close(*tok);
    *tok = NULL;
    return -1;
}

int
tok_parse(struct tok **tok, const char *json, size_t nbytes, const char *name,
          struct err *err)
{
    struct hash_key key;

    hash_key_draw(&key);
    return tok_parse_keyed(tok, json, nbytes, name, &key, err);
}

int
tok_open(struct tok **tok, const char *path, struct err *err)
{
    struct str text = { 0 };
    int rc = -1;

    *tok = NULL;
    if (file_read_regular(path, MAX_FILE, &text, err) == 0)
        rc = tok_parse(tok, text.s ? text.s : "", text.n, path, err);
    str_free(&text);
    return rc;
}

void
tok_close(struct tok *tok)
{
    if (!tok)
        return;
    for (size_t i = 0; i < TOK_MAX_STEPS; i++) {
        norm_free(&tok->norm[i]);
        split_free(&tok->split[i]);
        dec_free(&tok->dec[i]);
    }
    for (size_t i = 0; i < tok->n_added; i++) {
        str_free(&tok->added[i].content);
        str_free(&tok->added[i].pattern);
    }
    free(tok->added);
    free(tok->raw.node);
    free(tok->normalized.node);
    strmap_free(&tok->vocab);
    strmap_free(&tok->added_ids);
    strmap_free(&tok->special_set);
    mergemap_free(&tok->merges);
    mergemap_free(&tok->joins);
    ids_free(&tok->before);
    ids_free(&tok->after);
    free(tok->span);
    free(tok->added_of);
    free(tok->unk_token);
    free(tok->key);
    free(tok->name);
    free(tok);
}
