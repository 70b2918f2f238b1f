/* SPDX-License-Identifier: ISC */
/*
 * The .bin file of a KV-cache compressor: for each layer of a model, small
 * MLPs that make one key (or value) of 'factor' consecutive ones.
 * Source: man/kvc.5, after the format of InfiniLM's compressor, version 1.
 */
#ifndef CORE_FORMAT_KVC_H
#define CORE_FORMAT_KVC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/map.h"

#define KVC_MAGIC        0x4b56434d /* the bytes "MCVK" */
#define KVC_VERSION      1
#define KVC_HEADER_BYTES 44
#define KVC_BLOCK_BYTES  12 /* before each block's numbers */
#define KVC_SLOTS        3  /* linear layers of an MLP */

/* InfiniLM's loader refuses files of more layers, weights of more numbers. */
#define KVC_MAX_LAYERS  10000
#define KVC_MAX_NUMBERS 100000000

/* The header's fields in their order; magic and version are checked. */
struct kvc_header {
    uint16_t dtype_code; /* 0 f16, 1 bf16, 2 f32 */
    uint16_t reserved;
    uint32_t num_layers, num_heads, head_dim;
    uint32_t hidden_size; /* cols of the first weight: factor * head_dim */
    uint32_t compression_factor;
    uint32_t min_seq_len; /* groups, of 'factor' tokens */
    uint32_t weight_count_per_layer;
    uint32_t metadata_size; /* bytes after the header */
};

/* The header's numbers of 32 bits in the order of the file. */
#define KVC_N_FIELDS 8
struct kvc_field {
    const char *name; /* the format's */
    size_t offset;    /* in struct kvc_header */
};
extern const struct kvc_field kvc_fields[KVC_N_FIELDS];
uint32_t kvc_field(const struct kvc_header *header, size_t i);

/* A linear layer: y = W x + bias. */
struct kvc_block {
    uint32_t rows, cols;
    uint32_t has_bias;   /* as in the file; loaders treat all but 0 as 1 */
    size_t at;           /* of these 12 bytes in the file */
    size_t weight, bias; /* of the numbers, [rows, cols] and [rows] */
};

struct kvc {
    char *path;
    struct map map;
    struct kvc_header header;
    enum dtype dtype;
    size_t n_blocks;
    struct kvc_block *blocks; /* [num_layers, weight_count_per_layer] */
    size_t end;               /* of the last block; more may follow */
};

/* kvc_code() is a type's code in the header, or -1. */
int kvc_code(enum dtype dtype);

/*
 * kvc_open() maps the file and walks through its blocks: all that a loader
 * reads is within the file.  kvc_check() says whether it makes sense. 0, or -1
 * with 'err' set: EX_NOINPUT, EX_DATAERR (magic, version, dtype code, no layers
 * or blocks, a shape with a 0, numbers beyond the end). Owner: the caller,
 * until kvc_close().
 */
int kvc_open(struct kvc *kvc, const char *path, struct err *err);
void kvc_close(struct kvc *kvc); /* a zeroed struct is fine */

/* kvc_sniff(): do these bytes begin such a file? */
bool kvc_sniff(const void *head, size_t nbytes);

/* kvc_put_header(), kvc_put_block() write the file's bytes. */
void kvc_put_header(unsigned char to[KVC_HEADER_BYTES],
                    const struct kvc_header *header);
void kvc_put_block(unsigned char to[KVC_BLOCK_BYTES], uint32_t rows,
                   uint32_t cols, bool has_bias);

/*
 * kvc_check() reports what an engine would fail on or compute wrong with, a
 * line each, and returns how many: MLPs whose shapes do not chain, a header
 * that contradicts the blocks, more layers or numbers than engines load, a bias
 * flag other than 0 or 1, bytes after the end, NaN and infinities.  n_layers:
 * of the model; 0: not known.
 */
int kvc_check(const struct kvc *kvc, size_t n_layers,
              void (*report)(void *ctx, const char *what), void *ctx);

/*
 * The parts of kvc_check() that a file's writer can check as well.  Each adds
 * to 'n'.  kvc_check_header(): 'cols' of the first block, of the file.
 * kvc_check_block(): block i of the file, which has 'n_bad' numbers that are
 * NaN or infinite.  kvc_check_mlp(): blocks i .. i + KVC_SLOTS - 1, which are
 * at 'b'.
 */
struct kvc_checker {
    const struct kvc_header *header;
    const char *path; /* before each line; NULL: nothing is */
    void (*report)(void *ctx, const char *what);
    void *ctx;
    size_t n; /* lines so far */
};
void kvc_check_header(struct kvc_checker *c, uint32_t cols);
void kvc_check_block(struct kvc_checker *c, size_t i, const struct kvc_block *b,
                     size_t n_bad);
void kvc_check_mlp(struct kvc_checker *c, size_t i, const struct kvc_block *b);

/* Prefixes in the order of engines: text keys, text values, then image. */
enum kvc_prefix { KVC_TEXT_K, KVC_TEXT_V, KVC_IMAGE_K, KVC_IMAGE_V };

#endif
