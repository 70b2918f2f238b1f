/* SPDX-License-Identifier: ISC */
#include "core/map.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/inuse.h"
#include "core/mem.h"
#include "core/sig.h"

#define MAX_LINKS 40  /* as Linux */
#define POLL_MS   500 /* a stop is noticed after that, however idle a pipe */
#define FAULT_BYTES \
    ((size_t)2 << 20) /* that a fault may map, as a large page */
#define READ_PIECE ((size_t)256 << 10) /* 14 GB/s cached; mmap gives 8 */

int
file_status(int e)
{
    /* a server that is gone: of NFS, of FUSE, of SMB */
    static const int others[] = { EMFILE, ENFILE,    ENOMEM,   EIO,
                                  ESTALE, ETIMEDOUT, ENOTCONN, EHOSTDOWN };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (e == others[i])
            return EX_IOERR;
    return EX_NOINPUT;
}

/* Opens anything but a directory.  O_NONBLOCK, so that a FIFO without a writer
 * does not block; for a regular file it is cleared again, or a file that an
 * archive has to restore first could not be read. */
static int
open_input(const char *path, struct stat *st, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 &&
        errno ==
            EWOULDBLOCK) /* another's lease: its holder is being notified */
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, file_status(errno), "%s", path);
    if (fstat(fd, st) < 0)
        err_sys(err, EX_IOERR, "%s", path);
    else if (S_ISDIR(st->st_mode))
        err_set(err, EX_NOINPUT, "%s: is a directory, not a file", path);
    else if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0)
        err_sys(err, EX_IOERR, "%s", path);
    else if (inuse_input(path, st, err) == 0)
        return fd;
    close(fd);
    return -1;
}

int
file_open(const char *path, size_t *size, struct err *err)
{
    struct stat st;
    int fd = open_input(path, &st, err);

    if (fd < 0)
        return -1;
    if (S_ISREG(st.st_mode)) {
        *size = (size_t)st.st_size;
        return fd;
    }
    close(fd);
    return err_set(err, EX_NOINPUT, "%s: is not a regular file", path);
}

int
file_open_any(const char *path, struct err *err)
{
    struct stat st;

    return open_input(path, &st, err);
}

int
file_wait(int fd, struct err *err)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    while (!sig_stop()) {
        int n = poll(&p, 1, POLL_MS);

        if (n > 0 || (n < 0 && errno != EINTR))
            return 0; /* read() reports what is wrong */
    }
    return sig_stopped("run it again", err);
}

void *
map_fd(int fd, size_t nbytes, const char *name, struct err *err)
{
    void *p = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED) /* FUSE without the page cache has only private ones */
        p = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p != MAP_FAILED)
        return p;
    err_sys(err, errno == ENOMEM ? EX_SOFTWARE : EX_IOERR,
            "%s: cannot be mapped", name);
    return NULL;
}

int
map_open(struct map *map, const char *path, struct err *err)
{
    int fd;

    *map = (struct map){ 0 };
    fd = file_open(path, &map->size, err);
    if (fd < 0)
        return -1;
    if (map->size)
        map->data = map_fd(fd, map->size, path, err);
    close(fd);
    return map->data || map->size == 0 ? 0 : -1;
}

void
map_close(struct map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct map){ 0 };
}

static void *
page_of(const void *p, size_t *skip)
{
    *skip = (uintptr_t)p % (size_t)sysconf(_SC_PAGESIZE);
    return (void *)((uintptr_t)p - *skip);
}

bool
map_cached(const void *p)
{
    unsigned char in_memory = 0;
    size_t skip;
    void *page = page_of(p, &skip);

#if ON_LINUX /* others have it with another type, or not */
    if (mincore(page, 1, &in_memory) < 0)
        return false;
#endif
    return page && in_memory & 1;
}

void
map_will_read(const void *p, size_t nbytes)
{
    size_t skip;
    void *page = page_of(p, &skip);

    posix_madvise(page, skip + nbytes, POSIX_MADV_WILLNEED);
}

