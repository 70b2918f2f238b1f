/* SPDX-License-Identifier: ISC */
/* Sparse autoencoders and lookup tables for programs: rows to latents, and
 * latents to rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/model/autoencoder.h"
#include "core/model/table.h"
#include "lib/lib.h"

#define ROWS 1024 /* at once: the bits stay the same */

_Static_assert(TU_TOPK == (int)SAE_TOPK && TU_BATCHTOPK == (int)SAE_BATCHTOPK &&
                   TU_JUMPRELU == (int)SAE_JUMPRELU && TU_RELU == (int)SAE_RELU,
               "the header's numbers are those of core");

/* An encoder, and what computes its latents: made on first use, and anew in a
 * child after fork(), which has none of the threads. */
struct coder {
    struct latents latents;
    int n_threads;
    pid_t pid; /* of the process that has what follows; 0: none yet */
    struct par *par;
    struct gemm *gemm;
    struct latents_work *work;
    uint32_t *idx; /* [threads, n] */
    float *v;      /* [threads, n] */
};

/* What the threads share: rows of x or z, and what is made of them. */
struct coder_job {
    const struct coder *c;
    const struct decoder *by;
    const float *from;
    float *to;
};

struct tu_sae {
    struct autoencoder a;
    struct tu_sae_info info;
    struct coder coder;
};

struct tu_table {
    struct lut lut;
    struct table t;
    struct tu_table_info info;
    struct coder coder;
};

static void
coder_close(struct coder *c)
{
    if (c->pid == getpid()) {
        latents_work_close(c->work);
        gemm_close(c->gemm);
        par_close(c->par);
        free(c->idx);
        free(c->v);
    }
    c->pid = 0;
}

/* Has all that it needs in this process; -1 with 'err' set. */
static int
coder_ready(struct coder *c, struct err *err)
{
    struct latents_sizes sizes = { 0 };
    int n = c->n_threads ? c->n_threads : par_default();
    size_t n_all = (size_t)n * c->latents.w.n;

    if (c->pid == getpid())
        return 0;
    *c = (struct coder){ c->latents, c->n_threads, .pid = getpid() };
    latents_size(&sizes, &c->latents);
    if (par_open(&c->par, n, err) == 0 &&
        gemm_open(&c->gemm, c->par, err) == 0 &&
        latents_work_open(&c->work, c->gemm, &sizes, ROWS, err) == 0 &&
        (c->idx = mem_try(n_all, sizeof(*c->idx), "latents", err)) &&
        (c->v = mem_try(n_all, sizeof(*c->v), "latents", err)))
        return 0;
    coder_close(c);
    return -1;
}

/* One of the latents found last, as a row of all of them. */
static void
put_latents(void *ctx, size_t begin, size_t end)
{
    const struct coder_job *job = ctx;
    size_t n = job->c->latents.w.n;

    for (size_t r = begin; r < end; r++) {
        const struct latents_row row = latents_row(job->c->work, r);
        float *z = job->to + r * n;

        memset(z, 0, n * sizeof(*z));
        for (size_t i = 0; i < row.n && !row.bad; i++)
            z[row.idx[i]] = row.v[i];
        for (size_t i = 0; i < n && row.bad; i++)
            z[i] = NAN;
    }
}

/* Rows x [n, in] to 'to', [n, all latents], or what 'by' makes of these. */
static int
encode(struct coder *c, const struct decoder *by, const float *x, size_t n,
       float *to, struct tu_err *to_err)
{
    size_t in = c->latents.w.k, out = by ? by->n : c->latents.w.n;
    struct err err = { 0 };

    if (coder_ready(c, &err) < 0)
        return lib_fail(to_err, &err);
    for (size_t some; n > 0; n -= some) {
        some = smaller(n, latents_rows(c->work));
        latents_encode(c->work, &c->latents, x, in, some);
        latents_select(c->work, &c->latents);
        if (by)
            latents_decode(c->work, by, to, out, some);
        else
            par_for(c->par, some, 1, put_latents,
                    &(struct coder_job){ .c = c, .to = to });
        x += some * in;
        to += some * out;
    }
    return 0;
}

static void
decode_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct coder_job *job = ctx;
    const struct decoder *by = job->by;
    size_t n = job->c->latents.w.n;
    uint32_t *idx = job->c->idx + (size_t)thread * n;
    float *v = job->c->v + (size_t)thread * n;

    for (size_t r = begin; r < end; r++) {
        const float *z = job->from + r * n;
        struct sparse_sum sum = {
            .y = job->to + r * by->n,
            .w = by->w,
            .idx = idx,
            .v = v,
            .ldw = by->n,
            .cols = by->n,
            .w_dtype = by->dtype,
        };

        for (size_t i = 0; i < n; i++)
            if (z[i] != 0) { /* a NaN, too */
                idx[sum.n] = (uint32_t)i;
                v[sum.n++] = z[i];
            }
        memcpy(sum.y, by->bias, by->n * sizeof(*sum.y));
        sparse_sum(&sum);
    }
}

/* ---- autoencoders ---- */

int
tu_sae_open(struct tu_sae **sae, const char *path, int n_threads,
            struct tu_err *to)
{
    struct err err = { 0 };
    struct tu_sae *s;

