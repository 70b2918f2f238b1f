/* SPDX-License-Identifier: ISC */
/* core/model/train against torch (test/ref/train_ref.py) and by hand. */
#include "core/model/train/adamw.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/train/loss.h"
#include "core/model/train/run.h"
#include "core/model/train/schedule.h"
#include "core/out.h"
#include "test/unit/ref.h"
#include "test/unit/tap.h"

/* A file of doubles, read from its beginning on. */
struct numbers {
    struct str file;
    size_t at;
};

static void
numbers_open(struct numbers *n, const char *dir, const char *name)
{
    struct str path = { 0 };
    struct err err;

    *n = (struct numbers){ 0 };
    str_addf(&path, "%s/%s", dir, name);
    if (file_read_all(path.s, 1 << 24, &n->file, &err) < 0)
        exit(tap_ok(0, "%s", err.what) || tap_done());
    unlink(path.s);
    str_free(&path);
}

static bool
more(const struct numbers *n)
{
    return n->at + 8 <= n->file.n;
}

static double
number(struct numbers *n)
{
    double f = more(n) ? le_f64(n->file.s + n->at) : NAN;

    n->at += 8;
    return f;
}

static float *
floats(struct numbers *from, size_t n)
{
    float *f = xcalloc(n, sizeof(*f));

    for (size_t i = 0; i < n; i++)
        f[i] = (float)number(from);
    return f;
}

/* The largest difference of n numbers from those that come next. */
static double
distance(struct numbers *from, const float *f, size_t n)
{
    double max = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs(number(from) - (double)f[i]);

        max = d <= max ? max : d; /* NaN: is not <= */
    }
    return max;
}

static void
test_mse(const char *dir, struct par *par)
{
    struct numbers n;
    size_t count, differ = 0;
    float *output, *target;
    uint16_t *grad;
    double loss;

    numbers_open(&n, dir, "mse");
    count = (size_t)number(&n);
    output = floats(&n, count);
    target = floats(&n, count);
    grad = xcalloc(count, 2);
    loss = loss_mse(grad, output, target, count, par);
    tap_ok(fabs(loss - number(&n)) < 1e-12, "loss_mse: torch's mse_loss");
    for (size_t i = 0; i < count; i++)
        differ += (double)bf16_to_f32(le16(&grad[i])) != number(&n);
    tap_ok(differ == 0,
           "loss_mse: torch's gradient, rounded: %zu of %zu are "
           "another number",
           differ, count);
    tap_ok(loss_mse(grad, output, target, 1, NULL) ==
               pow((double)output[0] - (double)target[0], 2),
           "loss_mse: of one element");
    free(output);
    free(target);
    free(grad);
    str_free(&n.file);
}

static void
test_clip(const char *dir, struct par *par)
{
    struct numbers n;

    numbers_open(&n, dir, "clip");
    for (int run = 0; run < 2 && more(&n); run++) {
        size_t count = (size_t)number(&n);
        double clip = number(&n), norm, scale;
        float *grad = floats(&n, count);

        norm = grad_norm(grad, count, par);
        tap_ok(fabs(norm / number(&n) - 1) < 1e-14, "grad_norm: torch's, %g",
               norm);
        scale = clip_scale(norm, clip);
        for (size_t i = 0; i < count; i++)
            grad[i] = (float)(scale * (double)grad[i]);
        tap_ok(distance(&n, grad, count) < 1e-7,
               "clip_scale: clip_grad_norm_ to %g", clip);
        free(grad);
    }
    tap_ok(clip_scale(1e30, 0) == 1, "clip_scale: 0 is no limit");
    str_free(&n.file);
}

static void
test_adamw(const char *dir, struct par *par)
{
    struct numbers n;

    numbers_open(&n, dir, "adamw");
    for (int run = 0; run < 3 && more(&n); run++) {
        size_t count = (size_t)number(&n), steps = (size_t)number(&n);
        struct adamw a = { 0 };
        struct err err;
        double lr = number(&n), d[3];
        float *p;

        a.beta1 = number(&n);
        a.beta2 = number(&n);
        a.eps = number(&n);
        a.weight_decay = number(&n);
        adamw_open(&a, count, &err);
        p = floats(&n, count);
        memcpy(a.master, p, count * sizeof(*p));
        free(p);
        for (uint64_t t = 1; t <= steps; t++) {
            float *grad = floats(&n, count);

            for (size_t i = 0; i < count; i++)
                grad[i] *= 4; /* the scale takes it off */
            adamw_step(&a, 0, a.n, grad, 0.25, lr, t, par);
            free(grad);
        }
        d[0] = distance(&n, a.master, count);
        d[1] = distance(&n, a.m, count);
        d[2] = distance(&n, a.v, count);
        /* 20 roundings to f32 of numbers below 4 */
        tap_ok(d[0] < 5e-6 && d[1] < 5e-6 && d[2] < 5e-6,
               "adamw_step: torch.optim.AdamW, run %d: %g %g %g", run, d[0],
               d[1], d[2]);
        adamw_close(&a);
    }
    str_free(&n.file);
}

