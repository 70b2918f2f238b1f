/* SPDX-License-Identifier: ISC */
#include <immintrin.h>

#include "test/bench/probe.h"

/* 12 sums side by side hide the latency of two units. */
static double
f32(uint64_t n)
{
    __m512 s[12], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm512_setzero_ps();
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm512_fmadd_ps(s[i], a, b);
            __asm__ volatile("" : "+v"(s[i]));
        }
    return 12.0 * 16 * 2 * (double)n;
}

const struct probe probe_avx512 = { .f32 = f32 };
