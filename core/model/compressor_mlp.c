#include "core/model/compressor_mlp.h"

#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/mem.h"

static float
round_f16(float x)
{
    return f16_to_f32(f32_to_f16(x));
}

static void
load(float *to, const struct kvc *k, size_t offset, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = round_f16((float)dtype_get(k->dtype, k->map.data + offset, i));
}

static int
load_slot(struct compressor_mlp *m, const struct kvc *k,
          const struct kvc_block *b, size_t slot, struct err *err)
{
    if (slot && b->cols != m->dims[slot])
        return err_set(err, EX_DATAERR,
                       "%s: the block at byte %zu has %u columns (expected "
                       "%zu, the rows before it)",
                       k->path, b->at, b->cols, m->dims[slot]);
    m->dims[slot] = b->cols;
    m->dims[slot + 1] = b->rows;
    m->w[slot] = mem_try((size_t)b->rows * b->cols, sizeof(float),
                         "a compressor's weights", err);
    if (!m->w[slot])
        return -1;
    m->bias[slot] = xcalloc(b->rows, sizeof(float));
    load(m->w[slot], k, b->weight, (size_t)b->rows * b->cols);
    if (b->has_bias)
        load(m->bias[slot], k, b->bias, b->rows);
    return 0;
}

int
compressor_mlp_load(struct compressor_mlp *m, const struct kvc *k, size_t layer,
                    enum kvc_prefix prefix, struct err *err)
{
    size_t per = k->header.weight_count_per_layer;
    size_t first = (size_t)prefix * KVC_SLOTS;

    *m = (struct compressor_mlp){ 0 };
    if (layer >= k->header.num_layers || first + KVC_SLOTS > per)
        return err_set(err, EX_DATAERR,
                       "%s: no blocks %zu .. %zu of layer %zu (%u layers of "
                       "%zu)",
                       k->path, first, first + KVC_SLOTS - 1, layer,
                       k->header.num_layers, per);
    for (size_t i = 0; i < KVC_SLOTS; i++)
        if (load_slot(m, k, &k->blocks[layer * per + first + i], i, err) < 0)
            goto fail;
    if (m->dims[0] % m->dims[KVC_SLOTS] == 0)
        return 0;
    err_set(err, EX_DATAERR,
            "%s: layer %zu block %zu: %zu columns are not a number of tokens "
            "of %zu",
            k->path, layer, first, m->dims[0], m->dims[KVC_SLOTS]);
fail:
    compressor_mlp_free(m);
    return -1;
}

void
compressor_mlp_free(struct compressor_mlp *m)
{
    for (size_t i = 0; i < KVC_SLOTS; i++) {
        free(m->w[i]);
        free(m->bias[i]);
    }
    *m = (struct compressor_mlp){ 0 };
}

size_t
compressor_mlp_scratch(const struct compressor_mlp *m)
{
    return m->dims[0] + m->dims[1] + m->dims[2];
}

/* W x in double: whatever the order, f32 has it exactly rounded but for ties.
 * Eight sums side by side keep the adders busy. */
static double
dot(const float *w, const float *x, size_t n)
{
    double sums[8] = { 0 };
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += (double)w[i + j] * x[i + j];
    for (; i < n; i++)
        sums[i % 8] += (double)w[i] * x[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static void
linear(const struct compressor_mlp *m, size_t slot, float *y, const float *x)
{
    size_t cols = m->dims[slot];

    for (size_t r = 0; r < m->dims[slot + 1]; r++) {
        const float *w = m->w[slot] + r * cols;

        y[r] = round_f16((float)(dot(w, x, cols) + m->bias[slot][r]));
    }
}

static void
relu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
}

/* One group of keys, 'factor' of them token by token, becomes one. */
static void
run(const struct compressor_mlp *m, float *y, const float *x, float *scratch)
{
    float *in = scratch, *h0 = in + m->dims[0], *h1 = h0 + m->dims[1];

    for (size_t i = 0; i < m->dims[0]; i++)
        in[i] = round_f16(x[i]);
    linear(m, 0, h0, in);
    relu(h0, m->dims[1]);
    linear(m, 1, h1, h0);
    relu(h1, m->dims[2]);
    linear(m, 2, y, h1);
}

size_t
compressor_mlp_run(const struct compressor_mlp *m, float *y, const float *x,
                   size_t n, float *scratch)
{
    size_t d = m->dims[KVC_SLOTS], factor = m->dims[0] / d;
    size_t n_groups = n / factor, rest = n % factor;

    for (size_t i = 0; i < n_groups; i++)
        run(m, y + i * d, x + i * factor * d, scratch);
    memmove(y + n_groups * d, x + n_groups * factor * d, rest * d * sizeof(*y));
    return n_groups + rest;
}
