/* SPDX-License-Identifier: ISC */
/*
 * Vision encoders at each place, layer and token against float64, and the same
 * bits for any threads and batch; what is refused, by its name.
 */
#include "core/model/vision.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/kernel/gemm.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/model.h"
#include "test/unit/ref.h"

enum { IMAGES = 3, N_POINTS = 7 };

static const enum tap_point points[N_POINTS] = {
    TAP_IN_QKV,  TAP_IN_O, TAP_ATTN,  TAP_IN_GATE_UP,
    TAP_IN_DOWN, TAP_MLP,  TAP_RESID,
};

/* What a run has given: of each place the rows of all images. */
struct result {
    struct vision *v;
    float *rows[1 << 12]; /* as test/ref/vision_cases.py orders them */
    size_t n_rows[1 << 12], n;
};

/* The tap of one point. */
struct seen {
    struct result *to;
    enum tap_point point;
};

static void
look(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    const struct seen *s = ctx;
    struct vision *v = s->to->v;
    size_t dim = tap_dim(&v->model->config, s->point, layer), place = 0;

    (void)session;
    for (size_t i = 0; i < N_POINTS; i++)
        if (points[i] == s->point)
            place = (size_t)((layer + 1) * N_POINTS) + i - N_POINTS + 1;
    if (s->point == TAP_NORM)
        place = v->shape.n_layers * N_POINTS + 1;
    if (!s->to->rows[place])
        s->to->rows[place] = xcalloc(IMAGES * n * dim, sizeof(float));
    s->to->n_rows[place] = IMAGES * n * dim;
    memcpy(s->to->rows[place] + first * dim, rows, n * dim * sizeof(*rows));
}

static struct result *
run(const char *dir, const float *x, size_t h, size_t w, int threads,
    size_t batch, enum compute compute)
{
    const struct vision_options options = {
        .height = h, .width = w, .batch = batch, .compute = compute
    };
    struct result *r = xcalloc(1, sizeof(*r));
    struct seen seen[N_POINTS + 1];
    struct tap taps[N_POINTS + 1];
    struct par *par = NULL;
    struct err err = { 0 };
    size_t last;

    if (par_open(&par, threads, &err) ||
        vision_open(&r->v, dir, par, &options, &err)) {
        printf("# %s\n", err.what);
        return NULL;
    }
    for (size_t i = 0; i <= N_POINTS; i++) {
        seen[i] = (struct seen){ r, i < N_POINTS ? points[i] : TAP_NORM };
        taps[i] = (struct tap){ .point = seen[i].point,
                                .last_layer = INT32_MAX,
                                .fn = look,
                                .ctx = &seen[i],
                                .next = i < N_POINTS ? &taps[i + 1] : NULL };
    }
    last = r->v->shape.n_layers * N_POINTS + 2;
    r->n = last + 1;
    r->n_rows[last] = IMAGES * r->v->shape.n_features;
    r->rows[last] = xcalloc(r->n_rows[last], sizeof(float));
    vision_run(r->v, x, IMAGES, taps, r->rows[last]);
    vision_close(r->v);
    par_close(par);
    return r;
}

static void
result_free(struct result *r)
{
    for (size_t i = 0; r && i < r->n; i++)
        free(r->rows[i]);
    free(r);
}

static bool
same(const struct result *a, const struct result *b)
{
    bool yes = a && b && a->n == b->n;

    for (size_t i = 0; yes && i < a->n; i++)
        yes = a->n_rows[i] == b->n_rows[i] &&
              !memcmp(a->rows[i], b->rows[i], a->n_rows[i] * sizeof(float));
    return yes;
}

/* The largest error of all places, in what may be. */
static double
error_of(const struct result *r, const struct str *y, double tolerance)
{
    double worst = 0;
    size_t at = 0;

    for (size_t i = 0; r && i < r->n; i++) {
        double max = 0, off = 0;

        if ((at + r->n_rows[i]) * 4 > y->n || r->n_rows[i] == 0)
            return INFINITY;
        for (size_t k = 0; k < r->n_rows[i]; k++, at++) {
            double want = (double)f32_from_bits(le32(y->s + at * 4));

            max = fmax(max, fabs(want));
            off = fmax(off, isfinite(r->rows[i][k])
                                ? fabs((double)r->rows[i][k] - want)
                                : INFINITY);
        }
        worst = fmax(worst, off / (tolerance * fmax(1, max / 5)));
    }
    return r && at * 4 == y->n ? worst : INFINITY;
}

