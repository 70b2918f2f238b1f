/* SPDX-License-Identifier: ISC */
/*
 * What a user meant by a name that is not found: the one of those that exist
 * that it is a part of, or that a typing error turns into it.
 */
#ifndef CORE_NEAR_H
#define CORE_NEAR_H

#include <stddef.h>

/* Bytes of a name, and 0; longer ones are not compared. */
#define NEAR_MAX 256

struct near {
    const char *word;    /* what was typed */
    size_t cost;         /* of the nearest name so far; set by near_start() */
    char name[NEAR_MAX]; /* it, or "" */
    char hint[NEAR_MAX + 24];
};

/* near_start() begins with no name; 'word' stays the caller's. */
void near_start(struct near *near, const char *word);

/*
 * near_try() keeps a name if it is nearer than those before.  The word is a
 * part of it: then by the number of its other letters.  After these, names by
 * the number of letters that are wrong, missing, too many or swapped with their
 * neighbour, up to a quarter of the word and 3 in all; upper and lower case are
 * the same.  Digits have to be the same: which other number was meant is not to
 * be guessed.
 */
void near_try(struct near *near, const char *name, size_t n);

/* near_hint() is " (did you mean "NAME"?)", or "" if no name is near.  Owner:
 * the struct. */
const char *near_hint(struct near *near);

#endif