    if (lib_null(to, "tu_sae_open", "sae", sae, "path", path, NULL) < 0 ||
        lib_threads(n_threads, to) < 0)
        return -1;
    *sae = NULL;
    s = xcalloc(1, sizeof(*s));
    if (cpu_check(&err) < 0 || autoencoder_open(&s->a, path, &err) < 0) {
        tu_sae_close(s);
        return lib_fail(to, &err);
    }
    if (s->a.sae.input != SAE_INPUT_PLAIN || s->a.centers) {
        /* its way back needs the row */
        err_set(&err, EX_DATAERR, "%s", s->a.sae.transform);
        tu_sae_close(s);
        return lib_fail(to, &err);
    }
    autoencoder_screen(&s->a);
    s->coder =
        (struct coder){ .latents = s->a.latents, .n_threads = n_threads };
    s->info = (struct tu_sae_info){
        .path = s->a.sae.path,
        .hook = s->a.sae.hook,
        .n = s->a.n,
        .d = s->a.d,
        .activation = (enum tu_activation)s->a.sae.activation,
        .k = s->a.sae.k,
        .centered = s->a.sae.centered,
        .thresholds = s->a.sae.thresholds,
    };
    *sae = s;
    return 0;
}

void
tu_sae_close(struct tu_sae *sae)
{
    if (!sae)
        return;
    coder_close(&sae->coder);
    autoencoder_close(&sae->a);
    free(sae);
}

const struct tu_sae_info *
tu_sae_info(const struct tu_sae *sae)
{
    return sae ? &sae->info : NULL;
}

int
tu_sae_weights(const struct tu_sae *sae, float *encoder, float *encoder_bias,
               float *decoder, float *decoder_bias, struct tu_err *err)
{
    if (lib_null(err, "tu_sae_weights", "sae", sae, "encoder", encoder,
                 "encoder_bias", encoder_bias, "decoder", decoder,
                 "decoder_bias", decoder_bias, NULL) < 0)
        return -1;
    autoencoder_tensors(&sae->a.sae, encoder, decoder, encoder_bias,
                        decoder_bias);
    return 0;
}

int
tu_sae_encode(struct tu_sae *sae, const float *x, size_t n_rows, float *z,
              struct tu_err *err)
{
    if (lib_null(err, "tu_sae_encode", "sae", sae, "x", LIB_IF(n_rows, x), "z",
                 LIB_IF(n_rows, z), NULL) < 0)
        return -1;
    return encode(&sae->coder, NULL, x, n_rows, z, err);
}

int
tu_sae_decode(struct tu_sae *sae, const float *z, size_t n_rows, float *x,
              struct tu_err *to_err)
{
    struct coder_job job = { .from = z, .to = x };
    struct err err = { 0 };

    if (lib_null(to_err, "tu_sae_decode", "sae", sae, "z", LIB_IF(n_rows, z),
                 "x", LIB_IF(n_rows, x), NULL) < 0)
        return -1;
    job.c = &sae->coder;
    job.by = &sae->a.decoder;
    if (coder_ready(&sae->coder, &err) < 0)
        return lib_fail(to_err, &err);
    par_for_thread(sae->coder.par, n_rows, 1, decode_rows, &job);
    return 0;
}

/* ---- tables ---- */

int
tu_table_open(struct tu_table **table, const char *dir, const char *layer,
              int n_threads, struct tu_err *to)
{
    struct err err = { 0 };
    struct tu_table *t;

    if (lib_null(to, "tu_table_open", "table", table, "dir", dir, "layer",
                 layer, NULL) < 0 ||
        lib_threads(n_threads, to) < 0)
        return -1;
    *table = NULL;
    t = xcalloc(1, sizeof(*t));
    if (cpu_check(&err) < 0 || lut_open(&t->lut, dir, &err) < 0 ||
        table_open_name(&t->t, &t->lut, layer, &err) < 0) {
        tu_table_close(t);
        return lib_fail(to, &err);
    }
    table_screen(&t->t);
    if (t->lut.from_exporter && !t->t.file.layer->target_bias)
        err_warn("%s: is from the Python exporter, which leaves out the "
                 "layer's bias: if it has one, it is missing in outputs",
                 t->t.file.st.path);
    t->coder =
        (struct coder){ .latents = t->t.latents, .n_threads = n_threads };
    t->info = (struct tu_table_info){
        .path = t->t.file.st.path,
        .layer = t->t.file.layer->name,
        .n = t->t.n_basis,
        .in = t->t.in,
        .out = t->t.out,
        .k = t->t.latents.k,
        .centered = t->t.latents.shift != NULL,
        .has_bias = t->t.file.layer->target_bias,
        .thresholds = t->t.latents.thresholds,
    };
    *table = t;
    return 0;
}

void
tu_table_close(struct tu_table *table)
{
    if (!table)
        return;
    coder_close(&table->coder);
    table_close(&table->t);
    lut_close(&table->lut);
    free(table);
}

const struct tu_table_info *
tu_table_info(const struct tu_table *table)
{
    return table ? &table->info : NULL;
}

int
tu_table_encode(struct tu_table *table, const float *x, size_t n_rows, float *z,
                struct tu_err *err)
{
    if (lib_null(err, "tu_table_encode", "table", table, "x", LIB_IF(n_rows, x),
                 "z", LIB_IF(n_rows, z), NULL) < 0)
        return -1;
    return encode(&table->coder, NULL, x, n_rows, z, err);
}

int
tu_table_apply(struct tu_table *table, const float *x, size_t n_rows, float *y,
               struct tu_err *err)
{
    if (lib_null(err, "tu_table_apply", "table", table, "x", LIB_IF(n_rows, x),
                 "y", LIB_IF(n_rows, y), NULL) < 0)
        return -1;
    return encode(&table->coder, &table->t.products, x, n_rows, y, err);
}

int
tu_table_reconstruct(struct tu_table *table, const float *x, size_t n_rows,
                     float *xhat, struct tu_err *err)
{
    if (lib_null(err, "tu_table_reconstruct", "table", table, "x",
                 LIB_IF(n_rows, x), "xhat", LIB_IF(n_rows, xhat), NULL) < 0)
        return -1;
    return encode(&table->coder, &table->t.decoder, x, n_rows, xhat, err);
}
