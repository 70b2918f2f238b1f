/* SPDX-License-Identifier: ISC */
/* From shards to a dump: zeros, checksums, metadata, one rename. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/saev-write/run.h"
#include "core/fd.h"
#include "core/format/saev_ids.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"

/* Makes the last shard full, if it was written without --pad.  'extra': the
 * images fill theirs, and Python's writer leaves one shard of zeros after it.
 */
static int
pad(struct write_run *run, bool extra, struct err *err)
{
    const struct saev *s = &run->saev;
    struct str path = { 0 };
    struct out *out;
    struct stat st;
    int fd = -1, rc = 0;

    if (!extra && shard_exists(run, s->n_shards - 1))
        return 0;
    shard_path(run, extra ? s->n_shards : s->n_shards - 1, &path);
    if (extra) {
        rc = out_open(&out, path.s, OUT_RUN | OUT_READ_ONLY, false, err);
        if (rc == 0 && (rc = out_zeros(out, s->shard_nbytes, err)) == 0)
            rc = out_commit(out, err);
        else
            out_abort(out);
    } else {
        if (stat(path.s, &st) == 0) /* if it fails, open() reports it */
            chmod(path.s, st.st_mode | S_IWUSR);
        fd = open(path.s, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fd_read_only(fd) < 0 ||
            ftruncate(fd, (off_t)s->shard_nbytes) < 0 || fd_sync(fd) < 0)
            rc = err_sys(err, EX_IOERR, "%s: cannot be padded", path.s);
        if (fd >= 0)
            close(fd);
    }
    str_free(&path);
    return rc;
}

/* The checksum of a shard, from its file unless it is known, and of the size
 * that this has: another run that fills the stage may have padded it. */
static int
sum_shard(struct write_run *run, size_t shard, struct err *err)
{
    const size_t nbytes = INPUT_FLOATS * sizeof(float);
    struct hash *hash = NULL;
    struct str path = { 0 };
    size_t size, done = 0;
    long n = -1;
    int fd;

    shard_path(run, shard, &path);
    fd = file_open(path.s, &size, err);
    if (fd >= 0 && shard < run->n_sums && *run->sums[shard].hex &&
        size == run->sums[shard].nbytes)
        n = 0;
    else if (fd >= 0)
        hash = hash_new(HASH_XXH3);
    while (hash &&
           (n = sig_stop() ? -2 : read_some(fd, run->buf, nbytes)) > 0) {
        hash_add(hash, run->buf, (size_t)n);
        done += (size_t)n;
    }
    if (n == -2)
        sig_stopped("all shards are kept, run it again", err);
    else if (hash && n < 0)
        err_sys(err, EX_IOERR, "%s: cannot be read", path.s);
    if (fd >= 0)
        close(fd);
    if (hash && n == 0)
        shard_set_sum(run, shard, done, hash);
    else
        hash_free(hash);
    str_free(&path);
    return n < 0 ? -1 : 0;
}

/* What "xxhsum -H2 acts*.bin" prints, and "xxhsum -c" reads. */
static int
write_manifest(struct write_run *run, size_t n_files, struct err *err)
{
    struct str path = { 0 }, text = { 0 };
    int rc = 0;

    for (size_t i = 0; i < n_files && rc == 0; i++) {
        char name[32];

        rc = sum_shard(run, i, err);
        saev_shard_name(name, i);
        if (rc == 0)
            str_addf(&text, "%s  %s\n", run->sums[i].hex, name);
    }
    str_addf(&path, "%s/manifest.xxh3", outdir_path(run->dir));
    if (rc == 0)
        rc = out_put(path.s, OUT_RUN, text.s, text.n, err);
    str_free(&path);
    str_free(&text);
    return rc;
}

/* Removes what is not part of the dump.  Hidden files wait until it is
 * 'published': those of others that fill the stage have to, which without them,
 * but with the stage, would not know what happened. */
