/* SPDX-License-Identifier: ISC */
/*
 * kernels: products and conversions, each beside its probe, in turns.
 *   kernels products                  no gemv, no weights packed before: what
 *                                     tells one instruction set from another
 *   kernels below ISA                 status 0 if this machine has more
 *   kernels one CLASS M N K THREADS   prints one product's GFLOP/s alone:
 *   what test/bench/peers.py measures others against
 */
#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "test/bench/bench.h"
#include "test/bench/probe.h"

enum { ROUNDS = 5 };

/* The hooks: sums are rounded to bf16 where they are made, and no C is
 * written. */
enum class {
    EXACT,
    BF16,
    BF16_PACKED,
    BF16_HOOK,
    INT8,
    INT8_PACKED,
    INT8_HOOK,
    CLASSES
};

static const char *const names[CLASSES] = { "exact",     "bf16", "bf16-packed",
                                            "bf16-hook", "int8", "int8-packed",
                                            "int8-hook" };

struct product {
    enum class class;
    size_t m, n, k;
    struct gemm *gemm;
    char *w;                        /* [n, k] */
    float *x, *c, *scale, *x_scale; /* of a hook: c [m, n] bf16 */
    void *rounded;                  /* X of the class */
    struct gemm_panels panels;
    struct gemm_job job;
};

static void *
big(size_t n, size_t size)
{
    struct err err;
    void *p = mem_big(n, size, "the matrices", &err);

    if (!p) {
        fprintf(stderr, "bench: %s\n", err.what);
        exit(1);
    }
    return p;
}

static bool
packed(const struct product *p)
{
    return p->class != EXACT && p->class != BF16 && p->class != INT8;
}

static bool
hooked(const struct product *p)
{
    return p->class == BF16_HOOK || p->class == INT8_HOOK;
}

static bool
is_int8(const struct product *p)
{
    return p->class >= INT8;
}

static void
round_sums(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows,
           size_t col, size_t n_cols, int thread)
{
    const struct product *p = ctx;
    uint16_t *to = (uint16_t *)(void *)p->c + row * p->n + col;

    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        cvt_from_f32(to + i * p->n, DT_BF16, t + i * ldt, n_cols);
}

static void
product_open(struct product *p, struct par *par)
{
    struct err err;
    size_t size = is_int8(p) ? 1 : 2;

    if (gemm_open(&p->gemm, par, &err) < 0)
        exit(1);
    p->w = big(p->n * p->k, size);
    memset(p->w, 0x3c, p->n * p->k * size);
    p->x = big(p->m * p->k, 4);
    for (size_t i = 0; i < p->m * p->k; i++)
        p->x[i] = (float)(i % 7) - 3;
    p->c = big(p->m * p->n, 4);
    memset(p->c, 0, p->m * p->n * 4);
    p->scale = big(p->n, 4);
    p->x_scale = big(p->m, 4);
    p->rounded = big(p->m * (p->k + 64), 2);
    p->job = (struct gemm_job){
        .w = { { p->w, is_int8(p) ? DT_I8 : DT_BF16, p->k, p->scale, 0, 0 },
               .n = p->n,
               .k = p->k },
        .c = p->c,
        .ldc = p->n,
    };
    if (hooked(p)) {
        p->job.c = NULL;
        p->job.end.hook = round_sums;
        p->job.end.ctx = p;
    }
    if (!packed(p))
        return;
    p->panels.class = is_int8(p) ? GEMM_INT8 : GEMM_BF16;
    p->panels.scale = p->scale;
    p->panels.data =
        big(gemm_packed_nbytes(p->panels.class, p->n, p->k) + 64, 1);
    gemm_pack(p->gemm, &p->panels, &p->job.w);
    p->job.panels = &p->panels;
}

static void
product_close(struct product *p)
{
    mem_big_free(p->w, p->n * p->k, is_int8(p) ? 1 : 2);
    mem_big_free(p->x, p->m * p->k, 4);
    mem_big_free(p->c, p->m * p->n, 4);
    mem_big_free(p->scale, p->n, 4);
    mem_big_free(p->x_scale, p->m, 4);
    mem_big_free(p->rounded, p->m * (p->k + 64), 2);
    if (packed(p))
        mem_big_free(p->panels.data,
                     gemm_packed_nbytes(p->panels.class, p->n, p->k) + 64, 1);
    gemm_close(p->gemm);
}

