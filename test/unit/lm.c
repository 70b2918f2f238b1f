/* SPDX-License-Identifier: ISC */
/*
 * A whole model's loss and gradient against test/ref/lm_ref.py's in float64;
 * the same bytes for any number of threads and any chunk, of which each model
 * has one with TU_WAYS=one; then, models without products of their own are not
 * rounded.
 */
#include "core/model/train/lm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/rng.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tty.h"
#include "test/unit/model-ref.h"
#include "test/unit/tap.h"

enum { MAX_SEQS = 8, MAX_STARTS = 8 };

/* A step of DIR/NAME, and what the reference says of it. */
struct step_ref {
    char *path;
    struct lm_seq seqs[MAX_SEQS];
    size_t starts[MAX_SEQS][MAX_STARTS], n_seqs;
    int32_t *numbers;
    struct map loss, grads, loss_bf16, grads_bf16, spread_bf16;
    struct map loss_int8, grads_int8;
};

static int
open_file(struct map *map, const char *dir, const char *name)
{
    struct str path = { 0 };
    struct err err = { 0 };
    int rc;

    str_addf(&path, "%s/%s", dir, name);
    rc = map_open(map, path.s, &err);
    str_free(&path);
    return rc;
}

static int
step_open(struct step_ref *s, const char *dir, const char *name)
{
    struct map map = { 0 };
    struct str path = { 0 };
    const int32_t *at;

    *s = (struct step_ref){ 0 };
    str_addf(&path, "%s/%s", dir, name);
    s->path = path.s;
    if (open_file(&map, s->path, "step.i32") ||
        open_file(&s->loss, s->path, "loss.f64") ||
        open_file(&s->grads, s->path, "grads.f64"))
        return -1;
    if (open_file(&s->loss_bf16, s->path, "loss-bf16.f64")
            ? !tap_one_way()
            : open_file(&s->grads_bf16, s->path, "grads-bf16.f64") ||
                  open_file(&s->spread_bf16, s->path, "spread-bf16.f64"))
        return -1;
    /* of models with experts */
    if (open_file(&s->loss_int8, s->path, "loss-int8.f64") == 0 &&
        open_file(&s->grads_int8, s->path, "grads-int8.f64"))
        return -1;
    s->numbers = xcalloc(map.size / 4, sizeof(*s->numbers));
    for (size_t i = 0; i < map.size / 4; i++)
        s->numbers[i] = (int32_t)le32(map.data + 4 * i);
    map_close(&map);
    at = s->numbers;
    s->n_seqs = (size_t)*at++;
    for (size_t i = 0; i < s->n_seqs; i++) {
        struct lm_seq *seq = &s->seqs[i];

        seq->n = (size_t)*at++;
        seq->n_starts = (size_t)*at++;
        for (size_t k = 0; k < seq->n_starts; k++)
            s->starts[i][k] = (size_t)*at++;
        seq->starts = s->starts[i];
        seq->ids = at;
        seq->labels = at + seq->n;
        at += 2 * seq->n;
    }
    return 0;
}

static void
step_close(struct step_ref *s)
{
    map_close(&s->loss);
    map_close(&s->grads);
    map_close(&s->loss_bf16);
    map_close(&s->grads_bf16);
    map_close(&s->spread_bf16);
    map_close(&s->loss_int8);
    map_close(&s->grads_int8);
    free(s->numbers);
    free(s->path);
}

/* How it is run, and what comes out. */
struct way {
    int threads;
    size_t chunk, n_slices;
    enum compute compute;
    bool apart; /* a window's examples as sequences of their own */
    bool int8;
    bool loss_only; /* then, without gradients */
};

struct outcome {
    double loss, loss_only;
    float *grad;
    size_t n_params, total, taken;
    struct lm_tensor *tensors; /* names are not there */
    size_t n_tensors;
};

static size_t
cut(const struct step_ref *s, struct lm_seq *to)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_seqs; i++)
        for (size_t k = 0; k < s->seqs[i].n_starts; k++) {
            const struct lm_seq *seq = &s->seqs[i];
            size_t begin = seq->starts[k];
            size_t end = k + 1 < seq->n_starts ? seq->starts[k + 1] : seq->n;

            to[n++] = (struct lm_seq){ .ids = seq->ids + begin,
                                       .labels = seq->labels + begin,
                                       .n = end - begin };
        }
    return n;
}

