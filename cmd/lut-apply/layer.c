/* A layer's table, its own weights from the model, its compensation. */
#include "cmd/lut-apply/layer.h"

#include <math.h>
#include <stdlib.h>

#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/names.h"

static void
bind_table(struct applied_layer *l)
{
    const struct lut_table *f = &l->file;
    const struct lut_layer *meta = f->layer;

    l->table = (struct table){
        .in = meta->in,
        .out = meta->out,
        .n_basis = meta->n_basis,
        .k = meta->k,
        .dtype = f->dtype,
        .encoder_weight = f->encoder_weight,
        .decoder_weight = f->decoder_weight,
        .products = f->products,
        .encoder_bias = f->encoder_bias,
        .decoder_bias = f->decoder_bias,
        .bias_product = f->bias_product,
        .centered = meta->centered,
        .weight_t = f->compensation_weight_t,
    };
}

static int
bad_shape(const struct applied_layer *l, const char *name, struct err *err)
{
    return err_set(err, EX_DATAERR,
                   "%s: the weights of %s do not fit %s (expected %zu outputs "
                   "of %zu inputs in all)",
                   l->model.path, name, l->file.st.path, l->table.out,
                   l->table.in);
}

static int
bind_part(struct applied_layer *l, const char *name, size_t *out,
          struct err *err)
{
    const struct stdir_tensor *w = names_tensor(&l->model, name, "weight");
    const struct stdir_tensor *b = names_tensor(&l->model, name, "bias");
    struct table_part *part = &l->table.part[l->table.n_parts++];

    if (!w)
        return err_set(err, EX_DATAERR, "%s: tensor %s.weight is missing",
                       l->model.path, name);
    if (st_want_dtype(w->st->path, w->t, err) < 0 ||
        (b && st_want_dtype(b->st->path, b->t, err) < 0))
        return -1;
    if (w->t->n_dims != 2 || w->t->shape[1] != l->table.in ||
        w->t->shape[0] > l->table.out - *out ||
        (b && (b->t->n_dims != 1 || b->t->shape[0] != w->t->shape[0])))
        return bad_shape(l, name, err);
    *part = (struct table_part){ st_data(w->st, w->t), w->t->dtype,
                                 (size_t)w->t->shape[0] };
    if (b)
        cvt_to_f32(l->bias + *out, st_data(b->st, b->t), b->t->dtype,
                   part->out);
    *out += part->out;
    return 0;
}

/* A model whose own weights are fused has them by that name. */
static size_t
parts_of(const struct applied_layer *l, char *parts[LUT_MAX_PARTS])
{
    const char *name = l->file.layer->name;

    if (!names_tensor(&l->model, name, "weight"))
        return lut_parts(name, parts);
    parts[0] = xstrdup(name);
    return 1;
}

static int
bind_model(struct applied_layer *l, const char *path, struct err *err)
{
    char *parts[LUT_MAX_PARTS];
    size_t n, out = 0;
    int rc = 0;

    if (stdir_open(&l->model, path, err) < 0 || stdir_map(&l->model, err) < 0)
        return -1;
    n = parts_of(l, parts);
    l->bias = xcalloc(l->table.out, sizeof(*l->bias));
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = bind_part(l, parts[i], &out, err);
    if (rc == 0 && out != l->table.out)
        rc = bad_shape(l, l->file.layer->name, err);
    /* the exporter forgets it */
    if (rc == 0 && !l->file.layer->target_bias)
        vec_add(l->file.bias_product, l->bias, l->table.out);
    for (size_t i = 0; i < n; i++)
        free(parts[i]);
    return rc;
}

/* The threshold that --tau, 1 without it, is times of. */
static int
settle_threshold(struct applied_layer *l, const struct apply_cmd *cmd,
                 struct err *err)
{
    double tau = isnan(cmd->tau) ? 1 : cmd->tau;

    l->threshold = cmd->absolute ? tau : tau * l->file.layer->elbow;
    if (!isnan(l->threshold) || isnan(cmd->tau))
        return 0;
    return err_set(
        err, EX_DATAERR,
        "%s/metadata.json: has no elbow threshold for %s (--absolute "
        "takes --tau as it is)",
        l->lut.path, l->file.layer->name);
}

static int
settle_fix(struct applied_layer *l, const struct apply_cmd *cmd,
           struct err *err)
{
    struct table_fix *fix = &l->fix;

    if (settle_threshold(l, cmd, err) < 0)
        return -1;
    if (!isnan(cmd->ratio))
        fix->top = table_ratio(l->table.in, cmd->ratio);
    else if (cmd->top >= 0)
        fix->top = (size_t)cmd->top;
    if (!isnan(cmd->ratio) || cmd->top >= 0)
        fix->how = FIX_TOP;
    else if (!isnan(cmd->tau))
        fix->how = FIX_OVER;
    fix->threshold = (float)l->threshold;
    if (fix->how == FIX_NONE)
        return 0;
    if (!l->table.weight_t && !l->table.n_parts)
        return err_set(err, TU_USAGE,
                       "%s: holds no weights to compensate with: -m MODEL has "
                       "them",
                       l->file.st.path);
    if (cmd->weighted) {
        l->norms = xcalloc(l->table.in, sizeof(*l->norms));
        table_norms(l->norms, &l->table);
        fix->by = l->norms;
    }
    /* the picture's ratios go up to 1 */
    return cmd->svg ? 0 : table_turn(&l->table, fix, err);
}

int
layer_open(struct applied_layer *l, const struct apply_cmd *cmd,
           struct err *err)
{
    const struct lut_layer *meta;

    if (lut_open(&l->lut, cmd->dir, err) < 0)
        return -1;
    meta = lut_find(&l->lut, cmd->name);
    if (!meta)
        return err_set(err, EX_DATAERR,
                       "%s/metadata.json: has no layer %s (%zu others%s%s)",
                       l->lut.path, cmd->name, l->lut.n_layers,
                       l->lut.n_layers ? ", first " : "",
                       l->lut.n_layers ? l->lut.layers[0].name : "");
    if (lut_table_open(&l->file, &l->lut, meta, err) < 0)
        return -1;
    bind_table(l);
    if (cmd->model && bind_model(l, cmd->model, err) < 0)
        return -1;
    if (!cmd->model && l->lut.from_exporter && !meta->target_bias)
        err_warn("%s: is the Python exporter's, which forgets the layer's "
                 "bias: if it has one, -m MODEL adds it",
                 l->file.st.path);
    return settle_fix(l, cmd, err);
}

void
layer_close(struct applied_layer *l)
{
    table_unturn(&l->table);
    free(l->norms);
    free(l->bias);
    stdir_close(&l->model);
    lut_table_close(&l->file);
    lut_close(&l->lut);
}
