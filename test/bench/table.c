/* SPDX-License-Identifier: ISC */
/* Layers on lookup tables: the steps of table_apply(), each against what
 * limits it. */
#include <stdio.h>
#include <stdlib.h>

#include "core/kernel/gemm.h"
#include "core/kernel/screen.h"
#include "core/kernel/sums.h"
#include "core/mem.h"
#include "core/model/table.h"
#include "core/model/table_dims.h"
#include "test/bench/bench.h"
#include "test/bench/probe.h"

#define ROUNDS 5
#define BATCH  64

struct bench {
    struct par *par;
    struct gemm *gemm;
    struct table_work *work;
    struct table t;
    float *x, *y, *p;
    size_t n_table; /* bytes of products, of each weight of the SAE */
    size_t n_sae;
    char shape[32];
};

static void *
big(size_t n, size_t size)
{
    struct err err;
    void *p = mem_big(n, size, "the tables", &err);

    if (!p) {
        fprintf(stderr, "bench: %s\n", err.what);
        exit(1);
    }
    return p;
}

/* BF16 of about 2^-6, of either sign. */
static uint16_t *
weights(size_t n)
{
    uint16_t *w = big(n, 2);
    uint64_t s = n | 1;

    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        w[i] = (uint16_t)(0x3c00 | (s >> 40 & 0x80ff));
    }
    return w;
}

static void
open_bench(struct bench *b, size_t in, size_t out, size_t n, size_t k)
{
    struct err err;

    const struct latents_sizes sizes = { .in = in, .k = k, .screened = n };
    snprintf(b->shape, sizeof(b->shape), "%zu>%zu %zu:%zu", in, out, n, k);
    b->n_table = n * out * 2;
    b->n_sae = n * in * 2;
    b->t = (struct table){
        .in = in,
        .out = out,
        .n_basis = n,
        .latents = { .w = { .weight = { weights(n * in), DT_BF16, in },
                            .n = n,
                            .k = in },
                     .bias = big(n, 4),
                     .k = k },
        .products = { weights(n * out), DT_BF16, big(out, 4), out },
    };
    b->t.decoder =
        (struct decoder){ b->t.latents.w.weight.data, DT_BF16, big(in, 4), in };
    b->x = big(BATCH * in, 4);
    b->y = big(BATCH * out, 4);
    b->p = big(BATCH * n, 4);
    for (size_t i = 0; i < BATCH * in; i++)
        b->x[i] = (float)(i * 7919 % 1009) / 1009 - 0.5f;
    if (gemm_open(&b->gemm, b->par, &err) < 0 ||
        table_work_open(&b->work, b->gemm, &sizes, BATCH, &err) < 0)
        exit(1);
}

static void
drop(const void *p, size_t n, size_t item)
{
    mem_big_free((void *)(uintptr_t)p, n, item);
}

static void
close_bench(struct bench *b)
{
    const struct table *t = &b->t;

    table_work_close(b->work);
    gemm_close(b->gemm);
    drop(t->latents.w.weight.data, t->n_basis * t->in, 2);
    drop(t->products.w, t->n_basis * t->out, 2);
    drop(t->latents.bias, t->n_basis, 4);
    drop(t->decoder.bias, t->in, 4);
    drop(t->products.bias, t->out, 4);
    mem_big_free(b->x, BATCH * t->in, 4);
    mem_big_free(b->y, BATCH * t->out, 4);
    mem_big_free(b->p, BATCH * t->n_basis, 4);
}

/* The pre-activations by themselves, for the top-k alone. */
static void
encode_plain(struct bench *b)
{
    const struct gemm_job job = {
        .w = b->t.latents.w,
        .c = b->p,
        .ldc = b->t.n_basis,
    };

    gemm_exact(b->gemm, &job, 1, b->x, b->t.in, BATCH);
}

/* Seconds of a row, which is in the cache as a tile of its product is. */
static double
topk_s(struct bench *b)
{
    size_t cap = topk_cap(b->t.latents.k), n = b->t.n_basis;
    uint64_t *key = malloc(2 * cap * sizeof(*key));
    uint32_t *idx = malloc(b->t.latents.k * sizeof(*idx));
    float *v = malloc(b->t.latents.k * sizeof(*v)), *p = malloc(n * sizeof(*p));
    double t[BATCH];

    for (size_t i = 0; i < BATCH; i++) {
        struct topk top;

        memcpy(p, b->p + i * n, n * sizeof(*p));
        t[i] = clock_s();
        topk_start(&top, key, key + cap, b->t.latents.k);
        topk_put(&top, p, 0, n);
        topk_take(&top, idx, v);
        t[i] = clock_s() - t[i];
    }
    free(key);
    free(idx);
    free(v);
    free(p);
    return median(t, BATCH);
}

