/* SPDX-License-Identifier: ISC */
#include "core/model/vision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/kernel/resample.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/norm.h"

/* Of a batch, where its size is not said: products of more are not faster. */
#define ROWS       1024
#define MAX_SIDE   8192 /* pixels */
#define MAX_TOKENS 65536

/* ---- positions ---- */

/* to [rows, columns, d] = grid [side, side, d] in another size, as torch's
 * bicubic interpolate() of a size has it, without align_corners. */
static int
interpolate(float *to, const struct vision_shape *s, const float *grid,
            size_t side, bool antialias, struct err *err)
{
    enum resample by = antialias ? RESAMPLE_BICUBIC : RESAMPLE_FOUR;
    struct resampling y = { 0 }, x = { 0 };
    size_t d = s->hidden;
    double *sum = xcalloc(d, sizeof(*sum));
    int rc = resampling_open(&y, by, side, s->rows, 0, s->rows, err);

    if (rc == 0)
        rc = resampling_open(&x, by, side, s->columns, 0, s->columns, err);
    for (size_t i = 0; i < s->n_patches && rc == 0; i++) {
        size_t row = i / s->columns, column = i % s->columns;

        memset(sum, 0, d * sizeof(*sum));
        for (size_t j = 0; j < y.n[row]; j++)
            for (size_t k = 0; k < x.n[column]; k++) {
                const float *from =
                    grid + ((y.from[row] + j) * side + x.from[column] + k) * d;
                double weight =
                    y.weight[row * y.most + j] * x.weight[column * x.most + k];

                for (size_t c = 0; c < d; c++)
                    sum[c] += weight * (double)from[c];
            }
        for (size_t c = 0; c < d; c++)
            to[i * d + c] = (float)sum[c];
    }
    resampling_close(&y);
    resampling_close(&x);
    free(sum);
    return rc;
}

/* CLS and its position, registers, and the positions of patches. */
static int
fill_start(struct vision *v, struct err *err)
{
    const struct model *m = v->model;
    const struct config_vision *c = &m->config.vision;
    const struct vision_shape *s = &v->shape;
    const float *grid = m->vision.positions;
    size_t d = s->hidden, rows = (size_t)(c->height / c->patch);
    size_t columns = (size_t)(c->width / c->patch);
    size_t side = (size_t)sqrt((double)(rows * columns));
    float *to = mem_try(s->n_tokens * d, sizeof(*to), "an embedding", err);

    v->start = to;
    if (!to)
        return -1;
    memset(to, 0, s->n_tokens * d * sizeof(*to));
    if (s->cls) {
        memcpy(to, m->vision.cls, d * sizeof(*to));
        if (grid) {
            vec_add(to, grid, d);
            grid += d;
        }
        to += d;
    }
    if (s->n_registers)
        memcpy(to, m->vision.registers, s->n_registers * d * sizeof(*to));
    to += s->n_registers * d;
    if (!grid)
        return 0;
    /* as transformers: DINOv2's code never copies what is no square */
    if (rows == s->rows && columns == s->columns &&
        (rows == columns || !m->config.form.layer_scale))
        memcpy(to, grid, s->n_patches * d * sizeof(*to));
    else if (side * side != rows * columns)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu x %zu positions, which are not a square "
                       "and not interpolated to %zu x %zu",
                       m->dir.path, rows, columns, s->rows, s->columns);
    else
        return interpolate(to, s, grid, side,
                           m->config.family->vision->antialias, err);
    return 0;
}

/* DINOv3's: of a patch's row, then column, from -1 to 1; none of others. */
static void
fill_rotations(struct vision *v)
{
    const struct config *c = &v->model->config;
    const struct vision_shape *s = &v->shape;
    size_t d = (size_t)c->rotary_dim, half = d / 2, quarter = d / 4;
    size_t first = s->n_tokens - s->n_patches;
    float *to = xcalloc(s->n_tokens * 2 * half, sizeof(*to));

    for (size_t i = 0; i < s->n_tokens; i++, to += 2 * half)
        for (size_t j = 0; j < half; j++) {
            size_t p = i - first, n = j < quarter ? s->rows : s->columns;
            size_t at = j < quarter ? p / s->columns : p % s->columns;
            double center = 2 * ((double)at + 0.5) / (double)n - 1;
            double k = (double)(j % quarter);
            double angle =
                2 * M_PI * center * f64_pow(c->rope->theta, -4 * k / (double)d);

            to[j] = i < first ? 1 : (float)f64_cos(angle);
            to[half + j] = i < first ? 0 : (float)f64_sin(angle);
        }
    v->model->rotations = to - s->n_tokens * 2 * half;
}

