/*
 * A table's tensors, some rows at a time.  Memory is the packed weights of the
 * layer and TILE_BYTES, whatever the number of latents.
 */
#ifndef LUT_PRECOMPUTE_TILE_H
#define LUT_PRECOMPUTE_TILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/lut-precompute/cmd.h"
#include "cmd/lut-precompute/sae.h"
#include "cmd/lut-precompute/target.h"
#include "core/kernel/gemm.h"
#include "core/tty.h"

#define TILE_BYTES ((size_t)64 << 20)

/* A file is written while the next rows of it are made. */
struct writer {
    struct par_worker *worker; /* NULL: nothing is done beside */
    struct stw *w;
    int tensor; /* the piece that is being written */
    const void *data;
    size_t nbytes, offset;
    int rc; /* of it */
    struct err err;
};

struct tile_part {
    struct tiles *t;
    size_t col; /* of the table, where a part's columns begin */
};

struct tiles {
    struct gemm *gemm; /* borrowed, as all that is const */
    const struct target_layer *target;
    const struct sae *sae;
    enum dtype dtype;
    bool fold;  /* centring into encoder_bias */
    bool split; /* two bf16 products, which AMX makes faster than one of f32 */
    size_t rows, ld;
    float *f32;         /* [rows, in] */
    uint16_t *hi, *lo;  /* [rows, ld]; lo NULL: f32 is bf16 */
    float *p;           /* [rows, out], where numbers pass through f32 */
    void *rounded[2];   /* [rows, in or out]: one is filled, one written */
    int turn;           /* which is filled */
    atomic_size_t bad;  /* first row of a tile with what dtype cannot hold */
    double *bias, *b64; /* [n] encoder_bias, [in] decoder_bias */
    struct tile_part tile_parts[LUT_MAX_PARTS];
    struct writer writer;
    struct gemm_panels panels[LUT_MAX_PARTS];
    struct gemm_job jobs[LUT_MAX_PARTS];
    size_t packed_nbytes[LUT_MAX_PARTS];
};

/* tiles_open() packs the layer's weights; -1 with 'err' set: EX_SOFTWARE, no
 * memory.  Owner: the caller, until tiles_close(). */
int tiles_open(struct tiles *t, const struct precompute_cmd *cmd,
               struct gemm *gemm, const struct target_layer *target,
               const struct sae *sae, struct err *err);
void tiles_close(struct tiles *t); /* a zeroed struct is fine */

/* tiles_write() fills all tensors of an open file, and counts operations in
 * 'done'; stops early as sig_stop() says (EX_TEMPFAIL).  'worker' NULL: nothing
 * is done beside. */
struct table_handles {
    int encoder_weight, encoder_bias, decoder_weight, decoder_bias;
    int products, bias_product;
    int weight_t; /* -1: not stored */
};
int tiles_write(struct tiles *t, struct par_worker *worker, struct stw *w,
                const struct table_handles *h, struct progress *progress,
                uint64_t *done, struct err *err);

/* tiles_probe() makes products for about half a second: GFLOP/s. */
double tiles_probe(struct tiles *t);

#endif