static void
test_falls(const char *dir, const char *name, enum schedule_kind kind)
{
    struct schedule s = { .kind = kind, .lr = 1, .total = 20 };
    struct numbers n;
    double max = 0;

    numbers_open(&n, dir, name);
    for (uint64_t i = 0; i < 20; i++) {
        double d = fabs(schedule_lr(&s, i) - number(&n));

        max = d <= max ? max : d;
    }
    tap_ok(max < 1e-12, "schedule_lr: torch's %s, to %g", name, max);
    str_free(&n.file);
}

/* (step, rate) as transformers' formulas give them by hand. */
static void
test_warmup(void)
{
    static const struct {
        struct schedule s;
        uint64_t step;
        double lr;
    } cases[] = {
        { { SCHEDULE_CONSTANT, 2, 0, 0 }, 0, 2 },
        { { SCHEDULE_CONSTANT, 2, 4, 0 }, 0, 0 },
        { { SCHEDULE_CONSTANT, 2, 4, 0 }, 3, 1.5 },
        { { SCHEDULE_CONSTANT, 2, 4, 0 }, 4, 2 },
        { { SCHEDULE_CONSTANT, 2, 4, 0 }, 1000, 2 },
        { { SCHEDULE_LINEAR, 2, 4, 12 }, 2, 1 },
        { { SCHEDULE_LINEAR, 2, 4, 12 }, 4, 2 },
        { { SCHEDULE_LINEAR, 2, 4, 12 }, 10, 0.5 },
        { { SCHEDULE_LINEAR, 2, 4, 12 }, 12, 0 },
        { { SCHEDULE_LINEAR, 2, 4, 12 }, 99, 0 },
        { { SCHEDULE_COSINE, 2, 4, 12 }, 1, 0.5 },
        { { SCHEDULE_COSINE, 2, 4, 12 }, 4, 2 },
        { { SCHEDULE_COSINE, 2, 4, 12 }, 8, 1 },
        { { SCHEDULE_COSINE, 2, 4, 12 }, 10, 0.29289321881345254 },
        { { SCHEDULE_COSINE, 2, 4, 4 }, 4, 2 },
        { { SCHEDULE_COSINE, 2, 4, 12 }, 12, 0 },
        { { SCHEDULE_COSINE, 2, 4, 12 }, 20, 0 }, /* not up again */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double lr = schedule_lr(&cases[i].s, cases[i].step);

        tap_ok(fabs(lr - cases[i].lr) < 1e-15,
               "schedule_lr: kind %d, warm-up %d of %d, step %d: %g",
               (int)cases[i].s.kind, (int)cases[i].s.warmup,
               (int)cases[i].s.total, (int)cases[i].step, lr);
    }
}

/* Whatever the threads, the bits are the same. */
static void
test_threads(struct par *par)
{
    enum { N = 100003 };
    float *x = xcalloc(N, sizeof(*x)), *y = xcalloc(N, sizeof(*y));
    uint16_t *a = xcalloc(N, 2), *b = xcalloc(N, 2);
    double loss;

    for (size_t i = 0; i < N; i++) {
        x[i] = sinf((float)i);
        y[i] = cosf((float)(i * i % 1000));
    }
    loss = loss_mse(a, x, y, N, NULL);
    tap_ok(loss_mse(b, x, y, N, par) == loss && !memcmp(a, b, N * 2),
           "loss_mse: 3 threads have the bits of one");
    tap_ok(grad_norm(x, N, NULL) == grad_norm(x, N, par),
           "grad_norm: 3 threads have the bits of one");
    grad_add(x, y, N, par);
    tap_ok(x[N - 1] == sinf(N - 1) + y[N - 1], "grad_add: to the last");
    free(x);
    free(y);
    free(a);
    free(b);
}

enum { N_STATE = 3 * 4 + 5 };

/* The state of some trainer's three steps: a matrix and a vector. */
static void
state_of(struct train_state *s, struct adamw *a, const char *lr)
{
    static const struct train_tensor tensors[] = { { "w", { 3, 4 }, 2 },
                                                   { "b", { 5 }, 1 } };
    struct err err;

    *a = (struct adamw){ 0 };
    adamw_open(a, N_STATE, &err);
    *s = (struct train_state){ .program = "a trainer",
                               .table = &train_step_table,
                               .format = "a format",
                               .arithmetic = "an order",
                               .tensors = tensors,
                               .n_tensors = 2,
                               .adamw = a };
    train_state_set(s, "--lr", lr, NULL);
    train_state_set_number(s, "--clip", 0.5);
    train_state_set(s, "data", "00ff", "d.npy");
    train_state_set(s, "-n", lr, NULL);
    train_state_may_differ(s);
}

