/* SPDX-License-Identifier: ISC */
/* A run from its metadata to its last shard. */
#include "cmd/saev-write/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/format/saev_ids.h"
#include "core/format/saevdir.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tty.h"

#define META_MAX ((size_t)64 << 20)

/* ---- what the dump is ---- */

int
run_name(struct write_run *run, struct err *err)
{
    if (saev_hash(&run->saev, run->hash, err) < 0)
        return -1;
    str_clear(&run->path);
    if (run->cmd->parent)
        str_addf(&run->path, "%s/%s", run->cmd->parent, run->hash);
    return 0;
}

int
run_load(struct write_run *run, const struct write_cmd *cmd, struct err *err)
{
    const struct saev *s = &run->saev;
    char key[SAEV_HASH_MAX]; /* HASH, or what it would be without n_imgs */
    struct str text = { 0 };
    int rc = file_read_all(cmd->meta_path, META_MAX, &text, err);

    run->cmd = cmd;
    if (rc == 0)
        rc = saev_parse(&run->saev, text.n ? text.s : "", text.n,
                        strcmp(cmd->meta_path, "-") ? cmd->meta_path
                                                    : "standard input",
                        SAEV_INPUT, err);
    str_free(&text);
    if (rc < 0 || saev_hash(s, key, err) < 0)
        return -1;
    run->counts = !s->n_imgs_known;
    run->end = run->counted = SIZE_MAX;
    str_addf(&run->stage, "%s%s", key, run->counts ? ".counted" : "");
    if (run->counts && cmd->sharded)
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (--shard needs it)",
                       s->name);
    if (run->counts)
        return 0;
    run->end = s->n_shards;
    if (cmd->sharded) {
        run->begin = saev_part_begin(s, cmd->part, cmd->n_parts);
        run->end = saev_part_begin(s, cmd->part + 1, cmd->n_parts);
    }
    return run_name(run, err);
}

void
run_free(struct write_run *run)
{
    outdir_abort(run->dir);
    input_close(&run->in);
    saev_free(&run->saev);
    str_free(&run->path);
    str_free(&run->stage);
    free(run->sums);
    free(run->made);
    free(run->buf);
    free(run->old);
    *run = (struct write_run){ 0 };
}

/* ---- is it there already? ---- */

/* Is what has the dump's name the dump, with all its shards? */
static int
check_whole(const struct write_run *run, struct err *err)
{
    char hash[SAEV_HASH_MAX] = "";
    struct saevdir found;
    struct err why = { 0 };

    if (saevdir_open(&found, run->path.s, &why) == 0 &&
        saev_hash(&found.saev, hash, &why) == 0 && strcmp(hash, run->hash) != 0)
        err_set(&why, EX_DATAERR, "its metadata.json is another's");
    saevdir_close(&found);
    if (!why.status)
        return 0;
    if ((why.status != EX_DATAERR && why.status != EX_NOINPUT) ||
        why.error == EACCES) {
        *err = why; /* it could not be read */
        return -1;
    }
    return err_set(err, EX_CANTCREAT,
                   "%s: exists already, but is broken: %s (--force replaces "
                   "it)",
                   run->path.s, why.what);
}

int
run_exists(struct write_run *run, struct err *err)
{
    struct str ids = { 0 };

    outdir_sweep(run->cmd->parent, run->hash);
    if (run->cmd->force)
        return outdir_replaceable(run->path.s, false, err);
    if (file_missing(run->path.s))
        return 0;
    if (run->cmd->if_missing) {
        if (check_whole(run, err) < 0)
            return -1;
        str_addf(&ids, "%s/" SAEV_IDS, run->path.s);
        if (run->cmd->ids_path && file_missing(ids.s))
            err_warn("%s: is there without ids: --ids is left out (--force "
                     "writes it again, with them)",
                     run->path.s);
        str_free(&ids);
        return 1;
    }
    /* where that cannot be known, the files that are made next will tell */
    return access(run->path.s, F_OK) < 0 ? 0 : out_exists(run->path.s, err);
}

int
run_second(struct write_run *run, int rc, struct err *err)
{
    bool is_there = *run->hash && access(run->path.s, F_OK) == 0;

    /* who counts, or replaces, may have found it there; without 'dir' it may be
     * this run's own, not synced */
    if (rc < 0 &&
        (!run->dir || (!outdir_is_gone(run->dir) &&
                       (run->counts || run->cmd->force || !is_there))))
        return -1;
    if (!*run->hash) /* not counted to the end: nobody knows which dump it is */
        return run->dir ? outdir_second(outdir_path(run->dir), err) : -1;
    outdir_abort(run->dir);
    run->dir = NULL;
    /* if the first cannot be seen, there may be none, and a part is all, as it
     * is where what was replaced has been put back */
    if (is_there && !run->cmd->force)
        outdir_drop_part(run->cmd->parent, run->stage.s);
    if (run->cmd->if_missing)
        return check_whole(run, err);
    return outdir_second(run->path.s, err);
}

/* ---- the stage ---- */

