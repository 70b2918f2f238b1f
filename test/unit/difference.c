/* SPDX-License-Identifier: ISC */
/* core/model/train/difference on a function whose gradient and noise are known:
 * the sum of a sin(x), rounded to f32. */
#include "core/model/train/difference.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"
#include "test/unit/tap.h"

enum { N = 600, FIRST = 100, PART = 400 };

static float x[N], grad[N];
static double direction[PART];
static float was[N];
static int n_losses, fails_at;
static double jump, jumps_at; /* how much, and how far along */
static float size = 1;
static bool refused; /* as 'check' does, which adds 'enough' to the bound */

static double
weight(size_t i)
{
    return rng_f64(1, 1, i) - 0.5;
}

/* Around 3, where a last place of f32 is 2^-22. */
static int
loss(void *ctx, double *to, struct err *err)
{
    double sum = 3, along = 0;

    (void)ctx;
    for (size_t i = 0; i < N; i++)
        sum += weight(i) * sin((double)x[i]) / 100;
    for (size_t i = 0; i < PART; i++)
        along += direction[i] * (double)(x[FIRST + i] - was[FIRST + i]);
    sum += along > jumps_at ? jump : 0;
    *to = (double)(float)sum;
    return ++n_losses == fails_at ? err_set(err, EX_TEMPFAIL, "stopped") : 0;
}

static void
fill(void)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = size * (float)(rng_f64(1, 2, i) - 0.5);
        grad[i] = (float)(weight(i) * cos((double)x[i]) / 100);
    }
}

/* Along the gradient as it is now, or along signs. */
static void
point(bool signs)
{
    double norm = 0;

    for (size_t i = 0; i < PART; i++) {
        direction[i] =
            signs ? (rng_u64(1, 4, i) & 1 ? 1 : -1) : (double)grad[FIRST + i];
        norm += direction[i] * direction[i];
    }
    for (size_t i = 0; i < PART; i++)
        direction[i] /= sqrt(norm);
}

/* The error in units of the gradient's norm, and whether the bound keeps it. */
static double
error_of(const struct difference *d, bool *kept)
{
    double norm = 0;
    struct slope s;
    struct err err;

    for (size_t i = FIRST; i < FIRST + PART; i++)
        norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm);
    if (difference_slope(d, FIRST, PART, direction, grad + FIRST, 1e-3 * norm,
                         &s, &err) < 0)
        return NAN;
    refused = fabs(s.error) > s.bound + 1e-3 * norm;
    *kept = fabs(s.error) <= s.bound && s.bound < 3e-3 * norm;
    return fabs(s.error) / norm;
}

static void
test_jumps(const struct difference *d)
{
    bool kept;
    int n = 0;

    fill();
    jumps_at = 1e-9;
    for (int i = 0; i < 3; i++, jump = jump * 10 + 1e-4) {
        double error = error_of(d, &kept);

        tap_ok(kept, "a loss that jumps by %g is no error (%g)", jump, error);
    }
    for (size_t i = FIRST; i < FIRST + PART; i++)
        grad[i] *= 1.02F;
    tap_ok(error_of(d, &kept) > 0.016 && !kept,
           "2 %% too much is seen beside it");
    /* steps of a quarter of small values are too short, and longer ones jump */
    size = 0.003F;
    fill();
    memcpy(was, x, sizeof(x));
    point(false);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            jumps_at = 1e-3 * pow(1.3, i);
            jump = 4e-6 * pow(1.5, j);
            error_of(d, &kept);
            n += refused;
        }
    tap_ok(n == 0, "nor is a jump that only longer steps reach (%d of 256)", n);
    jump = 0;
    size = 1;
    fill();
    memcpy(was, x, sizeof(x));
}

int
main(void)
{
    struct difference d = { .loss = loss, .values = x, .n = N };
    const double place = ldexp(1, -22);
    struct err err;
    bool kept;
    int rc;

    fill();
    memcpy(was, x, sizeof(x));
    rc = difference_noise(&d, 7, &err);
    tap_ok(rc == 0 && d.noise > place / sqrt(12) / 2 &&
               d.noise < place / sqrt(12) * 2,
           "noise of rounding to f32 is its place / sqrt(12), within a factor "
           "of 2 (%g, %g)",
           d.noise, place / sqrt(12));
    tap_ok(!memcmp(was, x, sizeof(x)), "the noise's points are left");
    for (int signs = 0; signs < 2; signs++) {
        double error;

        point(signs);
        n_losses = 0;
        error = error_of(&d, &kept);
        tap_ok(kept, "a right gradient keeps the bound along %s (%g)",
               signs ? "signs" : "itself", error);
        tap_ok(n_losses <= 4 * DIFFERENCE_STEPS && !memcmp(was, x, sizeof(x)),
               "that took %d losses, and left the values", n_losses);
    }

    for (size_t i = 0; i < N; i++)
        grad[i] *= 1.01F;
    point(false);
    tap_ok(error_of(&d, &kept) > 0.008 && !kept, "1 %% too much is seen");
    test_jumps(&d);
    for (size_t i = FIRST; i < FIRST + PART; i++)
        grad[i] = -grad[i];
    point(false);
    tap_ok(error_of(&d, &kept) > 1.9 && !kept, "a wrong sign is seen");
    fill();
    for (size_t i = FIRST; i < FIRST + PART / 4; i++)
        grad[i] = 0;
    point(true);
    tap_ok(error_of(&d, &kept) > 3e-3 && !kept,
           "a quarter that is missing is seen along signs");
    point(false);
    tap_ok(error_of(&d, &kept) < 3e-3 && kept,
           "but not along the gradient, of which it has no part");

    fill();
    point(false);
    for (int i = 1; i <= 4; i++) {
        n_losses = 0;
        fails_at = i;
        tap_ok(isnan(error_of(&d, &kept)) && !memcmp(was, x, sizeof(x)),
               "loss %d fails: so does the slope, and leaves the values", i);
    }
    n_losses = 0;
    tap_ok(difference_noise(&d, 7, &err) < 0 && !memcmp(was, x, sizeof(x)),
           "so does the noise");
    return tap_done();
}
