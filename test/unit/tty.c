/* SPDX-License-Identifier: ISC */
/* core/tty: sizes by hand, and progress on a log and on a terminal.  Time is
 * not waited for: the last drawing is moved back. */
#include "core/tty.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/unit/tap.h"

static void
test_size(uint64_t nbytes, const char *want)
{
    char buf[16];

    tap_ok(!strcmp(size_iec(buf, nbytes), want), "%llu bytes are %s",
           (unsigned long long)nbytes, want);
}

/* What 'done' looks like after 'ago' seconds on 'fd' as stderr. */
static void
show(struct progress *p, int fd, uint64_t done, double ago)
{
    int keep = dup(2);

    fflush(stderr);
    dup2(fd, 2);
    progress_start(p);
    p->started -= ago;
    p->drawn -= ago;
    progress_at(p, done);
    progress_at(p, done + 1); /* too soon after it */
    progress_end(p);
    fflush(stderr);
    dup2(keep, 2);
    close(keep);
}

/* The lines that 'p' writes to a log, with 'done' done. */
static void
log_done(struct progress *p, uint64_t done, double ago, char text[256])
{
    FILE *f = tmpfile();
    size_t n;

    show(p, fileno(f), done, ago);
    rewind(f);
    n = fread(text, 1, 255, f);
    text[n] = '\0';
    fclose(f);
}

static void
log_of(struct progress *p, double ago, char text[256])
{
    log_done(p, 50, ago, text);
}

static void
test_log(void)
{
    struct progress p = { .what = "hash", .unit = "token", .total = 200 };
    char text[256];
    int left;

    log_of(&p, 61, text);
    tap_ok(!strncmp(text, "hash: 50 tokens, 1 tokens/s, 25 %, ", 35) &&
               strstr(text, " s left\n") + 8 == text + strlen(text),
           "a log gets one line a minute");
    log_of(&p, 59, text);
    tap_ok(!*text, "and none before");
    p.quiet = true;
    log_of(&p, 100, text);
    tap_ok(!*text, "quiet says nothing");
    p = (struct progress){ .what = "x", .unit = "B" };
    log_of(&p, 100, text);
    tap_ok(!strcmp(text, "x: 50 B, 0 B/s\n"),
           "without a total there is no time left");
    p = (struct progress){ .what = "x", .unit = "B", .total = 49 };
    log_of(&p, 100, text);
    tap_ok(!strcmp(text, "x: 50 B, 0 B/s, 100 %, 0 s left\n"),
           "more than the total is 100 %%");
    p = (struct progress){
        .what = "x", .unit = "row", .total = 90, .kept = 30
    };
    log_of(&p, 80, text);
    tap_ok(sscanf(text, "x: 50 rows, 0 rows/s, 56 %%, %d s left", &left) == 1 &&
               left >= 160 && left < 170,
           "what was kept is done, but took no time");
    p = (struct progress){
        .what = "x", .unit = "row", .total = 90, .kept = 50
    };
    log_of(&p, 100, text);
    tap_ok(!strcmp(text, "x: 50 rows, 0 rows/s, 56 %\n"),
           "where nothing was done yet, who knows how long it takes");
    p = (struct progress){ .what = "x", .unit = "row", .total = 2 };
    log_done(&p, 1, 100, text);
    tap_ok(!strncmp(text, "x: 1 row, 0 rows/s, ", 20),
           "one has no plural, a rate always");
}

static void
test_flop(uint64_t done, const char *want)
{
    struct progress p = { .what = "x", .unit = "FLOP" };
    char text[256];

    log_done(&p, done, 100, text);
    text[strcspn(text, ",")] = '\0';
    tap_ok(!strcmp(text, want), "%llu operations: %s", (unsigned long long)done,
           text);
}

static void
test_terminal(void)
{
    struct progress p = { .what = "hash", .unit = "B", .total = 200 };
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
    char text[256] = "";
    size_t at = 0;
    ssize_t n;

    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0)
        slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0) {
        tap_skip("a terminal", "there is no pseudo-terminal");
        return;
    }
    show(&p, slave, 50, 1);
    close(slave); /* what was written is read still, in one piece or two */
    while ((n = read(master, text + at, sizeof(text) - 1 - at)) > 0)
        at += (size_t)n;
    tap_ok(!strncmp(text, "\rhash: 50 B, ", 13) &&
               strstr(text, " s left\033[K\r\033[K"),
           "a terminal's line is drawn over, and cleared at the end");
    close(master);
}

int
main(void)
{
    test_size(0, "0 B");
    test_size(1023, "1023 B");
    test_size(1024, "1.00 KiB");
    test_size(1536 * 1024, "1.50 MiB");
    test_size(1023 * 1024, "1.00 MiB");
    test_size((uint64_t)20 << 30, "20.0 GiB");
    test_size((uint64_t)300 << 40, "300 TiB");
    test_size(UINT64_MAX, "16.0 EiB");
    test_log();
    test_flop(7, "x: 7 FLOP");
    test_flop(1979711488, "x: 1.98 GFLOP");
    test_flop(206158430208, "x: 206 GFLOP");
    test_flop(UINT64_MAX, "x: 18.4 EFLOP");
    test_terminal();
    return tap_done();
}