int
run_stage(struct write_run *run, bool shared, struct err *err)
{
    struct str path = { 0 };
    struct saevdir dir;
    int rc =
        outdir_open(&run->dir, run->cmd->parent, run->stage.s, shared, err);

    if (rc != 0)
        return rc;
    /* A run that counted to the stream's end may have put zeros after the last
     * image: the shards from there on are not complete for this one. */
    str_addf(&path, "%s/metadata.json", outdir_path(run->dir));
    if (run->counts && !file_missing(path.s)) {
        rc = saevdir_meta(&dir, outdir_path(run->dir), err);
        if (rc == 0)
            run->counted = dir.saev.n_imgs;
        saevdir_close(&dir);
    }
    str_free(&path);
    return rc;
}

int
run_buffers(struct write_run *run, struct err *err)
{
    run->buf = mem_try(INPUT_FLOATS, sizeof(float), "the stream", err);
    run->old = mem_try(INPUT_FLOATS, sizeof(float), "the stream", err);
    return run->buf && run->old ? 0 : -1;
}

bool
run_part_exists(const struct write_run *run)
{
    struct str path = { 0 };
    bool missing;

    outdir_part_path(&path, run->cmd->parent, run->stage.s);
    missing = file_missing(path.s);
    str_free(&path);
    return !missing;
}

size_t
run_imgs_before(const struct write_run *run, size_t end)
{
    bool counting = run->end == SIZE_MAX;
    size_t n;

    if (end == SIZE_MAX && counting)
        return SIZE_MAX;
    if (!size_mul(end, run->saev.shard_imgs, &n) ||
        (!counting && n > run->saev.n_imgs))
        return run->saev.n_imgs;
    return n;
}

size_t
run_first_img(const struct write_run *run)
{
    return run->cmd->first_given ? run->cmd->first
                                 : run_imgs_before(run, run->begin);
}

/* How many shards of the run are complete, counted from its first on. */
static size_t
count_complete(const struct write_run *run)
{
    size_t shard = run->begin;

    while (shard < run->end && shard_exists(run, shard))
        shard++;
    return shard - run->begin;
}

int
run_images(struct write_run *run, size_t *first, size_t *n, struct err *err)
{
    const struct write_cmd *cmd = run->cmd;
    size_t done = run->begin, end;

    if (run->counts && !cmd->resume)
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (--images needs it, or "
                       "--resume)",
                       run->saev.name);
    if (cmd->parent && !run->counts && !cmd->force &&
        !file_missing(run->path.s)) {
        if (check_whole(run, err) < 0)
            return -1;
        done = run->end;
    } else if (cmd->parent && (cmd->sharded || cmd->resume) &&
               run_part_exists(run)) {
        if (run_stage(run, true, err) != 0)
            return -1;
        done += count_complete(run);
    }
    end = run_imgs_before(run, run->end);
    *first = run_imgs_before(run, done);
    *n = end == SIZE_MAX ? SIZE_MAX : end - *first;
    return 0;
}

/* Bytes of the dump that are in the stage: complete shards, and the blocks so
 * far of those that other tasks are writing, or were until they were killed:
 * who writes such a shard removes that file first. */
