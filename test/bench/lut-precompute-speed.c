/* SPDX-License-Identifier: ISC */
/*
 * lut-precompute-speed: whole runs, files read and written, in ratio to exact
 * products of the layer's weights alone, which are measured in turns with them:
 * by the clock on all CPUs, and a second of CPU time against one thread's, of
 * a run with -j1: of more, threads that wait for each other take some.  CPU
 * time is no longer where others use the machine, and knows nothing of waiting
 * for files.  What write(2) of the table's bytes takes is the machine's: where
 * a guest gets its memory from the host page by page, a tenth of all.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/format/stw.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/rng.h"
#include "core/str.h"
#include "test/bench/bench.h"

enum { ROUNDS = 3, TILE = 512 };
#define PRODUCTS_S 0.3
#define PIECE      ((size_t)4 << 20)

struct layer {
    const char *name;
    size_t in, out, n;
};

static struct layer layers[] = {
    { "self_attn.q_proj", 1024, 4096, 8192 },
    { "mlp.up_proj", 4096, 6144, 32768 }, /* 2 GiB of files */
};
#define LARGE_BYTES ((size_t)3 << 30)
#define LESS        8192

static const struct {
    const char *options;
    size_t layer;
    int rounds;
} runs[] = {
    { "--dtype bf16", 0, ROUNDS },
    { "--dtype f32", 0, ROUNDS },
    { "--dtype bf16", 1, 1 },
};
enum { N_RUNS = sizeof(runs) / sizeof(runs[0]) };

/* Numbers of no meaning, in [-1/32, 1/32). */
static int
put_noise(struct stw *w, int tensor, enum dtype dtype, size_t n)
{
    size_t size = dtype_size(dtype);
    char *buf = malloc(n * size);
    struct err err;
    int rc;

    for (size_t i = 0; buf && i < n; i++) {
        float f = (rng_f32(1, (uint64_t)tensor, i % 65521) - 0.5f) / 16;

        if (dtype == DT_F32)
            memcpy(buf + i * size, &f, size);
        else
            memcpy(buf + i * size, &(uint16_t){ f32_to_bf16(f) }, size);
    }
    rc = buf ? stw_write(w, tensor, buf, n * size, 0, &err) : -1;
    free(buf);
    return rc;
}

struct tensor {
    const char *name;
    enum dtype dtype;
    size_t rows, cols; /* cols 0: a vector */
};

