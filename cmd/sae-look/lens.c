/* SPDX-License-Identifier: ISC */
/*
 * lens: which tokens the direction of a latent promotes and suppresses, as if
 * it went through the final norm's factor and the head alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/view.h"
#include "core/format/look.h"
#include "core/format/sae.h"
#include "core/format/stw.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/matrix_rows.h"
#include "core/model/model.h"
#include "core/model/places.h"
#include "core/model/splice.h"
#include "core/numbers.h"
#include "core/tool.h"

enum { BLOCK = 256, BLOCK_NBYTES = 64 << 20 };

struct lens_run {
    const struct look_cmd *cmd;
    struct sae sae;
    struct model *model;
    struct tok *tok;
    struct par *par;
    struct gemm *gemm;
    struct numbers which;
    size_t n, vocab; /* tokens of each sign */
    float *x;        /* [BLOCK, d] directions times the norm's factor */
    float *logits;   /* [block, vocab] */
    size_t block;
    /* [which.n, 2, n], [which.n] */
    int32_t *id;
    float *value, *mean, *std;
    size_t first; /* of the block */
};

/* A place of the residual stream, or of what is added to it. */
static int
check_hook(const struct lens_run *r, const char *hook, int status,
           struct err *err)
{
    const struct config *c = &r->model->config;
    struct str hint = { 0 };
    struct place place;

    if (!hook)
        return err_data(err, r->sae.path,
                        "does not say where in a model its rows are from "
                        "(--hook layers.3 does)");
    if (!place_find(&place, hook)) {
        place_hint(&hint, hook);
        err_set(err, status, "%s: \"%s\" is not a hook point%s", r->sae.path,
                hook, hint.n ? hint.s : " (layers.3, layers.3.mlp, ..)");
        str_free(&hint);
        return -1;
    }
    if (place.point == TAP_IN_QKV || place.point == TAP_IN_O ||
        place.point == TAP_IN_GATE_UP || place.point == TAP_IN_DOWN)
        return err_set(err, status,
                       "%s: %s is the input of a linear layer, and does not "
                       "reach the logits (expected layers.N, "
                       "layers.N.self_attn, layers.N.mlp or embed_tokens)",
                       r->sae.path, hook);
    if (place.layer >= c->n_layers)
        return err_set(
            err, status, "%s: %s is not in %s, which has %lld layers",
            r->sae.path, hook, r->model->dir.path, (long long)c->n_layers);
    if (r->sae.in != (size_t)c->hidden_size)
        return err_data(err, r->sae.path,
                        "is of rows of %zu numbers, but %s has %lld", r->sae.in,
                        hook, (long long)c->hidden_size);
    return 0;
}

static int
open_lens(struct lens_run *r, struct err *err)
{
    const struct look_cmd *cmd = r->cmd;
    const char *hook = cmd->hook;

    if (sae_open(&r->sae, cmd->sae, err) < 0 ||
        model_open(&r->model, cmd->model, err) < 0 ||
        tokens_open(&r->tok, cmd->model, false, err) < 0 ||
        check_hook(r, hook ? hook : r->sae.hook, hook ? TU_USAGE : EX_DATAERR,
                   err) < 0)
        return -1;
    if (hook)
        splice_compare(&r->sae, hook, &r->model->config);
    for (int i = 0; i < (cmd->n_args ? cmd->n_args : 1); i++)
        if (numbers_add(&r->which, "LATENT", cmd->n_args ? cmd->args[i] : NULL,
                        "latent", r->sae.n, err) < 0)
            return -1;
    numbers_sort(&r->which);
    r->vocab = r->model->lm_head.out;
    r->n = cmd->n ? cmd->n : 10;
    if (r->n > r->vocab)
        return err_set(err, TU_USAGE, "-n: %zu tokens, but %s has %zu", r->n,
                       cmd->model, r->vocab);
    r->block = BLOCK_NBYTES / 4 / r->vocab;
    r->block = larger(1, smaller(r->block, smaller(BLOCK, r->which.n)));
    return 0;
}