static size_t
bytes_staged(const struct write_run *run)
{
    DIR *d = opendir(outdir_path(run->dir));
    size_t total = 0, shard;
    struct dirent *e;
    struct stat st;

    while (d && (e = readdir(d))) {
        if (!saev_shard_of(e->d_name, &shard)) {
            if (strstr(e->d_name, ".tmp.") &&
                fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                total += (size_t)st.st_blocks * 512;
        } else if (shard < run->saev.n_shards && shard_exists(run, shard)) {
            total += saev_shard_nbytes(&run->saev, shard);
        }
    }
    if (d)
        closedir(d);
    return total;
}

/* Is there room for what will be written?  A part asks for the whole dump's:
 * with less, all tasks would begin and none could end. */
static int
check_space(const struct write_run *run, struct err *err)
{
    size_t need, room;
    int fd;

    if (run->end == SIZE_MAX)
        return 0;
    /* before the files are looked at, so that what others write meanwhile is
     * not counted against it */
    need = run->saev.n_imgs * run->saev.img_nbytes;
    fd = open(outdir_path(run->dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    room = fd_free(fd, need);
    if (fd >= 0)
        close(fd);
    if (need > room) /* seldom: each shard is looked at */
        need -= smaller(need, bytes_staged(run));
    if (need <= room)
        return 0;
    return err_set(err, EX_IOERR, "%s: no room for %zu bytes (%zu are free)",
                   run->cmd->parent, need, room);
}

/* ---- the stream ---- */

/* The stream from the shard of --first on, where those before it are complete,
 * to its end. */
static int
stream_shards(struct write_run *run, struct err *err)
{
    bool counting = run->end == SIZE_MAX;
    size_t first = run_first_img(run), s = run->saev.shard_imgs;
    size_t shard =
        first == run_imgs_before(run, run->end) ? run->end : first / s;
    struct str path = { 0 };
    int more = 1;

    for (size_t i = run->begin; i < shard; i++)
        if (!shard_exists(run, i))
            return err_set(err, TU_USAGE,
                           "--first: %zu leaves out images from %zu on, which "
                           "are not there yet",
                           first, i * s);
    run->n_kept = shard - run->begin;
    if (counting)
        run->saev.n_imgs = shard * s;
    for (; shard < run->end; shard++) {
        if (counting && (more = input_more(&run->in, err)) <= 0)
            break;
        if (!shard_exists(run, shard)) {
            if (shard_write(run, shard, err) < 0)
                return -1;
            continue;
        }
        if (counting)
            run->saev.n_imgs = (shard + 1) * s;
        if (shard_check(run, shard, err) < 0)
            return -1;
    }
    if (more >= 0 && !counting)
        more = input_more(&run->in, err);
    if (more < 0)
        return -1;
    if (!counting && more) {
        size_t n = run_imgs_before(run, run->end) - first;

        /* more than was promised: the shards made of it are wrong */
        for (size_t i = 0; i < run->n_made; i++) {
            shard_path(run, run->made[i], &path);
            unlink(path.s);
        }
        str_free(&path);
        return err_set(
            err, EX_DATAERR,
            "%s: continues after %llu bytes (%zu image%s, as %s)", run->in.name,
            (unsigned long long)run->in.n_taken, n, plural(n),
            run->saev.n_imgs_known ? "the metadata says" : "its header says");
    }
    if (!counting)
        return 0;
    /* No image at all is an error, as what should have written them has failed;
     * but a run before this one may have come to the end right here. */
    if (run->in.n_taken == 0 && run->counted != run->saev.n_imgs)
        return err_set(err, EX_DATAERR,
                       "%s: is empty (expected images, as %s has no n_imgs)",
                       run->in.name, run->saev.name);
    return 0;
}

/* Prints how to continue after a signal; what is complete of the shards is
 * kept. */
static int
keep_shards(struct write_run *run, struct err *err)
{
    const struct write_cmd *cmd = run->cmd;
    size_t n;
    char how[160];

    if (run->counts)
        run->end = SIZE_MAX; /* the next run counts again */
    n = run->dir ? count_complete(run) : 0;
    if (n == 0)
        return sig_stopped("no shard was complete, run it again", err);
    if (!cmd->sharded) {
        int kept = outdir_keep(run->dir, err);

        run->dir = NULL;
        if (kept < 0)
            return -1;
    }
    snprintf(how, sizeof(how),
             "%zu %s kept, run it again%s (--first %zu: the stream may start "
             "there)",
             n, n == 1 ? "shard is" : "shards are",
             cmd->sharded || cmd->resume ? "" : " with --resume",
             run_imgs_before(run, run->begin + n));
    return sig_stopped(how, err);
}

int
run_stream(struct write_run *run, struct err *err)
{
    const struct write_cmd *cmd = run->cmd;
    bool shared = cmd->sharded || cmd->resume;
    size_t first = run_first_img(run), s = run->saev.shard_imgs, n;
    size_t begin = run_imgs_before(run, run->begin);
    size_t last = run_imgs_before(run, run->end);
    int rc, header = 0;

    if (first < begin || first > last || (first != last && first % s != 0))
        return err_set(err, TU_USAGE,
                       "--first: %zu is not the first image of a shard here "
                       "(expected a multiple of %zu from %zu to %zu)",
                       first, s, begin, last);
    if (run_buffers(run, err) < 0)
        return -1;
    /* the header of a .npy has what the metadata may leave out */
    if (!cmd->raw && (header = input_header(&run->in, &run->saev, &n, err)) < 0)
        return -1;
    if (header && cmd->dtype_given && run->in.dtype != cmd->dtype)
        return err_set(err, TU_USAGE, "%s: is %s by its header, not --dtype %s",
                       run->in.name, dtype_table[run->in.dtype].name,
                       dtype_table[cmd->dtype].name);
    if (header && last != SIZE_MAX && n != last - first)
        return err_set(err, EX_DATAERR, "%s: has %zu image%s (expected %zu)",
                       run->in.name, n, plural(n), last - first);
    if (header && last == SIZE_MAX) {
        if (saev_set_n_imgs(&run->saev, n + first, err) < 0)
            return -1;
        run->end = run->saev.n_shards;
    }
    run->progress = (struct progress){ .what = "saev-write",
                                       .unit = "B",
                                       .quiet = cmd->quiet };
    rc = run_stage(run, shared, err);
    if (rc == 0 && (rc = check_space(run, err)) == 0) {
        if (run->end != SIZE_MAX)
            run->progress.total =
                (run_imgs_before(run, run->end) - first) *
                (run->saev.img_nbytes / (run->in.dtype == DT_F32 ? 1 : 2));
        progress_start(&run->progress);
        rc = stream_shards(run, err);
        run->tells = run->progress.dirty;
        progress_end(&run->progress);
    }
    if (rc == 0 && !cmd->sharded)
        rc = publish(run, shared, err);
    if (rc < 0 && err->status == EX_TEMPFAIL && run->dir)
        return keep_shards(run, err);
    return rc;
}
