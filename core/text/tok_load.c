/* tokenizer.json to tables; what is not supported is named. */
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/text/tok_bpe.h"
#include "core/text/tok_decode.h"
#include "core/text/tok_impl.h"
#include "core/text/tok_norm.h"
#include "core/text/tok_parts.h"
#include "core/text/tok_scan.h"

#define MAX_FILE ((size_t)1 << 30)

static int
bad_hot(const struct tok *tok, const char *what, size_t i, const char *why,
        struct err *err)
{
    return err_set(err, EX_DATAERR, "%s: model.%s: entry %zu %s", tok->name,
                   what, i, why);
}

/* Makes room for one more id. */
static void
grow_ids(struct tok *tok, int32_t id, size_t *cap)
{
    if ((size_t)id >= *cap) {
        size_t want = *cap ? *cap : 1024;

        while (want <= (size_t)id)
            want *= 2;
        tok->span = xrealloc(tok->span, want, sizeof(*tok->span));
        memset(tok->span + *cap, 0xff, (want - *cap) * sizeof(*tok->span));
        *cap = want;
    }
    if ((size_t)id >= tok->n_ids)
        tok->n_ids = (size_t)id + 1;
}

static int
add_token(struct tok *tok, const struct str *key, int64_t id, size_t *cap,
          struct err *err)
{
    size_t i = tok->vocab.n;
    struct text_span span = { 0, (uint32_t)key->n };

    if (key->n > TOK_MAX_TOKEN)
        return err_set(err, EX_DATAERR,
                       "%s: model.vocab: entry %zu has %zu bytes (at most %d)",
                       tok->name, i, key->n, TOK_MAX_TOKEN);
    if (id > TOK_MAX_ID)
        return bad_hot(tok, "vocab", i, "has an id that is too large", err);
    grow_ids(tok, (int32_t)id, cap);
    if (tok->span[id].off != UINT32_MAX)
        return bad_hot(tok, "vocab", i, "has an id that another has", err);
    if (!strmap_put(&tok->vocab, key->s, key->n, (int32_t)id, &span.off))
        return bad_hot(tok, "vocab", i, "is there twice", err);
    tok->span[id] = span;
    return 0;
}

static int
load_vocab(struct tok *tok, struct json_scan scan, struct err *err)
{
    struct str key = { 0 };
    size_t cap = 0;
    int64_t id;
    int rc = 0;

    scan_char(&scan, '{');
    if (scan_char(&scan, '}'))
        return 0;
    do {
        if (!scan_string(&scan, &key) || !scan_char(&scan, ':') ||
            !scan_int(&scan, &id))
            rc = bad_hot(tok, "vocab", tok->vocab.n,
                         "is not a string with an id", err);
        else
            rc = add_token(tok, &key, id, &cap, err);
    } while (rc == 0 && scan_char(&scan, ','));
    if (rc == 0 && !scan_char(&scan, '}'))
        rc = bad_hot(tok, "vocab", tok->vocab.n, "is not JSON", err);
    str_free(&key);
    return rc;
}

/* "left right" or ["left","right"]: *n is left's length in 'both'. */
static bool
scan_pair(struct json_scan *scan, struct str *both, struct str *right,
          size_t *n)
{
    char *space;

    if (!scan_char(scan, '[')) {
        if (!scan_string(scan, both) || both->n == 0 ||
            !(space = memchr(both->s, ' ', both->n)))
            return false;
        *n = (size_t)(space - both->s);
        memmove(space, space + 1, both->n - *n); /* with the NUL */
        both->n--;
        return !memchr(both->s + *n, ' ', both->n - *n);
    }
    if (!scan_string(scan, both) || !scan_char(scan, ',') ||
        !scan_string(scan, right) || !scan_char(scan, ']'))
        return false;
    *n = both->n;
    str_add(both, right->s, right->n);
    return true;
}

static bool
is_comment(struct json_scan scan)
{
    static const char start[] = "\"#version";

    scan_char(&scan, ' ');
    return (size_t)(scan.end - scan.p) >= sizeof(start) - 1 &&
           memcmp(scan.p, start, sizeof(start) - 1) == 0;
}

static int
add_merge(struct tok *tok, const struct str *both, size_t n, size_t rank,
          struct err *err)
{
    int32_t left = strmap_get(&tok->vocab, both->s, n);
    int32_t right = strmap_get(&tok->vocab, both->s + n, both->n - n);
    int32_t id = strmap_get(&tok->vocab, both->s, both->n);

    if (left < 0 || right < 0 || id < 0)
        return bad_hot(tok, "merges", rank,
                       left < 0    ? "has a left part that vocab lacks"
                       : right < 0 ? "has a right part that vocab lacks"
                                   : "gives a token that vocab lacks",
                       err);
    mergemap_put(&tok->merges,
                 (struct bpe_merge){ (uint64_t)left << 32 | (uint32_t)right,
                                     (uint32_t)rank, id });
    return 0;
}

