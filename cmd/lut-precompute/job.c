/* A layer's file: what it says of itself, and its tensors. */
#include "cmd/lut-precompute/job.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/lut-precompute/matrix.h"
#include "core/format/lut.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/sig.h"

#define GROWTH_MAX  64 /* a table's bytes for one of its sources' */
#define SMALL_TABLE ((size_t)64 << 20) /* bytes that any may have */

static json_t *
size_json(size_t n)
{
    return json_integer((json_int_t)n);
}

/* The layer's entry in metadata.json. */
static json_t *
entry_of(const struct layer_job *job)
{
    const struct target_layer *t = job->target;
    json_t *e = json_object(), *encoder = json_object();
    json_t *parts = json_array();
    struct str file = { 0 };

    str_addf(&file, "%s" LUT_SUFFIX, t->name);
    json_object_set_new(e, "input_dim", size_json(t->in));
    json_object_set_new(e, "output_dim", size_json(t->out));
    json_object_set_new(e, "file", json_string(file.s));
    json_object_set_new(e, "num_basis", size_json(job->sae->n));
    json_object_set_new(e, "k_active", size_json(job->k));
    json_object_set_new(
        encoder, "input_centering",
        json_boolean(job->sae->centered && job->cmd->keep_centering));
    json_object_set_new(e, "encoder", encoder);
    json_object_set_new(e, "target_bias", json_boolean(t->has_bias));
    json_object_set_new(e, "operator", json_string(t->op));
    for (size_t i = 0; i < t->n_parts; i++)
        json_array_append_new(parts, json_string(t->parts[i].name));
    json_object_set_new(e, "parts", parts);
    str_free(&file);
    return e;
}

static char *
lut_text(const struct layer_job *job, struct err *err)
{
    char *name = base_name(job->cmd->sae, err), *text;
    json_t *v, *info, *sae;

    if (!name)
        return NULL;
    v = json_object();
    info = json_object();
    json_object_set_new(v, "version", json_string(LUT_VERSION));
    json_object_set_new(v, "layer", json_string(job->target->name));
    json_object_set_new(v, "entry", entry_of(job));
    json_object_set(v, "model_config", job->model->config);
    /* of the SAE's config, which no digest knows; entry says what is left */
    if (job->sae->centered && !job->cmd->keep_centering)
        json_object_set_new(v, "centering_folded", json_true());
    json_object_set_new(info, "source_model", json_string(job->model->name));
    sae = json_string(name); /* NULL: the name is not UTF-8 */
    json_object_set_new(info, "sae_model", sae ? sae : json_string(""));
    free(name);
    json_object_set_new(v, "creation_info", info);
    text = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    return text ? text : xstrdup("");
}

uint64_t
job_nbytes(const struct layer_job *job)
{
    uint64_t n = job->sae->n, in = job->target->in, out = job->target->out;
    uint64_t numbers = n * (2 * in + out + 1) + in + out;

    if (job->cmd->store_weights)
        numbers += in * out;
    return numbers * (dtype_table[job->cmd->dtype].bits / 8);
}

/* A table has latents x outputs numbers, a product that two small files can
 * have made as large as they like: models have up to 8 outputs for an input. */
static int
check_size(const struct layer_job *job, struct err *err)
{
    const struct target_layer *t = job->target;
    size_t sources = matrix_nbytes(&job->sae->encoder_weight) +
                     matrix_nbytes(&job->sae->decoder_weight);
    size_t products;
    bool counted = size_mul(job->sae->n, t->out, &products) &&
                   products < SIZE_MAX / 16; /* the rest is in files */
    uint64_t nbytes = counted ? job_nbytes(job) : UINT64_MAX;

    for (size_t i = 0; i < t->n_parts; i++)
        sources += matrix_nbytes(&t->parts[i].w);
    if (nbytes <= GROWTH_MAX * (uint64_t)sources + SMALL_TABLE)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: the table of %zu latents x %zu outputs has %zu bytes "
                   "(expected at most %d times the %zu of what it is made of)",
                   t->name, job->sae->n, t->out, (size_t)nbytes, GROWTH_MAX,
                   sources);
}

int
job_open(struct layer_job *job, struct err *err)
{
    const struct sae *s = job->sae;
    const struct target_layer *t = job->target;

    if (s->in != t->in)
        return err_set(err, EX_DATAERR, "%s: is for %zu inputs, but %s has %zu",
                       s->path, s->in, t->name, t->in);
    job->k = job->cmd->k ? job->cmd->k : s->k;
    if (job->k == 0)
        return err_set(err, EX_DATAERR,
                       "%s: does not say how many latents are active (--k)",
                       s->path);
    if (job->k > s->n)
        return err_set(err, EX_DATAERR,
                       "%s: %zu latents are to be active, but it has %zu",
                       s->path, job->k, s->n);
    if (check_size(job, err) < 0)
        return -1;
    str_addf(&job->path, "%s/%s" LUT_SUFFIX, job->cmd->output, t->name);
    digests_open(&job->digests, s, t);
    job->lut = lut_text(job, err);
    return job->lut ? 0 : -1;
}

