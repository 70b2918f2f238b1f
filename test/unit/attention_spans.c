/* SPDX-License-Identifier: ISC */
/*
 * Attention of several spans in one call, generated ones among prompts, in
 * slots that are not their positions, has each query's bits of a call of its
 * own, within attention_scratch(): heads and groups of any width.
 */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/engine.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { SPANS = 4, KV_HEADS = 2 };

struct shape {
    size_t head_dim, v_head_dim, group, window;
    enum dtype dtype;
    size_t past[SPANS], n[SPANS];
};

struct input {
    size_t head_dim, v_head_dim, group, window, n_rows;
    struct session sessions[SPANS];
    struct span spans[SPANS];
    size_t n_spans;
    float *q, *out;
};

static float *
random_floats(size_t n)
{
    float *p = xcalloc(n, sizeof(*p));

    for (size_t i = 0; i < n; i++)
        p[i] = 2 * rnd();
    return p;
}

/* A cache whose slots that are not put are NaN. */
static void
fill(struct session *s, const struct shape *shape, size_t n)
{
    size_t d = shape->head_dim, both = d + shape->v_head_dim;
    float *p = random_floats(both);
    struct err err;

    *s = (struct session){ .kv = { .n_layers = 1,
                                   .n_heads = KV_HEADS,
                                   .head_dim = d,
                                   .v_head_dim = shape->v_head_dim,
                                   .dtype = shape->dtype } };
    if (kv_grow(&s->kv, 0, n, &err) < 0)
        abort();
    for (size_t b = 0; b < s->kv.n_blocks; b++)
        memset(s->kv.blocks[b], 0xff, kv_block_nbytes(&s->kv));
    for (size_t i = 0; i < n * KV_HEADS; i++) {
        for (size_t j = 0; j < both; j++)
            p[j] = 2 * rnd();
        kv_set(&s->kv, 0, i % KV_HEADS, i / KV_HEADS, 1, p, p + d);
    }
    free(p);
}

static void
make_input(struct input *in, const struct shape *shape)
{
    size_t n_heads;

    *in = (struct input){ .head_dim = shape->head_dim,
                          .v_head_dim = shape->v_head_dim,
                          .group = shape->group,
                          .window = shape->window };
    for (size_t i = 0; i < SPANS && shape->n[i] > 0; i++) {
        fill(&in->sessions[i], shape, shape->past[i] + shape->n[i]);
        in->spans[in->n_spans++] =
            (struct span){ .session = &in->sessions[i],
                           .row = in->n_rows,
                           .n = shape->n[i],
                           .first = shape->past[i] + 1000 * i,
                           .slot = shape->past[i],
                           .generated = i % 2 == 1 };
        in->n_rows += shape->n[i];
    }
    n_heads = in->n_rows * KV_HEADS * in->group;
    in->q = random_floats(n_heads * in->head_dim);
    in->out = xcalloc(n_heads * in->v_head_dim, sizeof(*in->out));
}

static void
free_input(struct input *in)
{
    for (size_t i = 0; i < in->n_spans; i++)
        kv_free(&in->sessions[i].kv);
    free(in->q);
    free(in->out);
}

/* Into rows of 'out' from 'row' on. */
static void
run(struct par *par, const struct input *in, const struct span *spans,
    size_t n_spans, size_t row, bool bf16, float *out)
{
    const struct config config = { .n_heads = (int64_t)(KV_HEADS * in->group),
                                   .n_kv_heads = KV_HEADS,
                                   .head_dim = (int64_t)in->head_dim,
                                   .v_head_dim = (int64_t)in->v_head_dim };
    size_t at = row * KV_HEADS * in->group;
    size_t nbytes = attention_scratch(&config, bf16) *
                    (size_t)par_threads(par) * sizeof(float);
    float *scratch = aligned_alloc(64, nbytes);

    memset(scratch, 0xff, nbytes);
    attention_run(par, &(struct attention){ .n_heads = KV_HEADS * in->group,
                                            .n_kv_heads = KV_HEADS,
                                            .head_dim = in->head_dim,
                                            .v_head_dim = in->v_head_dim,
                                            .scale = 0.2f,
                                            .window = in->window,
                                            .spans = spans,
                                            .n_spans = n_spans,
                                            .q = in->q + at * in->head_dim,
                                            .out = out + at * in->v_head_dim,
                                            .bf16 = bf16,
                                            .scratch = scratch });
    free(scratch);
}

static void
test_shape(struct par *par, const struct shape *shape)
{
    struct input in;
    size_t n;
    float *alone;

    make_input(&in, shape);
    n = in.n_rows * KV_HEADS * in.group * in.v_head_dim;
    alone = xcalloc(n, sizeof(*alone));
    for (int bf16 = 0; bf16 < 2; bf16++) {
        bool finite = true;

        run(par, &in, in.spans, in.n_spans, 0, bf16, in.out);
        for (size_t i = 0; i < in.n_spans; i++)
            for (size_t k = 0; k < in.spans[i].n; k++) {
                struct span one = in.spans[i];

                one.row = 0;
                one.n = 1;
                one.first += k;
                one.slot += k;
                run(NULL, &in, &one, 1, in.spans[i].row + k, bf16, alone);
            }
        for (size_t i = 0; i < n; i++)
            finite &= isfinite(in.out[i]) != 0;
        tap_ok(finite && !memcmp(in.out, alone, n * sizeof(*alone)),
               "attention%s, head_dim %zu, values of %zu, group %zu, window "
               "%zu: spans have the bits of each query alone, stale NaNs are "
               "not read",
               bf16 ? " in bf16" : "", in.head_dim, in.v_head_dim, in.group,
               in.window);
    }
    free(alone);
    free_input(&in);
}

int
main(void)
{
    static const struct shape shapes[] = {
        { 1, 1, 1, 0, DT_F32, { 0, 70, 63 }, { 130, 1, 3 } },
        { 80, 64, 5, 0, DT_BF16, { 3, 0, 64, 127 }, { 70, 66, 1, 1 } },
        { 65, 129, 7, 33, DT_F16, { 100, 5, 0 }, { 90, 2, 64 } },
        { 1024, 1024, 3, 64, DT_F32, { 1, 64 }, { 30, 9 } },
        { 1024, 1024, 65, 0, DT_F32, { 60 }, { 6 } },
        { 129, 1, 512, 1, DT_BF16, { 62, 0 }, { 3, 2 } },
        { 16, 16, 1025, 5, DT_F16, { 60, 2 }, { 6, 3 } },
    };
    struct par *par;
    struct err err;

    if (par_open(&par, 2, &err))
        abort();
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        test_shape(par, &shapes[i]);
    par_close(par);
    return tap_done();
}
