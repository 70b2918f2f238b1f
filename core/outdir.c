#include "core/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/fd.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tmpname.h"

#define WAIT_MS   10
#define MAX_WAITS 1000 /* for whom removes a folder */
#define MAX_JOINS 100  /* of one that is removed again and again */

struct outdir {
    char *parent, *name;
    char *stage; /* the folder's path now */
    char *waste; /* the same with a '/' behind it, until it is published */
    int slot;    /* of out_remember() */
    bool shared;
    int lock;  /* a shared one, open: its lock says that we fill it; or -1 */
    dev_t dev; /* what it is, whatever its path */
    ino_t ino;
};

/* It may be what was replaced, by one who was killed before the new one's name
 * was on the disk: that comes first. */
static void
remove_waste(int at, const char *name)
{
    if (fd_sync(at) == 0)
        out_remove_folder(at, name);
}

bool
outdir_remove(const char *path)
{
    return out_remove_folder(AT_FDCWD, path) == 0;
}

/* PARENT/NAME; the caller frees it. */
static char *
child(const char *parent, const char *name)
{
    struct str s = { 0 };

    str_addf(&s, "%s/%s", parent, name);
    return s.s;
}

void
outdir_part_path(struct str *path, const char *parent, const char *name)
{
    str_addf(path, "%s/.%s.part", parent, name);
}

static void
free_dir(struct outdir *d)
{
    free(d->parent);
    free(d->name);
    if (d->lock >= 0) {
        /* Another may have published it between the kernel's finding of the
         * folder and its making of our file there. */
        tmp_sweep_own(d->lock);
        close(d->lock);
    }
    out_forget(d->slot);
    free(d->waste);
    free(d->stage);
    free(d);
}

