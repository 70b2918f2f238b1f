/* SPDX-License-Identifier: ISC */
#include "core/model/train/difference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/rng.h"

enum { N_LOSSES = 12, N_FOURTH = N_LOSSES - 4 };

/* By how much of their size values move between two of the losses that the
 * noise is estimated by: some 64 units of the last place, so that all that is
 * computed of them is rounded anew, and what is not linear stays below the
 * loss's own last place. */
#define CLOSE 0x1p-18

/* The least noise, of 1 or a larger loss.  A cross-entropy near 0 is the
 * logarithm of an f32 sum near 1, whose places are 2^-23: the points above may
 * all give the same one.  A jump of that is up to 1.5 * 2^-23 / h in the error
 * (of four losses, each half a place off), and 12 times this the bound of it.
 */
#define LEAST_NOISE 0x1p-26

static double
norm_of(const float *v, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

int
difference_noise(struct difference *d, uint64_t seed, struct err *err)
{
    float *was = xcalloc(d->n, sizeof(*was));
    double size = norm_of(d->values, d->n) / sqrt((double)d->n);
    double loss[N_LOSSES], sum = 0;
    int rc = 0;

    memcpy(was, d->values, d->n * sizeof(*was));
    for (int k = 0; rc == 0 && k < N_LOSSES; k++) {
        for (size_t i = 0; i < d->n; i++) {
            double by = rng_u64(seed, 0, i) & 1 ? CLOSE : -CLOSE;

            /* a B that is 0 moves, too: else A would be without effect */
            by *= fabs((double)was[i]) + size;
            d->values[i] = (float)((double)was[i] + k * by);
        }
        rc = d->loss(d->ctx, &loss[k], err);
    }
    memcpy(d->values, was, d->n * sizeof(*was));
    free(was);
    for (int k = 0; rc == 0 && k < N_FOURTH; k++) {
        double t = loss[k] - 4 * loss[k + 1] + 6 * loss[k + 2] -
                   4 * loss[k + 3] + loss[k + 4];

        sum += t * t;
    }
    if (rc == 0)
        d->noise = fmax(sqrt(sum / (70 * N_FOURTH)),
                        LEAST_NOISE * fmax(1, fabs(loss[0])));
    return rc;
}

/* What one slope is of. */
struct along {
    const struct difference *d;
    size_t first, n;
    const double *direction; /* [n] */
    const float *grad, *was; /* [n] */
};

/* *error is e(h). */
static int
error_of(const struct along *a, double h, double *error, struct err *err)
{
    float *to = a->d->values + a->first;
    double loss[2] = { 0 }, moved = 0;
    int rc = 0;

    for (int minus = 0; rc == 0 && minus < 2; minus++) {
        double by = minus ? -h : h;

        for (size_t i = 0; i < a->n; i++) {
            to[i] = (float)((double)a->was[i] + by * a->direction[i]);
            moved += (minus ? -1 : 1) * (double)a->grad[i] *
                     ((double)to[i] - (double)a->was[i]);
        }
        rc = a->d->loss(a->d->ctx, &loss[minus], err);
    }
    memcpy(to, a->was, a->n * sizeof(*to));
    *error = (loss[0] - loss[1] - moved) / (2 * h);
    return rc;
}

/* A step of this bound by noise alone, if the values are not smaller. */
static double
first_step(const struct along *a, double enough)
{
    double most = norm_of(a->was, a->n) / 4;
    double h = enough > 0 ? 12 * a->d->noise / enough : 0;

    if (!(most > 0))
        most = 1;
    return h > 0 && h < most ? h : most;
}

/*
 * Is it the loss that jumps, as it does where a token gets another expert?  A
 * wrong gradient has the same e(h) for all small h; a jump between x and x + h
 * d adds J / 2 h to it, and 2 e(h / 2) - e(h / 4) is without that.  What is
 * left may be of other jumps, and is no error then.
 */
static int
without_jump(const struct along *a, double h, struct slope *slope,
             struct err *err)
{
    enum { N = 4 };
    double e[N], least = slope->error, most = slope->error;
    double noisy = 24 * a->d->noise / h;

    for (int i = 0; i < N; i++) {
        if (error_of(a, ldexp(h, -i), &e[i], err))
            return -1;
        least = fmin(least, e[i]);
        most = fmax(most, e[i]);
    }
    if (most - least < fabs(slope->error) / 2 + noisy)
        return 0;
    slope->bound = INFINITY;
    for (int i = 0; i + 2 < N; i++, noisy *= 2) {
        double left = 2 * e[i + 1] - e[i + 2];
        double bound = fabs(2 * e[i] - e[i + 1] - left) + noisy;

        bound = fmax(bound, fabs(left));
        if (bound < slope->bound)
            *slope = (struct slope){ left, bound };
    }
    return 0;
}

int
difference_slope(const struct difference *d, size_t first, size_t n,
                 const double *direction, const float *grad, double enough,
                 struct slope *slope, struct err *err)
{
    float *was = xcalloc(n, sizeof(*was));
    const struct along a = { d, first, n, direction, grad, was };
    int rc = 0, went = 0;
    double first_h, h;

    memcpy(was, d->values + first, n * sizeof(*was));
    *slope = (struct slope){ .bound = INFINITY };
    first_h = h = first_step(&a, enough / 2);
    for (int k = 0; rc == 0 && k < DIFFERENCE_STEPS; k++) {
        double whole, half, curved, apart, noisy = 12 * d->noise / h;
        struct slope of;
        int go;

        rc = error_of(&a, h, &whole, err);
        if (rc == 0)
            rc = error_of(&a, h / 2, &half, err);
        if (rc < 0)
            break;
        curved = fabs(whole - half) / 3;
        of = (struct slope){ (4 * half - whole) / 3, curved + noisy };
        apart = fabs(of.error - slope->error);
        if (went > 0 && apart > of.bound + slope->bound) {
            /* one of them went over a jump, and it is not known which */
            if (fabs(of.error) < fabs(slope->error))
                slope->error = of.error;
            slope->bound += of.bound + apart;
            break;
        }
        if (k == 0 || of.bound < slope->bound)
            *slope = of;
        /* towards the smaller of the two, and not back */
        go = curved > noisy ? -1 : 1;
        if (slope->bound <= enough || go == -went)
            break;
        went = go;
        h = go < 0 ? h / 4 : h * 4;
    }
    if (rc == 0 && fabs(slope->error) > slope->bound + enough)
        rc = without_jump(&a, first_h, slope, err);
    free(was);
    return rc;
}
