/* SPDX-License-Identifier: ISC */
#include "core/kernel/encode.h"

#include <float.h>
#include <math.h>

#include "core/kernel/cvt.h"
#include "core/kernel/ops.h"

/* Scales that are tried, in 64ths of absmax / 7.5: with the first of them the
 * largest number has the code -8. */
static const float factors[] = { 60, 57, 54, 51, 48, 45, 42, 39 };
#define N_FACTORS (sizeof(factors) / sizeof(*factors))
#define REFITS    2

#define PIECE 2048 /* numbers that are read at a time: 8 KiB of f32 */

/* A group of a row, its range, and the piece of it that is in memory. */
struct group {
    const struct encode_ops *ops;
    const struct encode_form *form;
    const struct weight *w;
    const float *weight; /* of the group's columns, or NULL */
    size_t row, col, n;
    float low, high, absmax; /* 0 among them */
    size_t held; /* where the piece begins; SIZE_MAX: there is none */
    float x[PIECE];
};

struct choice {
    float scale, zero;
    float error;
};

size_t
encode_groups(const struct encode_form *form, size_t k)
{
    return (k + form->group - 1) / form->group;
}

void
encode_add(struct encode_error *to, const struct encode_error *row)
{
    to->squares += row->squares;
    to->of += row->of;
    to->max = fmax(to->max, row->max);
}

double
encode_relative_rms(const struct encode_error *e)
{
    return e->of > 0 ? sqrt(e->squares / e->of) : 0;
}

static struct encode_part
read_piece(struct group *g, size_t at)
{
    size_t n = smaller(g->n - at, PIECE);

    if (g->held != at)
        weight_read(g->x, g->w, g->row, g->col + at, n);
    g->held = at;
    return (struct encode_part){ .x = g->x,
                                 .weight = g->weight ? g->weight + at : NULL,
                                 .n = n };
}

/* As it is when it has been stored, and has an inverse. */
static float
stored(float scale, enum dtype dtype)
{
    float least = dtype == DT_F16 ? 0x1p-24f : FLT_MIN;
    float v = dtype == DT_F16    ? f16_to_f32(f32_to_f16(scale))
              : dtype == DT_BF16 ? bf16_to_f32(f32_to_bf16(scale))
                                 : scale;

    return scale == 0 || fabsf(v) >= least ? v : copysignf(least, scale);
}

static void
set_scale(struct encode_part *p, const struct choice *c)
{
    p->scale = c->scale;
    p->by = c->scale != 0 ? 1 / c->scale : 0;
    p->low = -8 - c->zero;
    p->high = 7 - c->zero;
    p->plus = c->zero + 8;
}

/* ---- int4 ---- */

static struct encode_fit
measure(struct group *g, const struct choice *c, bool fits)
{
    struct encode_fit f = { 0 };

    for (size_t at = 0; at < g->n; at += PIECE) {
        struct encode_part p = read_piece(g, at);

        set_scale(&p, c);
        g->ops->measure(&f, &p, fits);
    }
    return f;
}

/* Keeps the better of two choices. */
static void
try(struct group *g, struct choice *best, float scale, float zero)
{
    struct choice c = { stored(scale, g->form->scale_dtype), zero, 0 };

    if (c.scale == best->scale && zero == best->zero)
        return;
    c.error = measure(g, &c, false).error;
    if (c.error < best->error)
        *best = c;
}

