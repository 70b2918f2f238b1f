/* SPDX-License-Identifier: ISC */
/* Labels of the latents of a RUN, sae-look(5). */
#ifndef CORE_FORMAT_LOOK_LABELS_H
#define CORE_FORMAT_LOOK_LABELS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/look.h"
#include "core/str.h"

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
