#include "cmd/moe-sft/tensor.h"

#include <string.h>

#include "core/kernel/cvt.h"

#define PIECE 4096 /* numbers widened at a time */

void
tensor_bf16(uint16_t *to, const void *from, enum dtype dtype, size_t n)
{
    float piece[PIECE];
    size_t item = dtype_table[dtype].bits / 8;

    if (dtype == DT_BF16) {
        memcpy(to, from, n * sizeof(*to));
        return;
    }
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < PIECE ? n - i : PIECE;
        cvt_to_f32(piece, (const char *)from + i * item, dtype, k);
        cvt_from_f32(to + i, DT_BF16, piece, k);
    }
}
