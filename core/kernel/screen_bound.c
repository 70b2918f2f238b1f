/* SPDX-License-Identifier: ISC */
/*
 * The bound.  u = 2^-24; E is a row of W, F what is known of it: the same row
 * in bf16, or int8 times a scale.  b is what is known of x: x in bf16, or int16
 * times a scale.  |.| is the Euclidean norm; s is the sum F b as it is
 * computed, q the sum E x of the exact class, p = fl(q + bias) what is wanted
 * and p' = fl(s + bias) what is known.
 *
 *   q - s = (q - E x) + (E - F) x + F (x - b) + (F b - s)
 *
 * A sum of products in f32, in any order, by FMA or of products that are exact
 * (those of bf16 are), errs by at most h u / (1 - h u) times the sum of the
 * products' magnitudes, h being the roundings that a product passes through
 * (Higham, Accuracy and Stability, 4.2); and the sum of |E_j x_j| is at most
 * |E||x| (Cauchy).  h is at most in + 31 for the lanes of both classes
 * together with what fills them up, or less, and less than in / 256 + 200 for
 * all that adds lanes and parts; int8's sums are exact, and rounded three times
 * at the end.  With |b| <= (1 + 2^-8) |x|, and h u < 2^-7:
 *
 *   |q - s| <= |F| (|x - b| + h u (1 + 2^-6) |x|) + |E - F| (1 + 2 h u) |x| + T
 *
 * T is what is lost to denormals, which hardware may take for 0 on the way in
 * and out: less than 2^-126 (256 (|b| + |F|) + 2^18).  HEADROOM roundings more
 * than there are give more than T where |x| is 2^-40 or more, and |F| is taken
 * for 2^-40 or more.  Nothing overflows up to 2^60, with biases up to 2^100.
 * w = a |F| + b |E - F|, where a and b are the factors above times 1 + MARGIN,
 * hence bounds |q - s| by a wide margin for what the norms, which are f32 sums,
 * lose (2^-17), and for u |p'| where |p'| < 2 w.
 *
 * What is kept is U = fl(fl(p' + a |F|) + b |E - F|), by FMA.  Rounding is
 * monotonic, so
 *
 *   U <= 0:  p <= 0, as then p' (1 - u) + |q - s| <= 0
 *   U > 0:   p <= U (1 + 4 u), and p >= U (1 - 8 u) - w (2 + 4 u)
 *
 * The k-th largest of some rows' lower bounds is at most the k-th largest p:
 * no row whose U is under it, by its upper bound, is among the k largest.
 * test/unit/screen.c hunts for violations.
 *
 * int16 of x: no sum may leave int32.  By Cauchy the sum of |b_j| is at most
 * sqrt(in) |x| and half a step for each column, so that a step of
 * sqrt(in) |x| / (2^31 / 128 - in) is enough; and |x - b| is then at most
 * sqrt(in) / 2 steps, 2^-8 |x| up to 65536 columns.
 */
#include <math.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/ops.h"
#include "core/kernel/screen_impl.h"
#include "core/kernel/vec.h"

#define HEADROOM 256
#define MARGIN   0x1p-10
#define MIN_NORM 0x1p-40
#define MAX_NORM 0x1p60
#define MAX_BIAS 0x1p100

#define PART 1024 /* columns at a time */

/* ---- rows of W ---- */

/* Of a square that f32 summed, rounded up. */
static float
norm_of(double square)
{
    double norm = fmax(sqrt(square) * (1 + 0x1p-16), MIN_NORM);

    return isnan(square) ? INFINITY : (float)(norm * (1 + 0x1p-20));
}

/* What |E - F| is at most, of the square of a difference which f32 computed:
 * rounded by u |F|, and squares under 2^-150 are 0. */
static float
lost_of(double square, float norm)
{
    double lost = sqrt(square) * (1 + 0x1p-16) + 0x1p-23 * (double)norm;

    return (float)((lost + 0x1p-60) * (1 + 0x1p-20));
}

static void
half_row(const struct gemm_matrix *w, size_t i, float *norm, float *lost)
{
    float e[PART], f[PART];
    uint16_t half[PART];
    double all = 0, rest = 0;

    for (size_t c = 0, n; c < w->k; c += n) {
        n = smaller(w->k - c, PART);
        weight_read(e, &w->weight, i, c, n);
        if (w->weight.dtype != DT_BF16) {
            cvt_from_f32(half, DT_BF16, e, n);
            cvt_to_f32(f, half, DT_BF16, n);
            for (size_t j = 0; j < n; j++)
                e[j] -= f[j]; /* exact */
            rest += (double)vec_dot(e, e, n);
            memcpy(e, f, sizeof(e));
        }
        all += (double)vec_dot(e, e, n);
    }
    *norm = norm_of(all);
    *lost = w->weight.dtype == DT_BF16 ? 0 : lost_of(rest, *norm);
}

