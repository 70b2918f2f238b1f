#include "core/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/str.h"
#include "core/tmpname.h"

struct outdir {
    char *parent, *name;
    char *stage; /* the folder's path now */
    bool shared;
};

/* Empties and removes the flat folder 'name' of the folder 'at'. */
static bool
remove_at(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(fd, e->d_name, 0);
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return unlinkat(at, name, AT_REMOVEDIR) == 0;
}

static void
remove_waste(int at, const char *name)
{
    remove_at(at, name);
}

bool
outdir_remove(const char *path)
{
    return remove_at(AT_FDCWD, path);
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
    free(d->stage);
    free(d);
}

static int
make(struct outdir *d, struct err *err)
{
    if (mkdir(d->stage, 0777) == 0 || (d->shared && errno == EEXIST))
        return 0;
    return err_sys(err, EX_CANTCREAT, "%s: cannot be created", d->stage);
}

int
outdir_open(struct outdir **dir, const char *parent, const char *name,
            bool shared, struct err *err)
{
    struct outdir *d = xcalloc(1, sizeof(*d));
    char *path = child(parent, name);
    struct str part = { 0 };
    int rc = 0;

    *dir = NULL;
    d->parent = xstrdup(parent);
    d->name = xstrdup(name);
    d->shared = shared;
    if (mkdir(parent, 0777) < 0 && errno != EEXIST)
        rc = err_sys(err, EX_CANTCREAT, "%s: cannot be created", parent);
    if (rc == 0 && shared) {
        outdir_part_path(&part, parent, name);
        d->stage = part.s;
    } else if (rc == 0) {
        tmp_sweep(path, remove_waste);
        d->stage = tmp_name(path);
        remove_at(AT_FDCWD, d->stage); /* a dead process had our PID */
    }
    if (rc == 0)
        rc = make(d, err);
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

/* Files whose name begins with 'prefix'. */
static size_t
count_files(const char *path, const char *prefix)
{
    DIR *d = opendir(path);
    struct dirent *e;
    size_t n = 0;

    while (d && (e = readdir(d)))
        n += !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return n;
}

int
outdir_keep(struct outdir *d, const char *prefix, struct err *err)
{
    struct str part = { 0 };
    int rc = 1;

    if (d->shared) {
        free_dir(d);
        return 1;
    }
    outdir_part_path(&part, d->parent, d->name);
    if (count_files(part.s, prefix) >= count_files(d->stage, prefix))
        rc = 0;
    else
        outdir_remove(part.s);
    if (rc == 1 && rename(d->stage, part.s) < 0)
        rc = err_sys(err, EX_CANTCREAT, "%s: cannot be created", part.s);
    if (rc == 1 && folder_sync(part.s, err) < 0)
        rc = -1;
    str_free(&part);
    outdir_abort(d);
    return rc;
}

void
outdir_abort(struct outdir *d)
{
    if (!d)
        return;
    if (!d->shared)
        outdir_remove(d->stage);
    free_dir(d);
}

/*
 * Puts the stage where another folder is: exchanged in one step where the file
 * system can (not NFS, not GPFS), else with a moment in which it is
 * PARENT/.NAME.old.
 */
static int
exchange(const struct outdir *d, const char *path)
{
    struct str old = { 0 };
    int rc;

    if (renameat2(AT_FDCWD, d->stage, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        outdir_remove(d->stage);
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    str_addf(&old, "%s/.%s.old", d->parent, strrchr(path, '/') + 1);
    outdir_remove(old.s);
    rc = rename(path, old.s);
    if (rc == 0 && rename(d->stage, path) < 0) {
        rc = -1;
        rename(old.s, path);
    } else if (rc == 0) {
        outdir_remove(old.s);
    }
    str_free(&old);
    return rc;
}

static int
publish(const struct outdir *d, const char *path, bool replace, struct err *err)
{
    if (rename(d->stage, path) == 0)
        return folder_sync(path, err);
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be created", path);
    if (!replace || errno == ENOTDIR)
        return err_set(err, EX_CANTCREAT,
                       "%s: exists already (--force replaces it)", path);
    if (exchange(d, path) < 0)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be replaced", path);
    return folder_sync(path, err);
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
