/* Tensors of files: their numbers as bf16, their names. */
#ifndef MOE_SFT_TENSOR_H
#define MOE_SFT_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/format/st.h"

/* tensor_bf16() rounds n numbers of BF16, F16 or F32 to bf16. */
void tensor_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n);

/*
 * The parts of a name: PREFIX, the expert's number and a dot where it has
 * one, and the tail that was asked for, "gate_proj.weight".
 */
struct name {
    size_t prefix_n; /* bytes */
    int64_t layer;   /* N of the last "layers.N." of the prefix; -1: none */
    int64_t expert;  /* -1: none */
};
bool name_parse(struct name *name, const struct st_tensor *t, const char *tail);

#endif