static void
test_case(const char *dir, const char *name)
{
    char *path = xstrdup(ref_path(dir, name));
    struct str size = { 0 }, x = { 0 }, y = { 0 }, file = { 0 };

    for (int i = 0; i < 2; i++) {
        struct result *one, *other, *rounded;
        float *pixels;
        double error;
        size_t h = 0, w = 0;

        str_clear(&file);
        str_addf(&file, "%s.%d", name, i);
        ref_read(dir, file.s, ".size", &size);
        ref_read(dir, file.s, ".x", &x);
        ref_read(dir, file.s, ".y", &y);
        if (!tap_ok(sscanf(size.s, "%zu %zu", &h, &w) == 2 &&
                        x.n == IMAGES * 3 * h * w * 4,
                    "%s: %zu x %zu", name, h, w))
            break;
        pixels = xcalloc(x.n / 4, sizeof(*pixels));
        for (size_t k = 0; k < x.n / 4; k++)
            pixels[k] = f32_from_bits(le32(x.s + 4 * k));
        one = run(path, pixels, h, w, 1, 0, COMPUTE_F32);
        error = error_of(one, &y, 2e-5);
        tap_ok(error <= 1,
               "%s, %zu x %zu: each place, layer and token is within "
               "2e-5 of float64 (%.2g of that)",
               name, h, w, error);
        for (int k = 0; k < 2; k++) {
            if (tap_few() && k != i)
                continue;
            other = run(path, pixels, h, w, 3 - k, 2 - (size_t)k, COMPUTE_F32);
            tap_ok(same(one, other),
                   "%s, %zu x %zu: the same bits by batches of %d, %d threads",
                   name, h, w, 2 - k, 3 - k);
            result_free(other);
        }
        if (!tap_few() || i == 1) {
            rounded = run(path, pixels, h, w, 2, 2, COMPUTE_BF16);
            error = error_of(rounded, &y, 0.2);
            tap_ok(error <= 1 && !same(one, rounded),
                   "%s, %zu x %zu: bf16 is near, and another (%.2g)", name, h,
                   w, error);
            result_free(rounded);
        }
        result_free(one);
        free(pixels);
    }
    str_free(&size);
    str_free(&file);
    str_free(&x);
    str_free(&y);
    free(path);
}

/* Spoiled models: at a size of 30 x 30, the message after the directory. */
static void
test_refused(const char *dir)
{
    static const struct vision_options options = { .height = 30, .width = 30 };
    struct str list = { 0 };
    char *save = NULL;

    ref_read(dir, "refused", "", &list);
    for (char *name = strtok_r(list.s, "\n", &save); name;
         name = strtok_r(NULL, "\n", &save)) {
        char *says = strchr(name, '\t');
        struct vision *v = NULL;
        struct err err = { 0 };
        const char *path, *end;
        int rc;

        *says++ = 0;
        path = ref_path(dir, name);
        rc = vision_open(&v, path, NULL, &options, &err);
        end = strstr(err.what, path);
        end = end ? end + strlen(path) : err.what;
        tap_ok(*says ? rc < 0 && err.status == EX_DATAERR &&
                           !strncmp(end, says, strlen(says))
                     : rc == 0,
               "%s: %s", name, *says ? says : "opens");
        if (rc < 0 && strncmp(end, says, strlen(says)))
            printf("# %s\n", err.what);
        vision_close(v);
    }
    str_free(&list);
}

int
main(void)
{
    const char *dir = ref_dir();

    if (dir) {
        ref_each(ref_kept, "vision_cases.py", dir, "numpy", test_case);
        test_refused(dir);
        ref_remove(dir);
    }
    return tap_done();
}
