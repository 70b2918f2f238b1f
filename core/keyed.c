/* SPDX-License-Identifier: ISC */
#include "core/keyed.h"

#include <unistd.h>

#include "core/compat.h"

void
hash_key_draw(struct hash_key *key)
{
    *key = (struct hash_key){ 0 };
    if (getentropy(key->secret, sizeof(key->secret)) < 0)
        return; /* zeros are a key as well, for which a file can be made */
}
