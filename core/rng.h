/* SPDX-License-Identifier: ISC */
/*
 * Counter-based random numbers: element i of stream s under a seed is a pure
 * function of the three, so any part of a sequence can be made anywhere, in
 * any order, by any thread.  Philox4x64-10 (Salmon et al., SC 2011), the same
 * bits as numpy.random.Philox(key=[seed, stream]).
 */
#ifndef CORE_RNG_H
#define CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* rng_philox() is the block function: four 64-bit words for one counter. */
void rng_philox(const uint64_t key[2], const uint64_t counter[4],
                uint64_t out[4]);

/* rng_u64() is the i-th word of the stream. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t i);

/* rng_words() are words first .. first + n - 1 of the stream. */
void rng_words(uint64_t seed, uint64_t stream, uint64_t first, size_t n,
               uint64_t *words);

/* rng_f32(), rng_f64(): uniform in [0, 1), 24 and 53 bits of rng_u64(). */
float rng_f32(uint64_t seed, uint64_t stream, uint64_t i);
double rng_f64(uint64_t seed, uint64_t stream, uint64_t i);

#endif
