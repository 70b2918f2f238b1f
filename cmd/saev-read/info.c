/* SPDX-License-Identifier: ISC */
/* info: what a dump is, and how much of it is there. */
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/verify.h"
#include "core/js.h"
#include "core/map.h"
#include "core/model/places.h"
#include "core/pyjson.h"

#define DATA_MAX 200 /* bytes of "data" that are shown */

/* One dump's facts as they are printed: TSV rows or members of an object. */
struct facts {
    struct str to;
    bool json;
    const char *end; /* of each */
    const struct saevdir *dir;
};

static void
begin(struct facts *f, const char *key)
{
    if (f->json) {
        str_addf(&f->to, ",\"%s\":", key);
        return;
    }
    str_esc(&f->to, f->dir->path, strlen(f->dir->path));
    str_addf(&f->to, "\t%s\t", key);
}

static void
put_size(struct facts *f, const char *key, size_t n)
{
    begin(f, key);
    str_addf(&f->to, "%zu%s", n, f->end);
}

/* NULL: not known. */
static void
put_text(struct facts *f, const char *key, const char *s)
{
    begin(f, key);
    if (!s)
        str_adds(&f->to, f->json ? "null" : "-");
    else if (f->json)
        js_put_str(&f->to, s, strlen(s));
    else
        str_esc(&f->to, s, strlen(s));
    str_adds(&f->to, f->end);
}

/* A string as metadata.json has it, escaped, without its quotes. */
static void
put_escaped(struct facts *f, const char *key, const char *s)
{
    begin(f, key);
    str_addf(&f->to, f->json ? "\"%s\"" : "%s\n", s);
}

/* A dump of text by the words of text, as the names of vit_family are those of
 * pictures; nothing of another. */
static void
put_text_dump(struct facts *f)
{
    const struct saev *s = &f->dir->saev;
    struct str hooks = { 0 }, hook = { 0 };
    struct place place;

    for (size_t i = 0; i < s->n_layers && place_of_dump(&hook, &place, s, i);
         i++, str_clear(&hook))
        str_addf(&hooks, "%s%s", i ? "," : "", hook.s);
    if (hooks.n) {
        put_text(f, "hook", hooks.s);
        put_size(f, "windows", s->n_imgs);
        put_size(f, "tokens", s->n_imgs * s->n_tokens);
        put_size(f, "dim", s->d);
    }
    str_free(&hook);
    str_free(&hooks);
}

/* The shape, and rows of each view: of one layer, and of all. */
static void
put_geometry(struct facts *f)
{
    const struct saev *s = &f->dir->saev;
    const struct {
        const char *name;
        size_t n_tokens;
    } views[] = { { "cls", s->cls_token },
                  { "image", s->n_patches },
                  { "all", s->n_tokens } };

    put_escaped(f, "vit_family", s->family);
    put_escaped(f, "vit_ckpt", s->ckpt);
    begin(f, "layers");
    str_adds(&f->to, f->json ? "[" : "");
    for (size_t i = 0; i < s->n_layers; i++)
        str_addf(&f->to, "%s%lld", i ? "," : "", (long long)s->layers[i]);
    str_adds(&f->to, f->json ? "]" : "\n");
    put_size(f, "n_imgs", s->n_imgs);
    put_size(f, "n_patches_per_img", s->n_patches);
    begin(f, "cls_token");
    str_addf(&f->to, "%s%s", s->cls_token ? "true" : "false", f->end);
    put_size(f, "tokens_per_img", s->n_tokens);
    put_size(f, "d_vit", s->d);
    put_size(f, "max_patches_per_shard", s->max_patches);
    put_size(f, "imgs_per_shard", s->shard_imgs);
    for (int i = 0; i < 3; i++) {
        size_t one = s->n_imgs * views[i].n_tokens, all = one * s->n_layers;
        char key[32];

        if (f->json) {
            str_addf(&f->to, "%s\"%s\":{\"one\":%zu,\"all\":%zu}%s",
                     i ? "," : ",\"rows\":{", views[i].name, one, all,
                     i < 2 ? "" : "}");
            continue;
        }
        snprintf(key, sizeof(key), "rows.%s.one", views[i].name);
        put_size(f, key, one);
        snprintf(key, sizeof(key), "rows.%s.all", views[i].name);
        put_size(f, key, all);
    }
}

