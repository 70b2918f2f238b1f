/* SPDX-License-Identifier: ISC */
/* export: batches as SAEDashboard writes them, which neuronpedia.org reads. */
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/page.h"
#include "cmd/sae-look/view.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"

#define BATCH 256 /* latents of a file */

struct dashboards {
    const struct look_cmd *cmd;
    struct look_view v;
    long layer;
    struct str to;
};

/* The first number between dots: 1 of layers.1.mlp. */
static long
layer_of(const struct look *l)
{
    for (const char *s = l->hook; s && *s;
         s += strcspn(s, "."), s += *s == '.') {
        size_t n = strspn(s, "0123456789");

        if (n > 0 && n < 6 && (s[n] == '.' || !s[n]))
            return strtol(s, NULL, 10);
    }
    err_warn("%s: its hook is of no layer: 0 in the batches", l->path);
    return 0;
}

static void
put_token(struct dashboards *b, int32_t id)
{
    struct str token = { 0 };

    view_token(&b->v, id, &token);
    js_put_str(&b->to, token.s ? token.s : "", token.n);
    str_free(&token);
}

static int
put_lens(struct dashboards *b, int64_t latent, int sign, struct err *err)
{
    const char *name = sign ? "neg" : "pos";
    int32_t id;
    float value;

    for (int values = 0; values < 2; values++) {
        str_addf(&b->to, "\"%s_%s\": [", name, values ? "values" : "str");
        for (size_t k = 0; k < b->v.lens.n; k++) {
            if (lens_get(&b->v.lens, (size_t)latent, sign, k, &id, &value,
                         err) < 0)
                return -1;
            str_adds(&b->to, k ? ", " : "");
            if (values)
                page_f32(&b->to, value);
            else
                put_token(b, id);
        }
        str_adds(&b->to, "], ");
    }
    return 0;
}

/* SAEDashboard's interval that an example is of. */
struct interval {
    double min, max, contains;
};

static int
put_example(struct dashboards *b, const struct look_examples *of, size_t i,
            size_t j, const struct interval *in, const char *before,
            struct err *err)
{
    struct look_example e;
    int rc = look_example(&b->v.l, of, i, j, &e, err);

    if (rc <= 0)
        return rc;
    str_addf(&b->to, "%s{\"bin_min\": ", before);
    js_put_f64(&b->to, in->min);
    str_adds(&b->to, ", \"bin_max\": ");
    js_put_f64(&b->to, in->max);
    str_adds(&b->to, ", \"bin_contains\": ");
    js_put_f64(&b->to, in->contains);
    str_adds(&b->to, ", \"tokens\": [");
    for (size_t k = 0; k < e.n; k++) {
        str_adds(&b->to, k ? ", " : "");
        put_token(b, e.ids[k]);
    }
    str_adds(&b->to, "], \"values\": [");
    for (size_t k = 0; k < e.n; k++) {
        str_adds(&b->to, k ? ", " : "");
        page_f32(&b->to, e.acts[k] < 0 ? 0 : e.acts[k]);
    }
    str_addf(&b->to,
             "], \"qualifying_token_index\": %zu, \"dfa_values\": [], "
             "\"dfa_maxValue\": null, \"dfa_targetIndex\": null}",
             e.at);
    return 1;
}

static int
put_examples(struct dashboards *b, size_t i, struct err *err)
{
    static const struct interval top = { -1, 99, -1 };
    const struct look_examples *s = &b->v.l.sample;
    size_t rank[LOOK_MAX_EXAMPLES];
    size_t n = pick_sample(&b->v.l, i, rank), q = b->cmd->quantiles;
    const float *value = s->value + i * s->n;
    const char *before = "";
    int rc = 1;

    for (size_t j = 0; rc > 0 && j < b->v.l.top.n; j++, before = ", ")
        rc = put_example(b, &b->v.l.top, i, j, &top, before, err);
    if (b->v.l.rows_active[i] > 0 && b->v.l.top.n > 0)
        before = ", ";
    for (size_t j = 0, end; rc >= 0 && j < n; j = end) {
        struct interval in = { 0 };

        end = pick_quantile_end(j, n, q);
        in.min = (double)value[rank[end - 1]];
        in.max = (double)value[rank[j]];
        in.contains = (double)(end - j) / (double)n;
        for (size_t k = j; rc >= 0 && k < end; k++, before = ", ")
            rc = put_example(b, s, i, rank[k], &in, before, err);
    }
    return rc < 0 ? -1 : 0;
}

