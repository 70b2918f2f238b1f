/* SPDX-License-Identifier: ISC */
/* Which latents of a RUN are shown, in which order, and their labels. */
#ifndef SAE_LOOK_PICK_H
#define SAE_LOOK_PICK_H

#include <stddef.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/str.h"

/*
 * pick_sorted() is the first 'most' latents of a RUN in an order, of those
 * whose density is in the range of the command: *n places among the m of the
 * RUN.  NULL with 'err' set (EX_SOFTWARE).  Owner: the caller, free().
 */
size_t *pick_sorted(const struct look *l, const struct look_cmd *cmd,
                    size_t most, size_t *n, struct err *err);

/* RUN/labels.tsv: a line "latent TAB label" for each latent that has one,
 * after one of names; a label is all up to the line's end, as it is. */
#define LABELS_FILE "labels.tsv"
struct labels {
    struct str text;
    struct label {
        int64_t latent;
        const char *s; /* [n] bytes of 'text' */
        size_t n;
    } * label; /* [n], ascending */
    size_t n;
};

/* labels_open() reads those of a RUN, none where there is no file.  0, or -1
 * with 'err' set (EX_DATAERR, EX_IOERR).  Owner: until labels_free().
 * labels_find() is that of a latent, or NULL. */
int labels_open(struct labels *labels, const struct look *l, struct err *err);
void labels_free(struct labels *labels);
const struct label *labels_find(const struct labels *labels, int64_t latent);

#endif
