/* SPDX-License-Identifier: ISC */
#include "core/format/saev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compat.h"
#include "core/hash.h"
#include "core/mem.h"
#include "core/pyjson.h"
#include "core/tty.h"

#define MAX_LAYERS 65536

/* What a key of some version means.  One quantity has had several names. */
enum quantity {
    Q_FAMILY,
    Q_CKPT,
    Q_LAYERS,
    Q_N_LAYERS, /* 2024-10: the last so many, unnamed */
    Q_PATCHES,
    Q_CLS,
    Q_D,
    Q_SEED,
    Q_IMGS,
    Q_BUDGET,
    Q_DATA,
    Q_PROTOCOL,
    Q_DTYPE,
    Q_COUNT
};

_Static_assert(Q_COUNT == SAEV_N_QUANTITIES, "one name for each");

/* Names in the order of age, and the versions in which they have a meaning: in
 * others, a member of that name has none. */
static const struct {
    const char *key;
    enum quantity quantity;
    enum saev_version since, until;
} keys[] = {
    { "model", Q_CKPT, SAEV_2024_10, SAEV_2024_10 },
    { "n_layers", Q_N_LAYERS, SAEV_2024_10, SAEV_2024_10 },
    { "n_patches_per_img", Q_PATCHES, SAEV_2024_10, SAEV_2_1 },
    { "d_vit", Q_D, SAEV_2024_10, SAEV_2_1 },
    { "seed", Q_SEED, SAEV_2024_10, SAEV_1 },
    { "n_imgs", Q_IMGS, SAEV_2024_10, SAEV_2_1 },
    { "n_patches_per_shard", Q_BUDGET, SAEV_2024_10, SAEV_2025_06 },
    { "data", Q_DATA, SAEV_2024_10, SAEV_2_1 },
    { "model_family", Q_FAMILY, SAEV_2025_06, SAEV_1 },
    { "model_ckpt", Q_CKPT, SAEV_2025_06, SAEV_1 },
    { "vit_family", Q_FAMILY, SAEV_2025_06, SAEV_2_1 },
    { "vit_ckpt", Q_CKPT, SAEV_2025_06, SAEV_2_1 },
    { "layers", Q_LAYERS, SAEV_2025_06, SAEV_2_1 },
    { "cls_token", Q_CLS, SAEV_2025_06, SAEV_2_1 },
    { "max_patches_per_shard", Q_BUDGET, SAEV_1, SAEV_2_1 },
    { "dtype", Q_DTYPE, SAEV_1_0, SAEV_2_1 },
    { "protocol", Q_PROTOCOL, SAEV_1_0, SAEV_2_1 },
    { "family", Q_FAMILY, SAEV_1_1, SAEV_2_1 },
    { "ckpt", Q_CKPT, SAEV_1_1, SAEV_2_1 },
    { "patches_per_ex", Q_PATCHES, SAEV_1_1, SAEV_2_1 },
    { "content_tokens_per_example", Q_PATCHES, SAEV_1_1, SAEV_2_1 },
    { "d_model", Q_D, SAEV_1_1, SAEV_2_1 },
    { "n_ex", Q_IMGS, SAEV_1_1, SAEV_2_1 },
    { "n_examples", Q_IMGS, SAEV_1_1, SAEV_2_1 },
    { "patches_per_shard", Q_BUDGET, SAEV_1_1, SAEV_2_1 },
    { "max_tokens_per_shard", Q_BUDGET, SAEV_1_1, SAEV_2_1 },
};
#define N_KEYS (sizeof(keys) / sizeof(*keys))

struct parser {
    struct saev *saev;
    const char *name;
    char *values[N_KEYS]; /* in canonical JSON; NULL: no such member */
    int used[Q_COUNT];    /* the key of each quantity; -1: none */
};

/* The name of a quantity in this project's version, the newest that it has. */
static const char *
own_key(enum quantity q)
{
    const char *name = NULL;

    if (q == Q_N_LAYERS)
        q = Q_LAYERS;
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].quantity == q && keys[i].since <= SAEV_1)
            name = keys[i].key;
    return name;
}