/* Seconds; rounding X is part of it. */
static double
product_run(struct product *p)
{
    double t = clock_s();

    if (p->class == EXACT) {
        gemm_exact(p->gemm, &p->job, 1, p->x, p->k, p->m);
    } else if (is_int8(p)) {
        gemm_x_int8(p->gemm, p->rounded, p->x_scale, p->x, DT_F32, p->k, p->m,
                    p->k);
        gemm_int8(p->gemm, &p->job, 1, p->rounded, p->x_scale,
                  gemm_ld_int8(p->k), p->m);
    } else {
        gemm_to_bf16(p->gemm, p->rounded, p->x, p->k, p->m, p->k);
        gemm_bf16(p->gemm, &p->job, 1, p->rounded, NULL, gemm_ld_bf16(p->k),
                  p->m);
    }
    return clock_s() - t;
}

static double
flop(const struct product *p)
{
    return 2.0 * (double)p->m * (double)p->n * (double)p->k;
}

static void
product_row(struct par *par, enum class class, size_t m, size_t n, size_t k)
{
    struct product p = { .class = class, .m = m, .n = n, .k = k };
    enum probe_kind kind = class == EXACT  ? PROBE_F32
                           : class >= INT8 ? PROBE_INT8
                                           : PROBE_BF16;
    double v[ROUNDS], peak[ROUNDS], rate;
    char what[32], shape[32];

    product_open(&p, par);
    product_run(&p);
    for (int i = 0; i < ROUNDS; i++) {
        peak[i] = probe_best(par, kind);
        if (peak[i] == 0) /* no bf16 instruction: widened to f32 */
            peak[i] = probe_best(par, PROBE_F32);
        v[i] = flop(&p) / product_run(&p);
    }
    snprintf(what, sizeof(what), "gemm %s", names[class]);
    snprintf(shape, sizeof(shape), "%zux%zux%zu", m, n, k);
    rate = median(v, ROUNDS);
    row(what, shape, isa_name(cpu_isa()), par_threads(par), 1e-9 * rate,
        class >= INT8 ? "GOP/s" : "GFLOP/s", rate / median(peak, ROUNDS),
        "its peak");
    product_close(&p);
}

/* m rows of X by weights that no cache has, against reading them. */
static void
gemv_row(struct par *par, enum dtype dtype, size_t m, bool by_k,
         const char *what)
{
    enum { N = 65536, K = 1024 };
    size_t size = dtype == DT_F32 ? 4 : 2, nbytes = (size_t)N * K * size;
    double v[ROUNDS], read[ROUNDS], rate;
    char *w = big(nbytes, 1);
    float *x = big(m * K, 4), *y = big(m * N, 4);
    struct gemm_job job = {
        .w = { .weight = { .data = w, .dtype = dtype, .ld = by_k ? N : K },
               .n = N,
               .k = K,
               .by_k = by_k },
        .c = y,
        .ldc = N
    };
    struct gemm *gemm;
    struct err err;

    if (gemm_open(&gemm, par, &err) < 0)
        exit(1);
    memset(w, 0x3c, nbytes);
    memset(x, 0x3c, m * K * sizeof(*x)); /* pages of their own */
    gemm_exact(gemm, &job, 1, x, K, m);
    for (int i = 0; i < ROUNDS; i++) {
        double t;

        probe_evict(par);
        read[i] = probe_read(par, w, nbytes);
        probe_evict(par);
        t = clock_s();
        gemm_exact(gemm, &job, 1, x, K, m);
        v[i] = (double)nbytes / (clock_s() - t);
    }
    rate = median(v, ROUNDS);
    row(what, "65536x1024", isa_name(cpu_isa()), par_threads(par), 1e-9 * rate,
        "GB/s", rate / median(read, ROUNDS), "read memory");
    gemm_close(gemm);
    mem_big_free(w, nbytes, 1);
    mem_big_free(x, m * K, 4);
    mem_big_free(y, m * N, 4);
}

/* The same of codes, their bytes and their scales'; and how much faster than
 * bf16's gemv of as many weights, in turns, which is what decoding a model's
 * next token gains. */
