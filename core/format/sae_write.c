/* SPDX-License-Identifier: ISC */
/*
 * Writing SAE checkpoints: sae_write() of sae.h.
 * Source: EleutherAI sparsify 9d3b136 (sparse_coder.py, save_to_disk), SAELens
 * 6.18.0 (saes/sae.py, save_model); man/sae.5.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/sae.h"
#include "core/format/stw.h"
#include "core/js.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/pyjson.h"
#include "core/str.h"

#define COLUMNS 16 /* of a row that are transposed at a time: a cache line */

static bool
is_batchtopk(const struct sae_write *s)
{
    return !strcmp(s->activation, "batchtopk");
}

static void
add_hook(struct str *to, const char *key, const struct sae_write *s)
{
    if (!s->hook)
        return;
    str_addf(to, ", \"%s\": ", key);
    js_put_str(to, s->hook, strlen(s->hook));
}

/* As json.dump() writes it; 'hook', 'threshold' and a mask are ours, and its
 * reader drops what it does not know. */
static void
sparsify_config(struct str *to, const struct sae_write *s)
{
    size_t factor = s->n / s->in;

    str_addf(to,
             "{\"activation\": \"%s\", \"expansion_factor\": %zu, "
             "\"normalize_decoder\": %s, \"num_latents\": %zu, \"k\": %zu, "
             "\"multi_topk\": false, \"skip_connection\": false, "
             "\"transcode\": false, \"d_in\": %zu",
             s->activation, factor ? factor : 1,
             s->normalize ? "true" : "false", s->n, s->k, s->in);
    add_hook(to, "hook", s);
    sae_without_put(to, s->mask);
    if (s->threshold >= 0) {
        str_adds(to, ", \"threshold\": ");
        py_float_repr(to, s->threshold);
    }
    str_addc(to, '}');
}

/* The version is that of the form: its reader takes metadata without one for
 * the form before 6.0, of which it drops the rest of them. */
static void
saelens_config(struct str *to, const struct sae_write *s)
{
    str_addf(to,
             "{\"d_in\": %zu, \"d_sae\": %zu, \"dtype\": \"float32\", "
             "\"device\": \"cpu\", \"apply_b_dec_to_input\": true, "
             "\"normalize_activations\": \"none\", "
             "\"reshape_activations\": \"none\", \"metadata\": "
             "{\"sae_lens_version\": \"6.18.0\", "
             "\"sae_lens_training_version\": null",
             s->in, s->n);
    add_hook(to, "hook_name", s);
    sae_without_put(to, s->mask);
    if (is_batchtopk(s))
        str_adds(to, "}, \"architecture\": \"jumprelu\"}");
    else
        str_addf(to,
                 "}, \"k\": %zu, \"rescale_acts_by_decoder_norm\": false, "
                 "\"architecture\": \"topk\"}",
                 s->k);
}

/* W_enc [in, n], a few of its rows at a time. */
static int
write_transposed(struct stw *w, int tensor, const struct sae_write *s,
                 struct err *err)
{
    unsigned char *bytes = xmalloc(smaller(COLUMNS, s->in) * s->n * 4);
    int rc = 0;

    for (size_t j = 0, n_j; j < s->in && rc == 0; j += n_j) {
        n_j = smaller(s->in - j, COLUMNS);
        for (size_t i = 0; i < s->n; i++)
            for (size_t c = 0; c < n_j; c++) {
                uint32_t u;

                memcpy(&u, &s->encoder_weight[i * s->in + j + c], sizeof(u));
                put_le32(bytes + (c * s->n + i) * 4, u);
            }
        rc = stw_write(w, tensor, bytes, n_j * s->n * 4, j * s->n * 4, err);
    }
    free(bytes);
    return rc;
}

/* A tensor of the file: its data, or NULL for W_enc, which is transposed. */
struct written {
    const char *name;
    const float *data;
    size_t n_dims;
    uint64_t shape[2];
};

