/* SPDX-License-Identifier: ISC */
/*
 * Token ids of a dump of text, which lie next to its shards, outside of HASH:
 * ids.npy, int32 [images, tokens], -1 where padded, and ids.npy.json, what
 * hf-infer says of them; as --acts-ids ids.npy writes both.
 * Source: man/saev.5, ids.npy.
 */
#ifndef CORE_FORMAT_SAEV_IDS_H
#define CORE_FORMAT_SAEV_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/saevdir.h"
#include "core/map.h"
#include "core/str.h"

#define SAEV_IDS "ids.npy"

struct saev_ids {
    struct map map;
    struct str json;            /* FILE.json; empty: there is none */
    char dump[SAEV_HASH_MAX];   /* the HASH that it names, or "" */
    char sha256[SAEV_HASH_MAX]; /* of all ids, if it says so; or "" */
    const uint8_t *ids; /* [n_imgs, n_tokens] little-endian, in 'map'; or NULL:
                         * none */
    bool wide;          /* I64, not I32 */
    size_t n_imgs, n_tokens;
    bool knows_special;
    int32_t *special; /* [n_special] ascending: special tokens' ids */
    size_t n_special;
};

/*
 * saev_ids_open() maps FILE, of so many images and tokens as 's', or, if that
 * is NULL, of any, which may be I64, too, and are checked to be ids or -1; and
 * reads FILE.json, if it is there.  saev_ids_of() those of a dump: 0 and 'ids'
 * NULL if it has none; it checks them, and warns if they name another dump.  -1
 * with 'err' set: EX_NOINPUT, EX_DATAERR (another dtype or shape, bytes that
 * are missing or too many, JSON that is not hf-infer's or has the SHA-256 of
 * other ids), EX_IOERR.  Owner: the caller, until saev_ids_close(), which takes
 * a zeroed struct, too.
 */
int saev_ids_open(struct saev_ids *ids, const char *path, const struct saev *s,
                  struct err *err);
int saev_ids_of(struct saev_ids *ids, const struct saevdir *dir,
                struct err *err);
void saev_ids_close(struct saev_ids *ids);

/* saev_ids_at(): the id of a token of an image. */
int32_t saev_ids_at(const struct saev_ids *ids, size_t img, size_t token);

/* saev_ids_check() reads all of them: are they ids, or -1 at the end of images
 * of a padded dump?  0, or -1 with 'err' set (EX_DATAERR), naming 'path'. */
int saev_ids_check(const struct saev_ids *ids, const struct saev *s,
                   const char *path, struct err *err);

/* saev_ids_hash() is the SHA-256 of all of them as I32. */
void saev_ids_hash(const struct saev_ids *ids, char hex[SAEV_HASH_MAX]);

/* saev_ids_default() appends where hf-infer puts the ids of metadata in 'meta':
 * PLACE.ids.npy for PLACE.meta.json, NAME.ids.npy for NAME.json or NAME. */
void saev_ids_default(struct str *path, const char *meta);

/* saev_ids_are_of(): false if they name another dump than 'hash'. */
bool saev_ids_are_of(const struct saev_ids *ids, const char *hash);

#endif
