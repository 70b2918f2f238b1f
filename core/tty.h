/* SPDX-License-Identifier: ISC */
/*
 * Progress on stderr, and numbers as people read them.
 */
#ifndef CORE_TTY_H
#define CORE_TTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Progress: on a terminal one line redrawn at most 10 times a second with
 * rate and time left; in a batch log one line a minute; nothing when quiet.
 */
struct progress {
    const char *what; /* "hash" */
    const char *unit; /* "B": IEC sizes; "FLOP": MFLOP, ..; or a noun */
    uint64_t total;   /* 0: unknown */
    uint64_t kept;    /* of what is done, was done before: no part of a rate */
    bool quiet;
    double started, drawn; /* of clock_s(); set by progress_start() */
    bool on_tty, dirty;
};

void progress_start(struct progress *p);
void progress_at(struct progress *p, uint64_t done);
/* progress_end() clears the line on a terminal.  Should a line say how it
 * ended? On a terminal, and in a log that has others; not when quiet.  p->dirty
 * says before whether it was long enough to draw any. */
bool progress_end(struct progress *p);

/* tty_columns() is the width of the terminal that standard output is; 80 where
 * it is none.  tty_has_color(): is it one that TERM does not call dumb, or
 * leaves without a name, and does NO_COLOR not forbid it? */
size_t tty_columns(void);
bool tty_has_color(void);

/* plural() ends a noun after its number: "%zu token%s", n, plural(n). */
static inline const char *
plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* size_iec() writes "1.2 GiB" (three figures) into buf. */
char *size_iec(char buf[16], uint64_t nbytes);

#endif
