/* SPDX-License-Identifier: ISC */
/*
 * Stop strings: text passes through, and ends before the first of them, even
 * where it is spread over tokens.  What may be the beginning of one is held
 * back until that is known.
 */
#ifndef HF_INFER_STOP_H
#define HF_INFER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/str.h"

#define STOP_MAX 16

struct stop {
    const char *string[STOP_MAX]; /* borrowed, not empty */
    size_t n;
    struct str held;  /* text that may begin a stop string */
    struct str shown; /* 1 or 0 for each byte of it */
};

/*
 * stop_pass() takes more text and appends to 'out' what is certain.  True
 * once a stop string is complete: 'out' then ends before it.  The name of a
 * special token is text that is not 'shown': stop strings are found in it, and
 * 'out' does not get it.
 */
bool stop_pass(struct stop *stop, const char *text, size_t nbytes, bool shown,
               struct str *out);

/* stop_end() is stop_pass() at the end of the text: what might have become a
 * longer stop string did not. */
bool stop_end(struct stop *stop, struct str *out);
void stop_free(struct stop *stop);

#endif
