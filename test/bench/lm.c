/*
 * lm [DIR], lm one COMPUTE THREADS: a step of a whole model's fine-tuning in
 * tokens a second, on two layers of Qwen3-0.6B's shape with a vocabulary as
 * much smaller, in ratio to its matrix products alone, each as often as the
 * step has it: with those of the recomputation, the head and the adapters, but
 * without their sums over tokens.  'one' prints tokens a second, for peers.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/train/lm.h"
#include "core/rng.h"
#include "core/str.h"
#include "test/bench/bench.h"

enum { N_SEQS = 4, LEN = 512, RANK = 16, ROUNDS = 3, VOCAB = 11264 };
enum { HEAD_F32 = 256, HEAD_BF16 = 512, HEAD_PART = 1024 };

#define SHAPE                                             \
    "--shape qwen3-0.6b --set num_hidden_layers=2 --set " \
    "vocab_size="

static void
check(int rc, const struct err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "lm: %s\n", err->what);
    exit(1);
}

/* What products work on. */
struct bench {
    struct lm *lm;
    struct par *par;
    struct gemm *gemm;
    enum compute compute;
    float *x, *y;
    uint16_t *rounded;
};

/* Seconds of m rows through a product of a class, once. */
static double
product_s(struct bench *b, enum compute compute, const struct gemm_job *job,
          size_t m)
{
    double start = clock_s();

    if (compute == COMPUTE_F32)
        gemm_exact(b->gemm, job, 1, b->x, job->w.k, m);
    else
        gemm_bf16(b->gemm, job, 1, b->rounded, NULL, gemm_ld_bf16(job->w.k), m);
    return clock_s() - start;
}

/* A layer's base product and those of its adapter, of a chunk. */
static double
linear_s(struct bench *b, const struct linear *l, double forwards, double backs)
{
    float *w = b->x;
    const struct linear low = {
        .w = w, .dtype = DT_F32, .in = l->in, .out = RANK
    };
    const struct linear high = {
        .w = w, .dtype = DT_F32, .in = RANK, .out = l->out
    };
    const struct {
        enum compute compute;
        struct gemm_job job;
        double times;
    } products[] = {
        { b->compute, linear_job(l, b->y, false), forwards },
        { b->compute, linear_back_job(l, b->y, false), backs },
        { COMPUTE_F32, linear_job(&low, b->y, false), forwards + 1 },
        { COMPUTE_F32, linear_job(&high, b->y, true), forwards },
        { COMPUTE_F32, linear_back_job(&high, b->y, false), 1 },
        { COMPUTE_F32, linear_back_job(&low, b->y, true), backs },
    };
    double sum = 0;

    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++)
        sum += products[i].times *
               product_s(b, products[i].compute, &products[i].job, LM_CHUNK);
    return sum;
}

/* All products of a step: the first layer has no gradient of its input, the
 * last one's forward is not done again, nobody's down_proj is. */
static double
products_s(struct bench *b)
{
    const struct layer *layers = b->lm->model->layers;
    size_t m = b->compute == COMPUTE_F32 ? HEAD_F32 : HEAD_BF16;
    struct linear head = b->lm->model->lm_head;
    struct gemm_job job = linear_job(&head, b->y, false);
    double sum, head_s = product_s(b, b->compute, &job, m);

    head.out = HEAD_PART;
    job = linear_back_job(&head, b->y, true);
    head_s += product_s(b, b->compute, &job, m) *
              (double)b->lm->model->lm_head.out / HEAD_PART;
    sum = head_s * LM_CHUNK / (double)m;
    for (size_t i = 0; i < 2; i++) {
        double forwards = i ? 1 : 2, backs = i ? 1 : 0;

        sum += linear_s(b, &layers[i].q, forwards, backs) +
               linear_s(b, &layers[i].k, forwards, backs) +
               linear_s(b, &layers[i].v, forwards, backs) +
               linear_s(b, &layers[i].o, forwards, 1) +
               linear_s(b, &layers[i].mlp.gate, forwards, 1) +
               linear_s(b, &layers[i].mlp.up, forwards, 1) +
               linear_s(b, &layers[i].mlp.down, 1, 1);
    }
    return sum * N_SEQS * LEN / LM_CHUNK;
}

