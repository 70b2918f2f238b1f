/* SPDX-License-Identifier: ISC */
/* meta: the metadata that a view, a subset or a merge of dumps would have. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/select.h"
#include "core/format/npy.h"
#include "core/format/saev_ids.h"
#include "core/hash.h"
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
        str_add(&doc->text, m->value_text, m->value_text_nbytes);
    } else if (!strcmp(own, "layers")) {
        put_name(doc, own);
        for (size_t i = 0; i < doc->n_layers; i++)
            str_addf(&doc->text, "%s%lld", i ? ", " : "[",
                     (long long)doc->layers[i]);
        str_addc(&doc->text, ']');
    } else if (!strcmp(own, "cls_token")) {
        put_cls(doc);
    } else if (!strcmp(own, "n_patches_per_img")) {
        put_size(doc, own, doc->n_patches);
    } else if (!strcmp(own, "n_imgs")) {
        put_size(doc, own, doc->n_imgs);
    } else if (!strcmp(own, "max_patches_per_shard")) {
        put_size(doc, own, doc->max_patches);
    } else {
        put_name(doc, own);
        str_add(&doc->text, m->value_text, m->value_text_nbytes);
    }
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

/* From "data", as hf-infer --acts-meta writes it: the key and value that say
 * which bits the numbers have.  "isa" was written before sums had one order. */
static int
put_arithmetic(void *ctx, const struct pyjson_member *m, struct err *err)
{
    (void)err;
    if (*m->value == '"' &&
        (!strcmp(m->key, "arithmetic") || !strcmp(m->key, "isa")))
        str_addf(ctx, "%s %s", m->key, m->value);
    return 0;
}

static int
find_arithmetic(void *ctx, const struct pyjson_member *m, struct err *err)
{
    if (strcmp(m->key, "data") != 0 || *m->value != '{')
        return 0;
    return pyjson_members(m->value_text, m->value_text_nbytes, "data",
                          put_arithmetic, ctx, err);
}

/* Warns if both have one and they differ. */
static int
warn_arithmetic(const struct saev *a, const struct saev *b, struct err *err)
{
    struct str of_a = { 0 }, of_b = { 0 };
    int rc = pyjson_members(a->text, a->text_nbytes, a->name, find_arithmetic,
                            &of_a, err);

    if (rc == 0)
        rc = pyjson_members(b->text, b->text_nbytes, b->name, find_arithmetic,
                            &of_b, err);
    if (rc == 0 && of_a.n && of_b.n && strcmp(of_a.s, of_b.s) != 0)
        err_warn("%s: has %s: %s of %s is kept", b->name, of_b.s, of_a.s,
                 a->name);
    str_free(&of_a);
    str_free(&of_b);
    return rc;
}

/* Adds the images and the HASH of every dump after the first, if its images can
 * follow those of the first. */
static int
merge(struct meta_doc *doc, const struct read_cmd *cmd, struct err *err)
{
    const struct saev *a = doc->saev;
    char hex[SAEV_HASH_MAX] = "";
    int rc = own_hash(a, hex, err);

    str_addf(&doc->origin_value, "[\"%s\"", hex);
    for (int i = 1; i < cmd->n_args && rc == 0; i++) {
        struct saevdir dir;
        const struct saev *b = &dir.saev;

        if (saevdir_meta(&dir, cmd->args[i], err) < 0)
            return -1;
        if (check_name(&dir, cmd, err) < 0 ||
            check_same(a, b, "the number of layers", a->n_layers, b->n_layers,
                       err) < 0)
            rc = -1;
        for (size_t k = 0; k < a->n_layers && rc == 0; k++)
            if (a->layers[k] != b->layers[k])
                rc = err_set(err, EX_DATAERR,
                             "%s: layer %zu of the list is %lld, but %lld in "
                             "%s",
                             b->name, k, (long long)b->layers[k],
                             (long long)a->layers[k], a->name);
        if (rc == 0 && (check_same(a, b, "n_patches_per_img", a->n_patches,
                                   b->n_patches, err) < 0 ||
                        check_same(a, b, "d_vit", a->d, b->d, err) < 0))
            rc = -1;
        if (rc == 0 && a->cls_token != b->cls_token)
            rc = err_set(err, EX_DATAERR, "%s: cls_token is %s, but %s in %s",
                         b->name, b->cls_token ? "true" : "false",
                         a->cls_token ? "true" : "false", a->name);
        if (rc == 0 && strcmp(a->family, b->family) != 0)
            err_warn("%s: vit_family is \"%s\": \"%s\" of %s is kept", b->name,
                     b->family, a->family, a->name);
        if (rc == 0 && strcmp(a->ckpt, b->ckpt) != 0)
            err_warn("%s: vit_ckpt is \"%s\": \"%s\" of %s is kept", b->name,
                     b->ckpt, a->ckpt, a->name);
        if (rc == 0)
            rc = warn_arithmetic(a, b, err);
        if (rc == 0 && !size_add(doc->n_imgs, b->n_imgs, &doc->n_imgs))
            rc = err_set(err, EX_DATAERR, "%s: n_imgs of all is beyond 2^64",
                         b->name);
        if (rc == 0)
            rc = own_hash(b, hex, err);
        str_addf(&doc->origin_value, ", \"%s\"", hex);
        saevdir_close(&dir);
    }
    str_addc(&doc->origin_value, ']');
    doc->origin = "merged";
    return rc;
}

