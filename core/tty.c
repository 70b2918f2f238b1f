/* SPDX-License-Identifier: ISC */
#include "core/tty.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/clock.h"

#define TTY_EVERY_S   0.1  /* between two drawings on a terminal */
#define BATCH_EVERY_S 60.0 /* between two lines of a log */

char *
size_iec(char buf[16], uint64_t nbytes)
{
    static const char units[] = "KMGTPE";
    double v = (double)nbytes;
    int u = -1;

    if (nbytes < 1024) {
        snprintf(buf, 16, "%u B", (unsigned)nbytes);
        return buf;
    }
    for (; v >= 999.5 && u < 5; u++)
        v /= 1024;
    snprintf(buf, 16, "%.*f %ciB",
             v < 9.995   ? 2
             : v < 99.95 ? 1
                         : 0,
             v, units[u]);
    return buf;
}

/* "1.2 GiB", "1.98 GFLOP", "1 token", or of a rate "1 tokens". */
static const char *
amount(char buf[48], const struct progress *p, double n, bool is_rate)
{
    static const char units[] = " kMGTPE";
    int u = 0;

    if (!strcmp(p->unit, "B"))
        return size_iec(buf, (uint64_t)n);
    if (strcmp(p->unit, "FLOP") != 0) {
        snprintf(buf, 48, "%.0f %s%s", n, p->unit,
                 is_rate ? "s" : plural((uint64_t)n));
        return buf;
    }
    for (; n >= 999.5 && u < 6; u++)
        n /= 1000;
    snprintf(buf, 48, "%.*f %.*s%s",
             u == 0      ? 0
             : n < 9.995 ? 2
             : n < 99.95 ? 1
                         : 0,
             n, u > 0, units + u, p->unit);
    return buf;
}

void
progress_start(struct progress *p)
{
    p->on_tty = isatty(2);
    p->started = p->drawn = clock_s();
    p->dirty = false;
}

void
progress_at(struct progress *p, uint64_t done)
{
    uint64_t now = done > p->kept ? done - p->kept : 0;
    uint64_t left = done < p->total ? p->total - done : 0;
    double at = clock_s(), t = at - p->started;
    double rate = (double)now / (t > 0 ? t : 1e-9);
    char a[48], b[48], percent[16] = "", eta[32] = "";

    if (p->quiet || at - p->drawn < (p->on_tty ? TTY_EVERY_S : BATCH_EVERY_S))
        return;
    if (p->total)
        snprintf(percent, sizeof(percent), ", %.0f %%",
                 100 - 100 * (double)left / (double)p->total);
    if (p->total && (rate > 0 || left == 0))
        snprintf(eta, sizeof(eta), ", %.0f s left",
                 left ? (double)left / rate : 0);
    fprintf(stderr, "%s%s: %s, %s/s%s%s%s", p->on_tty ? "\r" : "", p->what,
            amount(a, p, (double)done, false), amount(b, p, rate, true),
            percent, eta, p->on_tty ? "\033[K" : "\n");
    fflush(stderr);
    p->drawn = at;
    p->dirty = true;
}

bool
progress_end(struct progress *p)
{
    bool tells = !p->quiet && (p->on_tty || p->dirty);

    if (p->on_tty && p->dirty)
        fputs("\r\033[K", stderr);
    p->dirty = false;
    return tells;
}

size_t
tty_columns(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col
               ? size.ws_col
               : 80;
}

bool
tty_has_color(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && !(no && *no) && term && *term &&
           strcmp(term, "dumb") != 0;
}