static int
keep_member(void *ctx, const struct pyjson_member *member, struct err *err)
{
    struct parser *p = ctx;

    (void)err;
    for (size_t i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].key) == member->key_nbytes &&
            !strcmp(keys[i].key, member->key))
            p->values[i] = xstrdup(member->value);
    return 0;
}

static const char *
value_of(const struct parser *p, enum quantity q)
{
    return p->used[q] < 0 ? NULL : p->values[p->used[q]];
}

static bool
has(const struct parser *p, const char *key)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].key, key))
            return p->values[i] != NULL;
    return false;
}

/* "FILE: KEY is VALUE (expected WHAT)". */
static int
bad(const struct parser *p, enum quantity q, const char *expected,
    struct err *err)
{
    const char *value = value_of(p, q);

    return err_data(err, p->name, "%s is %.60s%s (expected %s)",
                    keys[p->used[q]].key, value,
                    strlen(value) > 60 ? "..." : "", expected);
}

static int
need(const struct parser *p, enum quantity q, struct err *err)
{
    if (p->used[q] >= 0)
        return 0;
    return err_data(err, p->name, "the key %s is missing", own_key(q));
}

/* Canonical text of an integer; false for anything else or what is too big. */
static bool
parse_int(const char *s, const char **end, int64_t *v)
{
    char *e;

    if (*s != '-' && !(*s >= '0' && *s <= '9'))
        return false;
    errno = 0;
    *v = strtoll(s, &e, 10);
    *end = e;
    return errno == 0 && *e != '.' && *e != 'e';
}

static int
take_size(const struct parser *p, enum quantity q, int64_t min, size_t *size,
          struct err *err)
{
    char expected[48];
    const char *end;
    int64_t v;

    if (need(p, q, err) < 0)
        return -1;
    snprintf(expected, sizeof(expected), "an integer of at least %d", (int)min);
    if (!parse_int(value_of(p, q), &end, &v) || *end || v < min)
        return bad(p, q, expected, err);
    *size = (size_t)v;
    return 0;
}

/* A string as JSON escapes it, without its quotes. */
static int
take_string(const struct parser *p, enum quantity q, char **s, struct err *err)
{
    const char *v = value_of(p, q);

    if (need(p, q, err) < 0)
        return -1;
    if (*v != '"')
        return bad(p, q, "a string", err);
    *s = xstrndup(v + 1, strlen(v) - 2);
    return 0;
}

static int
take_bool(const struct parser *p, enum quantity q, bool *b, struct err *err)
{
    if (need(p, q, err) < 0)
        return -1;
    *b = !strcmp(value_of(p, q), "true");
    if (!*b && strcmp(value_of(p, q), "false") != 0)
        return bad(p, q, "true or false", err);
    return 0;
}

static int
take_layers(const struct parser *p, struct err *err)
{
    static const char expected[] = "1 to 65536 integers";
    struct saev *s = p->saev;
    const char *at = value_of(p, Q_LAYERS);
    bool ascending = true;
    int64_t *sorted;
    int rc = 0;

    if (need(p, Q_LAYERS, err) < 0)
        return -1;
    if (at[0] != '[' || at[1] == ']')
        return bad(p, Q_LAYERS, expected, err);
    for (at++; *at != ']' && *at; at += *at == ',' ? 2 : 0) {
        int64_t v;

        if (s->n_layers == MAX_LAYERS || !parse_int(at, &at, &v) ||
            (*at != ',' && *at != ']'))
            return bad(p, Q_LAYERS, expected, err);
        s->layers = xrealloc(s->layers, s->n_layers + 1, sizeof(*s->layers));
        s->layers[s->n_layers++] = v;
    }
    sorted = xcalloc(s->n_layers + 1, sizeof(*sorted));
    memcpy(sorted, s->layers, s->n_layers * sizeof(*sorted));
    qsort(sorted, s->n_layers, sizeof(*sorted), by_i64);
    for (size_t i = 1; i < s->n_layers && rc == 0; i++) {
        ascending &= s->layers[i - 1] < s->layers[i];
        if (sorted[i - 1] == sorted[i])
            rc = bad(p, Q_LAYERS, "each layer once", err);
    }
    if (rc == 0 && !ascending)
        err_warn("%s: layers is not ascending: its order is kept", p->name);
    free(sorted);
    return rc;
}

