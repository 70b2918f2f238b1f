/* SPDX-License-Identifier: ISC */
/*
 * A model's gradient where its norms are others, and elsewhere, than a family
 * has them, and those of families (test/ref/family_models.py): against
 * differences of the loss, and the same bytes for any threads and chunk, in f32
 * and bf16, with TU_WAYS=one each family in one of these.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/model/train/difference.h"
#include "core/model/train/lm.h"
#include "core/rng.h"
#include "core/str.h"
#include "test/unit/isa.h"
#include "test/unit/model-ref.h"

enum { N = 30, N_SEQS = 4 };

static const struct way {
    const char *name;
    enum norm_form pre, post, heads;
} ways[] = {
    { "as they are", NORM_RMS, NORM_NONE, NORM_RMS },
    { "on both sides", NORM_RMS, NORM_RMS, NORM_RMS },
    { "after the halves alone", NORM_NONE, NORM_RMS, NORM_NONE },
    { "LayerNorm everywhere", NORM_LAYER, NORM_LAYER, NORM_LAYER },
};

static int32_t ids[N], labels[N];
static const struct lm_seq seq = { .ids = ids, .labels = labels, .n = N };

static void
set_norm(struct model *m, struct norm *norm, enum norm_form form)
{
    float *numbers = xcalloc(2 * norm->n, sizeof(*numbers));

    m->owned = xrealloc(m->owned, m->n_owned + 1, sizeof(*m->owned));
    m->owned[m->n_owned++] = numbers;
    for (size_t i = 0; i < norm->n; i++)
        numbers[i] = 1 + rnd() / 2;
    for (size_t i = norm->n; i < 2 * norm->n; i++)
        numbers[i] = rnd() / 2;
    *norm = (struct norm){ .n = norm->n };
    if (form != NORM_NONE)
        *norm = (struct norm){ form,    numbers, numbers + norm->n,
                               norm->n, 1e-5f,   1 };
}

static void
set_norms(struct model *m, const struct way *way)
{
    m->config.form.norm.places =
        (way->pre ? NORM_PRE : 0u) | (way->post ? NORM_POST : 0u);
    for (int64_t i = 0; i < m->config.n_layers; i++) {
        struct layer *l = &m->layers[i];

        set_norm(m, &l->attn_norm, way->pre);
        set_norm(m, &l->mlp_norm, way->pre);
        set_norm(m, &l->attn_post, way->post);
        set_norm(m, &l->mlp_post, way->post);
        set_norm(m, &l->q_norm, way->heads);
        set_norm(m, &l->k_norm, way->heads);
    }
    set_norm(m, &m->norm, way->pre ? way->pre : NORM_RMS);
}

static int
loss_of(void *ctx, double *loss, struct err *err)
{
    return lm_loss(ctx, &seq, 1, loss, err);
}

/* The worst error along a tensor's gradient of all of layer 0, ".0.", which is
 * the farthest from the loss, and its bound, over its norm. */
static int
worst_slope(struct lm *lm, float *values, double *error, double *bound,
            struct err *err)
{
    struct difference d = { loss_of, lm, values, lm->n_params, 0 };
    float *grad = xcalloc(lm->n_params, sizeof(*grad));
    double *direction = xcalloc(lm->n_params, sizeof(*direction)), loss;
    int rc = lm_grad(lm, &seq, 1, &loss, err);

    *error = *bound = 0;
    /* of the mean, as lm_grad() has it, and not of the sum */
    for (size_t i = 0; rc == 0 && i < lm->n_params; i++)
        grad[i] = lm->grad[i] * (float)lm_n_targets(&seq, 1);
    rc = rc ? rc : difference_noise(&d, 1, err);
    for (size_t i = 0; rc == 0 && strstr(lm->tensors[i].name, ".0."); i++) {
        const struct lm_tensor *t = &lm->tensors[i];
        size_t n = t->rows * t->cols;
        const float *g = grad + t->first;
        struct slope s;
        double norm = 0;

        for (size_t k = 0; k < n; k++)
            norm += (double)g[k] * (double)g[k];
        norm = sqrt(norm);
        for (size_t k = 0; k < n; k++)
            direction[k] = (double)g[k] / norm;
        rc = difference_slope(&d, t->first, n, direction, g, 1e-3 * norm, &s,
                              err);
        if (fabs(s.error) > s.bound)
            printf("# %s: %g, bound %g of %g\n", t->name, s.error, s.bound,
                   norm);
        *error = fmax(*error, fabs(s.error) / s.bound);
        *bound = fmax(*bound, s.bound / norm);
    }
    free(direction);
    free(grad);
    return rc;
}

static const struct lm_options usual = {
    .lora = { LM_ALL_TARGETS, 3, 6, false },
    .max_tokens = N,
    .n_slices = 1,
};

