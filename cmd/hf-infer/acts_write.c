/* SPDX-License-Identifier: ISC */
/* What --acts writes: arrays, metadata and ids, as files or a directory. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/hf-infer/acts_run.h"
#include "core/format/saev_ids.h"
#include "core/js.h"
#include "core/map.h"
#include "core/str.h"

void
acts_place_ids(struct acts *a)
{
    struct run *run = a->run;
    struct stat st;

    if (a->dir.dir || !run->acts_meta ||
        (stat(run->acts_meta, &st) == 0 && !S_ISREG(st.st_mode)))
        return;
    saev_ids_default(&a->ids_default, run->acts_meta);
    if (!run->acts_ids)
        run->acts_ids = a->ids_default.s;
}

/* --acts-ids FILE, and FILE.json; to the latter leads one next to the metadata.
 */
int
acts_open_ids(struct acts *a, struct err *err)
{
    const struct run *run = a->run;
    struct str name = { 0 };
    struct stat st;
    int rc;

    if (strcmp(run->acts_ids, "-") == 0 ||
        (stat(run->acts_ids, &st) == 0 && !S_ISREG(st.st_mode) &&
         !S_ISDIR(st.st_mode)))
        return err_set(err, TU_USAGE,
                       "--acts-ids %s: must be a file, whose header is written "
                       "at the end",
                       run->acts_ids);
    str_addf(&name, "%s.json", run->acts_ids);
    rc = out_open(&a->dumps->ids.out, run->acts_ids, run->out_flags, true, err);
    if (rc == 0)
        rc = out_open(&a->ids_json, name.s, run->out_flags, false, err);
    if (a->ids_default.n && rc == 0 &&
        !file_same(run->acts_ids, a->ids_default.s)) {
        str_clear(&name);
        str_addf(&name, "%s.json", a->ids_default.s);
        rc = out_open(&a->ids_pointer, name.s, run->out_flags, false, err);
    }
    str_free(&name);
    return rc;
}

/* -o FILE, or -o DIR, which has metadata and ids of its own. */
int
acts_open_output(struct acts *a, struct err *err)
{
    struct run *run = a->run;

    if (!a->spec.is_mixed)
        return out_open(&run->out, run->output ? run->output : "-",
                        run->out_flags, true, err);
    if (!run->output || !*run->output || !strcmp(run->output, "-") ||
        str_ends(run->output, ".npy"))
        return err_set(err, TU_USAGE,
                       "--acts %s: places of different points need -o DIR, "
                       "which gets a file of each",
                       run->acts);
    if (run->acts_meta || run->acts_ids)
        return err_set(err, TU_USAGE,
                       "--acts %s: -o DIR gets the metadata and the ids of "
                       "each place: not with --acts-meta or --acts-ids",
                       run->acts);
    run->acts_meta = run->acts_ids = run->output;
    return outdir_at_open(&a->dir, run->output, run->out_flags, err);
}

/* DIR/PLACE.npy and PLACE.ids.npy. */
int
acts_open_place(struct acts *a, struct acts_dump *d, struct err *err)
{
    struct str path = { 0 };
    int rc;

    str_addf(&path, "%s/", outdir_path(a->dir.dir));
    place_hook(&path, d->spec.places, a->run->config->family);
    str_adds(&path, ".npy");
    rc = out_open(&d->array.out, path.s, OUT_RUN, true, err);
    path.n -= strlen(".npy");
    str_adds(&path, ".ids.npy");
    if (rc == 0)
        rc = out_open(&d->ids.out, path.s, OUT_RUN, true, err);
    str_free(&path);
    return rc;
}

/* What is known of the dump so far. */
static struct acts_shape
shape_of(const struct acts *a, const struct acts_dump *d)
{
    return (struct acts_shape){
        .spec = &d->spec,
        .dim = d->dim,
        .n_tokens = a->n_tokens,
        .n_windows = a->n_written ? a->n_written : a->n_expected,
        .input = docs_input(a->docs),
        .windows = a->run->ctx == 0 ? "whole"
                   : a->run->pad    ? "padded"
                                    : "packed",
        .sha256 = a->sha256[0] ? a->sha256 : NULL,
        .sources = &a->sources,
    };
}

