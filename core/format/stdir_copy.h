/* SPDX-License-Identifier: ISC */
/* The files of a model's directory that are not its tensors. */
#ifndef CORE_FORMAT_STDIR_COPY_H
#define CORE_FORMAT_STDIR_COPY_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/stdir.h"

/* A file that gets another text; NULL: that is left out. */
struct stdir_text {
    const char *name, *text;
};

/*
 * stdir_copy_others() copies configuration, tokenizer and whatever else is in
 * the directory 'dir' into the directory 'to', which has none of these files.
 * No *.safetensors, no hidden files, and no weights in another form, which a
 * reader might prefer: a warning says that those are left out, as 'why', "the
 * adapter is not in", it or them.  -1 with 'err' set (EX_NOINPUT,
 * EX_CANTCREAT, EX_IOERR).
 */
int stdir_copy_others(const struct stdir *dir, const char *to,
                      const struct stdir_text *instead, size_t n_instead,
                      const char *why, struct err *err);

#endif