/* ---- opening ---- */

static int
find_shape(struct vision *v, const struct vision_options *o, struct err *err)
{
    const struct config *c = &v->model->config;
    struct vision_shape *s = &v->shape;
    size_t height = o->height ? o->height : (size_t)c->vision.height;
    size_t width = o->width ? o->width : (size_t)c->vision.width;
    size_t patch = (size_t)c->vision.patch;

    if (height < patch || width < patch || height > MAX_SIDE ||
        width > MAX_SIDE)
        return err_set(err, EX_DATAERR,
                       "%s: images of %zu x %zu pixels (expected sides from "
                       "%zu, a patch's, to %d)",
                       v->model->dir.path, height, width, patch, MAX_SIDE);
    *s = (struct vision_shape){
        .height = height,
        .width = width,
        .patch = patch,
        .rows = height / patch,
        .columns = width / patch,
        .n_patches = (height / patch) * (width / patch),
        .n_registers = (size_t)c->vision.n_registers,
        .cls = c->family->vision->cls != NULL,
        .hidden = (size_t)c->hidden_size,
        .n_layers = (size_t)c->n_layers,
    };
    s->n_tokens = s->cls + s->n_registers + s->n_patches;
    if (s->n_tokens > MAX_TOKENS)
        return err_set(err, EX_DATAERR,
                       "%s: images of %zu x %zu pixels have %zu tokens "
                       "(expected at most %d)",
                       v->model->dir.path, height, width, s->n_tokens,
                       MAX_TOKENS);
    s->n_features =
        v->model->vision.project.out ? v->model->vision.project.out : s->hidden;
    return 0;
}

/* Layers of the head that have few rows: exact. */
static void
apply_few(struct vision *v, const struct linear *l, float *y, bool add,
          const float *x, size_t n)
{
    linear_exact(v->engine, &(struct apply){ l, y, add }, x, n);
}

/* Rows first .. first + n - 1 of the head's in_proj. */
static struct linear
part_of(const struct linear *l, size_t first, size_t n)
{
    struct linear part = *l;

    part.w.row += first;
    part.out = n;
    if (l->bias)
        part.bias = l->bias + first;
    return part;
}

static int
open_engine(struct vision *v, struct par *par, const struct vision_options *o,
            struct err *err)
{
    const struct config *c = &v->model->config;
    const struct vision_shape *s = &v->shape;
    size_t most = (INT32_MAX / 2) / s->n_tokens;
    size_t batch = o->batch ? smaller(o->batch, most)
                            : larger((ROWS + s->n_tokens / 2) / s->n_tokens, 1);
    const struct engine_options options = { .chunk = batch * s->n_tokens,
                                            .compute = o->compute,
                                            .kv = DT_F32,
                                            .least = s->n_tokens };
    size_t d = s->hidden, pixels = 3 * s->patch * s->patch;
    size_t attends = v->model->vision.probe != NULL;
    struct mem_array arrays[] = {
        { &v->patches, 0, s->n_patches * pixels, sizeof(float) },
        { &v->kv, 0, attends * s->n_tokens * 2 * d, sizeof(float) },
        { &v->queries, 0, attends * d, sizeof(float) },
        { &v->pooled, 0, d, sizeof(float) },
        { &v->added, 0, d, sizeof(float) },
        { &v->inner, 0, attends * (size_t)c->intermediate_size, sizeof(float) },
    };
    size_t n_arrays = sizeof(arrays) / sizeof(*arrays);

    if (engine_open(&v->engine, v->model, par, &options, err))
        return -1;
    v->batch = v->engine->options.chunk / s->n_tokens;
    for (size_t i = 0; i < n_arrays; i++)
        arrays[i].rows = v->batch;
    v->memory =
        mem_arrays(arrays, n_arrays, &v->nbytes, "a batch of images", err);
    if (!v->memory)
        return -1;
    v->images = xcalloc(v->batch, sizeof(struct session *));
    for (size_t i = 0; i < v->batch; i++) {
        v->images[i] = session_new(v->engine, s->n_tokens);
        v->images[i]->kv.n_layers = 1;
        if (kv_grow(&v->images[i]->kv, 0, s->n_tokens, err))
            return -1;
    }
    return 0;
}

