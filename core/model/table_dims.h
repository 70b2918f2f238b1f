/* SPDX-License-Identifier: ISC */
/*
 * The same inputs of all rows are compensated: their weights are a small dense
 * matrix.
 */
#ifndef CORE_MODEL_TABLE_DIMS_H
#define CORE_MODEL_TABLE_DIMS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/table.h"
#include "core/par.h"

/* table_read_dims() has 'fix' select the dims in the .npy at 'path', int32 or
 * int64, ascending, of 'in' inputs; -1 with 'err' set, as npy_parse().  Owner:
 * the caller, free() of *dims in either case. */
int table_read_dims(struct table_fix *fix, uint32_t **dims, const char *path,
                    size_t in, struct err *err);

/*
 * table_pack_dims() copies the weights of FIX_DIMS, from weight_t or the parts,
 * so that they are multiplied by the errors of all rows of a batch as a small
 * dense matrix: the bits are those that selecting the same dims gives.
 * 0, or -1 with 'err' set (EX_SOFTWARE).
 */
#define TABLE_PANEL 64
#define TABLE_TERMS 64 /* summed in f32 before they are added to y */
int table_pack_dims(struct table *t, const struct table_fix *fix,
                    struct err *err);

/* table_add_dims() adds these weights times errors [n, n_dims] to y [n, out]:
 * FIX_DIMS's part of table_compensate(). */
void table_add_dims(struct par *par, const struct table *t, size_t n_dims,
                    float *y, size_t ldy, const float *errors, size_t lde,
                    size_t n);

#endif