static void
encode_rows(struct bench *b)
{
    double flop = 2.0 * BATCH * (double)b->t.n_basis * (double)b->t.in;
    double v[ROUNDS], peak[ROUNDS], plain[ROUNDS], top[ROUNDS], rate;
    int threads = par_threads(b->par);

    for (int i = 0; i < ROUNDS; i++) {
        double t;

        peak[i] = probe_best(b->par, PROBE_F32);
        t = clock_s();
        table_encode(b->work, &b->t, b->x, b->t.in, BATCH, 0);
        v[i] = flop / (clock_s() - t);
        t = cpu_s();
        encode_plain(b);
        plain[i] = (cpu_s() - t) / BATCH;
        top[i] = topk_s(b);
    }
    rate = median(v, ROUNDS);
    row("lut encode", b->shape, isa_name(cpu_isa()), threads, 1e-9 * rate,
        "GFLOP/s", rate / median(peak, ROUNDS), "its peak");
    if (threads == 1)
        row("lut top-k", b->shape, isa_name(cpu_isa()), 1,
            1e6 * median(top, ROUNDS), "us/row",
            median(top, ROUNDS) / median(plain, ROUNDS), "encode, by CPU time");
}

static void
other_rows(struct bench *b, int round)
{
    for (size_t d = 0; d < BATCH * b->t.in; d++)
        b->x[d] = (float)((d + 1) * (size_t)(round + 7919) % 1009) / 1009 - .5f;
}

/* n rows, each time others: no cache has their table's rows, even one that
 * all of the table fits. */
static void
combine_row(struct bench *b, size_t n, const char *what)
{
    double v[ROUNDS], read[ROUNDS], rate;
    struct table t = b->t;

    for (int i = 0; i < ROUNDS; i++) {
        double s;

        other_rows(b, i);
        table_encode(b->work, &t, b->x, t.in, n, 0);
        table_select(b->work, &t, n);
        probe_evict(b->par);
        read[i] = probe_read(b->par, t.products.w, b->n_table);
        probe_evict(b->par);
        s = clock_s();
        table_combine(b->work, &t, b->y, t.out, n);
        v[i] = (double)(n * t.latents.k * t.out * 2) / (clock_s() - s);
    }
    rate = median(v, ROUNDS);
    row(what, b->shape, isa_name(cpu_isa()), par_threads(b->par), 1e-9 * rate,
        "GB/s", rate / median(read, ROUNDS), "read memory");
}

/* CPU time of a row of a batch of n: of the encoder and its top-k, or of the
 * whole table. */
static double
table_s(struct bench *b, const struct table *t, size_t n, bool whole)
{
    double s = cpu_s();

    if (whole) {
        table_apply(b->work, t, NULL, b->y, t->out, b->x, t->in, n, 0);
    } else {
        table_encode(b->work, t, b->x, t->in, n, 0);
        table_select(b->work, t, n);
    }
    return (cpu_s() - s) / (double)n;
}

/* Screened against exact, and the whole table against its layer, in turns: how
 * many times faster, or under 1, slower.  A batch of 1 finds nothing in the
 * caches. */
static void
screened_rows(struct bench *b, size_t n)
{
    const size_t n_w = b->t.in * b->t.out;
    double exact[ROUNDS], quick[ROUNDS], table[ROUNDS], dense[ROUNDS];
    double by_exact[ROUNDS], by_dense[ROUNDS];
    struct table screened = b->t, t = b->t;
    uint16_t *w = weights(n_w);
    char what[64];

    screened.part[0] = (struct gemm_matrix){
        .weight = { .data = w, .dtype = DT_BF16, .ld = t.in },
        .n = t.out,
        .k = t.in
    };
    screened.n_parts = 1;
    screened.bias = big(t.out, 4);
    table_screen(&screened);
    table_s(b, &screened, n, false); /* packs */
    for (int i = 0; i < ROUNDS; i++) {
        other_rows(b, i);
        if (n == 1)
            probe_evict(b->par);
        exact[i] = table_s(b, &t, n, false);
        if (n == 1)
            probe_evict(b->par);
        quick[i] = table_s(b, &screened, n, false);
        if (n == 1)
            probe_evict(b->par);
        table[i] = table_s(b, &screened, n, true);
        if (n == 1)
            probe_evict(b->par);
        dense[i] = cpu_s();
        table_dense(b->gemm, &screened, b->y, t.out, b->x, t.in, n);
        dense[i] = (cpu_s() - dense[i]) / (double)n;
        by_exact[i] = exact[i] / quick[i];
        by_dense[i] = dense[i] / table[i];
    }
    snprintf(what, sizeof(what), "lut screened, %zu", n);
    row(what, b->shape, isa_name(cpu_isa()), 1, 1e6 * median(quick, ROUNDS),
        "us/row", median(by_exact, ROUNDS), "times exact");
    snprintf(what, sizeof(what), "lut table, %zu", n);
    row(what, b->shape, isa_name(cpu_isa()), 1, 1e6 * median(table, ROUNDS),
        "us/row", median(by_dense, ROUNDS), "times its layer");
    screen_close(screened.latents.screen);
    mem_big_free((void *)(uintptr_t)screened.bias, t.out, 4);
    mem_big_free(w, n_w, 2);
}