int
vision_open(struct vision **vision, const char *dir, struct par *par,
            const struct vision_options *options, struct err *err)
{
    struct vision *v = xcalloc(1, sizeof(*v));

    *vision = NULL;
    if (model_open_vision(&v->model, dir, err) || find_shape(v, options, err) ||
        (options->splices &&
         splices_open(&v->splices, v->model, options->splices, err)) ||
        fill_start(v, err) || open_engine(v, par, options, err)) {
        vision_close(v);
        return -1;
    }
    if (v->model->config.rotary_dim)
        fill_rotations(v);
    if (v->model->vision.probe) {
        struct linear q = part_of(&v->model->vision.in, 0, v->shape.hidden);

        v->query = xcalloc(v->shape.hidden, sizeof(*v->query));
        apply_few(v, &q, v->query, false, v->model->vision.probe, 1);
    }
    *vision = v;
    return 0;
}

void
vision_close(struct vision *v)
{
    if (!v)
        return;
    for (size_t i = 0; v->images && i < v->batch; i++)
        session_close(v->images[i]);
    free(v->images);
    mem_big_free(v->memory, v->nbytes, 1);
    engine_close(v->engine);
    splices_close(v->splices);
    model_close(v->model);
    free(v->start);
    free(v->query);
    free(v);
}

/* ---- a batch ---- */

struct vision_pass {
    struct vision *v;
    const float *pixels;
    size_t n;
};

/* A row of patches: of each a row of weights' columns. */
static void
cut_patches(void *ctx, size_t begin, size_t end)
{
    const struct vision_pass *b = ctx;
    const struct vision_shape *s = &b->v->shape;
    size_t p = s->patch, area = s->height * s->width;

    for (size_t i = begin; i < end; i++) {
        const float *from =
            b->pixels + i / s->rows * 3 * area + i % s->rows * p * s->width;
        float *to = b->v->patches + i * s->columns * 3 * p * p;

        for (size_t x = 0; x < s->columns; x++)
            for (size_t y = 0; y < 3 * p; y++, to += p)
                memcpy(to, from + y / p * area + y % p * s->width + x * p,
                       p * sizeof(*to));
    }
}

static void
put_tokens(void *ctx, size_t begin, size_t end)
{
    const struct vision_pass *b = ctx;
    const struct activations *a = &b->v->engine->acts;
    const struct vision_shape *s = &b->v->shape;
    size_t d = s->hidden, first = s->n_tokens - s->n_patches;

    for (size_t i = begin; i < end; i++) {
        size_t at = i % s->n_tokens, image = i / s->n_tokens;
        float *x = a->x + i * d;

        memcpy(x, b->v->start + at * d, d * sizeof(*x));
        if (at >= first) /* the patches' products: see embed_images() */
            vec_add(x, a->attn_in + (image * s->n_patches + at - first) * d, d);
    }
}

/* Fills the residual stream before the first layer. */
static void
embed_images(struct vision_pass *b)
{
    struct engine *e = b->v->engine;
    const struct vision_shape *s = &b->v->shape;
    const struct model_vision *m = &b->v->model->vision;
    float *embedded = e->acts.attn_in, *x = e->acts.x; /* not yet used */
    size_t n_rows = b->n * s->n_tokens;

    par_for(e->par, b->n * s->rows, 1, cut_patches, b);
    linear_exact(e, &(struct apply){ &m->patch, embedded, false },
                 b->v->patches, b->n * s->n_patches);
    par_for(e->par, n_rows, 1, put_tokens, b);
    norm_rows(e->par, &m->before, x, x, NULL, n_rows);
}

static void
fill_chunk(struct vision_pass *b, size_t done)
{
    struct chunk *c = &b->v->engine->chunk;
    size_t n = b->v->shape.n_tokens;

    c->n_spans = b->n;
    c->n_rows = b->n * n;
    for (size_t i = 0; i < b->n; i++)
        c->spans[i] = (struct span){ .session = b->v->images[i],
                                     .row = i * n,
                                     .n = n,
                                     .first = (done + i) * n };
    for (size_t i = 0; i < c->n_rows; i++)
        c->rows[i] = (struct row){ b->v->images[i / n], i % n, i % n };
}

