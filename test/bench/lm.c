/* SPDX-License-Identifier: ISC */
/*
 * lm [dense|experts|whole], lm one COMPUTE THREADS: a step of a whole model's
 * fine-tuning in tokens a second, in ratio to its matrix products alone, each
 * as often as the step has it: with those of the recomputation, the head and
 * the adapters, but without their sums over tokens.  'one' prints tokens a
 * second, for peers.py.
 *
 * Two layers with a vocabulary as much smaller stand for a model, as a step
 * does the same in each layer.  'whole' has all of Qwen3-0.6B's shape, with one
 * sequence, once: 75 seconds of CPU time, and 1.2 GB in $TMPDIR.
 * Of Qwen3-30B-A3B, a layer of which has 1.2 GB of experts, hidden size, heads,
 * experts and those of a token are halved as well, so that each gets as many
 * tokens.
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

enum { LEN = 512, RANK = 16, MAX_SEQS = 4, WIDEST = 4096 };
enum { HEAD_F32 = 256, HEAD_BF16 = 512, HEAD_PART = 1024 };

static const struct shape {
    const char *name, *row; /* in the table */
    const char *options;    /* of random-model.py */
    size_t mib;             /* of memory */
    size_t n_seqs;
    int rounds;
} shapes[] = {
    { "dense", "2 layers",
      "--shape qwen3-0.6b --set num_hidden_layers=2 --set vocab_size=11264",
      1024, 4, 3 },
    { "experts", "experts",
      "--shape qwen3-30b-a3b --set num_hidden_layers=2 --set vocab_size=6144 "
      "--set hidden_size=1024 --set num_attention_heads=16 "
      "--set num_key_value_heads=2 --set num_experts=64 "
      "--set num_experts_per_tok=4",
      2048, 4, 2 },
    { "whole", "28 layers", "--shape qwen3-0.6b", 4096, 1, 1 },
};
#define N_SHAPES (sizeof(shapes) / sizeof(*shapes))

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
    size_t n_tokens; /* of a step */
    size_t rows;     /* of a chunk of them */
    float *x, *y;
    uint16_t *rounded;
};

/* The rows that go through a linear layer, and its forward's class. */
struct rows {
    size_t n;
    enum compute compute;
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

/* A layer's base product and those of its adapter. */
static double
linear_s(struct bench *b, const struct linear *l, const struct rows *rows,
         double forwards, double backs)
{
    float *w = b->x;
    const struct linear low = { .w = { w, DT_F32, l->in },
                                .in = l->in,
                                .out = RANK };
    const struct linear high = { .w = { w, DT_F32, RANK },
                                 .in = RANK,
                                 .out = l->out };
    const struct {
        enum compute compute;
        struct gemm_job job;
        double times;
    } products[] = {
        { rows->compute, linear_job(l, b->y, false), forwards },
        { b->compute, linear_back_job(l, b->y, false), backs },
        { COMPUTE_F32, linear_job(&low, b->y, false), forwards + 1 },
        { COMPUTE_F32, linear_job(&high, b->y, true), forwards },
        { COMPUTE_F32, linear_back_job(&high, b->y, false), 1 },
        { COMPUTE_F32, linear_back_job(&low, b->y, true), backs },
    };
    double sum = 0;

    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++)
        sum += products[i].times *
               product_s(b, products[i].compute, &products[i].job, rows->n);
    return sum;
}

/* Experts compute their forward in f32, and gate and up again in any layer;
 * each has as many rows here. */
static double
experts_s(struct bench *b, const struct layer *l, double forwards)
{
    const struct config *c = &b->lm->model->config;
    size_t n = (size_t)c->n_experts, k = (size_t)c->n_experts_used;
    const struct rows each = { b->rows * k / n, COMPUTE_F32 };
    struct gemm_job forward = linear_job(&l->router, b->y, false);
    struct gemm_job back = linear_back_job(&l->router, b->y, true);
    double sum = forwards * product_s(b, COMPUTE_F32, &forward, b->rows) +
                 product_s(b, COMPUTE_F32, &back, b->rows);

    for (size_t i = 0; i < n; i++)
        sum += linear_s(b, &l->experts[i].gate, &each, 2, 1) +
               linear_s(b, &l->experts[i].up, &each, 2, 1) +
               linear_s(b, &l->experts[i].down, &each, 1, 1);
    return sum;
}

/* All products of a step: the first layer has no gradient of its input, the
 * last one's forward is not done again, nobody's down_proj is. */
static double
products_s(struct bench *b)
{
    const struct layer *l = b->lm->model->layers;
    size_t n_layers = (size_t)b->lm->model->config.n_layers;
    size_t m = b->compute == COMPUTE_F32 ? HEAD_F32 : HEAD_BF16;
    struct linear head = b->lm->model->lm_head;
    struct gemm_job job = linear_job(&head, b->y, false);
    double sum, head_s = product_s(b, b->compute, &job, m);

    head.out = HEAD_PART;
    job = linear_back_job(&head, b->y, true);
    head_s += product_s(b, b->compute, &job, m) *
              (double)b->lm->model->lm_head.out / HEAD_PART;
    sum = head_s * (double)b->rows / (double)m;
    for (size_t i = 0; i < n_layers; i++, l++) {
        double forwards = i + 1 < n_layers ? 2 : 1, backs = i ? 1 : 0;
        const struct rows all = { b->rows, b->compute };

        sum += linear_s(b, &l->q, &all, forwards, backs) +
               linear_s(b, &l->k, &all, forwards, backs) +
               linear_s(b, &l->v, &all, forwards, backs) +
               linear_s(b, &l->o, &all, forwards, 1);
        if (l->experts)
            sum += experts_s(b, l, forwards);
        else
            sum += linear_s(b, &l->mlp.gate, &all, forwards, 1) +
                   linear_s(b, &l->mlp.up, &all, forwards, 1) +
                   linear_s(b, &l->mlp.down, &all, 1, 1);
    }
    return sum * (double)b->n_tokens / (double)b->rows;
}

