/* A layer's table, its own weights from the model, its compensation. */
#include "cmd/lut-apply/layer.h"

#include <math.h>
#include <stdlib.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/linear_file.h"

static int
bad_shape(const struct applied_layer *l, const char *name, struct err *err)
{
    return err_set(err, EX_DATAERR,
                   "%s: the weights of %s do not fit %s (expected %zu outputs "
                   "of %zu inputs in all)",
                   l->model.path, name, l->bound.file.st.path,
                   l->bound.table.out, l->bound.table.in);
}

static int
bind_part(struct applied_layer *l, const char *name, struct err *err)
{
    const struct stdir_tensor *b;
    struct linear part;
    float *bias = NULL;
    int has = linear_file_find(&part, &b, &l->model, name, err);
    bool fits;

    if (has == 0)
        err_set(err, EX_DATAERR, "%s: tensor %s.weight is missing",
                l->model.path, name);
    if (has <= 0)
        return -1;
    if (b) {
        bias = xcalloc(part.rows, sizeof(*bias));
        cvt_to_f32(bias, st_data(b->st, b->t), b->t->dtype, part.rows);
        part.bias = bias;
    }
    fits = table_bind_part(&l->bound, &part);
    free(bias);
    return fits ? 0 : bad_shape(l, name, err);
}

static int
bind_model(struct applied_layer *l, const char *path, struct err *err)
{
    char *parts[LUT_MAX_PARTS];
    size_t n;
    int rc = 0;

    if (stdir_open(&l->model, path, err) < 0 || stdir_map(&l->model, err) < 0)
        return -1;
    n = linear_file_parts(&l->model, l->bound.file.layer->name, parts);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = bind_part(l, parts[i], err);
    if (rc == 0 && !table_bind_end(&l->bound))
        rc = bad_shape(l, l->bound.file.layer->name, err);
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

    l->threshold = cmd->absolute ? tau : tau * l->bound.file.layer->elbow;
    if (!isnan(l->threshold) || isnan(cmd->tau))
        return 0;
    return err_set(
        err, EX_DATAERR,
        "%s/metadata.json: has no elbow threshold for %s (--absolute "
        "takes --tau as it is)",
        l->lut.path, l->bound.file.layer->name);
}

static int
settle_fix(struct applied_layer *l, const struct apply_cmd *cmd,
           struct err *err)
{
    struct table_fix *fix = &l->fix;

    if (settle_threshold(l, cmd, err) < 0)
        return -1;
    if (!isnan(cmd->ratio))
        fix->top = table_ratio(l->bound.table.in, cmd->ratio);
    else if (cmd->top >= 0)
        fix->top = (size_t)cmd->top;
    if (!isnan(cmd->ratio) || cmd->top >= 0)
        fix->how = FIX_TOP;
    else if (!isnan(cmd->tau))
        fix->how = FIX_OVER;
    fix->threshold = (float)l->threshold;
    if (fix->how == FIX_NONE)
        return 0;
    if (!l->bound.table.weight_t && !l->bound.table.n_parts)
        return err_set(err, TU_USAGE,
                       "%s: holds no weights to compensate with: -m MODEL has "
                       "them",
                       l->bound.file.st.path);
    if (cmd->weighted) {
        l->norms = xcalloc(l->bound.table.in, sizeof(*l->norms));
        table_norms(l->norms, &l->bound.table);
        fix->by = l->norms;
    }
    /* the picture's ratios go up to 1 */
    return cmd->svg ? 0 : table_transpose(&l->bound.table, fix, err);
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
    if (table_bind_open(&l->bound, &l->lut, meta, err) < 0)
        return -1;
    if (cmd->model && bind_model(l, cmd->model, err) < 0)
        return -1;
    if (!cmd->model && l->lut.from_exporter && !meta->target_bias)
        err_warn("%s: is the Python exporter's, which forgets the layer's "
                 "bias: if it has one, -m MODEL adds it",
                 l->bound.file.st.path);
    return settle_fix(l, cmd, err);
}

void
layer_close(struct applied_layer *l)
{
    table_bind_close(&l->bound);
    free(l->norms);
    stdir_close(&l->model);
    lut_close(&l->lut);
}