static int
publish(struct out **out, const struct str *text, struct err *err)
{
    int rc = out_write(*out, text->s, text->n, err);

    if (rc == 0)
        rc = out_commit(*out, err);
    else
        out_abort(*out);
    *out = NULL;
    return rc;
}

/* The metadata is written before the first activation where a pipe's reader
 * waits for both, else after the last, when all of it is known. */
int
acts_publish_meta(struct acts *a, struct err *err)
{
    struct acts_shape shape = shape_of(a, a->dumps);
    struct str text = { 0 };
    int rc;

    acts_meta(&text, a->run, &shape);
    rc = publish(&a->meta, &text, err);
    str_free(&text);
    return rc;
}

/* The ids, after what is known of them: with --acts-meta the name of the dump,
 * by the hash of the metadata that are on the disk, but for n_imgs where
 * saev-write counts them. */
static int
publish_ids(struct acts *a, struct acts_dump *d, struct err *err)
{
    struct acts_shape shape = shape_of(a, d);
    struct str text = { 0 }, meta = { 0 };
    char dump[SAEV_HASH_MAX] = "";
    int rc = 0;

    if (a->run->acts_meta) {
        if (a->meta_first)
            shape.sha256 = NULL;
        acts_meta(&meta, a->run, &shape);
        rc = saev_hash_text(meta.s, meta.n, a->run->acts_meta, dump, err);
        shape.sha256 = a->sha256;
    }
    acts_ids_json(&text, &shape, dump, a->run->tok);
    if (rc == 0)
        rc = acts_write_head(&d->ids, err);
    if (rc == 0)
        rc = publish(&a->ids_json, &text, err);
    if (rc == 0) {
        rc = out_commit(d->ids.out, err);
        d->ids.out = NULL;
    }
    if (rc == 0 && a->ids_pointer) {
        char *file = realpath(a->run->acts_ids, NULL);

        text.n -= strlen("}\n");
        str_adds(&text, ", \"file\": ");
        js_put_str(&text, file ? file : "", file ? strlen(file) : 0);
        str_adds(&text, "}\n");
        free(file);
        rc = publish(&a->ids_pointer, &text, err);
    }
    str_free(&text);
    str_free(&meta);
    return rc;
}

/* DIR/PLACE.npy, PLACE.meta.json and PLACE.ids.npy with its .json. */
static int
publish_dump(struct acts *a, struct acts_dump *d, struct err *err)
{
    struct acts_shape shape = shape_of(a, d);
    struct str path = { 0 }, text = { 0 };
    size_t n;
    int rc = acts_write_head(&d->array, err);

    if (rc == 0) {
        rc = out_commit(d->array.out, err);
        d->array.out = NULL;
    }
    str_addf(&path, "%s/", outdir_path(a->dir.dir));
    place_hook(&path, d->spec.places, a->run->config->family);
    n = path.n;
    acts_meta(&text, a->run, &shape);
    str_adds(&path, ".meta.json");
    if (rc == 0)
        rc = out_put(path.s, OUT_RUN, text.s, text.n, err);
    path.n = n;
    str_adds(&path, ".ids.npy.json");
    if (rc == 0)
        rc = out_open(&a->ids_json, path.s, OUT_RUN, false, err);
    if (rc == 0)
        rc = publish_ids(a, d, err);
    str_free(&path);
    str_free(&text);
    return rc;
}

/* The activations first: metadata and ids must not be there without the dump.
 */
static int
publish_one(struct acts *a, struct err *err)
{
    int rc = 0;

    if (a->meta || a->dumps->ids.out) {
        rc = out_commit(a->run->out, err);
        a->run->out = NULL;
    }
    if (rc == 0 && a->meta)
        rc = acts_publish_meta(a, err);
    if (rc == 0 && a->dumps->ids.out)
        rc = publish_ids(a, a->dumps, err);
    return rc;
}

int
acts_publish(struct acts *a, struct err *err)
{
    if (!a->dir.dir)
        return publish_one(a, err);
    for (size_t i = 0; i < a->n_dumps; i++)
        if (publish_dump(a, &a->dumps[i], err) < 0)
            return -1;
    return outdir_at_commit(&a->dir, err);
}