static int
run(const struct step_ref *s, const struct way *way, struct outcome *out)
{
    struct lm_seq seqs[MAX_SEQS * MAX_STARTS];
    struct str adapter = { 0 };
    struct lm_options options = { .init = NULL,
                                  .compute = way->compute,
                                  .int8 = way->int8,
                                  .max_tokens = 200,
                                  .chunk = way->chunk,
                                  .n_slices = way->n_slices };
    struct err err = { 0 };
    struct par *par = NULL;
    struct lm *lm = NULL;
    float *values = NULL;
    size_t n_seqs = s->n_seqs;
    int rc = -1;

    *out = (struct outcome){ 0 };
    memcpy(seqs, s->seqs, sizeof(s->seqs));
    if (way->apart)
        n_seqs = cut(s, seqs);
    str_addf(&adapter, "%s/adapter", s->path);
    options.init = adapter.s;
    if (par_open(&par, way->threads, &err) ||
        lm_open(&lm, s->path, &options, par, &err))
        goto out;
    values = xcalloc(lm->n_params, sizeof(*values));
    lm_start(lm, values);
    if (lm_prepare(lm, values, &err) ||
        lm_grad(lm, seqs, n_seqs, &out->loss, &err))
        goto out;
    out->n_params = lm->n_params;
    out->grad = xcalloc(lm->n_params, sizeof(*out->grad));
    memcpy(out->grad, lm->grad, lm->n_params * sizeof(*out->grad));
    out->n_tensors = lm->n_tensors;
    out->tensors = xcalloc(lm->n_tensors, sizeof(*out->tensors));
    memcpy(out->tensors, lm->tensors, lm->n_tensors * sizeof(*out->tensors));
    rc = way->loss_only ? lm_loss(lm, seqs, n_seqs, &out->loss_only, &err) : 0;
out:
    if (rc)
        printf("# %s: %s\n", s->path, err.what);
    free(values);
    lm_close(lm);
    par_close(par);
    str_free(&adapter);
    return rc;
}

static void
outcome_free(struct outcome *o)
{
    free(o->grad);
    free(o->tensors);
}

struct errors {
    double worst, all;
};

/* The largest error of a tensor, over the norm of the tensor; and that of all
 * tensors together. */
static struct errors
errors_of(const struct map *grads, const struct outcome *o)
{
    double worst = 0, all_error = 0, all_norm = 0;

    if (grads->size != 8 * o->n_params)
        return (struct errors){ INFINITY, INFINITY };
    for (size_t i = 0; i < o->n_tensors; i++) {
        const struct lm_tensor *t = &o->tensors[i];
        double error = 0, norm = 0;

        for (size_t k = t->first; k < t->first + t->rows * t->cols; k++) {
            double want = le_f64(grads->data + 8 * k);

            error += pow((double)o->grad[k] - want, 2);
            norm += want * want;
        }
        /* of an expert that no token has reached, all is 0 */
        worst = fmax(worst, error > 0 ? sqrt(error / norm) : 0);
        all_error += error;
        all_norm += norm;
    }
    return (struct errors){ worst, sqrt(all_error / all_norm) };
}

static double
worst_error(const struct map *grads, const struct outcome *o)
{
    return errors_of(grads, o).worst;
}

static bool
same_bytes(const struct outcome *a, const struct outcome *b)
{
    return a->grad && b->grad && a->n_params == b->n_params &&
           !memcmp(a->grad, b->grad, a->n_params * sizeof(*a->grad)) &&
           !memcmp(&a->loss, &b->loss, sizeof(a->loss));
}

/* By an emulation that rounds every operand: where f32 sums are other sums, a
 * few are rounded otherwise, as in the emulation itself if its operands move by
 * 2.4e-7.  One of these may send a token to another expert, where few tokens
 * are.  In int8 it is moved by a 127th: the emulation moves by 0.02 in all. */