static double
step_s(struct bench *b)
{
    static int32_t ids[N_SEQS][LEN];
    struct lm_seq seqs[N_SEQS];
    double start, loss;
    struct err err = { 0 };

    for (size_t i = 0; i < N_SEQS; i++) {
        for (size_t k = 0; k < LEN; k++)
            ids[i][k] = (int32_t)(rng_u64(1, i, k) % VOCAB);
        seqs[i] = (struct lm_seq){ ids[i], ids[i], LEN, NULL, 0 };
    }
    start = clock_s();
    check(lm_grad(b->lm, seqs, N_SEQS, &loss, &err), &err);
    return clock_s() - start;
}

static void
line(const char *dir, enum compute compute, int threads)
{
    const struct lm_options options = {
        .lora = { LM_ALL_TARGETS, RANK, 2 * RANK, false },
        .compute = compute,
        .max_tokens = LEN,
        .n_slices = 8,
    };
    struct bench b = { .compute = compute };
    double step = 1e9, products = 1e9;
    struct err err = { 0 };
    size_t widest = VOCAB;
    float *values;

    check(par_open(&b.par, threads, &err), &err);
    check(lm_open(&b.lm, dir, &options, b.par, &err), &err);
    values = xcalloc(b.lm->n_params, sizeof(*values));
    lm_start(b.lm, values);
    check(lm_prepare(b.lm, values, &err), &err);
    check(gemm_open(&b.gemm, b.par, &err), &err);
    b.x = xcalloc(LM_CHUNK * widest, sizeof(*b.x));
    b.y = xcalloc(LM_CHUNK * widest, sizeof(*b.y));
    b.rounded = xcalloc(LM_CHUNK * gemm_ld_bf16(widest), sizeof(*b.rounded));
    for (size_t i = 0; i < LM_CHUNK * widest; i++)
        b.x[i] = 0.01f * (float)(i % 101);
    for (int i = 0; i < ROUNDS; i++) { /* in turns: neighbours cost both */
        products = min(products, products_s(&b));
        step = min(step, step_s(&b));
    }
    row("moe-sft tune",
        compute == COMPUTE_F32 ? "2 layers, f32" : "2 layers, bf16",
        isa_name(cpu_isa()), threads, N_SEQS * LEN / step, "token/s",
        products / step, "its products");
    free(b.x);
    free(b.y);
    free(b.rounded);
    gemm_close(b.gemm);
    lm_close(b.lm);
    free(values);
    par_close(b.par);
}

/* The middle of some. */
static void
one(const char *dir, const char *compute, const char *threads)
{
    const struct lm_options options = {
        .lora = { LM_ALL_TARGETS, RANK, 2 * RANK, false },
        .compute = strcmp(compute, "f32") ? COMPUTE_BF16 : COMPUTE_F32,
        .max_tokens = LEN,
        .n_slices = 8,
    };
    struct bench b = { .compute = options.compute };
    double s[ROUNDS];
    struct err err = { 0 };
    float *values;

    check(par_open(&b.par, atoi(threads), &err), &err);
    check(lm_open(&b.lm, dir, &options, b.par, &err), &err);
    values = xcalloc(b.lm->n_params, sizeof(*values));
    lm_start(b.lm, values);
    check(lm_prepare(b.lm, values, &err), &err);
    step_s(&b); /* memory is touched */
    for (int i = 0; i < ROUNDS; i++)
        s[i] = step_s(&b);
    printf("%.17g\n", N_SEQS * LEN / median(s, ROUNDS));
    lm_close(b.lm);
    free(values);
    par_close(b.par);
}

static void
run(const char *dir)
{
    int all = par_default();

    for (int threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1) {
        line(dir, COMPUTE_F32, threads);
        line(dir, COMPUTE_BF16, threads);
    }
}

static void
shell(const char *what, const char *dir)
{
    struct str command = { 0 };

    str_addf(&command, "%s %s", what, dir);
    if (system(command.s)) {
        fprintf(stderr, "lm: failed: %s\n", command.s);
        exit(1);
    }
    str_free(&command);
}

int
main(int argc, char **argv)
{
    char *made = scratch_name("lm");
    struct str make = { 0 };

    if (argc == 2) {
        run(argv[1]);
        return 0;
    }
    if (!mkdtemp(made))
        return 1;
    if (memory_for("moe-sft tune", (size_t)1 << 30)) {
        str_addf(&make,
                 "${PYTHON:-python3} scripts/random-model.py " SHAPE "%d",
                 VOCAB);
        shell(make.s, made);
        if (argc == 4)
            one(made, argv[2], argv[3]);
        else
            run(made);
    }
    shell("rm -r", made);
    str_free(&make);
    free(made);
    return 0;
}
