/* SPDX-License-Identifier: ISC */
/*
 * Weights into panels, and activations into what the kernels read.
 */
#include "core/kernel/gemm_pack.h"

#include <float.h>
#include <string.h>

#include "core/kernel/cvt.h"

/* An odd number of cache lines: rows a power of two apart would share sets of
 * the first cache, which then could not hold two tiles of 16 rows. */
static size_t
odd_lines(size_t k, size_t line)
{
    return line * ((k + line - 1) / line | 1);
}

size_t
gemm_ld_bf16(size_t k)
{
    return odd_lines(k, 32);
}

size_t
gemm_ld_int8(size_t k)
{
    return odd_lines(k, 64);
}

/* From little-endian to the machine's order. */
static void
to_native(uint16_t *p, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < n; i++)
        p[i] = load16(p, i);
#else
    (void)p;
    (void)n;
#endif
}

static void
to_bf16(uint16_t *to, const float *x, size_t n)
{
    cvt_from_f32(to, DT_BF16, x, n);
    to_native(to, n);
}

/* n numbers of a stored row as native bf16. */
static void
row_to_bf16(uint16_t *to, const struct gemm_matrix *w, size_t row, size_t col,
            size_t n)
{
    const bool as_files = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    const void *from = weight_at(&w->weight, row, col);
    float f[256];

    if (w->weight.code) {
        for (size_t i = 0, some; i < n; i += some) {
            some = smaller(n - i, sizeof(f) / sizeof(*f));
            weight_read(f, &w->weight, row, col + i, some);
            to_bf16(to + i, f, some);
        }
        return;
    }
    if (w->weight.dtype == DT_F32 &&
        (w->native || (as_files && (uintptr_t)from % 4 == 0))) {
        to_bf16(to, from, n);
        return;
    }
    cvt_to_bf16(to, from, w->weight.dtype, n);
    to_native(to, n);
}

struct pack_layout pack_layout(enum gemm_class class)
{
    /* A part of 64 rows takes 128 KiB.  A unit is what one AMX tile row takes,
     * 64 bytes. */
    return class == GEMM_BF16
               ? (struct pack_layout){ .part = 1024,
                                       .unit = 32,
                                       .size = 2,
                                       .word = 2 }
               : (struct pack_layout){
                     .part = 2048, .unit = 64, .size = 1, .word = 4
                 };
}

static void
row_to_element(void *to, enum gemm_class class, const struct gemm_matrix *w,
               size_t row, size_t col, size_t n)
{
    if (class == GEMM_BF16)
        row_to_bf16(to, w, row, col, n);
    else
        memcpy(to, weight_at(&w->weight, row, col), n);
}

/* Of a panel, the columns that are written for products of its first n.  The
 * kernels read no others: AVX-512's one, two or four vectors, those of shorter
 * vectors steps of 16 columns.  Only AMX always reads 32; its sums of the
 * columns that were not written are not wanted. */
static size_t
cols_packed(enum gemm_class class, size_t n)
{
    if (class == GEMM_INT8 || n > 32)
        return GEMM_PANEL;
    return n > 16 ? 32 : 16;
}

/* Can 4 bytes of a row of W be copied to the panel as one word? */
static bool
has_words(const struct gemm_matrix *w, enum gemm_class class, size_t n_cols,
          size_t n_k)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ &&
           n_cols == cols_packed(class, n_cols) &&
           n_k % pack_layout(class).word == 0 &&
           w->weight.dtype == (class == GEMM_BF16 ? DT_BF16 : DT_I8);
}

/* A transposed matrix has a row for each k: rows 2 i and 2 i + 1 become one row
 * of words.  After an odd number of rows comes one of zeros. */
static void
pack_bf16_by_k(const struct gemm_ops *ops, uint32_t *to, char *stage,
               const struct gemm_matrix *w, const struct area *a, size_t k0,
               size_t n_k)
{
    size_t cols = cols_packed(GEMM_BF16, a->n_cols);
    size_t ld = cols * sizeof(uint16_t);

    if (has_words(w, GEMM_BF16, a->n_cols, n_k)) {
        ops->interleave(to, element(w, a->col, k0),
                        w->weight.ld * sizeof(uint16_t), cols, n_k / 2);
        return;
    }
    memset(stage, 0, round_up(n_k, 2) * ld);
    for (size_t c = 0; c < n_k; c++)
        row_to_bf16((uint16_t *)(void *)(stage + c * ld), w, k0 + c, a->col,
                    a->n_cols);
    ops->interleave(to, stage, ld, cols, round_up(n_k, 2) / 2);
}

static void
pack_int8_by_k(char *to, const struct gemm_matrix *w, const struct area *a,
               size_t k0, size_t n_k)
{
    for (size_t c = 0; c < n_k; c++) {
        const char *row = element(w, a->col, k0 + c);

        for (size_t j = 0; j < a->n_cols; j++)
            to[c / 4 * 4 * GEMM_PANEL + 4 * j + c % 4] = row[j];
    }
}