void
map_was_read(const struct map *map, const void *p, size_t nbytes)
{
    size_t before = (size_t)((const uint8_t *)p - map->data), skip;
    void *page;

    before = smaller(before, FAULT_BYTES);
    page = page_of((const char *)p - before, &skip);
    pages_drop(page, skip + before + nbytes);
}

bool
file_missing(const char *path)
{
    return access(path, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

char *
file_split(const char *spec, char mark, const char **rest)
{
    const char *at = strrchr(spec, mark);

    if (!at || !file_missing(spec))
        return NULL;
    *rest = at + 1;
    return xstrndup(spec, (size_t)(at - spec));
}

int64_t
file_cut_layer(char **path)
{
    const char *digits;
    char *file = file_split(*path, '@', &digits);
    size_t n = file ? strspn(digits, "0123456789") : 0;
    int64_t layer;

    if (n == 0 || n > 9 || digits[n]) {
        free(file);
        return -1;
    }
    layer = strtol(digits, NULL, 10);
    free(*path);
    *path = file;
    return layer;
}

char *
file_target(const char *path)
{
    char *at = xstrdup(path);
    int e = ELOOP;

    for (int i = 0; i < MAX_LINKS; i++) {
        char to[PATH_MAX];
        ssize_t n = readlink(at, to, sizeof(to) - 1);
        const char *slash = strrchr(at, '/');
        struct str next = { 0 };

        if (n < 0 && (errno == EINVAL || errno == ENOENT))
            return at; /* no link, or nothing yet */
        if (n < 0) {
            e = errno;
            break;
        }
        if (*to != '/' && slash)
            str_add(&next, at, (size_t)(slash + 1 - at));
        str_add(&next, to, (size_t)n);
        free(at);
        at = next.s;
    }
    free(at);
    errno = e;
    return NULL;
}

/* Cuts the last name off 'path': false where there is no other. */
static bool
cut_name(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash)
        slash[slash == path] = '\0';
    return slash && slash != path;
}

/* The deepest directory above 'path' that exists, and in 'rest' the names from
 * there on.  False: it is behind a loop of links. */
static bool
stat_above(const char *path, struct stat *st, struct str *rest)
{
    char *at = file_target(path);
    bool more = at, found = false;

    while (more && !found) {
        const char *slash = strrchr(at, '/'), *name = slash ? slash + 1 : at;
        struct str names = { 0 };

        if (*name && strcmp(name, ".") != 0) {
            str_addf(&names, "%s/%s", name, rest->n ? rest->s : "");
            str_free(rest);
            *rest = names;
        }
        more = cut_name(at);
        found = stat(slash ? at : ".", st) == 0;
    }
    free(at);
    return found;
}

bool
file_same(const char *a, const char *b)
{
    struct str rest_a = { 0 }, rest_b = { 0 };
    struct stat s, t;
    bool same;

    if (!a || !b || !strcmp(a, b))
        return a && b;
    if (!strcmp(a, "-") || !strcmp(b, "-"))
        return false;
    if (stat(a, &s) == 0)
        return (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)) && stat(b, &t) == 0 &&
               s.st_ino == t.st_ino && s.st_dev == t.st_dev;
    if (stat(b, &t) == 0)
        return false;
    same = stat_above(a, &s, &rest_a) && stat_above(b, &t, &rest_b) &&
           rest_a.n && rest_b.n && !strcmp(rest_a.s, rest_b.s) &&
           s.st_ino == t.st_ino && s.st_dev == t.st_dev;
    str_free(&rest_a);
    str_free(&rest_b);
    return same;
}