static void
state_free(struct train_state *s)
{
    adamw_close(s->adamw);
    train_state_close(s);
}

/* A state's file, changed: is it read? */
static bool
reads(const char *path, const char *bytes, size_t n, struct err *err)
{
    FILE *f = fopen(path, "wb");
    struct train_state t;
    struct adamw b;
    int rc;

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        exit(1);
    state_of(&t, &b, "0.1");
    rc = train_state_read(&t, path, err);
    state_free(&t);
    return rc == 0;
}

static void
test_damage(const char *path)
{
    struct str file = { 0 };
    struct err err = { 0 };
    size_t n_read = 0, n_named = 0, header, n_all;
    char *sum;

    if (file_read_all(path, 1 << 20, &file, &err) < 0)
        exit(1);
    header = 8 + (size_t)le64(file.s);
    n_all = (file.n - header) * 8;
    for (size_t bit = header * 8; bit < file.n * 8; bit++) {
        file.s[bit / 8] ^= (char)(1 << bit % 8);
        n_read += reads(path, file.s, file.n, &err);
        n_named += err.status == EX_DATAERR &&
                   strstr(err.what, "is damaged: its numbers are not those");
        file.s[bit / 8] ^= (char)(1 << bit % 8);
    }
    tap_ok(n_read == 0 && n_named == n_all &&
               n_all == 8 * (3 * 32 + 2 * 16 + 12 * N_STATE),
           "any of %zu bits that flips is noticed", n_all);
    sum = strstr(file.s + 8, "\"xxh3\"");
    memcpy(sum, "\"xxhx\"", 6);
    tap_ok(!reads(path, file.s, file.n, &err) && err.status == EX_DATAERR &&
               strstr(err.what, "has no checksums"),
           "a state without a checksum is not: %s", err.what);
    str_free(&file);
}

static void
test_state(const char *dir)
{
    static const struct step_record step = { 0.1, 0.2, 0.3, 40 };
    struct train_state s, t;
    struct str path = { 0 };
    struct err err = { 0 };
    struct adamw a, b;
    struct stw *w;

    str_addf(&path, "%s/state", dir);
    state_of(&s, &a, "0.1");
    for (size_t i = 0; i < N_STATE; i++) {
        a.master[i] = sinf((float)i);
        a.m[i] = cosf((float)i);
        a.v[i] = 1 / (1 + (float)i);
    }
    train_state_eval(&s, 3.5);
    for (int i = 0; i < 3; i++)
        train_state_record(&s, (const double *)&step);
    train_state_eval(&s, 2.25);
    w = train_state_write(&s, path.s, &err);
    tap_ok(w && stw_commit(w, &err) == 0, "a state is written: %s", err.what);
    stw_free(w);
    state_of(&t, &b, "0.1");
    tap_ok(train_state_read(&t, path.s, &err) == 0 && t.step == 3 &&
               !memcmp(train_state_at(&t, 2), &step, sizeof(step)) &&
               t.evals.n == 2 && t.evals.list[0].step == 0 &&
               t.evals.list[0].loss == 3.5 && t.evals.list[1].step == 3 &&
               t.evals.list[1].loss == 2.25 &&
               !memcmp(a.master, b.master, N_STATE * sizeof(float)) &&
               !memcmp(a.m, b.m, N_STATE * sizeof(float)) &&
               !memcmp(a.v, b.v, N_STATE * sizeof(float)),
           "and read, to the last bit: %s", err.what);
    state_free(&t);
    state_of(&t, &b, "0.2");
    tap_ok(train_state_read(&t, path.s, &err) < 0 && err.status == EX_DATAERR &&
               strstr(err.what, "--lr was 0.1 (now 0.2"),
           "not with another setting: %s", err.what);
    t.format = "another format";
    tap_ok(train_state_read(&t, path.s, &err) < 0 &&
               strstr(err.what, "is not a state of this version of a trainer"),
           "nor as another trainer's: %s", err.what);
    state_free(&t);
    state_of(&t, &b, "0.1");
    t.arithmetic = "another";
    tap_ok(train_state_read(&t, path.s, &err) < 0 && err.status == EX_DATAERR &&
               strstr(err.what, "was made with an order, which gives other "
                                "bits than another"),
           "nor with other arithmetic: %s", err.what);
    t.any_isa = true;
    tap_ok(train_state_read(&t, path.s, &err) == 0,
           "but where that is asked for: %s", err.what);
    state_free(&t);
    test_damage(path.s);
    state_free(&s);
    unlink(path.s);
    str_free(&path);
}

