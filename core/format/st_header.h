/* SPDX-License-Identifier: ISC */
/*
 * The JSON of a safetensors header, read in one pass; only core/format/st.c
 * includes this.
 */
#ifndef CORE_FORMAT_ST_HEADER_H
#define CORE_FORMAT_ST_HEADER_H

#include "core/format/st.h"

/* What an open file owns: each by malloc(), NULL if there is none. */
struct st_arena {
    char *text; /* the header; names are decoded in place */
    struct st_tensor *tensors;
    uint64_t *dims; /* of all tensors, in their order */
    struct st_meta *meta;
    uint32_t *by_name;
};

/*
 * st_header_read() reads st->arena->text, st->header_n bytes and a NUL, into
 * tensors and metadata, in order of the header.  Each tensor alone is then
 * sound (dtype, size, begin); two may have the same name or overlap.  0, or -1
 * with 'err' set: EX_DATAERR, EX_SOFTWARE.  The text is overwritten.
 */
int st_header_read(struct st *st, struct err *err);

/* st_name_shown() is how many bytes of a name a message shows. */
int st_name_shown(const char *name, size_t nbytes);

#endif
