/* SPDX-License-Identifier: ISC */
/*
 * SAEV: activations cached on disk, and where each of them is.  A dump is a
 * directory named by the hash of its metadata, with shards of
 * [imgs, layers, tokens, d] little-endian f32.
 *
 * Here is what the bytes mean: metadata of every version found on disk, the
 * hash, the geometry, the arithmetic of views.  Nothing here opens a file.
 * Source: man/saev.5, after the SAEV protocol of 2025-06-17.
 */
#ifndef CORE_FORMAT_SAEV_H
#define CORE_FORMAT_SAEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/str.h"

enum saev_version {
    SAEV_2024_10, /* width, height, model, n_layers, n_patches_per_shard */
    SAEV_2025_06, /* vit_* names, n_patches_per_shard */
    SAEV_1,       /* the protocol's own, of 2025-06-17: what is written */
    SAEV_1_0,     /* "protocol": "1.0.0", dtype, shards.json */
    SAEV_1_1,     /* "1.1", labels.bin */
    SAEV_2_0,     /* "2.0", family, d_model, content_tokens_per_example */
    SAEV_2_1,     /* "2.1", data is an opaque string, 8 hex digits */
};

/*
 * What a metadata.json says, whatever its keys are called there.  All numbers
 * are checked, and so are their products: neither bytes nor rows of
 * the whole overflow, but they are claims until files are looked at.
 */
#define SAEV_N_QUANTITIES 13
struct saev {
    enum saev_version version; /* the known one that it is read as */
    char *protocol;            /* its own name, as JSON escapes it */
    const char *key_of[SAEV_N_QUANTITIES]; /* private: names that were used */
    char *name;                            /* of the document, for messages */
    char *text; /* the document as it came: hash and rewriting need it */
    size_t text_nbytes;
    char *family, *ckpt;
    int64_t *layers; /* [n_layers], in the file's order, unique */
    size_t n_layers;
    size_t n_patches; /* an image, without CLS; P of the protocol */
    bool cls_token;
    size_t d;          /* floats of an activation; D */
    bool n_imgs_known; /* false: left out, counted while writing */
    size_t n_imgs;
    size_t max_patches; /* a shard's budget */
    bool is_padded;     /* rows after a document's end: core/format/saev_mask */
    char *acts;         /* hf-infer's point, "in:up_proj"; or NULL */
    bool *linear; /* [n_layers]: hf-infer says it is Gated DeltaNet there */
    /* geometry */
    size_t n_tokens;     /* n_patches + cls_token; T */
    size_t shard_imgs;   /* images of a full shard; S >= 1 */
    size_t row_nbytes;   /* d * 4 */
    size_t img_nbytes;   /* n_layers * n_tokens * row_nbytes */
    size_t shard_nbytes; /* shard_imgs * img_nbytes */
    size_t n_shards;     /* ceil(n_imgs / shard_imgs) */
};

/*
 * saev_parse() reads a metadata document; 'name' is for messages.
 * 0, or -1 with 'err' set (EX_DATAERR: a key is missing, has another type or
 * is given twice, a BOM, products that overflow, a budget of less than one
 * image, an unknown major version).  A version other than SAEV_1 is said by
 * err_warn(), once, as breaking.
 * SAEV_INPUT: it is a writer's input: SAEV_1 alone, n_imgs may be left out.
 * Owner: the caller, until saev_free().
 */
enum { SAEV_INPUT = 1 };
int saev_parse(struct saev *saev, const char *text, size_t nbytes,
               const char *name, int flags, struct err *err);
void saev_free(struct saev *saev); /* a zeroed struct is fine */

/* saev_set_n_imgs() fills in what the input left out.  -1: it overflows. */
int saev_set_n_imgs(struct saev *saev, size_t n_imgs, struct err *err);

/*
 * saev_hash(): 64 hex digits of the SHA-256 over Python's
 * json.dumps(metadata, sort_keys=True), n_imgs included;
 * "" for versions after SAEV_1, whose writers hash another form.
 * saev_json(): the metadata.json that json.dump(metadata, indent=4) writes,
 * keys in input order, n_imgs last if it was left out.
 */
