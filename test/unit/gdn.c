/* SPDX-License-Identifier: ISC */
/* Gated DeltaNet: its kernel on every instruction set, against float64. */
#include "core/kernel/vec.h"

#include <math.h>
#include <string.h>

#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { N = 150, GUARD = 77 };

/* Steps of the gated delta rule, whose state f64 keeps as well; it stays where
 * it is, or goes to and fro. */
static bool
check_delta(const struct vec_ops *ops, size_t n, bool stays)
{
    enum { VALUES = 5 };
    static float states[2][VALUES * N + 1];
    static double want[VALUES * N];
    float v[VALUES], o[VALUES + 1], k[N], q[N], given[VALUES + 1];
    bool good = true;

    memset(want, 0, sizeof(want));
    memset(states, 0, sizeof(states));
    states[0][VALUES * n] = states[1][VALUES * n] = GUARD;
    o[VALUES] = given[VALUES] = GUARD;
    for (int step = 0; step < 4; step++) {
        float *s = states[!stays && step % 2],
              *to = states[stays ? 0 : !(step % 2)];
        struct vec_delta t = {
            s, to, o, k, q, v, given, 0.9f, 0.7f, VALUES, n
        };

        for (size_t j = 0; j < VALUES; j++)
            v[j] = rnd();
        for (size_t i = 0; i < n; i++) { /* of length 1 about */
            k[i] = rnd() / sqrtf((float)n / 3);
            q[i] = rnd() / sqrtf((float)n / 3);
        }
        if (step == 3)
            t.given = NULL;
        ops->delta(&t);
        for (size_t j = 0; j < VALUES; j++) {
            double *w = want + j * n, r = 0, out = 0;

            for (size_t i = 0; i < n; i++) {
                w[i] *= (double)t.decay;
                r += w[i] * (double)k[i];
            }
            good &= !t.given ||
                    fabs(r - (double)t.decay * (double)given[j]) <= 1e-6;
            for (size_t i = 0; i < n; i++) {
                w[i] += (double)t.beta * ((double)v[j] - r) * (double)k[i];
                out += w[i] * (double)q[i];
                good &= fabs(w[i] - (double)to[j * n + i]) <= 1e-6;
            }
            good &= fabs(out - (double)o[j]) <= 2e-6;
        }
    }
    return good && states[0][VALUES * n] == GUARD &&
           states[1][VALUES * n] == GUARD && o[VALUES] == GUARD &&
           given[VALUES] == GUARD;
}

static void
test_delta(enum isa isa)
{
    bool good = true;

    for (size_t n = 0; n < N; n++)
        good &= check_delta(vec_ops_of(isa), n, true) &&
                check_delta(vec_ops_of(isa), n, false);
    tap_ok(good, "vec %s: delta's state and output against f64, n 0..149",
           isa_name(isa));
}

int
main(void)
{
    FOR_EACH_ISA(isa)
    test_delta(isa);
    return tap_done();
}
