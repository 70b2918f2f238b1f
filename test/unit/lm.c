/*
 * A whole model's loss and gradient against test/ref/lm_ref.py's in float64;
 * the same bytes for any number of threads and any chunk.
 */
#include "core/model/train/lm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
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
    struct map loss, grads;
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
    free(s->numbers);
    free(s->path);
}

/* How it is run, and what comes out. */
struct way {
    int threads;
    size_t chunk, n_slices;
    enum compute compute;
    bool apart; /* a window's examples as sequences of their own */
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
    rc = lm_loss(lm, seqs, n_seqs, &out->loss_only, &err);
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

/* The largest error of a tensor, over the norm of the tensor. */
static double
worst_error(const struct step_ref *s, const struct outcome *o)
{
    double worst = 0;

    if (s->grads.size != 8 * o->n_params)
        return INFINITY;
    for (size_t i = 0; i < o->n_tensors; i++) {
        const struct lm_tensor *t = &o->tensors[i];
        double error = 0, norm = 0;

        for (size_t k = t->first; k < t->first + t->rows * t->cols; k++) {
            double want = le_f64(s->grads.data + 8 * k);

            error += pow((double)o->grad[k] - want, 2);
            norm += want * want;
        }
        worst = fmax(worst, sqrt(error / norm));
    }
    return worst;
}

static bool
same_bytes(const struct outcome *a, const struct outcome *b)
{
    return a->grad && b->grad && a->n_params == b->n_params &&
           !memcmp(a->grad, b->grad, a->n_params * sizeof(*a->grad)) &&
           !memcmp(&a->loss, &b->loss, sizeof(a->loss));
}

static void
test_model(const char *dir, const char *name)
{
    static const struct way ways[] = {
        { 2, 0, 8, COMPUTE_F32, false },
        { 3, 200, 8, COMPUTE_F32, false },
        { 1, 250, 8, COMPUTE_F32, false },
    };
    struct way way = { 1, 0, 8, COMPUTE_F32, false };
    struct outcome first, other;
    struct step_ref s;
    double want, error;

    if (step_open(&s, dir, name) || run(&s, &way, &first)) {
        tap_ok(0, "%s: runs", name);
        return;
    }
    want = le_f64(s.loss.data);
    error = worst_error(&s, &first);
    tap_ok(fabs(first.loss - want) <= 1e-6 * want, "%s: loss %.9g is %.9g",
           name, first.loss, want);
    tap_ok(first.loss_only == first.loss, "%s: the loss alone has its bits",
           name);
    tap_ok(error <= 1e-4, "%s: gradients differ by %.2g at most", name, error);
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        tap_ok(!run(&s, &ways[i], &other) && same_bytes(&first, &other),
               "%s: the same bytes from %d thread%s, chunks of %zu", name,
               ways[i].threads, plural((size_t)ways[i].threads), ways[i].chunk);
        outcome_free(&other);
    }
    way.n_slices = 1;
    tap_ok(!run(&s, &way, &other) && worst_error(&s, &other) <= 1e-4,
           "%s: in one slice, too", name);
    outcome_free(&other);
    way.n_slices = 3;
    way.apart = true;
    tap_ok(!run(&s, &way, &other) && worst_error(&s, &other) <= 1e-4 &&
               fabs(other.loss - first.loss) <= 1e-6 * want,
           "%s: a window is as its examples are by themselves", name);
    outcome_free(&other);
    way.compute = COMPUTE_BF16;
    error = run(&s, &way, &other) ? INFINITY : worst_error(&s, &other);
    tap_ok(error <= 0.1, "%s: bf16 differs by %.2g", name, error);
    outcome_free(&other);
    outcome_free(&first);
    step_close(&s);
}

int
main(void)
{
    char dir[] = "/tmp/moe-sft-lm.XXXXXX";
    struct str command = { 0 };
    struct map names = { 0 };
    struct err err = { 0 };

    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/lm_cases.py", err.what);
        return tap_done();
    }
    if (!mkdtemp(dir) || python("test/ref/lm_cases.py", dir) ||
        open_file(&names, dir, "models"))
        tap_ok(0, "test/ref/lm_cases.py runs");
    for (size_t at = 0, n; at < names.size; at += n + 1) {
        char name[64];

        for (n = 0; names.data[at + n] != '\n'; n++)
            ;
        snprintf(name, sizeof(name), "%.*s", (int)n,
                 (const char *)names.data + at);
        test_model(dir, name);
    }
    map_close(&names);
    str_addf(&command, "rm -r '%s'", dir);
    tap_ok(system(command.s) == 0, "the models are removed");
    str_free(&command);
    return tap_done();
}
