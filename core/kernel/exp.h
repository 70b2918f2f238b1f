/* SPDX-License-Identifier: ISC */
/*
 * The constants of every instruction set's exp(): e^x = 2^n e^r with
 * n = round(x / ln 2) and |r| <= ln 2 / 2, where n * EXP_LN2_HI is exact
 * (9 bits) and the rest of ln 2 is subtracted after it (Cody and Waite), and
 * e^r = 1 + r + r^2 P(r), P of degree 4 (coefficients: Cephes' expf).
 */
#ifndef CORE_KERNEL_EXP_H
#define CORE_KERNEL_EXP_H

#define EXP_MAX        89.0f     /* e^89 overflows, */
#define EXP_MIN        -104.0f   /* e^-104 is under half the smallest float */
#define EXP_WEIGHT_MIN -88.0f    /* 2^n with n = -127 there, and 0 for it */
#define EXP_ROUND      0x1.8p23f /* plus and minus it: to the nearest integer */
#define EXP_LOG2E      1.44269504088896341f
#define EXP_LN2_HI     0.693359375f
#define EXP_LN2_LO     -2.12194440e-4f
#define EXP_P0         1.9875691500e-4f
#define EXP_P1         1.3981999507e-3f
#define EXP_P2         8.3334519073e-3f
#define EXP_P3         4.1665795894e-2f
#define EXP_P4         1.6666665459e-1f
#define EXP_P5         5.0000001201e-1f

/* gelu's sqrt(2/pi) (g + 0.044715 g^3), doubled: see vec_act(). */
#define GELU_A 1.5957691216057308f
#define GELU_B 0.044715f

#define QUICK_GELU 1.702f /* of CLIP: g sigmoid(1.702 g) */

/*
 * gelu_erf's Phi(-x) = exp(-x^2 / 2) u P(u), u = 1 / (1 + NORMAL_U x), for x of
 * 0 .. NORMAL_MAX, where it is 0: P of degree 8 is within 5e-8 of it (Remez'
 * algorithm, relative error).
 */
#define NORMAL_MAX  15.0f
#define NORMAL_U    0.35f
#define NORMAL_P0   -0.029159545317f
#define NORMAL_P1   0.14403915041f
#define NORMAL_P2   -0.25585635501f
#define NORMAL_P3   0.1593399335f
#define NORMAL_P4   -0.023226583f
#define NORMAL_P5   0.10555866588f
#define NORMAL_P6   0.11981968683f
#define NORMAL_P7   0.13986373963f
#define NORMAL_P8   0.1396212911f
#define NORMAL_PEAK 0.39894228040143268f /* 1 / sqrt(2 pi) */

/* tanh z = z + z^3 P(z^2) of |z| < TANH_SMALL, P of degree 4 (coefficients:
 * Cephes' tanhf), else 1 - 2 / (exp(2 z) + 1). */
#define TANH_SMALL 0.625f
#define TANH_P0    -5.70498872745e-3f
#define TANH_P1    2.06390887954e-2f
#define TANH_P2    -5.37397155531e-2f
#define TANH_P3    1.33314422036e-1f
#define TANH_P4    -3.33332819422e-1f

#endif
