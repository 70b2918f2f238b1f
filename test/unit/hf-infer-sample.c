/* SPDX-License-Identifier: ISC */
/* hf-infer's sampler and stop strings. */
#include "cmd/hf-infer/sample.h"

#include <math.h>
#include <string.h>

#include "cmd/hf-infer/stop.h"
#include "test/unit/tap.h"

static const struct sampler neutral = { .temperature = 1,
                                        .top_p = 1,
                                        .repetition_penalty = 1 };

/* The kept ids as "2 0 1". */
static void
kept(const struct sampler *sampler, const float *logits, size_t n,
     const int32_t *seen, size_t n_seen, char *text, size_t size)
{
    float copy[8];
    struct sample *s = sample_new(n);
    const int32_t *id;
    const float *p;
    size_t k, at = 0;
    double sum = 0;

    memcpy(copy, logits, n * sizeof(*copy));
    k = sample_distribution(s, sampler, copy, seen, n_seen, &id, &p);
    for (size_t i = 0; i < k; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s%d", i ? " " : "",
                               (int)id[i]);
        sum += (double)p[i];
    }
    if (fabs(sum - 1) > 1e-6)
        snprintf(text, size, "probabilities sum to %g", sum);
    sample_free(s);
}

/* p = .4 .3 .2 .1 as logits. */
static const float four[4] = { -0.91629073f, -1.2039728f, -1.6094379f,
                               -2.3025851f };

static void
test_kept(const struct sampler *sampler, const float *logits, size_t n,
          const char *want, const char *name)
{
    char text[64] = "";

    kept(sampler, logits, n, NULL, 0, text, sizeof(text));
    tap_ok(!strcmp(text, want), "sample: %s keeps %s (%s)", name, want, text);
}

static void
test_filters(void)
{
    static const float tied[5] = { 1, 3, 2, 2, 0 };
    struct sampler s = neutral;

    test_kept(&s, four, 4, "0 1 2 3", "neutral");
    s.top_k = 2;
    test_kept(&s, four, 4, "0 1", "top-k 2");
    test_kept(&s, tied, 5, "1 2 3", "top-k 2 with a tie, all of the tie,");
    s = neutral;
    s.top_p = 0.65;
    test_kept(&s, four, 4, "0 1", "top-p 0.65 of .4 .3 .2 .1");
    s.top_p = 0.75;
    test_kept(&s, four, 4, "0 1 2", "top-p 0.75");
    s.top_p = 0;
    test_kept(&s, four, 4, "0", "top-p 0");
    s = neutral;
    s.min_p = 0.6;
    test_kept(&s, four, 4, "0 1", "min-p 0.6 of .4 .3 .2 .1");
    /* top-k 2 leaves 4/7 3/7: top-p 0.5 of that keeps the first */
    s = neutral;
    s.top_k = 2;
    s.top_p = 0.5;
    test_kept(&s, four, 4, "0", "top-p after top-k");
    /* temperature 1/2 squares: .16 .09 .04 .01 of .30, .533 .3 .. */
    s = neutral;
    s.temperature = 0.5;
    s.top_p = 0.5;
    test_kept(&s, four, 4, "0", "top-p after temperature");
}

/* Many logits with ties, zeros of both signs and infinities. */
static void
test_order(void)
{
    enum { N = 5000 };
    static const float odd[4] = { 0.0f, -0.0f, -INFINITY, 1e-40f };
    struct sample *s = sample_new(N);
    static float logits[N], copy[N];
    static bool seen[N];
    const int32_t *id;
    const float *p;
    size_t n, n_seen = 0;
    bool ok = true;

    for (size_t i = 0; i < N; i++)
        logits[i] = i % 9 ? (float)((i * 7919) % 1000) / 32 - 15 : odd[i % 4];
    memcpy(copy, logits, sizeof(copy));
    n = sample_distribution(s, &neutral, copy, NULL, 0, &id, &p);
    for (size_t i = 0; i < n; i++) {
        n_seen += !seen[id[i]];
        seen[id[i]] = true;
        if (i)
            ok &= logits[id[i - 1]] > logits[id[i]] ||
                  (logits[id[i - 1]] == logits[id[i]] && id[i - 1] < id[i]);
    }
    tap_ok(ok && n == N && n_seen == N,
           "sample: all candidates, descending, equals by id");
    sample_free(s);
}

static void
test_penalty(void)
{
    static const float logits[4] = { 2, -1, 1.5f, 0 };
    static const int32_t seen[4] = { 0, 1, 0, 77 };
    struct sampler s = neutral;
    float copy[4];
    struct sample *sample = sample_new(4);

    s.greedy = true;
    s.repetition_penalty = 2;
    memcpy(copy, logits, sizeof(copy));
    tap_ok(sample_next(sample, &s, copy, seen, 4, 0) == 2 && copy[0] == 1 &&
               copy[1] == -2 && copy[2] == 1.5f,
           "sample: the penalty divides what is positive, multiplies what is "
           "negative, once an id");
    sample_free(sample);
}

static void
test_draws(void)
{
    struct sampler s = neutral;
    struct sample *sample = sample_new(4);
    int count[4] = { 0 };
    int n = 40000, n_equal = 0;
    double chi2 = 0;
    static const double p[4] = { 0.4, 0.3, 0.2, 0.1 };

    s.seed = 5;
    for (int i = 0; i < n; i++) {
        float a[4], b[4];
        int32_t id;

        memcpy(a, four, sizeof(a));
        memcpy(b, four, sizeof(b));
        id = sample_next(sample, &s, a, NULL, 0, (uint64_t)i);
        n_equal += id == sample_next(sample, &s, b, NULL, 0, (uint64_t)i);
        count[id]++;
    }
    for (int i = 0; i < 4; i++)
        chi2 += (count[i] - n * p[i]) * (count[i] - n * p[i]) / (n * p[i]);
    tap_ok(n_equal == n, "sample: a draw is a function of seed and step");
    tap_ok(chi2 < 16.3,
           "sample: draws follow .4 .3 .2 .1 (chi2 %.1f, 3 "
           "degrees, 0.1 %% lies over 16.3)",
           chi2);
    sample_free(sample);
}

/* Feeds 'text' in pieces of 'step' bytes. */
static void
test_stop(const char *a, const char *b, const char *text, const char *want,
          bool want_stopped)
{
    for (size_t step = 1; step <= 4; step++) {
        struct stop stop = { .string = { a, b }, .n = b ? 2 : 1 };
        struct str out = { 0 };
        bool stopped = false;
        size_t n = strlen(text);

        for (size_t i = 0; i < n && !stopped; i += step)
            stopped = stop_pass(&stop, text + i, n - i < step ? n - i : step,
                                true, &out);
        if (!stopped)
            stopped = stop_end(&stop, &out);
        tap_ok(stopped == want_stopped && out.s && !strcmp(out.s, want),
               "stop: \"%s\" in \"%s\", %zu bytes at a time, gives \"%s\"", a,
               text, step, want);
        str_free(&out);
        stop_free(&stop);
    }
}

int
main(void)
{
    test_filters();
    test_order();
    test_penalty();
    test_draws();
    test_stop("END", NULL, "abcENDdef", "abc", true);
    test_stop("END", NULL, "abcEN", "abcEN", false);
    test_stop("aab", NULL, "xaaab", "xa", true);
    test_stop("zz", "bc", "abczz", "a", true);
    test_stop("abcd", "bc", "xabce", "xa", true);
    test_stop("abcd", "bc", "xabc", "xa", true);
    return tap_done();
}