static int
open_arrays(struct lens_run *r, struct err *err)
{
    size_t m = r->which.n, n;

    if (!size_mul(2 * m, r->n, &n))
        n = SIZE_MAX;
    return (r->id = mem_try(n, sizeof(*r->id), "lens", err)) &&
                   (r->value = mem_try(n, sizeof(*r->value), "lens", err)) &&
                   (r->mean = mem_try(m, sizeof(*r->mean), "lens", err)) &&
                   (r->std = mem_try(m, sizeof(*r->std), "lens", err)) &&
                   (r->x = mem_try(r->block * r->sae.in, sizeof(*r->x), "lens",
                                   err)) &&
                   (r->logits = mem_try(r->block * r->vocab, sizeof(*r->logits),
                                        "lens", err)) &&
                   par_open(&r->par, r->cmd->n_threads, err) == 0 &&
                   gemm_open(&r->gemm, r->par, err) == 0
               ? 0
               : -1;
}

/* u g, in f64 but for its result. */
static void
direction(const struct lens_run *r, size_t latent, float *x)
{
    const float *g = r->cmd->no_norm ? NULL : r->model->norm.weight;
    double square = 0, norm;

    matrix_rows(NULL, &r->sae.decoder_weight, latent, 1, x, r->sae.in);
    if (r->sae.norms)
        sae_fold(&r->sae, latent, true, x);
    for (size_t j = 0; j < r->sae.in; j++)
        square += (double)x[j] * (double)x[j];
    norm = square > 0 ? sqrt(square) : 1;
    for (size_t j = 0; j < r->sae.in; j++)
        x[j] = (float)((double)x[j] / norm * (g ? (double)g[j] : 1));
}

/* The n best of a row's logits times 'by', which is 1 or -1; of equals the
 * lower ids. */
static void
best(const float *logits, size_t vocab, float by, size_t n, int32_t *id,
     float *value)
{
    size_t n_found = 0, k;

    for (size_t v = 0; v < vocab; v++) {
        float now = by * logits[v];

        if (n_found == n && !(now > by * value[n - 1]))
            continue;
        k = n_found < n ? n_found++ : n - 1;
        for (; k > 0 && now > by * value[k - 1]; k--) {
            value[k] = value[k - 1];
            id[k] = id[k - 1];
        }
        value[k] = logits[v];
        id[k] = (int32_t)v;
    }
}

static void
moments(const float *logits, size_t n, float *mean, float *std)
{
    enum { LANES = 8 };
    double center = 0;

    for (int pass = 0; pass < 2; pass++) {
        double lane[LANES] = { 0 };

        for (size_t v = 0; v < n; v++) {
            double x = (double)logits[v] - center;

            lane[v % LANES] += pass ? x * x : x;
        }
        for (size_t k = LANES / 2; k > 0; k /= 2)
            for (size_t i = 0; i < k; i++)
                lane[i] += lane[i + k];
        if (pass)
            *std = (float)sqrt(lane[0] / (double)n);
        else
            *mean = (float)(center = lane[0] / (double)n);
    }
}

static void
find_rows(void *ctx, size_t begin, size_t end)
{
    const struct lens_run *r = ctx;

    for (size_t i = begin; i < end; i++) {
        const float *logits = r->logits + i * r->vocab;
        size_t at = r->first + i;

        for (int sign = 0; sign < 2; sign++)
            best(logits, r->vocab, sign == LENS_PLUS ? 1 : -1, r->n,
                 r->id + (2 * at + sign) * r->n,
                 r->value + (2 * at + sign) * r->n);
        moments(logits, r->vocab, &r->mean[at], &r->std[at]);
    }
}

static int
run_blocks(struct lens_run *r, struct err *err)
{
    struct gemm_job job = linear_job(&r->model->lm_head, r->logits, false);

    job.end.bias = NULL;
    for (size_t n; r->first < r->which.n; r->first += n) {
        n = smaller(r->block, r->which.n - r->first);
        for (size_t i = 0; i < n; i++)
            direction(r, r->which.v[r->first + i], r->x + i * r->sae.in);
        gemm_exact(r->gemm, &job, 1, r->x, r->sae.in, n);
        par_for(r->par, n, 1, find_rows, r);
        for (size_t i = r->first; i < r->first + n; i++)
            if (!isfinite(r->mean[i]) || !isfinite(r->std[i]))
                return err_data(err, r->cmd->model,
                                "the logits of latent %lu are NaN or infinite",
                                (unsigned long)r->which.v[i]);
    }
    return 0;
}

