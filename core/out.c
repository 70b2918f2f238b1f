/* SPDX-License-Identifier: ISC */
#include "core/out.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/fd.h"
#include "core/inuse.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tmpname.h"
#include "core/tsv.h"

#define PIPE_BYTES (1 << 20) /* the most that anyone may ask for */
#define BUF_BYTES  ((size_t)256 << 10)
#define MAX_PIECES 1024 /* of one writev(2) */
#define MAX_OPEN   512
#define POLL_MS    200
#define WRITEBACK  ((size_t)32 << 20) /* bytes between hints to the disk */
#define MIN_HINT   ((size_t)1 << 20)  /* where the next piece lies elsewhere */

/* How lent memory goes out: its pages themselves, or a copy. */
enum lend_way { LEND_UNKNOWN, LEND_PAGES, LEND_COPY };

struct out {
    char *path; /* as the user named it */
    char *tmp;  /* NULL: written in place (standard output, a device) */
    int fd;
    int flags;
    int slot; /* in 'temporaries' */
    unsigned char *buf;
    size_t buf_n;
    struct tsv *table; /* NULL: bytes as they are */
    enum lend_way lend;
    size_t begin, end; /* written without a gap, no hint of it given yet */
    struct inuse_output use;
};

/* What a signal handler has to unlink: pointers set and cleared whole. */
static char *_Atomic temporaries[MAX_OPEN];

int
out_remember(char *tmp)
{
    for (int i = 0; i < MAX_OPEN; i++) {
        char *empty = NULL;

        if (atomic_compare_exchange_strong(&temporaries[i], &empty, tmp))
            return i;
    }
    return -1;
}

void
out_forget(int slot)
{
    if (slot >= 0)
        atomic_store(&temporaries[slot], NULL);
}

/* Again while there is more: some network file systems pass over entries when
 * those before them go. */
int
out_remove_dir(int at, const char *path)
{
    int rc, fd, count;

    do {
        fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        count = fd < 0 ? 0 : remove_entries(fd);
        if (fd >= 0)
            close(fd);
        rc = unlinkat(at, path, AT_REMOVEDIR);
    } while (rc < 0 && count > 0);
    return rc;
}

bool
out_abort_all(void)
{
    bool any = false;

    for (int i = 0; i < MAX_OPEN; i++) {
        char *tmp = atomic_load(&temporaries[i]);
        struct stat st;

        if (tmp && tmp[strlen(tmp) - 1] == '/')
            any |= out_remove_dir(AT_FDCWD, tmp) == 0;
        else if (tmp && stat(tmp, &st) == 0 && unlink(tmp) == 0)
            any |= st.st_nlink == 1; /* not one that has its name already */
    }
    return any;
}

static void
remove_file(int dir_fd, const char *name)
{
    unlinkat(dir_fd, name, 0);
}

void
out_sweep(const char *path)
{
    tmp_sweep(path, remove_file);
}

