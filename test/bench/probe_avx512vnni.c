/* SPDX-License-Identifier: ISC */
#include <immintrin.h>

#include "test/bench/probe.h"

static double
int8(uint64_t n)
{
    __m512i s[12], a = _mm512_set1_epi8(3);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm512_setzero_si512();
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm512_dpbusd_epi32(s[i], a, a);
            __asm__ volatile("" : "+v"(s[i]));
        }
    return 12.0 * 64 * 2 * (double)n;
}

const struct probe probe_avx512vnni = { .int8 = int8 };
