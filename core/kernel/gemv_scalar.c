/* SPDX-License-Identifier: ISC */
/*
 * The reference: column c adds to lane c % LANES; after EXACT_PART columns the
 * lanes are added in halves, and such sums in order.
 */
#include "core/kernel/scalar.h"

INLINE float
part(const char *w, enum dtype t, const float *x, size_t cols)
{
    float lane[LANES] = { 0 };

    /* Lanes that the last columns do not reach add 0 * 0, too: it makes a -0
     * of underflow +0. */
    for (size_t c = 0; c < cols; c += LANES)
        for (size_t i = 0; i < LANES; i++)
            lane[i] = c + i < cols
                          ? fmaf(weight(w, t, c + i), x[c + i], lane[i])
                          : lane[i] + 0;
    return sum_lanes(lane, LANES);
}

INLINE float
product(const char *w, enum dtype t, const float *x, size_t cols)
{
    float sum = part(w, t, x, smaller(cols, EXACT_PART));

    for (size_t c = EXACT_PART; c < cols; c += EXACT_PART)
        sum += part(w + c * weight_nbytes(t), t, x + c,
                    smaller(cols - c, EXACT_PART));
    return sum;
}

INLINE void
products(const struct gemv_args *a, enum dtype t)
{
    const char *w = a->w;

    for (size_t r = 0; r < a->rows; r++, w += a->cols * weight_nbytes(t))
        for (size_t i = 0; i < a->n_x; i++) {
            float v = product(w, t, a->x + i * a->ldx, a->cols);

            a->y[i * a->ldy + r] = a->add ? a->y[i * a->ldy + r] + v : v;
        }
}

INLINE void
products_of_rows(const struct gemv_rows *a, enum dtype t)
{
    const char *w = a->w;

    for (size_t i = 0; i < a->n; i++)
        a->y[i] = product(w + a->idx[i] * a->cols * weight_nbytes(t), t, a->x,
                          a->cols);
}

INLINE void
products_by_k(const struct gemv_by_k *a, enum dtype t)
{
    for (size_t c = 0; c < a->n_k; c++)
        for (size_t i = 0; i < a->n_x && c % LANES < a->n_lanes; i++) {
            float *lane = a->lanes + (c % LANES * a->n_x + i) * a->ld;

            for (size_t r = 0; r < a->cols; r++)
                lane[r] = fmaf(weight(a->w + c * a->ldw, t, r),
                               a->x[i * a->ldx + c], lane[r]);
        }
}

static void
by_k(const struct gemv_by_k *a)
{
    BY_DTYPE(products_by_k, a);
}

static void
gemv(const struct gemv_args *a)
{
    BY_DTYPE(products, a);
}

static void
rows(const struct gemv_rows *a)
{
    BY_DTYPE(products_of_rows, a);
}

const struct gemv_ops gemv_scalar = { .gemv = gemv,
                                      .by_k = by_k,
                                      .rows = rows };