static void
print(const struct lens_run *r)
{
    struct str own = { 0 }, token = { 0 };

    tool_put("latent\tsign\trank\tid\tlogit\ttoken\n");
    for (size_t i = 0; i < 2 * r->which.n * r->n; i++) {
        size_t sign = i / r->n % 2;

        str_clear(&own);
        str_clear(&token);
        if (r->tok && tok_bytes(r->tok, r->id[i], &own) && own.n)
            str_esc(&token, own.s, own.n);
        tool_put("%lu\t%c\t%zu\t%ld\t%.6g\t%s\n",
                 (unsigned long)r->which.v[i / r->n / 2],
                 sign == LENS_PLUS ? '+' : '-', i % r->n + 1, (long)r->id[i],
                 (double)r->value[i], token.n ? token.s : "");
    }
    str_free(&own);
    str_free(&token);
}

/* The RUN must be of this SAE, whose digest becomes that of the file. */
static int
check_run(const struct lens_run *r, char hex[HASH_MAX_HEX], struct err *err)
{
    const char *run = r->cmd->output;
    struct look l = { 0 };
    int rc = sae_xxh3(r->sae.path, hex, err);

    if (rc == 0)
        rc = look_open(&l, run, err);
    if (rc == 0 && (l.n != r->sae.n || strcmp(l.sae_xxh3, hex) != 0))
        rc = err_data(err, run, "is of another SAE (%s, found %s)", l.sae_xxh3,
                      hex);
    look_close(&l);
    return rc;
}

static int
write_file(const struct lens_run *r, const char *path, const char *hex,
           struct err *err)
{
    const uint64_t shape[3] = { r->which.n, 2, r->n };
    const struct {
        const char *name;
        enum dtype dtype;
        size_t n_dims;
        const void *from;
    } t[] = {
        { "lens_id", DT_I32, 3, r->id },
        { "lens_value", DT_F32, 3, r->value },
        { "lens_mean", DT_F32, 1, r->mean },
        { "lens_std", DT_F32, 1, r->std },
    };
    struct stw *w = stw_new();
    int rc = 0;

    stw_meta(w, "format", "1");
    stw_meta(w, "sae_xxh3", hex);
    stw_meta(w, "norm", r->cmd->no_norm ? "1" : "folded");
    for (int i = 0; i < 4 && rc >= 0; i++)
        rc = stw_add(w, t[i].name, t[i].dtype, t[i].n_dims, shape, err);
    if (rc >= 0)
        rc = stw_open(w, path, r->cmd->out_flags, err);
    for (int i = 0; i < 4 && rc >= 0; i++)
        rc = stw_write_numbers(
            w, i, t[i].from,
            t[i].n_dims == 3 ? 2 * r->which.n * r->n : r->which.n, 4, err);
    if (rc >= 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc < 0 ? -1 : 0;
}

int
lens_main(const struct look_cmd *cmd, struct err *err)
{
    struct lens_run r = { .cmd = cmd };
    struct str path = { 0 };
    char hex[HASH_MAX_HEX];
    int rc = -1;

    if (cmd->output && cmd->n_args > 0)
        return err_set(err, TU_USAGE,
                       "-o is for all latents: name no LATENT, or no -o");
    str_addf(&path, "%s/" LENS_FILE, cmd->output ? cmd->output : "");
    if (cmd->output && !(cmd->out_flags & OUT_FORCE) && !file_missing(path.s)) {
        out_exists(path.s, err);
        goto out;
    }
    if (open_lens(&r, err) < 0 ||
        (cmd->output && check_run(&r, hex, err) < 0) ||
        open_arrays(&r, err) < 0 || run_blocks(&r, err) < 0)
        goto out;
    rc = 0;
    if (cmd->output)
        rc = write_file(&r, path.s, hex, err);
    else
        print(&r);
out:
    str_free(&path);
    free(r.id);
    free(r.value);
    free(r.mean);
    free(r.std);
    free(r.x);
    free(r.logits);
    numbers_free(&r.which);
    gemm_close(r.gemm);
    par_close(r.par);
    tok_close(r.tok);
    model_close(r.model);
    sae_close(&r.sae);
    return rc;
}
