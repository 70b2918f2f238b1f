/* SPDX-License-Identifier: ISC */
/*
 * A layer's file: its tensors, its description of itself, and whether it is
 * right.
 */
#ifndef LUT_PRECOMPUTE_JOB_H
#define LUT_PRECOMPUTE_JOB_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/lut-precompute/cmd.h"
#include "cmd/lut-precompute/target.h"
#include "core/format/sae.h"
#include "core/hash.h"
#include "core/kernel/gemm.h"
#include "core/str.h"
#include "core/tty.h"

/* SHA-256 of matrices: a chain that threads cannot share, and so, of large
 * SAEs, worth computing next to the products. */
struct digest {
    struct weight_piece parts[(WEIGHT_PIECES + 1) * LUT_MAX_PARTS];
    size_t n;               /* parts */
    char hex[HASH_MAX_HEX]; /* "": not computed */
};

enum { OF_SAE, OF_WEIGHTS, N_DIGESTS };

struct layer_job {
    const struct precompute_cmd *cmd;
    const struct target_model *model;
    const struct target_layer *target;
    const struct sae *sae;
    size_t k;         /* k_active */
    bool over;        /* the table has thresholds, */
    bool one;         /* the same for all latents */
    const char *name; /* of the layer, in its table */
    struct str path;  /* of the file */
    char *lut;        /* __metadata__'s text of the layer */
    struct digest digests[N_DIGESTS];
    struct par_worker *hashing; /* that computes them; NULL: none does */
    atomic_bool quit;
};

/* Threads of a run. */
struct job_threads {
    struct par *par;
    struct gemm *gemm;
    struct par_worker *writing, *hashing; /* NULL with -j 1 */
};

/* job_open() fills the rest from the first four; -1 with 'err' set (EX_DATAERR:
 * SAE and layer do not fit).  Owner: the caller, until job_close(). */
int job_open(struct layer_job *job, struct err *err);
void job_close(struct layer_job *job);

/* job_nbytes() is how many bytes all tensors of its file have; job_flop() how
 * many operations its products take. */
uint64_t job_nbytes(const struct layer_job *job);
uint64_t job_flop(const struct layer_job *job);

/* job_stopped() is -1 with 'err' set (EX_TEMPFAIL): sig_stop() was true. */
int job_stopped(struct err *err);

/* job_exists(): 1 if the file exists and is of the same sources and options, 0
 * if there is none; another one is -1 (EX_CANTCREAT) without --force. */
int job_exists(struct layer_job *job, const struct job_threads *threads,
               struct err *err);

/* job_write() makes the file, which appears whole or not at all; -1 with 'err'
 * set.  'done' counts operations. */
int job_write(struct layer_job *job, const struct job_threads *threads,
              struct progress *progress, uint64_t *done, struct err *err);

/* tiles_write() fills all tensors of an open file, whose handles are enum
 * lut_tensor: job_write()'s; and with --screen, scale, error and int8 from
 * 'shadow' on.  It stops early as sig_stop() says (EX_TEMPFAIL).
 * Memory: see TILE_BYTES. */
struct stw;
int tiles_write(const struct layer_job *job, const struct job_threads *threads,
                struct stw *w, int shadow, struct progress *progress,
                uint64_t *done, struct err *err);

/* job_threshold() is latent i's threshold. */
float job_threshold(const struct layer_job *job, size_t i);

/* tiles_probe() computes products for about half a second: *rate is GFLOP/s. */
int tiles_probe(const struct layer_job *job, const struct job_threads *threads,
                double *rate, struct err *err);

/* job_verify() compares the file with a sample in f64, and prints a line of a
 * table, with its header first unless '*header': 0, 1 if it differs, or -1 with
 * 'err' set. */
int job_verify(const struct layer_job *job, struct par *par, bool *header,
               struct err *err);

#endif
