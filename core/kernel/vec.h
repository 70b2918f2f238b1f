/* SPDX-License-Identifier: ISC */
/*
 * Vectors of f32: what is between the matrices of a transformer.  All run
 * in the calling thread; pointers need no alignment.  Bits are the same on
 * every CPU, but those of NaNs: sums have lanes, whose halves are added at the
 * end.
 */
#ifndef CORE_KERNEL_VEC_H
#define CORE_KERNEL_VEC_H

#include <stddef.h>
#include <stdint.h>

/* vec_dot() = sum of a[i] * b[i]: FMA, i in lane i % 64; the last ones are
 * filled up with zeros. */
float vec_dot(const float *a, const float *b, size_t n);

/* y[i] += s * x[i] (FMA);  y[i] += s * (x[i] - b[i]), rounded before the FMA;
 * y[i] += a[i] * b[i] (FMA);  y[i] += x[i];  y[i] *= s. */
void vec_axpy(float *y, float s, const float *x, size_t n);
void vec_axpy_diff(float *y, float s, const float *x, const float *b, size_t n);
void vec_mul_add(float *y, const float *a, const float *b, size_t n);
void vec_add(float *y, const float *x, size_t n);
void vec_scale(float *y, float s, size_t n);

/*
 * vec_delta() is a step of the gated delta rule: each row s_j of a state s
 * [rows, n], the memory of value j by keys, which is read and written once, is
 * corrected by what it gives for k, then asked for q:
 *   d = beta (v[j] - decay s_j k);  s_j = decay s_j + d k;  o[j] = s_j q
 * The last one is summed as decay (s_j q) + d (k q), of the s_j before it. Sums
 * have number i in lane i % 32.
 */
struct vec_delta {
    const float *s;
    float *to, *o;          /* what s becomes, which may be s; [rows] */
    const float *k, *q, *v; /* [n], [n], [rows] */
    float *given;           /* [rows] s_j k, of the s_j before it; or NULL */
    float decay, beta;
    size_t rows, n;
};
void vec_delta(const struct vec_delta *d);

/* vec_max(): the largest element, -inf for n = 0; a NaN gives NaN, -0 is 0. */
float vec_max(const float *x, size_t n);

/*
 * vec_rmsnorm(): y[i] = x[i] * rsqrt(mean(x^2) + eps) * weight[i], the square
 * root in f64 of an f32 mean; NaN, not 0, where the mean leaves f32.  y may be
 * x.
 */
void vec_rmsnorm(float *y, const float *x, const float *weight, float eps,
                 size_t n);

/* vec_center(): y[i] = x[i] - mean(x), the mean rounded from f64, where i is in
 * lane i % 8.  y may be x. */
void vec_center(float *y, const float *x, size_t n);

/*
 * vec_exp_sum(): x[i] = exp(x[i] - max), and returns their sum: a softmax's
 * middle step.  Relative error of each exp under 2 ulp; exp(-inf) = 0.  The sum
 * has i in lane i % 16.
 */
float vec_exp_sum(float *x, float max, size_t n);

/*
 * vec_softmax_block() is a softmax's next SOFTMAX_BLOCK numbers of rows that
 * get theirs block by block: weights = bf16(exp(score - max)), 0 but for
 * begin .. end - 1, where max is the largest of the row so far, and total the
 * sum of exp(score - max) so far.  What was summed by older weights is to be
 * scaled by 'by', which is 1 where max stays.  A NaN among a row's scores is
 * in its total.
 */
#define SOFTMAX_BLOCK 64
struct softmax_block {
    uint16_t *weights;   /* [n, SOFTMAX_BLOCK], in the machine's order */
    const float *scores; /* [n, SOFTMAX_BLOCK], finite or not */
    size_t n, begin, end;
    float *max, *total, *by; /* [n]; before a row's first block -inf and 0, or
                              * a score and 1 */
};
void vec_softmax_block(const struct softmax_block *b);

/*
 * vec_act(): gate[i] = act(gate[i]) * up[i]; up NULL: 1.
 *   silu       g / (1 + exp(-g))
 *   gelu_tanh  g/2 * (1 + tanh(sqrt(2/pi) * (g + 0.044715 g^3)))
 *   gelu_erf   g/2 * (1 + erf(g / sqrt(2))), within 7 ulp
 *   relu       g where g > 0, else 0
 *   quick_gelu g / (1 + exp(-1.702 g))
 *   sigmoid    1 / (1 + exp(-g))
 *   clamped    quick_gelu(min(g, 7)) * (u + 1), where u = up[i] in [-7, 7];
 *              gpt-oss's
 */
enum act {
    ACT_SILU,
    ACT_GELU_TANH,
    ACT_GELU_ERF,
    ACT_RELU,
    ACT_QUICK_GELU,
    ACT_SIGMOID,
    N_ACTS,
    ACT_CLAMPED = N_ACTS /* has no kernel of its own */
};
void vec_act(enum act act, float *gate, const float *up, size_t n);

/* vec_act_back() goes back through h[i] = act(gate[i]) * up[i], of which it
 * gets dh and gives h again; gate and up become their gradients. */
void vec_act_back(enum act act, float *h, float *gate, float *up,
                  const float *dh, size_t n);

/*
 * vec_rope() rotates one head in place, half rotation, as Hugging Face's llama:
 * x1 = x[0..half), x2 = x[half..2 half):
 *   x1' = x1 c - x2 s,  x2' = x2 c + x1 s      cos, sin: [half]
 */
void vec_rope(float *x, const float *cos, const float *sin, size_t half);

/* vec_rope_pairs() is the same where x1 is x[0], x[2], .. and x2 is x[1],
 * x[3], ..: interleaved pairs, as GLM-4 and Cohere have them. */
void vec_rope_pairs(float *x, const float *cos, const float *sin, size_t half);

/*
 * vec_softcap(): x[i] = cap * tanh(x[i] / cap), within 3 ulp; a NaN stays.
 * vec_softcap_back() goes back through it, of which it gets y: dx[i] becomes
 * dx[i] * (1 - (y[i] / cap)^2).
 */
void vec_softcap(float *x, float cap, size_t n);
void vec_softcap_back(float *dx, const float *y, float cap, size_t n);

/* vec_argmax(): index of the largest, the lowest of equals; NaNs never win
 * (all NaN: 0). */
size_t vec_argmax(const float *x, size_t n);

/* vec_topk(): indices of the k largest, descending, ties to the lower index;
 * k <= n.  idx [k]. */
void vec_topk(uint32_t *idx, size_t k, const float *x, size_t n);

#endif
