/* SPDX-License-Identifier: ISC */
/*
 * python [-B] -c CODE | - | FILE [ARGUMENT...]: the tests' Python.  NumPy takes
 * longer to import than most tests to run; server.py has imported it once, and
 * forks for each of these.  This process passes its descriptors, directory,
 * environment and limits to the server and ends as the fork does.  It executes
 * $WARM_PYTHON instead where the fork could differ from it, or no server is.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

/* A locale in which Python reads and writes UTF-8. */
static bool
is_utf8(const char *locale)
{
    return !*locale || !strcmp(locale, "C") || !strcmp(locale, "POSIX") ||
           !strcmp(locale, "C.UTF-8");
}

/* Would the interpreter, starting here, be other than the server's fork? */
static bool
differs(char **argv)
{
    /* what this process has or becomes, and its size, below which no child's
     * is seen */
    static const char *const own[] = { "/dev/fd/", "/proc/self", "os.exec",
                                       "ru_maxrss" };
    static const char *const same[] = { "PYTHON=", "PYTHONPATH=",
                                        "PYTHONUNBUFFERED=",
                                        "PYTHONDONTWRITEBYTECODE=" };
    const char *const locale[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    size_t first = argv[1] && !strcmp(argv[1], "-B") ? 2 : 1;

    if (!argv[first] || (argv[first][0] == '-' && argv[first][1] &&
                         (strcmp(argv[first], "-c") != 0 || !argv[first + 1])))
        return true;
    for (size_t i = first; argv[i]; i++)
        for (size_t j = 0; j < sizeof(own) / sizeof(*own); j++)
            if (strstr(argv[i], own[j]))
                return true;
    for (char **e = environ; *e; e++) {
        bool known = false;

        for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
            known |= !strncmp(*e, same[i], strlen(same[i]));
        if (!strncmp(*e, "LD_", 3) || (!strncmp(*e, "PYTHON", 6) && !known))
            return true;
    }
    for (size_t i = 0; i < 3; i++)
        if (getenv(locale[i]) && !is_utf8(getenv(locale[i])))
            return true;
    return false;
}

static int
connected(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    struct stat st;
    int fd;

    if (!path || strlen(path) >= sizeof(to.sun_path) || stat(path, &st) ||
        st.st_uid != geteuid())
        return -1;
    strcpy(to.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A byte that brings the descriptors 0 to 2; false if one of them is closed. */
static bool
send_descriptors(int fd)
{
    union {
        char space[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } u = { { 0 } };
    char byte = 0;
    struct iovec one = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr msg = { .msg_iov = &one,
                          .msg_iovlen = 1,
                          .msg_control = u.space,
                          .msg_controllen = sizeof(u.space) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(c), (int[]){ 0, 1, 2 }, 3 * sizeof(int));
    return sendmsg(fd, &msg, MSG_NOSIGNAL) == 1;
}

/* Directory, umask, limits, the number of arguments, these and the environment,
 * each ended by a NUL. */
static void
send_state(FILE *to, char **argv)
{
    mode_t mask = umask(0);
    char *dir = getcwd(NULL, 0);
    int n = 0;

    umask(mask);
    while (argv[n])
        n++;
    fprintf(to, "%s%c%u%c", dir ? dir : "", 0, (unsigned)mask, 0);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit = { 0 };

        getrlimit(i, &limit);
        fprintf(to, "%lld ", (long long)limit.rlim_cur);
    }
    fprintf(to, "%c%d%c", 0, n, 0);
    for (int i = 0; i < n; i++)
        fprintf(to, "%s%c", argv[i], 0);
    for (char **e = environ; *e; e++)
        fprintf(to, "%s%c", *e, 0);
    free(dir);
}

int
main(int argc, char **argv)
{
    char *real = getenv("WARM_PYTHON"), any[] = "python3";
    int fd = -1, status;
    FILE *to;

    (void)argc;
    if (!differs(argv))
        fd = connected(getenv("WARM_SERVER"));
    if (fd < 0 || !send_descriptors(fd)) {
        argv[0] = real ? real : any;
        execvp(argv[0], argv);
        perror(argv[0]);
        return 127;
    }
    to = fdopen(fd, "w");
    send_state(to, argv);
    fflush(to);
    shutdown(fd, SHUT_WR);
    if (recv(fd, &status, sizeof(status), MSG_WAITALL) != sizeof(status)) {
        fprintf(stderr, "%s: the server of the tests' Python died\n", argv[0]);
        return 70;
    }
    if (status < 0) { /* a signal ended it */
        signal(-status, SIG_DFL);
        raise(-status);
    }
    return status;
}
