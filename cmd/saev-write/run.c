#include "cmd/saev-write/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/saev-write/publish.h"
#include "cmd/saev-write/shard.h"
#include "core/dtype.h"
#include "core/fd.h"
#include "core/format/saevdir.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"

#define META_MAX ((size_t)64 << 20)

/* HASH and PARENT/HASH, once the number of images is known. */
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

/* What the folder of unfinished shards is called: by HASH, or by what HASH
 * would be without images, as long as they are counted. */
static int
stage_name(struct write_run *run, struct err *err)
{
    char key[SAEV_HASH_MAX];

    if (saev_hash(&run->saev, key, err) < 0)
        return -1;
    str_addf(&run->stage, "%s%s", key,
             run->saev.n_imgs_known ? "" : ".counted");
    return 0;
}

int
run_load(struct write_run *run, const struct write_cmd *cmd, struct err *err)
{
    struct str text = { 0 };
    struct stat st;
    int rc = file_read_all(cmd->meta_path, META_MAX, &text, err);

    run->cmd = cmd;
    if (rc == 0)
        rc = saev_parse(&run->saev, text.n ? text.s : "", text.n,
                        strcmp(cmd->meta_path, "-") ? cmd->meta_path
                                                    : "standard input",
                        SAEV_INPUT, err);
    str_free(&text);
    run->end = run->counted = SIZE_MAX;
    if (rc == 0)
        rc = stage_name(run, err);
    run->old_known = rc == 0 && run->saev.n_imgs_known;
    if (run->old_known)
        rc = run_name(run, err);
    if (rc == 0 && stat(run->path.s ? run->path.s : "", &st) == 0) {
        run->old_dev = st.st_dev;
        run->old_ino = st.st_ino;
    }
    return rc;
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

int
run_part(struct write_run *run, struct err *err)
{
    const struct write_cmd *cmd = run->cmd;
    const struct saev *s = &run->saev;

    if (!s->n_imgs_known) {
        if (!cmd->sharded)
            return 0;
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (--shard needs it)",
                       s->name);
    }
    run->end = s->n_shards;
    if (cmd->sharded) {
        run->begin = saev_part_begin(s, cmd->part, cmd->n_parts);
        run->end = saev_part_begin(s, cmd->part + 1, cmd->n_parts);
    }
    return 0;
}

/* A counted run that came as far as its metadata may have put zeros behind its
 * last image: shards from there on are not complete for another one. */
static int
load_counted(struct write_run *run, struct err *err)
{
    struct saevdir dir;
    struct str path = { 0 };
    int rc = 0;

    str_addf(&path, "%s/metadata.json", outdir_path(run->dir));
    if (!run->saev.n_imgs_known && !file_missing(path.s)) {
        rc = saevdir_meta(&dir, outdir_path(run->dir), err);
        if (rc == 0)
            run->counted = dir.saev.n_imgs;
        saevdir_close(&dir);
    }
    str_free(&path);
    return rc;
}