static void
sweep(const struct write_run *run, size_t n_files, bool published)
{
    DIR *d = opendir(published ? run->path.s : outdir_path(run->dir));
    struct dirent *e;

    while (d && (e = readdir(d))) {
        bool hidden = e->d_name[0] == '.';
        size_t shard;

        if (hidden != published || !strcmp(e->d_name, "metadata.json") ||
            (run->cmd->manifest && !strcmp(e->d_name, "manifest.xxh3")) ||
            (run->ids && !strcmp(e->d_name, SAEV_IDS)) ||
            (run->ids_json && !strcmp(e->d_name, SAEV_IDS ".json")) ||
            (saev_shard_of(e->d_name, &shard) && shard < n_files))
            continue;
        unlinkat(dirfd(d), e->d_name, 0); /* not "." and ".." */
    }
    if (d)
        closedir(d);
}

/* The first problem, and how many there are. */
struct problems {
    struct err *err;
    int n;
};

static void
count_problem(void *ctx, const char *what)
{
    struct problems *p = ctx;

    if (p->n++ == 0)
        err_set(p->err, EX_DATAERR, "%s", what);
}

/* All but the name, of shards that must be there with their sizes. */
static int
complete(struct write_run *run, struct err *err)
{
    struct saev *s = &run->saev;
    bool extra = run->cmd->pad && s->n_imgs % s->shard_imgs == 0;
    struct saevdir dir = { .path = xstrdup(outdir_path(run->dir)), .saev = *s };
    struct problems p = { .err = err };
    struct str path = { 0 }, json = { 0 };
    size_t n_files = s->n_shards + extra;
    int rc, n = saevdir_check(&dir, count_problem, &p, err);

    free(dir.path);
    free(dir.files);
    if (n > 1) {
        size_t used = strlen(err->what);

        snprintf(err->what + used, sizeof(err->what) - used,
                 " (and %d more such line%s)", n - 1, plural(n - 1));
    }
    if (n != 0)
        return -1;
    run->end = s->n_shards; /* they are counted now */
    run->counted = s->n_imgs;
    /* metadata before zeros: see run_stage() */
    str_addf(&path, "%s/metadata.json", outdir_path(run->dir));
    rc = saev_json(s, &json, err);
    if (rc == 0)
        rc = out_put(path.s, OUT_RUN, json.s, json.n, err);
    str_free(&path);
    str_free(&json);
    if (rc < 0 || ids_store(run, err) < 0 ||
        (run->cmd->pad && pad(run, extra, err) < 0) ||
        (run->cmd->manifest && write_manifest(run, n_files, err) < 0))
        return -1;
    sweep(run, n_files, false);
    return 0;
}

int
publish(struct write_run *run, bool shared, struct err *err)
{
    struct outdir *dir = run->dir;
    int rc;

    if (saev_set_n_imgs(&run->saev, run->saev.n_imgs, err) < 0 ||
        run_name(run, err) < 0 || complete(run, err) < 0)
        return -1;
    /* who counts learns only now which dump it is */
    if (run->counts && !run->cmd->force && !run->cmd->if_missing &&
        access(run->path.s, F_OK) == 0)
        return out_exists(run->path.s, err);
    run->dir = NULL;
    rc = outdir_commit(dir, run->hash, run->cmd->force, err);
    if (rc != 0)
        return rc;
    sweep(run, 0, true);
    if (!shared)
        outdir_drop_part(run->cmd->parent, run->stage.s);
    return 0;
}

int
finish(struct write_run *run, struct err *err)
{
    int rc;

    if (run->counts)
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (--finish needs it)",
                       run->saev.name);
    if (!run_part_exists(run)) {
        err_set(err, EX_NOINPUT, "%s: no part of it has been written",
                run->path.s);
        return run->cmd->force || file_missing(run->path.s) ? -1 : 1;
    }
    rc = run_stage(run, true, err);
    if (rc != 0 || (rc = run_buffers(run, err)) < 0)
        return rc;
    return publish(run, true, err);
}
