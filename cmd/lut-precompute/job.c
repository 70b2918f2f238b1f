/* SPDX-License-Identifier: ISC */
/* A layer's file: its description of itself, and what it was made from. */
#include "cmd/lut-precompute/job.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/stw.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/form.h"
#include "core/model/names.h"
#include "core/out.h"
#include "core/sig.h"

#define GROWTH_MAX  64 /* a table's bytes for one of its sources' */
#define SMALL_TABLE ((size_t)64 << 20) /* bytes that any may have */
#define PIECE       ((size_t)4 << 20)  /* of a digest: some milliseconds */

/* ---- digests ---- */

/* Computes digests begin .. end - 1, unless they are, or it is time to stop. */
static void
compute(void *ctx, size_t begin, size_t end)
{
    struct layer_job *job = ctx;

    for (size_t i = begin; i < end; i++) {
        struct digest *d = &job->digests[i];
        struct hash *hash;

        if (*d->hex)
            continue;
        hash = hash_new(HASH_SHA256);
        for (size_t k = 0; k < d->n; k++)
            for (size_t at = 0, n; at < d->parts[k].nbytes; at += n) {
                if (sig_stop() || atomic_load(&job->quit)) {
                    hash_free(hash);
                    return;
                }
                n = smaller(d->parts[k].nbytes - at, PIECE);
                hash_add(hash, (const char *)d->parts[k].data + at, n);
            }
        hash_end(hash, d->hex);
    }
}

static void
compute_all(void *ctx)
{
    compute(ctx, 0, N_DIGESTS);
}

/* 0, or -1 (EX_TEMPFAIL). */
static int
finish_digests(struct layer_job *job, struct par *par, struct err *err)
{
    if (job->hashing)
        par_sync(job->hashing);
    par_for(par, N_DIGESTS, 1, compute, job);
    for (size_t i = 0; i < N_DIGESTS; i++)
        if (!*job->digests[i].hex)
            return job_stopped(err);
    return 0;
}

/* ---- what the file says ---- */

float
job_threshold(const struct layer_job *job, size_t i)
{
    return job->sae->thresholds ? job->sae->thresholds[i] : 0; /* ReLU */
}

/* How many the file has: 0 without them. */
static size_t
n_thresholds(const struct layer_job *job)
{
    return !job->over ? 0 : job->one ? 1 : job->sae->n;
}

/* They may be of the SAE's configuration, or of its tensors: one digest. */
static void
threshold_digest(const struct layer_job *job, char hex[HASH_MAX_HEX])
{
    struct hash *hash = hash_new(HASH_SHA256);
    uint8_t v[4];

    for (size_t i = 0; i < n_thresholds(job); i++) {
        put_le32(v, f32_bits(job_threshold(job, i)));
        hash_add(hash, v, sizeof(v));
    }
    hash_end(hash, hex);
}

/* __metadata__'s "lut": the layer's entry in metadata.json, and what else that
 * is made of. */
