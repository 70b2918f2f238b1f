/* SPDX-License-Identifier: ISC */
#include "core/kernel/vec.h"

#include <math.h>
#include <stdbool.h>

#include "core/kernel/ops.h"

static const struct vec_ops *
ops(void)
{
    return vec_ops_of(cpu_isa());
}

float
vec_dot(const float *a, const float *b, size_t n)
{
    return ops()->dot(a, b, n);
}

void
vec_axpy(float *y, float s, const float *x, size_t n)
{
    ops()->axpy(y, s, x, n);
}

void
vec_axpy_diff(float *y, float s, const float *x, const float *b, size_t n)
{
    ops()->axpy_diff(y, s, x, b, n);
}

void
vec_mul_add(float *y, const float *a, const float *b, size_t n)
{
    ops()->mul_add(y, a, b, n);
}

void
vec_delta(const struct vec_delta *d)
{
    ops()->delta(d);
}

void
vec_add(float *y, const float *x, size_t n)
{
    ops()->add(y, x, n);
}

void
vec_scale(float *y, float s, size_t n)
{
    ops()->scale(y, s, n);
}

float
vec_max(const float *x, size_t n)
{
    bool nan = false;
    float max = ops()->max(x, n, &nan);

    return nan ? NAN : max;
}

void
vec_rmsnorm(float *y, const float *x, const float *weight, float eps, size_t n)
{
    float mean = ops()->dot(x, x, n) / (float)n;
    double r = isfinite(mean) ? 1 / sqrt((double)mean + (double)eps) : NAN;

    ops()->scale_mul(y, x, (float)r, weight, n);
}

void
vec_center(float *y, const float *x, size_t n)
{
    double lane[8] = { 0 };
    float mean;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++)
            lane[k] += (double)x[i + k];
    for (; i < n; i++)
        lane[i % 8] += (double)x[i];
    for (size_t h = 4; h > 0; h /= 2)
        for (size_t k = 0; k < h; k++)
            lane[k] += lane[k + h];
    mean = (float)(lane[0] / (double)n);
    for (i = 0; i < n; i++)
        y[i] = x[i] - mean;
}

float
vec_exp_sum(float *x, float max, size_t n)
{
    return ops()->exp_sum(x, max, n);
}

void
vec_softmax_block(const struct softmax_block *b)
{
    ops()->softmax_block(b);
}

/* ACT_CLAMPED's numbers that quick_gelu gets; NaNs stay.  Where they are not
 * those of before, they have no slope. */
#define ACT_LIMIT 7.0F
enum { ACT_BLOCK = 256 };

static void
clamp_act(float *gate, float *up, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = from ? from[i] : 0;

        gate[i] = gate[i] > ACT_LIMIT ? ACT_LIMIT : gate[i];
        u = u > ACT_LIMIT ? ACT_LIMIT : u;
        up[i] = (u < -ACT_LIMIT ? -ACT_LIMIT : u) + 1;
    }
}

void
vec_act(enum act act, float *gate, const float *up, size_t n)
{
    float clamped[ACT_BLOCK];

    if (act < N_ACTS) {
        ops()->act[act](gate, up, n);
        return;
    }
    for (size_t i = 0, k; i < n; i += k) {
        k = smaller(ACT_BLOCK, n - i);
        clamp_act(gate + i, clamped, up ? up + i : NULL, k);
        ops()->act[ACT_QUICK_GELU](gate + i, clamped, k);
    }
}

void
vec_act_back(enum act act, float *h, float *gate, float *up, const float *dh,
             size_t n)
{
    float clamped[ACT_BLOCK];
    bool over[ACT_BLOCK], out[ACT_BLOCK];

    if (act < N_ACTS) {
        ops()->act_back[act](h, gate, up, dh, n);
        return;
    }
    for (size_t i = 0, k; i < n; i += k) {
        float *u = up ? up + i : NULL;

        k = smaller(ACT_BLOCK, n - i);
        for (size_t j = 0; j < k; j++) {
            over[j] = gate[i + j] > ACT_LIMIT;
            out[j] = u && fabsf(u[j]) > ACT_LIMIT;
        }
        clamp_act(gate + i, clamped, u, k);
        ops()->act_back[ACT_QUICK_GELU](h + i, gate + i, clamped, dh + i, k);
        for (size_t j = 0; j < k; j++) {
            gate[i + j] = over[j] ? 0 : gate[i + j];
            if (u)
                u[j] = out[j] ? 0 : clamped[j];
        }
    }
}

void
vec_rope(float *x, const float *cos, const float *sin, size_t half)
{
    ops()->rope(x, cos, sin, half);
}

void
vec_rope_pairs(float *x, const float *cos, const float *sin, size_t half)
{
    for (size_t i = 0; i < half; i++, x += 2) {
        float a = x[0], b = x[1];

        x[0] = a * cos[i] - b * sin[i];
        x[1] = b * cos[i] + a * sin[i];
    }
}

void
vec_softcap(float *x, float cap, size_t n)
{
    ops()->softcap(x, cap, n);
}

void
vec_softcap_back(float *dx, const float *y, float cap, size_t n)
{
    float by = 1 / cap;

    for (size_t i = 0; i < n; i++)
        dx[i] *= 1 - y[i] * by * (y[i] * by);
}

size_t
vec_argmax(const float *x, size_t n)
{
    bool nan = false;
    float max = ops()->max(x, n, &nan);

    for (size_t i = 0; i < n; i++)
        if (x[i] == max)
            return i;
    return 0;
}

/* The order of vec_topk(): larger first, then lower index; NaNs at the end. */
static bool
before(const float *x, uint32_t a, uint32_t b)
{
    bool nan_a = x[a] != x[a], nan_b = x[b] != x[b];

    if (nan_a != nan_b)
        return nan_b;
    if (!nan_a && x[a] != x[b])
        return x[a] > x[b];
    return a < b;
}

/* idx[0..k) is a heap with its last in the order on top; place i may be
 * wrong: moves it down. */
static void
sift(uint32_t *idx, size_t k, size_t i, const float *x)
{
    uint32_t v = idx[i];
    size_t child;

    while ((child = 2 * i + 1) < k) {
        if (child + 1 < k && before(x, idx[child], idx[child + 1]))
            child++;
        if (!before(x, v, idx[child]))
            break;
        idx[i] = idx[child];
        i = child;
    }
    idx[i] = v;
}

void
vec_topk(uint32_t *idx, size_t k, const float *x, size_t n)
{
    if (k == 0)
        return;
    for (size_t i = 0; i < k; i++)
        idx[i] = (uint32_t)i;
    for (size_t i = k / 2; i-- > 0;)
        sift(idx, k, i, x);
    for (size_t i = k; i < n; i++)
        if (!(x[i] <= x[idx[0]]) && before(x, (uint32_t)i, idx[0])) {
            idx[0] = (uint32_t)i;
            sift(idx, k, 0, x);
        }
    for (size_t i = k - 1; i > 0; i--) {
        uint32_t last = idx[0];

        idx[0] = idx[i];
        idx[i] = last;
        sift(idx, i, 0, x);
    }
}
