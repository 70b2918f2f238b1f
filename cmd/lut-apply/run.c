/* Rows in, rows out, a batch at a time. */
#include <math.h>
#include <string.h>

#include "cmd/lut-apply/run.h"

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

static void *
room(const struct apply_run *run, size_t n, size_t size, struct err *err)
{
    return mem_big(run->batch * n, size, "a batch of rows", err);
}

static void
say_setup(const struct apply_run *run)
{
    const struct applied_layer *l = &run->layer;
    const struct table *t = &l->bound.table;

    tool_say("%s: %zu -> %zu, %zu of %zu directions, %s%s%s",
             l->bound.file.layer->name, t->in, t->out, t->k, t->n_basis,
             dtype_table[t->dtype].name, t->centered ? ", centred" : "",
             l->bound.file.layer->target_bias ? ""
                                              : ", without the layer's bias");
    if (l->fix.how != FIX_NONE)
        tool_say("compensation by %s", t->weight_t && !t->transposed
                                           ? "the table's stored weights"
                                           : "the model's weights");
}

int
run_open(struct apply_run *run, const struct apply_cmd *cmd, struct err *err)
{
    const struct table *t = &run->layer.bound.table;

    run->cmd = cmd;
    run->batch = (size_t)cmd->batch;
    if (layer_open(&run->layer, cmd, err) < 0 ||
        input_open(&run->input, cmd, t->in, err) < 0 ||
        par_open(&run->par, (int)cmd->n_threads, err) < 0 ||
        gemm_open(&run->gemm, run->par, err) < 0 ||
        table_open(&run->work, run->gemm, t->in, t->k, run->batch, err) < 0)
        return -1;
    run->x = room(run, t->in, sizeof(float), err);
    run->y = room(run, t->out, sizeof(float), err);
    run->dense = room(run, t->out, sizeof(float), err);
    run->bytes = room(run, t->out, sizeof(float), err);
    if (!run->x || !run->y || !run->dense || !run->bytes)
        return -1;
    if (cmd->verbose)
        say_setup(run);
    return 0;
}

void
run_close(struct apply_run *run)
{
    const struct table *t = &run->layer.bound.table;

    mem_big_free(run->x, run->batch * t->in, sizeof(float));
    mem_big_free(run->y, run->batch * t->out, sizeof(float));
    mem_big_free(run->dense, run->batch * t->out, sizeof(float));
    mem_big_free(run->bytes, run->batch * t->out, sizeof(float));
    table_close(run->work);
    gemm_close(run->gemm);
    par_close(run->par);
    input_close(&run->input);
    layer_close(&run->layer);
}

/* Room for the header and all rows, where their number is known. */
static int
reserve(const struct apply_run *run, size_t head_nbytes, struct err *err)
{
    size_t size = dtype_table[run->cmd->dtype].bits / 8, n;

    if (run->input.n_dims == 0 ||
        !size_mul(run->input.n_rows, run->layer.bound.table.out * size, &n) ||
        !size_add(n, head_nbytes, &n))
        return 0; /* too much is told when it is written */
    return out_reserve(run->cmd->out, n, err);
}

static int
put_head(const struct apply_run *run, struct err *err)
{
    const struct row_input *in = &run->input;
    uint64_t shape[NPY_MAX_DIMS];
    struct str head = { 0 };
    int rc;

    if (run->cmd->raw)
        return reserve(run, 0, err);
    if (in->n_dims == 0)
        return err_set(err, TU_USAGE,
                       "a stream of unknown length has no .npy header: --raw "
                       "writes numbers alone");
    memcpy(shape, in->shape, in->n_dims * sizeof(*shape));
    shape[in->n_dims - 1] = run->layer.bound.table.out;
    rc = npy_header(&head, run->cmd->dtype, in->n_dims, shape, err);
    if (rc == 0)
        rc = reserve(run, head.n, err);
    if (rc == 0)
        rc = out_write(run->cmd->out, head.s, head.n, err);
    str_free(&head);
    return rc;
}

/* Numbers that f16 cannot hold would become infinite unseen. */
static int
check_range(const struct apply_run *run, size_t n, struct err *err)
{
    size_t out = run->layer.bound.table.out;

    for (size_t i = 0; run->cmd->dtype == DT_F16 && i < n * out; i++)
        if (isfinite(run->y[i]) && fabsf(run->y[i]) >= 65520)
            return err_set(err, EX_DATAERR,
                           "%s: y of row %llu has %g, which f16 cannot hold",
                           run->input.name,
                           (unsigned long long)(run->input.taken - n + i / out),
                           (double)run->y[i]);
    return 0;
}

static int
put_rows(const struct apply_run *run, size_t n, struct err *err)
{
    size_t numbers = n * run->layer.bound.table.out;

    if (check_range(run, n, err) < 0)
        return -1;
    cvt_from_f32(run->bytes, run->cmd->dtype, run->y, numbers);
    return out_write(run->cmd->out, run->bytes,
                     numbers * (dtype_table[run->cmd->dtype].bits / 8), err);
}

int
apply_main(struct apply_run *run, struct err *err)
{
    const struct table *t = &run->layer.bound.table;
    struct progress progress = { .what = "apply",
                                 .unit = "row",
                                 .total = run->input.n_rows,
                                 .quiet = run->cmd->quiet };
    ssize_t n;
    int rc = put_head(run, err);

    progress_start(&progress);
    while (rc == 0 &&
           (n = input_rows(&run->input, run->x, run->batch, err)) != 0) {
        if (n < 0) {
            rc = -1;
            break;
        }
        run->bad_rows += table_apply(run->work, t, &run->layer.fix, run->y,
                                     t->out, run->x, t->in, (size_t)n, 0);
        rc = put_rows(run, (size_t)n, err);
        progress_at(&progress, run->input.taken);
    }
    progress_end(&progress);
    if (rc == 0 && run->bad_rows)
        err_warn("%s: %llu of %llu rows give pre-activations that are not "
                 "finite: they are NaN",
                 run->input.name, (unsigned long long)run->bad_rows,
                 (unsigned long long)run->input.taken);
    return rc;
}
