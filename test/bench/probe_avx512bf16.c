/* SPDX-License-Identifier: ISC */
#include <immintrin.h>

#include "test/bench/probe.h"

static double
bf16(uint64_t n)
{
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80);
    __m512 s[12];

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm512_setzero_ps();
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm512_dpbf16_ps(s[i], a, a);
            __asm__ volatile("" : "+v"(s[i]));
        }
    return 12.0 * 32 * 2 * (double)n;
}

const struct probe probe_avx512bf16 = { .bf16 = bf16 };
