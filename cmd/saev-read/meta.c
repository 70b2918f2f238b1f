/* The metadata that a view, a subset or a merge of dumps would have. */
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "core/format/saevdir.h"
#include "core/hash.h"
#include "core/mem.h"
#include "core/pyjson.h"

/* What a member of the result says, where that is not what the first dump
 * says. */
struct part {
    const struct saev *saev; /* the first dump */
    const int64_t *layers;   /* [n_layers] */
    size_t n_layers, n_patches, n_imgs, max_patches;
    bool cls_token;
    const char *origin; /* "subset" or "merged": takes the place of both */
    struct str *origin_value;
};

/* A document that grows, member by member. */
struct doc {
    const struct part *part;
    struct str text;
    bool has_family, has_cls, has_seed;
};

static void
put_name(struct doc *doc, const char *name)
{
    str_addf(&doc->text, "%s\"%s\": ", doc->text.n ? ", " : "{", name);
}

static void
put_size(struct doc *doc, const char *name, size_t size)
{
    put_name(doc, name);
    str_addf(&doc->text, "%zu", size);
}

static void
put_layers(struct doc *doc)
{
    const struct part *p = doc->part;

    put_name(doc, "layers");
    for (size_t i = 0; i < p->n_layers; i++)
        str_addf(&doc->text, "%s%lld", i ? ", " : "[", (long long)p->layers[i]);
    str_addc(&doc->text, ']');
}

static void
put_cls(struct doc *doc)
{
    put_name(doc, "cls_token");
    str_adds(&doc->text, doc->part->cls_token ? "true" : "false");
    doc->has_cls = true;
}

/* The members that say what is where; false: it is not one of them. */
static bool
put_geometry(struct doc *doc, const char *key)
{
    const struct part *p = doc->part;

    if (!strcmp(key, "layers"))
        put_layers(doc);
    else if (!strcmp(key, "cls_token"))
        put_cls(doc);
    else if (!strcmp(key, "n_patches_per_img"))
        put_size(doc, key, p->n_patches);
    else if (!strcmp(key, "n_imgs"))
        put_size(doc, key, p->n_imgs);
    else if (!strcmp(key, "max_patches_per_shard"))
        put_size(doc, key, p->max_patches);
    else
        return false;
    return true;
}

static int
put_member(void *ctx, const struct pyjson_member *m, struct err *err)
{
    struct doc *doc = ctx;
    const char *own = strlen(m->key) == m->key_nbytes
                          ? saev_own_key(doc->part->saev, m->key)
                          : m->key;

    (void)err;
    if (!own)
        return 0;
    if (doc->part->origin && (!strcmp(own, "subset") || !strcmp(own, "merged")))
        return 0;
    doc->has_family |= !strcmp(own, "vit_family");
    doc->has_seed |= !strcmp(own, "seed");
    if (own == m->key) { /* whatever bytes it has: as in the text */
        str_adds(&doc->text, doc->text.n ? ", " : "{");
        str_add(&doc->text, m->key_text, m->key_text_nbytes);
        str_adds(&doc->text, ": ");
    } else if (put_geometry(doc, own)) {
        return 0;
    } else {
        put_name(doc, own);
    }
    str_add(&doc->text, m->value_text, m->value_text_nbytes);
    return 0;
}

/* The document in the protocol's own form, on one line. */
static int
make_doc(struct doc *doc, const struct part *part, struct err *err)
{
    const struct saev *s = part->saev;

    *doc = (struct doc){ .part = part };
    if (pyjson_members(s->text, s->text_nbytes, s->name, put_member, doc, err) <
        0)
        return -1;
    if (!doc->has_family) {
        put_name(doc, "vit_family");
        str_adds(&doc->text, "\"\"");
    }
    if (!doc->has_cls)
        put_cls(doc);
    if (!doc->has_seed)
        put_size(doc, "seed", 0);
    if (part->origin) {
        put_name(doc, part->origin);
        str_add(&doc->text, part->origin_value->s, part->origin_value->n);
    }
    str_addc(&doc->text, '}');
    return 0;
}

