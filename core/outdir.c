/* SPDX-License-Identifier: ISC */
#include "core/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/inuse.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/sig.h"
#include "core/tmpname.h"

struct outdir {
    char *parent, *name;
    char *stage;  /* its path until it is published */
    char *inside; /* the same with a '/' after it */
    int slot;     /* of out_remember(); -1: shared */
    bool shared;
    int fd; /* while it is open, no other directory has its number */
    struct stat st;
};

/* PARENT/NAME, or PARENT/.NAME.old; the caller frees it. */
static char *
child(const char *parent, const char *name)
{
    struct str s = { 0 };

    str_addf(&s, "%s/%s", parent, name);
    return s.s;
}

static char *
old_path(const char *parent, const char *name)
{
    struct str s = { 0 };

    str_addf(&s, "%s/.%s.old", parent, name);
    return s.s;
}

void
outdir_part_path(struct str *path, const char *parent, const char *name)
{
    str_addf(path, "%s/.%s.part", parent, name);
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
                   "a directory cannot be written to standard output (./- has "
                   "that name)");
}

int
outdir_make(const char *path, size_t *n_old, struct err *err)
{
    size_t n = strlen(path), n_there = 0;
    int rc = 0;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = 1; rc == 0 && i <= n; i++) {
        char *name;

        if (i < n && (path[i] != '/' || path[i - 1] == '/'))
            continue;
        name = xstrndup(path, i);
        /* those above are not looked at where they are there: rights */
        if (i < n && !file_missing(name))
            n_there = i;
        else if ((rc = make(name, err)) > 0)
            rc = dir_sync(name, err);
        else if (rc == 0)
            n_there = i;
        free(name);
    }
    if (n_old)
        *n_old = n_there;
    return rc;
}

void
outdir_unmake(const char *path, size_t n_old)
{
    char *at = xstrdup(path), *slash = at;

    while (slash && strlen(at) > n_old && (rmdir(at) == 0 || errno == ENOENT)) {
        slash = strrchr(at, '/');
        if (slash)
            *slash = '\0';
    }
    free(at);
}

/* ---- what killed runs left ---- */

