/*
 * Terminals: progress on stderr, colour, and not writing binary to a screen.
 */
#ifndef CORE_TTY_H
#define CORE_TTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tty_color { TTY_AUTO, TTY_ALWAYS, TTY_NEVER };

/* tty_color() decides for fd 1: --color, then NO_COLOR, TERM=dumb, isatty. */
bool tty_color(enum tty_color wish);
int tty_color_parse(const char *s); /* auto|always|never, or -1 */

/* tty_columns() is the width of stderr's or stdout's terminal, else 80. */
int tty_columns(void);

/*
 * Progress: on a terminal one line redrawn at most 10 times a second with
 * rate and time left; in a batch log one line a minute; nothing when quiet.
 */
struct progress {
    const char *what; /* "hash" */
    const char *unit; /* "B" prints IEC sizes; "token" */
    uint64_t total;   /* 0: unknown */
    bool quiet;
    double started, drawn; /* seconds, monotonic; set by progress_start() */
    bool on_tty, dirty;
};

void progress_start(struct progress *p);
void progress_at(struct progress *p, uint64_t done);
void progress_end(struct progress *p); /* clears the line on a terminal */

/* size_iec() writes "1.2 GiB" (three figures) into buf. */
char *size_iec(char buf[16], uint64_t nbytes);

#endif