/* A file with all of them, not committed; NULL with 'err' set. */
static struct stw *
write_tensors(const char *path, const struct sae_write *s,
              const struct written *t, size_t n_t, int out_flags,
              struct err *err)
{
    struct stw *w = stw_new();

    for (size_t i = 0; i < n_t; i++)
        if (stw_add(w, t[i].name, DT_F32, t[i].n_dims, t[i].shape, err) < 0)
            goto out;
    if (stw_open(w, path, out_flags, err) < 0)
        goto out;
    for (size_t i = 0; i < n_t; i++) {
        size_t n = t[i].shape[0] * (t[i].n_dims == 2 ? t[i].shape[1] : 1);

        if ((t[i].data ? stw_write_numbers(w, (int)i, t[i].data, n,
                                           sizeof(float), err)
                       : write_transposed(w, (int)i, s, err)) < 0)
            goto out;
    }
    return w;
out:
    stw_free(w);
    return NULL;
}

static struct stw *
write_sparsify(const char *path, const struct sae_write *s, int out_flags,
               struct err *err)
{
    const struct written t[] = {
        { "b_dec", s->decoder_bias, 1, { s->in } },
        { "W_dec", s->decoder_weight, 2, { s->n, s->in } },
        { "encoder.weight", s->encoder_weight, 2, { s->n, s->in } },
        { "encoder.bias", s->encoder_bias, 1, { s->n } },
    };

    return write_tensors(path, s, t, 4, out_flags, err);
}

static struct stw *
write_saelens(const char *path, const struct sae_write *s, int out_flags,
              struct err *err)
{
    float *threshold = is_batchtopk(s) ? xcalloc(s->n, sizeof(float)) : NULL;
    const struct written t[] = {
        { "W_enc", NULL, 2, { s->in, s->n } },
        { "b_enc", s->encoder_bias, 1, { s->n } },
        { "W_dec", s->decoder_weight, 2, { s->n, s->in } },
        { "b_dec", s->decoder_bias, 1, { s->in } },
        { "threshold", threshold, 1, { s->n } },
    };
    struct stw *w;

    for (size_t i = 0; threshold && i < s->n; i++)
        threshold[i] = (float)s->threshold;
    w = write_tensors(path, s, t, threshold ? 5 : 4, out_flags, err);
    free(threshold);
    return w;
}

/* The tensors that are there, of either form: they are not the new cfg.json's.
 */
static int
remove_tensors(const char *dir, struct err *err)
{
    static const char *const names[] = { SAE_SPARSIFY_FILE, SAE_SAELENS_FILE };
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        struct str path = { 0 };

        str_addf(&path, "%s/%s", dir, names[i]);
        if (unlink(path.s) < 0 && errno != ENOENT)
            rc = err_sys(err, EX_CANTCREAT, "%s: cannot be removed", path.s);
        str_free(&path);
    }
    return rc;
}

int
sae_write(const char *dir, const struct sae_write *s, int out_flags,
          struct err *err)
{
    bool saelens = s->format == SAE_SAELENS;
    struct str config = { 0 }, path = { 0 };
    struct stw *w;
    int rc;

    if (saelens && is_batchtopk(s) && s->threshold < 0)
        return err_set(err, EX_SOFTWARE,
                       "%s: SAELens's form of a batchtopk SAE needs a "
                       "threshold",
                       dir);
    str_addf(&path, "%s/%s", dir,
             saelens ? SAE_SAELENS_FILE : SAE_SPARSIFY_FILE);
    w = (saelens ? write_saelens : write_sparsify)(path.s, s, out_flags, err);
    rc = !w ? -1 : out_flags & OUT_FORCE ? remove_tensors(dir, err) : 0;
    if (rc == 0) {
        (saelens ? saelens_config : sparsify_config)(&config, s);
        str_clear(&path);
        str_addf(&path, "%s/cfg.json", dir);
        rc = out_put(path.s, out_flags, config.s, config.n, err);
    }
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    str_free(&path);
    str_free(&config);
    return rc;
}