/* 1, or 0 if it was there. */
static int
make(const char *path, struct err *err)
{
    struct stat st;
    int e;

    if (mkdir(path, 0777) == 0)
        return 1;
    e = errno;
    /* NFS may look at rights first: EACCES or EROFS for what is there */
    if (e == EEXIST || (stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return 0;
    errno = e;
    return err_sys(err, EX_CANTCREAT, "%s: cannot be created", path);
}

int
outdir_check_name(const char *path, struct err *err)
{
    if (strcmp(path, "-") != 0)
        return 0;
    return err_set(err, TU_USAGE,
                   "a folder cannot be written to standard output (./- has "
                   "that name)");
}

int
outdir_make(const char *path, struct err *err)
{
    size_t n = strlen(path);
    char *name;
    int rc;

    while (n > 1 && path[n - 1] == '/')
        n--;
    name = xstrndup(path, n);
    rc = make(name, err);
    if (rc > 0)
        rc = folder_sync(name, err);
    free(name);
    return rc;
}

static bool
is_it(const struct outdir *d, const struct stat *st)
{
    return st->st_ino == d->ino && st->st_dev == d->dev;
}

static bool
is_at(const struct outdir *d, const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && is_it(d, &st);
}

bool
outdir_there(const struct outdir *d)
{
    struct stat st;

    if (lstat(d->stage, &st) == 0)
        return is_it(d, &st);
    return errno != ENOENT && errno != ENOTDIR;
}

/* Waits for whom removes it, who is gone soon; a stopped run that will not fill
 * it need not.  Where there are no locks (some network file systems) nothing is
 * held. */
static bool
share(int fd, bool fills)
{
    struct timespec t = { .tv_nsec = WAIT_MS * 1000000 };

    for (int i = 0; flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
         i++) {
        if (sig_stop() && (!fills || i >= MAX_WAITS))
            return false;
        nanosleep(&t, NULL);
    }
    return true;
}

/* Makes or joins a folder: 1, or 0 if it was removed at that very moment. */
static int
join(struct outdir *d, bool fills, struct err *err)
{
    struct stat st;

    /* synced, too, if who made it was killed before he did */
    if (make(d->stage, err) < 0 || folder_sync(d->stage, err) < 0)
        return -1;
    d->lock = open(d->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->lock < 0 && errno == ENOENT)
        return 0;
    if (d->lock < 0 || fstat(d->lock, &st) < 0)
        return err_sys(err, EX_CANTCREAT, "%s", d->stage);
    d->dev = st.st_dev;
    d->ino = st.st_ino;
    if (!share(d->lock, fills) && fills)
        return err_set(err, EX_CANTCREAT, "%s: another run removes it",
                       d->stage);
    if (outdir_there(d))
        return 1;
    close(d->lock);
    d->lock = -1;
    return 0;
}

static int
make_shared(struct outdir *d, bool fills, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < MAX_JOINS; i++)
        rc = join(d, fills, err);
    if (rc == 0)
        return err_set(err, EX_CANTCREAT, "%s: is removed again and again",
                       d->stage);
    return rc < 0 ? -1 : 0;
}

static int
make_stage(struct outdir *d, struct err *err)
{
    struct stat st;

    if (d->shared)
        return make_shared(d, false, err);
    if (make(d->stage, err) < 0)
        return -1;
    if (stat(d->stage, &st) < 0) {
        err_sys(err, EX_CANTCREAT, "%s", d->stage);
        rmdir(d->stage);
        return -1;
    }
    d->dev = st.st_dev;
    d->ino = st.st_ino;
    return 0;
}

/* Does anyone write there, whatever the lock says, which some network file
 * systems do not keep?  Hardly ever has he no temporary. */
static bool
is_filled(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    bool yes = false;

    while (dir && !yes && (e = readdir(dir)))
        yes = tmp_is_live(dirfd(dir), e->d_name);
    if (dir)
        closedir(dir);
    return yes;
}

void
outdir_drop_part(const char *parent, const char *name)
{
    struct outdir d = { .lock = -1 };
    struct str part = { 0 };
    struct stat st;

    outdir_part_path(&part, parent, name);
    d.stage = part.s;
    d.lock = open(d.stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d.lock >= 0 && fstat(d.lock, &st) == 0 &&
        (flock(d.lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)) {
        d.dev = st.st_dev;
        d.ino = st.st_ino;
        if (is_at(&d, d.stage) && !is_filled(d.stage))
            outdir_remove(d.stage);
    }
    if (d.lock >= 0)
        close(d.lock);
    str_free(&part);
}

void
outdir_sweep(const char *parent, const char *name)
{
    char *path = child(parent, name);

    tmp_sweep(path, remove_waste);
    free(path);
}

int
outdir_open(struct outdir **dir, const char *parent, const char *name,
            bool shared, struct err *err)
{
    struct outdir *d = xcalloc(1, sizeof(*d));
    struct str part = { 0 };
    char *path;
    int rc;

    *dir = NULL;
    d->parent = xstrdup(parent);
    d->name = xstrdup(name);
    d->shared = shared;
    d->slot = d->lock = -1;
    rc = outdir_make(parent, err);
    outdir_sweep(parent, name);
    path = child(parent, name);
    if (shared) {
        outdir_part_path(&part, parent, name);
        d->stage = part.s;
    } else {
        d->stage = tmp_name(path);
        if (rc == 0 && (rc = folder_sync(d->stage, err)) == 0)
            outdir_remove(d->stage); /* a dead process had our PID */
        d->waste = child(d->stage, "");
        d->slot = out_remember(d->waste);
    }
    if (rc == 0)
        rc = make_stage(d, err);
    free(path);
    if (rc < 0)
        free_dir(d);
    else
        *dir = d;
    return rc;
}

const char *
outdir_path(const struct outdir *dir)
{
    return dir->stage;
}

/* Moves all files but hidden ones, which are not finished. */
static int
move_files(const char *from, const char *to, struct err *err)
{
    DIR *d = opendir(from);
    int at = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent *e;
    int rc = 0;

    while (d && at >= 0 && rc == 0 && (errno = 0, e = readdir(d)))
        if (e->d_name[0] != '.' &&
            renameat(dirfd(d), e->d_name, at, e->d_name) < 0 &&
            (errno != ENOENT || faccessat(at, e->d_name, F_OK, 0) < 0))
            rc = -1; /* there, but ENOENT: a lost answer, as in name_move() */
    if (!d || at < 0 || rc < 0 || errno)
        rc = err_sys(err, EX_CANTCREAT, "%s: cannot be filled", to);
    if (at >= 0)
        close(at);
    if (d)
        closedir(d);
    return rc;
}

int
outdir_keep(struct outdir *d, struct err *err)
{
    struct outdir part = { .lock = -1 };
    struct str path = { 0 };
    char *inside;
    int rc;

    if (d->shared) {
        free_dir(d);
        return 0;
    }
    outdir_part_path(&path, d->parent, d->name);
    part.stage = path.s;
    inside = child(path.s, "");
    rc = make_shared(&part, true, err);
    if (rc == 0)
        rc = move_files(d->stage, path.s, err);
    if (rc == 0)
        rc = folder_sync(inside, err);
    if (part.lock >= 0)
        close(part.lock);
    free(inside);
    str_free(&path);
    outdir_abort(d);
    return rc;
}

void
outdir_abort(struct outdir *d)
{
    struct stat st;

    if (!d)
        return;
    /* not what it was to replace, where that could not be put back */
    if (!d->shared && (lstat(d->stage, &st) < 0 || is_it(d, &st)))
        outdir_remove(d->stage);
    free_dir(d);
}

bool
outdir_remove_empty(struct outdir *d)
{
    bool alone = flock(d->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    bool gone = alone && outdir_there(d) && rmdir(d->stage) == 0;

    if (!gone)
        share(d->lock, false); /* as before */
    return gone;
}

int
outdir_was_quicker(const char *path, struct err *err)
{
    return err_set(err, EX_CANTCREAT, "%s: another run has just published it",
                   path);
}

/*
 * Takes what was replaced and 'waste' now is aside, to be removed: under
 * 'name', its own, so that nobody joins it as a shared folder.  NULL: there is
 * nothing to remove, as where another has just put the new one there: it goes
 * back to him.
 */
static const char *
take_aside(const struct outdir *d, const char *waste, const char *name)
{
    if (name_move(waste, name) < 0)
        return is_at(d, waste) ? NULL : waste;
    if (!is_at(d, name))
        return name;
    name_move(name, waste);
    return NULL;
}

static int
not_replaced(const char *path, struct err *err)
{
    if (errno == EXDEV)
        return err_set(err, EX_CANTCREAT,
                       "%s: cannot be replaced in a lower layer of an overlay "
                       "file system: remove it first",
                       path);
    return err_sys(err, EX_CANTCREAT, "%s: cannot be replaced", path);
}

/* In one step, where the file system can (not NFS, not GPFS).  The stage is
 * then what 'path' was: 1. */
static int
swap(const struct outdir *d, const char *path, struct err *err)
{
    if (renameat2(AT_FDCWD, d->stage, AT_FDCWD, path, RENAME_EXCHANGE) < 0)
        return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP
                   ? 0
                   : not_replaced(path, err);
    if (!is_at(d, d->stage))
        return 1;
    /* it was at 'path': another was quicker */
    renameat2(AT_FDCWD, d->stage, AT_FDCWD, path, RENAME_EXCHANGE);
    return outdir_was_quicker(path, err);
}

/* Where even that fails, nothing is lost, if one is told where it is. */
static void
put_back(const char *old, const char *path, struct err *err)
{
    if (name_move(old, path) < 0)
        err_set(err, EX_CANTCREAT,
                "%s: cannot be replaced, and what it was is now %s: %s", path,
                old, strerror(errno));
}

/* Elsewhere there is a moment in which that one is 'old', and nothing 'path'.
 */
static int
swap_by_steps(const struct outdir *d, const char *path, const char *old,
              struct err *err)
{
    if (folder_sync(path, err) < 0) /* see remove_waste() */
        return -1;
    outdir_remove(old);
    if (name_move(path, old) < 0)
        return not_replaced(path, err);
    if (name_move(d->stage, path) == 0)
        return 0;
    not_replaced(path, err);
    put_back(old, path, err);
    return -1;
}

/* The new one's name cannot be made to last.  Where not even that can be
 * undone, the old one is kept as one who dies keeps it. */
static void
swap_back(const struct outdir *d, const char *path, const char *waste,
          const char *old, struct err *err)
{
    if (waste != d->stage) {
        if (name_move(path, d->stage) == 0)
            put_back(waste, path, err);
    } else if (renameat2(AT_FDCWD, d->stage, AT_FDCWD, path, RENAME_EXCHANGE) <
               0) {
        outdir_remove(old);
        name_move(d->stage, old);
    }
}

/* Puts the stage where another folder is, which goes once the new one is sure
 * to stay: 'aside', to be removed, under 'name' if that can be. */
static int
exchange(const struct outdir *d, const char *path, const char *old,
         const char *name, const char **aside, struct err *err)
{
    const char *waste = d->stage;
    int rc = swap(d, path, err);

    if (rc == 0) {
        waste = old;
        rc = swap_by_steps(d, path, old, err);
    }
    if (rc < 0)
        return -1;
    if (folder_sync(path, err) < 0) {
        swap_back(d, path, waste, old, err);
        return -1;
    }
    *aside = take_aside(d, waste, name);
    return 0;
}

/* The same, whole even where a second INT comes, or memory lacks.  What is
 * there is locked: for a moment it has a shared folder's name, and nobody is to
 * join or drop it. */
static int
replace_folder(struct outdir *d, const char *path, const char *old,
               struct err *err)
{
    int lock = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char *name = tmp_name(path), *waste = child(name, "/");
    const char *aside = NULL;
    sigset_t signals;
    int rc;

    if (lock >= 0)
        flock(lock, LOCK_EX | LOCK_NB);
    sig_hold(&signals);
    rc = exchange(d, path, old, name, &aside, err);
    if (aside) {
        out_forget(d->slot);
        d->slot = aside == name ? out_remember(waste) : -1;
    }
    sig_release(&signals);
    if (lock >= 0)
        close(lock);
    if (aside) {
        outdir_remove(aside);
        out_forget(d->slot);
        d->slot = -1;
    }
    free(waste);
    free(name);
    return rc;
}

int
outdir_replaceable(const char *path, struct err *err)
{
    struct dirent *e;
    struct stat st;
    DIR *dir;
    int rc = 0;

    if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(err, EX_CANTCREAT, "%s: is not a folder", path);
    dir = opendir(path);
    while (dir && rc == 0 && (e = readdir(dir)))
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            ;
        else if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = errno == ENOENT ? 0 : err_sys(err, EX_CANTCREAT, "%s", path);
        else if (S_ISDIR(st.st_mode))
            rc = err_set(err, EX_CANTCREAT,
                         "%s: has the folder %s in it, and is not replaced",
                         path, e->d_name);
    if (dir)
        closedir(dir);
    return rc == 0 && name_is_fixed(path) ? not_replaced(path, err) : rc;
}

/* A rename that failed.  By what, where a folder is in the way, each file
 * system has its own mind about. */
static int
publish_over(struct outdir *d, const char *path, const char *old, bool replace,
             struct err *err)
{
    struct stat st;
    int e = errno;

    if (lstat(path, &st) < 0) {
        errno = e;
        return err_sys(err, EX_CANTCREAT, "%s: cannot be created", path);
    }
    if (!replace)
        return out_exists(path, err);
    if (outdir_replaceable(path, err) < 0)
        return -1;
    return replace_folder(d, path, old, err);
}

/* A rename over it may be done in part, and said to be done, where a file
 * system is a union of others (mergerfs). */
static bool
is_folder(const char *path)
{
    struct stat st;
    int e = errno;
    bool yes = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);

    errno = e;
    return yes;
}

static int
publish(struct outdir *d, const char *path, bool replace, struct err *err)
{
    struct str old = { 0 };
    int rc;

    if (!outdir_there(d))
        return outdir_was_quicker(path, err);
    str_addf(&old, "%s/.%s.old", d->parent, strrchr(path, '/') + 1);
    errno = EEXIST;
    if ((replace && is_folder(path)) || name_move(d->stage, path) < 0) {
        rc = publish_over(d, path, old.s, replace, err);
    } else {
        rc = folder_sync(path, err);
        if (rc == 0)
            outdir_remove(old.s); /* of one who died replacing it */
    }
    str_free(&old);
    return rc;
}

int
outdir_commit(struct outdir *d, const char *name, bool replace, struct err *err)
{
    char *path = child(d->parent, name);
    char *inside = child(d->stage, "");
    int rc = folder_sync(inside, err);

    if (rc == 0)
        rc = publish(d, path, replace, err);
    free(path);
    free(inside);
    if (rc < 0)
        outdir_abort(d);
    else
        free_dir(d);
    return rc;
}
