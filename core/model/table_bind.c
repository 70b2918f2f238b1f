#include "core/model/table_bind.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/mem.h"

int
table_bind_open(struct bound_table *b, const struct lut *lut,
                const struct lut_layer *l, struct err *err)
{
    const struct lut_table *f = &b->file;

    *b = (struct bound_table){ 0 };
    if (lut_table_open(&b->file, lut, l, err) < 0)
        return -1;
    b->bias = xcalloc(l->out, sizeof(*b->bias));
    b->table = (struct table){
        .in = l->in,
        .out = l->out,
        .n_basis = l->n_basis,
        .k = l->k,
        .dtype = f->dtype,
        .encoder_weight = f->encoder_weight,
        .decoder_weight = f->decoder_weight,
        .products = f->products,
        .encoder_bias = f->encoder_bias,
        .decoder_bias = f->decoder_bias,
        .bias_product = f->bias_product,
        .centered = l->centered,
        .weight_t = f->compensation_weight_t,
    };
    return 0;
}

void
table_bind_close(struct bound_table *b)
{
    table_untranspose(&b->table);
    free(b->bias);
    lut_table_close(&b->file);
    *b = (struct bound_table){ 0 };
}

bool
table_bind_part(struct bound_table *b, const struct linear *l)
{
    struct table *t = &b->table;

    if (l->cols != t->in || l->rows > t->out - b->n_bound)
        return false;
    t->part[t->n_parts++] = (struct table_part){ l->w, l->dtype, l->rows };
    if (l->bias)
        memcpy(b->bias + b->n_bound, l->bias, l->rows * sizeof(*l->bias));
    b->n_bound += l->rows;
    return true;
}

bool
table_bind_end(struct bound_table *b)
{
    if (b->n_bound != b->table.out)
        return false;
    if (!b->file.layer->target_bias) /* the exporter forgets it */
        vec_add(b->file.bias_product, b->bias, b->table.out);
    return true;
}