/* Leaves the tokens and layers of the view, and the images of --imgs. */
static int
select_part(struct meta_doc *doc, const struct read_cmd *cmd, struct err *err)
{
    const struct saev *s = doc->saev;
    struct index_range imgs = cmd->imgs;
    char hex[SAEV_HASH_MAX];
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
    if (imgs.first > imgs.last)
        return 0;
    if (imgs.last >= s->n_imgs)
        return err_set(err, EX_DATAERR, "%s: --imgs %zu-%zu, but n_imgs is %zu",
                       s->name, imgs.first, imgs.last, s->n_imgs);
    doc->n_imgs = imgs.last - imgs.first + 1;
    if (doc->n_imgs == s->n_imgs)
        return 0; /* all of them are no subset */
    if (own_hash(s, hex, err) < 0)
        return -1;
    str_addf(&doc->origin_value, "{\"of\": \"%s\", \"imgs\": [%zu, %zu]}", hex,
             imgs.first, imgs.last);
    doc->origin = "subset";
    return 0;
}

/* ---- ids ---- */

/* The ids of all dumps; a warning names one without, or whose special tokens or
 * padding are not the first's.  1, 0 if there is none for the new dump, or -1
 * with 'err' set. */
static int
open_ids(struct saev_ids *ids, const struct meta_doc *doc,
         const struct read_cmd *cmd, struct err *err)
{
    const char *odd = NULL, *has = NULL;
    int rc = 0;

    for (int i = 0; i < cmd->n_args && rc == 0; i++) {
        struct saevdir dir;

        if (saevdir_meta(&dir, cmd->args[i], err) < 0)
            return -1;
        rc = saev_ids_of(&ids[i], &dir, err);
        if (ids[i].ids)
            has = cmd->args[i];
        if (!ids[i].ids || dir.saev.is_padded != doc->saev->is_padded ||
            ids[i].knows_special != ids->knows_special ||
            ids[i].n_special != ids->n_special ||
            (ids->n_special &&
             memcmp(ids[i].special, ids->special,
                    ids->n_special * sizeof(*ids->special)) != 0))
            odd = cmd->args[i];
        saevdir_close(&dir);
    }
    if (rc == 0 && odd && has)
        err_warn("%s: has no " SAEV_IDS " as the others have: the new dump "
                 "gets none",
                 odd);
    return rc < 0 ? -1 : has && !odd;
}

/* Where saev-write looks for the ids of these metadata: those of the dumps. */
static int
put_ids(const struct meta_doc *doc, const struct read_cmd *cmd,
        struct saev_ids *ids, struct err *err)
{
    const uint64_t shape[] = { doc->n_imgs, ids->n_tokens };
    size_t first = cmd->imgs.first <= cmd->imgs.last ? cmd->imgs.first : 0;
    struct str path = { 0 }, head = { 0 }, json = { 0 };
    struct hash *sum = hash_new(HASH_SHA256);
    char dump[SAEV_HASH_MAX], sha256[HASH_MAX_HEX];
    struct out *out = NULL, *json_out = NULL;
    int rc;

