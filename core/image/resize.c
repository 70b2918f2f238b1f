/* SPDX-License-Identifier: ISC */
#include "core/image/resize.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define BITS  22 /* of a weight's fraction: 8 of a byte and 2 more are left */
#define BLOCK 16 /* elements of a row that are summed together */

/* One side; its weights are stored rounded half away from 0. */
static int
open_axis(struct resize_axis *a, const struct resize *want, size_t in,
          size_t out, size_t first, size_t n, struct err *err)
{
    const struct resampling *by = &a->by;

    if (resampling_open(&a->by, want->filter, in, out, first, n, err) < 0)
        return -1;
    a->w.q22 = mem_try(n, by->most * sizeof(*a->w.q22), "weights", err);
    for (size_t i = 0; a->w.q22 && i < n; i++)
        for (size_t j = 0, at = i * by->most; j < by->n[i]; j++, at++)
            if (want->floats)
                a->w.f32[at] = (float)by->weight[at];
            else
                a->w.q22[at] = (int32_t)(by->weight[at] * (1 << BITS) +
                                         (by->weight[at] < 0 ? -0.5 : 0.5));
    return a->w.q22 ? 0 : -1;
}

static void
close_axis(struct resize_axis *a)
{
    resampling_close(&a->by);
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
    r->n_slots = r->rows.by.most + 1; /* two rows are made at once */
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
    const uint64_t half = 1 << (BITS - 1), both = half | half << 32;
    size_t first = 3 * (size_t)a->by.from[0];
    size_t end = 3 * ((size_t)a->by.from[n - 1] + a->by.n[n - 1]);

    for (size_t i = first; i < end; i++)
        pairs[i] = from[0][i] | (uint64_t)from[1][i] << 32;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *p = pairs + 3 * (size_t)a->by.from[i];
        const int32_t *w = a->w.q22 + i * a->by.most;
        uint64_t sum[3] = { both, both, both };

        for (size_t j = 0; j < a->by.n[i]; j++)
            for (size_t c = 0; c < 3; c++)
                sum[c] += p[3 * j + c] * (uint64_t)(int64_t)w[j];
        for (size_t c = 0; c < 3; c++) {
            int32_t below = (int32_t)(uint32_t)sum[c];
            uint64_t above = sum[c] - (uint64_t)(int64_t)below;

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
        const uint8_t *p = from + 3 * (size_t)a->by.from[i];
        const float *w = a->w.f32 + i * a->by.most;
        float red = 0, green = 0, blue = 0;

        for (size_t j = 0; j < a->by.n[i]; j++) {
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
    size_t y = a->by.from[r->row], n = a->by.n[r->row],
           at = r->row * a->by.most;

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