static int
put_feature(struct dashboards *b, size_t i, struct err *err)
{
    const struct look *l = &b->v.l;
    const int64_t *hist = l->hist + i * LOOK_BINS;
    const char *comma = "";

    str_addf(&b->to, "{\"feature_index\": %ld, ", (long)l->latent[i]);
    str_adds(&b->to, "\"neuron_alignment_indices\": [], "
                     "\"neuron_alignment_values\": [], "
                     "\"neuron_alignment_l1\": [], "
                     "\"correlated_neurons_indices\": [], "
                     "\"correlated_neurons_l1\": [], "
                     "\"correlated_neurons_pearson\": [], "
                     "\"correlated_features_indices\": [], "
                     "\"correlated_features_l1\": [], "
                     "\"correlated_features_pearson\": [], ");
    if (put_lens(b, l->latent[i], 1, err) < 0 ||
        put_lens(b, l->latent[i], 0, err) < 0)
        return -1;
    str_adds(&b->to, "\"frac_nonzero\": ");
    js_put_f64(&b->to, look_density(l, i));
    for (int heights = 0; heights < 2; heights++) {
        str_addf(&b->to, ", \"freq_hist_data_bar_%s\": [",
                 heights ? "heights" : "values");
        comma = "";
        for (int bin = 0; bin < LOOK_BINS; bin++) {
            if (hist[bin] == 0)
                continue;
            str_adds(&b->to, comma);
            comma = ", ";
            if (heights)
                str_addf(&b->to, "%lld", (long long)hist[bin]);
            else
                js_put_f64(&b->to, look_bin_low(bin));
        }
        str_addc(&b->to, ']');
    }
    str_addf(&b->to,
             ", \"logits_hist_data_bar_heights\": [], "
             "\"logits_hist_data_bar_values\": [], \"n_prompts_total\": %llu, "
             "\"n_tokens_in_prompt\": %zu, \"dataset\": \"\", "
             "\"decoder_weights_dist\": [], \"activations\": [",
             (unsigned long long)l->sequences, l->n_tokens);
    if (put_examples(b, i, err) < 0)
        return -1;
    str_adds(&b->to, "]}");
    return 0;
}

/* Latents first .. end - 1 of those picked, a file. */
static int
put_batch(struct dashboards *b, size_t first, size_t end, const char *path,
          struct err *err)
{
    struct out *out = NULL;
    int rc = out_open(&out, path, 0, false, err);

    str_clear(&b->to);
    str_adds(&b->to, "{\"model_id\": ");
    js_put_str(&b->to, b->cmd->model_id, strlen(b->cmd->model_id));
    str_addf(&b->to, ", \"layer\": %ld, \"sae_set\": ", b->layer);
    js_put_str(&b->to, b->cmd->source, strlen(b->cmd->source));
    str_adds(&b->to, ", \"features\": [");
    for (size_t k = first; rc == 0 && k < end; k++) {
        str_adds(&b->to, k > first ? ", " : "");
        rc = put_feature(b, b->v.picked[k], err);
        if (k == end - 1)
            str_adds(&b->to, "]}\n");
        if (rc == 0)
            rc = out_write(out, b->to.s, b->to.n, err);
        str_clear(&b->to);
    }
    if (rc == 0)
        return out_commit(out, err);
    out_abort(out);
    return -1;
}

int
export_main(const struct look_cmd *cmd, struct err *err)
{
    struct dashboards b = { .cmd = cmd };
    struct outdir_at dir = { 0 };
    struct str path = { 0 };
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "export takes one RUN");
    if (view_open(&b.v, cmd, SIZE_MAX, err) < 0)
        goto out;
    if (!b.v.l.ids_sha256) {
        err_data(err, b.v.l.path, "has no token ids (scan --acts-ids)");
        goto out;
    }
    b.layer = layer_of(&b.v.l);
    if (outdir_at_open(&dir, cmd->neuronpedia, cmd->out_flags, err) < 0)
        goto out;
    rc = 0;
    for (size_t at = 0; rc == 0 && at < b.v.n; at += BATCH) {
        str_clear(&path);
        str_addf(&path, "%s/batch-%zu.json", outdir_path(dir.dir), at / BATCH);
        rc = put_batch(&b, at, smaller(at + BATCH, b.v.n), path.s, err);
    }
    if (rc == 0)
        rc = outdir_at_commit(&dir, err);
    else
        outdir_at_abort(&dir);
out:
    str_free(&b.to);
    str_free(&path);
    view_close(&b.v);
    return rc;
}