static void
code_row(struct par *par, const char *what, struct weight_code code,
         bool negative, size_t m)
{
    enum { N = 65536, K = 1024 };
    const size_t blocks = N / code.rows * (K / code.cols);
    const bool halves = code.kind == CODE_U4 || code.kind == CODE_F4;
    const size_t nbytes = (size_t)N * K / (halves ? 2 : 1);
    const size_t all = nbytes + blocks * dtype_table[code.scale_dtype].bits / 8;
    char *data = big((size_t)N * K, 2), *scale = big(blocks, 4);
    double v[ROUNDS], read[ROUNDS], gain[ROUNDS], rate;
    float *x = big(m * K, 4), *y = big(m * N, 4);
    struct gemm_job jobs[2];
    struct gemm *gemm;
    struct err err;

    if (gemm_open(&gemm, par, &err) < 0)
        exit(1);
    memset(data, 0x3c, (size_t)N * K * 2);
    memset(scale, 0x3c, blocks * 4);
    for (size_t i = 0; negative && i < blocks; i += 2)
        scale[2 * i + 1] = (char)0xbc;
    memset(x, 0x3c, m * K * sizeof(*x));
    code.scale = scale;
    code.ld = K / code.cols;
    for (int i = 0; i < 2; i++) {
        jobs[i] =
            (struct gemm_job){ .w = { .weight = { .data = data,
                                                  .dtype = i ? DT_BF16 : DT_U8,
                                                  .ld = K,
                                                  .code = i ? NULL : &code },
                                      .n = N,
                                      .k = K },
                               .c = y,
                               .ldc = N };
        gemm_exact(gemm, &jobs[i], 1, x, K, m);
    }
    for (int i = 0; i < ROUNDS; i++) {
        double t[3];

        probe_evict(par);
        read[i] = probe_read(par, data, all);
        for (int j = 0; j < 2; j++) {
            probe_evict(par);
            t[j] = clock_s();
            gemm_exact(gemm, &jobs[j], 1, x, K, m);
            t[j] = clock_s() - t[j];
        }
        v[i] = (double)all / t[0];
        gain[i] = t[1] / t[0];
    }
    rate = median(v, ROUNDS);
    row(what, "65536x1024", isa_name(cpu_isa()), par_threads(par), 1e-9 * rate,
        "GB/s", rate / median(read, ROUNDS), "read memory");
    rate = median(gain, ROUNDS);
    row("  rows/s", "65536x1024", isa_name(cpu_isa()), par_threads(par), rate,
        "times", rate, "gemv bf16");
    gemm_close(gemm);
    mem_big_free(data, (size_t)N * K, 2);
    mem_big_free(scale, blocks, 4);
    mem_big_free(x, m * K, 4);
    mem_big_free(y, m * N, 4);
}

/* int8 by row, int4 by 128 columns, with scales of both signs as st-convert has
 * them, too, FP8 as DeepSeek, FP4 as gpt-oss has it. */
static void
code_rows(struct par *par, size_t m)
{
    static const struct weight_code codes[] = {
        { .kind = CODE_I8, .rows = 1, .cols = 1024, .scale_dtype = DT_BF16 },
        { .kind = CODE_U4,
          .rows = 1,
          .cols = 128,
          .scale_dtype = DT_BF16,
          .zero_all = 8 },
        { .kind = CODE_U4,
          .rows = 1,
          .cols = 128,
          .scale_dtype = DT_BF16,
          .zero_all = 8 },
        { .kind = CODE_F8, .rows = 128, .cols = 128, .scale_dtype = DT_F32 },
        { .kind = CODE_F4, .rows = 1, .cols = 32, .scale_dtype = DT_F8_E8M0 },
    };
    static const char *const forms[] = { "int8", "int4", "int4+-", "fp8",
                                         "mxfp4" };
    char what[32];

    for (size_t i = 0; i < 5; i++) {
        snprintf(what, sizeof(what), "gemv %s, %zu of X", forms[i], m);
        code_row(par, what, codes[i], i == 2, m);
    }
}

/* A long context, as hf-infer has it: 64 heads, 256 MiB, in blocks of 64
 * tokens, by turns keys [HEAD_DIM, BLOCK] and values [BLOCK, HEAD_DIM]. */
