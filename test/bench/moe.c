/* SPDX-License-Identifier: ISC */
/*
 * moe: forward and backward of one layer in tokens a second, in
 * ratio to the machine's peak of the six base products alone, and to what
 * core/kernel/gemm takes for them: all else is LoRA, activations and routing.
 * Then int8 over bf16, and what LoRA of rank 16 takes more than that of rank 1,
 * each with the other one in turns, and what is asked of it; and the first two
 * of experts as large as DeepSeek-V3's, 256 of which the tokens get 16 (0.8 of
 * their products asked).
 *   moe one MODE THREADS   one number, for peers.py
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/moe.h"
#include "core/rng.h"
#include "test/bench/bench.h"
#include "test/bench/probe.h"

enum { MAX_EXPERTS = 256, RANK = 16 };
enum { ROUNDS = 5, TURNS = 9, PERIOD = 65521 };

/* What is measured. */
struct shape {
    const char *name;
    size_t n_experts, n_used, top_k, hidden, inter, qlen;
};
static const struct shape small = {
    "E8 k2 2048x1408", 8, 8, 2, 2048, 1408, 512
};
/* DeepSeek-V3's, of whose experts memory holds a few: the rest are holes. */
static const struct shape large = {
    "E256 k8 7168x2048", 256, 16, 8, 7168, 2048, 128
};

/* Everything one layer needs. */
struct layer {
    const struct shape *shape;
    uint16_t *base[3], *lora[MOE_N_LORA], *input, *grad, *grad_input;
    float *weights, *output, *grad_weights, *grads[MOE_N_LORA];
    int64_t *ids;
    struct moe *moe;
};

static uint16_t *
noise(size_t n, float scale)
{
    uint16_t *p = xmalloc(n * sizeof(*p));

    for (size_t i = 0; i < n; i++)
        p[i] = i < PERIOD ? f32_to_bf16((rng_f32(1, n, i) - 0.5f) * scale)
                          : p[i - PERIOD];
    return p;
}

static struct moe_config
config_of(const struct shape *s, enum moe_mode mode)
{
    return (struct moe_config){
        .n_experts = s->n_experts,
        .top_k = s->top_k,
        .hidden = s->hidden,
        .intermediate = s->inter,
        .lora_rank = RANK,
        .lora_alpha = 32,
        .max_len = s->qlen,
        .max_cache_depth = 1,
        .n_parts = 1,
        .mode = mode,
    };
}

static void
fill(struct layer *l, const struct shape *s)
{
    struct moe_config c = config_of(s, MOE_BF16);
    size_t k = s->top_k;

    *l = (struct layer){ .shape = s };

    for (size_t i = 0; i < 3; i++)
        l->base[i] = noise(s->n_used * s->hidden * s->inter, 0.05f);
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        uint64_t shape[3];
        size_t n;

        moe_lora_shape(&c, (enum moe_lora_matrix)m, shape);
        n = shape[0] * shape[1] * shape[2];
        l->lora[m] = noise(n, 0.05f);
        l->grads[m] = xmalloc(n * sizeof(float));
    }
    l->input = noise(s->qlen * s->hidden, 1);
    l->grad = noise(s->qlen * s->hidden, 1);
    l->grad_input = noise(s->qlen * s->hidden, 1);
    l->output = xmalloc(s->qlen * s->hidden * sizeof(float));
    l->weights = xmalloc(s->qlen * k * sizeof(float));
    l->grad_weights = xmalloc(s->qlen * k * sizeof(float));
    l->ids = xmalloc(s->qlen * k * sizeof(*l->ids));
    for (size_t i = 0; i < s->qlen * k; i++) {
        size_t first = rng_u64(2, 0, i / k) % s->n_used;
        size_t step = 1 + rng_u64(3, 0, i / k) % (s->n_used - 1);

        /* an odd one comes to all experts, of which there are 2^n */
        l->ids[i] = (int64_t)((first + i % k * (step | (k > 2))) % s->n_used *
                              (s->n_experts / s->n_used));
        l->weights[i] = 1.0f / (float)k;
    }
}

