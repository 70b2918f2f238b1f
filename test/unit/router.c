/* SPDX-License-Identifier: ISC */
/* core/model/router against a plain reference in double, as the formulas of
 * transformers' routers stand there, and by hand. */
#include "core/model/router.h"

#include <math.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/rng.h"
#include "test/unit/tap.h"

enum { MAX_N = 512 };

static const struct {
    const char *name;
    struct router_kind kind;
} kinds[] = {
    { "softmax", { .score = ROUTER_SOFTMAX } },
    { "softmax, normalized", { .normalize = true } },
    { "softmax, groups by their largest, x 16",
      { .groups = GROUPS_MAX,
        .n_groups = 4,
        .n_top_groups = 2,
        .masked = -INFINITY,
        .scaling = 16 } },
    { "softmax of the largest", { .score = ROUTER_TOP } },
    { "sigmoid", { .score = ROUTER_SIGMOID } },
    { "sigmoid, corrected, normalized, groups by their best two, x 2.5",
      { .score = ROUTER_SIGMOID,
        .groups = GROUPS_BEST_TWO,
        .n_groups = 4,
        .n_top_groups = 3,
        .corrected = true,
        .normalize = true,
        .floor = 1e-20F,
        .scaling = 2.5 } },
    { "sigmoid, corrected, one group",
      { .score = ROUTER_SIGMOID,
        .groups = GROUPS_BEST_TWO,
        .n_groups = 1,
        .n_top_groups = 1,
        .corrected = true,
        .normalize = true } },
};
enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };

static size_t
largest(const double *x, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Of a group, which has 4 or more. */
static double
score_of(enum router_groups groups, const double *of, size_t n)
{
    double copy[MAX_N], sum = 0;

    memcpy(copy, of, n * sizeof(*of));
    for (int i = 0; i < (groups == GROUPS_MAX ? 1 : 2); i++) {
        size_t at = largest(copy, n);

        sum += copy[at];
        copy[at] = -INFINITY;
    }
    return sum;
}

/* Selects if 'select', else weighs the ids that are given. */
static void
reference(const struct router *r, uint32_t *ids, double *weights,
          const double *logits, bool select)
{
    const struct router_kind *kind = r->kind;
    double p[MAX_N], choice[MAX_N], group[MAX_N], all = 0, top = 0;
    size_t n = kind->groups == GROUPS_NONE ? 1 : (size_t)kind->n_groups;
    size_t n_top = n == 1 ? 1 : (size_t)kind->n_top_groups, of = r->n / n;

    for (size_t i = 0; i < r->n; i++)
        all += p[i] = exp(logits[i]);
    for (size_t i = 0; i < r->n; i++) {
        p[i] = kind->score == ROUTER_SIGMOID ? 1 / (1 + exp(-logits[i]))
                                             : p[i] / all;
        choice[i] = p[i] + (kind->corrected ? (double)r->correction[i] : 0);
    }
    for (size_t g = 0; g < n; g++)
        group[g] = score_of(kind->groups, choice + g * of, of);
    for (size_t g = 0; g < n_top; g++)
        group[largest(group, n)] = -INFINITY;
    for (size_t i = 0; i < r->n; i++)
        if (group[i / of] > (double)-INFINITY)
            choice[i] = (double)kind->masked;
    for (size_t j = 0; j < r->k; j++) {
        if (select)
            ids[j] = (uint32_t)largest(choice, r->n);
        choice[ids[j]] = -INFINITY;
        weights[j] = p[ids[j]];
        top += weights[j];
    }
    for (size_t j = 0; j < r->k; j++) {
        if (kind->normalize || kind->score == ROUTER_TOP)
            weights[j] /= top + (double)kind->floor;
        weights[j] *= kind->scaling > 0 ? kind->scaling : 1;
    }
}

/* Of random logits, and by differences of what the reference makes of them. */
static void
test_reference(size_t kind, size_t n, size_t k)
{
    static float corrections[MAX_N];
    const struct router r = { &kinds[kind].kind, n, k, corrections };
    double weight[MAX_N], worst = 0, worst_back = 0;
    uint32_t want[MAX_N], ids[MAX_N];
    size_t n_other = 0;

    for (size_t i = 0; i < n; i++)
        corrections[i] = rng_f32(7, 1, i) - 0.5F;
    for (uint64_t token = 0; token < 200; token++) {
        float p[MAX_N], weights[MAX_N], dweights[MAX_N];
        double logits[MAX_N];

        for (size_t i = 0; i < n; i++)
            logits[i] = (double)(p[i] = 8 * rng_f32(n + k, token, i) - 4);
        reference(&r, want, weight, logits, true);
        router_select(&r, ids, weights, p);
        for (size_t j = 0; j < k; j++) {
            n_other += ids[j] != want[j];
            worst = fmax(worst, fabs((double)weights[j] / weight[j] - 1));
            dweights[j] = rng_f32(n, token, j) - 0.5F;
        }
        if (token >= 8)
            continue;
        for (size_t j = 0; j < k; j++)
            weight[j] = (double)dweights[j];
        router_backward(&r, p, ids, weights, dweights);
        for (size_t i = 0; i < n; i++) {
            double slope = 0, up[MAX_N], down[MAX_N], was = logits[i];

            logits[i] = was + 1e-5;
            reference(&r, ids, up, logits, false);
            logits[i] = was - 1e-5;
            reference(&r, ids, down, logits, false);
            logits[i] = was;
            for (size_t j = 0; j < k; j++)
                slope += weight[j] * (up[j] - down[j]) / 2e-5;
            worst_back = fmax(worst_back, fabs(slope - (double)p[i]));
        }
    }
    tap_ok(n_other == 0 && worst < 4e-6,
           "router_select: %zu of %zu, %s: 200 tokens as in double (to %.1g)",
           k, n, kinds[kind].name, worst);
    tap_ok(worst_back < 1e-6 * fmax(1, r.kind->scaling),
           "router_backward: %zu of %zu, %s: is the slope (to %.1g)", k, n,
           kinds[kind].name, worst_back);
}

/* Equals, and logits whose exp() no float holds. */
static void
test_ties(void)
{
    const struct router_kind softmax = { .score = ROUTER_SOFTMAX };
    float p[] = { 1e4F, -1e4F, 1e4F, -INFINITY, 1e4F, 1e4F }, w[3];
    uint32_t ids[3];

    router_select(&(struct router){ &softmax, 6, 3, NULL }, ids, w, p);
    tap_ok(ids[0] == 0 && ids[1] == 2 && ids[2] == 4,
           "router_select: the lower id first among equals");
    tap_ok(w[0] == 0.25F && w[1] == 0.25F && w[2] == 0.25F,
           "router_select: large logits are probabilities like others");
    tap_ok(p[5] == 0.25F && p[1] == 0 && p[3] == 0,
           "router_select: the probabilities of all");
}

/* By hand: groups that are equal, and corrections that make what is masked as 0
 * larger than what is not. */
static void
test_groups(void)
{
    struct router_kind kind = { .score = ROUTER_SIGMOID,
                                .groups = GROUPS_BEST_TWO,
                                .n_groups = 4,
                                .n_top_groups = 2,
                                .corrected = true };
    const float none[8] = { 0 };
    const float low[8] = { -3, -3, -1, -1, -3, -3, -3, -3 };
    const struct router equal = { &kind, 8, 3, none };
    const struct router negative = { &kind, 8, 3, low };
    float w[3];
    uint32_t ids[3];

    router_select(&equal, ids, w, (float[8]){ 0 });
    tap_ok(ids[0] == 0 && ids[1] == 1 && ids[2] == 2 && w[2] == 0.5F,
           "router_select: the lower group first among equals");
    router_select(&negative, ids, w, (float[8]){ 0 });
    tap_ok(ids[0] == 4 && ids[1] == 5 && ids[2] == 6 && w[0] == 0.5F,
           "router_select: masked groups are 0, more than what is negative");
    kind.masked = -INFINITY;
    router_select(&negative, ids, w, (float[8]){ 0 });
    tap_ok(ids[0] == 2 && ids[1] == 3 && ids[2] == 0,
           "router_select: or -inf, and never selected");
    /* 2 + 2 is more than 3 + 0 */
    kind = (struct router_kind){ .groups = GROUPS_BEST_TWO,
                                 .score = ROUTER_TOP,
                                 .n_groups = 2,
                                 .n_top_groups = 1,
                                 .masked = -INFINITY };
    for (int i = 0; i < 2; i++) {
        float p[8] = { 3, 0, 0, 0, 2, 2, 0, 0 };

        router_select(&(struct router){ &kind, 8, 2, NULL }, ids, w, p);
        tap_ok(ids[0] == (i ? 0 : 4) && ids[1] == (i ? 1 : 5),
               "router_select: groups by %s", i ? "the largest" : "two");
        kind.groups = GROUPS_MAX;
    }
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
        router_select(&(struct router){ &kinds[1].kind, N, 1, NULL }, &id,
                      &weight, p);
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

/* Rows 1 2 0 | 2 1 of two experts: their weighted rows are added in this order,
 * which shows in the last bit, by any number of threads. */
static void
test_moving(struct par *par, const char *threads)
{
    enum { COLS = 1027, K = 2, ROWS = 3, SLOTS = 5 };
    static const uint32_t slots[SLOTS] = { 2, 4, 0, 5, 3 };
    static const float weights[ROWS * K] = { .3F, 0, .7F, .9F, .1F, .6F };
    static float x[ROWS][COLS], moved[SLOTS][COLS + 3];
    static float y[SLOTS][COLS], sum[ROWS][COLS], want[ROWS][COLS];
    const struct router_slots s = { slots, SLOTS, K };
    bool copied = true;

    for (size_t j = 0; j < COLS; j++) {
        for (size_t i = 0; i < ROWS; i++)
            x[i][j] = sum[i][j] = want[i][j] = rng_f32(3, i, j);
        for (size_t i = 0; i < SLOTS; i++)
            y[i][j] = rng_f32(4, i, j) - 0.5F;
        for (size_t i = 0; i < SLOTS; i++)
            want[slots[i] / K][j] =
                fmaf(weights[slots[i]], y[i][j], want[slots[i] / K][j]);
    }
    router_gather(par, &s, moved, sizeof(moved[0]), x, sizeof(x[0]));
    for (size_t i = 0; i < SLOTS; i++)
        copied &= !memcmp(moved[i], x[slots[i] / K], sizeof(x[0]));
    tap_ok(copied, "router_gather: %s, a row twice", threads);
    router_scatter(par, &s, sum[0], weights, y[0], COLS);
    tap_ok(!memcmp(sum, want, sizeof(sum)), "router_scatter: %s, slot by slot",
           threads);
}

int
main(void)
{
    struct par *par;
    struct err err;
    static const size_t shapes[][2] = { { 8, 2 },    { 60, 4 }, { 128, 8 },
                                        { 512, 10 }, { 16, 8 }, { 132, 16 },
                                        { 256, 32 } };

    for (size_t kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            test_reference(kind, shapes[i][0], shapes[i][1]);
    test_reference(0, 1, 1);
    test_reference(1, 7, 7);
    test_ties();
    test_groups();
    test_after_division();
    test_group();
    test_moving(NULL, "1 thread");
    if (par_open(&par, 3, &err) < 0)
        return 1;
    test_moving(par, "3 threads");
    par_close(par);
    return tap_done();
}