enum { HEADS = 64, CONTEXT = 8192, HEAD_DIM = 128, BLOCK = 64 };

struct attend {
    const char *w;  /* [HEADS, CONTEXT / BLOCK, BLOCK * HEAD_DIM], F32 */
    const float *p; /* [n, HEAD_DIM], and [n, BLOCK] of each block's values */
    float *y;       /* [HEADS, n, HEAD_DIM] */
    size_t n;
};

static void
attend_heads(void *ctx, size_t begin, size_t end)
{
    const struct attend *a = ctx;

    for (size_t h = begin; h < end; h++) {
        for (size_t i = 0; i < CONTEXT; i += BLOCK) {
            bool keys = i / BLOCK % 2 == 0;

            weighted_sum(&(struct weighted_sum){
                .y = a->y + h * a->n * HEAD_DIM,
                .w = a->w + (h * CONTEXT + i) * HEAD_DIM * 4,
                .next = a->w + (h * CONTEXT + i + BLOCK) * HEAD_DIM * 4,
                .p = a->p + (keys ? 0 : i / 2 * a->n),
                .ldy = HEAD_DIM,
                .ldw = keys ? BLOCK : HEAD_DIM,
                .ldp = keys ? HEAD_DIM : BLOCK,
                .rows = keys ? HEAD_DIM : BLOCK,
                .cols = keys ? BLOCK : HEAD_DIM,
                .n = a->n,
                .w_dtype = DT_F32,
                .add = !keys,
            });
        }
    }
}

/* What attention over them costs: one query, or two that share a head of keys,
 * when a token is made, against reading them; a tile of a prompt's, 64,
 * against the peak. */
static void
weighted_sum_row(struct par *par, size_t n)
{
    const size_t nbytes = (size_t)HEADS * CONTEXT * HEAD_DIM * 4;
    char *w = big(nbytes, 1);
    float *p = big(n * CONTEXT, 4), *y = big(HEADS * n * HEAD_DIM, 4);
    struct attend a = { w, p, y, n };
    double v[ROUNDS], limit[ROUNDS], rate;
    bool reads = n < 8;
    char shape[32];

    memset(w, 0x3c, nbytes);
    for (size_t i = 0; i < n * CONTEXT; i++)
        p[i] = (float)(i % 7) / CONTEXT;
    par_for(par, HEADS, 1, attend_heads, &a);
    for (int i = 0; i < ROUNDS; i++) {
        double t;

        probe_evict(par);
        limit[i] =
            reads ? probe_read(par, w, nbytes) : probe_best(par, PROBE_F32);
        probe_evict(par);
        t = clock_s();
        par_for(par, HEADS, 1, attend_heads, &a);
        v[i] = (double)nbytes * (reads ? 1 : (double)n / 2) / (clock_s() - t);
    }
    rate = median(v, ROUNDS); /* four bytes are two operations */
    snprintf(shape, sizeof(shape), "%zux%dx%d", n, CONTEXT, HEAD_DIM);
    row("weighted sum", shape, isa_name(cpu_isa()), par_threads(par),
        1e-9 * rate, reads ? "GB/s" : "GFLOP/s", rate / median(limit, ROUNDS),
        reads ? "read memory" : "its peak");
    mem_big_free(w, nbytes, 1);
    mem_big_free(p, n * CONTEXT, 4);
    mem_big_free(y, HEADS * n * HEAD_DIM, 4);
}

enum { N_CACHED = 32768 };

static void
widen(float *x, void *other)
{
    cvt_to_f32(x, other, DT_BF16, N_CACHED);
}

static void
round_bf16(float *x, void *other)
{
    cvt_from_f32(other, DT_BF16, x, N_CACHED);
}

static void
silu(float *x, void *other)
{
    vec_act(ACT_SILU, x, other, N_CACHED);
}