#define SAEV_HASH_MAX 65
int saev_hash(const struct saev *saev, char hash[SAEV_HASH_MAX],
              struct err *err);
int saev_json(const struct saev *saev, struct str *out, struct err *err);

/* saev_hash_text(): the same hash of a document in the protocol's own form. */
int saev_hash_text(const char *text, size_t nbytes, const char *name,
                   char hash[SAEV_HASH_MAX], struct err *err);

/*
 * saev_own_key() is what SAEV_1 calls a member of this document: the key
 * itself if it means nothing, NULL if SAEV_1 has no such member (protocol).
 * 2024-10's n_layers is a number, which becomes the list "layers".
 */
const char *saev_own_key(const struct saev *saev, const char *key);

/* saev_shard_name() writes "acts000012.bin"; saev_shard_of() is its inverse,
 * false for any other name. */
void saev_shard_name(char name[32], size_t shard);
bool saev_shard_of(const char *name, size_t *shard);

/* Images and bytes of a shard as this project writes it: the last is short. */
size_t saev_shard_imgs(const struct saev *saev, size_t shard);
size_t saev_shard_nbytes(const struct saev *saev, size_t shard);

/* saev_part_begin(): part I of N has the shards from I n / N on, rounded down,
 * to the first of part I + 1.  part <= n_parts <= 2^30: nothing overflows. */
size_t saev_part_begin(const struct saev *saev, size_t part, size_t n_parts);

/*
 * A view: some of the tokens of one layer or of all, in the order image,
 * layer, token.  A row of it is one activation, d floats.
 */
enum saev_tokens { SAEV_CLS, SAEV_IMAGE, SAEV_ALL };

/* Which rows of a view count: core/format/saev_mask makes it. */
#define SAEV_KEPT_BLOCK ((size_t)512)
struct saev_kept {
    size_t n_rows;  /* of the view, with those that do not count */
    uint64_t *bits; /* row i: bit i % 64 of bits[i / 64]; whole blocks */
    size_t *before; /* [blocks + 1]: rows that count before each block */
};

struct saev_view {
    const struct saev *saev;
    enum saev_tokens tokens;
    size_t layer0, n_layers;      /* places in saev->layers */
    size_t token0, n_tokens;      /* of each image and layer */
    size_t img_rows;              /* n_layers * n_tokens */
    size_t n_rows;                /* n_imgs * img_rows, or those that count */
    const struct saev_kept *kept; /* NULL: all do */
};

#define SAEV_ALL_LAYERS INT64_MIN

/*
 * saev_view_open(): 'layer' is a value listed in the metadata, or
 * SAEV_ALL_LAYERS.  -1 with 'err' set (EX_DATAERR): not listed, or CLS of a
 * dump without.  The saev is borrowed.
 */
int saev_view_open(struct saev_view *view, const struct saev *saev,
                   enum saev_tokens tokens, int64_t layer, struct err *err);

/* saev_view_keep(): rows of the view are those that count from now on, numbered
 * anew.  'kept' is borrowed; NULL: all do. */
void saev_view_keep(struct saev_view *view, const struct saev_kept *kept);

/* saev_view_img() is the first row of an image, img <= n_imgs.
 * saev_view_run(): so many rows from this one on are adjacent in a file. */
size_t saev_view_img(const struct saev_view *view, size_t img);
size_t saev_view_run(const struct saev_view *view, size_t row);

/* Where a row is. */
struct saev_place {
    size_t img;
    size_t layer;         /* place in saev->layers */
    size_t token;         /* 0 .. n_tokens - 1 */
    int64_t patch;        /* -1: CLS */
    size_t shard, offset; /* bytes into the shard's file */
};

/* saev_view_at(): row < view->n_rows.  saev_view_row() is its inverse: the
 * row of (img, layer place, token), or -1 if the view does not hold it, where
 * all rows count. */
struct saev_place saev_view_at(const struct saev_view *view, size_t row);
int64_t saev_view_row(const struct saev_view *view, size_t img, size_t layer,
                      size_t token);

#endif
