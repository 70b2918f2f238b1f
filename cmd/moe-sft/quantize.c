/* SPDX-License-Identifier: ISC */
/*
 * quantize: int8 with a scale for each row, absmax / 127, as the operator's
 * int8 mode has its weights; and how far that is from them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/kernel/encode.h"
#include "core/mem.h"
#include "core/model/family.h"
#include "core/out.h"
#include "core/par.h"
#include "core/str.h"

#define ROWS 256 /* at a time */

struct quantize {
    const struct cmd *cmd;
    struct base base;
    struct par *par;
    struct stw *w;
    int values[BASE_N], scales[BASE_N], biases[BASE_N]; /* tensors */
    struct gemm_matrix matrix; /* what is encoded now */
    size_t first;              /* its row */
    uint8_t *code;             /* [ROWS, longest] */
    char scale[ROWS * sizeof(float)];
    struct encode_error error[ROWS]; /* 'max' -1: a number is not finite */
    struct str report;
};

static void
encode_rows(void *ctx, size_t begin, size_t end)
{
    struct quantize *z = ctx;
    size_t k = z->matrix.k;
    const struct encode_form form = { .kind = ENCODE_S8,
                                      .group = k,
                                      .scale_dtype = DT_F32 };

    for (size_t r = begin; r < end; r++)
        if (!encode_row(&form, z->code + r * k, z->scale + r * sizeof(float),
                        NULL, &z->matrix.weight, z->first + r, k, NULL,
                        &z->error[r]))
            z->error[r].max = -1;
}

static int
put_matrix(struct quantize *z, enum base_matrix m, size_t expert,
           struct err *err)
{
    struct encode_error all = { 0 };
    size_t k, rows;
    double rms;

    z->matrix = base_weights(&z->base, m, expert);
    k = z->matrix.k;
    rows = z->matrix.n;
    for (size_t n; z->first < rows; z->first += n) {
        size_t row = expert * rows + z->first;

        n = smaller(rows - z->first, ROWS);
        par_for(z->par, n, 4, encode_rows, z);
        for (size_t r = 0; r < n; r++) {
            if (z->error[r].max < 0)
                return err_set(err, EX_DATAERR,
                               "%s: %s of expert %zu has a number in row %zu "
                               "that is not finite",
                               z->cmd->base, base_word(m), expert,
                               z->first + r);
            encode_add(&all, &z->error[r]);
        }
        if (stw_write(z->w, z->values[m], z->code, n * k, row * k, err) < 0 ||
            stw_write(z->w, z->scales[m], z->scale, n * sizeof(float),
                      row * sizeof(float), err) < 0)
            return -1;
    }
    z->first = 0;
    if (z->base.bias) {
        const float *bias = z->base.bias[m * z->base.n_experts + expert];

        if (stw_write_some(z->w, z->biases[m], expert * rows, bias, rows,
                           sizeof(*bias), err) < 0)
            return -1;
    }
    rms = encode_relative_rms(&all);
    if (z->cmd->json) {
        str_addf(&z->report, "%s{\"tensor\": \"%s\", \"expert\": %zu, ",
                 z->report.n ? ",\n " : "[", base_word(m), expert);
        js_addf(&z->report, "\"relative_rms\": %g, \"max_error\": %g}", rms,
                all.max);
        return 0;
    }
    if (z->report.n == 0)
        str_adds(&z->report, "tensor\texpert\trelative_rms\tmax_error\n");
    str_addf(&z->report, "%s\t%zu\t%.6f\t%.6g\n", base_word(m), expert, rms,
             all.max);
    return 0;
}

int
quantize_main(const struct cmd *cmd, struct err *err)
{
    struct quantize z = { .cmd = cmd, .w = stw_new() };
    char name[32];
    size_t longest;
    int rc = -1;

    if (can_write(cmd, cmd->output, err) < 0 ||
        base_open(&z.base, cmd->base, cmd->layer, err) < 0 ||
        base_want_float(&z.base, err) < 0 ||
        par_open(&z.par, cmd->n_threads, err) < 0)
        goto out;
    longest = larger(z.base.hidden, z.base.intermediate);
    z.code = mem_try(longest, ROWS, "rows", err);
    if (!z.code)
        goto out;
    stw_meta(z.w, "format", "pt");
    stw_meta(z.w, "quantization", "int8, symmetric, a scale for each row");
    if (z.base.bias) /* what else the experts compute */
        stw_meta(z.w, "model_type", z.base.family->model_type);
    for (int m = 0; m < BASE_N; m++) {
        const struct gemm_matrix w =
            base_weights(&z.base, (enum base_matrix)m, 0);
        const uint64_t shape[] = { z.base.n_experts, w.n, w.k };

        snprintf(name, sizeof(name), "%s_scale", base_word(m));
        z.values[m] = stw_add(z.w, base_word(m), DT_I8, 3, shape, err);
        z.scales[m] = stw_add(z.w, name, DT_F32, 2, shape, err);
        snprintf(name, sizeof(name), "%s_bias", base_word(m));
        z.biases[m] =
            z.base.bias ? stw_add(z.w, name, DT_F32, 2, shape, err) : 0;
        if (z.values[m] < 0 || z.scales[m] < 0 || z.biases[m] < 0)
            goto out;
    }
    if (stw_open(z.w, cmd->output, cmd->out_flags, err) < 0)
        goto out;
    for (int m = 0; m < BASE_N; m++)
        for (size_t e = 0; e < z.base.n_experts; e++)
            if (put_matrix(&z, m, e, err) < 0)
                goto out;
    str_adds(&z.report, cmd->json ? "]\n" : "");
    if (stw_commit(z.w, err) == 0)
        rc = out_put("-", OUT_TABLE, z.report.s, z.report.n, err);
out:
    str_free(&z.report);
    stw_free(z.w);
    free(z.code);
    par_close(z.par);
    base_close(&z.base);
    return rc;
}
