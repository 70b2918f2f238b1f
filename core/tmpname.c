/* SPDX-License-Identifier: ISC */
#include "core/tmpname.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/fd.h"
#include "core/map.h"
#include "core/mem.h"

#define OLD_S      (24 * 3600) /* a temporary untouched for that is waste */
#define HOST_MAX   80          /* 64 of the name, and a namespace */
#define TMP_ROOM   64     /* of NAME: eCryptfs has 143 bytes for all of it */
#define MOUNT_ROOT 0x2000 /* STATX_ATTR_MOUNT_ROOT, of Linux 5.8 */
#define FIRST_NS   "pid:[4026531836]" /* PROC_PID_INIT_INO */

/* The length of a path's directory, "" or ending in '/'. */
static size_t
dir_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The host, and if it is a container's, the namespace that a PID is of. */
static void
host_name(char host[HOST_MAX])
{
    char ns[32];
    ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof(ns));
    size_t used;

    if (gethostname(host, HOST_MAX) < 0)
        strcpy(host, "localhost");
    host[HOST_MAX - 1] = '\0';
    used = strlen(host);
    if (n > 6 && (n != strlen(FIRST_NS) || memcmp(ns, FIRST_NS, (size_t)n)))
        snprintf(host + used, HOST_MAX - used, "-%.*s", (int)n - 6, ns + 5);
}

/* "DIR/.NAME.tmp.": "HOST.PID.SERIAL" follows. */
static char *
tmp_prefix(const char *path)
{
    size_t dir_n = dir_bytes(path);
    size_t room = dir_n + NAME_MAX + 2;
    const char *name = path + dir_n;
    size_t n = strnlen(name, TMP_ROOM);
    char *prefix = xmalloc(room);

    while (n > 0 && (name[n] & 0xc0) == 0x80)
        n--; /* exFAT and SMB take whole letters of UTF-8 alone */
    snprintf(prefix, room, "%.*s.%.*s.tmp.", (int)dir_n, path, (int)n, name);
    return prefix;
}

/* A zombie writes no more; in a container it may never be waited for. */
static bool
is_gone(pid_t pid)
{
    char path[40], stat[400];
    const char *state = NULL;
    ssize_t n = -1;
    int fd;

    if (kill(pid, 0) < 0)
        return errno == ESRCH;
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, stat, sizeof(stat) - 1);
        close(fd);
    }
    if (n > 0) {
        stat[n] = '\0';
        state = strrchr(stat, ')'); /* "PID (NAME) S ..." */
    }
    return state && state[1] == ' ' && state[2] == 'Z';
}

/*
 * Is "HOST.PID.SERIAL" in the name of a temporary that nobody will finish?
 * On this host if its process is gone, on others if it is old.
 */
static bool
is_waste(int dir_fd, const char *name, const char *tail)
{
    const char *serial = strrchr(tail, '.');
    const char *pid_text =
        serial ? last_byte(tail, '.', (size_t)(serial - tail)) : NULL;
    char host[HOST_MAX];
    struct stat st;
    time_t now;
    size_t host_n;
    char *end;
    long pid;

    if (!pid_text)
        return false;
    host_n = (size_t)(pid_text - tail);
    pid = strtol(pid_text + 1, &end, 10);
    if (end != serial || pid <= 0 || pid > INT_MAX)
        return false;
    host_name(host);
    if (host_n == strlen(host) && !memcmp(tail, host, host_n))
        return pid != (long)getpid() && is_gone((pid_t)pid);
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    /* Of one that is being made, with O_EXCL, an NFS server has for a moment no
     * time in st_mtime, but what shows a request that comes twice. */
    now = time(NULL);
    return now - st.st_mtime > OLD_S && now - st.st_ctime > OLD_S;
}

void
tmp_sweep(const char *path, void (*remove)(int dir_fd, const char *name))
{
    char *prefix = tmp_prefix(path);
    size_t dir_n = dir_bytes(prefix);
    const char *name = prefix + dir_n;
    size_t name_n = strlen(name);
    char *dir_path = dir_n ? xstrndup(prefix, dir_n) : xstrdup(".");
    DIR *dir = opendir(dir_path);
    struct dirent *e;

    while (dir && (e = readdir(dir)))
        if (!strncmp(e->d_name, name, name_n) &&
            is_waste(dirfd(dir), e->d_name, e->d_name + name_n))
            remove(dirfd(dir), e->d_name);
    if (dir)
        closedir(dir);
    free(dir_path);
    free(prefix);
}

char *
tmp_name(const char *path)
{
    static atomic_uint serial; /* several outputs of one name, one process */
    char *prefix = tmp_prefix(path);
    size_t room = strlen(prefix) + HOST_MAX + 40;
    char *name = xmalloc(room);
    char host[HOST_MAX];

    host_name(host);
    snprintf(name, room, "%s%s.%ld.%u", prefix, host, (long)getpid(),
             atomic_fetch_add(&serial, 1));
    free(prefix);
    return name;
}

bool
name_is_fixed(const char *path)
{
#if ON_LINUX && defined(STATX_ATTR_IMMUTABLE) /* musl had statx() before */
    struct statx st;

    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
        return false;
    if (st.stx_attributes & MOUNT_ROOT)
        errno = EBUSY;
    else if (st.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND))
        errno = EPERM;
    else
        return false;
    return true;
#else
    (void)path;
    return false;
#endif
}

int
dir_sync(const char *path, struct err *err)
{
    int n = (int)dir_bytes(path);
    char dir[PATH_MAX]; /* no memory is no error: the name has been given */
    int fd, rc = 0;

    snprintf(dir, sizeof(dir), "%.*s", n ? n : 1, n ? path : ".");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* one that may not be read cannot be synced */
    if (fd < 0 ? file_status(errno) == EX_IOERR : fd_sync(fd) < 0)
        rc = err_sys(err, EX_IOERR, "%s: directory cannot be synced", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}
