/* SPDX-License-Identifier: ISC */
/*
 * A step of an autoencoder's training, d 1024, 16384 latents, k 32, a batch of
 * 16384, and of it what finds the active latents, in rows a second, in ratio to
 * the encoder's product alone: its outputs stored nowhere.  Then that SAE's
 * active latents, screened, in ratio to exact products, and sae-look scan.  CPU
 * time, medians. "sae one f32|bf16 THREADS" prints rows a second of wall time
 * in batches of 4096, for peers.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/look_pass.h"
#include "core/model/train/sae.h"
#include "core/model/train/sae_impl.h"
#include "core/rng.h"
#include "test/bench/bench.h"

enum {
    D = 1024,
    N = 16384,
    K = 32,
    ROWS = 16384,
    PEER_ROWS = 4096,
    ROUNDS = 3,
    SCREEN_ROUNDS = 7
};

static void
check(int rc, const struct err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "sae: %s\n", err->what);
    exit(1);
}

static void
nothing(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
        size_t n_cols, int thread)
{
    (void)ctx, (void)t, (void)ldt, (void)row, (void)n_rows, (void)col;
    (void)n_cols, (void)thread;
}

static double
product_s(struct gemm *gemm, const struct sae_trainer *t, const float *x,
          uint16_t *rounded)
{
    const struct gemm_job job = {
        .w = { .weight = { .data = t->adamw.master, .dtype = DT_F32, .ld = D },
               .n = N,
               .k = D },
        .end = { .hook = nothing },
    };
    double start = cpu_s();

    if (rounded)
        gemm_bf16(gemm, &job, 1, rounded, NULL, gemm_ld_bf16(D), ROWS);
    else
        gemm_exact(gemm, &job, 1, x, D, ROWS);
    return cpu_s() - start;
}

/* 'one': a number for peers.py instead of a row. */
static void
line(const float *x, bool bf16, int threads, bool one)
{
    size_t rows = one ? PEER_ROWS : ROWS;
    const struct sae_settings set = {
        .d = D,
        .n = N,
        .k = K,
        .bf16 = bf16,
        .normalize = true,
        .aux_coef = 1.0 / 32,
        .aux_k = D / 2,
        .dead_after = 10000000,
        .lr = 2e-4,
        .warmup = 1000,
    };
    const struct sae_sizes sizes = {
        .d = D, .rows = rows, .n = N, .k = K, .aux_k = D / 2, .bf16 = bf16
    };
    double step[ROUNDS], encode[ROUNDS], product[ROUNDS], ratio[ROUNDS];
    double found[ROUNDS];
    uint16_t *rounded = NULL;
    struct sae_trainer t;
    struct sae_record r;
    struct sae_work *work;
    struct gemm *gemm;
    struct par *par;
    struct err err = { 0 };

    check(par_open(&par, threads, &err), &err);
    check(gemm_open(&gemm, par, &err), &err);
    check(sae_trainer_open(&t, &set, &err), &err);
    check(sae_work_open(&work, gemm, &sizes, &err), &err);
    if (bf16) {
        rounded = xcalloc(ROWS * gemm_ld_bf16(D), sizeof(*rounded));
        gemm_to_bf16(gemm, rounded, x, D, ROWS, D);
    }
    sae_batch(work, x, rows);
    sae_init(work, &t);
    check(sae_step(work, &t, &r, &err), &err);
    for (int i = 0; i < ROUNDS; i++) {
        double start = one ? clock_s() : cpu_s();

        sae_batch(work, x, rows);
        check(sae_step(work, &t, &r, &err), &err);
        step[i] = (one ? clock_s() : cpu_s()) - start;
        if (one)
            continue;
        start = cpu_s();
        sae_encode(work, &t);
        encode[i] = cpu_s() - start;
        product[i] = product_s(gemm, &t, x, rounded);
        ratio[i] = product[i] / step[i];
        found[i] = product[i] / encode[i];
    }
    if (one)
        printf("%.3f\n", (double)rows / median(step, ROUNDS));
    for (int i = 0; i < 2 && !one; i++)
        row(i ? "sae-train encode" : "sae-train step",
            bf16 ? "1024x16384, bf16" : "1024x16384, f32", isa_name(cpu_isa()),
            threads, ROWS * threads / median(i ? encode : step, ROUNDS),
            "row/s", median(i ? found : ratio, ROUNDS),
            "the encoder's product");
    free(rounded);
    sae_work_close(work);
    sae_trainer_close(&t);
    gemm_close(gemm);
    par_close(par);
}

static double
latents_s(struct latents_work *work, const struct latents *l, const float *x,
          size_t n)
{
    double start = cpu_s();

    latents_encode(work, l, x, D, n);
    latents_select(work, l);
    return (cpu_s() - start) / (double)n;
}

/* What sae-look scan does with the latents of a row after it has found them,
 * which takes 'encode' seconds: rows of sequences of 64 tokens, at the start of
 * a pass, when most examples are among the best so far. */
