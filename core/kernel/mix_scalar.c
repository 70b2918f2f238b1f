/* The reference: the sums of mix.h, one number at a time. */
#include "core/kernel/mix.h"
#include "core/kernel/scalar.h"

#define KERNEL(name, get)                                     \
    static void name(const struct mix *m)                     \
    {                                                         \
        for (size_t i = 0; i < m->n; i++) {                   \
            const float *p = m->p + i * m->ldp;               \
            float *y = m->y + i * m->ldy;                     \
                                                              \
            for (size_t c = 0; c < m->cols && !m->add; c++)   \
                y[c] = 0;                                     \
            for (size_t r = 0; r < m->rows; r++)              \
                for (size_t c = 0; c < m->cols; c++)          \
                    y[c] += p[r] * get(m->w, r * m->ldw + c); \
        }                                                     \
    }

KERNEL(bf16, get_bf16)
KERNEL(f16, get_f16)
KERNEL(f32, get_f32)

const struct mix_ops mix_scalar = { .bf16 = bf16, .f16 = f16, .f32 = f32 };