static int
load_merges(struct tok *tok, struct json_scan scan, struct err *err)
{
    struct str both = { 0 }, right = { 0 };
    size_t rank = 0, n;
    int rc = 0;

    scan_char(&scan, '[');
    if (scan_char(&scan, ']'))
        return 0;
    do {
        if (is_comment(scan)) {
            scan_string(&scan, &both);
            continue;
        }
        if (!scan_pair(&scan, &both, &right, &n))
            rc = bad_hot(tok, "merges", rank, "is not a pair of tokens", err);
        else
            rc = add_merge(tok, &both, n, rank++, err);
    } while (rc == 0 && scan_char(&scan, ','));
    if (rc == 0 && !scan_char(&scan, ']'))
        rc = bad_hot(tok, "merges", rank, "is not JSON", err);
    str_free(&both);
    str_free(&right);
    return rc;
}

/* How many strings there can be in a stretch of JSON, for the tables. */
static size_t
count_quotes(const char *p, const char *end)
{
    size_t n = 0;

    while ((p = memchr(p, '"', (size_t)(end - p)))) {
        n++;
        p++;
    }
    return n;
}

static int
load_tables(struct tok *tok, const struct hot *hot, const char *end,
            struct err *err)
{
    struct json_scan vocab = { hot->vocab, end }, merges = { hot->merges, end };
    struct json_scan after;
    size_t n;

    if (!hot->vocab || !hot->merges)
        return err_set(err, EX_DATAERR, "%s: model has no %s", tok->name,
                       hot->vocab ? "merges (an array)" : "vocab (an object)");
    after = vocab;
    scan_skip(&after);
    strmap_reserve(&tok->vocab, count_quotes(vocab.p, after.p) / 2);
    str_reserve(&tok->vocab.text, (size_t)(after.p - vocab.p) / 2);
    if (load_vocab(tok, vocab, err) < 0)
        return -1;
    after = merges;
    scan_skip(&after);
    n = count_quotes(merges.p, after.p) / 2;
    mergemap_init(&tok->merges, tok->key, n);
    return load_merges(tok, merges, err);
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
        part_bool(js, "fuse_unk", 0, &tok->fuse_unk, err) < 0 ||
        part_bool(js, "ignore_merges", 0, &tok->ignore_merges, err) < 0)
        return -1;
    return 0;
}

static int
load_version(const struct js *root, struct err *err)
{
    struct js at = js_get(root, "version");
    const char *s;
    size_t n;

    if (js_absent(&at))
        return 0;
    if (js_str(&at, &s, &n, err) < 0)
        return -1;
    return strcmp(s, "1.0") == 0 ? 0 : js_bad(&at, "\"1.0\"", err);
}

/* What the file asks for that encoding a prompt never does. */
static void
warn_of(const struct js *root, const char *key, const char *what)
{
    struct js at = js_get(root, key);

    if (!js_absent(&at))
        err_warn("%s: %s is ignored: %s", at.file, key, what);
}

static int
load_parts(struct tok *tok, const struct js *root, struct err *err)
{
    struct js at;

    at = js_get(root, "normalizer");
    if (!js_absent(&at) && norm_parse(tok, &at, err) < 0)
        return -1;
    at = js_get(root, "pre_tokenizer");
    if (!js_absent(&at) && split_parse(tok, &at, err) < 0)
        return -1;
    if (tok->n_split && tok->split[tok->n_split - 1].type == SPLIT_MAP_BYTES) {
        tok->bytes = true; /* words need not be spelled in the alphabet */
        tok->n_split--;
    }
    if (!tok->bytes && !tok->ignore_merges)
        bpe_joins(tok);
    at = js_get(root, "decoder");
    tok->has_decoder = !js_absent(&at);
    if (tok->has_decoder && dec_parse(tok, &at, err) < 0)
        return -1;
    at = js_get(root, "added_tokens");
    if (added_parse(tok, &at, err) < 0)
        return -1;
    at = js_get(root, "post_processor");
    return js_absent(&at) ? 0 : post_parse(tok, &at, err);
}

static int
load(struct tok *tok, const char *json, size_t nbytes, struct err *err)
{
    struct hot hot = { 0 };
    struct js root, model;
    json_t *slim = NULL;
    int rc = -1;

    /* jansson says best what is wrong, and where. */
    if (!scan_hot(json, nbytes, &hot)) {
        slim = js_parse(json, nbytes, tok->name, err);
        if (slim)
            err_set(err, EX_DATAERR, "%s: is not a JSON object", tok->name);
        goto out;
    }
    slim = js_parse(hot.slim.s, hot.slim.n, tok->name, err);
    if (!slim)
        goto out;
    root = js_root(slim, tok->name);
    model = js_get(&root, "model");
    if (!js_is(&model, JSON_OBJECT)) {
        js_bad(&model, "an object", err);
        goto out;
    }
    if (load_version(&root, err) < 0 || load_model(tok, &model, err) < 0 ||
        load_tables(tok, &hot, json + nbytes, err) < 0)
        goto out;
    bpe_tables(tok);
    warn_of(&root, "truncation", "text is never cut");
    warn_of(&root, "padding", "text is never padded");
    rc = load_parts(tok, &root, err);
out:
    str_free(&hot.slim);
    json_decref(slim);
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