/* Compensation of the same M inputs in every row, by their packed weights,
 * against that of each row's own M by the stored weights. */
static void
dims_row(struct bench *b, size_t n, size_t m)
{
    double fixed[ROUNDS], gather[ROUNDS], ratio[ROUNDS];
    uint32_t *dims = malloc(m * sizeof(*dims));
    const struct table_fix top = { .how = FIX_TOP, .top = m };
    const struct table_fix same = { .how = FIX_DIMS,
                                    .dims = dims,
                                    .n_dims = m };
    uint16_t *w = weights(b->t.in * b->t.out);
    struct table t = b->t;
    struct err err;
    char what[64];

    t.weight_t = w;
    t.weight_dtype = DT_BF16;
    for (size_t i = 0; i < m; i++)
        dims[i] = (uint32_t)(i * t.in / m);
    if (table_pack_dims(&t, &same, &err) < 0)
        exit(1);
    for (int i = 0; i < ROUNDS; i++) {
        other_rows(b, i);
        table_apply(b->work, &t, NULL, b->y, t.out, b->x, t.in, n, 0);
        for (int k = 0; k < 2; k++) {
            double s;

            if (n == 1)
                probe_evict(b->par);
            s = cpu_s();
            table_compensate(b->work, &t, k ? &same : &top, b->y, t.out, b->x,
                             t.in, n, 0);
            (k ? fixed : gather)[i] = (cpu_s() - s) / (double)n;
        }
        ratio[i] = gather[i] / fixed[i];
    }
    snprintf(what, sizeof(what), "lut %zu dims, %zu", m, n);
    row(what, b->shape, isa_name(cpu_isa()), 1, 1e6 * median(fixed, ROUNDS),
        "us/row", median(ratio, ROUNDS), "times each row's own");
    mem_big_free(t.panels, t.panels_nbytes, 1);
    mem_big_free(w, t.in * t.out, 2);
    free(dims);
}

static void
run_screened(size_t in, size_t out, size_t n, size_t k)
{
    struct bench b = { 0 };
    struct err err;

    if (par_open(&b.par, 1, &err) < 0)
        exit(1);
    open_bench(&b, in, out, n, k);
    screened_rows(&b, BATCH);
    screened_rows(&b, 1);
    dims_row(&b, BATCH, in / 16);
    dims_row(&b, BATCH, in / 4);
    dims_row(&b, 1, in / 16);
    close_bench(&b);
    par_close(b.par);
}

static void
run(int threads, size_t in, size_t out, size_t n, size_t k)
{
    struct bench b = { 0 };
    struct err err;

    if (par_open(&b.par, threads, &err) < 0)
        exit(1);
    open_bench(&b, in, out, n, k);
    encode_rows(&b);
    combine_row(&b, 1, "lut combine, 1 row");
    combine_row(&b, BATCH, "lut combine, 64");
    close_bench(&b);
    par_close(b.par);
}

/* What test/bench/peers.py compares with torch's: rows a second of 'combine',
 * or of 'all' steps. */
static int
one(char **arg)
{
    double v[ROUNDS];
    struct bench b = { 0 };
    struct err err;

    if (par_open(&b.par, atoi(arg[5]), &err) < 0)
        return 1;
    open_bench(&b, strtoull(arg[1], NULL, 10), strtoull(arg[2], NULL, 10),
               strtoull(arg[3], NULL, 10), strtoull(arg[4], NULL, 10));
    for (int i = -1; i < ROUNDS; i++) {
        double t;

        other_rows(&b, i);
        t = clock_s();
        table_encode(b.work, &b.t, b.x, b.t.in, BATCH, 0);
        table_select(b.work, &b.t, BATCH);
        if (!strcmp(arg[0], "combine"))
            t = clock_s();
        table_combine(b.work, &b.t, b.y, b.t.out, BATCH);
        if (i >= 0)
            v[i] = BATCH / (clock_s() - t);
    }
    printf("%.1f\n", median(v, ROUNDS));
    close_bench(&b);
    par_close(b.par);
    return 0;
}

int
main(int argc, char **argv)
{
    int all = par_default();

    if (argc == 8 && !strcmp(argv[1], "one"))
        return one(argv + 2);
    run(1, 1024, 4096, 8192, 128);
    run_screened(1024, 6144, 8192, 32);
    run_screened(1024, 6144, 8192, 128);
    if (memory_for("lut 4096 > 6144", (size_t)1 << 30))
        run(1, 4096, 6144, 32768, 256);
    if (all > 1)
        run(all, 1024, 4096, 8192, 128);
    return 0;
}
