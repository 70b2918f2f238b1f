/* SPDX-License-Identifier: ISC */
/*
 * A RUN as it is shown: some of its latents, in an order, and all that is known
 * of one of them, checked, so that who writes it need not look for errors.
 */
#ifndef SAE_LOOK_VIEW_H
#define SAE_LOOK_VIEW_H

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/text/tok.h"

#define LENS_FILE "lens.safetensors"
enum lens_sign { LENS_PLUS, LENS_MINUS };
struct lens_token {
    int32_t id;
    float value;
};

/* What a latent goes with. */
struct look_pair {
    int64_t latent, rows;
    double jaccard; /* NaN: rows of the other alone are not known */
};

struct look_view {
    const struct look_cmd *cmd;
    struct look l;
    struct labels labels;
    struct tok *tok;   /* NULL: ids have no spellings */
    size_t *picked, n; /* places among the m of 'l' */

    /* of view_latent() */
    size_t i; /* of m */
    long latent;
    float max;
    const struct label *label;         /* or NULL */
    struct look_example *top, *sample; /* the sample by value, of equals */
    size_t n_top, n_sample;            /* the lower row first */
    struct lens_token *lens[LENS_MINUS + 1]; /* [n_lens] of a sign */
    size_t n_lens;                           /* 0: there is no LENS_FILE */

    struct st lens_st; /* private */
    const char *lens_id, *lens_value;
};

/*
 * view_open() opens the RUN of a command and the model of -m, and picks the
 * latents that follow the RUN, or of --latents, ascending, else the first
 * 'most' by --sort of those with the density that was asked for.
 * view_latent() reads the one at a place.  Each: 0, or -1 with 'err' set.
 * Owner: the caller, until view_close(), after an error, too.
 */
int view_open(struct look_view *v, const struct look_cmd *cmd, size_t most,
              struct err *err);
int view_latent(struct look_view *v, size_t i, struct err *err);
void view_close(struct look_view *v);

/* view_pairs() is what it was active with: the --pairs-shown other latents with
 * most rows in common, of equals the lower ones.  *n of them, 0 if they were
 * not counted; NULL with 'err' set (EX_SOFTWARE).  Owner: the caller, free().
 */
struct look_pair *view_pairs(const struct look_view *v, size_t *n,
                             struct err *err);

/* view_bins(): its bins from the first to before the end have all rows. */
void view_bins(const struct look_view *v, int *first, int *end);

/* view_quantile() is that of place j of the sample, 0 the strongest of
 * --quantiles equal parts; view_quantile_end() the place after the last of
 * j's. */
size_t view_quantile(const struct look_view *v, size_t j);
size_t view_quantile_end(const struct look_view *v, size_t j);

/* view_level() is how strong an f is, 1 to 10, of its largest; 0: it is not
 * active. */
int view_level(const struct look_view *v, float f);

/* view_token() appends a token's own bytes, or where they are unknown its id;
 * those of no token are none.  view_json() appends them as a JSON string. */
void view_token(const struct look_view *v, int32_t id, struct str *to);
void view_json(const struct look_view *v, int32_t id, struct str *to);

/* What is put in order: by key, descending, of equals the lower id. */
struct look_ranked {
    double key;
    int64_t id;
    size_t at;
};
void rank(struct look_ranked *r, size_t n);

/* tokens_open() opens the tokenizer of a model's directory; of NULL, and
 * 'needed' false where it has none, *tok is NULL.  0, or -1 with 'err' set.
 * Owner: the caller, tok_close(). */
int tokens_open(struct tok **tok, const char *dir, bool needed,
                struct err *err);

#endif
