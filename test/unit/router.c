/* SPDX-License-Identifier: ISC */
/* core/model/router against a plain reference in double, as the formula of
 * transformers' Qwen3MoeSparseMoeBlock stands there, and by hand. */
#include "core/model/router.h"

#include <math.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/rng.h"
#include "test/unit/tap.h"

enum { MAX_N = 512 };

/* Softmax over all, then the k largest by plain search, then their sum. */
static void
reference(size_t *ids, double *weights, size_t k, const float *logits, size_t n,
          bool normalize)
{
    double p[MAX_N], all = 0, top = 0;

    for (size_t i = 0; i < n; i++)
        all += p[i] = exp((double)logits[i]);
    for (size_t j = 0; j < k; j++) {
        size_t best = 0;

        for (size_t i = 1; i < n; i++)
            if (p[i] > p[best])
                best = i;
        ids[j] = best;
        weights[j] = p[best] / all;
        top += weights[j];
        p[best] = -1;
    }
    for (size_t j = 0; normalize && j < k; j++)
        weights[j] /= top;
}

static void
test_reference(size_t n, size_t k, bool normalize)
{
    size_t want[MAX_N], n_other = 0;
    double weight[MAX_N], worst = 0;

    for (uint64_t token = 0; token < 200; token++) {
        float logits[MAX_N], p[MAX_N], weights[MAX_N];
        uint32_t ids[MAX_N];

        for (size_t i = 0; i < n; i++)
            p[i] = logits[i] = 16 * rng_f32(n + k, token, i) - 8;
        reference(want, weight, k, logits, n, normalize);
        router_select(ids, weights, k, p, n, normalize);
        for (size_t j = 0; j < k; j++) {
            n_other += ids[j] != want[j];
            worst = fmax(worst, fabs((double)weights[j] / weight[j] - 1));
        }
    }
    tap_ok(n_other == 0 && worst < 4e-6,
           "router_select: %zu of %zu%s, 200 tokens as in double (to %.1g)", k,
           n, normalize ? ", normalized" : "", worst);
}

/* Equals, and logits whose exp() no float holds. */
static void
test_ties(void)
{
    float p[] = { 1e4F, -1e4F, 1e4F, -INFINITY, 1e4F, 1e4F }, w[3];
    uint32_t ids[3];

    router_select(ids, w, 3, p, 6, false);
    tap_ok(ids[0] == 0 && ids[1] == 2 && ids[2] == 4,
           "router_select: the lower id first among equals");
    tap_ok(w[0] == 0.25F && w[1] == 0.25F && w[2] == 0.25F,
           "router_select: large logits are probabilities like others");
    tap_ok(p[5] == 0.25F && p[1] == 0 && p[3] == 0,
           "router_select: the probabilities of all");
}

/* Two exps that differ, and are the same divided by their sum: transformers
 * selects by what is divided. */
static void
test_after_division(void)
{
    enum { N = 256 };
    size_t n_ties = 0, n_wrong = 0;

    for (size_t round = 0; round < 64; round++) {
        float p[N], exps[N], weight;
        uint32_t id;

        for (size_t i = 0; i < N; i++)
            p[i] = -1 - (float)round / 64;
        p[1] = -0x1p-24F;
        p[N - 1] = 0;
        memcpy(exps, p, sizeof(p));
        vec_exp_sum(exps, 0, N);
        router_select(&id, &weight, 1, p, N, true);
        if (exps[1] == exps[N - 1] || p[1] != p[N - 1])
            continue;
        n_ties++;
        n_wrong += id != 1;
    }
    tap_ok(n_ties > 0 && n_wrong == 0,
           "router_select: by probabilities, not by exps, in %zu ties", n_ties);
}

/* By hand: keys 2 0 9 2 0, of which 9 is left out. */
static void
test_group(void)
{
    static const uint32_t keys[] = { 2, 0, 9, 2, 0 };
    static const uint32_t want[] = { 1, 4, 0, 3 };
    static const size_t begins[] = { 0, 2, 2, 4 };
    uint32_t slots[5];
    size_t begin[4];

    tap_ok(router_group(slots, begin, keys, 5, 3) == 4 &&
               !memcmp(slots, want, sizeof(want)) &&
               !memcmp(begin, begins, sizeof(begins)),
           "router_group: by key, then in their order");
    tap_ok(router_group(slots, begin, NULL, 0, 3) == 0 && begin[3] == 0,
           "router_group: of none");
}

int
main(void)
{
    static const size_t shapes[][2] = { { 1, 1 },    { 8, 2 },    { 60, 4 },
                                        { 128, 8 },  { 512, 10 }, { 7, 7 },
                                        { 129, 16 }, { 512, 512 } };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        test_reference(shapes[i][0], shapes[i][1], false);
        test_reference(shapes[i][0], shapes[i][1], true);
    }
    test_ties();
    test_after_division();
    test_group();
    return tap_done();
}
