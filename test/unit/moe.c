/* SPDX-License-Identifier: ISC */
/*
 * The operator against the same formulas in float64: each tensor and each
 * expert by itself.
 */
#include "test/unit/moe-ref.h"

/* ---- accuracy ---- */

static const struct spec specs[] = {
    { "E4 k2 H96 I80 r5", 4, 2, 96, 80, 5, 60, ANY, 0, 0, 0, PLAIN },
    { "primes", 3, 2, 101, 67, 3, 41, ANY, 0, 0, 0, PLAIN },
    { "300 tokens", 2, 2, 64, 128, 8, 300, ANY, 0, 0, 0, PLAIN },
    { "one expert, rank 1", 1, 1, 130, 190, 1, 33, ANY, 0, 0, 0, PLAIN },
    { "one token", 5, 2, 64, 64, 4, 1, ANY, 0, 0, 0, PLAIN },
    { "rank 70", 2, 2, 96, 80, 70, 40, ANY, 0, 0, 0, PLAIN },
    { "skewed, an idle expert", 5, 2, 96, 160, 8, 64, SKEWED, 0, 0, 0, PLAIN },
    { "duplicates", 3, 3, 64, 96, 4, 30, SAME, 0, 0, 0, PLAIN },
    { "saturating", 3, 2, 96, 80, 5, 30, ANY, 1, 1, 60, PLAIN },
    { "outlier rows", 3, 2, 96, 80, 5, 60, ANY, 0, 0, 0, OUTLIERS },
    { "bad ids", 3, 3, 64, 96, 4, 40, BAD, 0, 0, 0, PLAIN },
    { "gpt-oss", 4, 2, 96, 150, 5, 60, ANY, 0, 0, 0, CLAMPED },
    { "gpt-oss, beyond limits", 4, 3, 64, 96, 4, 50, BAD, 0, 0, 3, CLAMPED },
};
#define N_SPECS (sizeof(specs) / sizeof(*specs))

static void
test_accuracy(const struct spec *s)
{
    struct data d = data_new(*s);
    struct ref ref = ref_new(&d);
    struct got g = got_new(s);

    if (run_once(&d, MOE_BF16, 1, 2, &g))
        judge(&d, &ref, &g, "", 0.01, 0.015);
    else
        tap_ok(false, "%s runs", s->name);
    if (run_once(&d, MOE_INT8, 1, 2, &g))
        judge(&d, &ref, &g, ", int8", 0.05, 0.06);
    else
        tap_ok(false, "%s, int8 runs", s->name);
    if (run_once(&d, MOE_BF16, 2, 2, &g))
        judge(&d, &ref, &g, ", 2 parts", 0.01, 0.015);
    else
        tap_ok(false, "%s, 2 parts run", s->name);
    got_free(&g);
    ref_free(&ref);
    data_free(&d);
}

/* What the limits would not see if LoRA were small beside the rest. */
static void
test_data(void)
{
    static const char *const names[] = { "gate", "up", "down" };

    for (size_t i = 0; i < N_BASE; i++) {
        struct data d = data_new(specs[0]);
        struct ref ref = ref_new(&d);
        struct got g = got_new(specs);
        size_t m = 2 * i + 1; /* its B */
        double off = 0;

        memset(d.lora[m], 0, d.s.n_experts * lora_size(&d.s, m) * 2);
        if (run_once(&d, MOE_BF16, 1, 2, &g))
            off = worst_rows(&d, g.output, NULL, ref.output);
        tap_ok(off > 0.4, "without the adapter of %s outputs are others (%.2f)",
               names[i], off);
        got_free(&g);
        ref_free(&ref);
        data_free(&d);
    }
}

int
main(void)
{
    printf("# %s\n", isa_name(cpu_isa()));
    for (size_t i = 0; i < N_SPECS; i++)
        if (!tap_slow() || specs[i].qlen < 100)
            test_accuracy(&specs[i]);
    test_data();
    return tap_done();
}