static bool
parent_is_in(const char *path, const char *real_dir)
{
    char *parent = xstrdup(path), *real = NULL;
    size_t n_dir = strlen(real_dir);
    bool is_in, more = true;

    while (!real && more) { /* what does not exist is no link */
        more = cut_name(parent);
        real = realpath(strchr(parent, '/') || more ? parent : ".", NULL);
    }
    is_in = real && !strncmp(real, real_dir, n_dir) &&
            (real[n_dir] == '/' || real[n_dir] == '\0' ||
             real_dir[n_dir - 1] == '/');

    free(real);
    free(parent);
    return is_in;
}

bool
file_is_in(const char *path, const char *dir)
{
    char *real_dir = realpath(dir, NULL), *target = file_target(path);
    bool is_in = real_dir && (parent_is_in(path, real_dir) ||
                              (target && parent_is_in(target, real_dir)));

    free(target);
    free(real_dir);
    return is_in;
}

int
file_is_dir(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode);
    if (errno == ENOENT || errno == ENOTDIR)
        return 0;
    return err_sys(err, file_status(errno), "%s", path);
}

int
dir_next(DIR *dir, const char *path, struct dirent **entry, struct err *err)
{
    errno = 0;
    *entry = readdir(dir);
    if (*entry)
        return 1;
    return errno ? err_sys(err, EX_IOERR, "%s: cannot be listed", path) : 0;
}

static int
is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int
dir_list(struct dirent ***list, const char *path, struct err *err)
{
    int n = scandir(path, list, is_visible, by_name);

    return n < 0
               ? err_sys(err, file_status(errno), "%s: cannot be listed", path)
               : n;
}

void
dir_list_free(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

long
read_some(int fd, void *buf, size_t nbytes)
{
    long n;

    do
        n = read(fd, buf, nbytes);
    while (n < 0 && errno == EINTR);
    return n;
}

int
file_pread(int fd, const char *path, void *buf, size_t nbytes, size_t offset,
           struct err *err)
{
    size_t done = 0;

    while (done < nbytes) {
        ssize_t n = pread(fd, (char *)buf + done, nbytes - done,
                          (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, EX_IOERR, "%s: cannot be read", path);
        if (n == 0)
            return err_set(err, EX_DATAERR,
                           "%s: ended at byte %zu while it was read (expected "
                           "%zu)",
                           path, offset + done, offset + nbytes);
        done += (size_t)n;
    }
    return 0;
}

ssize_t
file_read_full(int fd, const char *name, void *to, size_t nbytes,
               struct err *err)
{
    size_t done = 0;

    while (done < nbytes) {
        ssize_t n;

        if (file_wait(fd, err) < 0)
            return -1;
        n = read_some(fd, (char *)to + done, nbytes - done);
        if (n < 0)
            return err_sys(err, EX_IOERR, "%s: cannot be read", name);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Reads what 'fd' has, -1 if it could not be opened, and closes it. */
static int
read_rest(int fd, const char *name, size_t max, struct str *str,
          struct err *err)
{
    size_t start = str->n;
    int rc = fd < 0 ? -1 : 0;
    long n = 1;

    while (rc == 0 && n > 0) {
        str_reserve(str, READ_PIECE + 1);
        rc = file_wait(fd, err);
        if (rc < 0)
            break;
        n = read_some(fd, str->s + str->n, READ_PIECE);
        if (n < 0)
            rc = err_sys(err, EX_IOERR, "%s: cannot be read", name);
        else
            str->n += (size_t)n;
        if (str->n - start > max)
            rc = err_set(err, EX_DATAERR, "%s: is longer than %zu bytes", name,
                         max);
    }
    if (rc == 0)
        str->s[str->n] = '\0';
    if (fd > 0)
        close(fd);
    return rc;
}

int
file_read_all(const char *path, size_t max, struct str *str, struct err *err)
{
    if (!strcmp(path, "-"))
        return read_rest(0, "standard input", max, str, err);
    return read_rest(file_open_any(path, err), path, max, str, err);
}

int
file_read_regular(const char *path, size_t max, struct str *str,
                  struct err *err)
{
    size_t size;

    return read_rest(file_open(path, &size, err), path, max, str, err);
}
