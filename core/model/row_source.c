/* SPDX-License-Identifier: ISC */
#include "core/model/row_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/npy.h"
#include "core/format/sae_without.h"
#include "core/format/saev_mask.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/names.h"
#include "core/model/places.h"
#include "core/str.h"

size_t
source_item(const struct source *s)
{
    return dtype_size(s->dtype);
}

static struct source *
add_source(struct row_stream *in, char *path, int fd)
{
    in->sources =
        xrealloc(in->sources, in->n_sources + 1, sizeof(*in->sources));
    in->sources[in->n_sources] =
        (struct source){ .path = path, .fd = fd, .n_rows = UNKNOWN };
    return &in->sources[in->n_sources++];
}

void
source_close(struct source *s)
{
    if (s->is_file && s->fd > 2 && !s->is_copy) {
        close(s->fd);
        s->fd = -1;
    }
}

/* Has a dump the layer that the SAE's hook names, and no other, at its point?
 * A negative one, counted from the model's end, may be any.
 * blocks.N.hook_resid_pre is the output of layer N - 1, as hf-infer numbers it,
 * or of TransformerLens's block N.  An SAE without a hook gets the dump's. */
static int
take_hook(const struct saevdir *dir, const struct row_options *o, size_t i,
          struct err *err)
{
    const struct saev *s = &dir->saev;
    size_t k = o->n_layers ? i : 0, end = o->n_layers ? i + 1 : s->n_layers;
    bool mixed = o->n_layers == 0 && s->n_layers > 1, known, placed;
    const char *hook = o->hooks[i], *rest;
    struct str own = { 0 };
    struct place of, place;
    int64_t block, layer;
    int rc = 0;

    placed = k < s->n_layers && !mixed && place_of_dump(&own, &of, s, k);
    if (!hook) {
        o->hooks[i] = own.s;
        return 0;
    }
    known = place_find(&place, hook);
    if (!names_layer(hook, &block, &rest)) {
        block = known ? place.layer : 0;
        end = known ? end : 0;
    }
    layer = known ? place.layer : block;
    for (; k < end && k < s->n_layers && rc == 0; k++)
        if (s->layers[k] != layer &&
            (mixed || (s->layers[k] >= 0 && s->layers[k] != block)))
            rc = err_set(err, EX_DATAERR,
                         "%s: rows of layer %lld are not of %s (one layer "
                         "alone: saev-read --layer N)",
                         dir->path, (long long)s->layers[k], hook);
    if (placed && known)
        place.layer = of.layer; /* which is compared above */
    if (placed && known && rc == 0 &&
        !place_same_in(&of, &place, family_find(s->family)))
        rc = err_set(err, EX_DATAERR, "%s: is of %s, not of %s", dir->path,
                     own.s, hook);
    str_free(&own);
    return rc;
}

/* The same of a .npy that says its hook. */
static int
take_noted(const struct source *s, const struct row_options *o, struct err *err)
{
    struct place of, place;

    for (size_t i = 0; i < o->n_hooks && s->hook; i++)
        if (!o->hooks[i])
            o->hooks[i] = xstrdup(s->hook);
        else if (place_find(&of, s->hook) && place_find(&place, o->hooks[i]) &&
                 !place_same_in(&of, &place,
                                s->family ? family_find(s->family) : NULL))
            return err_set(err, EX_DATAERR, "%s: is of %s, not of %s", s->path,
                           s->hook, o->hooks[i]);
    return 0;
}

int
rows_check_hook(const struct row_stream *in, const char *hook, struct err *err)
{
    char *hooks[] = { xstrdup(hook) };
    const struct row_options o = { .hooks = hooks, .n_hooks = 1 };
    int rc = 0;

    for (const struct source_dump *p = in->dumps; p && rc == 0; p = p->next)
        rc = take_hook(&p->dir, &o, 0, err);
    for (size_t i = 0; i < in->n_sources && rc == 0; i++)
        rc = take_noted(&in->sources[i], &o, err);
    free(hooks[0]);
    return rc;
}

const struct model_family *
rows_family(const struct row_stream *in)
{
    const struct model_family *family = NULL;

    for (size_t i = 0; i < in->n_sources; i++) {
        const struct source *s = &in->sources[i];
        const struct saev *dump = s->dump ? &s->dump->dir.saev : NULL;
        const char *name = !dump ? s->family : dump->acts ? dump->family : NULL;
        const struct model_family *f = name ? family_find(name) : NULL;

        if (!f || (i > 0 && f != family))
            return NULL;
        family = f;
    }
    return family;
}

/* The mask of a dump, whose own list the word special stands for.  An SAE says
 * one list of ids: where others are given as well, all dumps need the same. */
