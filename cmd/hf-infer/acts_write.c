/* SPDX-License-Identifier: ISC */
/* What --acts writes: arrays, metadata and ids, as files or a directory. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/hf-infer/acts.h"
#include "core/format/saev_ids.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
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
    int rc = array_out_open(&a->dumps->ids, "acts-ids", run->acts_ids,
                            run->out_flags, err);

    str_addf(&name, "%s.json", run->acts_ids);
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

    if (acts_spec_parse(&a->spec, run->acts, run->config, err) < 0)
        return -1;
    if (a->spec.n_again > 0)
        err_warn("--acts: %s, written once%s", a->spec.again.s,
                 a->spec.n_again > 1 ? ", and so are others" : "");
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
    run->acts_meta = run->output;
    if (!a->images)
        run->acts_ids = run->output;
    return outdir_at_open(&a->dir, run->output, run->out_flags, err);
}

/* DIR/PLACE.npy and PLACE.ids.npy. */
int
acts_open_place(struct acts *a, struct acts_dump *d, struct err *err)
{
    struct str path = { 0 };
    int rc;

    str_addf(&path, "%s/", outdir_path(a->dir.dir));
    place_hook_in(&path, d->spec.places, a->run->config);
    str_adds(&path, ".npy");
    rc = out_open(&d->array.out, path.s, OUT_RUN, true, err);
    path.n -= strlen(".npy");
    str_adds(&path, ".ids.npy");
    if (rc == 0 && !a->images)
        rc = out_open(&d->ids.out, path.s, OUT_RUN, true, err);
    str_free(&path);
    return rc;
}

/* Files are filled before the first of them gets its name: a disk has room for
 * all of them, or none is there. */
static int
fill(struct out *out, const struct str *text, struct err *err)
{
    return out_write(out, text->s, text->n, err) < 0 ? -1 : out_flush(out, err);
}

/* NULL is fine. */
static int
commit(struct out **out, struct err *err)
{
    struct out *o = *out;

    *out = NULL;
    return o ? out_commit(o, err) : 0;
}

static int
fill_meta(struct acts *a, struct err *err)
{
    struct str text = { 0 };
    int rc;

    acts_meta(&text, a, a->dumps);
    rc = fill(a->meta, &text, err);
    str_free(&text);
    return rc;
}

int
acts_write(struct acts *a, size_t n_windows, size_t n_tokens, struct err *err)
{
    const char *output = a->run->output;
    bool to_stdout = !output || strcmp(output, "-") == 0;
    int rc = 0;

    if (a->n_written == 0 && to_stdout && a->meta) {
        /* a pipe's reader waits for both: else they come when all is known */
        a->meta_first = true;
        rc = fill_meta(a, err) < 0 ? -1 : commit(&a->meta, err);
    }
    for (size_t i = 0; i < a->n_dumps && rc == 0; i++)
        rc = array_out_write(&a->dumps[i].array, n_windows, a->dumps[i].acts,
                             n_tokens * a->dumps[i].row_nbytes, err);
    a->n_written += n_windows;
    return rc;
}

/* The absolute path of a file that may not be there yet. */
static void
add_real_path(struct str *to, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = xstrndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    char *real = realpath(path, NULL), *above = NULL;

    if (real) {
        str_adds(to, real);
    } else if ((above = realpath(*dir ? dir : ".", NULL))) {
        str_addf(to, "%s/%s", strcmp(above, "/") != 0 ? above : "",
                 slash ? slash + 1 : path);
    }
    free(above);
    free(real);
    free(dir);
}

/* The ids, after what is known of them: with --acts-meta the name of the dump,
 * by the hash of the metadata that are on the disk, but for n_imgs where
 * saev-write counts them. */
static int
fill_ids(struct acts *a, struct acts_dump *d, struct err *err)
{
    struct str text = { 0 }, meta = { 0 }, file = { 0 };
    char dump[SAEV_HASH_MAX] = "";
    int rc = 0;

    if (a->run->acts_meta) {
        acts_meta(&meta, a, d);
        rc = saev_hash_text(meta.s, meta.n, a->run->acts_meta, dump, err);
    }
    acts_ids_json(&text, a, d, dump);
    if (rc == 0)
        rc = array_out_end(&d->ids, err);
    if (rc == 0)
        rc = fill(a->ids_json, &text, err);
    if (rc == 0 && a->ids_pointer) {
        add_real_path(&file, a->run->acts_ids);
        text.n -= strlen("}\n");
        str_adds(&text, ", \"file\": ");
        js_put_str(&text, file.n ? file.s : "", file.n);
        str_adds(&text, "}\n");
        rc = fill(a->ids_pointer, &text, err);
    }
    str_free(&text);
    str_free(&meta);
    str_free(&file);
    return rc;
}

static int
commit_ids(struct acts *a, struct acts_dump *d, struct err *err)
{
    return commit(&a->ids_json, err) < 0 || commit(&d->ids.out, err) < 0 ||
                   commit(&a->ids_pointer, err) < 0
               ? -1
               : 0;
}

/* DIR/PLACE.npy, PLACE.meta.json and PLACE.ids.npy with its .json. */
static int
publish_dump(struct acts *a, struct acts_dump *d, struct err *err)
{
    struct str path = { 0 }, text = { 0 };
    size_t n;
    int rc = array_out_end(&d->array, err);

    if (rc == 0) {
        rc = out_commit(d->array.out, err);
        d->array.out = NULL;
    }
    str_addf(&path, "%s/", outdir_path(a->dir.dir));
    place_hook_in(&path, d->spec.places, a->run->config);
    n = path.n;
    acts_meta(&text, a, d);
    str_adds(&path, ".meta.json");
    if (rc == 0)
        rc = out_put(path.s, OUT_RUN, text.s, text.n, err);
    path.n = n;
    str_adds(&path, ".ids.npy.json");
    if (rc == 0 && d->ids.out) {
        rc = out_open(&a->ids_json, path.s, OUT_RUN, false, err);
        if (rc == 0)
            rc = fill_ids(a, d, err) < 0 ? -1 : commit_ids(a, d, err);
    }
    str_free(&path);
    str_free(&text);
    return rc;
}

/* The activations first: metadata and the rest must not be there without the
 * dump. */
static int
publish_one(struct acts *a, struct err *err)
{
    struct acts_dump *d = a->dumps;

    return (d && array_out_end(&d->array, err) < 0) ||
                   (a->run->out && out_flush(a->run->out, err) < 0) ||
                   (a->meta && fill_meta(a, err) < 0) ||
                   (d && d->ids.out && fill_ids(a, d, err) < 0) ||
                   commit(&a->run->out, err) < 0 || commit(&a->meta, err) < 0 ||
                   (d && commit_ids(a, d, err) < 0)
               ? -1
               : 0;
}

int
acts_publish(struct acts *a, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < N_ACTS_FILES && rc == 0; i++)
        if (a->files[i].out)
            rc = array_out_end(&a->files[i], err) < 0
                     ? -1
                     : out_flush(a->files[i].out, err);
    if (rc == 0 && !a->dir.dir)
        rc = publish_one(a, err);
    for (size_t i = 0; a->dir.dir && i < a->n_dumps && rc == 0; i++)
        rc = publish_dump(a, &a->dumps[i], err);
    if (rc == 0 && a->dir.dir)
        rc = outdir_at_commit(&a->dir, err);
    for (size_t i = 0; i < N_ACTS_FILES && rc == 0; i++)
        rc = commit(&a->files[i].out, err);
    return rc;
}