static int
make_file(const char *path, const struct tensor *tensors, int n)
{
    struct stw *w = stw_new();
    struct err err = { 0 };
    int rc = 0;

    for (int i = 0; i < n; i++)
        if (stw_add(w, tensors[i].name, tensors[i].dtype,
                    tensors[i].cols ? 2 : 1,
                    (uint64_t[]){ tensors[i].rows, tensors[i].cols }, &err) < 0)
            rc = -1;
    rc = rc < 0 ? -1 : stw_open(w, path, OUT_NO_SYNC, &err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = put_noise(w, i, tensors[i].dtype,
                       tensors[i].rows *
                           (tensors[i].cols ? tensors[i].cols : 1));
    rc = rc < 0 ? -1 : stw_commit(w, &err);
    stw_free(w);
    if (rc < 0)
        fprintf(stderr, "lut-precompute-speed: %s\n", err.what);
    return rc;
}

static int
make_sae(const char *dir, const struct layer *l)
{
    struct tensor tensors[] = { { "encoder.weight", DT_F32, l->n, l->in },
                                { "encoder.bias", DT_F32, l->n, 0 },
                                { "W_dec", DT_F32, l->n, l->in },
                                { "b_dec", DT_F32, l->in, 0 } };
    struct str s = { 0 };
    int rc;

    str_addf(&s,
             "mkdir -p '%s/sae/layers.0.%s' && "
             "printf '{\"k\": 32}' >'%s/sae/layers.0.%s/cfg.json'",
             dir, l->name, dir, l->name);
    rc = system(s.s);
    str_clear(&s);
    str_addf(&s, "%s/sae/layers.0.%s/sae.safetensors", dir, l->name);
    rc = rc == 0 ? make_file(s.s, tensors, 4) : -1;
    str_free(&s);
    return rc;
}

static int
make_model(const char *dir)
{
    struct tensor tensors[2];
    struct str s = { 0 }, names[2] = { 0 };
    int rc;

    for (int i = 0; i < 2; i++) {
        str_addf(&names[i], "model.layers.0.%s.weight", layers[i].name);
        tensors[i] =
            (struct tensor){ names[i].s, DT_BF16, layers[i].out, layers[i].in };
    }
    str_addf(&s,
             "mkdir '%s/m' && printf '{\"num_hidden_layers\": 1}' "
             ">'%s/m/config.json'",
             dir, dir);
    rc = system(s.s);
    str_clear(&s);
    str_addf(&s, "%s/m/model.safetensors", dir);
    rc = rc == 0 ? make_file(s.s, tensors, 2) : -1;
    str_free(&s);
    str_free(&names[0]);
    str_free(&names[1]);
    return rc;
}

static double
children_cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct seconds {
    double clock, cpu;
};

static int
run(const char *dir, int k, int n_threads, struct seconds *took)
{
    struct str s = { 0 };
    int rc;

    str_addf(&s, "sync -f '%s'", dir);
    rc = system(s.s);
    str_clear(&s);
    str_addf(&s,
             "lut-precompute -q -f -j%d -m '%s/m' -s '%s/sae' -o '%s/t' %s "
             "--layers '*.%s'",
             n_threads, dir, dir, dir, runs[k].options,
             layers[runs[k].layer].name);
    *took = (struct seconds){ clock_s(), children_cpu_s() };
    rc |= system(s.s);
    took->clock = clock_s() - took->clock;
    took->cpu = children_cpu_s() - took->cpu;
    str_free(&s);
    if (rc != 0)
        fprintf(stderr, "lut-precompute-speed: a run failed\n");
    return rc;
}

/* Seconds of CPU time for as many bytes as the table has, to a new file. */
static double
write_s(const char *dir, int k)
{
    const struct layer *l = &layers[runs[k].layer];
    size_t item = strstr(runs[k].options, "bf16") ? 2 : 4;
    size_t left = l->n * (2 * l->in + l->out) * item;
    char *piece = calloc(1, PIECE);
    struct str s = { 0 };
    double began;
    int fd;

    str_addf(&s, "%s/written", dir);
    fd = open(s.s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    began = cpu_s();
    for (ssize_t n; piece && left > 0; left -= (size_t)n) {
        n = write(fd, piece, smaller(left, PIECE));
        if (n <= 0)
            exit(1);
    }
    began = cpu_s() - began;
    close(fd);
    unlink(s.s);
    str_free(&s);
    free(piece);
    return began;
}

static double
flop(int k)
{
    const struct layer *l = &layers[runs[k].layer];

    return 2.0 * (double)(l->n * l->in) * (double)l->out;
}

/* Operations a second of exact products of TILE rows by the layer's weights:
 * of the clock, or of one thread's CPU time. */
static double
products(struct par *par, const struct layer *l)
{
    const size_t n = TILE * (l->in + l->out) * 4 + l->out * l->in * 2;
    struct gemm_job job = {
        .w = { .weight = { .dtype = DT_BF16, .ld = l->in },
               .n = l->out,
               .k = l->in },
        .ldc = l->out,
    };
    struct gemm *gemm = NULL;
    struct err err;
    float *x = mem_big(n, 1, "products", &err);
    double began, took, done = 0;

    if (!x || gemm_open(&gemm, par, &err) < 0) {
        fprintf(stderr, "lut-precompute-speed: %s\n", err.what);
        exit(1);
    }
    job.c = x + TILE * l->in;
    job.w.weight.data = job.c + TILE * l->out;
    memset(x, 0x3c, n); /* else all of it is one page, of zeros, in the cache */
    gemm_exact(gemm, &job, 1, x, l->in, TILE);
    began = par ? clock_s() : cpu_s();
    do {
        gemm_exact(gemm, &job, 1, x, l->in, TILE);
        done += 2.0 * TILE * (double)l->in * (double)l->out;
        took = (par ? clock_s() : cpu_s()) - began;
    } while (took < PRODUCTS_S);
    gemm_close(gemm);
    mem_big_free(x, n, 1);
    return done / took;
}

struct rates {
    double clock[ROUNDS], cpu[ROUNDS];
    double of_all[ROUNDS], of_one[ROUNDS], of_written[ROUNDS];
};

static int
round_of(const char *dir, struct par *par, int k, int r, struct rates *v)
{
    const struct layer *l = &layers[runs[k].layer];
    double all = products(par, l), one = products(NULL, l), written;
    struct seconds took, alone;

    if (run(dir, k, par_threads(par), &took) != 0 ||
        run(dir, k, 1, &alone) != 0)
        return -1;
    all = (all + products(par, l)) / 2;
    one = (one + products(NULL, l)) / 2;
    written = write_s(dir, k);
    v->clock[r] = flop(k) / took.clock;
    v->cpu[r] = flop(k) / alone.cpu;
    v->of_all[r] = v->clock[r] / all;
    v->of_one[r] = v->cpu[r] / one;
    v->of_written[r] = (flop(k) / one + written) / alone.cpu;
    return 0;
}

static void
put(struct par *par, int k, struct rates *v)
{
    const struct layer *l = &layers[runs[k].layer];
    size_t n = (size_t)runs[k].rounds;
    char shape[40];

    snprintf(shape, sizeof(shape), "%zux%zux%zu %s", l->in, l->out, l->n,
             strrchr(runs[k].options, ' ') + 1);
    row("lut-precompute", shape, isa_name(cpu_isa()), par_threads(par),
        1e-9 * median(v->clock, n), "GFLOP/s", median(v->of_all, n),
        "its products");
    row("lut-precompute CPU", shape, isa_name(cpu_isa()), 1,
        1e-9 * median(v->cpu, n), "GFLOP/s", median(v->of_one, n),
        "its products, by CPU time");
    row("lut-precompute CPU", shape, isa_name(cpu_isa()), 1,
        1e-9 * median(v->cpu, n), "GFLOP/s", median(v->of_written, n),
        "its products and write(2)");
}

static int
show(const char *dir, struct par *par)
{
    struct rates v[N_RUNS];

    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < N_RUNS; k++)
            if (r < runs[k].rounds && round_of(dir, par, k, r, &v[k]) < 0)
                return -1;
    for (int k = 0; k < N_RUNS; k++)
        put(par, k, &v[k]);
    return 0;
}

/* A smaller one says so by its shape. */
static void
fit(const char *dir)
{
    struct statvfs fs;

    if (statvfs(dir, &fs) != 0 || fs.f_bavail < LARGE_BYTES / fs.f_frsize ||
        !memory_for("lut-precompute, N 32768", LARGE_BYTES))
        layers[1].n = LESS;
}

int
main(void)
{
    char *dir = scratch_name("lut-precompute-speed");
    struct par *par = NULL;
    struct str s = { 0 };
    struct err err;
    int rc;

    rc = !mkdtemp(dir);
    if (rc == 0)
        fit(dir);
    rc = rc || make_model(dir) < 0 || make_sae(dir, &layers[0]) < 0 ||
         make_sae(dir, &layers[1]) < 0 ||
         par_open(&par, par_default(), &err) < 0 || show(dir, par) < 0;
    par_close(par);
    str_addf(&s, "rm -rf '%s'", dir);
    rc |= system(s.s) != 0;
    str_free(&s);
    free(dir);
    return rc;
}
