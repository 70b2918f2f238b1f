/* SPDX-License-Identifier: ISC */
/*
 * quantize: int8 with a scale for each row, absmax / 127, as the operator's
 * int8 mode has its weights; and how far that is from them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/par.h"
#include "core/str.h"

#define ROWS 256 /* at a time */

struct quantize {
    const struct cmd *cmd;
    struct base base;
    struct par *par;
    struct gemm *gemm;
    struct stw *w;
    int values[BASE_N], scales[BASE_N]; /* tensors */
    float *x;                           /* [ROWS, longest] */
    int8_t *q;                          /* [ROWS, ld] */
    float scale[ROWS];
    struct str report;
};

static int
put_matrix(struct quantize *z, enum base_matrix m, size_t expert,
           struct err *err)
{
    const struct gemm_matrix w = base_weights(&z->base, m, expert);
    size_t k = w.k, ld = gemm_ld_int8(k);
    double sum = 0, size = 0, max = 0, relative; /* of |w - q s|, of |w| */

    for (size_t first = 0, n; first < w.n; first += n) {
        size_t row = expert * w.n + first;
        uint8_t bytes[ROWS * 4];

        n = smaller(w.n - first, ROWS);
        weight_rows(z->x, &w.weight, first, n, k);
        gemm_to_int8(z->gemm, z->q, z->scale, z->x, k, n, k);
        for (size_t r = 0; r < n; r++) {
            if (!isfinite(z->scale[r]))
                return err_set(err, EX_DATAERR,
                               "%s: %s of expert %zu has a number in row %zu "
                               "that is not finite",
                               z->cmd->base, base_word(m), expert, first + r);
            for (size_t c = 0; c < k; c++) {
                double v = (double)z->x[r * k + c];
                double d =
                    fabs(v - (double)z->q[r * ld + c] * (double)z->scale[r]);

                sum += d;
                size += fabs(v);
                max = d > max ? d : max;
            }
        }
        for (size_t r = 0; r < n; r++)
            memmove(z->q + r * k, z->q + r * ld, k);
        cvt_from_f32(bytes, DT_F32, z->scale, n);
        if (stw_write(z->w, z->values[m], z->q, n * k, row * k, err) < 0 ||
            stw_write(z->w, z->scales[m], bytes, 4 * n, 4 * row, err) < 0)
            return -1;
    }
    relative = size > 0 ? sum / size : 0;
    if (z->cmd->json) {
        str_addf(&z->report, "%s{\"tensor\": \"%s\", \"expert\": %zu, ",
                 z->report.n ? ",\n " : "[", base_word(m), expert);
        str_adds(&z->report, "\"relative_diff\": ");
        js_put_f64(&z->report, relative);
        str_adds(&z->report, ", \"max_abs_diff\": ");
        js_put_f64(&z->report, max);
        str_addc(&z->report, '}');
        return 0;
    }
    if (z->report.n == 0)
        str_adds(&z->report, "tensor\texpert\trelative_diff\tmax_abs_diff\n");
    str_addf(&z->report, "%s\t%zu\t%.6f\t%.6g\n", base_word(m), expert,
             relative, max);
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
        par_open(&z.par, cmd->n_threads, err) < 0 ||
        gemm_open(&z.gemm, z.par, err) < 0)
        goto out;
    longest = larger(z.base.hidden, z.base.intermediate);
    z.x = mem_try(longest, ROWS * sizeof(*z.x), "rows", err);
    z.q = mem_try(gemm_ld_int8(longest), ROWS, "rows", err);
    if (!z.x || !z.q)
        goto out;
    stw_meta(z.w, "format", "pt");
    stw_meta(z.w, "quantization", "int8, symmetric, a scale for each row");
    for (int m = 0; m < BASE_N; m++) {
        const struct gemm_matrix w =
            base_weights(&z.base, (enum base_matrix)m, 0);
        const uint64_t shape[] = { z.base.n_experts, w.n, w.k };

        snprintf(name, sizeof(name), "%s_scale", base_word(m));
        z.values[m] = stw_add(z.w, base_word(m), DT_I8, 3, shape, err);
        z.scales[m] = stw_add(z.w, name, DT_F32, 2, shape, err);
        if (z.values[m] < 0 || z.scales[m] < 0)
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
    free(z.q);
    free(z.x);
    gemm_close(z.gemm);
    par_close(z.par);
    base_close(&z.base);
    return rc;
}
