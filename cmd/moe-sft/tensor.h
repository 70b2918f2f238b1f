/*
 * Tensors of files, as messages name them: found, expected.
 */
#ifndef MOE_SFT_TENSOR_H
#define MOE_SFT_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/st.h"

#define ANY_SIZE UINT64_MAX

/*
 * tensor_want() checks a tensor's type (BF16, F16 or F32) and its shape, of
 * which 'want' may leave sizes open (ANY_SIZE); 'words' says what is expected:
 * "experts, rank, hidden".  -1 with 'err' set (EX_DATAERR).
 */
int tensor_want(const char *path, const struct st_tensor *t, size_t n_dims,
                const uint64_t *want, const char *words, struct err *err);

/* tensor_shape() checks the shape alone. */
int tensor_shape(const char *path, const struct st_tensor *t, size_t n_dims,
                 const uint64_t *want, const char *words, struct err *err);

/* tensor_missing(): EX_DATAERR "FILE: has no tensor NAME". */
int tensor_missing(const char *path, const char *name, struct err *err);

/* tensor_bf16() rounds n numbers of BF16, F16 or F32 to bf16. */
void tensor_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n);

/*
 * A name taken apart: PREFIX, the expert's number and a dot where there is
 * one, and the tail that it was asked for, "gate_proj.weight".
 */
struct name {
    size_t prefix_n; /* bytes */
    int64_t layer;   /* N of the last "layers.N." of the prefix; -1: none */
    int64_t expert;  /* -1: none */
};
bool name_parse(struct name *name, const struct st_tensor *t, const char *tail);

#endif
