/* SPDX-License-Identifier: ISC */
/* Batches for training: files, slices of activations, a stream. */
#ifndef MOE_SFT_DATA_H
#define MOE_SFT_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/verbs.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/format/st.h"
#include "core/hash.h"
#include "core/kernel/gemm.h"
#include "core/map.h"
#include "core/model/train/order.h"
#include "core/par.h"

/* Activations [rows, cols]: a .npy file, or a tensor of a safetensors file. */
struct array {
    const char *path;
    struct map map;
    struct st st;
    enum dtype dtype;
    const uint8_t *data;
    size_t rows, cols;
};

/*
 * Batches by number, 0, 1, ..: files, or slices of --length tokens of two
 * arrays, again and again, in the permutation of core/perm for (seed, epoch)
 * with --shuffle; or the batches of a stream, each once.
 */
struct data {
    const struct cmd *cmd;
    const struct base *base;
    struct gemm *gemm; /* of the router */
    uint64_t n;        /* batches of an epoch; 0: a stream */
    uint64_t n_read;   /* of the stream */
    struct array input, target;
    size_t length; /* tokens of a slice */
    struct train_order order;
};

int data_open(struct data *data, const struct cmd *cmd, const struct base *base,
              struct par *par, struct err *err);
void data_close(struct data *data); /* a zeroed struct is fine */

/*
 * data_get() reads batch i, with routing and target; those of a stream are
 * asked for in order.  1, 0 at the stream's end, or -1 with 'err' set.
 * Owner: the caller, batch_close().
 */
int data_get(struct data *data, uint64_t i, struct batch *batch,
             struct err *err);

/*
 * data_digest() adds what the data are to 'hash': all bytes of files, in their
 * order, or, where they are read only once, as a pipe, the name.
 * 0, or -1 with 'err' set.
 */
int data_digest(const struct data *data, struct hash *hash, struct err *err);

/* data_path() is the first of the names, for messages. */
const char *data_path(const struct data *data);

#endif
