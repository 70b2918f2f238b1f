/* meta: the metadata that a view, a subset or a merge of dumps would have. */
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/select.h"
#include "core/mem.h"
#include "core/pyjson.h"
#include "core/tty.h"

/* The document, which grows member by member: what it says where that is not
 * what the first dump says. */
struct meta_doc {
    const struct saev *saev; /* the first dump */
    const int64_t *layers;   /* [n_layers] */
    size_t n_layers, n_patches, n_imgs, max_patches;
    bool cls_token;
    const char *origin; /* NULL, "subset" or "merged": replaces both */
    struct str origin_value;
    struct str text;
    bool has_family, has_cls, has_seed;
};

static void
put_name(struct meta_doc *doc, const char *name)
{
    str_addf(&doc->text, "%s\"%s\": ", doc->text.n ? ", " : "{", name);
}

static void
put_size(struct meta_doc *doc, const char *name, size_t size)
{
    put_name(doc, name);
    str_addf(&doc->text, "%zu", size);
}

static void
put_cls(struct meta_doc *doc)
{
    put_name(doc, "cls_token");
    str_adds(&doc->text, doc->cls_token ? "true" : "false");
    doc->has_cls = true;
}

/* The members of the shape; false: it is not one of them. */
static bool
put_geometry(struct meta_doc *doc, const char *key)
{
    if (!strcmp(key, "layers")) {
        put_name(doc, "layers");
        for (size_t i = 0; i < doc->n_layers; i++)
            str_addf(&doc->text, "%s%lld", i ? ", " : "[",
                     (long long)doc->layers[i]);
        str_addc(&doc->text, ']');
    } else if (!strcmp(key, "cls_token")) {
        put_cls(doc);
    } else if (!strcmp(key, "n_patches_per_img")) {
        put_size(doc, key, doc->n_patches);
    } else if (!strcmp(key, "n_imgs")) {
        put_size(doc, key, doc->n_imgs);
    } else if (!strcmp(key, "max_patches_per_shard")) {
        put_size(doc, key, doc->max_patches);
    } else {
        return false;
    }
    return true;
}