static char *
lut_text(const struct layer_job *job, struct err *err)
{
    const struct target_layer *t = job->target;
    const struct sae *sae = job->sae;
    bool keep = job->cmd->keep_centering;
    char *sae_name = base_name(job->cmd->sae, err), *text;
    json_t *v, *info, *parts, *name;
    char hex[HASH_MAX_HEX];
    struct str file = { 0 };

    if (!sae_name)
        return NULL;
    parts = json_array();
    for (size_t i = 0; i < t->n_parts; i++)
        json_array_append_new(parts, json_string(t->parts[i].name));
    str_addf(&file, "%s" LUT_SUFFIX, job->name);
    v = json_object();
    json_object_set_new(v, "version", json_string(LUT_VERSION));
    json_object_set_new(v, "layer", json_string(job->name));
    json_object_set_new(
        v, "entry",
        json_pack("{s:I, s:I, s:s, s:I, s:I, s:{s:b}, s:b, s:s, s:o}",
                  "input_dim", (json_int_t)t->in, "output_dim",
                  (json_int_t)t->out, "file", file.s, "num_basis",
                  (json_int_t)sae->n, "k_active", (json_int_t)job->k, "encoder",
                  "input_centering", (int)(sae->centered && keep),
                  "target_bias", (int)t->has_bias, "operator", t->op, "parts",
                  parts));
    if (job->over) {
        threshold_digest(job, hex);
        json_object_set_new(json_object_get(v, "entry"), "activation",
                            json_string("threshold"));
        json_object_set_new(v, "threshold_sha256", json_string(hex));
    }
    json_object_set(v, "model_config", job->model->config);
    /* a part of the SAE's config, which no digest covers; entry has the rest */
    if (sae->centered && !keep)
        json_object_set_new(v, "centering_folded", json_true());
    if (sae->norms)
        json_object_set_new(v, "decoder_norm_folded", json_true());
    if (job->cmd->bf16)
        json_object_set_new(v, "compute", json_string("bf16"));
    info = json_object();
    if (job->cmd->created_at)
        json_object_set_new(info, "created_at",
                            json_string(job->cmd->created_at));
    json_object_set_new(info, "source_model", json_string(job->model->name));
    name = json_string(sae_name); /* NULL: it is not UTF-8 */
    json_object_set_new(info, "sae_model", name ? name : json_string(""));
    json_object_set_new(v, "creation_info", info);
    text = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    str_free(&file);
    free(sae_name);
    return text ? text : xstrdup("");
}

static size_t
n_tensors(const struct layer_job *job)
{
    return job->cmd->store_weights ? LUT_N_TENSORS : LUT_WEIGHT_T;
}

/* Numbers in a tensor of the table. */
static uint64_t
n_numbers(const struct layer_job *job, size_t tensor)
{
    uint64_t shape[2];
    size_t n_dims = lut_shape((enum lut_tensor)tensor, job->sae->n,
                              job->target->in, job->target->out, shape);

    return n_dims == 2 ? shape[0] * shape[1] : shape[0];
}

uint64_t
job_nbytes(const struct layer_job *job)
{
    uint64_t n = 0;

    for (size_t i = 0; i < n_tensors(job); i++)
        n += n_numbers(job, i);
    return n * dtype_size(job->cmd->dtype) + n_thresholds(job) * sizeof(float) +
           (job->cmd->screen ? job->sae->n * (job->target->in + 8) : 0);
}

/* The bytes of a part's weights: their number of pieces. */
static size_t
part_pieces(struct weight_piece to[WEIGHT_PIECES], const struct target_part *p)
{
    const struct gemm_matrix *w = &p->w;

    return weight_pieces(to, &w->weight, w->by_k ? w->k : w->n,
                         w->by_k ? w->n : w->k);
}

uint64_t
job_flop(const struct layer_job *job)
{
    return 2 * (uint64_t)job->sae->n * job->target->in * job->target->out;
}

