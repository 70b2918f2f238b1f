/* SPDX-License-Identifier: ISC */
/* A layer's table, the layer's own weights and its compensation; and rows
 * through the table, a batch at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-apply/apply.h"
#include "core/clock.h"
#include "core/kernel/cvt.h"
#include "core/kernel/screen.h"
#include "core/mem.h"
#include "core/model/table_dims.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

/* The layer's table and weights, and which inputs are compensated. */
static int
open_layer(struct apply_run *run, struct err *err)
{
    const struct apply_cmd *cmd = run->cmd;
    const struct lut *lut = &run->lut;
    struct table_fix *fix = &run->fix;
    struct table *t = &run->table;
    double tau = isnan(cmd->tau) ? 1 : cmd->tau;

    if (lut_open(&run->lut, cmd->dir, err) < 0)
        return -1;
    if (table_open_name(t, lut, cmd->name, err) < 0 ||
        (cmd->model && table_bind_model(t, &run->model, cmd->model, err) < 0))
        return -1;
    if (!cmd->no_screen)
        table_screen(t);
    if (!cmd->model && lut->from_exporter && !t->file.layer->target_bias)
        err_warn("%s: is from the Python exporter, which leaves out the "
                 "layer's bias: if it has one, -m MODEL adds it",
                 t->file.st.path);
    run->threshold = cmd->absolute ? tau : tau * t->file.layer->elbow;
    if (isnan(run->threshold) && !isnan(cmd->tau))
        return err_set(err, EX_DATAERR,
                       "%s/metadata.json: has no elbow threshold for %s "
                       "(--absolute makes --tau the threshold itself)",
                       lut->path, t->file.layer->name);
    fix->threshold = (float)run->threshold;
    if (!isnan(cmd->ratio))
        fix->top = table_ratio(t->in, cmd->ratio);
    else if (cmd->top >= 0)
        fix->top = (size_t)cmd->top;
    if (!isnan(cmd->ratio) || cmd->top >= 0)
        fix->how = FIX_TOP;
    else if (!isnan(cmd->tau))
        fix->how = FIX_OVER;
    else if (!cmd->dims)
        return 0;
    if (!t->weight_t && !t->n_parts)
        return err_set(err, TU_USAGE,
                       "%s: holds no weights to compensate with: -m MODEL has "
                       "them",
                       t->file.st.path);
    if (cmd->dims)
        return table_read_dims(fix, &run->dims, cmd->dims, t->in, err) < 0 ? -1
               : fix->how == FIX_NONE                                      ? 0
                                      : table_pack_dims(t, fix, err);
    if (cmd->weighted) {
        run->norms = xcalloc(t->in, sizeof(*run->norms));
        table_norms(run->norms, t);
        fix->by = run->norms;
    }
    /* the picture's ratios go up to 1 */
    return cmd->svg || cmd->plot ? 0 : table_transpose(t, fix, err);
}

static const char *
type_name(const struct table *t)
{
    enum dtype dtype = t->products.dtype;

    return t->latents.w.weight.dtype == dtype && t->decoder.dtype == dtype
               ? dtype_table[dtype].name
               : "mixed types";
}

int
run_open(struct apply_run *run, const struct apply_cmd *cmd, struct err *err)
{
    const char *const what = "a batch of rows";
    const struct table *t = &run->table;
    struct latents_sizes sizes = { 0 };
    size_t n;
    char active[32];

    run->cmd = cmd;
    if (open_layer(run, err) < 0 ||
        par_open(&run->par, cmd->n_threads, err) < 0 ||
        gemm_open(&run->gemm, run->par, err) < 0)
        return -1;
    latents_size(&sizes, &t->latents);
    if (table_work_open(&run->work, run->gemm, &sizes, (size_t)cmd->batch,
                        err) < 0)
        return -1;
    run->batch = n = table_work_rows(run->work);
    if (row_input_open(&run->input, cmd->input, cmd->x_dtype, t->in, n, err) <
            0 ||
        !(run->x = mem_big(n * t->in, sizeof(float), what, err)) ||
        !(run->y = mem_big(n * t->out, sizeof(float), what, err)) ||
        !(run->dense = mem_big(n * t->out, sizeof(float), what, err)) ||
        !(run->bytes = mem_big(n * t->out, sizeof(float), what, err)))
        return -1;
    if (!cmd->verbose)
        return 0;
    if (t->latents.thresholds)
        snprintf(active, sizeof(active), "those over their thresholds");
    else
        snprintf(active, sizeof(active), "%zu", t->latents.k);
    tool_say("%s: %zu -> %zu, %s of %zu direction%s, %s%s%s",
             t->file.layer->name, t->in, t->out, active, t->n_basis,
             plural(t->n_basis), type_name(t),
             t->latents.shift ? ", centred" : "",
             t->file.layer->target_bias ? "" : ", without the layer's bias");
    if (run->fix.how != FIX_NONE)
        tool_say("compensation by %s", t->weight_t && !t->transposed
                                           ? "the table's stored weights"
                                           : "the model's weights");
    return 0;
}

