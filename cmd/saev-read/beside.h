/*
 * What lies next to the shards: shards.json and labels.bin of later versions,
 * the manifest of checksums, leftovers of a writer; and the folder's name.
 */
#ifndef SAEV_READ_BESIDE_H
#define SAEV_READ_BESIDE_H

#include <stdbool.h>

#include "cmd/saev-read/verify.h"

/* folder_hash(): the folder's name, or else that of what a link means, if it
 * is 64 hex digits. */
bool folder_hash(const struct saevdir *dir, char hash[SAEV_HASH_MAX]);

/* check_beside() finds problems there; -1 with 'err' set if it cannot be known
 * (EX_IOERR, or EX_TEMPFAIL: asked to stop). */
int check_beside(struct dump_check *c, struct err *err);

#endif