    saev_ids_default(&path, cmd->out_path);
    rc = saev_hash_text(doc->text.s, doc->text.n, doc->saev->name, dump, err);
    if (rc == 0)
        rc = npy_header(&head, DT_I32, 2, shape, err);
    if (rc == 0)
        rc = out_open(&out, path.s, cmd->out_flags, true, err);
    if (rc == 0)
        rc = out_write(out, head.s, head.n, err);
    for (int i = 0; i < cmd->n_args && rc == 0; i++) {
        const uint8_t *from = ids[i].ids + first * ids->n_tokens * 4;
        size_t n =
            ids[i].map.size - (size_t)(from - (const uint8_t *)ids[i].map.data);

        if (cmd->n_args == 1)
            n = doc->n_imgs * ids->n_tokens * 4;
        hash_add(sum, from, n);
        rc = out_write(out, from, n, err);
    }
    hash_end(sum, sha256);
    str_addf(&json,
             "{\"n_windows\": %zu, \"ctx\": %zu, \"dump\": \"%s\", "
             "\"ids_sha256\": \"%s\"",
             doc->n_imgs, ids->n_tokens, dump, sha256);
    for (size_t i = 0; i < ids->n_special; i++)
        str_addf(&json, "%s%d", i ? ", " : ", \"special\": [", ids->special[i]);
    str_adds(&json, ids->n_special       ? "]}\n"
                    : ids->knows_special ? ", \"special\": []}\n"
                                         : "}\n");
    str_adds(&path, ".json");
    /* no name before the disk has room for both */
    if (rc == 0)
        rc = out_open(&json_out, path.s, cmd->out_flags, false, err);
    if (rc == 0)
        rc = out_write(json_out, json.s, json.n, err);
    if (rc == 0)
        rc = out_flush(json_out, err);
    if (rc == 0)
        rc = out_flush(out, err);
    if (rc == 0)
        rc = out_commit(out, err);
    else
        out_abort(out);
    if (rc == 0)
        rc = out_commit(json_out, err);
    else
        out_abort(json_out);
    str_free(&path);
    str_free(&head);
    str_free(&json);
    return rc;
}

static int
write_ids(const struct meta_doc *doc, const struct read_cmd *cmd,
          struct err *err)
{
    struct saev_ids *ids;
    struct stat st;
    int rc;

    if (!strcmp(cmd->out_path, "-") ||
        (stat(cmd->out_path, &st) == 0 && !S_ISREG(st.st_mode)))
        return 0;
    ids = xcalloc((size_t)cmd->n_args, sizeof(*ids));
    rc = open_ids(ids, doc, cmd, err);
    if (rc > 0)
        rc = put_ids(doc, cmd, ids, err);
    for (int i = 0; i < cmd->n_args; i++)
        saev_ids_close(&ids[i]);
    free(ids);
    return rc;
}

int
meta_main(struct read_cmd *cmd, struct err *err)
{
    struct saevdir dir;
    struct meta_doc doc;
    struct str json = { 0 };
    size_t n_tokens, per_img, nbytes;
    int rc = -1;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "meta: a DUMP is missing");
    if (cmd->imgs.first <= cmd->imgs.last && cmd->n_args > 1)
        return err_set(err, TU_USAGE, "--imgs takes images of one DUMP");
    if (saevdir_meta(&dir, cmd->args[0], err) < 0)
        return -1;
    doc = doc_of(&dir.saev);
    if (cmd->max_patches)
        doc.max_patches = cmd->max_patches;
    if (check_name(&dir, cmd, err) < 0 || select_part(&doc, cmd, err) < 0 ||
        (cmd->n_args > 1 && merge(&doc, cmd, err) < 0))
        goto out;
    /* an image has to fit a shard, and all of them 2^63 bytes */
    n_tokens = doc.n_patches + doc.cls_token;
    per_img = doc.n_layers * n_tokens;
    if (doc.max_patches < per_img)
        err_set(err, EX_DATAERR,
                "%s: --max-patches is %zu, but an image has %zu layer%s x %zu "
                "token%s (expected at least %zu)",
                dir.saev.name, doc.max_patches, doc.n_layers,
                plural(doc.n_layers), n_tokens, plural(n_tokens), per_img);
    else if (!size_mul(per_img * dir.saev.row_nbytes, doc.n_imgs, &nbytes) ||
             nbytes > INT64_MAX || doc.max_patches > INT64_MAX)
        err_set(err, EX_DATAERR, "%s: so many images are beyond 2^63 bytes",
                dir.saev.name);
    else if (make_text(&doc, err) == 0 &&
             pyjson_indent(&json, doc.text.s, doc.text.n, 4, dir.saev.name,
                           err) == 0 &&
             out_write(cmd->out, json.s, json.n, err) == 0 &&
             out_flush(cmd->out, err) == 0)
        rc = n_tokens == dir.saev.n_tokens ? write_ids(&doc, cmd, err) : 0;
out:
    str_free(&doc.origin_value);
    str_free(&doc.text);
    str_free(&json);
    saevdir_close(&dir);
    return rc;
}