int
run_stage(struct write_run *run, bool shared, struct err *err)
{
    if (outdir_open(&run->dir, run->cmd->parent, run->stage.s, shared, err) < 0)
        return -1;
    return load_counted(run, err);
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

void
run_drop_part(const struct write_run *run)
{
    outdir_drop_part(run->cmd->parent, run->stage.s);
}

/* Is what is there the dump, with all its shards? */
static int
check_there(const struct write_run *run, struct err *err)
{
    char hash[SAEV_HASH_MAX] = "";
    struct saevdir there;
    struct err why = { 0 };

    if (saevdir_open(&there, run->path.s, &why) == 0 &&
        saev_hash(&there.saev, hash, &why) == 0 && strcmp(hash, run->hash) != 0)
        err_set(&why, EX_DATAERR, "its metadata.json is another's");
    saevdir_close(&there);
    if (!why.status)
        return 0;
    if ((why.status != EX_DATAERR && why.status != EX_NOINPUT) ||
        why.error == EACCES) {
        /* it was not read to the end */
        *err = why;
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
    if (run->cmd->force)
        return outdir_replaceable(run->path.s, err);
    if (file_missing(run->path.s))
        return 0;
    if (!run->cmd->if_missing && access(run->path.s, F_OK) < 0)
        return 0; /* nobody can say that it exists: what is made next tells */
    outdir_sweep(run->cmd->parent, run->stage.s);
    if (!run->cmd->if_missing)
        return out_exists(run->path.s, err);
    return check_there(run, err) < 0 ? -1 : 1;
}

/* The folder that was made anew when the other had taken its own: empty, or
 * with the shards of a whole stream, as that one's.  Parts are others' work. */
static bool
is_waste(const struct write_run *run, const struct err *err)
{
    struct stat st;

    if (stat(run->path.s, &st) < 0 ||
        (st.st_ino == run->old_ino && st.st_dev == run->old_dev))
        return false; /* no dump that was not there when the run began */
    if (run->all_there && run->old_known && !run->cmd->force &&
        err->status == EX_CANTCREAT)
        return true;
    return run->dir && outdir_remove_empty(run->dir);
}

static void
leave_part(struct write_run *run)
{
    outdir_abort(run->dir);
    run->dir = NULL;
    run_drop_part(run);
}

int
run_late(struct write_run *run, bool shared, struct err *err)
{
    bool late = run->dir && !outdir_there(run->dir);
    struct err why;
    int there;

    if (err->status == EX_TEMPFAIL)
        return -1;
    if (!*run->hash) /* not counted to the end: nobody knows which dump it is */
        return late ? outdir_was_quicker(outdir_path(run->dir), err) : -1;
    if (err->status == EX_IOERR && !run->dir)
        return -1; /* what is there may be ours, and not synced */
    if (shared && is_waste(run, err)) {
        leave_part(run);
        late = true;
    }
    there = run->cmd->if_missing ? run_exists(run, &why) : 0;
    if (there > 0 && !late)
        leave_part(run);
    if (there > 0)
        return 0;
    if (there < 0 && why.status != EX_CANTCREAT) { /* it was not read */
        *err = why;
        return -1;
    }
    return late ? outdir_was_quicker(run->path.s, err) : -1;
}

/* Images before shard 'end'; SIZE_MAX is where a stream ends that is counted.
 */
static size_t
imgs_before(const struct write_run *run, size_t end)
{
    bool counted = run->end == SIZE_MAX;
    size_t n;

    if (end == SIZE_MAX && counted)
        return SIZE_MAX;
    if (!size_mul(end, run->saev.shard_imgs, &n) ||
        (!counted && n > run->saev.n_imgs))
        return run->saev.n_imgs;
    return n;
}

/* The image the stream begins with. */
static size_t
first_img(const struct write_run *run)
{
    return run->cmd->first_given ? run->cmd->first
                                 : imgs_before(run, run->begin);
}

/* How many shards of the run are complete, counted from its first on. */
static size_t
count_there(const struct write_run *run)
{
    size_t shard = run->begin;

    while (shard < run->end && shard_there(run, shard))
        shard++;
    return shard - run->begin;
}

int
run_images(struct write_run *run, size_t *first, size_t *n, struct err *err)
{
    size_t done, end;

    if (!run->saev.n_imgs_known && !run->cmd->resume)
        return err_set(err, EX_DATAERR,
                       "%s: the key n_imgs is missing (--images needs it, or "
                       "--resume)",
                       run->saev.name);
    if (run_part(run, err) < 0)
        return -1;
    done = run->begin;
    if (run->cmd->parent && run->saev.n_imgs_known && !run->cmd->force &&
        !file_missing(run->path.s)) {
        if (check_there(run, err) < 0)
            return -1;
        done = run->end;
    } else if (run->cmd->parent && (run->cmd->sharded || run->cmd->resume) &&
               run_part_exists(run)) {
        if (run_stage(run, true, err) < 0)
            return -1;
        done += count_there(run);
    }
    end = imgs_before(run, run->end);
    *first = imgs_before(run, done);
    *n = end == SIZE_MAX ? SIZE_MAX : end - *first;
    return 0;
}

/* --first must name a shard's first image. */
static int
check_first(const struct write_run *run, struct err *err)
{
    size_t first = first_img(run), s = run->saev.shard_imgs;
    size_t begin = imgs_before(run, run->begin);
    size_t last = imgs_before(run, run->end);

    if (first >= begin && (first == last || (first < last && first % s == 0)))
        return 0;
    return err_set(err, TU_USAGE,
                   "--first: %zu is not the first image of a shard here "
                   "(expected a multiple of %zu from %zu to %zu)",
                   first, s, begin, last);
}

/* The shard where the stream begins: those before it must be complete. */
static int
skip_shards(struct write_run *run, size_t *shard, struct err *err)
{
    size_t first = first_img(run), s = run->saev.shard_imgs;

    *shard = first == imgs_before(run, run->end) ? run->end : first / s;
    for (size_t i = run->begin; i < *shard; i++)
        if (!shard_there(run, i))
            return err_set(err, TU_USAGE,
                           "--first: %zu leaves out images from %zu on, which "
                           "are not there yet",
                           first, i * s);
    run->n_kept = *shard - run->begin;
    return 0;
}

/* Bytes that a file in the folder has of the dump: all of a shard that is
 * complete, and the blocks so far of one that another task is writing, or was
 * until it was killed: who writes that shard removes it first. */
static size_t
nbytes_of(const struct write_run *run, int dir_fd, const char *name)
{
    struct stat st;
    size_t shard;

    if (saev_shard_of(name, &shard))
        return shard < run->saev.n_shards && shard_there(run, shard)
                   ? saev_shard_nbytes(&run->saev, shard)
                   : 0;
    if (!strstr(name, ".tmp.") ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return (size_t)st.st_blocks * 512;
}

/* Bytes of the whole dump that are still to be written, by this run or by the
 * tasks beside it, and the room for them, after a wait for 'wanted'; true if
 * there is that, or where the file system does not say.  The room comes first:
 * what others write meanwhile then lies in the folder, and is not asked for
 * twice. */
static bool
has_room(const struct write_run *run, size_t wanted, size_t *need, size_t *room)
{
    int fd = open(outdir_path(run->dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t there = 0;
    struct dirent *e;
    DIR *d;

    *room = fd_free(fd, wanted);
    if (fd >= 0)
        close(fd);
    *need = run->saev.n_imgs * run->saev.img_nbytes;
    if (*need <= *room) /* mostly: no need to look at each shard */
        return true;
    d = opendir(outdir_path(run->dir));
    while (d && (e = readdir(d)))
        there += nbytes_of(run, dirfd(d), e->d_name);
    if (d)
        closedir(d);
    *need = *need > there ? *need - there : 0;
    return *need <= *room;
}

/* Is there room for what will be written?  A part asks for the whole dump's:
 * with less, all tasks would begin and none could end.  A file that is getting
 * its name may be missed once. */
static int
check_space(const struct write_run *run, struct err *err)
{
    size_t need, room;

    if (run->end == SIZE_MAX || has_room(run, 0, &need, &room) ||
        has_room(run, need, &need, &room))
        return 0;
    return err_set(err, EX_IOERR, "%s: no room for %zu bytes (%zu are free)",
                   run->cmd->parent, need, room);
}

static int
one_shard(struct write_run *run, size_t shard, struct err *err)
{
    if (!shard_there(run, shard)) /* never, in a folder of our own */
        return shard_write(run, shard, err);
    if (run->end == SIZE_MAX)
        run->saev.n_imgs = (shard + 1) * run->saev.shard_imgs;
    return shard_check(run, shard, err);
}

/* More than n_imgs promised: then the shards made of it are wrong, too. */
static int
too_long(struct write_run *run, struct err *err)
{
    struct str path = { 0 };

    for (size_t i = 0; i < run->n_made; i++) {
        shard_path(run, run->made[i], &path);
        unlink(path.s);
    }
    str_free(&path);
    return err_set(
        err, EX_DATAERR, "%s: goes on after %llu bytes (%zu images, as %s)",
        run->in.name, (unsigned long long)run->in.n_taken,
        imgs_before(run, run->end) - first_img(run),
        run->saev.n_imgs_known ? "the metadata says" : "its header says");
}

/* Did a run before this one come to the stream's end there, and could not
 * publish what it had? */
static bool
had_ended(const struct write_run *run)
{
    struct saevdir dir;
    struct err err;
    bool yes;

    if (saevdir_meta(&dir, outdir_path(run->dir), &err) < 0)
        return false;
    yes = dir.saev.n_imgs == run->saev.n_imgs;
    saevdir_close(&dir);
    return yes;
}

static int
stream_shards(struct write_run *run, struct err *err)
{
    size_t first;
    int more = 1;

    if (skip_shards(run, &first, err) < 0)
        return -1;
    if (run->end == SIZE_MAX)
        run->saev.n_imgs = first * run->saev.shard_imgs;
    for (size_t shard = first; shard < run->end; shard++) {
        if (run->end == SIZE_MAX && (more = input_more(&run->in, err)) <= 0)
            break;
        if (one_shard(run, shard, err) < 0)
            return -1;
    }
    if (more < 0)
        return -1;
    if (run->end == SIZE_MAX) {
        if (run->in.n_taken > 0 || had_ended(run))
            return 0;
        /* nobody makes a dump of nothing: what should have filled it failed */
        return err_set(err, EX_DATAERR,
                       "%s: is empty (expected images, as %s has no n_imgs)",
                       run->in.name, run->saev.name);
    }
    more = input_more(&run->in, err);
    return more < 0 ? -1 : more ? too_long(run, err) : 0;
}

/* Takes the header of a .npy, which may know what the metadata leaves out. */
static int
take_header(struct write_run *run, struct err *err)
{
    size_t n, want = SIZE_MAX;
    int known = run->cmd->raw ? 0 : input_header(&run->in, &run->saev, &n, err);

    if (known <= 0)
        return known;
    if (run->cmd->dtype_given && run->in.dtype != run->cmd->dtype)
        return err_set(err, TU_USAGE, "%s: is %s by its header, not --dtype %s",
                       run->in.name, dtype_table[run->in.dtype].name,
                       dtype_table[run->cmd->dtype].name);
    if (run->end != SIZE_MAX)
        want = imgs_before(run, run->end) - first_img(run);
    if (want != SIZE_MAX && n != want)
        return err_set(err, EX_DATAERR, "%s: has %zu images (expected %zu)",
                       run->in.name, n, want);
    if (want != SIZE_MAX)
        return 0;
    if (saev_set_n_imgs(&run->saev, n + first_img(run), err) < 0)
        return -1;
    run->end = run->saev.n_shards;
    return 0;
}

int
run_buffers(struct write_run *run, struct err *err)
{
    run->buf = mem_try(INPUT_FLOATS, sizeof(float), "the stream", err);
    run->old = mem_try(INPUT_FLOATS, sizeof(float), "the stream", err);
    return run->buf && run->old ? 0 : -1;
}

/* What to do to go on, for one who was stopped. */
static int
say_stopped(struct write_run *run, struct err *err)
{
    const struct write_cmd *cmd = run->cmd;
    size_t n;
    char how[160];

    if (!run->saev.n_imgs_known)
        run->end = SIZE_MAX; /* the next run counts again */
    n = run->dir ? count_there(run) : 0;
    if (n == 0)
        return sig_stopped("no shard was complete, run it again", err);
    if (!cmd->sharded) {
        int kept = outdir_keep(run->dir, err);

        run->dir = NULL;
        if (kept < 0)
            return -1;
    }
    snprintf(how, sizeof(how),
             "%zu shards are kept, run it again%s (--first %zu: the stream may "
             "start there)",
             n, cmd->sharded || cmd->resume ? "" : " with --resume",
             imgs_before(run, run->begin + n));
    return sig_stopped(how, err);
}

int
run_stream(struct write_run *run, struct err *err)
{
    bool shared = run->cmd->sharded || run->cmd->resume;
    int rc = -1;

    run->progress = (struct progress){ .what = "saev-write",
                                       .unit = "B",
                                       .quiet = run->cmd->quiet };
    if (check_first(run, err) == 0 && run_buffers(run, err) == 0 &&
        take_header(run, err) == 0 && run_stage(run, shared, err) == 0 &&
        check_space(run, err) == 0) {
        if (run->end != SIZE_MAX)
            run->progress.total =
                (imgs_before(run, run->end) - first_img(run)) *
                (run->saev.img_nbytes / (run->in.dtype == DT_F32 ? 1 : 2));
        progress_start(&run->progress);
        rc = stream_shards(run, err);
        progress_end(&run->progress);
    }
    if (rc == 0 && !run->cmd->sharded) {
        run->all_there = true;
        rc = publish(run, shared, err);
    }
    if (rc < 0 && err->status == EX_TEMPFAIL)
        return say_stopped(run, err);
    return rc < 0 ? run_late(run, shared, err) : 0;
}