int32_t *
pack_part(const struct gemm_ops *ops, void *to, int32_t *comp, char *stage,
          const struct gemm_matrix *w, enum gemm_class class,
          const struct area *a, size_t k0)
{
    struct pack_layout l = pack_layout(class);
    size_t n_k = smaller(l.part, w->k - k0);
    size_t padded = round_up(n_k, l.unit);
    size_t cols = cols_packed(class, a->n_cols);

    if (w->by_k) {
        size_t done = class == GEMM_BF16 ? round_up(n_k, 2) : 0;

        memset((char *)to + done * GEMM_PANEL * l.size, 0,
               (padded - done) * GEMM_PANEL * l.size);
        if (class == GEMM_BF16)
            pack_bf16_by_k(ops, to, stage, w, a, k0, n_k);
        else
            pack_int8_by_k(to, w, a, k0, n_k);
    } else if (has_words(w, class, a->n_cols, n_k)) {
        size_t n = n_k / l.word;

        ops->transpose(to, element(w, a->col, k0), w->weight.ld * l.size, cols,
                       n);
        memset((char *)to + n * 256, 0, (padded / l.word - n) * 256);
    } else {
        memset(stage, 0, padded * cols * l.size);
        for (size_t r = 0; r < a->n_cols; r++)
            row_to_element(stage + r * padded * l.size, class, w, a->col + r,
                           k0, n_k);
        ops->transpose(to, stage, padded * l.size, cols, padded / l.word);
    }
    if (!comp)
        comp = (int32_t *)(void *)((char *)to + PACK_STAGE);
    if (class == GEMM_INT8)
        ops->sums(comp, to, padded);
    return comp;
}

/* The compensation comes after all panels: [panels][parts][64]. */
char *
pack_find(const struct gemm_panels *p, size_t col, size_t k0, int32_t **comp)
{
    struct pack_layout l = pack_layout(p->class);
    size_t k = round_up(p->k, l.unit), parts = (p->k + l.part - 1) / l.part;
    size_t panels = (p->n + GEMM_PANEL - 1) / GEMM_PANEL;
    char *data = p->data;

    *comp = (int32_t *)(void *)(data + panels * k * GEMM_PANEL * l.size) +
            (col / GEMM_PANEL * parts + k0 / l.part) * GEMM_PANEL;
    return data + (col * k + k0 * GEMM_PANEL) * l.size;
}

size_t
gemm_packed_nbytes(enum gemm_class class, size_t n, size_t k)
{
    struct pack_layout l = pack_layout(class);
    size_t per_row = round_up(k, l.unit) * l.size;

    if (class == GEMM_INT8)
        per_row += (k + l.part - 1) / l.part * sizeof(int32_t);
    return round_up(n, GEMM_PANEL) * per_row;
}

/* ---- small products ---- */

size_t
gemm_bf16_panel_size(size_t k)
{
    return round_up(k, 32) * GEMM_PANEL;
}

/* Two rows at least of GEMM_PANELS_MAX_N, 32 of a head's keys. */
enum { STAGE = 2 * GEMM_PANELS_MAX_N };

/* Rows k0 .. k0 + n - 1 of w, ld apart, zeros outside begin .. end - 1 and
 * beyond w's columns. */
static void
stage_rows(uint16_t *to, size_t ld, const struct gemm_matrix *w, size_t k0,
           size_t n, size_t begin, size_t end)
{
    size_t first = larger(smaller(begin, k0 + n), k0) - k0;
    size_t last = larger(smaller(end, k0 + n), k0 + first) - k0;

    memset(to, 0, first * ld * sizeof(*to));
    memset(to + last * ld, 0, (n - last) * ld * sizeof(*to));
    if (w->weight.ld == ld && w->n == ld) { /* as they lie */
        row_to_bf16(to + first * ld, w, k0 + first, 0, (last - first) * ld);
        return;
    }
    for (size_t i = first; i < last; i++) {
        row_to_bf16(to + i * ld, w, k0 + i, 0, w->n);
        memset(to + i * ld + w->n, 0, (ld - w->n) * sizeof(*to));
    }
}

void
gemm_bf16_panels(uint16_t *b, const struct gemm_matrix *w, size_t begin,
                 size_t end)
{
    const struct gemm_ops *ops = gemm_ops_of(cpu_isa());
    const size_t ld = round_up(w->n, GEMM_PANEL), size = round_up(w->k, 32);
    const size_t most = smaller(STAGE / ld / 2 * 2, size);
    _Alignas(64) uint16_t stage[STAGE];

    end = smaller(end, w->k);
    for (size_t k0 = 0, n; k0 < size; k0 += n) {
        n = smaller(most, size - k0);
        stage_rows(stage, ld, w, k0, n, begin, end);
        for (size_t c = 0; c < ld; c += GEMM_PANEL)
            ops->interleave(
                (uint32_t *)(void *)(b + c * size + k0 * GEMM_PANEL), stage + c,
                ld * sizeof(*stage), GEMM_PANEL, n / 2);
    }
}