static void
test_rounded(const struct step_ref *s, const char *name, bool int8)
{
    struct way way = { 1, 0, 8, COMPUTE_BF16, .int8 = int8 };
    const struct map *grads = int8 ? &s->grads_int8 : &s->grads_bf16;
    double want = le_f64(int8 ? s->loss_int8.data : s->loss_bf16.data);
    const char *how = int8 ? "int8" : "bf16";
    struct errors error, from_f32;
    struct outcome first, other;
    bool good;

    if (run(s, &way, &first)) {
        tap_ok(0, "%s: %s runs", name, how);
        return;
    }
    error = errors_of(grads, &first);
    from_f32 = errors_of(&s->grads, &first);
    if (int8)
        good = error.all <= 0.03 && error.all < 0.5 * from_f32.all;
    else
        good = error.worst <= 2.5 * le_f64(s->spread_bf16.data) &&
               error.all <= 2.5 * le_f64(s->spread_bf16.data + 8) &&
               error.all < 0.5 * from_f32.all;
    tap_ok(fabs(first.loss - want) <= 1e-3 * want, "%s: %s: loss %.9g is %.9g",
           name, how, first.loss, want);
    tap_ok(good,
           "%s: %s: gradients differ by %.2g at most, %.2g in all; %.2g and "
           "%.2g from f32's",
           name, how, error.worst, error.all, from_f32.worst, from_f32.all);
    way = (struct way){ 3, 200, 8, COMPUTE_BF16, .int8 = int8 };
    tap_ok(!run(s, &way, &other) && same_bytes(&first, &other),
           "%s: %s: the same bytes from 3 threads", name, how);
    outcome_free(&other);
    outcome_free(&first);
}

/* A loss of 'want' in windows of several examples. */
static void
test_slices(const struct step_ref *s, const char *name, double want)
{
    struct way way = { .threads = 1, .n_slices = 2 };
    struct outcome first, other;

    /* in chunks, they go on from one to the next */
    if (run(s, &way, &first))
        tap_ok(0, "%s: runs in two slices", name);
    way.chunk = 200;
    tap_ok(!run(s, &way, &other) && same_bytes(&first, &other) &&
               worst_error(&s->grads, &other) <= 1e-4,
           "%s: two slices have the same bytes in smaller chunks", name);
    outcome_free(&other);
    way.n_slices = 3;
    way.apart = true;
    tap_ok(!run(s, &way, &other) && worst_error(&s->grads, &other) <= 1e-4 &&
               fabs(other.loss - first.loss) <= 1e-6 * want,
           "%s: a window is as its examples are by themselves", name);
    outcome_free(&other);
    outcome_free(&first);
}

static void
test_model(const char *dir, const char *name, size_t nth)
{
    static const struct way ways[] = {
        { .threads = 2, .n_slices = 8 },
        { .threads = 3, .n_slices = 8, .chunk = 200 },
        { .threads = 1, .n_slices = 8, .chunk = 250 },
    };
    const size_t n_ways = sizeof(ways) / sizeof(*ways);
    struct way way = { .threads = 1, .n_slices = 8, .loss_only = true };
    struct outcome first, other;
    struct step_ref s;
    double want, error;

    if (step_open(&s, dir, name)) {
        tap_ok(0, "%s: the reference has it", name);
        return;
    }
    if (tap_few() && s.loss_bf16.size == 0) { /* another has its products */
        step_close(&s);
        return;
    }
    if (run(&s, &way, &first)) {
        tap_ok(0, "%s: runs", name);
        return;
    }
    want = le_f64(s.loss.data);
    error = worst_error(&s.grads, &first);
    tap_ok(fabs(first.loss - want) <= 1e-6 * want, "%s: loss %.9g is %.9g",
           name, first.loss, want);
    tap_ok(first.loss_only == first.loss, "%s: the loss alone has its bits",
           name);
    tap_ok(error <= 1e-4, "%s: gradients differ by %.2g at most", name, error);
    for (size_t i = 0; !tap_slow() && i < n_ways; i++) {
        if (tap_one_way() && i != nth % n_ways)
            continue;
        tap_ok(!run(&s, &ways[i], &other) && same_bytes(&first, &other),
               "%s: the same bytes from %d thread%s, chunks of %zu", name,
               ways[i].threads, plural((size_t)ways[i].threads), ways[i].chunk);
        outcome_free(&other);
    }
    if (!tap_slow() && (!tap_one_way() || nth % n_ways == 0))
        test_slices(&s, name, want);
    if (s.loss_bf16.size > 0)
        test_rounded(&s, name, false);
    if (s.loss_int8.size > 0)
        test_rounded(&s, name, true);
    outcome_free(&first);
    step_close(&s);
}

/* ---- what is new, and what is refused ---- */

static struct lm *
open_lm(const char *dir, const char *model, const char *init,
        const struct lm_options *options, struct err *err)
{
    struct lm_options o = *options;
    struct str path = { 0 }, adapter = { 0 };
    struct lm *lm;

    str_addf(&path, "%s/%s", dir, model);
    str_addf(&adapter, "%s/%s", dir, init ? init : "");
    o.init = init ? adapter.s : NULL;
    *err = (struct err){ 0 };
    lm_open(&lm, path.s, &o, NULL, err);
    str_free(&path);
    str_free(&adapter);
    return lm;
}