/* What is done to vectors lies in the cache: against a copy of one there. */
static void
vec_row(const char *what, void (*fn)(float *x, void *other), size_t nbytes)
{
    enum { REPEAT = 200, COPY = N_CACHED * 4 };
    float *x = big(N_CACHED, 4), *other = big(N_CACHED, 4);
    double v[ROUNDS], copy[ROUNDS], rate;

    fn(x, other);
    for (int i = 0; i < ROUNDS; i++) {
        double t = clock_s();

        for (int r = 0; r < REPEAT; r++) {
            memcpy(x, other, COPY);
            __asm__ volatile("" : : "r"(x) : "memory");
        }
        copy[i] = 2.0 * COPY * REPEAT / (clock_s() - t);
        t = clock_s();
        for (int r = 0; r < REPEAT; r++)
            fn(x, other);
        v[i] = (double)N_CACHED * (double)nbytes * REPEAT / (clock_s() - t);
    }
    rate = median(v, ROUNDS);
    row(what, "32768", isa_name(cpu_isa()), 1, 1e-9 * rate, "GB/s",
        rate / median(copy, ROUNDS), "memcpy, cached");
    mem_big_free(x, N_CACHED, 4);
    mem_big_free(other, N_CACHED, 4);
}

static void
table(int threads, bool products_alone)
{
    struct par *par;
    struct err err;

    if (par_open(&par, threads, &err) < 0)
        exit(1);
    if (!products_alone) {
        gemv_row(par, DT_BF16, 1, false, "gemv bf16");
        gemv_row(par, DT_BF16, 1, true, "  by k");
        gemv_row(par, DT_BF16, 4, true, "  by k, 4 of X");
        gemv_row(par, DT_BF16, 5, false, "  5 rows of X");
        gemv_row(par, DT_F32, 1, false, "gemv f32");
        gemv_row(par, DT_F32, 1, true, "  by k");
        code_rows(par, 1);
        code_rows(par, 5);
        code_rows(par, 16);
        weighted_sum_row(par, 1);
        weighted_sum_row(par, 2);
        weighted_sum_row(par, 64);
        if (threads == 1) { /* bytes read and written an element */
            vec_row("cvt bf16 to f32", widen, 6);
            vec_row("cvt f32 to bf16", round_bf16, 6);
            vec_row("vec silu", silu, 12);
        }
    }
    for (enum class c = EXACT; c < CLASSES; c++) {
        if (products_alone && c != EXACT && c != BF16 && c != INT8)
            continue;
        product_row(par, c, 512, 4096, 1024);
        if (c != BF16_HOOK && c != INT8_HOOK)
            product_row(par, c, 1024, 16384, 1024);
        if (c == EXACT) /* a batch's */
            product_row(par, c, 16, 16384, 1024);
        if (c == BF16) /* LoRA's, of rank 16 */
            product_row(par, c, 128, 16, 2048);
        if (c == INT8_PACKED) /* C is a quarter, for the same operations */
            product_row(par, c, 512, 1024, 4096);
    }
    par_close(par);
}

static int
one(char **arg)
{
    struct product p = { .m = strtoull(arg[1], NULL, 10),
                         .n = strtoull(arg[2], NULL, 10),
                         .k = strtoull(arg[3], NULL, 10) };
    double v[ROUNDS];
    struct par *par;
    struct err err;

    while (p.class < CLASSES && strcmp(arg[0], names[p.class]) != 0)
        p.class ++;
    if (p.class == CLASSES || par_open(&par, atoi(arg[4]), &err) < 0)
        return 1;
    product_open(&p, par);
    product_run(&p);
    for (int i = 0; i < ROUNDS; i++)
        v[i] = 1e-9 * flop(&p) / product_run(&p);
    printf("%.1f\n", median(v, ROUNDS));
    product_close(&p);
    par_close(par);
    return 0;
}

static int
below(const char *name)
{
    for (enum isa i = cpu_isa(); i != ISA_SCALAR;) {
        i = isa_below(i);
        if (!strcmp(isa_name(i), name))
            return 0;
    }
    return 1;
}

int
main(int argc, char **argv)
{
    bool products_alone = argc == 2 && !strcmp(argv[1], "products");
    int all = par_default();

    if (argc == 3 && !strcmp(argv[1], "below"))
        return below(argv[2]);
    if (argc == 7 && !strcmp(argv[1], "one"))
        return one(argv + 2);
    table(1, products_alone);
    if (all > 2)
        table(2, products_alone);
    if (all > 1)
        table(all, products_alone);
    return 0;
}