static int
create(const char *tmp)
{
    return open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static int
open_tmp(struct out *o, struct err *err)
{
    /* what earlier runs that were killed left of this same output */
    out_sweep(o->path);
    o->tmp = tmp_name(o->path);
    o->slot = out_remember(o->tmp);
    if (o->slot < 0)
        return err_set(err, EX_SOFTWARE, "%s: over %d outputs at once", o->path,
                       MAX_OPEN);
    o->fd = create(o->tmp);
    if (o->fd < 0 && errno == EEXIST) {
        unlink(o->tmp); /* left by a dead process with our PID */
        o->fd = create(o->tmp);
    }
    if (o->fd < 0)
        return err_sys(err, EX_CANTCREAT, "%s: cannot be created", o->path);
    return 0;
}

int
out_exists(const char *path, struct err *err)
{
    return err_set(err, EX_CANTCREAT,
                   "%s: exists already (--force replaces it)", path);
}

/*
 * A link is followed: what it points to is replaced, not the link.  Those that
 * lead to a pipe, as /dev/stdout, lead to no name; one that leads to a file
 * without any, as /dev/fd/3 of what was removed, says "NAME (deleted)".  What
 * the kernel does not follow (another's link in /tmp) is not followed here, nor
 * are those in the place of a file whose name is the tool's (OUT_NO_FOLLOW).
 * A device or pipe is written in place; a file is replaced when whole.
 */
static int
open_path(struct out *o, const char *path, struct err *err)
{
    struct stat st;
    bool exists = stat(path, &st) == 0;

    if (!exists && errno != ENOENT &&
        !(errno == ELOOP && o->flags & OUT_NO_FOLLOW))
        return err_sys(err, EX_CANTCREAT, "%s", path);
    if (o->flags & OUT_NO_FOLLOW && !(exists && !S_ISREG(st.st_mode)))
        exists = lstat(path, &st) == 0;
    o->path = o->flags & OUT_NO_FOLLOW || (exists && !S_ISREG(st.st_mode))
                  ? xstrdup(path)
                  : file_target(path);
    if (!o->path ||
        (exists && strcmp(o->path, path) != 0 && stat(o->path, &st) < 0))
        return err_sys(err, EX_CANTCREAT, "%s", path);
    if (inuse_output(&o->use, o->path, o->flags & OUT_OWN, err) < 0)
        return -1;
    if (!*o->path || o->path[strlen(o->path) - 1] == '/')
        return err_set(err, EX_CANTCREAT, "\"%s\": not a file name", o->path);
    if (!exists)
        return open_tmp(o, err);
    if (S_ISDIR(st.st_mode))
        return err_set(err, EX_CANTCREAT, "%s: is a directory", o->path);
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) {
        if (!(o->flags & OUT_FORCE))
            return out_exists(o->path, err);
        if (name_is_fixed(o->path))
            return err_sys(err, EX_CANTCREAT, "%s: cannot be replaced",
                           o->path);
        return open_tmp(o, err);
    }
    o->fd = open(o->path, O_WRONLY | O_CLOEXEC);
    if (o->fd < 0)
        return err_sys(err, EX_CANTCREAT, "%s", o->path);
    return 0;
}

bool
out_is_terminal(const struct out *o)
{
    return isatty(o->fd);
}