void
job_close(struct layer_job *job)
{
    digests_close(&job->digests);
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

static bool
says(const struct st *st, const char *key, const char *value)
{
    const struct st_meta *m = st_meta_find(st, key);

    return m && !strcmp(m->value, value);
}

/* A layer's text but for what its sources were called: digests know them. */
static json_t *
nameless(const char *text, size_t n)
{
    struct err err;
    json_t *v = js_parse(text, n, "lut", &err);

    json_object_del(v, "creation_info");
    return v;
}

static bool
same_layer(const struct layer_job *job, const struct st *st)
{
    const struct st_meta *m = st_meta_find(st, "lut");
    json_t *there = m ? nameless(m->value, m->value_n) : NULL;
    json_t *ours = nameless(job->lut, strlen(job->lut));
    bool same = there && ours && json_equal(there, ours);

    json_decref(there);
    json_decref(ours);
    return same;
}

static bool
holds(const struct layer_job *job, const struct st *st, const char *name,
      size_t n)
{
    const struct st_tensor *t = st_find(st, name);

    return t && t->dtype == job->cmd->dtype && t->n_elements == n;
}

static bool
holds_all(const struct layer_job *job, const struct st *st)
{
    size_t n = job->sae->n, in = job->target->in, out = job->target->out;

    return holds(job, st, "encoder_weight", n * in) &&
           holds(job, st, "encoder_bias", n) &&
           holds(job, st, "decoder_weight", n * in) &&
           holds(job, st, "decoder_bias", in) &&
           holds(job, st, "precomputed_products", n * out) &&
           holds(job, st, "bias_product", out) &&
           job->cmd->store_weights ==
               holds(job, st, "compensation_weight_t", in * out);
}

/* A file is of one run: its metadata say all but dtype and --store-weights. */
static int
is_same(struct layer_job *job, const struct st *st, struct par *par,
        struct err *err)
{
    if (!same_layer(job, st) || !holds_all(job, st))
        return 0;
    if (digests_end(&job->digests, par, err) < 0)
        return -1;
    return says(st, "sae_sha256", job->digests.sae.hex) &&
           says(st, "weights_sha256", job->digests.weights.hex);
}

int
job_is_there(struct layer_job *job, const struct threads *threads,
             struct err *err)
{
    bool replace = job->cmd->out_flags & OUT_FORCE;
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
    same = is_same(job, &st, threads->par, err);
    st_close(&st);
    if (same || replace)
        return same;
    return err_set(err, EX_CANTCREAT,
                   "%s: is of other sources or options (--force replaces it)",
                   job->path.s);
}

static int
add(struct stw *w, int *handle, const struct layer_job *job, const char *name,
    size_t rows, size_t cols, struct err *err)
{
    uint64_t shape[] = { rows, cols };

    *handle = stw_add(w, name, job->cmd->dtype, cols ? 2 : 1, shape, err);
    return *handle < 0 ? -1 : 0;
}

static int
add_all(struct stw *w, struct table_handles *h, const struct layer_job *job,
        struct err *err)
{
    size_t n = job->sae->n, in = job->target->in, out = job->target->out;

    h->weight_t = -1;
    if (add(w, &h->encoder_weight, job, "encoder_weight", n, in, err) < 0 ||
        add(w, &h->encoder_bias, job, "encoder_bias", n, 0, err) < 0 ||
        add(w, &h->decoder_weight, job, "decoder_weight", n, in, err) < 0 ||
        add(w, &h->decoder_bias, job, "decoder_bias", in, 0, err) < 0 ||
        add(w, &h->products, job, "precomputed_products", n, out, err) < 0 ||
        add(w, &h->bias_product, job, "bias_product", out, 0, err) < 0)
        return -1;
    if (!job->cmd->store_weights)
        return 0;
    return add(w, &h->weight_t, job, "compensation_weight_t", in, out, err);
}

/* The digests come late: these are their size. */
static void
announce(struct stw *w, const struct layer_job *job)
{
    static const char digits[] =
        "0000000000000000000000000000000000000000000000000000000000000000";

    stw_meta(w, "format", "pt");
    stw_meta(w, "lut", job->lut);
    stw_meta(w, "sae_sha256", digits);
    stw_meta(w, "weights_sha256", digits);
}

int
job_write(struct layer_job *job, const struct threads *threads,
          struct tiles *tiles, struct progress *progress, uint64_t *done,
          struct err *err)
{
    struct stw *w = stw_new();
    struct table_handles h;
    int rc;

    announce(w, job);
    rc = add_all(w, &h, job, err);
    if (rc == 0)
        rc = stw_open(w, job->path.s, job->cmd->out_flags, err);
    if (rc == 0)
        rc = tiles_write(tiles, threads->writing, w, &h, progress, done, err);
    if (rc == 0)
        rc = digests_end(&job->digests, threads->par, err);
    if (rc == 0)
        rc = stw_late(w, "sae_sha256", job->digests.sae.hex, err);
    if (rc == 0)
        rc = stw_late(w, "weights_sha256", job->digests.weights.hex, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}
