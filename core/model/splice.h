/* SPDX-License-Identifier: ISC */
/*
 * Reconstructions of SAEs in the place of a model's activations: --sae.
 */
#ifndef CORE_MODEL_SPLICE_H
#define CORE_MODEL_SPLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/sae.h"
#include "core/kernel/screen.h"
#include "core/model/block.h"

struct chunk;
struct engine;
struct model;
struct splices;

/*
 * splices_open() opens SAEs, and has the model's blocks go on with what they
 * make of the activations at their hook points, or with 0 if 'zero'.  Each of
 * specs [n] is a path, or PATH@HOOK where the file does not say which that is,
 * or for another one.  Engines are opened after it.
 * -1 with 'err' set, as sae_open() does; EX_DATAERR for one of no hook point of
 * this model or of another size, and for the second one of a hook point;
 * TU_USAGE for a HOOK that is none, and for 'center' where that changes no
 * SAE's rows.
 * Rows that an SAE was trained without, by core/format/sae_without.h, stay as
 * they are, with 'zero', too; EX_DATAERR where 'open_end' does not say which.
 * Owner: the caller, until splices_close(), after the engines.
 */
struct splices_options {
    bool zero;
    bool center;   /* all are of centred writing weights */
    bool screen;   /* see autoencoder_screen() */
    bool open_end; /* how long texts become is not known: else they have a
                    * session's max_tokens */
    /* which tokens [n] are special: 0, or -1 with 'err' set */
    int (*special)(void *ctx, bool *is_special, size_t n, struct err *err);
    void *ctx;
};
int splices_open(struct splices **splices, struct model *model,
                 const char *const *specs, size_t n,
                 const struct splices_options *options, struct err *err);
void splices_close(struct splices *splices); /* NULL is fine */

/* splices_screened() adds up what they are screened by; NULL is fine. */
void splices_screened(const struct splices *splices, struct screen_counts *to);

/* splice_compare() warns where an SAE's own hook point is another place of a
 * model, or NULL, than 'at', both being known. */
void splice_compare(const struct sae *sae, const char *at,
                    const struct config *config);

/* splices_bos() is the file of one that was trained on texts that began with
 * bos, or NULL, as where there are none. */
const char *splices_bos(const struct splices *splices);

/* splices_file() is the file with the tensors of the i-th, splices_hook()
 * where it acts, as in its configuration, splices_without() what it leaves
 * alone.  They die with it. */
const char *splices_file(const struct splices *splices, size_t i);
const char *splices_hook(const struct splices *splices, size_t i);
const struct sae_without *splices_without(const struct splices *splices,
                                          size_t i);

/* splice_is_at(): is there one at this point?  splice_apply() replaces a
 * chunk's rows [n_rows, tap_dim()] by theirs if so; the engine's ids are those
 * of the chunk. */
bool splice_is_at(const struct model *model, int64_t layer,
                  enum tap_point point);
void splice_apply(struct engine *engine, const struct chunk *chunk,
                  int64_t layer, enum tap_point point, float *rows);

/* An engine has the memory for it from splices_work_open() to
 * splices_work_close(). */
int splices_work_open(struct engine *engine, struct err *err);
void splices_work_close(struct engine *engine);

#endif
