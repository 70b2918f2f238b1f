/* SPDX-License-Identifier: ISC */
#include <arm_neon.h>

#include "test/bench/probe.h"

static double
f32(uint64_t n)
{
    float32x4_t s[16], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        s[i] = vdupq_n_f32(0);
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            s[i] = vfmaq_f32(s[i], a, b);
            __asm__ volatile("" : "+w"(s[i]));
        }
    return 16.0 * 4 * 2 * (double)n;
}

const struct probe probe_neon = { .f32 = f32 };
