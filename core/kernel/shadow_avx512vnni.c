/* SPDX-License-Identifier: ISC */
/* VPDPWSSD for the two instructions that others need. */
#define SIMD avx512vnni
#include "core/kernel/shadow_simd.c"