static int
put_member(void *ctx, const struct pyjson_member *m, struct err *err)
{
    struct meta_doc *doc = ctx;
    const char *own = strlen(m->key) == m->key_nbytes
                          ? saev_own_key(doc->saev, m->key)
                          : m->key;

    (void)err;
    if (!own)
        return 0;
    if (doc->origin && (!strcmp(own, "subset") || !strcmp(own, "merged")))
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
make_text(struct meta_doc *doc, struct err *err)
{
    const struct saev *s = doc->saev;

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
    if (doc->origin) {
        put_name(doc, doc->origin);
        str_add(&doc->text, doc->origin_value.s, doc->origin_value.n);
    }
    str_addc(&doc->text, '}');
    return 0;
}

static struct meta_doc
doc_of(const struct saev *s)
{
    return (struct meta_doc){ .saev = s,
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
    struct meta_doc doc = doc_of(s);
    int rc;

    if (saev_hash(s, hex, err) < 0)
        return -1;
    if (*hex)
        return 0;
    rc = make_text(&doc, err);
    if (rc == 0)
        rc = saev_hash_text(doc.text.s, doc.text.n, s->name, hex, err);
    str_free(&doc.text);
    return rc;
}

static int
check_same(const struct saev *a, const struct saev *b, const char *what,
           size_t x, size_t y, struct err *err)
{
    if (x == y)
        return 0;
    return err_set(err, EX_DATAERR, "%s: %s is %zu, but %zu in %s", b->name,
                   what, y, x, a->name);
}

/* Can images of b follow those of a? */
static int
check_fits(const struct saev *a, const struct saev *b, struct err *err)
{
    if (check_same(a, b, "the number of layers", a->n_layers, b->n_layers,
                   err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_layers; i++)
        if (a->layers[i] != b->layers[i])
            return err_set(err, EX_DATAERR,
                           "%s: layer %zu of the list is %lld, but %lld in %s",
                           b->name, i, (long long)b->layers[i],
                           (long long)a->layers[i], a->name);
    if (check_same(a, b, "n_patches_per_img", a->n_patches, b->n_patches, err) <
            0 ||
        check_same(a, b, "d_vit", a->d, b->d, err) < 0)
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
merge(struct meta_doc *doc, const struct read_cmd *cmd, struct err *err)
{
    char hex[SAEV_HASH_MAX];
    int rc = own_hash(doc->saev, hex, err);

    str_addf(&doc->origin_value, "[\"%s\"", hex);
    for (int i = 1; i < cmd->n_args && rc == 0; i++) {
        struct saevdir dir;

        rc = saevdir_meta(&dir, cmd->args[i], err);
        if (rc < 0)
            break;
        rc = check_name(&dir, cmd, err);
        if (rc == 0)
            rc = check_fits(doc->saev, &dir.saev, err);
        if (rc == 0 && !size_add(doc->n_imgs, dir.saev.n_imgs, &doc->n_imgs))
            rc = err_set(err, EX_DATAERR, "%s: n_imgs of all is beyond 2^64",
                         dir.saev.name);
        if (rc == 0)
            rc = own_hash(&dir.saev, hex, err);
        if (rc == 0)
            str_addf(&doc->origin_value, ", \"%s\"", hex);
        saevdir_close(&dir);
    }
    str_addc(&doc->origin_value, ']');
    doc->origin = "merged";
    return rc;
}

/* Leaves the images of --imgs; all of them are no subset. */
static int
select_imgs(struct meta_doc *doc, struct index_range imgs, struct err *err)
{
    const struct saev *s = doc->saev;
    char hex[SAEV_HASH_MAX];

    if (imgs.last >= s->n_imgs)
        return err_set(err, EX_DATAERR, "%s: --imgs %zu-%zu, but n_imgs is %zu",
                       s->name, imgs.first, imgs.last, s->n_imgs);
    doc->n_imgs = imgs.last - imgs.first + 1;
    if (doc->n_imgs == s->n_imgs)
        return 0;
    if (own_hash(s, hex, err) < 0)
        return -1;
    str_addf(&doc->origin_value, "{\"of\": \"%s\", \"imgs\": [%zu, %zu]}", hex,
             imgs.first, imgs.last);
    doc->origin = "subset";
    return 0;
}

static int
select_view(struct meta_doc *doc, const struct read_cmd *cmd, struct err *err)
{
    const struct saev *s = doc->saev;
    struct saev_view v;

    if (saev_view_open(&v, s, cmd->tokens, cmd->layer, err) < 0)
        return -1;
    if (v.n_tokens == 0)
        return err_set(err, EX_DATAERR,
                       "%s: n_patches_per_img is 0: the view has no tokens",
                       s->name);
    doc->layers += v.layer0;
    doc->n_layers = v.n_layers;
    doc->cls_token = s->cls_token && cmd->tokens != SAEV_IMAGE;
    doc->n_patches = v.n_tokens - doc->cls_token;
    return 0;
}

/* An image has to fit a shard, and all of them 2^63 bytes. */
static int
check_size(const struct meta_doc *doc, struct err *err)
{
    const struct saev *s = doc->saev;
    size_t n_tokens = doc->n_patches + doc->cls_token;
    size_t per_img = doc->n_layers * n_tokens, nbytes;

    if (doc->max_patches < per_img)
        return err_set(err, EX_DATAERR,
                       "%s: --max-patches is %zu, but an image has %zu layer%s "
                       "x %zu token%s (expected at least %zu)",
                       s->name, doc->max_patches, doc->n_layers,
                       plural(doc->n_layers), n_tokens, plural(n_tokens),
                       per_img);
    if (!size_mul(per_img * s->row_nbytes, doc->n_imgs, &nbytes) ||
        nbytes > INT64_MAX || doc->max_patches > INT64_MAX)
        return err_set(err, EX_DATAERR,
                       "%s: so many images are beyond 2^63 bytes", s->name);
    return 0;
}

int
meta_main(struct read_cmd *cmd, struct err *err)
{
    struct saevdir dir;
    struct meta_doc doc;
    struct str json = { 0 };
    bool some_imgs = cmd->imgs.first <= cmd->imgs.last;
    int rc;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "meta: a DUMP is missing");
    if (some_imgs && cmd->n_args > 1)
        return err_set(err, TU_USAGE, "--imgs takes images of one DUMP");
    if (saevdir_meta(&dir, cmd->args[0], err) < 0)
        return -1;
    doc = doc_of(&dir.saev);
    if (cmd->max_patches)
        doc.max_patches = cmd->max_patches;
    rc = check_name(&dir, cmd, err);
    if (rc == 0)
        rc = select_view(&doc, cmd, err);
    if (rc == 0 && some_imgs)
        rc = select_imgs(&doc, cmd->imgs, err);
    if (rc == 0 && cmd->n_args > 1)
        rc = merge(&doc, cmd, err);
    if (rc == 0)
        rc = check_size(&doc, err);
    if (rc == 0)
        rc = make_text(&doc, err);
    if (rc == 0)
        rc =
            pyjson_indent(&json, doc.text.s, doc.text.n, 4, dir.saev.name, err);
    if (rc == 0)
        rc = out_write(cmd->out, json.s, json.n, err);
    str_free(&doc.origin_value);
    str_free(&doc.text);
    str_free(&json);
    saevdir_close(&dir);
    return rc;
}