/* gate, up or down of one of those that are used. */
static struct gemm_matrix
matrix(const struct layer *l, size_t i, size_t e)
{
    const struct shape *s = l->shape;
    size_t n = i == 2 ? s->hidden : s->inter, k = i == 2 ? s->inter : s->hidden;

    return (struct gemm_matrix){
        .weight = { .data = l->base[i] + e * n * k, .dtype = DT_BF16, .ld = k },
        .n = n,
        .k = k
    };
}

static int
open_moe(struct layer *l, enum moe_mode mode, size_t rank, int n_threads,
         struct err *err)
{
    struct moe_config c = config_of(l->shape, mode);
    struct weight w[3][MAX_EXPERTS];
    struct moe_base base = { .gate = w[0], .up = w[1], .down = w[2] };
    struct moe_lora lora;

    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0, n = l->shape->n_experts / l->shape->n_used;
             e < l->shape->n_experts; e++) {
            w[i][e] = matrix(l, i, e / n).weight;
            if (e % n)
                w[i][e].data = NULL; /* which nothing reads */
        }
    for (size_t m = 0; m < MOE_N_LORA; m++)
        lora.m[m] = l->lora[m];
    c.lora_rank = rank;
    if (moe_open(&l->moe, &c, n_threads, err) < 0 ||
        moe_load(l->moe, &base, err) < 0 ||
        moe_update_lora(l->moe, &lora, err) < 0)
        return -1;
    return 0;
}

/* Seconds of both passes, or -1. */
static double
step(struct layer *l, struct err *err)
{
    struct moe_batch batch = { l->shape->qlen, l->ids, l->weights, l->input };
    struct moe_grads grads = { .input = l->grad_input,
                               .weights = l->grad_weights,
                               .lora_dtype = DT_F32 };
    double t = clock_s();

    for (size_t m = 0; m < MOE_N_LORA; m++)
        grads.lora[m] = l->grads[m];
    if (moe_forward(l->moe, &batch, l->output, true, err) < 0 ||
        moe_backward(l->moe, l->grad, &grads, err) < 0)
        return -1;
    return clock_s() - t;
}

/* ---- the base products alone ---- */

struct products {
    enum moe_mode mode;
    struct gemm *gemm;
    struct gemm_panels panels[2][3][MAX_EXPERTS]; /* as they are; transposed */
    uint16_t *x; /* [qlen, gemm_ld_bf16(hidden)]; of int8, as many bytes */
    float *c, *ones;
};

/* The operator packs all of int8, and of bf16 what forward needs. */
static bool
is_packed(const struct products *p, size_t back)
{
    return p->mode == MOE_INT8 || !back;
}

static struct gemm_matrix
product_matrix(const struct products *p, const struct layer *l, size_t back,
               size_t i, size_t e)
{
    struct gemm_matrix w = matrix(l, i, e);

    if (p->mode == MOE_INT8) /* any bytes */
        w.weight.dtype = DT_I8;
    if (back) {
        size_t n = w.n;

        w.n = w.k;
        w.k = n;
        w.by_k = p->mode == MOE_BF16;
        w.weight.ld = w.by_k ? w.weight.ld : w.k;
    }
    return w;
}

static int
products_open(struct products *p, const struct layer *l, struct par *par,
              struct err *err)
{
    enum gemm_class class = p->mode == MOE_INT8 ? GEMM_INT8 : GEMM_BF16;

    if (gemm_open(&p->gemm, par, err) < 0)
        return -1;
    p->x = noise(l->shape->qlen * gemm_ld_bf16(l->shape->hidden), 1);
    p->c = xmalloc(l->shape->qlen * l->shape->hidden * sizeof(*p->c));
    p->ones = xmalloc(l->shape->hidden * sizeof(*p->ones));
    for (size_t i = 0; i < l->shape->hidden; i++)
        p->ones[i] = 1;
    for (size_t back = 0; back < 2; back++)
        for (size_t i = 0; i < 3; i++)
            for (size_t e = 0; e < l->shape->n_used; e++) {
                struct gemm_matrix w = product_matrix(p, l, back, i, e);
                struct gemm_panels *to = &p->panels[back][i][e];

                if (!is_packed(p, back))
                    continue;
                to->class = class;
                to->scale = p->mode == MOE_INT8 ? p->ones : NULL;
                to->data = mem_big(gemm_packed_nbytes(class, w.n, w.k), 1,
                                   "weights", err);
                if (!to->data)
                    return -1;
                gemm_pack(p->gemm, to, &w);
            }
    return 0;
}