/* What is trained, of a run: it is written before the state has its name. */
struct written {
    struct train_run *run;
    int n, n_named; /* how often, and with a state there */
    bool fails;
};

static int
write_trained(void *of, struct err *err)
{
    struct written *w = of;

    w->n++;
    w->n_named += !file_missing(w->run->state_path.s);
    return w->fails ? err_set(err, EX_IOERR, "full") : 0;
}

static void
run_of(struct train_run *r, const char *dir, struct adamw *a, struct written *w)
{
    static const char *const files[] = { "state.safetensors", "trained" };

    train_run_init(r, dir);
    *w = (struct written){ .run = r };
    r->what = "train";
    r->files = files;
    r->n_files = 2;
    r->save_every = 2;
    r->write = write_trained;
    r->of = w;
    r->log.unit = "loss";
    r->log.table = &train_step_table;
    state_of(&r->state, a, "0.1");
}

static void
run_free(struct train_run *r)
{
    adamw_close(r->state.adamw);
    train_run_close(r);
}

/* A step of a run that goes on. */
static int
run_step(struct train_run *r, struct err *err)
{
    static const struct step_record step = { 0.1, 0.2, 0.3, 40 };

    train_state_record(&r->state, (const double *)&step);
    return train_run_stepped(r, true, err);
}

static void
test_run(const char *dir)
{
    struct str path = { 0 };
    struct train_run r, again;
    struct written w, v;
    struct adamw a, b;
    struct err err = { 0 };
    int rc;

    str_addf(&path, "%s/new/run", dir);
    run_of(&r, path.s, &a, &w);
    w.fails = true;
    rc = train_run_open(&r, &err) < 0 || train_run_begin(&r, &err) < 0;
    tap_ok(rc == 0 && r.is_new && run_step(&r, &err) == 0 &&
               run_step(&r, &err) == -1 && w.n == 1 && !r.any_saved &&
               file_missing(r.state_path.s),
           "run: without what is trained there is no state");
    train_run_undo(&r);
    *strrchr(path.s, '/') = '\0';
    tap_ok(file_missing(path.s), "run: what has made nothing leaves nothing");
    run_free(&r);

    run_of(&r, path.s, &a, &w);
    rc = train_run_open(&r, &err) < 0 || train_run_begin(&r, &err) < 0;
    for (int i = 0; i < 5; i++)
        rc |= run_step(&r, &err);
    tap_ok(rc == 0 && w.n == 2 && w.n_named == 1 && r.saved == 4,
           "run: a checkpoint of every 2 steps, what is trained first");
    run_of(&again, path.s, &b, &v);
    tap_ok(train_run_open(&again, &err) < 0 &&
               strstr(err.what, ": another train is running there"),
           "run: a directory has one at a time");
    train_run_undo(&again);
    run_free(&again);
    train_run_undo(&r);
    run_free(&r);

    run_of(&r, path.s, &a, &w);
    tap_ok(train_run_open(&r, &err) < 0 && err.status == EX_CANTCREAT &&
               strstr(err.what, "new/state.safetensors: exists already"),
           "run: a new one does not replace another");
    train_run_undo(&r);
    run_free(&r);

    run_of(&r, path.s, &a, &w);
    r.resume = true;
    tap_ok(train_run_open(&r, &err) == 0 && train_run_begin(&r, &err) == 0 &&
               r.saved == 4 && r.state.step == 4 && !r.is_new,
           "run: it is resumed from the last checkpoint");
    train_run_not_finite(&r, "x", "the loss", NAN, 5, false, &err);
    tap_ok(
        err.status == TRAIN_NOT_FINITE &&
            !strcmp(err.what, "x: the loss is NaN in step 5 (step 4 is saved)"),
        "run: what is not finite is said: %s", err.what);
    run_free(&r);
    out_remove_dir(AT_FDCWD, path.s);
    str_free(&path);
}

int
main(void)
{
    char dir[] = "/tmp/train.XXXXXX";
    struct par *par;
    struct err err;

    if (!mkdtemp(dir) || par_open(&par, 3, &err) < 0)
        return 1;
    test_warmup();
    test_threads(par);
    test_state(dir);
    test_run(dir);
    if (ref_kept("train_ref.py", dir, "torch")) {
        test_mse(dir, par);
        test_clip(dir, par);
        test_adamw(dir, par);
        test_falls(dir, "cosine", SCHEDULE_COSINE);
        test_falls(dir, "linear", SCHEDULE_LINEAR);
    }
    par_close(par);
    rmdir(dir);
    return tap_done();
}
