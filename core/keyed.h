/* SPDX-License-Identifier: ISC */
/*
 * Hash tables whose keys come from a file: under a random key, no file
 * can be made whose keys all collide.
 */
#ifndef CORE_KEYED_H
#define CORE_KEYED_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct hash_key {
    unsigned char secret[XXH3_SECRET_DEFAULT_SIZE];
};

/*
 * hash_key_draw() is a new key of the kernel's random bytes.  What a program
 * prints must not depend on it: a table is looked up, and never listed in its
 * own order.  Cannot fail: a kernel without getrandom(2), of before 2014, gives
 * zeros.
 */
void hash_key_draw(struct hash_key *key);

/* keyed_hash() is XXH3-64 under the key; 'nbytes' may be 0. */
static inline uint64_t
keyed_hash(const struct hash_key *key, const void *bytes, size_t nbytes)
{
    return XXH3_64bits_withSecret(bytes, nbytes, key->secret,
                                  sizeof(key->secret));
}

#endif