void
run_close(struct apply_run *run)
{
    const struct table *t = &run->table;

    mem_big_free(run->x, run->batch * t->in, sizeof(float));
    mem_big_free(run->y, run->batch * t->out, sizeof(float));
    mem_big_free(run->dense, run->batch * t->out, sizeof(float));
    mem_big_free(run->bytes, run->batch * t->out, sizeof(float));
    arrays_close(run);
    table_work_close(run->work);
    gemm_close(run->gemm);
    par_close(run->par);
    row_input_close(&run->input);
    table_close(&run->table);
    free(run->norms);
    free(run->dims);
    stdir_close(&run->model);
    lut_close(&run->lut);
}

/* The header of y, and disk space for all of y, where its size is known. */
static int
put_head(const struct apply_run *run, struct err *err)
{
    const struct row_input *in = &run->input;
    size_t size = dtype_size(run->cmd->dtype), nbytes;
    uint64_t shape[NPY_MAX_DIMS];
    struct str head = { 0 };
    int rc = 0;

    if (!run->cmd->raw && in->n_dims == 0)
        return err_set(err, TU_USAGE,
                       "a stream of unknown length has no .npy header: --raw "
                       "writes raw numbers");
    if (!run->cmd->raw) {
        memcpy(shape, in->shape, in->n_dims * sizeof(*shape));
        shape[in->n_dims - 1] = run->table.out;
        rc = npy_header(&head, run->cmd->dtype, in->n_dims, shape, err);
    }
    /* a size that overflows fails when it is written */
    if (rc == 0 && in->n_dims > 0 &&
        size_mul(in->n_rows, run->table.out * size, &nbytes) &&
        size_add(nbytes, head.n, &nbytes))
        rc = out_reserve(run->cmd->out, nbytes, err);
    if (rc == 0 && head.n > 0)
        rc = out_write(run->cmd->out, head.s, head.n, err);
    str_free(&head);
    return rc;
}

int
apply_main(struct apply_run *run, struct err *err)
{
    const struct table *t = &run->table;
    enum dtype dtype = run->cmd->dtype;
    size_t out = t->out, size = dtype_size(dtype);
    struct progress progress = { .what = "apply",
                                 .unit = "row",
                                 .total = run->input.n_rows,
                                 .quiet = run->cmd->quiet };
    uint64_t n_bad = 0, n_bad_p = 0;
    double seconds;
    ssize_t n = put_head(run, err) < 0 ? -1 : arrays_open(run, err);

    progress_start(&progress);
    while (n == 0 &&
           (n = row_input_rows(&run->input, run->x, run->batch, err)) > 0) {
        size_t n_rows = (size_t)n;

        n_bad += table_apply(run->work, t, &run->fix, run->y, out, run->x,
                             t->in, n_rows, 0);
        for (size_t i = 0; i < n_rows; i++)
            n_bad_p += table_row(run->work, i).bad;
        /* numbers that f16 cannot hold would silently become infinite */
        for (size_t i = 0; n > 0 && dtype == DT_F16 && i < n_rows * out; i++)
            if (isfinite(run->y[i]) && fabsf(run->y[i]) >= 65520)
                n = err_set(
                    err, EX_DATAERR,
                    "%s: y of row %llu has %g, which f16 cannot hold",
                    run->input.name,
                    (unsigned long long)(run->input.n_read - n_rows + i / out),
                    (double)run->y[i]);
        if (n < 0)
            break;
        cvt_from_f32(run->bytes, dtype, run->y, n_rows * out);
        n = out_write(run->cmd->out, run->bytes, n_rows * out * size, err);
        if (n == 0)
            n = arrays_write(run, n_rows, err);
        progress_at(&progress, run->input.n_read);
    }
    seconds = progress.dirty ? clock_s() - progress.started : 0;
    progress_end(&progress);
    if (n == 0 && run->cmd->verbose && t->latents.screen) {
        struct screen_counts c = { 0 };

        screen_count(t->latents.screen, &c);
        tool_say("screening: %llu of %llu rows were computed exactly",
                 (unsigned long long)c.unproved, (unsigned long long)c.rows);
    }
    if (n == 0 && n_bad_p)
        err_warn("%s: %llu of %llu rows have pre-activations that are NaN or "
                 "infinite: their outputs are NaN",
                 run->input.name, (unsigned long long)n_bad_p,
                 (unsigned long long)run->input.n_read);
    if (n == 0 && n_bad > n_bad_p)
        err_warn("%s: %llu of %llu rows have outputs that are NaN or infinite, "
                 "though their pre-activations are finite",
                 t->file.st.path, (unsigned long long)(n_bad - n_bad_p),
                 (unsigned long long)run->input.n_read);
    /* they appear when y is out of its buffer */
    if (n == 0)
        n = out_flush(run->cmd->out, err) < 0 ? -1 : arrays_commit(run, err);
    if (n == 0 && seconds > 0)
        tool_say("%s: %llu row%s in %.0f s", run->input.name,
                 (unsigned long long)run->input.n_read,
                 plural(run->input.n_read), seconds);
    return n < 0 ? -1 : 0;
}
