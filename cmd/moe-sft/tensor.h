/* Tensors of files: their numbers as bf16, their names. */
#ifndef MOE_SFT_TENSOR_H
#define MOE_SFT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "core/format/st.h"

/* tensor_bf16() rounds n numbers of BF16, F16 or F32 to bf16. */
void tensor_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n);

#endif
