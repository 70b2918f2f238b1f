/* SPDX-License-Identifier: ISC */
#include "core/keyed.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/rng.h"

void
hash_key_draw(struct hash_key *key)
{
    uint64_t words[sizeof(key->secret) / sizeof(uint64_t)];
    struct timespec now = { 0 };

    if (random_bytes(key->secret, sizeof(key->secret)))
        return;
    /* Only what can inspect this process could guess it: its addresses are
     * random, too. */
    clock_gettime(CLOCK_REALTIME, &now);
    rng_words((uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec ^
                  (uint64_t)getpid() << 16,
              (uint64_t)(uintptr_t)key ^ (uint64_t)(uintptr_t)&strlen << 8, 0,
              sizeof(words) / sizeof(*words), words);
    memcpy(key->secret, words, sizeof(words));
}