static struct part
whole_of(const struct saev *s)
{
    return (struct part){ .saev = s,
                          .layers = s->layers,
                          .n_layers = s->n_layers,
                          .n_patches = s->n_patches,
                          .n_imgs = s->n_imgs,
                          .max_patches = s->max_patches,
                          .cls_token = s->cls_token };
}

/* A dump's HASH; that of its metadata in the protocol's own form where its
 * writer hashed another one. */
static int
own_hash(const struct saev *s, char hex[SAEV_HASH_MAX], struct err *err)
{
    struct part whole = whole_of(s);
    struct str canonical = { 0 };
    struct doc doc = { 0 };
    int rc;

    if (saev_hash(s, hex, err) < 0)
        return -1;
    if (*hex)
        return 0;
    rc = make_doc(&doc, &whole, err);
    if (rc == 0)
        rc = pyjson_dumps(&canonical, doc.text.s, doc.text.n, s->name, err);
    if (rc == 0) {
        struct hash *h = hash_new(HASH_SHA256);

        hash_add(h, canonical.s, canonical.n);
        hash_hex(h, hex);
        hash_free(h);
    }
    str_free(&doc.text);
    str_free(&canonical);
    return rc;
}

static int
differs(const struct saev *a, const struct saev *b, const char *what, size_t x,
        size_t y, struct err *err)
{
    if (x == y)
        return 0;
    return err_set(err, EX_DATAERR, "%s: %s is %zu, but %zu in %s", b->name,
                   what, y, x, a->name);
}

static int
same_layers(const struct saev *a, const struct saev *b, struct err *err)
{
    if (differs(a, b, "the number of layers", a->n_layers, b->n_layers, err) <
        0)
        return -1;
    for (size_t i = 0; i < a->n_layers; i++)
        if (a->layers[i] != b->layers[i])
            return err_set(err, EX_DATAERR,
                           "%s: layer %zu of the list is %lld, but %lld in %s",
                           b->name, i, (long long)b->layers[i],
                           (long long)a->layers[i], a->name);
    return 0;
}

/* Can images of b follow those of a? */
static int
fits(const struct saev *a, const struct saev *b, struct err *err)
{
    if (same_layers(a, b, err) < 0 ||
        differs(a, b, "n_patches_per_img", a->n_patches, b->n_patches, err) <
            0 ||
        differs(a, b, "d_vit", a->d, b->d, err) < 0)
        return -1;
    if (a->cls_token != b->cls_token)
        return err_set(err, EX_DATAERR, "%s: cls_token is %s, but %s in %s",
                       b->name, b->cls_token ? "true" : "false",
                       a->cls_token ? "true" : "false", a->name);
    if (strcmp(a->family, b->family) != 0)
        err_warn("%s: vit_family is \"%s\": \"%s\" of %s is kept", b->name,
                 b->family, a->family, a->name);
    if (strcmp(a->ckpt, b->ckpt) != 0)
        err_warn("%s: vit_ckpt is \"%s\": \"%s\" of %s is kept", b->name,
                 b->ckpt, a->ckpt, a->name);
    return 0;
}

/* Adds the images and the HASH of every dump after the first. */
static int
merge(struct part *part, const struct read_cmd *cmd, struct str *value,
      struct err *err)
{
    char hex[SAEV_HASH_MAX];
    int rc = own_hash(part->saev, hex, err);

    str_addf(value, "[\"%s\"", hex);
    for (int i = 1; i < cmd->n_args && rc == 0; i++) {
        struct saevdir dir;

        rc = saevdir_meta(&dir, cmd->args[i], err);
        if (rc < 0)
            break;
        rc = fits(part->saev, &dir.saev, err);
        if (rc == 0 && !size_add(part->n_imgs, dir.saev.n_imgs, &part->n_imgs))
            rc = err_set(err, EX_DATAERR, "%s: n_imgs of all is beyond 2^64",
                         dir.saev.name);
        if (rc == 0)
            rc = own_hash(&dir.saev, hex, err);
        if (rc == 0)
            str_addf(value, ", \"%s\"", hex);
        saevdir_close(&dir);
    }
    str_addc(value, ']');
    part->origin = "merged";
    return rc;
}

