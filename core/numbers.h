/* SPDX-License-Identifier: ISC */
/*
 * Whole numbers from 0, as users write them: ranges, and lists of them.
 */
#ifndef CORE_NUMBERS_H
#define CORE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* Numbers first .. last. */
struct index_range {
    size_t first, last;
};

/* range_parse(): "A-B" or "A"; -1 if it is not that, or B < A. */
int range_parse(struct index_range *range, const char *s);

/* A list of numbers, each once.  Starts as { 0 }. */
struct numbers {
    uint32_t *v; /* [n] */
    size_t n;
    unsigned char *has; /* private: a bit for each that there can be */
};

/*
 * numbers_add() appends those of a text such as "3,17,100-120", which are
 * below 'end', at most 2^32 and the same in each call for a list.
 * NULL: all below 'end'.  numbers_sort() makes them ascend. 'name' is how the
 * user knows the text,
 * "--latents", and 'noun' what a number is, "latent".  0, or -1 with 'err' set
 * (TU_USAGE): it is not such a list, a number is 'end' or more, or there
 * already. Owner: the caller, until numbers_free(), after an error, too.
 */
int numbers_add(struct numbers *list, const char *name, const char *text,
                const char *noun, size_t end, struct err *err);
void numbers_sort(struct numbers *list);
void numbers_free(struct numbers *list);

#endif