void
gemm_bf16_block(float *t, const uint16_t *x, size_t ldx, const uint16_t *b,
                size_t m, size_t k, bool add)
{
    gemm_bf16_ops_of(cpu_isa())->product(t, x, ldx, b, m, GEMM_PANEL,
                                         round_up(k, 32), add);
}

/* ---- X as the packed classes want it ---- */

void
gemm_bf16_row(uint16_t *to, const float *x, size_t k)
{
    to_bf16(to, x, k);
    memset(to + k, 0, (gemm_ld_bf16(k) - k) * sizeof(*to));
}

struct round_task {
    void *to;
    uint16_t *lo;
    float *scale;
    const void *x;
    enum dtype dtype; /* of x, for int8; else F32 */
    size_t ldx, k;
    void (*ready)(int8_t *x, size_t n); /* of struct gemm_int8_ops */
};

/* Row i from column c on. */
static const void *
x_row(const struct round_task *t, size_t i, size_t c)
{
    size_t size = t->dtype == DT_BF16 ? sizeof(uint16_t) : sizeof(float);

    return (const char *)t->x + (i * t->ldx + c) * size;
}

static void
round_rows(void *ctx, size_t begin, size_t end)
{
    const struct round_task *t = ctx;
    size_t ld = gemm_ld_bf16(t->k);

    for (size_t i = begin; i < end; i++)
        gemm_bf16_row((uint16_t *)t->to + i * ld, x_row(t, i, 0), t->k);
}

/* hi = bf16(x), lo = bf16(x - hi): x - hi is exact. */
static void
split_rows(void *ctx, size_t begin, size_t end)
{
    const struct gemm_ops *ops = gemm_ops_of(cpu_isa());
    const struct round_task *t = ctx;
    float rest[256];
    size_t ld = gemm_ld_bf16(t->k);

    round_rows(ctx, begin, end);
    for (size_t i = begin; i < end; i++) {
        const uint16_t *hi = (const uint16_t *)t->to + i * ld;

        for (size_t c = 0, n; c < t->k; c += n) {
            n = smaller(t->k - c, 256);
            ops->rest(rest, x_row(t, i, c), hi + c, n);
            to_bf16(t->lo + i * ld + c, rest, n);
        }
        memset(t->lo + i * ld + t->k, 0, (ld - t->k) * sizeof(*t->lo));
    }
}

static void
quantize_rows(void *ctx, size_t begin, size_t end)
{
    const struct gemm_ops *ops = gemm_ops_of(cpu_isa());
    const struct round_task *t = ctx;
    size_t ld = gemm_ld_int8(t->k);

    for (size_t i = begin; i < end; i++) {
        int8_t *to = (int8_t *)t->to + i * ld;
        const void *x = x_row(t, i, 0);
        float max = ops->absmax(x, t->dtype, t->k), by = 127 / max;

        t->scale[i] = max / 127;
        if (by > 0 && by <= FLT_MAX) /* or max is 0 or tiny, inf or NaN */
            ops->quantize(to, x, t->dtype, by, t->k);
        else
            memset(to, 0, t->k);
        memset(to + t->k, 0, ld - t->k);
        if (t->ready)
            t->ready(to, ld);
    }
}

void
gemm_to_bf16(struct gemm *g, uint16_t *to, const float *x, size_t ldx, size_t m,
             size_t k)
{
    struct round_task t = {
        .to = to, .x = x, .dtype = DT_F32, .ldx = ldx, .k = k
    };

    par_for(gemm_par(g), m, 4, round_rows, &t);
}

void
gemm_split(struct gemm *g, uint16_t *hi, uint16_t *lo, const float *x,
           size_t ldx, size_t m, size_t k)
{
    struct round_task t = {
        .to = hi, .lo = lo, .x = x, .dtype = DT_F32, .ldx = ldx, .k = k
    };

    par_for(gemm_par(g), m, 4, split_rows, &t);
}

void
gemm_to_int8(struct gemm *g, int8_t *to, float *scale, const float *x,
             size_t ldx, size_t m, size_t k)
{
    struct round_task t = {
        .to = to, .scale = scale, .x = x, .dtype = DT_F32, .ldx = ldx, .k = k
    };

    par_for(gemm_par(g), m, 4, quantize_rows, &t);
}

void
gemm_x_int8(struct gemm *g, int8_t *to, float *scale, const void *x,
            enum dtype dtype, size_t ldx, size_t m, size_t k)
{
    struct round_task t = { .to = to,
                            .scale = scale,
                            .x = x,
                            .dtype = dtype,
                            .ldx = ldx,
                            .k = k,
                            .ready = gemm_int8_ops_of(cpu_isa())->ready };

    par_for(gemm_par(g), m, 4, quantize_rows, &t);
}
