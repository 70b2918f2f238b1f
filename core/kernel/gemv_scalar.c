/*
 * The reference: column c adds to lane c % LANES; after EXACT_PART columns the
 * lanes are added in halves, and such sums in order.  Product and sum round
 * separately: a CPU without FMA would need a function call for each.
 */
#include "core/dtype.h"
#include "core/kernel/ops.h"

#define LANES 8 /* two registers of the four floats that x86-64 begins with */

static inline float
get_bf16(const void *w, size_t i)
{
    return bf16_to_f32(load16(w, i));
}

/* Times 2^112 moves the exponent's bias from 15 to 127, denormals too. */
static inline float
get_f16(const void *w, size_t i)
{
    uint32_t h = load16(w, i);
    uint32_t a = (h & 0x7fff) << 13;
    float f = f32_from_bits(a) * 0x1p112f;

    /* Infinity and NaN come out as 65536 and more: their exponent is 255. */
    if (a >= 0x0f800000)
        f = f32_from_bits(a | 0x7f800000);
    return f32_from_bits(f32_bits(f) | (h & 0x8000) << 16);
}

static inline float
get_f32(const void *w, size_t i)
{
    return load_f32(w, i);
}

static inline float
reduce(float *lane)
{
    for (size_t n = LANES / 2; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

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
        return reduce(lane);                                             \
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
