/* SPDX-License-Identifier: ISC */
/* The float64 forward and its differences against moe-ref.h's gradients. */
#include "core/model/moe_exact.h"

#include "test/unit/moe-ref.h"

#define N_SAMPLES 7

/* Do slopes say of n elements from 'first' on what their gradient says? */
static double
slopes_off(const struct exact *exact, int tensor, size_t first, size_t n,
           const double *slope, const double *grad)
{
    double want[N_SAMPLES] = { 0 };
    struct diff diff = { 0, 0 };

    for (size_t i = first, k; i < first + n; i++) {
        int sign = exact_sign(exact, tensor, i, &k);

        want[k] += sign * grad[i];
    }
    for (size_t k = 0; k < N_SAMPLES; k++)
        add(&diff, slope[k], want[k]);
    return relative(diff);
}

static void
test(const struct spec *s)
{
    struct data d = data_new(*s);
    struct ref ref = ref_new(&d);
    struct moe_config c = config_of(s);
    struct weight w[N_BASE][8];
    struct moe_base base = { w[GATE], w[UP], w[DOWN], d.bias };
    struct moe_lora lora;
    struct moe_batch batch = batch_of(&d);
    struct exact_problem p = { &c, &base, &lora, &batch, d.grad };
    struct exact exact, again;
    struct diff output = { 0, 0 };
    struct par *par = NULL;
    struct err err;
    bool same;

    matrices_of(&d, w[0], 8);
    for (size_t m = 0; m < MOE_N_LORA; m++)
        lora.m[m] = d.lora[m];
    if (!tap_ok(par_open(&par, 3, &err) == 0 &&
                    exact_run(&exact, &p, 5, N_SAMPLES, par, &err) == 0 &&
                    exact_run(&again, &p, 5, N_SAMPLES, NULL, &err) == 0,
                "%s: exact_run works", s->name))
        return;
    for (size_t i = 0; i < exact.n_output; i++)
        add(&output, exact.output[i], ref.output[i]);
    tap_ok(relative(output) < 1e-12, "%s: output, to %g", s->name,
           relative(output));
    same = !memcmp(exact.output, again.output, exact.n_output * 8);
    for (int t = 0; t < EXACT_N; t++) {
        const double *grads[] = { ref.input, ref.weights };
        bool is_lora = t < MOE_N_LORA;
        size_t n_experts = is_lora ? s->n_experts : 1;
        size_t n = is_lora            ? lora_size(s, (size_t)t)
                   : t == EXACT_INPUT ? s->qlen * s->hidden
                                      : s->qlen * s->top_k;
        const double *grad = is_lora ? ref.lora[t] : grads[t - EXACT_INPUT];
        double worst = 0;

        for (size_t e = 0; e < n_experts; e++)
            worst =
                fmax(worst, slopes_off(&exact, t, e * n, n,
                                       exact.slope[t] + e * N_SAMPLES, grad));
        tap_ok(worst < 1e-6, "%s: slopes by %s, to %g", s->name,
               is_lora            ? moe_lora_names[t]
               : t == EXACT_INPUT ? "input"
                                  : "weights",
               worst);
        same &=
            !memcmp(exact.slope[t], again.slope[t], n_experts * N_SAMPLES * 8);
    }
    tap_ok(same, "%s: 3 threads have the bits of one", s->name);
    exact_close(&exact);
    exact_close(&again);
    par_close(par);
    ref_free(&ref);
    data_free(&d);
}

int
main(void)
{
    static const struct spec specs[] = {
        { "bad ids", 4, 3, 37, 29, 5, 11, BAD, 0, 0, 0, PLAIN },
        { "duplicates", 3, 3, 33, 20, 1, 9, SAME, 0, 0, 0, PLAIN },
        { "an idle expert", 5, 2, 40, 31, 4, 12, SKEWED, 0, 0, 0, OUTLIERS },
        { "gpt-oss", 4, 2, 37, 29, 5, 11, ANY, 3, 3, 0, CLAMPED },
    };

    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++)
        test(&specs[i]);
    return tap_done();
}