/* The member "data", cut. */
static int
put_data(void *ctx, const struct pyjson_member *m, struct err *err)
{
    struct facts *f = ctx;
    struct str text = { 0 };
    size_t n = strlen(m->value);

    (void)err;
    if (strcmp(m->key, "data") != 0)
        return 0;
    str_add(&text, m->value, n < DATA_MAX ? n : DATA_MAX);
    str_adds(&text, n > DATA_MAX ? "..." : "");
    begin(f, "data");
    if (f->json)
        js_put_str(&f->to, text.s, text.n);
    else /* JSON in ASCII: nothing to escape */
        str_addf(&f->to, "%s\n", text.s);
    str_free(&text);
    return 0;
}

static int
put_facts(struct facts *f, const struct lines *problems, struct err *err)
{
    const struct saevdir *dir = f->dir;
    const struct saev *s = &dir->saev;
    char hash[SAEV_HASH_MAX], name[SAEV_HASH_MAX];
    bool named = saevdir_name_hash(dir, name);
    size_t last = dir->n_listed ? dir->files[dir->n_listed - 1].shard : 0;

    if (saev_hash(s, hash, err) < 0)
        return -1;
    if (f->json) {
        str_adds(&f->to, "{\"dump\":");
        js_put_str(&f->to, dir->path, strlen(dir->path));
    }
    put_escaped(f, "protocol", s->protocol);
    put_text(f, "hash", *hash ? hash : NULL);
    put_text(f, "folder_hash", named ? name : NULL);
    put_text_dump(f);
    put_geometry(f);
    put_size(f, "shards", s->n_shards);
    put_size(f, "shards_found", dir->n_files);
    put_size(f, "nbytes", s->n_imgs * s->img_nbytes);
    put_size(f, "nbytes_found", dir->nbytes);
    /* how the last image ends: the words of saev-read(5) */
    put_text(f, "form",
             problems->n                            ? "broken"
             : dir->n_listed && last == s->n_shards ? "extra"
             : s->n_imgs % s->shard_imgs == 0       ? "full"
             : dir->padded                          ? "padded"
                                                    : "short");
    if (pyjson_members(s->text, s->text_nbytes, s->name, put_data, f, err) < 0)
        return -1;
    if (f->json) {
        lines_json(&f->to, "problems", problems);
        str_addc(&f->to, '}');
    }
    for (size_t i = 0; !f->json && i < problems->n; i++)
        put_text(f, "problem", problems->s[i]);
    return 0;
}

int
info_main(struct read_cmd *cmd, struct err *err)
{
    struct facts f = { .json = cmd->json, .end = cmd->json ? "" : "\n" };
    int status = 0, rc = 0;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "info: a DUMP is missing");
    for (int i = 0; i < cmd->n_args; i++) /* before the work on the others */
        if (file_missing(cmd->args[i]))
            return err_sys(err, EX_NOINPUT, "%s", cmd->args[i]);
    str_adds(&f.to, cmd->json ? "[" : "dump\tkey\tvalue\n");
    for (int i = 0; i < cmd->n_args && rc == 0; i++) {
        struct dump_check c;

        str_adds(&f.to, !cmd->json ? "" : i ? ",\n" : "\n");
        check_init(&c, cmd, cmd->args[i]);
        f.dir = &c.dir;
        if (saevdir_meta(&c.dir, c.path, err) < 0 ||
            saevdir_check(&c.dir, check_report, &c, err) < 0 ||
            put_facts(&f, &c.problems, err) < 0)
            rc = -1;
        if (c.problems.n)
            status = TU_NEGATIVE;
        check_close(&c);
        if (rc == 0)
            rc = out_write(cmd->out, f.to.s, f.to.n, err);
        str_clear(&f.to);
    }
    if (rc == 0 && cmd->json)
        rc = out_write(cmd->out, "\n]\n", 3, err);
    str_free(&f.to);
    return rc < 0 ? -1 : status;
}
