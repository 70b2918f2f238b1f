/* SPDX-License-Identifier: ISC */
/*
 * Bulk conversion between element types; exact where the target holds more,
 * else nearest with ties to even.  Source: IEEE 754; core/dtype.h in scalar.
 * 'dtype' is one that dtype_computes().
 */
#ifndef CORE_KERNEL_CVT_H
#define CORE_KERNEL_CVT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"

/* cvt_to_f32() widens n elements, little-endian, at any address. */
void cvt_to_f32(float *to, const void *from, enum dtype dtype, size_t n);

/* cvt_from_f32() rounds n floats; 'to' at any address, little-endian. */
void cvt_from_f32(void *to, enum dtype dtype, const float *from, size_t n);

/* cvt_to_bf16() rounds n elements to bf16, as in files. */
void cvt_to_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n);

/* cvt_fits(): does cvt_from_f32() make finite numbers of all n? */
bool cvt_fits(const float *from, enum dtype dtype, size_t n);

#endif