static void
products_close(struct products *p)
{
    for (size_t back = 0; back < 2; back++)
        for (size_t i = 0; i < 3; i++)
            for (size_t e = 0; e < MAX_EXPERTS; e++) {
                struct gemm_panels *w = &p->panels[back][i][e];

                if (w->data)
                    mem_big_free(w->data,
                                 gemm_packed_nbytes(w->class, w->n, w->k), 1);
            }
    free(p->ones);
    free(p->c);
    free(p->x);
    gemm_close(p->gemm);
}

/* Seconds: packed once, or on the fly, as the operator has them, of which
 * every expert has as many rows here. */
static double
products_run(struct products *p, const struct layer *l)
{
    const size_t rows = l->shape->qlen * l->shape->top_k / l->shape->n_used;
    double t = clock_s();

    for (size_t e = 0; e < l->shape->n_used; e++)
        for (size_t i = 0; i < 6; i++) {
            size_t back = i / 3;
            struct gemm_job job = {
                .w = product_matrix(p, l, back, i % 3, e),
                .panels =
                    is_packed(p, back) ? &p->panels[back][i % 3][e] : NULL,
                .c = p->c,
            };

            job.ldc = job.w.n;
            if (p->mode == MOE_INT8)
                gemm_int8(p->gemm, &job, 1, (const int8_t *)p->x, p->ones,
                          gemm_ld_int8(job.w.k), rows);
            else
                gemm_bf16(p->gemm, &job, 1, p->x, NULL, gemm_ld_bf16(job.w.k),
                          rows);
        }
    return clock_s() - t;
}

/* ---- the table ---- */

/* Operations of the base products. */
static double
operations(const struct shape *s)
{
    return 2.0 * 6 * (double)(s->qlen * s->top_k * s->hidden * s->inter);
}

struct result {
    double speed, of_peak, of_products;
};

static double
peak_of(struct par *par, enum moe_mode mode)
{
    double peak = probe_best(par, mode == MOE_INT8 ? PROBE_INT8 : PROBE_BF16);

    return peak > 0 ? peak : probe_best(par, PROBE_F32);
}

static int
measure(struct layer *l, enum moe_mode mode, struct par *par, struct result *to,
        struct err *err)
{
    double speeds[ROUNDS], of_peak[ROUNDS], of_products[ROUNDS];
    struct products p = { .mode = mode };

    if (open_moe(l, mode, RANK, par_threads(par), err) < 0 ||
        products_open(&p, l, par, err) < 0 || step(l, err) < 0)
        return -1;
    for (int r = 0; r < ROUNDS; r++) {
        double peak = peak_of(par, mode), alone = products_run(&p, l);
        double t = step(l, err);

        if (t < 0)
            return -1;
        speeds[r] = (double)l->shape->qlen / t;
        of_peak[r] = operations(l->shape) / t / peak;
        of_products[r] = alone / t;
    }
    *to = (struct result){ median(speeds, ROUNDS), median(of_peak, ROUNDS),
                           median(of_products, ROUNDS) };
    products_close(&p);
    moe_close(l->moe);
    return 0;
}

static int
show(struct layer *l, enum moe_mode mode, struct par *par, struct err *err)
{
    const char *name = mode == MOE_INT8 ? "moe-sft int8" : "moe-sft bf16";
    const char *isa = isa_name(cpu_isa());
    struct result r;

    if (measure(l, mode, par, &r, err) < 0)
        return -1;
    row(name, l->shape->name, isa, par_threads(par), r.speed, "token/s",
        r.of_peak, mode == MOE_INT8 ? "int8 peak" : "bf16 peak");
    row(name, l->shape->name, isa, par_threads(par), r.speed, "token/s",
        r.of_products, "its products alone");
    return 0;
}