/* 2024-10 kept the last n layers: -n .. -1. */
static int
count_layers(const struct parser *p, struct err *err)
{
    struct saev *s = p->saev;

    if (take_size(p, Q_N_LAYERS, 1, &s->n_layers, err) < 0)
        return -1;
    if (s->n_layers > MAX_LAYERS)
        return bad(p, Q_N_LAYERS, "at most 65536", err);
    s->layers = xcalloc(s->n_layers, sizeof(*s->layers));
    for (size_t i = 0; i < s->n_layers; i++)
        s->layers[i] = (int64_t)i - (int64_t)s->n_layers;
    return 0;
}

/* Which version has these members; a writer's input is SAEV_1, on disk any may
 * be. */
static int
find_version(const struct parser *p, int flags, struct err *err)
{
    static const char *const names[] = { "2024-10", "2025-06-09", "2025-06-17",
                                         "1.0.0",   "1.1",        "2.0",
                                         "2.1" };
    const char *v = value_of(p, Q_PROTOCOL); /* a string: in its quotes */
    const char *major = v && *v == '"' ? v + 1 + strspn(v + 1, "0") : "";
    struct saev *s = p->saev;

    if (!v && has(p, "n_layers") && !has(p, "layers"))
        s->version = SAEV_2024_10;
    else if (!v && has(p, "n_patches_per_shard") &&
             !has(p, "max_patches_per_shard"))
        s->version = SAEV_2025_06;
    else if (!v)
        s->version = SAEV_1;
    else if (major[0] == '1' && (major[1] == '.' || major[1] == '"'))
        s->version = !strcmp(v, "\"1.0.0\"") ? SAEV_1_0 : SAEV_1_1;
    else if (major[0] == '2' && (major[1] == '.' || major[1] == '"'))
        s->version = !strcmp(v, "\"2.0\"") ? SAEV_2_0 : SAEV_2_1;
    else
        return bad(p, Q_PROTOCOL, "\"1.x\" or \"2.x\"", err);
    s->protocol =
        v ? xstrndup(v + 1, strlen(v) - 2) : xstrdup(names[s->version]);
    if (s->version == SAEV_1)
        return 0;
    if (flags & SAEV_INPUT)
        return err_data(err, p->name,
                        "has the keys of protocol %.60s (expected those of "
                        "2025-06-17)",
                        s->protocol);
    err_warn("%s: breaking: protocol %.60s, not 2025-06-17: read as %s means "
             "it",
             p->name, s->protocol,
             strcmp(s->protocol, names[s->version]) != 0 ? names[s->version]
                                                         : "that version");
    return 0;
}

static int
overflow(const char *name, struct err *err)
{
    return err_data(err, name,
                    "images of that shape and number are beyond 2^64 bytes");
}

