/*
 * The reference: column c adds to lane c % LANES; after EXACT_PART columns the
 * lanes are added in halves, and such sums in order.
 */
#include "core/kernel/scalar.h"

#define KERNEL(name, get, size)                                          \
    static float name##_part(const char *w, const float *x, size_t cols) \
    {                                                                    \
        float lane[LANES] = { 0 };                                       \
        size_t c = 0;                                                    \
                                                                         \
        for (; c + LANES <= cols; c += LANES)                            \
            for (size_t i = 0; i < LANES; i++)                           \
                lane[i] += get(w, c + i) * x[c + i];                     \
        for (size_t i = 0; c + i < cols; i++)                            \
            lane[i] += get(w, c + i) * x[c + i];                         \
        return sum_lanes(lane);                                          \
    }                                                                    \
                                                                         \
    static float name##_row(const char *w, const float *x, size_t cols)  \
    {                                                                    \
        float sum = name##_part(w, x, smaller(cols, EXACT_PART));        \
                                                                         \
        for (size_t c = EXACT_PART; c < cols; c += EXACT_PART)           \
            sum += name##_part(w + (size)*c, x + c,                      \
                               smaller(cols - c, EXACT_PART));           \
        return sum;                                                      \
    }                                                                    \
                                                                         \
    static void name(const struct gemv_args *a)                          \
    {                                                                    \
        const char *w = a->w;                                            \
                                                                         \
        for (size_t r = 0; r < a->rows; r++, w += (size)*a->cols)        \
            for (size_t i = 0; i < a->n_x; i++)                          \
                a->y[i * a->ldy + r] =                                   \
                    name##_row(w, a->x + i * a->ldx, a->cols);           \
    }

KERNEL(bf16, get_bf16, 2)
KERNEL(f16, get_f16, 2)
KERNEL(f32, get_f32, 4)

const struct gemv_ops gemv_scalar = { .bf16 = bf16, .f16 = f16, .f32 = f32 };
