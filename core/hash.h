/* SPDX-License-Identifier: ISC */
/*
 * Checksums: XXH3-128 (fast; finds accidents) and SHA-256 (libcrypto).
 */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum hash_kind { HASH_XXH3, HASH_SHA256 };

#define HASH_MAX_HEX 65 /* hex digits of the longest and a NUL */

struct hash;

struct hash *hash_new(enum hash_kind kind); /* dies if memory is gone */
void hash_add(struct hash *hash, const void *data, size_t nbytes);
/* hash_add_numbers() adds n numbers of 4 or 8 bytes, an 'item', little-endian
 * on every machine; none may be at NULL. */
void hash_add_numbers(struct hash *hash, const void *numbers, size_t n,
                      size_t item);
/* hash_sample() adds 16 pieces of 4096 bytes, at even distances, the first and
 * the last bytes among them; up to 4096 bytes, all of them 16 times. */
void hash_sample(struct hash *hash, const void *data, size_t nbytes);
/* hash_end() frees it, and gives the sum in lower-case hex, XXH3-128 canonical
 * (big-endian).  hash_free() forgets it. */
void hash_end(struct hash *hash, char hex[HASH_MAX_HEX]);
void hash_free(struct hash *hash);

const char *hash_name(enum hash_kind kind); /* "xxh3", "sha256" */

#endif