static const struct lm_options usual = {
    .lora = { LM_ALL_TARGETS, 4, 8, false },
    .seed = 7,
    .max_tokens = 100,
    .n_slices = 4,
};

/* A is what the header says, whatever else is a target; B is 0. */
static void
test_start(const char *dir)
{
    struct lm_options options = usual;
    struct lm *all, *one;
    float *values, *of_one;
    bool good = true;
    struct err err;

    options.lora.targets = 1u << LM_DOWN;
    all = open_lm(dir, "llama", NULL, &usual, &err);
    one = open_lm(dir, "llama", NULL, &options, &err);
    if (!tap_ok(all && one && all->n_tensors == 3 * 14 && one->n_tensors == 6,
                "a new adapter of 3 layers has two matrices for each target"))
        return;
    values = xcalloc(all->n_params, sizeof(*values));
    of_one = xcalloc(one->n_params, sizeof(*of_one));
    lm_start(all, values);
    lm_start(one, of_one);
    for (size_t i = 0; i < all->n_tensors; i++) {
        const struct lm_tensor *t = &all->tensors[i];
        size_t n = t->rows * t->cols;

        for (size_t k = 0; k < n; k++) {
            double u = rng_f64(7, i / 2, k), a = 1 / sqrt((double)t->cols);

            good &=
                values[t->first + k] == (i % 2 ? 0 : (float)((2 * u - 1) * a));
        }
    }
    tap_ok(good, "A is uniform in +-1 / sqrt(in), by seed and layer; B is 0");
    tap_ok(!strcmp(all->tensors[14 + 13].name,
                   "base_model.model.model.layers.1.mlp.down_proj.lora_B"
                   ".weight") &&
               !strcmp(one->tensors[3].name, all->tensors[14 + 13].name),
           "tensors have PEFT's names");
    tap_ok(!memcmp(of_one + one->tensors[2].first,
                   values + all->tensors[14 + 12].first,
                   one->tensors[2].rows * one->tensors[2].cols * sizeof(float)),
           "an A does not depend on the other targets");
    free(values);
    free(of_one);
    lm_close(all);
    lm_close(one);
}

/* Layer 1's expert 2, of 7; q, k, v, o and 21 of experts make a layer. */
static void
test_start_experts(const char *dir)
{
    struct err err;
    struct lm *lm = open_lm(dir, "qwen3_moe", NULL, &usual, &err);
    const struct lm_tensor *t;
    bool good = true;
    float *values;

    if (!tap_ok(lm && lm->n_tensors == 3 * 2 * 25,
                "each expert's gate, up and down have an adapter"))
        return;
    values = xcalloc(lm->n_params, sizeof(*values));
    lm_start(lm, values);
    t = &lm->tensors[2 * (25 + 4 + 2 * 3 + 1)];
    tap_ok(!strcmp(t->name, "base_model.model.model.layers.1.mlp.experts.2"
                            ".up_proj.lora_A.weight") &&
               t->at.part == PART_EXPERT_UP && t->at.layer == 1 &&
               t->at.expert == 2 && lm->tensors[50].at.part == PART_Q,
           "they are in the order of layers, then experts");
    for (size_t k = 0; k < t->rows * t->cols; k++) {
        double u = rng_f64(7, ((uint64_t)2 << 32) + LM_Q_B + LM_UP, k);

        good &= values[t->first + k] ==
                (float)((2 * u - 1) * (1 / sqrt((double)t->cols)));
    }
    tap_ok(good, "an expert's A has random numbers of its own");
    free(values);
    lm_close(lm);
}

