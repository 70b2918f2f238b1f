/* SPDX-License-Identifier: ISC */
/* The loops are C: compiled for any CPU. */
#define SIMD scalar
#include "core/kernel/encode_simd.c"
