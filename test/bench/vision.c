/* SPDX-License-Identifier: ISC */
/*
 * vision: images a second of random vision encoders of ViT-B/16's and
 * ViT-L/14's shape at 224 x 224, beside the peak of their products and the rate
 * of gemm on the same matrices, in the same run.  vision one f32|bf16 DIR
 * THREADS  prints images a second alone: what test/bench/peers.py measures
 * others against
 */
#include "core/model/vision.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/model.h"
#include "core/str.h"
#include "test/bench/bench.h"
#include "test/bench/probe.h"

#define N_IMAGES 8
#define ROUNDS   5

static void
check(int rc, const struct err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "vision: %s\n", err->what);
    exit(1);
}

struct encoder {
    struct par *par;
    struct vision *v;
    float *pixels, *features;
};

static void
encoder_open(struct encoder *e, const char *dir, int threads,
             enum compute compute)
{
    const struct vision_options options = { .compute = compute };
    struct err err = { 0 };
    size_t n;

    check(par_open(&e->par, threads, &err), &err);
    check(vision_open(&e->v, dir, e->par, &options, &err), &err);
    n = N_IMAGES * 3 * e->v->shape.height * e->v->shape.width;
    e->pixels = xcalloc(n, sizeof(float));
    for (size_t i = 0; i < n; i++)
        e->pixels[i] = (float)((double)(i * 7919 % 4096) / 2048 - 1);
    e->features = xcalloc(N_IMAGES * e->v->shape.n_features, sizeof(float));
}

static void
encoder_close(struct encoder *e)
{
    vision_close(e->v);
    par_close(e->par);
    free(e->pixels);
    free(e->features);
}

/* Images a second. */
static double
encode(struct encoder *e)
{
    double start = clock_s();

    vision_run(e->v, e->pixels, N_IMAGES, NULL, e->features);
    return N_IMAGES / (clock_s() - start);
}

/* Of an image: products with weights, all of them or those alone that a layer
 * has, and attention. */
static double
flop(const struct vision *v, bool layers_alone)
{
    const struct vision_shape *s = &v->shape;
    double d = (double)s->hidden, n = (double)s->n_tokens;
    double inner = (double)v->model->config.intermediate_size;
    double layer = n * 2 * (4 * d * d + 2 * d * inner);

    if (layers_alone)
        return (double)s->n_layers * layer;
    return (double)s->n_layers * (layer + 4 * n * n * d) +
           (double)(s->n_patches * 3 * s->patch * s->patch) * 2 * d;
}

/* Operations a second of a layer's products, on as many rows. */
static double
gemm_rate(struct encoder *e)
{
    struct engine *g = e->v->engine;
    const struct layer *l = e->v->model->layers;
    const struct linear *const linears[] = { &l->q, &l->k,      &l->v,
                                             &l->o, &l->mlp.up, &l->mlp.down };
    size_t rows = e->v->batch * e->v->shape.n_tokens;
    double start = clock_s();

    for (size_t i = 0; i < sizeof(linears) / sizeof(*linears); i++)
        linear_rows(g,
                    &(struct apply){ linears[i],
                                     i == 4 ? g->acts.gate : g->acts.q, false },
                    1, i == 5 ? g->acts.gate : g->acts.x, rows, false);
    return flop(e->v, true) / (double)e->v->shape.n_layers *
           (double)e->v->batch / (clock_s() - start);
}

static void
lines(const char *dir, const char *name, int threads, enum compute compute)
{
    enum probe_kind kind = compute == COMPUTE_F32 ? PROBE_F32 : PROBE_BF16;
    double speed[ROUNDS], peak[ROUNDS], gemm[ROUNDS], v, g;
    struct str what = { 0 };
    struct encoder e;

    encoder_open(&e, dir, threads, compute);
    encode(&e);
    for (int i = 0; i < ROUNDS; i++) {
        peak[i] = probe_best(e.par, kind);
        if (peak[i] == 0) /* no bf16 instruction: widened to f32 */
            peak[i] = probe_best(e.par, PROBE_F32);
        gemm[i] = gemm_rate(&e);
        speed[i] = encode(&e);
    }
    v = median(speed, ROUNDS);
    g = median(gemm, ROUNDS);
    str_addf(&what, "%s, %s", name, compute == COMPUTE_F32 ? "f32" : "bf16");
    row("hf-infer --images", what.s, isa_name(cpu_isa()), threads, v, "image/s",
        v * flop(e.v, false) / median(peak, ROUNDS), "its peak");
    row("  of gemm", what.s, isa_name(cpu_isa()), threads, g * 1e-9, "GFLOP/s",
        v * flop(e.v, false) / g, "a layer's products");
    str_free(&what);
    encoder_close(&e);
}

static int
one_speed(const char *how, const char *dir, int threads)
{
    double v[ROUNDS];
    struct encoder e;

    encoder_open(&e, dir, threads,
                 strcmp(how, "bf16") ? COMPUTE_F32 : COMPUTE_BF16);
    encode(&e);
    for (int i = 0; i < ROUNDS; i++)
        v[i] = encode(&e);
    printf("%.3f\n", median(v, ROUNDS));
    encoder_close(&e);
    return 0;
}

int
main(int argc, char **argv)
{
    static const struct {
        const char *name, *maker;
        size_t mib;
    } shapes[] = {
#define MAKER "${PYTHON:-python3} scripts/random-model.py --shape "
        { "ViT-B/16", MAKER "vit-b-16", 700 },
        { "ViT-L/14", MAKER "vit-l-14", 1400 },
    };

    if (argc == 5 && !strcmp(argv[1], "one"))
        return one_speed(argv[2], argv[3], atoi(argv[4]));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        char *made = scratch_name("vision");

        if (!mkdtemp(made))
            return 1;
        if (memory_for(shapes[i].name, shapes[i].mib << 20)) {
            bench_shell(shapes[i].maker, made);
            for (int threads = 1; threads <= par_default() && threads < 3;
                 threads++)
                for (int c = COMPUTE_F32; c <= COMPUTE_BF16; c++)
                    lines(made, shapes[i].name, threads, (enum compute)c);
        }
        bench_shell("rm -r", made);
        free(made);
    }
    return 0;
}