static void
looked(struct latents_work *work, const struct latents *by, const float *x,
       size_t n, double encode)
{
    enum { TOKENS = 64, BATCHES = 16 };
    struct look l = { .n = N,
                      .m = N,
                      .n_tokens = TOKENS,
                      .context = { 20, 11 },
                      .c = 32,
                      .top.n = 20,
                      .sample.n = 40 };
    size_t *begin = xcalloc(BATCHES * n + 1, sizeof(*begin));
    uint32_t *idx = xcalloc(BATCHES * n * K, sizeof(*idx));
    float *f = xcalloc(BATCHES * n * K, sizeof(*f));
    bool *counts = xcalloc(BATCHES * n, sizeof(*counts));
    struct look_codes codes = { 0, BATCHES * n, counts, begin, idx, f };
    struct look_pass *pass;
    struct err err = { 0 };
    double rows_s;

    l.latent = xcalloc(N, sizeof(*l.latent));
    for (size_t i = 0; i < N; i++)
        l.latent[i] = (int32_t)i;
    for (size_t i = 0; i < BATCHES * n; i++) {
        struct latents_row r;

        if (i % n == 0)
            latents_s(work, by, x + i * D, n);
        r = latents_row(work, i % n);
        memcpy(idx + begin[i], r.idx, r.n * sizeof(*idx));
        memcpy(f + begin[i], r.v, r.n * sizeof(*f));
        begin[i + 1] = begin[i] + r.n;
        counts[i] = true;
    }
    check(look_pass_open(&pass, &l, NULL, NULL, &err), &err);
    rows_s = cpu_s();
    check(look_pass_add(pass, &codes, &err), &err);
    rows_s = (cpu_s() - rows_s) / (double)(BATCHES * n);
    row("sae-look scan's pass", "1024x16384:32, f32", isa_name(cpu_isa()), 1,
        1e6 * rows_s, "us/row", encode / (encode + rows_s),
        "of sae latents alone");
    look_pass_close(pass);
    free(l.latent);
    free(begin);
    free(idx);
    free(f);
    free(counts);
}

/* n rows at a time: a batch, as sae-train eval and prompts have it, or one, as
 * generation has it. */
static void
screened(const float *x, size_t n)
{
    const struct sae_settings set = { .d = D, .n = N, .k = K };
    double exact[SCREEN_ROUNDS], quick[SCREEN_ROUNDS], ratio[SCREEN_ROUNDS];
    struct latents_sizes sizes = { 0 };
    struct latents_work *work;
    struct sae_trainer t;
    struct gemm *gemm;
    struct err err = { 0 };
    char what[64];

    check(gemm_open(&gemm, NULL, &err), &err);
    check(sae_trainer_open(&t, &set, &err), &err);
    for (size_t i = 0; i < N * D; i++)
        t.adamw.master[i] = rng_f32(2, 0, i) + rng_f32(2, 1, i) - 1;

    const struct latents l = {
        .w = { .weight = { .data = t.adamw.master, .dtype = DT_F32, .ld = D },
               .n = N,
               .k = D },
        .bias = sae_tensors(&t, t.adamw.master).encoder_bias,
        .k = K,
    };
    struct latents by = l;

    by.screen = latents_screen(&l, NULL, false);
    latents_size(&sizes, &by);
    check(latents_work_open(&work, gemm, &sizes, n, &err), &err);
    latents_s(work, &by, x, n); /* prepares */
    for (size_t i = 0; i < SCREEN_ROUNDS; i++) {
        exact[i] = latents_s(work, &l, x + i * n * D, n);
        quick[i] = latents_s(work, &by, x + i * n * D, n);
        ratio[i] = exact[i] / quick[i];
    }
    snprintf(what, sizeof(what), "sae latents screened, %zu", n);
    row(what, "1024x16384:32, f32", isa_name(cpu_isa()), 1,
        1e6 * median(quick, SCREEN_ROUNDS), "us/row",
        median(ratio, SCREEN_ROUNDS), "times exact");
    if (n > 1)
        looked(work, &by, x, n, median(quick, SCREEN_ROUNDS));
    screen_close(by.screen);
    latents_work_close(work);
    sae_trainer_close(&t);
    gemm_close(gemm);
}

int
main(int argc, char **argv)
{
    bool one = argc == 4 && !strcmp(argv[1], "one");
    float *x;

    if (!memory_for("sae", (size_t)800 << 20))
        return 0;
    x = xcalloc((size_t)ROWS * D, sizeof(*x));
    for (size_t i = 0; i < (size_t)ROWS * D; i++)
        x[i] = rng_f32(1, 0, i) + rng_f32(1, 1, i) - 1;
    if (one)
        line(x, !strcmp(argv[2], "bf16"), atoi(argv[3]), true);
    for (int threads = 1; threads <= 2 && !one; threads++) {
        line(x, false, threads, false);
        line(x, true, threads, false);
    }
    if (!one) {
        screened(x, 512);
        screened(x, 1);
    }
    free(x);
    return 0;
}
