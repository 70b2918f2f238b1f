/* SPDX-License-Identifier: ISC */
/*
 * The bytes that Python's json.dumps(json.loads(text), sort_keys=True) gives,
 * exactly: metadata is hashed in this form. Not through jansson, because Python
 * keeps what jansson loses: integers of any size, NaN and Infinity, lone
 * surrogates, NUL in keys, -0.0, 1e400.
 */
#ifndef CORE_PYJSON_H
#define CORE_PYJSON_H

#include <stddef.h>

#include "core/err.h"
#include "core/str.h"

/*
 * pyjson_indent() with 'indent' 0 appends the canonical form of the JSON
 * document 'text' to 'out': keys sorted by code point (of duplicates the last
 * counts), ", " and ": " as separators, everything but ASCII as \uXXXX, floats
 * as repr() gives them.  With 'indent' > 0 it is json.dumps(json.loads(text),
 * indent=indent): keys in the text's order, a line each.
 * 0, or -1 with 'err' set (EX_DATAERR, "NAME: line N, column N: ..."); 'out'
 * has a part of it then.  Nested at most PYJSON_DEPTH deep. Cost: each byte is
 * read once, and moved once for each object around it whose keys are not in
 * order; of n bytes it makes at most 6 n, or PYJSON_DEPTH * indent * n. Memory:
 * 50 n, and four times what it makes.
 */
#define PYJSON_DEPTH 64
int pyjson_indent(struct str *out, const char *text, size_t nbytes, int indent,
                  const char *name, struct err *err);

/* A member of the object that is the document.  All die with the call. */
struct pyjson_member {
    const char *key; /* its own bytes, UTF-8, maybe with lone surrogates */
    size_t key_nbytes;
    const char *value; /* canonical; both are NUL-terminated */
    /* as the text has them, quoted and escaped, without a NUL at the end */
    const char *key_text, *value_text;
    size_t key_text_nbytes, value_text_nbytes;
};

/*
 * pyjson_members() calls 'each' for the members of a document that must be an
 * object, in the text's order.  A key that appears twice, at any depth, is an
 * error, as is a byte order mark.  -1 with 'err' set, by this or by 'each'.
 */
int pyjson_members(const char *text, size_t nbytes, const char *name,
                   int (*each)(void *ctx, const struct pyjson_member *m,
                               struct err *err),
                   void *ctx, struct err *err);

/* py_float_repr() appends v as json.dumps() writes it: repr(v), "1e-05"; NaN
 * and the infinities are "NaN", "Infinity", "-Infinity". */
void py_float_repr(struct str *out, double v);

#endif