static void
test_refused(const char *dir)
{
    int32_t ids[120] = { 1, 2, 3 }, labels[120] = { 1, 2, 3 };
    struct lm_seq seq = { .ids = ids, .labels = labels, .n = 3 };
    struct lm_memory memory = { 0 };
    size_t sum = 0, n_wrong = 0;
    struct err err;
    struct lm *lm = open_lm(dir, "llama", "other", &usual, &err);
    float *values;
    double loss;

    tap_ok(!lm && err.status == EX_DATAERR &&
               strstr(err.what, "layers.1.self_attn.o_proj is not an adapted "
                                "layer, unlike the first o_proj"),
           "an adapter without o_proj of one layer is refused: %s", err.what);
    lm = open_lm(dir, "llama", "qwen3/adapter", &usual, &err);
    tap_ok(!lm && err.status == EX_DATAERR,
           "an adapter of another model is refused: %s", err.what);
    lm = open_lm(dir, "llama", NULL, &usual, &err);
    values = xcalloc(lm ? lm->n_params : 0, sizeof(*values));
    if (!tap_ok(lm && !lm_memory(lm, &memory, &err) &&
                    !lm_prepare(lm, values, &err),
                "llama is prepared"))
        return;
    for (size_t i = 0; i < memory.n_items; i++)
        sum += memory.item[i].nbytes;
    tap_ok(sum == memory.total && memory.mapped > 0,
           "its memory is the sum of its parts");
    ids[1] = 509;
    tap_ok(lm_grad(lm, &seq, 1, &loss, &err) == -1 &&
               !strcmp(err.what,
                       "token id 509 is not in the vocabulary (0 to 508)"),
           "an id after the vocabulary is refused: %s", err.what);
    ids[1] = 2;
    labels[1] = -1;
    tap_ok(
        lm_loss(lm, &seq, 1, &loss, &err) == -1 &&
            !strcmp(err.what, "label -1 is not in the vocabulary (0 to 508)"),
        "so is a label: %s", err.what);
    labels[1] = LM_NO_LABEL;
    seq.n = 101;
    tap_ok(lm_grad(lm, &seq, 1, &loss, &err) == -1 &&
               !strcmp(err.what,
                       "an example has 101 tokens (expected 100 at most)"),
           "so is a long example: %s", err.what);
    seq.n = 3;
    labels[2] = LM_NO_LABEL;
    tap_ok(!lm_grad(lm, &seq, 1, &loss, &err) && loss == 0 &&
               lm_n_targets(&seq, 1) == 0,
           "a step without a target has the loss 0");
    for (size_t i = 0; i < lm->n_params; i++)
        n_wrong += lm->grad[i] != 0;
    tap_ok(n_wrong == 0, "and no gradient");
    labels[2] = 5;
    for (size_t i = 0; i < lm->n_params; i++)
        values[i] = NAN;
    tap_ok(!lm_grad(lm, &seq, 1, &loss, &err) && isnan(loss),
           "values that are NaN make a loss that is");
    free(values);
    lm_close(lm);
}

/* Stops for good: the last of the tests. */
static void
test_stopped(const char *dir)
{
    int32_t ids[] = { 1, 2, 3 };
    const struct lm_seq seq = { .ids = ids, .labels = ids, .n = 3 };
    struct err err;
    struct lm *lm = open_lm(dir, "llama", NULL, &usual, &err);
    float *values = xcalloc(lm ? lm->n_params : 0, sizeof(*values));
    double loss;
    int rc = lm ? lm_prepare(lm, values, &err) : -1;

    sig_install(false);
    raise(SIGTERM);
    tap_ok(rc == 0 && lm_grad(lm, &seq, 1, &loss, &err) == -1 &&
               err.status == EX_TEMPFAIL &&
               !strcmp(err.what, "stopped by SIGTERM: the step is not done"),
           "a step stops in its middle: %s", err.what);
    tap_ok(lm_loss(lm, &seq, 1, &loss, &err) == -1 && err.status == EX_TEMPFAIL,
           "so does a forward");
    free(values);
    lm_close(lm);
}

int
main(void)
{
    char dir[] = "/tmp/moe-sft-lm.XXXXXX";
    struct str command = { 0 }, script = { 0 };
    struct map names = { 0 };
    struct err err = { 0 };

    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/lm_cases.py", err.what);
        return tap_done();
    }
    str_addf(&script, "test/ref/lm_cases.py%s%s",
             gemm_bf16_is_native() ? "" : " --exact-attention",
             tap_one_way() ? " --few" : "");
    if (!mkdtemp(dir) || python_kept(script.s, dir) ||
        open_file(&names, dir, "models"))
        tap_ok(0, "test/ref/lm_cases.py runs");
    for (size_t at = 0, i = 0, n; at < names.size; at += n + 1, i++) {
        char name[64];

        for (n = 0; names.data[at + n] != '\n'; n++)
            ;
        snprintf(name, sizeof(name), "%.*s", (int)n,
                 (const char *)names.data + at);
        if (!tap_slow() || i % 8 == 0)
            test_model(dir, name, i);
    }
    test_start(dir);
    test_start_experts(dir);
    test_refused(dir);
    test_stopped(dir);
    map_close(&names);
    str_addf(&command, "rm -r '%s'", dir);
    tap_ok(system(command.s) == 0, "the models are removed");
    str_free(&command);
    str_free(&script);
    return tap_done();
}