static int
take_all(struct parser *p, int flags, struct err *err)
{
    struct saev *s = p->saev;
    bool old = s->version == SAEV_2024_10;
    const char *data = value_of(p, Q_DATA), *dtype = value_of(p, Q_DTYPE);
    const char *seed = value_of(p, Q_SEED), *end, *linear;
    /* of text, of images: members are sorted */
    static const char *const points[] = { "{\"acts\": \"", ", \"point\": \"" };
    size_t per_img;
    int64_t v;

    s->cls_token = old; /* it had no key: there was always one */
    s->n_imgs_known = p->used[Q_IMGS] >= 0 || !(flags & SAEV_INPUT);
    if ((!old && take_string(p, Q_FAMILY, &s->family, err) < 0) ||
        take_string(p, Q_CKPT, &s->ckpt, err) < 0 ||
        (old ? count_layers(p, err) : take_layers(p, err)) < 0 ||
        take_size(p, Q_PATCHES, 0, &s->n_patches, err) < 0 ||
        (!old && take_bool(p, Q_CLS, &s->cls_token, err) < 0) ||
        take_size(p, Q_D, 1, &s->d, err) < 0 ||
        (s->n_imgs_known && take_size(p, Q_IMGS, 0, &s->n_imgs, err) < 0) ||
        take_size(p, Q_BUDGET, 1, &s->max_patches, err) < 0 ||
        need(p, Q_DATA, err) < 0)
        return -1;
    if (!s->family)
        s->family = xstrdup("");
    /* Nothing more is asked of these. */
    if (*data != '"' && *data != '{')
        return bad(p, Q_DATA, "a string or an object", err);
    if (dtype && strcmp(dtype, "\"float32\"") != 0)
        return bad(p, Q_DTYPE, "\"float32\"", err);
    if (s->version <= SAEV_1 && need(p, Q_SEED, err) < 0)
        return -1;
    if (s->version <= SAEV_1 && (!parse_int(seed, &end, &v) || *end) &&
        strspn(seed, "-0123456789") != strlen(seed))
        return bad(p, Q_SEED, "an integer", err);
    /* hf-infer's, as json.dumps() would write it */
    s->is_padded = !s->cls_token && strstr(data, "\"windows\": \"padded\"");
    for (size_t i = 0; i < 2 && !s->acts; i++) {
        const char *at = strstr(data, points[i]);
        size_t n = strlen(points[i]);

        if (at && (i || at == data))
            s->acts = xstrndup(at + n, strcspn(at + n, "\\\""));
    }
    linear = strstr(data, ", \"linear_attn\": [");
    linear = linear ? strchr(linear, '[') : "";
    s->linear = xcalloc(s->n_layers, sizeof(*s->linear));
    for (; parse_int(linear + strspn(linear, "[, "), &end, &v); linear = end)
        for (size_t i = 0; i < s->n_layers; i++)
            s->linear[i] |= s->layers[i] == v;
    /* geometry */
    s->n_tokens = s->n_patches + s->cls_token;
    if (s->n_tokens == 0)
        return bad(p, Q_PATCHES, "at least 1 where cls_token is false", err);
    if (!size_mul(s->n_layers, s->n_tokens, &per_img) ||
        !size_mul(s->d, sizeof(float), &s->row_nbytes) ||
        !size_mul(per_img, s->row_nbytes, &s->img_nbytes))
        return overflow(p->name, err);
    s->shard_imgs = s->max_patches / per_img;
    if (s->shard_imgs == 0)
        return err_data(err, p->name,
                        "%s is %zu, but an image has %zu layer%s x %zu "
                        "token%s (expected at least %zu)",
                        keys[p->used[Q_BUDGET]].key, s->max_patches,
                        s->n_layers, plural(s->n_layers), s->n_tokens,
                        plural(s->n_tokens), per_img);
    if (!size_mul(s->shard_imgs, s->img_nbytes, &s->shard_nbytes))
        return overflow(p->name, err);
    return s->n_imgs_known ? saev_set_n_imgs(s, s->n_imgs, err) : 0;
}

