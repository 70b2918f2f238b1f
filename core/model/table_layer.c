/* SPDX-License-Identifier: ISC */
/* A table's file, and the layer's own weights next to it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/linear.h"
#include "core/model/linear_file.h"
#include "core/model/matrix_rows.h"
#include "core/model/names.h"
#include "core/model/table.h"
#include "core/near.h"
#include "core/tty.h"

#define FEW_DIMS 8  /* one in 8: a batch of 64 takes the layer's time */
#define BLOCK    64 /* inputs whose weights are read at a time */

int
table_open(struct table *t, const struct lut *lut, const struct lut_layer *l,
           struct err *err)
{
    struct lut_table *f = &t->file;

    *t = (struct table){ 0 };
    if (lut_table_open(f, lut, l, err) < 0)
        return -1;
    t->in = l->in;
    t->out = l->out;
    t->n_basis = l->n_basis;
    t->latents = (struct latents){
        .w = { .weight = { .data = f->encoder_weight,
                           .dtype = f->dtypes[LUT_ENCODER_WEIGHT],
                           .ld = l->in },
               .n = l->n_basis,
               .k = l->in },
        .bias = f->encoder_bias,
        .shift = l->centered ? f->decoder_bias : NULL,
        .thresholds = f->thresholds,
        .k = f->thresholds ? l->n_basis : l->k,
    };
    t->decoder =
        (struct decoder){ f->decoder_weight, f->dtypes[LUT_DECODER_WEIGHT],
                          f->decoder_bias, l->in };
    t->products = (struct decoder){ f->products, f->dtypes[LUT_PRODUCTS],
                                    f->bias_product, l->out };
    t->weight_dtype = f->dtypes[LUT_WEIGHT_T];
    t->weight_t = f->compensation_weight_t;
    t->bias = xcalloc(l->out, sizeof(*t->bias));
    return 0;
}

int
table_open_name(struct table *t, const struct lut *lut, const char *name,
                struct err *err)
{
    const struct lut_layer *layer = lut_find(lut, name);
    struct near near;

    for (size_t i = 0; i < lut->n_layers && !layer; i++)
        if (!strcmp(names_short(lut->layers[i].name), names_short(name)))
            layer = &lut->layers[i];
    if (layer)
        return table_open(t, lut, layer, err);
    near_start(&near, name);
    for (size_t i = 0; i < lut->n_layers; i++)
        near_try(&near, lut->layers[i].name, strlen(lut->layers[i].name));
    return err_set(err, EX_DATAERR,
                   "%s/metadata.json: has no layer %s (of %zu, the first is "
                   "%s)%s",
                   lut->path, name, lut->n_layers,
                   lut->n_layers ? lut->layers[0].name : "none",
                   near_hint(&near));
}

void
table_close(struct table *t)
{
    if (t->transposed)
        mem_big_free(t->transposed, t->in * t->out,
                     dtype_size(t->weight_dtype));
    mem_big_free(t->panels, t->panels_nbytes, 1);
    free(t->bias);
    form_memory_free(&t->packed);
    screen_close(t->latents.screen);
    lut_table_close(&t->file);
    *t = (struct table){ 0 };
}

bool
table_bind(struct table *t, const struct linear *l)
{
    if (l->in != t->in || l->out > t->out - t->n_bound)
        return false;
    t->part[t->n_parts++] = linear_job(l, NULL, false).w;
    if (l->bias)
        memcpy(t->bias + t->n_bound, l->bias, l->out * sizeof(*l->bias));
    t->n_bound += l->out;
    return true;
}

/* Are these the weights that the table was made from, as far as it says? */
static void
compare_sample(const struct table *t)
{
    const char *made_of = st_meta(&t->file.st, LUT_WEIGHTS);
    struct hash *hash = hash_new(HASH_XXH3);
    char hex[HASH_MAX_HEX];

    for (size_t i = 0; i < t->n_parts; i++) {
        const struct gemm_matrix *p = &t->part[i];

        form_hash(hash, &p->weight, p->by_k ? p->k : p->n);
    }
    hash_end(hash, hex);
    if (made_of && strcmp(made_of, hex) != 0)
        err_warn("%s: was made from other weights than this model's",
                 t->file.st.path);
}

bool
table_bind_end(struct table *t)
{
    if (t->n_bound != t->out)
        return false;
    compare_sample(t);
    if (!t->file.layer->target_bias) /* as the exporter leaves it */
        vec_add(t->file.bias_product, t->bias, t->out);
    return true;
}

int
table_bind_model(struct table *t, struct stdir *model, const char *path,
                 struct err *err)
{
    const char *name = t->file.layer->name;
    struct quantization q = { 0 };
    struct linear_dir in = { model, .packed = &q, .memory = &t->packed };
    char *parts[LUT_MAX_PARTS];
    bool fits = true;
    size_t n;
    int rc = 0;