bool
out_is_pipe(const struct out *o)
{
    struct stat st;

    return fstat(o->fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

int
out_open(struct out **out, const char *path, int flags, bool binary,
         struct err *err)
{
    struct out *o = xcalloc(1, sizeof(*o));
    int rc;

    *out = NULL;
    o->flags = flags;
    o->slot = -1;
    o->fd = -1;
    if (!strcmp(path, "-")) {
        o->path = xstrdup("standard output");
        o->fd = 1;
        fflush(stdout);
        rc = inuse_output(&o->use, "-", false, err);
    } else {
        rc = open_path(o, path, err);
    }
    if (rc == 0 && binary && out_is_terminal(o))
        rc = err_set(err, TU_USAGE,
                     "binary data is not written to a terminal%s%s",
                     o->fd == 1 ? ": redirect " : ", ", o->path);
    if (rc < 0) {
        out_abort(o);
        return -1;
    }
    if ((flags & OUT_ALIGN) || ((flags & OUT_TABLE) && out_is_terminal(o))) {
        o->table = xcalloc(1, sizeof(*o->table));
        o->table->counts = out_is_terminal(o);
    }
    *out = o;
    return 0;
}

int
out_reserve(struct out *o, size_t nbytes, struct err *err)
{
    if (!o->tmp || nbytes == 0)
        return 0;
    return fd_reserve(o->fd, o->path, nbytes, err);
}

/*
 * Has the disk write meanwhile, so that the sync at the end has little left.
 * Only a hint: what fails here fails again in fsync().
 */
static void
hint(struct out *o, size_t min)
{
    size_t n = o->end - o->begin;

    if (!o->tmp || (o->flags & OUT_NO_SYNC) || n < min)
        return;
    file_write_back(o->fd, o->begin, n);
    o->begin = o->end;
}

/* 'offset' -1: after what was written last. */
static void
count_written(struct out *o, off_t offset, size_t nbytes)
{
    if (offset >= 0 && (size_t)offset != o->end) {
        hint(o, MIN_HINT);
        o->begin = o->end = (size_t)offset;
    }
    o->end += nbytes;
    hint(o, WRITEBACK);
}

/* Writes all of it, at 'offset' or (-1) where the file stands. */
static int
write_all(struct out *o, const void *data, size_t nbytes, off_t offset,
          struct err *err)
{
    const char *p = data;

    while (nbytes > 0) {
        ssize_t n = offset < 0 ? write(o->fd, p, nbytes)
                               : pwrite(o->fd, p, nbytes, offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, EX_IOERR, "%s: cannot be written", o->path);
        p += n;
        nbytes -= (size_t)n;
        count_written(o, offset, (size_t)n);
        if (offset >= 0)
            offset += n;
    }
    return 0;
}

static int
empty_buffer(struct out *o, struct err *err)
{
    size_t n = o->buf_n;

    o->buf_n = 0;
    return write_all(o, o->buf, n, -1, err);
}

static int
put_bytes(struct out *o, const void *data, size_t nbytes, struct err *err)
{
    if (o->buf_n + nbytes > BUF_BYTES && empty_buffer(o, err) < 0)
        return -1;
    if (nbytes >= BUF_BYTES)
        return write_all(o, data, nbytes, -1, err);
    if (!o->buf)
        o->buf = xmalloc(BUF_BYTES);
    if (nbytes)
        memcpy(o->buf + o->buf_n, data, nbytes);
    o->buf_n += nbytes;
    return 0;
}

/* To a table's columns, if it is one. */
static int
put_table(struct out *o, const void *data, size_t nbytes, enum tsv_when when,
          struct err *err)
{
    struct str lines = { 0 };
    int rc;

    if (!o->table)
        return put_bytes(o, data, nbytes, err);
    tsv_add(o->table, data, nbytes, when, &lines);
    rc = put_bytes(o, lines.s, lines.n, err);
    str_free(&lines);
    return rc;
}

int
out_write(struct out *o, const void *data, size_t nbytes, struct err *err)
{
    return put_table(o, data, nbytes, TSV_BLOCK, err);
}

int
out_flush(struct out *o, struct err *err)
{
    return put_table(o, NULL, 0, TSV_END, err) < 0 ? -1 : empty_buffer(o, err);
}

ssize_t
out_copy(struct out *o, int fd, const char *name, size_t nbytes,
         struct err *err)
{
    ssize_t n;

    if (out_flush(o, err) < 0)
        return -1;
    if (!o->buf)
        o->buf = xmalloc(BUF_BYTES);
    n = read_some(fd, o->buf, nbytes < BUF_BYTES ? nbytes : BUF_BYTES);
    if (n < 0)
        return err_sys(err, EX_IOERR, "%s: cannot be read", name);
    return write_all(o, o->buf, (size_t)n, -1, err) < 0 ? -1 : n;
}

int
out_writev(struct out *o, struct iovec *v, int n, bool lend, struct err *err)
{
    if (out_flush(o, err) < 0)
        return -1;
    if (o->lend == LEND_UNKNOWN) {
        o->lend = LEND_COPY;
        if (out_is_pipe(o)) {
            o->lend = LEND_PAGES; /* as many as a pipe may have, for fewer
                                     changes of tasks: */
            pipe_enlarge(o->fd, PIPE_BYTES);
        }
    }
    while (n > 0) {
        bool lends = lend && o->lend == LEND_PAGES;
        int k = n < MAX_PIECES ? n : MAX_PIECES;
        ssize_t done =
            lends ? pipe_lend(o->fd, v, (size_t)k) : writev(o->fd, v, k);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && lends && errno != EPIPE && errno != EAGAIN) {
            o->lend = LEND_COPY; /* not on this system, or not this memory */
            continue;
        }
        if (done < 0)
            return err_sys(err, EX_IOERR, "%s: cannot be written", o->path);
        count_written(o, -1, (size_t)done);
        v = iov_skip(v, &n, (size_t)done);
    }
    return 0;
}

int
out_zeros(struct out *o, size_t nbytes, struct err *err)
{
    static const char zeros[4096];
    off_t at;

    if (out_flush(o, err) < 0)
        return -1;
    if (o->tmp) {
        at = lseek(o->fd, (off_t)nbytes, SEEK_CUR);
        if (at >= 0 && ftruncate(o->fd, at) == 0)
            return 0;
        return err_sys(err, EX_IOERR, "%s: no room for %zu zeros", o->path,
                       nbytes);
    }
    for (size_t n; nbytes > 0; nbytes -= n) {
        n = nbytes < sizeof(zeros) ? nbytes : sizeof(zeros);
        if (write_all(o, zeros, n, -1, err) < 0)
            return -1;
    }
    return 0;
}

int
out_pwrite(struct out *o, const void *data, size_t nbytes, size_t offset,
           struct err *err)
{
    return write_all(o, data, nbytes, (off_t)offset, err);
}

/* Is 'path' the file of 'tmp'?  An NFS server whose answer was lost is asked
 * again, and says EEXIST of a link that it has made, ENOENT of a file that it
 * has renamed. */
static bool
is_done(const struct stat *tmp, const char *path)
{
    struct stat st;
    int e = errno;
    bool yes = lstat(path, &st) == 0 && st.st_ino == tmp->st_ino &&
               st.st_dev == tmp->st_dev;

    errno = e;
    return yes;
}

/* Gives the finished temporary its name: the first writer wins, or the last
 * with OUT_FORCE. */
static int
publish(struct out *o, struct err *err)
{
    bool replaces = o->flags & OUT_FORCE;
    struct stat tmp = { 0 };

    stat(o->tmp, &tmp);
    if (!replaces && (link(o->tmp, o->path) == 0 || is_done(&tmp, o->path))) {
        unlink(o->tmp);
    } else {
        /* no hard links here (EPERM and others): look, then rename; two
         * writers at the same moment can both pass, the later one wins */
        if (!replaces && (errno == EEXIST || access(o->path, F_OK) == 0))
            return out_exists(o->path, err);
        if ((!replaces && errno != ENOENT) ||
            (rename(o->tmp, o->path) < 0 && !is_done(&tmp, o->path)))
            return err_sys(err, EX_CANTCREAT, "%s: cannot be created", o->path);
    }
    return o->flags & OUT_NO_SYNC ? 0 : dir_sync(o->path, err);
}

static void
forget(struct out *o, bool remove_tmp)
{
    if (o->fd > 2)
        close(o->fd);
    if (o->tmp && remove_tmp && o->slot >= 0)
        unlink(o->tmp);
    out_forget(o->slot);
    inuse_end(&o->use);
    free(o->tmp);
    free(o->path);
    free(o->buf);
    if (o->table)
        str_free(&o->table->held);
    free(o->table);
    free(o);
}

bool
out_rename(struct out *o, const char *path)
{
    struct err none;

    if (!o->tmp)
        return false;
    inuse_end(&o->use);
    free(o->path);
    o->path = xstrdup(path);
    o->flags |= OUT_FORCE;
    return inuse_output(&o->use, o->path, true, &none) == 0;
}

int
out_commit(struct out *o, struct err *err)
{
    int rc = inuse_publish(&o->use, err);

    if (rc == 0)
        rc = out_flush(o, err);
    if (o->tmp && rc == 0 && (o->flags & OUT_READ_ONLY) &&
        fd_read_only(o->fd) < 0)
        rc = err_sys(err, EX_IOERR, "%s: cannot be made read-only", o->path);
    if (o->tmp && rc == 0 && !(o->flags & OUT_NO_SYNC) && fd_sync(o->fd) < 0)
        rc = err_sys(err, EX_IOERR, "%s: cannot be synced", o->path);
    if (o->fd > 2) {
        if (close(o->fd) < 0 && rc == 0 && errno != EINTR)
            rc = err_sys(err, EX_IOERR, "%s: cannot be closed", o->path);
        o->fd = -1;
    }
    if (o->tmp && rc == 0)
        rc = publish(o, err);
    forget(o, rc < 0);
    return rc;
}

void
out_abort(struct out *o)
{
    if (o)
        forget(o, true);
}

int
out_put(const char *path, int flags, const void *data, size_t nbytes,
        struct err *err)
{
    struct out *o;

    if (out_open(&o, path, flags, false, err) < 0)
        return -1;
    if (out_write(o, data, nbytes, err) == 0)
        return out_commit(o, err);
    out_abort(o);
    return -1;
}

bool
out_stdout_ready(void)
{
    struct pollfd p = { .fd = 1, .events = POLLOUT };

    while (!sig_stop()) {
        int n = poll(&p, 1, POLL_MS);

        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* write() reports what is wrong with it */
    }
    return poll(&p, 1, 0) > 0;
}

int
out_close_stdout(struct err *err)
{
    bool failed = ferror(stdout), flushed;

    errno = 0;
    /* EINTR of close(): Linux has closed it nevertheless */
    flushed = fflush(stdout) == 0;
    if (flushed && (fclose(stdout) == 0 || errno == EINTR) && !failed)
        return 0;
    /* closed from the start, nothing to say */
    if (errno == EBADF && !failed && flushed)
        return 0;
    if (errno)
        return err_sys(err, EX_IOERR, "standard output");
    return err_set(err, EX_IOERR, "standard output: cannot be written");
}
