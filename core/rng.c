/* SPDX-License-Identifier: ISC */
#include "core/rng.h"

/* Multipliers and key steps of Philox4x64 (Salmon et al., table 2). */
#define M0     0xd2e7470ee14c6c93u
#define M1     0xca5a826395121157u
#define W0     0x9e3779b97f4a7c15u
#define W1     0xbb67ae8584caa73bu
#define ROUNDS 10

__extension__ typedef unsigned __int128 u128;

void
rng_philox(const uint64_t key[2], const uint64_t counter[4], uint64_t out[4])
{
    uint64_t k0 = key[0], k1 = key[1];
    uint64_t c0 = counter[0], c1 = counter[1];
    uint64_t c2 = counter[2], c3 = counter[3];

    for (int r = 0; r < ROUNDS; r++, k0 += W0, k1 += W1) {
        u128 p0 = (u128)M0 * c0, p1 = (u128)M1 * c2;

        c0 = (uint64_t)(p1 >> 64) ^ c1 ^ k0;
        c1 = (uint64_t)p1;
        c2 = (uint64_t)(p0 >> 64) ^ c3 ^ k1;
        c3 = (uint64_t)p0;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* numpy counts up before it makes a block: the first counter is 1. */
uint64_t
rng_u64(uint64_t seed, uint64_t stream, uint64_t i)
{
    const uint64_t key[2] = { seed, stream };
    const uint64_t counter[4] = { i / 4 + 1, 0, 0, 0 };
    uint64_t out[4];

    rng_philox(key, counter, out);
    return out[i % 4];
}

void
rng_words(uint64_t seed, uint64_t stream, uint64_t first, size_t n,
          uint64_t *words)
{
    const uint64_t key[2] = { seed, stream };
    size_t i = 0;

    for (; i < n && (first + i) % 4; i++)
        words[i] = rng_u64(seed, stream, first + i);
    for (; n - i >= 4; i += 4) {
        const uint64_t counter[4] = { (first + i) / 4 + 1, 0, 0, 0 };

        rng_philox(key, counter, words + i);
    }
    for (; i < n; i++)
        words[i] = rng_u64(seed, stream, first + i);
}

float
rng_f32(uint64_t seed, uint64_t stream, uint64_t i)
{
    return (float)(rng_u64(seed, stream, i) >> 40) * 0x1p-24f;
}

double
rng_f64(uint64_t seed, uint64_t stream, uint64_t i)
{
    return (double)(rng_u64(seed, stream, i) >> 11) * 0x1p-53;
}
