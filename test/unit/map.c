/* SPDX-License-Identifier: ISC */
/* core/map: what is a file, and what stands in it.  Each expectation is map.h's
 * text. */
#include "core/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/out.h"
#include "test/unit/tap.h"

static void
test_missing(void)
{
    char name[300];

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    tap_ok(!file_missing("f") && !file_missing(".") && file_missing("g") &&
               file_missing("f/g"),
           "what has no name is missing, and what would lie in a file");
    tap_ok(symlink("loop", "loop") == 0 && !file_missing("loop") &&
               !file_missing(name),
           "what cannot be told is not");
    tap_ok(!file_target("f/g") && errno == ENOTDIR && !file_target("loop") &&
               errno == ELOOP,
           "no target through a file, nor round in a circle");
    unlink("loop");
}

static void
test_same(void)
{
    tap_ok(mkdir("d", 0700) == 0 && link("f", "d/hard") == 0 &&
               symlink("../f", "d/soft") == 0,
           "a file of many names");
    tap_ok(file_same("f", "./f") && file_same("f", "d/hard") &&
               file_same("d/soft", "d/../f") && file_same("d", "./d/"),
           "one file or directory, however it is spelled");
    tap_ok(file_same("new", "./new") && file_same("d/new", "d/../d//new") &&
               file_same("no/new", "no/new") &&
               file_same("no/new", "./no//new") &&
               file_same("no/a/new", "d/../no/./a/new"),
           "one that is not there yet, nor its directories");
    tap_ok(symlink("../new", "d/link") == 0 && file_same("d/link", "new") &&
               file_same("./new", "d/../d/link") && !file_same("d/link", "f") &&
               unlink("d/link") == 0,
           "one that is not there yet, through a link");
    tap_ok(!file_same("f", "g") && !file_same("g", "f") &&
               !file_same("new", "d/new") && !file_same("new", "new2") &&
               !file_same("no/new", "no/a/new") && !file_same("no/a", "d/a") &&
               !file_same("f", "d"),
           "two that are not");
    tap_ok(!file_same(NULL, "f") && !file_same("f", NULL) &&
               !file_same(NULL, NULL) && !file_same("-", "./-") &&
               file_same("-", "-") &&
               !file_same("/dev/null", "/dev/../dev/null"),
           "no file, a stream, a device");
    tap_ok(file_is_in("d/new", "d") && file_is_in("./d/../d/hard", "d/.") &&
               file_is_in("d/soft", "d") && file_is_in("f", ".") &&
               file_is_in("d/hard", ".") && file_is_in("/f", "/") &&
               symlink("d/new", "into") == 0 && file_is_in("into", "d"),
           "in a directory or below it, as spelled or through a link");
    tap_ok(!file_is_in("f", "d") && !file_is_in("d2", "d") &&
               !file_is_in("d/../f", "d") && !file_is_in("no/new", "no") &&
               !file_is_in("-", "d") && !file_is_in("d/new", "f") &&
               mkdir("d2", 0700) == 0 && !file_is_in("d2/f", "d"),
           "not in it");
    rmdir("d2");
    unlink("into");
    unlink("d/hard");
    unlink("d/soft");
    rmdir("d");
}

static void
test_kinds(void)
{
    struct str s = { 0 };
    struct err err;
    int fd;

    tap_ok(mkfifo("p", 0600) == 0 && file_read_regular("p", 9, &s, &err) < 0 &&
               err.status == EX_NOINPUT,
           "a FIFO in a file's place is no input, and not waited for");
    fd = file_open_any("p", &err);
    tap_ok(fd >= 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK),
           "one that may be is opened at once, and its reads wait for data");
    close(fd);
    tap_ok(file_open_any(".", &err) < 0 && err.status == EX_NOINPUT,
           "a directory is no input");
    unlink("p");
    str_free(&s);
}

static void
test_read(void)
{
    struct str s = { 0 };
    struct err err;
    char buf[4];
    int fd = open("f", O_RDONLY);

    tap_ok(file_read_all("f", 5, &s, &err) == 0 && !strcmp(s.s, "12345") &&
               file_read_all("f", 5, &s, &err) == 0 && s.n == 10 &&
               !strcmp(s.s, "1234512345"),
           "a file of as many bytes as may be is read, behind what was there");
    tap_ok(file_read_all("f", 4, &s, &err) < 0 && err.status == EX_DATAERR &&
               !strcmp(err.what, "f: is longer than 4 bytes"),
           "and no longer one");
    tap_ok(file_pread(fd, "f", buf, 4, 1, &err) == 0 && !memcmp(buf, "2345", 4),
           "file_pread() reads up to the end");
    tap_ok(file_pread(fd, "f", buf, 4, 2, &err) < 0 && err.status == EX_DATAERR,
           "and not beyond it: %s", err.what);
    tap_ok(file_read_full(fd, "f", buf, 4, &err) == 4 &&
               file_read_full(fd, "f", buf, 4, &err) == 1 && buf[0] == '5' &&
               file_read_full(fd, "f", buf, 4, &err) == 0,
           "file_read_full() reads fewer at the end");
    close(fd);
    str_free(&s);
}

static void
test_status(void)
{
    static const int gone[] = { EIO, ESTALE, ETIMEDOUT, ENOTCONN, EHOSTDOWN };
    bool good =
        file_status(ENOENT) == EX_NOINPUT && file_status(EACCES) == EX_NOINPUT;

    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
        good &= file_status(gone[i]) == EX_IOERR;
    tap_ok(good, "a server that is gone is 74, what is not there 66");
}

int
main(void)
{
    char dir[] = "/tmp/tu-map.XXXXXX";
    struct err err;

    if (!mkdtemp(dir) || chdir(dir) < 0 ||
        out_put("f", 0, "12345", 5, &err) < 0)
        return 1;
    test_missing();
    test_same();
    test_kinds();
    test_read();
    test_status();
    if (unlink("f") < 0 || chdir("/") < 0 || rmdir(dir) < 0)
        return 1;
    return tap_done();
}