static int
take_mask(struct row_stream *in, const struct saevdir *dir,
          const struct row_options *o, struct err *err)
{
    struct saev_mask mask = in->mask;
    int rc = 0;

    mask.ids = NULL;
    mask.n_ids = 0;
    if (o->skip_ids)
        rc = saev_mask_ids(&mask, o->skip_ids, err);
    if (rc == 0)
        rc = saev_mask_resolve(&mask, dir, err);
    if (rc == 0 && in->dumps->next && saev_mask_difference(&mask, &in->mask))
        rc = err_set(err, EX_DATAERR,
                     "%s: its special tokens are not those of %s (--skip-ids "
                     "special alone leaves out those of each)",
                     dir->path, in->dumps->next->dir.path);
    free(in->mask.ids);
    in->mask = mask;
    return rc;
}

/* Each shard is a source: rows image by image, layer by layer. */
static int
add_dump(struct row_stream *in, const char *path, const struct row_options *o,
         struct err *err)
{
    struct source_dump *p = xcalloc(1, sizeof(*p));
    const struct saev *saev = &p->dir.saev;
    struct str name = { 0 };
    size_t n;

    p->next = in->dumps;
    in->dumps = p;
    if (saevdir_open(&p->dir, path, err) < 0 ||
        saev_view_open(&p->view, saev, SAEV_ALL, SAEV_ALL_LAYERS, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n_hooks; i++)
        if (take_hook(&p->dir, o, i, err) < 0)
            return -1;
    if (take_mask(in, &p->dir, o, err) < 0 ||
        saev_mask_open(&p->kept, &p->dir, &p->view, &in->mask, 0, SIZE_MAX,
                       o->n_threads, err) < 0)
        return -1;
    if (!o->all)
        saev_view_keep(&p->view, p->kept);
    if (o->ids && saev_ids_of(&p->ids, &p->dir, err) < 0)
        return -1;
    if (o->ids && !p->ids.ids)
        return err_set(err, EX_DATAERR,
                       "%s: has no " SAEV_IDS ", which --by token needs", path);
    if (o->n_layers == 0)
        saevdir_warn_layers(&p->dir, "saev-read --layer N");
    n = saev->n_shards;
    for (size_t i = 0; i < n; i++) {
        struct source *s;

        str_clear(&name);
        saevdir_shard_path(&p->dir, i, &name);
        s = add_source(in, xstrdup(name.s), -1);
        s->is_file = true;
        s->dtype = DT_F32;
        s->view = p->view.kept ? &p->view : NULL;
        s->dump = p;
        s->first_img = i * saev->shard_imgs;
        s->end_img = s->first_img + saev_shard_imgs(saev, i);
        s->first = saev_view_img(&p->view, s->first_img);
        s->n_rows = saev_view_img(&p->view, s->end_img) - s->first;
        s->last[0] = saev->n_layers;
        s->last[1] = saev->n_tokens;
        s->last[2] = saev->d;
    }
    str_free(&name);
    return 0;
}

size_t
source_place(const struct source *s, uint64_t row, uint64_t *n_adjacent)
{
    *n_adjacent = s->n_rows - row;
    if (!s->view)
        return s->offset + (size_t)row * s->last[2] * source_item(s);
    *n_adjacent = saev_view_run(s->view, s->first + row);
    return saev_view_at(s->view, s->first + row).offset;
}

void
source_free_dumps(struct source_dump *p)
{
    while (p) {
        struct source_dump *next = p->next;

        saev_ids_close(&p->ids);
        saevdir_close(&p->dir);
        saev_kept_free(p->kept);
        free(p);
        p = next;
    }
}

static int
set_npy(struct source *s, const struct npy *npy, struct err *err)
{
    if (npy->dtype != DT_F32 && npy->dtype != DT_F16)
        return err_set(err, EX_DATAERR, "%s: dtype is %s (expected F32 or F16)",
                       s->path, dtype_table[npy->dtype].name);
    if (npy->n_dims < 1 || npy->shape[npy->n_dims - 1] == 0)
        return err_set(err, EX_DATAERR,
                       "%s: has no rows of numbers (expected [.., d])",
                       s->path);
    for (size_t i = 0; i < 3 && i < npy->n_dims; i++)
        s->last[2 - i] = (size_t)npy->shape[npy->n_dims - 1 - i];
    s->dtype = npy->dtype;
    s->n_rows = npy->n_elements / s->last[2];
    s->offset = npy->data_offset;
    return 0;
}

/* The note that saev-read puts into a header, if this is one. */
static int
read_note(struct source *s, const char *note, size_t nbytes, struct err *err)
{
    struct sae_without w = { 0 };
    struct js root, hook, family;
    const char *name;
    json_t *v;
    int rc;

    if (!memchr(note, '{', nbytes))
        return 0;
    v = js_parse(note, nbytes, s->path, err);
    root = js_root(v, s->path);
    hook = js_get(&root, "hook");
    family = js_get(&root, "family");
    rc = v ? sae_without_read(&w, &root, err) : -1;
    if (rc == 0 && !js_absent(&hook) &&
        (rc = js_str(&hook, &name, NULL, err)) == 0)
        s->hook = xstrdup(name);
    if (rc == 0 && !js_absent(&family) &&
        (rc = js_str(&family, &name, NULL, err)) == 0)
        s->family = xstrdup(name);
    if (rc == 0 && w.is_slice &&
        (w.start < 0 || w.end != INT64_MAX || w.step != 1))
        rc =
            err_set(err, EX_DATAERR,
                    "%s: seqpos_slice of its header is not [N, null]", s->path);
    s->mask = (struct saev_mask){ .special = w.special,
                                  .ids = w.ids,
                                  .n_ids = w.n_ids,
                                  .positions = (uint64_t)w.start,
                                  .max_norm = w.max_norm };
    json_decref(v);
    return rc;
}

static int
read_npy(struct source *s, size_t size, struct err *err)
{
    unsigned char *head = xcalloc(1, NPY_MAX_HEAD);
    ssize_t n = file_read_full(s->fd, s->path, head, 8, err);
    struct npy npy;
    int rc = n < 0 ? -1 : 0;

    if (rc == 0 && n == 0)
        rc = err_set(err, EX_DATAERR, "%s: is empty", s->path);
    if (rc == 0 && !npy_sniff(head, (size_t)n))
        rc =
            err_set(err, EX_DATAERR,
                    "%s: is not .npy (--dim and --x-dtype are for raw numbers)",
                    s->path);
    if (rc == 0)
        rc = npy_read(&npy, s->fd, s->path, head, (size_t)n, err);
    /* more arrays on standard input are read as from a pipe */
    if (rc == 0 && s->is_file && s->fd == 0 &&
        pread(0, head, 8, (off_t)(npy.data_offset + npy.nbytes)) == 8 &&
        npy_sniff(head, 8))
        s->is_file = false;
    if (rc == 0 && s->is_file)
        rc = npy_fits(&npy, size, s->path, err);
    if (rc == 0)
        rc = read_note(s, (char *)head + npy.note_offset, npy.note_nbytes, err);
    free(head);
    return rc == 0 ? set_npy(s, &npy, err) : -1;
}

int
source_more(struct source *s, bool by_layers, struct err *err)
{
    struct npy npy = { .dtype = s->dtype,
                       .n_dims = 3,
                       .shape = { s->last[0], s->last[1], s->last[2] },
                       .n_elements = s->n_rows * s->last[2] };
    int rc = 1;

    for (uint64_t n = s->n_rows; rc > 0 && s->n_rows == n;) {
        rc = npy_more(&npy, s->fd, s->path, by_layers ? 3 : 1, err);
        s->n_rows += rc > 0 ? npy.n_elements / s->last[2] : 0;
    }
    return rc < 0 ? -1 : 0;
}

int
source_add(struct row_stream *in, const char *path, const struct row_options *o,
           struct err *err)
{
    bool is_stdin = !strcmp(path, "-");
    struct source *s;
    struct stat st;
    off_t at;

