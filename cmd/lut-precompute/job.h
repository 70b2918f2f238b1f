/*
 * A layer's file, and its entry in metadata.json.
 */
#ifndef LUT_PRECOMPUTE_JOB_H
#define LUT_PRECOMPUTE_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/lut-precompute/cmd.h"
#include "cmd/lut-precompute/digest.h"
#include "cmd/lut-precompute/sae.h"
#include "cmd/lut-precompute/target.h"
#include "cmd/lut-precompute/tile.h"
#include "core/str.h"

struct layer_job {
    const struct precompute_cmd *cmd;
    const struct target_model *model;
    const struct target_layer *target;
    const struct sae *sae;
    size_t k;
    struct str path; /* of the file */
    char *lut;       /* __metadata__'s text of the layer */
    struct digests digests;
};

/* job_open() fills the rest from the first four; -1 with 'err' set (EX_DATAERR:
 * SAE and layer do not fit).  Owner: the caller, until job_close(). */
int job_open(struct layer_job *job, struct err *err);
void job_close(struct layer_job *job);

/* job_nbytes() is how many bytes all tensors of its file have. */
uint64_t job_nbytes(const struct layer_job *job);

/* job_stopped() is -1 with 'err' set (EX_TEMPFAIL): sig_stop() has said so. */
int job_stopped(struct err *err);

/* Threads of a run. */
struct threads {
    struct par *par;
    struct par_worker *writing, *hashing; /* NULL with -j 1 */
};

/* job_is_there(): 1 if the file is there and of the same sources and options,
 * 0 if there is none; another one is -1 (EX_CANTCREAT) without --force. */
int job_is_there(struct layer_job *job, const struct threads *threads,
                 struct err *err);

/* job_write() makes the file, which appears whole or not at all; -1 with 'err'
 * set.  'done' counts operations, as tiles_write(). */
int job_write(struct layer_job *job, const struct threads *threads,
              struct tiles *tiles, struct progress *progress, uint64_t *done,
              struct err *err);

#endif
