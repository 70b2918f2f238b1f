/* SPDX-License-Identifier: ISC */
/*
 * Ranges of whole numbers from 0, as users write them.
 */
#ifndef CORE_NUMBERS_H
#define CORE_NUMBERS_H

#include <stddef.h>

/* Numbers first .. last. */
struct index_range {
    size_t first, last;
};

/* range_parse(): "A-B" or "A"; -1 if it is not that, or B < A. */
int range_parse(struct index_range *range, const char *s);

#endif