int
saev_parse(struct saev *saev, const char *text, size_t nbytes, const char *name,
           int flags, struct err *err)
{
    struct parser p = { .saev = saev, .name = name };
    int rc;

    memset(saev, 0, sizeof(*saev));
    saev->name = xstrdup(name);
    saev->text = xstrndup(text, nbytes);
    saev->text_nbytes = nbytes;
    for (size_t q = 0; q < Q_COUNT; q++)
        p.used[q] = -1;
    rc = pyjson_members(text, nbytes, name, keep_member, &p, err);
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].quantity == Q_PROTOCOL && p.values[i])
            p.used[Q_PROTOCOL] = (int)i;
    if (rc == 0)
        rc = find_version(&p, flags, err);
    /* Of two names for one quantity the protocol's own counts, up to its
     * version; else which of them is meant is not known. */
    for (size_t i = 0; i < N_KEYS && rc == 0; i++) {
        int *used = &p.used[keys[i].quantity];
        const char *own =
            saev->version <= SAEV_1 ? own_key(keys[i].quantity) : "";

        if (!p.values[i] || *used == (int)i || saev->version < keys[i].since ||
            saev->version > keys[i].until)
            continue;
        if (*used < 0 || !strcmp(keys[i].key, own))
            *used = (int)i;
        else if (strcmp(keys[*used].key, own) != 0)
            rc = err_data(err, name, "has both %s and %s (expected one)",
                          keys[*used].key, keys[i].key);
    }
    if (rc == 0)
        rc = take_all(&p, flags, err);
    for (size_t q = 0; q < Q_COUNT; q++)
        saev->key_of[q] = p.used[q] < 0 ? NULL : keys[p.used[q]].key;
    for (size_t i = 0; i < N_KEYS; i++)
        free(p.values[i]);
    if (rc < 0)
        saev_free(saev);
    return rc;
}

void
saev_free(struct saev *saev)
{
    free(saev->name);
    free(saev->text);
    free(saev->protocol);
    free(saev->family);
    free(saev->ckpt);
    free(saev->acts);
    free(saev->linear);
    free(saev->layers);
    memset(saev, 0, sizeof(*saev));
}

int
saev_set_n_imgs(struct saev *s, size_t n_imgs, struct err *err)
{
    size_t nbytes;

    /* Offsets and row numbers are int64_t somewhere: half of 2^64. */
    if (!size_mul(n_imgs, s->img_nbytes, &nbytes) || nbytes > INT64_MAX ||
        n_imgs > INT64_MAX - s->shard_imgs)
        return overflow(s->name, err);
    s->n_imgs = n_imgs;
    s->n_shards = (n_imgs + s->shard_imgs - 1) / s->shard_imgs;
    return 0;
}

/* The document with n_imgs in it: as the last member if it was left out. */
static void
complete(const struct saev *s, struct str *text)
{
    const char *end = last_byte(s->text, '}', s->text_nbytes);

    if (s->n_imgs_known || !end) {
        str_add(text, s->text, s->text_nbytes);
        return;
    }
    str_add(text, s->text, (size_t)(end - s->text));
    str_addf(text, ", \"n_imgs\": %zu}", s->n_imgs);
}

int
saev_json(const struct saev *s, struct str *out, struct err *err)
{
    struct str text = { 0 };
    int rc;

    complete(s, &text);
    rc = pyjson_indent(out, text.s, text.n, 4, s->name, err);
    str_free(&text);
    return rc;
}

int
saev_hash_text(const char *text, size_t nbytes, const char *name,
               char hash[SAEV_HASH_MAX], struct err *err)
{
    struct str canonical = { 0 };
    int rc = pyjson_indent(&canonical, text, nbytes, 0, name, err);

    if (rc == 0) {
        struct hash *h = hash_new(HASH_SHA256);

        hash_add(h, canonical.s, canonical.n);
        hash_end(h, hash);
    }
    str_free(&canonical);
    return rc;
}

int
saev_hash(const struct saev *s, char hash[SAEV_HASH_MAX], struct err *err)
{
    struct str text = { 0 };
    int rc;

    hash[0] = '\0';
    if (s->version > SAEV_1)
        return 0; /* compact or raw UTF-8 forms of other writers */
    complete(s, &text);
    rc = saev_hash_text(text.s, text.n, s->name, hash, err);
    str_free(&text);
    return rc;
}

const char *
saev_own_key(const struct saev *s, const char *key)
{
    for (int q = 0; q < Q_COUNT; q++)
        if (s->key_of[q] && !strcmp(key, s->key_of[q]))
            return own_key(q);
    /* one that has the name of what is taken from elsewhere, or made */
    for (int q = 0; q < Q_COUNT; q++)
        if (own_key(q) && !strcmp(key, own_key(q)))
            return NULL;
    return key;
}