    if (!is_stdin && file_is_dir(path, err) != 0)
        return file_is_dir(path, err) < 0 ? -1 : add_dump(in, path, o, err);
    if (saev_mask_given(&in->mask))
        return err_set(err, TU_USAGE,
                       "%s: --skip-ids, --skip-positions and --max-norm are of "
                       "a dump named here (before a pipe, of saev-read)",
                       is_stdin ? "standard input" : path);
    if (o->ids)
        return err_set(err, TU_USAGE,
                       "%s: --by token needs dumps that are named here",
                       is_stdin ? "standard input" : path);
    s = add_source(in, xstrdup(is_stdin ? "standard input" : path),
                   is_stdin ? 0 : file_open_any(path, err));
    if (s->fd < 0 || fstat(s->fd, &st) < 0)
        return s->fd < 0 ? -1 : err_sys(err, file_status(errno), "%s", s->path);
    if (isatty(s->fd))
        return err_set(err, TU_USAGE,
                       "rows are not read from a terminal: redirect standard "
                       "input, or name a file");
    at = lseek(s->fd, 0, SEEK_CUR);
    s->is_file = S_ISREG(st.st_mode) && at == 0;
    if (o->dtype < 0 && read_npy(s, (size_t)st.st_size, err) < 0)
        return -1;
    if (o->n_layers == 0 && take_noted(s, o, err) < 0)
        return -1;
    if (!s->is_file && s->n_rows == 0 && source_more(s, o->n_layers, err) < 0)
        return -1;
    if (o->dtype >= 0) {
        s->is_raw = true;
        s->dtype = (enum dtype)o->dtype;
        s->last[2] = o->dim;
        s->last[1] = (size_t)o->tokens;
        s->last[0] = o->n_layers;
        if (s->is_file && (size_t)st.st_size % (o->dim * source_item(s)) != 0)
            return err_set(err, EX_DATAERR,
                           "%s: has %lld bytes (expected whole rows of %zu)",
                           s->path, (long long)st.st_size,
                           o->dim * source_item(s));
        if (s->is_file)
            s->n_rows = (uint64_t)st.st_size / (o->dim * source_item(s));
    }
    source_close(s);
    return 0;
}
