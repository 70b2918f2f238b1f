/* SPDX-License-Identifier: ISC */
#include <immintrin.h>

#include "test/bench/probe.h"

static double
f32(uint64_t n)
{
    __m256 s[12], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm256_setzero_ps();
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm256_fmadd_ps(s[i], a, b);
            __asm__ volatile("" : "+x"(s[i]));
        }
    return 12.0 * 8 * 2 * (double)n;
}

/* Without VNNI an int8 product is a vpmaddwd of widened halves. */
static double
int8(uint64_t n)
{
    __m256i s[12], a = _mm256_set1_epi16(3);

#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        s[i] = _mm256_setzero_si256();
    for (uint64_t k = 0; k < n; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            s[i] = _mm256_add_epi32(s[i], _mm256_madd_epi16(a, a));
            __asm__ volatile("" : "+x"(s[i]), "+x"(a));
        }
    return 12.0 * 16 * 2 * (double)n;
}

const struct probe probe_avx2 = { .f32 = f32, .int8 = int8 };