/* ---- two operators in turns ---- */

struct turns {
    double a_s, b_over_a; /* medians of the rounds */
};

/* Seconds of this process in both passes, or -1. */
static double
step_cpu(struct layer *l, struct err *err)
{
    double t = cpu_s();

    return step(l, err) < 0 ? -1 : cpu_s() - t;
}

/* 'b' has a's numbers and an operator of its own. */
static int
take_turns(struct layer *a, struct layer *b, struct turns *to, struct err *err)
{
    double a_s[TURNS], ratio[TURNS];

    if (step(a, err) < 0 || step(b, err) < 0)
        return -1;
    for (int r = 0; r < TURNS; r++) {
        double b_s;

        a_s[r] = step_cpu(a, err);
        b_s = step_cpu(b, err);
        if (a_s[r] < 0 || b_s < 0)
            return -1;
        ratio[r] = b_s / a_s[r];
    }
    *to = (struct turns){ median(a_s, TURNS), median(ratio, TURNS) };
    return 0;
}

static int
show_int8(const struct layer *l, struct err *err)
{
    struct layer int8 = *l, bf16 = *l;
    struct turns t;

    if (open_moe(&int8, MOE_INT8, RANK, 1, err) < 0 ||
        open_moe(&bf16, MOE_BF16, RANK, 1, err) < 0 ||
        take_turns(&int8, &bf16, &t, err) < 0)
        return -1;
    row("  int8", l->shape->name, isa_name(cpu_isa()), 1,
        (double)l->shape->qlen / t.a_s, "token/s", t.b_over_a,
        "bf16 in turns (1.5 asked)");
    moe_close(bf16.moe);
    moe_close(int8.moe);
    return 0;
}

static int
show_lora(const struct layer *l, enum moe_mode mode, struct err *err)
{
    struct layer more = *l, less = *l;
    struct turns t;

    if (open_moe(&more, mode, RANK, 1, err) < 0 ||
        open_moe(&less, mode, 1, 1, err) < 0 ||
        take_turns(&more, &less, &t, err) < 0)
        return -1;
    row(mode == MOE_INT8 ? "  LoRA int8" : "  LoRA bf16", "rank 16 over 1",
        isa_name(cpu_isa()), 1, (double)l->shape->qlen / t.a_s, "token/s",
        1 - t.b_over_a, "all the time (< 0.15 asked)");
    moe_close(less.moe);
    moe_close(more.moe);
    return 0;
}

static int
failed(const struct err *err)
{
    fprintf(stderr, "moe: %s\n", err->what);
    return 1;
}

int
main(int argc, char **argv)
{
    int threads[] = { 1, par_default() };
    struct layer l = { 0 };
    struct err err = { 0 };
    struct result r;
    struct par *par;

    if (!memory_for("moe-sft", (size_t)1 << 30))
        return 0;
    fill(&l, &small);
    if (argc == 4 && !strcmp(argv[1], "one")) {
        if (par_open(&par, atoi(argv[3]), &err) < 0 ||
            measure(&l, !strcmp(argv[2], "int8"), par, &r, &err) < 0)
            return 1;
        printf("%.0f\n", r.speed);
        return 0;
    }
    for (size_t i = 0; i < (threads[1] > 1 ? 2 : 1); i++) {
        if (par_open(&par, threads[i], &err) < 0 ||
            show(&l, MOE_BF16, par, &err) < 0 ||
            show(&l, MOE_INT8, par, &err) < 0)
            return failed(&err);
        par_close(par);
    }
    if (show_int8(&l, &err) < 0 || show_lora(&l, MOE_BF16, &err) < 0 ||
        show_lora(&l, MOE_INT8, &err) < 0)
        return failed(&err);
    if (!memory_for("moe-sft, as DeepSeek-V3", (size_t)6 << 30))
        return 0;
    fill(&l, &large);
    if (par_open(&par, par_default(), &err) < 0 ||
        show(&l, MOE_BF16, par, &err) < 0)
        return failed(&err);
    par_close(par);
    return 0;
}