int
job_open(struct layer_job *job, struct err *err)
{
    const struct sae *s = job->sae;
    const struct target_layer *t = job->target;
    const struct matrix *of_sae[] = { &s->encoder_weight, &s->encoder_bias,
                                      &s->decoder_weight, &s->decoder_bias };
    size_t sources = matrix_nbytes(of_sae[0]) + matrix_nbytes(of_sae[2]);
    struct digest *d = job->digests;
    uint64_t nbytes;
    size_t products;

    for (size_t i = 0; i < 4; i++)
        d[OF_SAE].parts[d[OF_SAE].n++] =
            (struct weight_piece){ of_sae[i]->data, matrix_nbytes(of_sae[i]) };
    d = &job->digests[OF_WEIGHTS];
    for (size_t i = 0; i < t->n_parts; i++) {
        const struct matrix *b = &t->parts[i].bias;

        for (size_t n = part_pieces(d->parts + d->n, &t->parts[i]); n > 0; n--)
            sources += d->parts[d->n++].nbytes;
        if (b->data)
            d->parts[d->n++] =
                (struct weight_piece){ b->data, matrix_nbytes(b) };
    }
    if (s->in != t->in)
        return err_set(err, EX_DATAERR, "%s: is for %zu inputs, but %s has %zu",
                       s->path, s->in, t->name, t->in);
    job->over = !job->cmd->k && (s->thresholds || s->activation == SAE_RELU);
    job->one = !s->thresholds || s->threshold >= 0;
    job->k = job->cmd->k ? job->cmd->k : s->k;
    if (job->over && (job->k == 0 || job->k > s->n))
        job->k = s->n;
    if (job->k == 0)
        return err_set(err, EX_DATAERR,
                       "%s: does not say how many latents are active (--k)",
                       s->path);
    if (job->k > s->n)
        return err_set(err, EX_DATAERR, "%s: k is %zu, but it has %zu latents",
                       s->path, job->k, s->n);
    /* A table has latents x outputs numbers, a product that two small files can
     * make as large as they like: models have up to 8 outputs for an input. */
    nbytes = size_mul(s->n, t->out, &products) && products < SIZE_MAX / 16
                 ? job_nbytes(job)
                 : UINT64_MAX;
    if (nbytes > GROWTH_MAX * (uint64_t)sources + SMALL_TABLE)
        return err_set(err, EX_DATAERR,
                       "%s: the table of %zu latents x %zu outputs has %zu "
                       "bytes (expected at most %d times the %zu of its "
                       "sources)",
                       t->name, s->n, t->out, (size_t)nbytes, GROWTH_MAX,
                       sources);
    job->name = job->cmd->no_prefix ? names_short(t->name) : t->name;
    str_addf(&job->path, "%s/%s" LUT_SUFFIX, job->cmd->output, job->name);
    job->lut = lut_text(job, err);
    return job->lut ? 0 : -1;
}

void
job_close(struct layer_job *job)
{
    atomic_store(&job->quit, true);
    if (job->hashing)
        par_sync(job->hashing);
    str_free(&job->path);
    free(job->lut);
}

int
job_stopped(struct err *err)
{
    return sig_stopped("finished layers are kept, run it again with --resume",
                       err);
}

/* ---- the file ---- */

/* A layer's text but for what its sources were called: digests identify them.
 */
static json_t *
nameless(const char *text, size_t n)
{
    struct err err;
    json_t *v = js_parse(text, n, "lut", &err);

    json_object_del(v, "creation_info");
    return v;
}

int
job_exists(struct layer_job *job, const struct job_threads *threads,
           struct err *err)
{
    static const char *const keys[] = {
        [OF_SAE] = "sae_sha256", [OF_WEIGHTS] = "weights_sha256"
    };
    bool replace = job->cmd->out_flags & OUT_FORCE;
    const struct st_tensor *t;
    const struct st_meta *m;
    json_t *theirs, *ours;
    struct st st;
    int same;

    if (file_missing(job->path.s) || (replace && !job->cmd->resume))
        return 0;
    if (!job->cmd->resume)
        return err_set(err, EX_CANTCREAT,
                       "%s: exists already (--force replaces it, --resume "
                       "keeps it)",
                       job->path.s);
    if (st_open(&st, job->path.s, err) < 0)
        return replace ? 0 : -1;
    m = st_meta_find(&st, "lut");
    theirs = m ? nameless(m->value, m->value_n) : NULL;
    ours = nameless(job->lut, strlen(job->lut));
    same = theirs && ours && json_equal(theirs, ours);
    json_decref(theirs);
    json_decref(ours);
    for (size_t i = 0; i < LUT_N_TENSORS; i++) {
        t = st_find(&st, lut_tensor_names[i]);
        same &= i < n_tensors(job) ? t && t->dtype == job->cmd->dtype &&
                                         t->n_elements == n_numbers(job, i)
                                   : !t;
    }
    t = st_find(&st, LUT_THRESHOLD);
    same &= (t ? t->n_elements : 0) == n_thresholds(job);
    same &= job->cmd->screen == (st_find(&st, LUT_SHADOW) != NULL) &&
            job->cmd->screen == (st_meta(&st, lut_sums[0]) != NULL);
    if (same && finish_digests(job, threads->par, err) < 0)
        same = -1;
    for (size_t i = 0; same > 0 && i < N_DIGESTS; i++) {
        m = st_meta_find(&st, keys[i]);
        same = m && !strcmp(m->value, job->digests[i].hex);
    }
    st_close(&st);
    if (same || replace)
        return same;
    return err_set(err, EX_CANTCREAT,
                   "%s: was made from other sources or with other options "
                   "(--force replaces it)",
                   job->path.s);
}

