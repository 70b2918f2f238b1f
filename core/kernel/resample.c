/* SPDX-License-Identifier: ISC */
#include "core/kernel/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/mem.h"

static const double supports[] = { 0, 3, 1, 2, 0.5, 1, 2 };

static double
sinc(double x)
{
    return x == 0 ? 1 : f64_sin(x * M_PI) / (x * M_PI);
}

static double
filter_at(enum resample filter, double x)
{
    double a = filter == RESAMPLE_FOUR ? -0.75 : -0.5, y = fabs(x);

    switch (filter) {
    case RESAMPLE_BOX:
        return x > -0.5 && x <= 0.5 ? 1 : 0;
    case RESAMPLE_BILINEAR:
        return y < 1 ? 1 - y : 0;
    case RESAMPLE_HAMMING: /* Pillow's constants are floats */
        return y < 1 ? sinc(y) * (0.54f + 0.46f * f64_cos(y * M_PI)) : 0;
    case RESAMPLE_LANCZOS:
        return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    default: /* Keys' cubic convolution */
        return y < 1   ? ((a + 2) * y - (a + 3)) * y * y + 1
               : y < 2 ? (((y - 5) * y + 8) * y - 4) * a
                       : 0;
    }
}

/* The weights of new number i, whose centre is among the old ones. */
static void
weigh(const struct resampling *r, size_t i, enum resample filter, size_t in,
      double centre, double stretch)
{
    double reach = supports[filter] * stretch, sum = 0;
    int64_t first = (int64_t)floor(centre - reach + 0.5);
    int64_t end = (int64_t)(centre + reach + 0.5), last = (int64_t)in - 1;
    size_t from = first > 0 ? smaller((size_t)first, in - 1) : 0;
    double *weight = r->weight + i * r->most;

    r->from[i] = (uint32_t)from;
    r->n[i] = (uint32_t)(smaller((size_t)end, in) - from);
    memset(weight, 0, r->n[i] * sizeof(*weight));
    for (int64_t j = first; j < end; j++) {
        double w =
            filter_at(filter, ((double)j - centre + 0.5) * (1 / stretch));

        if ((j < 0 || j > last) && filter != RESAMPLE_FOUR)
            continue;
        weight[(j < 0 ? 0 : j > last ? in - 1 : (size_t)j) - from] += w;
        sum += w;
    }
    for (size_t j = 0; j < r->n[i] && sum != 0; j++)
        weight[j] /= sum;
}

int
resampling_open(struct resampling *r, enum resample filter, size_t in,
                size_t out, size_t first, size_t n, struct err *err)
{
    double scale = (double)in / (double)out, x = scale * 0.5;
    double stretch = scale > 1 && filter != RESAMPLE_FOUR ? scale : 1;
    bool copies = in == out || filter == RESAMPLE_NEAREST;
    size_t most = 2 * (size_t)ceil(supports[filter] * stretch) + 1;

    r->most = copies ? 1 : smaller(in, most);
    r->from = mem_try(n, sizeof(*r->from), "resampling", err);
    r->n = mem_try(n, sizeof(*r->n), "resampling", err);
    r->weight = mem_try(n, r->most * sizeof(*r->weight), "resampling", err);
    if (!r->from || !r->n || !r->weight)
        return -1;
    for (size_t i = 0; i < first && filter == RESAMPLE_NEAREST; i++)
        x += scale; /* summed, as Pillow does */
    for (size_t i = 0; i < n; i++, x += scale) {
        r->from[i] =
            (uint32_t)(in == out ? first + i : smaller(in - 1, (size_t)x));
        r->n[i] = 1;
        r->weight[i * r->most] = 1;
        if (!copies)
            weigh(r, i, filter, in, scale * ((double)(first + i) + 0.5),
                  stretch);
    }
    return 0;
}

void
resampling_close(struct resampling *r)
{
    free(r->from);
    free(r->n);
    free(r->weight);
}
