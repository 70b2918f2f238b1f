/* SPDX-License-Identifier: ISC */
/*
 * Tables for people.
 */
#ifndef CORE_TSV_H
#define CORE_TSV_H

#include "core/str.h"

/* tsv_align() makes columns of lines of TSV: tabs become spaces, and numbers
 * move to the right of their columns. */
void tsv_align(struct str *text);

#endif