/* Their tensor was added last. */
static int
write_thresholds(const struct layer_job *job, struct stw *w, struct err *err)
{
    size_t n = n_thresholds(job);
    float *v = xcalloc(n, sizeof(*v));
    int rc = 0;

    for (size_t i = 0; i < n; i++)
        v[i] = job_threshold(job, i);
    if (n)
        rc = stw_write_numbers(w, (int)n_tensors(job), v, n, sizeof(*v), err);
    free(v);
    return rc;
}

/* The shadow's tensors, bytes last, so that numbers are aligned: the handle of
 * the first, or -1 with 'err' set. */
static int
add_shadow(const struct layer_job *job, struct stw *w, struct err *err)
{
    const uint64_t shape[] = { job->sae->n, job->target->in };
    int first = stw_add(w, LUT_SHADOW_SCALE, DT_F32, 1, shape, err);

    for (size_t i = 0; i < LUT_SUMS; i++)
        stw_meta(w, lut_sums[i], "00000000000000000000000000000000");
    if (first < 0 || stw_add(w, LUT_SHADOW_ERROR, DT_F32, 1, shape, err) < 0 ||
        stw_add(w, LUT_SHADOW, DT_I8, 2, shape, err) < 0)
        return -1;
    return first;
}

int
job_write(struct layer_job *job, const struct job_threads *threads,
          struct progress *progress, uint64_t *done, struct err *err)
{
    static const char digits[] = /* of a digest, which comes late */
        "0000000000000000000000000000000000000000000000000000000000000000";
    struct hash *sample = hash_new(HASH_XXH3);
    struct stw *w = stw_new();
    char hex[HASH_MAX_HEX];
    int rc = 0, flags = job->cmd->out_flags | OUT_NO_FOLLOW, shadow = 0;

    job->hashing = threads->hashing;
    if (job->hashing)
        par_submit(job->hashing, compute_all, job);
    stw_meta(w, "format", "pt");
    stw_meta(w, "lut", job->lut);
    stw_meta(w, "sae_sha256", digits);
    stw_meta(w, "weights_sha256", digits);
    for (size_t i = 0; i < job->target->n_parts; i++) {
        const struct gemm_matrix *part = &job->target->parts[i].w;

        form_hash(sample, &part->weight, part->by_k ? part->k : part->n);
    }
    hash_end(sample, hex);
    stw_meta(w, LUT_WEIGHTS, hex);
    for (size_t i = 0; i < n_tensors(job) && rc >= 0; i++) {
        uint64_t shape[2];
        size_t n_dims = lut_shape((enum lut_tensor)i, job->sae->n,
                                  job->target->in, job->target->out, shape);

        rc = stw_add(w, lut_tensor_names[i], job->cmd->dtype, n_dims, shape,
                     err);
    }
    if (job->over && rc >= 0)
        rc = stw_add(w, LUT_THRESHOLD, DT_F32, job->one ? 0 : 1,
                     &(uint64_t){ job->sae->n }, err);
    if (job->cmd->screen && rc >= 0)
        rc = shadow = add_shadow(job, w, err);
    if (job->cmd->resume) /* the old table was read, to see what it is of */
        flags |= OUT_OWN;
    if (rc < 0 || stw_open(w, job->path.s, flags, err) < 0 ||
        write_thresholds(job, w, err) < 0 ||
        tiles_write(job, threads, w, shadow, progress, done, err) < 0 ||
        finish_digests(job, threads->par, err) < 0 ||
        stw_late(w, "sae_sha256", job->digests[OF_SAE].hex, err) < 0 ||
        stw_late(w, "weights_sha256", job->digests[OF_WEIGHTS].hex, err) < 0)
        rc = -1;
    else
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}