static double
step_s(struct bench *b)
{
    static int32_t ids[MAX_SEQS][LEN];
    size_t vocab = (size_t)b->lm->model->config.vocab_size;
    size_t n_seqs = b->n_tokens / LEN;
    struct lm_seq seqs[MAX_SEQS];
    double start, loss;
    struct err err = { 0 };

    for (size_t i = 0; i < n_seqs; i++) {
        for (size_t k = 0; k < LEN; k++)
            ids[i][k] = (int32_t)(rng_u64(1, i, k) % vocab);
        seqs[i] = (struct lm_seq){ ids[i], ids[i], LEN, NULL, 0 };
    }
    start = clock_s();
    check(lm_grad(b->lm, seqs, n_seqs, &loss, &err), &err);
    return clock_s() - start;
}

/* Returns the adapter's values, to be freed after bench_close(). */
static float *
bench_open(struct bench *b, const char *dir, const struct shape *shape,
           enum compute compute, int threads)
{
    const struct lm_options options = {
        .lora = { LM_ALL_TARGETS, RANK, 2 * RANK, false },
        .compute = compute,
        .max_tokens = LEN,
        .n_slices = 8,
    };
    struct err err = { 0 };
    float *values;

    *b = (struct bench){ .compute = compute, .n_tokens = shape->n_seqs * LEN };
    check(par_open(&b->par, threads, &err), &err);
    check(lm_open(&b->lm, dir, &options, b->par, &err), &err);
    values = xcalloc(b->lm->n_params, sizeof(*values));
    lm_start(b->lm, values);
    check(lm_prepare(b->lm, values, &err), &err);
    b->rows =
        smaller(b->n_tokens,
                b->lm->model->config.n_experts ? LM_CHUNK_EXPERTS : LM_CHUNK);
    return values;
}

static void
bench_close(struct bench *b, float *values)
{
    lm_close(b->lm);
    free(values);
    par_close(b->par);
}

static void
line(const char *dir, const struct shape *shape, enum compute compute,
     int threads)
{
    struct bench b;
    float *values = bench_open(&b, dir, shape, compute, threads);
    size_t n = larger(b.rows * WIDEST,
                      HEAD_BF16 * (size_t)b.lm->model->config.vocab_size);
    double step = 1e9, products = 1e9;
    struct err err = { 0 };
    char name[40];

    check(gemm_open(&b.gemm, b.par, &err), &err);
    b.x = xcalloc(n, sizeof(*b.x));
    b.y = xcalloc(n, sizeof(*b.y));
    b.rounded = xcalloc(b.rows * gemm_ld_bf16(WIDEST), sizeof(*b.rounded));
    for (size_t i = 0; i < n; i++)
        b.x[i] = 0.01f * (float)(i % 101);
    for (int i = 0; i < shape->rounds; i++) { /* in turns: neighbours cost
                                               * both */
        products = min(products, products_s(&b));
        step = min(step, step_s(&b));
    }
    snprintf(name, sizeof(name), "%s, %s", shape->row,
             compute == COMPUTE_F32 ? "f32" : "bf16");
    row("moe-sft tune", name, isa_name(cpu_isa()), threads,
        (double)b.n_tokens / step, "token/s", products / step, "its products");
    free(b.x);
    free(b.y);
    free(b.rounded);
    gemm_close(b.gemm);
    bench_close(&b, values);
}

/* The middle of some. */
static void
one(const char *dir, const struct shape *shape, const char *compute,
    const char *threads)
{
    struct bench b;
    float *values = bench_open(
        &b, dir, shape, strcmp(compute, "f32") ? COMPUTE_BF16 : COMPUTE_F32,
        atoi(threads));
    double s[3];

    step_s(&b); /* memory is touched */
    for (int i = 0; i < 3; i++)
        s[i] = step_s(&b);
    printf("%.17g\n", (double)b.n_tokens / median(s, 3));
    bench_close(&b, values);
}

/* One thread, and all: only all where that takes long. */
static void
run(const char *dir, const struct shape *shape)
{
    int all = par_default();

    for (int threads = shape == shapes ? 1 : all; threads <= all;
         threads += all > 1 ? all - 1 : 1) {
        line(dir, shape, COMPUTE_F32, threads);
        line(dir, shape, COMPUTE_BF16, threads);
    }
}

int
main(int argc, char **argv)
{
    const char *want = argc == 2 ? argv[1] : shapes[0].name;
    const struct shape *shape = shapes;
    char *made = scratch_name("lm");
    struct str make = { 0 };

    while (shape < shapes + N_SHAPES && strcmp(shape->name, want) != 0)
        shape++;
    if (shape == shapes + N_SHAPES || !mkdtemp(made))
        return 1;
    if (memory_for("moe-sft tune", shape->mib << 20)) {
        str_addf(&make, "${PYTHON:-python3} scripts/random-model.py %s",
                 shape->options);
        bench_shell(make.s, made);
        if (argc == 4)
            one(made, shape, argv[2], argv[3]);
        else
            run(made, shape);
    }
    bench_shell("rm -r", made);
    str_free(&make);
    free(made);
    return 0;
}
