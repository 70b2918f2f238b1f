/* SPDX-License-Identifier: ISC */
/*
 * SAEs at a model's hook points: their reconstructions in the place of its
 * activations, --sae, or changes of latents in these, --steer and --ablate.
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
#include "core/model/places.h"
#include "core/model/steer.h"
#include "core/opt_value.h"

struct chunk;
struct engine;
struct model;

/*
 * splices_open() opens SAEs, and has the model's blocks go on with what they
 * make of the activations at their hook points: by kind, their reconstructions,
 * or 0 if 'zero'; rows whose latents are changed by steer_parse(), or by
 * steer_ablate(); and those of an engine's steer_each.  Each spec is a path, or
 * PATH@HOOK where the file does not say which that is, or for another one; all
 * kinds but the first have ":" and the changes after it.  Engines are opened
 * after it.
 * -1 with 'err' set, as sae_open() does; EX_DATAERR for one of no hook point of
 * this model or of another size, and for the second one of a hook point;
 * TU_USAGE for a HOOK that is none, for changes that are none, for a change at
 * a hook point that has one, and for 'center' where that changes no SAE's rows.
 * Rows that an SAE was trained without, by core/format/sae_without.h, stay as
 * they are, with 'zero' and changes, too; EX_DATAERR where 'open_end' does not
 * say which.
 * Owner: the caller, until splices_close(), after the engines.
 */
enum splice_kind {
    SPLICE_SAE,
    SPLICE_STEER,
    SPLICE_ABLATE,
    SPLICE_EACH, /* at most one */
    N_SPLICE_KINDS
};
struct splices_options {
    struct opt_list specs[N_SPLICE_KINDS];
    struct steer_at at; /* of changes */
    bool zero;
    bool center;   /* all are of centred writing weights */
    bool screen;   /* see autoencoder_screen() */
    bool open_end; /* how long texts become is not known: else they have a
                    * session's max_tokens */
    /* which tokens [n] are special: 0, or -1 with 'err' set; NULL: rows are of
     * no text, and an SAE that leaves some out is EX_DATAERR */
    int (*special)(void *ctx, bool *is_special, size_t n, struct err *err);
    void *ctx;
};

/* The fields are read-only for others. */
struct splice {
    enum splice_kind kind;
    struct autoencoder a;
    struct steer steer; /* not of SPLICE_SAE */
    char *hook;         /* where it acts, as in its configuration */
    struct place place;
    bool *without; /* [vocab_size] ids whose rows stay; or NULL */
};
struct splices {
    struct model *model;
    struct splice *list; /* [n] in the order of their kinds */
    size_t n;
    bool zero;
    struct steer_at steer_at;
    const struct splice **at; /* [n_layers + 1, points]: of layers from -1 */
};

int splices_open(struct splices **splices, struct model *model,
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

/* splices_before() is how many layers run before the hook point of the last
 * one, the one of --ablate-each. */
size_t splices_before(const struct splices *splices);

/* splice_is_at(): is there one at this point?  splice_apply() replaces a
 * chunk's rows [n_rows, tap_dim()] by theirs, or changes them, if so; the
 * engine's ids are those of the chunk. */
bool splice_is_at(const struct model *model, int64_t layer,
                  enum tap_point point);
void splice_apply(struct engine *engine, const struct chunk *chunk,
                  int64_t layer, enum tap_point point, float *rows);

/* An engine has the memory for it from splices_work_open() to
 * splices_work_close(). */
int splices_work_open(struct engine *engine, struct err *err);
void splices_work_close(struct engine *engine);

#endif
