/* Batches for training: files, cuts of activations, a stream. */
#ifndef MOE_SFT_DATA_H
#define MOE_SFT_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/train.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/format/st.h"
#include "core/hash.h"
#include "core/kernel/gemm.h"
#include "core/map.h"
#include "core/par.h"
#include "core/perm.h"

/*
 * Batches by number, 0, 1, ..: files in turn or cuts of an array, again and
 * again, in the permutation of core/perm for (seed, round) if shuffled; or a
 * stream's, each once.
 */
struct array {
    const char *path;
    struct map map; /* .npy, or */
    struct st st;   /* a tensor of a safetensors file */
    enum dtype dtype;
    const uint8_t *data;
    size_t rows, cols;
};

struct data {
    const struct train_options *options;
    const struct base *base;
    struct gemm *gemm; /* of the router */
    uint64_t n;        /* of a round; 0: a stream */
    uint64_t n_read;   /* of the stream */
    struct array input, target;
    struct perm_item *order; /* of round 'round', if shuffled */
    uint64_t round;
};

int data_open(struct data *data, const struct train_options *options,
              const struct base *base, struct par *par, struct err *err);
void data_close(struct data *data); /* a zeroed struct is fine */

/*
 * data_get() reads batch i, with routing and target; a stream's are asked for
 * in order.  1, 0 at the stream's end, or -1 with 'err' set.
 * Owner: the caller, batch_close().
 */
int data_get(struct data *data, uint64_t i, struct batch *batch,
             struct err *err);

/* data_digest() adds the names of the data. */
void data_digest(const struct train_options *options, struct hash *hash);

#endif
