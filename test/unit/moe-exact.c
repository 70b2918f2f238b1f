/* cmd/moe-sft/exact against torch's autograd (test/ref/exact_ref.py). */
#include "core/model/moe_exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

#define N_SAMPLES 20 /* of each tensor */

static struct str file;
static size_t file_at;

static double
number(void)
{
    double f = file_at + 8 <= file.n ? le_f64(file.s + file_at) : NAN;

    file_at += 8;
    return f;
}

/* Memory of the problem, until forget(). */
static void *kept[64];
static size_t n_kept;

static void *
keep(size_t n, size_t size)
{
    if (n_kept == sizeof(kept) / sizeof(*kept))
        abort();
    return kept[n_kept++] = xcalloc(n, size);
}

static void
forget(void)
{
    while (n_kept > 0)
        free(kept[--n_kept]);
}

static uint16_t *
bf16s(size_t n)
{
    uint16_t *b = keep(n, sizeof(*b));

    for (size_t i = 0; i < n; i++)
        put_le16(&b[i], f32_to_bf16((float)number()));
    return b;
}

static struct gemm_matrix *
matrices(size_t n_experts, size_t n, size_t k)
{
    struct gemm_matrix *m = keep(n_experts, sizeof(*m));

    for (size_t e = 0; e < n_experts; e++)
        m[e] = (struct gemm_matrix){
            .data = bf16s(n * k), .dtype = DT_BF16, .n = n, .k = k, .ld = k
        };
    return m;
}

static double
distance(const double *got, size_t n)
{
    double max = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs(number() - got[i]);

        max = d <= max ? max : d;
    }
    return max;
}

static const char *
name(int tensor)
{
    return tensor == EXACT_INPUT     ? "input"
           : tensor == EXACT_WEIGHTS ? "weights"
                                     : moe_lora_names[tensor];
}

static void
check_samples(const struct exact *exact, const struct exact_sample *samples)
{
    for (int t = 0; t < EXACT_N; t++) {
        double max = 0;

        for (size_t k = 0; k < N_SAMPLES; k++) {
            const struct exact_sample *s = &samples[t * N_SAMPLES + (int)k];
            double d = fabs(s->difference - exact->grad[t][s->i]);

            max = d <= max ? max : d;
        }
        tap_ok(max < 1e-5, "exact: differences by %s: %g", name(t), max);
    }
}

static void
check(const struct exact_problem *p, struct par *par)
{
    struct exact_sample samples[EXACT_N * N_SAMPLES];
    struct exact exact, again;
    struct err err;
    double d;

    for (int i = 0; i < EXACT_N * N_SAMPLES; i++) {
        const size_t n[EXACT_N] = { 740, 580, 740, 580, 580, 740, 407, 33 };

        samples[i].tensor = i / N_SAMPLES;
        samples[i].i = (size_t)i * 7919 % n[i / N_SAMPLES];
    }
    if (!tap_ok(exact_run(&exact, p, samples, EXACT_N * N_SAMPLES, par, &err) ==
                    0,
                "exact_run works"))
        return;
    d = distance(exact.output, exact.n_output);
    tap_ok(d < 1e-10, "exact: torch's output, to %g", d);
    for (int t = 0; t < EXACT_N; t++) {
        d = distance(exact.grad[t], exact.n[t]);
        tap_ok(d < 1e-10, "exact: torch's gradient of %s, to %g", name(t), d);
    }
    check_samples(&exact, samples);
    exact_run(&again, p, NULL, 0, NULL, &err);
    tap_ok(!memcmp(again.output, exact.output, exact.n_output * 8) &&
               !memcmp(again.grad[MOE_DOWN_B], exact.grad[MOE_DOWN_B],
                       exact.n[MOE_DOWN_B] * 8),
           "exact: 3 threads have the bits of one");
    exact_close(&exact);
    exact_close(&again);
}

/* Reads the problem, and checks it. */
static void
test(struct par *par)
{
    size_t e = (size_t)number(), k = (size_t)number(), h = (size_t)number(),
           i = (size_t)number(), r = (size_t)number();
    struct moe_config config = { .n_experts = e,
                                 .top_k = k,
                                 .hidden = h,
                                 .intermediate = i,
                                 .lora_rank = r,
                                 .lora_alpha = (float)number() };
    size_t qlen = (size_t)number();
    struct moe_base base = { .gate = matrices(e, i, h),
                             .up = matrices(e, i, h),
                             .down = matrices(e, h, i) };
    struct moe_lora lora = { 0 };
    struct exact_problem p = { .config = &config,
                               .base = &base,
                               .lora = &lora };
    int64_t *ids = keep(qlen * k, sizeof(*ids));
    float *weights = keep(qlen * k, sizeof(*weights));
    struct moe_batch batch = { qlen, ids, weights, NULL };

    for (int m = 0; m < MOE_N_LORA; m++) {
        uint64_t s[3];

        moe_lora_shape(&config, (enum moe_lora_matrix)m, s);
        lora.m[m] = bf16s((size_t)(s[0] * s[1] * s[2]));
    }
    for (size_t j = 0; j < qlen * k; j++)
        ids[j] = (int64_t)number();
    for (size_t j = 0; j < qlen * k; j++)
        weights[j] = (float)number();
    batch.input = bf16s(qlen * h);
    p.batch = &batch;
    p.grad_output = bf16s(qlen * h);
    check(&p, par);
    forget();
}

int
main(void)
{
    char dir[] = "/tmp/exact.XXXXXX", path[40];
    struct par *par;
    struct err err;

    if (!mkdtemp(dir) || par_open(&par, 3, &err) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/exact", dir);
    if (ref_run("exact_ref.py", dir, "torch") &&
        tap_ok(file_read_all(path, 1 << 24, &file, &err) == 0, "%s", path))
        test(par);
    str_free(&file);
    unlink(path);
    rmdir(dir);
    par_close(par);
    return tap_done();
}
