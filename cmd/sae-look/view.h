/* SPDX-License-Identifier: ISC */
/* What the pages and exports of a RUN have in common: the RUN, its labels, its
 * lens, the spellings of its tokens, and the latents that are shown. */
#ifndef SAE_LOOK_VIEW_H
#define SAE_LOOK_VIEW_H

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/format/look_labels.h"
#include "core/text/tok.h"

/* Which latents of a RUN are shown, and in which order. */

/*
 * pick_sorted() is the first 'most' latents of a RUN in an order, of those
 * whose density is in the range of the command: *n places among the m of the
 * RUN.  NULL with 'err' set (EX_SOFTWARE).  Owner: the caller, free().
 */
size_t *pick_sorted(const struct look *l, const struct look_cmd *cmd,
                    size_t most, size_t *n, struct err *err);

/*
 * pick_sample() sorts the sample of the i-th of m by value, largest first, of
 * equals the lower row: 'order' [l->sample.n] becomes their places in it, and
 * how many there are is returned.  Place j of n in that order is in quantile
 * pick_quantile(), 0 the strongest of 'q' equal parts; pick_quantile_end() is
 * the place after the last one in j's.
 */
size_t pick_sample(const struct look *l, size_t i, size_t *order);

static inline size_t
pick_quantile(size_t j, size_t n, size_t q)
{
    return j * q / n;
}

static inline size_t
pick_quantile_end(size_t j, size_t n, size_t q)
{
    size_t end = j + 1;

    while (end < n && pick_quantile(end, n, q) == pick_quantile(j, n, q))
        end++;
    return end;
}

/* pick_level() is how strong an f over 0 is, 1 to 10, of a latent's largest;
 * 0: it is not active. */
int pick_level(float f, float max);

/*
 * pick_pairs() is what the k-th of p goes with: the 'most' other latents of all
 * n with most rows in common, of equals the lower ones.  *n_pairs of them; NULL
 * with 'err' set (EX_SOFTWARE).  Owner: the caller, free().
 */
struct look_pair {
    int64_t latent, rows;
    double jaccard; /* NaN: rows of the other alone are not known */
};
struct look_pair *pick_pairs(const struct look *l, size_t k, size_t most,
                             size_t *n_pairs, struct err *err);

/* What the token ids of a RUN spell in the model that they are of. */

/* tokens_open() opens the tokenizer of a model's directory; of NULL, and
 * 'needed' false where it has none, *tok is NULL.  0, or -1 with 'err' set.
 * Owner: the caller, tok_close(). */
int tokens_open(struct tok **tok, const char *dir, bool needed,
                struct err *err);

/* tokens_json() appends the spelling of n ids as an array of strings, null for
 * an id that is none; tokens_one() of one id.  tokens_esc() appends an id's own
 * bytes, safe on a line, nothing of an unknown one. */
void tokens_json(struct str *to, const struct tok *tok, const int32_t *ids,
                 size_t n);
void tokens_one(struct str *to, const struct tok *tok, int32_t id);
void tokens_esc(struct str *to, const struct tok *tok, int32_t id);

/* RUN/lens.safetensors: the tokens that each latent's direction promotes and
 * suppresses. */

#define LENS_FILE "lens.safetensors"
enum lens_sign { LENS_PLUS, LENS_MINUS };

struct lens {
    struct st st; /* private */
    size_t n;     /* tokens of each sign; 0: there is no such file */
    const char *id, *value;
};

/* lens_open() opens that of a RUN, which must be of the same SAE.  0, or -1
 * with 'err' set (EX_DATAERR, EX_IOERR).  Owner: the caller, lens_close(). */
int lens_open(struct lens *lens, const struct look *l, struct err *err);
void lens_close(struct lens *lens); /* a zeroed struct is fine */

/* lens_get() is the token of a rank, 0 .. n - 1: 0, or -1 with 'err' set
 * (EX_DATAERR: it is no id and number). */
int lens_get(const struct lens *lens, size_t latent, enum lens_sign sign,
             size_t rank, int32_t *id, float *value, struct err *err);

struct look_view {
    struct look l;
    struct labels labels;
    struct tok *tok; /* NULL: ids have no spellings */
    struct lens lens;
    size_t *picked, n; /* places among the m of 'l' */
};

/*
 * view_open() opens the RUN of a command and the model of -m, and picks the
 * latents of --latents, else the first 'most' of an order.  0, or -1 with 'err'
 * set.  Owner: the caller, until view_close(), after an error, too.
 */
int view_open(struct look_view *v, const struct look_cmd *cmd, size_t most,
              struct err *err);
void view_close(struct look_view *v);

/* view_token() appends a token's own bytes, or where they are unknown its id;
 * those of no token are none. */
void view_token(const struct look_view *v, int32_t id, struct str *to);

#endif
