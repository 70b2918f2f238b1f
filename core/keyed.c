/* SPDX-License-Identifier: ISC */
#include "core/keyed.h"

#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

void
hash_key_draw(struct hash_key *key)
{
    *key = (struct hash_key){ 0 };
    if (getentropy(key->secret, sizeof(key->secret)) < 0)
        return; /* zeros are a key as well, for which a file can be made */
}