void
screen_shadow_row(const struct gemm_matrix *w, size_t i, int8_t *to,
                  float *scale, float *error)
{
    const struct gemm_ops *ops = gemm_ops_of(cpu_isa());
    double rest = 0, all = 0;
    float e[PART], f[PART], max = 0;

    for (size_t c = 0, n; c < w->k; c += n) {
        n = smaller(w->k - c, PART);
        weight_read(e, &w->weight, i, c, n);
        max = fmaxf(max, ops->absmax(e, DT_F32, n));
        all += (double)vec_dot(e, e, n);
    }
    /* a NaN, or numbers whose squares f32 has not: the row cannot be used */
    *scale = max >= 0x1p-60f && max <= 0x1p60f ? max / 127 : 0;
    for (size_t c = 0, n; c < w->k; c += n) {
        n = smaller(w->k - c, PART);
        weight_read(e, &w->weight, i, c, n);
        if (*scale > 0)
            ops->quantize(to + c, e, DT_F32, 1 / *scale, n);
        else
            memset(to + c, 0, n);
        for (size_t j = 0; j < n; j++)
            f[j] = to[c + j];
        vec_axpy(e, -*scale, f, n);
        rest += (double)vec_dot(e, e, n);
    }
    *error = lost_of(rest, norm_of(all));
}

/* |F| of a row of int8 at most, which is not read for it: about 4 times it, but
 * |E - F| makes up nearly all of the bound. */
static float
shadow_norm(size_t in, float scale)
{
    return norm_of((double)in * 128 * 128 * (double)scale * (double)scale);
}

/* Does the bound hold for all rows? */
static void
check(struct screen_form *f, const struct screen *s)
{
    f->ready = true;
    f->usable = true;
    f->lossless = true;
    for (size_t i = 0; i < s->w.n; i++) {
        f->usable &= f->norm[i] <= MAX_NORM && f->lost[i] >= 0 &&
                     f->lost[i] <= MAX_NORM && fabsf(s->bias[i]) <= MAX_BIAS;
        f->lossless &= f->lost[i] == 0;
    }
}

static void
half_rows(void *ctx, size_t begin, size_t end)
{
    struct screen *s = ctx;

    for (size_t i = begin; i < end; i++)
        half_row(&s->w, i, &s->half.norm[i], &s->half.lost[i]);
}

void
screen_prepare_half(struct screen *s, struct gemm *gemm)
{
    par_for(gemm_par(gemm), s->w.n, 64, half_rows, s);
    check(&s->half, s);
    if (s->half.usable)
        gemm_pack(gemm, &s->panels, &s->w);
}

static void
shadow_rows(void *ctx, size_t begin, size_t end)
{
    struct screen *s = ctx;
    size_t in = s->w.k;

    for (size_t i = begin; i < end; i++) {
        if (s->made) {
            screen_shadow_row(&s->w, i, s->made + i * in, &s->scale[i],
                              &s->shadow.lost[i]);
        } else {
            s->scale[i] = load_f32(s->stored.scale, i);
            s->shadow.lost[i] = load_f32(s->stored.error, i);
        }
        s->shadow.norm[i] = shadow_norm(in, s->scale[i]);
    }
}

void
screen_prepare_shadow(struct screen *s, struct gemm *gemm)
{
    par_for(gemm_par(gemm), s->w.n, 64, shadow_rows, s);
    check(&s->shadow, s);
}

/* ---- a row of x ---- */

struct screen_slack
screen_slack(size_t in, double norm, double lost)
{
    double hu = ((double)in * (1 + 0x1p-8) + 231 + HEADROOM) * 0x1p-24;

    norm *= 1 + 0x1p-16;
    lost *= 1 + 0x1p-16;
    if (!(norm >= 2 * MIN_NORM && norm <= MAX_NORM)) /* NaN, too */
        return (struct screen_slack){ 0, 0 };
    return (struct screen_slack){
        .a = (float)((lost + hu * (1 + 0x1p-6) * norm) * (1 + MARGIN)),
        .b = (float)(norm * (1 + 2 * hu) * (1 + MARGIN)),
    };
}