/* A subset of all images is none. */
static int
take_imgs(struct part *part, const struct read_cmd *cmd, struct str *value,
          struct err *err)
{
    const struct saev *s = part->saev;
    struct index_range imgs = cmd->imgs;
    char hex[SAEV_HASH_MAX];

    if (imgs.last >= s->n_imgs)
        return err_set(err, EX_DATAERR, "%s: --imgs %zu-%zu, but n_imgs is %zu",
                       s->name, imgs.first, imgs.last, s->n_imgs);
    part->n_imgs = imgs.last - imgs.first + 1;
    if (part->n_imgs == s->n_imgs)
        return 0;
    if (own_hash(s, hex, err) < 0)
        return -1;
    str_addf(value, "{\"of\": \"%s\", \"imgs\": [%zu, %zu]}", hex, imgs.first,
             imgs.last);
    part->origin = "subset";
    return 0;
}

static int
take_view(struct part *part, const struct read_cmd *cmd, struct err *err)
{
    struct saev_view v;

    if (saev_view_open(&v, part->saev, cmd->tokens, cmd->layer, err) < 0)
        return -1;
    if (v.n_tokens == 0)
        return err_set(err, EX_DATAERR,
                       "%s: n_patches_per_img is 0: the view has no tokens",
                       part->saev->name);
    part->layers += v.layer0;
    part->n_layers = v.n_layers;
    part->cls_token = part->saev->cls_token && cmd->tokens != SAEV_IMAGE;
    part->n_patches = v.n_tokens - part->cls_token;
    return 0;
}

/* An image has to fit a shard, and all of them 2^63 bytes. */
static int
check_part(const struct part *p, struct err *err)
{
    size_t per_img = p->n_layers * (p->n_patches + p->cls_token), nbytes;

    if (p->max_patches < per_img)
        return err_set(err, EX_DATAERR,
                       "%s: --max-patches is %zu, but an image has %zu layers "
                       "x %zu tokens (expected at least %zu)",
                       p->saev->name, p->max_patches, p->n_layers,
                       p->n_patches + p->cls_token, per_img);
    if (!size_mul(per_img * p->saev->row_nbytes, p->n_imgs, &nbytes) ||
        nbytes > INT64_MAX || p->max_patches > INT64_MAX)
        return err_set(err, EX_DATAERR,
                       "%s: so many images are beyond 2^63 bytes",
                       p->saev->name);
    return 0;
}

static int
put_part(const struct part *part, struct out *out, struct err *err)
{
    struct str json = { 0 };
    struct doc doc = { 0 };
    int rc = make_doc(&doc, part, err);

    if (rc == 0)
        rc = pyjson_indent(&json, doc.text.s, doc.text.n, 4, part->saev->name,
                           err);
    if (rc == 0)
        rc = out_write(out, json.s, json.n, err);
    str_free(&doc.text);
    str_free(&json);
    return rc;
}

int
meta_main(struct read_cmd *cmd, struct err *err)
{
    struct saevdir dir;
    struct str value = { 0 };
    struct part part;
    bool some_imgs = cmd->imgs.first <= cmd->imgs.last;
    int rc;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "meta: a DUMP is missing");
    if (some_imgs && cmd->n_args > 1)
        return err_set(err, TU_USAGE, "--imgs takes images of one DUMP");
    if (saevdir_meta(&dir, cmd->args[0], err) < 0)
        return -1;
    part = whole_of(&dir.saev);
    part.origin_value = &value;
    if (cmd->max_patches)
        part.max_patches = cmd->max_patches;
    rc = take_view(&part, cmd, err);
    if (rc == 0 && some_imgs)
        rc = take_imgs(&part, cmd, &value, err);
    if (rc == 0 && cmd->n_args > 1)
        rc = merge(&part, cmd, &value, err);
    if (rc == 0)
        rc = check_part(&part, err);
    if (rc == 0)
        rc = put_part(&part, cmd->out, err);
    str_free(&value);
    saevdir_close(&dir);
    return rc;
}