    if (stdir_open(model, path, err) < 0 || stdir_map(model, err) < 0 ||
        config_family(&in.family, path, err) < 0 ||
        quantization_load(&q, path, err) < 0) {
        quantization_free(&q);
        return -1;
    }
    n = linear_file_parts(model, &q, name, parts);
    for (size_t i = 0; i < n && rc == 0 && fits; i++) {
        const struct stdir_tensor *b;
        struct linear part;
        float *bias = NULL;
        int found = linear_file_find(&part, &b, &in, parts[i], err);

        if (found <= 0) {
            rc = found < 0 ? -1
                           : err_set(err, EX_DATAERR,
                                     "%s: tensor %s.weight is missing", path,
                                     parts[i]);
            break;
        }
        if (b) {
            bias = xcalloc(part.out, sizeof(*bias));
            cvt_to_f32(bias, st_data(b->st, b->t), b->t->dtype, part.out);
            part.bias = bias;
        }
        fits = table_bind(t, &part);
        if (!fits)
            name = parts[i];
        free(bias);
    }
    if (rc == 0 && (!fits || !table_bind_end(t)))
        rc = err_set(err, EX_DATAERR,
                     "%s: the weights of %s do not fit %s (expected %zu "
                     "output%s of %zu input%s in all)",
                     path, name, t->file.st.path, t->out, plural(t->out), t->in,
                     plural(t->in));
    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    form_memory_rest(&t->packed);
    quantization_free(&q);
    return rc;
}

enum dtype
table_weights_dtype(const struct table *t)
{
    enum dtype dtype = t->weight_dtype;

    for (size_t i = 0; !t->weight_t && i < t->n_parts; i++) {
        const struct weight *w = &t->part[i].weight;

        if (i == 0)
            dtype = w->dtype;
        if (w->code || w->dtype != dtype)
            dtype = DT_F32;
    }
    return dtype;
}

void
table_weights(float *to, const struct table *t, size_t in, size_t n)
{
    size_t size = dtype_size(t->weight_dtype), col = 0;

    if (t->weight_t)
        cvt_to_f32(to, (const char *)t->weight_t + in * t->out * size,
                   t->weight_dtype, n * t->out);
    for (size_t i = 0; !t->weight_t && i < t->n_parts; i++) {
        const struct gemm_matrix *p = &t->part[i];
        const struct gemm_matrix w = { p->weight, p->k, p->n,
                                       .by_k = !p->by_k };

        matrix_weights(NULL, &w, in, n, to + col, t->out);
        col += p->n;
    }
}

int
table_transpose(struct table *t, const struct table_fix *fix, struct err *err)
{
    enum dtype dtype = table_weights_dtype(t);
    size_t row = t->out * dtype_size(dtype);
    float *f32;

    if (fix->how != FIX_TOP || fix->top > t->in / FEW_DIMS || t->n_parts == 0 ||
        t->weight_t)
        return 0;
    if (t->n_parts == 1 && t->part[0].by_k) { /* as it lies in the file */
        t->weight_dtype = dtype;
        t->weight_t = t->part[0].weight.data;
        return 0;
    }
    t->transposed = mem_big(t->in * t->out, dtype_size(dtype),
                            "a layer's transposed weights", err);
    if (!t->transposed)
        return -1;
    f32 = xcalloc(BLOCK * t->out, sizeof(*f32));
    for (size_t d = 0, n; d < t->in; d += n) {
        n = smaller(t->in - d, BLOCK);
        table_weights(f32, t, d, n);
        cvt_from_f32((char *)t->transposed + d * row, dtype, f32, n * t->out);
    }
    free(f32);
    t->weight_dtype = dtype;
    t->weight_t = t->transposed;
    return 0;
}

void
table_screen(struct table *t)
{
    const struct screen_stored stored = { t->file.shadow, t->file.shadow_scale,
                                          t->file.shadow_error };

    t->latents.screen = latents_screen(&t->latents, &stored, false);
}

void
table_norms(float *norms, const struct table *t)
{
    float *f32 = xcalloc(BLOCK * t->out, sizeof(*f32));

    for (size_t d = 0; d < t->in; d++) {
        const float *row = f32 + d % BLOCK * t->out;
        double sum = 0;

        if (d % BLOCK == 0)
            table_weights(f32, t, d, smaller(t->in - d, BLOCK));
        for (size_t c = 0; c < t->out; c++)
            sum += (double)row[c] * (double)row[c];
        norms[d] = (float)sqrt(sum);
    }
    free(f32);
}