static struct choice
choose_int4(struct group *g)
{
    struct choice best = { .error = INFINITY };
    float scale = g->absmax / 7.5f, zero = 0;
    bool asymmetric = g->form->asymmetric;

    if (asymmetric) {
        scale = g->high / 15 - g->low / 15;
        zero = scale > 0 ? -8 - g->low / scale : 0;
        zero = rintf(zero < -8 ? -8 : zero > 7 ? 7 : zero);
    }
    if (!g->form->search || scale == 0)
        return (struct choice){ stored(scale, g->form->scale_dtype), zero, 0 };
    try(g, &best, scale, zero);
    for (size_t i = 0; i < N_FACTORS; i++) {
        float by = factors[i] / 64;

        if (!asymmetric)
            try(g, &best, (g->high > -g->low ? -scale : scale) * by, 0);
        for (float z = zero - 1; asymmetric && z <= zero + 1; z++)
            if (z >= -8 && z <= 7)
                try(g, &best, scale * by, z);
    }
    for (int i = 0; i < REFITS; i++) {
        struct encode_fit f = measure(g, &best, true);

        if (f.yy > 0 && f.xy != 0)
            try(g, &best, f.xy / f.yy, best.zero);
    }
    return best;
}

/* ---- rows ---- */

/* Two codes in a byte. */
static void
put_halves(uint8_t *to, const uint8_t *code, size_t n)
{
    for (size_t i = 0; i < n / 2; i++)
        to[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    if (n % 2)
        to[n / 2] = code[n - 1];
}

/* The scale and the zero of a group; false where a number is too large. */
static bool
choose(struct group *g, struct choice *c)
{
    static const float most[] = { [ENCODE_F8] = 448,
                                  [ENCODE_I8] = 127,
                                  [ENCODE_I4] = 7.5f,
                                  [ENCODE_S8] = 127 };
    const struct encode_form *form = g->form;

    g->low = g->high = 0;
    for (size_t at = 0; at < g->n; at += PIECE) {
        struct encode_part p = read_piece(g, at);

        g->ops->range(&g->low, &g->high, p.x, p.n);
    }
    g->absmax = g->high > -g->low ? g->high : -g->low;
    c->scale = g->absmax / most[form->kind];
    c->zero = 0;
    if (form->kind != ENCODE_S8)
        c->scale = stored(c->scale, form->scale_dtype);
    if (!isfinite(g->high - g->low) || !isfinite(c->scale) ||
        !isfinite(16 * g->absmax * g->absmax * (float)g->n))
        return false;
    if (form->kind == ENCODE_I4)
        *c = choose_int4(g);
    return true;
}

bool
encode_row(const struct encode_form *form, uint8_t *code, char *scale,
           uint8_t *zero, const struct weight *w, size_t row, size_t k,
           const float *weight, struct encode_error *error)
{
    enum encode_kind kind = form->kind;
    uint8_t halves[PIECE];
    struct group g;

    g.ops = encode_ops_of(cpu_isa());
    g.form = form;
    g.w = w;
    g.row = row;
    *error = (struct encode_error){ 0 };
    for (size_t i = 0; (g.col = i * form->group) < k; i++) {
        struct choice c;

        g.n = smaller(k - g.col, form->group);
        g.weight = weight ? weight + g.col : NULL;
        g.held = SIZE_MAX;
        if (!choose(&g, &c))
            return false;
        cvt_from_f32(scale + i * dtype_size(form->scale_dtype),
                     form->scale_dtype, &c.scale, 1);
        if (zero)
            zero[i] = (uint8_t)(int)(c.zero + 8);
        for (size_t at = 0; at < g.n; at += PIECE) {
            struct encode_part p = read_piece(&g, at);
            size_t to = g.col + at;

            set_scale(&p, &c);
            if (kind == ENCODE_S8)
                p.by = 127 / g.absmax <= FLT_MAX ? 127 / g.absmax : 0;
            p.f8 = kind == ENCODE_F8;
            if (kind != ENCODE_I4) {
                p.high = p.f8 ? 448 : 127;
                p.low = -p.high;
                p.plus = kind == ENCODE_I8 ? 128 : 0;
            }
            g.ops->codes(kind == ENCODE_I4 ? halves : code + to, &p, error);
            if (kind == ENCODE_I4)
                put_halves(code + to / 2, halves, p.n);
        }
    }
    return true;
}