static void
keep_kv(void *ctx, size_t begin, size_t end)
{
    const struct vision_pass *b = ctx;
    const struct config *c = &b->v->model->config;
    size_t d = b->v->shape.hidden, head_dim = (size_t)c->head_dim;

    for (size_t i = begin; i < end; i++) {
        const struct row *row = &b->v->engine->chunk.rows[i];
        const float *k = b->v->kv + i * 2 * d;

        for (size_t j = 0; j < d / head_dim; j++)
            kv_set(&row->session->kv, 0, j, row->slot, 1, k + j * head_dim,
                   k + d + j * head_dim);
    }
}

/* The probe's attention over an image's rows x, and an MLP. */
static void
attend(struct vision_pass *b, const float *x, float *features)
{
    struct vision *v = b->v;
    struct engine *e = v->engine;
    const struct model_vision *m = &v->model->vision;
    size_t d = v->shape.hidden, inner = m->up.out;
    struct linear kv = part_of(&m->in, d, 2 * d);
    struct chunk *c = &e->chunk;
    struct attention a = block_attention(e, c, &e->acts, 0);

    linear_rows(e, &(struct apply){ &kv, v->kv, false }, 1, x, c->n_rows,
                false);
    par_for(e->par, c->n_rows, 1, keep_kv, b);
    /* a query that is last sees all */
    for (size_t i = 0; i < b->n; i++) {
        struct span *span = &c->spans[i];

        memcpy(v->queries + i * d, v->query, d * sizeof(*v->query));
        *span = (struct span){ .session = span->session,
                               .row = i,
                               .n = 1,
                               .slot = v->shape.n_tokens - 1,
                               .generated = true };
    }
    a.q = v->queries;
    a.out = v->pooled;
    a.lse = NULL;
    attention_run(e->par, &a);
    apply_few(v, &m->out, features, false, v->pooled, b->n);
    norm_rows(e->par, &m->norm, v->pooled, features, NULL, b->n);
    apply_few(v, &m->up, v->inner, false, v->pooled, b->n);
    mlp_activate(e->par, v->model->config.form.act, v->inner, v->inner, NULL,
                 inner, inner, b->n);
    apply_few(v, &m->down, features, true, v->inner, b->n);
}

/* The mean of an image's rows, in f64. */
static void
average(const struct vision_shape *s, const float *x, float *to)
{
    for (size_t c = 0; c < s->hidden; c++) {
        double sum = 0;

        for (size_t i = 0; i < s->n_tokens; i++)
            sum += (double)x[i * s->hidden + c];
        to[c] = (float)(sum / (double)s->n_tokens);
    }
}

/* What follows the last layer. */
static void
run_head(struct vision_pass *b, const struct tap *tap, float *features)
{
    struct vision *v = b->v;
    struct engine *e = v->engine;
    const struct vision_shape *s = &v->shape;
    const struct model *m = v->model;
    struct chunk *c = &e->chunk;
    float *normed = e->acts.attn_in, *to = features;
    size_t d = s->hidden;

    norm_rows(e->par, &m->norm, normed, e->acts.out, NULL, c->n_rows);
    trunk_point(e, c, tap, (int64_t)s->n_layers - 1, TAP_NORM, normed);
    if (!features)
        return;
    if (m->vision.project.out)
        to = v->added;
    for (size_t i = 0; i < b->n && !m->vision.probe; i++) {
        if (s->cls)
            memcpy(to + i * d, normed + i * s->n_tokens * d, d * sizeof(*to));
        else
            average(s, normed + i * s->n_tokens * d, to + i * d);
    }
    if (m->vision.probe)
        attend(b, normed, features);
    if (!m->vision.project.out)
        return;
    apply_few(v, &m->vision.project, features, false, to, b->n);
    if (m->config.family->vision->pool == POOL_TANH)
        vec_softcap(features, 1, b->n * s->n_features);
}

void
vision_run(struct vision *v, const float *pixels, size_t n,
           const struct tap *tap, float *features)
{
    const struct vision_shape *s = &v->shape;
    struct engine *e = v->engine;
    bool whole = features || tap_at(tap, TAP_NORM);

    for (size_t done = 0; done < n;) {
        struct vision_pass b = { .v = v,
                                 .pixels =
                                     pixels + done * 3 * s->height * s->width,
                                 .n = smaller(n - done, v->batch) };

        fill_chunk(&b, done);
        embed_images(&b);
        /* no row is more wanted than others */
        e->chunk.n_wanted = whole ? e->chunk.n_rows : 0;
        trunk_run(e, &e->chunk, &e->acts, 1, tap);
        if (whole)
            run_head(&b, tap,
                     features ? features + done * s->n_features : NULL);
        done += b.n;
    }
}