/* way NULL: as the model's family has them. */
static void
test(const char *dir, const char *name, const struct way *way)
{
    struct str path = { 0 };
    struct err err = { 0 };
    struct lm *lm = NULL;
    float *values = NULL;
    double error, bound;
    int rc;

    str_addf(&path, "%s/%s", dir, name);
    rc = lm_open(&lm, path.s, &usual, NULL, &err);
    if (rc == 0) {
        if (way)
            set_norms(lm->model, way);
        values = xcalloc(lm->n_params, sizeof(*values));
        for (size_t i = 0; i < lm->n_params; i++)
            values[i] = rnd() / 4;
        rc = lm_prepare(lm, values, &err);
    }
    if (rc == 0)
        rc = worst_slope(lm, values, &error, &bound, &err);
    if (rc)
        tap_ok(0, "%s, norms %s: %s", name, way ? way->name : "its own",
               err.what);
    else
        tap_ok(error <= 1 && bound <= 0.01,
               "%s, norms %s: gradients within %.2g of their bounds, %.2g of "
               "their norms",
               name, way ? way->name : "its own", error, bound);
    lm_close(lm);
    free(values);
    str_free(&path);
}

/* The loss and the gradient of the same four examples; free(). */
static float *
gradient(const char *path, int threads, size_t chunk, enum compute compute,
         size_t *n)
{
    struct lm_seq seqs[N_SEQS];
    struct lm_options options = usual;
    struct err err = { 0 };
    struct par *par = NULL;
    struct lm *lm = NULL;
    float *values = NULL, *got = NULL;
    double loss;

    options.chunk = chunk;
    options.compute = compute;
    options.n_slices = 2;
    for (size_t i = 0; i < N_SEQS; i++)
        seqs[i] =
            (struct lm_seq){ .ids = ids + i, .labels = labels + i, .n = N - i };
    if (par_open(&par, threads, &err) == 0 &&
        lm_open(&lm, path, &options, par, &err) == 0) {
        values = xcalloc(lm->n_params, sizeof(*values));
        for (size_t i = 0; i < lm->n_params; i++)
            values[i] = (float)rng_f64(1, 3, i) / 4;
    }
    if (values && lm_prepare(lm, values, &err) == 0 &&
        lm_grad(lm, seqs, N_SEQS, &loss, &err) == 0) {
        *n = lm->n_params + 1;
        got = xcalloc(*n, sizeof(*got));
        memcpy(got, lm->grad, lm->n_params * sizeof(*got));
        got[lm->n_params] = (float)loss;
    }
    if (!got)
        printf("# %s: %s\n", path, err.what);
    free(values);
    lm_close(lm);
    par_close(par);
    return got;
}

static void
test_bytes(const char *dir, const char *name, size_t nth)
{
    struct str path = { 0 };

    str_addf(&path, "%s/%s", dir, name);
    for (enum compute c = COMPUTE_F32; c <= COMPUTE_BF16; c++) {
        size_t n = 0, n_other = 0;
        float *one, *other;

        if (tap_one_way() && (c == COMPUTE_F32) != (nth % 2 == 0))
            continue;
        one = gradient(path.s, 1, 0, c, &n);
        other = gradient(path.s, 3, N, c, &n_other);
        tap_ok(n > 0 && n == n_other && !memcmp(one, other, n * sizeof(*one)),
               "%s: the same bytes from 3 threads in smaller chunks, in %s",
               name, c == COMPUTE_F32 ? "f32" : "bf16");
        free(one);
        free(other);
    }
    str_free(&path);
}

/* Each has what others do not. */
static void
test_families(const char *dir)
{
    static const char *const names[] = {
        "gpt2:inner",  "gpt_neox", "gpt_neox:sequential",   "gemma2:caps",
        "gemma3_text", "phi3",     "phi3:longrope-partial", "granite",
        "smollm3",     "olmo2"
    };

    for (size_t i = 0; i < N; i++)
        labels[i] = ids[i] %= 97; /* their vocabulary */
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct str path = { 0 }, make = { 0 };

        str_addf(&path, "%s/%s", dir, names[i]);
        str_addf(&make, "test/ref/family_ref.py make %s", names[i]);
        if (python_kept(make.s, path.s))
            tap_ok(0, "%s runs", make.s);
        if (!tap_few() || i % 2)
            test(dir, names[i], NULL);
        if (!tap_few() || i % 2 == 0)
            test_bytes(dir, names[i], tap_few() ? i / 2 : i);
        str_free(&make);
        str_free(&path);
    }
}

int
main(void)
{
    static const char *const names[] = { "llama-mqa-gelu",
                                         "qwen3_moe-dense-first-last" };
    char dir[] = "/tmp/moe-sft-lm-norms.XXXXXX";
    struct str command = { 0 };
    struct err err = { 0 };

    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/tiny_models.py", err.what);
        return tap_done();
    }
    for (size_t i = 0; i < N; i++)
        ids[i] = labels[i] = (int32_t)(rng_u64(1, 2, i) % 100);
    if (!mkdtemp(dir) || python_kept("test/ref/tiny_models.py", dir))
        tap_ok(0, "test/ref/tiny_models.py runs");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        for (size_t k = 0; k < sizeof(ways) / sizeof(*ways); k++)
            if (!tap_few() || k % 2 == i)
                test(dir, names[i], &ways[k]);
    test_families(dir);
    str_addf(&command, "rm -r '%s'", dir);
    tap_ok(system(command.s) == 0, "the models are removed");
    str_free(&command);
    return tap_done();
}