static bool
is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static int
open_dir(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* 'old' is a directory that was replaced, and never needed again once the new
 * one's name is on the disk, as that of one's 'own' is.  It is removed by what
 * it is: another run may move to .NAME.old what has the name now, or back. */
static void
settle_old(const char *path, const char *old, const struct stat *own)
{
    int fd = open_dir(old);
    struct stat was, is;
    struct err err;

    if (fd >= 0 && fstat(fd, &was) == 0) {
        if (file_missing(path)) {
            if (rename(old, path) == 0)
                dir_sync(path, &err);
        } else if (own ? !is_same(&was, own)
                       : dir_sync(path, &err) == 0 && lstat(path, &is) == 0 &&
                             !is_same(&was, &is)) {
            out_remove_dir(fd, ".");
            rmdir(old);
        }
    }
    if (fd >= 0)
        close(fd);
}

static void
remove_stage(int at, const char *name)
{
    out_remove_dir(at, name);
}

void
outdir_sweep(const char *parent, const char *name)
{
    char *path = child(parent, name), *old = old_path(parent, name);

    settle_old(path, old, NULL);
    tmp_sweep(path, remove_stage);
    free(old);
    free(path);
}

void
outdir_drop_part(const char *parent, const char *name)
{
    char *path = child(parent, name), *own = tmp_name(path);
    struct str part = { 0 };

    outdir_part_path(&part, parent, name);
    /* Under its name another run could publish it half removed. */
    rename(part.s, own);
    out_remove_dir(AT_FDCWD, own);
    str_free(&part);
    free(own);
    free(path);
}

/* ---- from start to end ---- */

static void
free_dir(struct outdir *d)
{
    free(d->parent);
    free(d->name);
    if (d->fd >= 0)
        close(d->fd);
    out_forget(d->slot);
    free(d->inside);
    free(d->stage);
    free(d);
}

int
outdir_second(const char *path, struct err *err)
{
    return err_set(err, EX_TEMPFAIL, "%s: another run has just published it",
                   path);
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
    d->slot = d->fd = -1;
    rc = outdir_make(parent, NULL, err);
    outdir_sweep(parent, name);
    path = child(parent, name);
    if (shared) {
        outdir_part_path(&part, parent, name);
        d->stage = part.s;
    } else {
        d->stage = tmp_name(path);
    }
    free(path);
    d->inside = child(d->stage, "");
    if (!shared) {
        d->slot = out_remember(d->inside);
        if (rc == 0)
            out_remove_dir(AT_FDCWD, d->stage); /* by a dead process with
                                                      our PID */
    }
    if (rc == 0)
        rc = make(d->stage, err) < 0 ? -1 : 0;
    /* others may have made it, and been killed before they synced it */
    if (rc == 0 && shared)
        rc = dir_sync(d->stage, err);
    if (rc == 0)
        d->fd = open_dir(d->stage);
    if (rc == 0 && shared && d->fd < 0 && errno == ENOENT) {
        outdir_second(d->stage, err);
        rc = 1;
    } else if (rc == 0 && (d->fd < 0 || fstat(d->fd, &d->st) < 0)) {
        rc = err_sys(err, EX_CANTCREAT, "%s", d->stage);
    }
    if (rc != 0) {
        if (!shared)
            rmdir(d->stage);
        free_dir(d);
        return rc;
    }
    *dir = d;
    return 0;
}

const char *
outdir_path(const struct outdir *dir)
{
    return dir->stage;
}

bool
outdir_is_gone(const struct outdir *d)
{
    struct stat st;

    if (lstat(d->stage, &st) == 0)
        return !is_same(&st, &d->st);
    return errno == ENOENT || errno == ENOTDIR;
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

int
outdir_replaceable(const char *path, bool own, struct err *err)
{
    struct dirent *e;
    struct stat st;
    DIR *dir;
    int rc = 0;

    if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(err, EX_CANTCREAT, "%s: is not a directory", path);
    dir = opendir(path);
    while (dir && rc == 0 && (e = readdir(dir)))
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            ;
        else if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = errno == ENOENT ? 0 : err_sys(err, EX_CANTCREAT, "%s", path);
        else if (S_ISDIR(st.st_mode))
            rc = err_set(err, EX_CANTCREAT,
                         "%s: has the directory %s in it, and is not replaced",
                         path, e->d_name);
        else if (!own && fstatat(dirfd(dir), e->d_name, &st, 0) == 0 &&
                 inuse_was_read(&st))
            rc = err_set(err, TU_USAGE,
                         "%s: is replaced, but %s in it is an input of this "
                         "command",
                         path, e->d_name);
    if (dir)
        closedir(dir);
    return rc == 0 && name_is_fixed(path) ? not_replaced(path, err) : rc;
}

/* The rename that gives it its name; if it fails, what was moved away for it
 * comes back.  Where something has the name, another run was first, or,
 * starting between the two renames, has put back what was moved.  0, 1, or -1.
 */
static int
take_name(const struct outdir *d, const char *path, const char *old,
          bool replace, struct err *err)
{
    bool moved = false, is_gone, refused, is_there;
    struct stat st;
    int e;

    if (replace && !outdir_is_gone(d) && lstat(path, &st) == 0) {
        if (outdir_replaceable(path, true, err) < 0)
            return -1;
        settle_old(path, old, NULL);
        moved = rename(path, old) == 0;
        if (!moved && errno != ENOENT && errno != EEXIST && errno != ENOTEMPTY)
            return not_replaced(path, err);
    }
    is_gone = outdir_is_gone(d); /* what has that name now is another's */
    if (!is_gone && rename(d->stage, path) == 0)
        return 0;
    e = errno;
    refused = !is_gone && (e == EEXIST || e == ENOTEMPTY);
    if (!refused)
        settle_old(path, old, NULL);
    is_there = lstat(path, &st) == 0;
    /* file systems differ in how rename(2) refuses an existing one */
    if (refused ? is_there || errno == ENOENT
                : outdir_is_gone(d) || (is_there && !moved)) {
        outdir_second(path, err);
        return 1;
    }
    errno = e;
    if (is_there)
        return not_replaced(path, err);
    if (lstat(old, &st) == 0) /* nothing can be renamed now */
        return err_set(err, EX_CANTCREAT,
                       "%s: cannot be replaced, and what it was is now %s: %s",
                       path, old, strerror(e));
    errno = e;
    return err_sys(err, EX_CANTCREAT, "%s: cannot be created", path);
}

int
outdir_commit(struct outdir *d, const char *name, bool replace, struct err *err)
{
    /* no memory is asked for between two renames */
    char *path = child(d->parent, name), *old = old_path(d->parent, name);
    int rc = dir_sync(d->inside, err);
    sigset_t held;

    /* A signal comes before, or after what was replaced has gone. */
    sig_hold(&held);
    if (rc == 0)
        rc = take_name(d, path, old, replace, err);
    if (rc == 0)
        rc = dir_sync(path, err);
    if (rc == 0)
        settle_old(path, old, &d->st);
    sig_release(&held);
    free(old);
    free(path);
    if (rc != 0)
        outdir_abort(d);
    else
        free_dir(d);
    return rc;
}

int
outdir_keep(struct outdir *d, struct err *err)
{
    struct str part = { 0 };
    DIR *from;
    char *inside;
    struct dirent *e;
    int to = -1, rc = 0;

    if (d->shared) {
        free_dir(d);
        return 0;
    }
    outdir_part_path(&part, d->parent, d->name);
    inside = child(part.s, "");
    from = opendir(d->stage);
    if (make(part.s, err) < 0 || dir_sync(part.s, err) < 0)
        rc = -1;
    else
        to = open_dir(part.s);
    while (from && to >= 0 && rc == 0 && (errno = 0, e = readdir(from)))
        if (e->d_name[0] != '.' &&
            renameat(dirfd(from), e->d_name, to, e->d_name) < 0 &&
            (errno != ENOENT || faccessat(to, e->d_name, F_OK, 0) < 0))
            break; /* there, but ENOENT: NFS's answer was lost */
    if (rc == 0 && (!from || to < 0 || errno))
        rc = err_sys(err, EX_CANTCREAT, "%s: cannot be filled", part.s);
    if (rc == 0)
        rc = dir_sync(inside, err);
    if (to >= 0)
        close(to);
    if (from)
        closedir(from);
    free(inside);
    str_free(&part);
    outdir_abort(d);
    return rc;
}

void
outdir_abort(struct outdir *d)
{
    if (d && !d->shared)
        out_remove_dir(AT_FDCWD, d->stage);
    if (d)
        free_dir(d);
}

int
outdir_claim(const char *dir, const char *const *names, size_t n, bool resumed,
             struct err *err)
{
    int rc = inuse_claim(dir, false, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *path = child(dir, names[i]);

        /* the state has been read for its options */
        if (!resumed || strcmp(names[i], OUTDIR_STATE) != 0)
            rc = inuse_check(path, err);
        if (rc == 0)
            rc = inuse_claim(path, resumed, err);
        free(path);
    }
    return rc;
}

int
outdir_lock(const char *dir, const char *run, int *lock, size_t *n_old,
            struct err *err)
{
    struct stat st;

    if (outdir_make(dir, n_old, err) < 0)
        return -1;
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, EX_CANTCREAT, "%s: is not a directory", dir);
    if (access(dir, W_OK | X_OK) < 0)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be written", dir);
    /* two runs would overwrite each other's state; where there are no locks
     * (some network file systems) nothing prevents that */
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) < 0 &&
        errno == EWOULDBLOCK) {
        *n_old = SIZE_MAX; /* the other's now, whoever made it */
        return err_set(err, EX_CANTCREAT, "%s: another %s is running there",
                       dir, run);
    }
    return 0;
}

