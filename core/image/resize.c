/* SPDX-License-Identifier: ISC */
#include "core/image/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/mem.h"

#define BITS  22 /* of a weight's fraction: 8 of a byte and 2 more are left */
#define BLOCK 16 /* elements of a row that are summed together */

static double
sinc(double x)
{
    return x == 0 ? 1 : f64_sin(x * M_PI) / (x * M_PI);
}

static double
box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

static double
bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Pillow's constants are floats. */
static double
hamming(double x)
{
    x = fabs(x);
    return x < 1 ? sinc(x) * (0.54f + 0.46f * f64_cos(x * M_PI)) : 0;
}

static double
bicubic(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double
lanczos(double x)
{
    return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[RESIZE_N_FILTERS] = {
    [RESIZE_LANCZOS] = { lanczos, 3 }, [RESIZE_BILINEAR] = { bilinear, 1 },
    [RESIZE_BICUBIC] = { bicubic, 2 }, [RESIZE_BOX] = { box, 0.5 },
    [RESIZE_HAMMING] = { hamming, 1 },
};

/* A weight as it is stored: rounded half away from 0. */
static void
put_weight(struct resize_axis *a, size_t i, double w, bool floats)
{
    if (floats)
        a->w.f32[i] = (float)w;
    else
        a->w.q22[i] = (int32_t)(w * (1 << BITS) + (w < 0 ? -0.5 : 0.5));
}

/* One side: 'in' pixels become 'out', of which the n from 'first' on are
 * wanted. */
static int
open_axis(struct resize_axis *a, const struct resize *want, size_t in,
          size_t out, size_t first, size_t n, struct err *err)
{
    double scale = (double)in / (double)out, stretch = scale > 1 ? scale : 1;
    double support = filters[want->filter].support * stretch;
    double x = scale * 0.5, *w;
    bool copies = in == out || want->filter == RESIZE_NEAREST;

    a->n_weights = copies ? 1 : smaller(in, 2 * (size_t)ceil(support) + 1);
    w = mem_try(a->n_weights, sizeof(*w), "weights of a picture", err);
    a->from = mem_try(n, sizeof(*a->from), "weights of a picture", err);
    a->n = mem_try(n, sizeof(*a->n), "weights of a picture", err);
    a->w.q22 = mem_try(n, a->n_weights * sizeof(*a->w.q22),
                       "weights of a picture", err);
    if (!w || !a->from || !a->n || !a->w.q22) {
        free(w);
        return -1;
    }
    for (size_t i = 0; i < first && want->filter == RESIZE_NEAREST; i++)
        x += scale; /* summed, as Pillow does */
    for (size_t i = 0; i < n; i++, x += scale) {
        double centre = scale * ((double)(first + i) + 0.5), sum = 0;
        double from = centre - support + 0.5, end = centre + support + 0.5;
        size_t j0 = from > 0 ? (size_t)from : 0;
        size_t n_j = smaller(in, (size_t)end) - j0;

        if (copies) {
            j0 = in == out ? first + i : smaller(in - 1, (size_t)x);
            n_j = 1;
        }
        for (size_t j = 0; j < n_j; j++) {
            w[j] = copies
                       ? 1
                       : filters[want->filter].weight(
                             ((double)(j0 + j) - centre + 0.5) * (1 / stretch));
            sum += w[j];
        }
        for (size_t j = 0; j < n_j; j++)
            put_weight(a, i * a->n_weights + j, sum != 0 ? w[j] / sum : w[j],
                       want->floats);
        a->from[i] = (uint32_t)j0;
        a->n[i] = (uint32_t)n_j;
    }
    free(w);
    return 0;
}

static void
close_axis(struct resize_axis *a)
{
    free(a->from);
    free(a->n);
    free(a->w.q22);
}

int
resize_open(struct resizer *r, const struct picture *from,
            const struct resize *want, struct err *err)
{
    size_t size = want->floats ? sizeof(float) : 1;

    *r = (struct resizer){ .want = *want, .from = from };
    if (open_axis(&r->cols, want, from->width, want->width, want->left,
                  want->n_cols, err) < 0 ||
        open_axis(&r->rows, want, from->height, want->height, want->top,
                  want->n_rows, err) < 0) {
        resize_close(r);
        return -1;
    }
    r->n_slots = r->rows.n_weights + 1; /* two rows are made at once */
    r->n_padded = (3 * want->n_cols + BLOCK - 1) / BLOCK * BLOCK;
    r->ring = mem_try(r->n_slots, r->n_padded * size, "rows of a picture", err);
    r->to = mem_try(r->n_padded, size, "rows of a picture", err);
    r->pairs =
        mem_try(from->width, 3 * sizeof(*r->pairs), "rows of a picture", err);
    if (!r->ring || !r->to || !r->pairs) {
        resize_close(r);
        return -1;
    }
    memset(r->ring, 0, r->n_slots * r->n_padded * size);
    return 0;
}

void
resize_close(struct resizer *r)
{
    close_axis(&r->rows);
    close_axis(&r->cols);
    free(r->ring);
    free(r->to);
    free(r->pairs);
    *r = (struct resizer){ 0 };
}

static uint8_t
clip(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/*
 * Two old rows at once, each in a half of 64 bits: half as many products.  A
 * negative sum below takes 1 from the one above, which is put back.
 */
static void
rows_bytes(uint8_t *to[2], const uint8_t *from[2], uint64_t *pairs,
           const struct resize_axis *a, size_t n)
{
    const uint64_t half = 1 << (BITS - 1);
    size_t first = 3 * (size_t)a->from[0];
    size_t end = 3 * ((size_t)a->from[n - 1] + a->n[n - 1]);

    for (size_t i = first; i < end; i++)
        pairs[i] = from[0][i] | (uint64_t)from[1][i] << 32;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *p = pairs + 3 * (size_t)a->from[i];
        const int32_t *w = a->w.q22 + i * a->n_weights;
        uint64_t red = half | half << 32, green = red, blue = red;

        for (size_t j = 0; j < a->n[i]; j++) {
            uint64_t weight = (uint64_t)(int64_t)w[j];

            red += p[3 * j] * weight;
            green += p[3 * j + 1] * weight;
            blue += p[3 * j + 2] * weight;
        }
        for (size_t c = 0; c < 3; c++) {
            uint64_t sum = c == 0 ? red : c == 1 ? green : blue;
            int32_t below = (int32_t)(uint32_t)sum;
            uint64_t above = sum - (uint64_t)(int64_t)below;

            to[0][3 * i + c] = clip(below);
            to[1][3 * i + c] = clip((int32_t)(above >> 32));
        }
    }
}

static void
row_floats(float *to, const uint8_t *from, const struct resize_axis *a,
           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = from + 3 * (size_t)a->from[i];
        const float *w = a->w.f32 + i * a->n_weights;
        float red = 0, green = 0, blue = 0;

        for (size_t j = 0; j < a->n[i]; j++) {
            red += p[3 * j] * w[j];
            green += p[3 * j + 1] * w[j];
            blue += p[3 * j + 2] * w[j];
        }
        to[3 * i] = red;
        to[3 * i + 1] = green;
        to[3 * i + 2] = blue;
    }
}

/* The old row y in the ring, as bytes or floats. */
static void *
slot(const struct resizer *r, size_t y)
{
    size_t size = r->want.floats ? sizeof(float) : 1;

    return (char *)r->ring + y % r->n_slots * r->n_padded * size;
}

static void
sum_bytes(uint8_t *to, const struct resizer *r, size_t y, size_t n,
          const int32_t *w)
{
    const uint8_t *ring = r->ring, *end = ring + r->n_slots * r->n_padded;
    const uint8_t *first = slot(r, y);

    for (size_t i = 0; i < r->n_padded; i += BLOCK) {
        const uint8_t *row = first;
        int32_t sum[BLOCK];

        for (int k = 0; k < BLOCK; k++)
            sum[k] = 1 << (BITS - 1);
        for (size_t j = 0; j < n; j++) {
            for (int k = 0; k < BLOCK; k++)
                sum[k] += row[i + k] * w[j];
            row += r->n_padded;
            row = row == end ? ring : row;
        }
        for (int k = 0; k < BLOCK; k++)
            to[i + k] = clip(sum[k]);
    }
}

static void
sum_floats(float *to, const struct resizer *r, size_t y, size_t n,
           const float *w)
{
    memset(to, 0, r->n_padded * sizeof(*to));
    for (size_t j = 0; j < n; j++) {
        const float *p = slot(r, y + j);

        for (size_t i = 0; i < r->n_padded; i++)
            to[i] += p[i] * w[j];
    }
}

const void *
resize_next(struct resizer *r)
{
    const struct resize_axis *a = &r->rows;
    size_t y = a->from[r->row], n = a->n[r->row], at = r->row * a->n_weights;

    r->row++;
    for (r->have = larger(r->have, y); r->have < y + n;) {
        size_t stride = r->from->width * 3, k = r->have;
        bool last = k + 1 == r->from->height;
        const uint8_t *from[2] = { r->from->rgb + k * stride,
                                   r->from->rgb + (k + !last) * stride };
        uint8_t *to[2] = { slot(r, k), slot(r, k + 1) };

        if (r->want.floats)
            row_floats(slot(r, k), from[0], &r->cols, r->want.n_cols);
        else
            rows_bytes(to, from, r->pairs, &r->cols, r->want.n_cols);
        r->have += r->want.floats ? 1 : 2;
    }
    if (r->want.floats)
        sum_floats(r->to, r, y, n, a->w.f32 + at);
    else
        sum_bytes(r->to, r, y, n, a->w.q22 + at);
    return r->to;
}