int
outdir_at_open(struct outdir_at *f, const char *path, int flags,
               struct err *err)
{
    size_t n = strlen(path);
    const char *slash;
    char *whole, *parent;
    int rc;

    if (outdir_check_name(path, err) < 0)
        return -1;
    while (n > 1 && path[n - 1] == '/')
        n--;
    whole = xstrndup(path, n);
    slash = strrchr(whole, '/');
    parent = slash ? xstrndup(whole, slash == whole ? 1 : slash - whole)
                   : xstrdup(".");
    *f = (struct outdir_at){ .name = xstrdup(slash ? slash + 1 : whole),
                             .flags = flags };
    if (!(flags & OUT_FORCE) && access(whole, F_OK) == 0)
        rc = out_exists(whole, err);
    else if ((rc = outdir_replaceable(whole, flags & OUT_OWN, err)) == 0)
        rc = outdir_open(&f->dir, parent, f->name, false, err);
    free(whole);
    free(parent);
    if (rc < 0)
        outdir_at_abort(f);
    return rc;
}

int
outdir_at_commit(struct outdir_at *f, struct err *err)
{
    int rc = outdir_commit(f->dir, f->name, f->flags & OUT_FORCE, err) ? -1 : 0;

    free(f->name);
    *f = (struct outdir_at){ 0 };
    return rc;
}

void
outdir_at_abort(struct outdir_at *f)
{
    if (f->dir)
        outdir_abort(f->dir);
    free(f->name);
    *f = (struct outdir_at){ 0 };
}
