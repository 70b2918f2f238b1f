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
put_lens(struct dashboards *b, int sign)
{
    const char *name = sign == LENS_MINUS ? "neg" : "pos";

    for (int values = 0; values < 2; values++) {
        str_addf(&b->to, "\"%s_%s\": [", name, values ? "values" : "str");
        for (size_t k = 0; k < b->v.n_lens; k++) {
            str_adds(&b->to, k ? ", " : "");
            if (values)
                page_f32(&b->to, b->v.lens[sign][k].value);
            else
                view_json(&b->v, b->v.lens[sign][k].id, &b->to);
        }
        str_adds(&b->to, "], ");
    }
}

/* SAEDashboard's interval that an example is of. */
struct interval {
    double min, max, contains;
};

static void
put_example(struct dashboards *b, const struct look_example *e,
            const struct interval *in, bool first)
{
    str_adds(&b->to, first ? "" : ", ");
    js_addf(&b->to,
            "{\"bin_min\": %g, \"bin_max\": %g, \"bin_contains\": %g, "
            "\"tokens\": [",
            in->min, in->max, in->contains);
    for (size_t k = 0; k < e->n; k++) {
        str_adds(&b->to, k ? ", " : "");
        view_json(&b->v, e->ids[k], &b->to);
    }
    str_adds(&b->to, "], \"values\": [");
    for (size_t k = 0; k < e->n; k++) {
        str_adds(&b->to, k ? ", " : "");
        page_f32(&b->to, e->acts[k] < 0 ? 0 : e->acts[k]);
    }
    str_addf(&b->to,
             "], \"qualifying_token_index\": %zu, \"dfa_values\": [], "
             "\"dfa_maxValue\": null, \"dfa_targetIndex\": null}",
             e->at);
}

static void
put_examples(struct dashboards *b)
{
    static const struct interval top = { -1, 99, -1 };
    const struct look_view *v = &b->v;

    for (size_t j = 0; j < v->n_top; j++)
        put_example(b, &v->top[j], &top, j == 0);
    for (size_t j = 0, end; j < v->n_sample; j = end) {
        struct interval in = { 0 };

        end = view_quantile_end(v, j);
        in.min = (double)v->sample[end - 1].value;
        in.max = (double)v->sample[j].value;
        in.contains = (double)(end - j) / (double)v->n_sample;
        for (size_t k = j; k < end; k++)
            put_example(b, &v->sample[k], &in, v->n_top + k == 0);
    }
}

static int
put_feature(struct dashboards *b, size_t i, struct err *err)
{
    static const char *const unknown[] = {
        "neuron_alignment_indices",    "neuron_alignment_values",
        "neuron_alignment_l1",         "correlated_neurons_indices",
        "correlated_neurons_l1",       "correlated_neurons_pearson",
        "correlated_features_indices", "correlated_features_l1",
        "correlated_features_pearson", "logits_hist_data_bar_heights",
        "logits_hist_data_bar_values", "decoder_weights_dist"
    };
    const struct look *l = &b->v.l;
    const int64_t *hist = l->hist + i * LOOK_BINS;

    if (view_latent(&b->v, i, err) < 0)
        return -1;
    str_addf(&b->to, "{\"feature_index\": %ld, ", b->v.latent);
    for (size_t k = 0; k < sizeof(unknown) / sizeof(*unknown); k++)
        js_addf(&b->to, "%s: [], ", unknown[k]);
    put_lens(b, LENS_MINUS);
    put_lens(b, LENS_PLUS);
    js_addf(&b->to, "\"frac_nonzero\": %g", look_density(l, i));
    for (int heights = 0; heights < 2; heights++) {
        const char *before = "";

        str_addf(&b->to, ", \"freq_hist_data_bar_%s\": [",
                 heights ? "heights" : "values");
        for (int bin = 0; bin < LOOK_BINS; bin++) {
            if (hist[bin] == 0)
                continue;
            str_adds(&b->to, before);
            js_put_f64(&b->to, heights ? (double)hist[bin] : look_bin_low(bin));
            before = ", ";
        }
        str_addc(&b->to, ']');
    }
    str_addf(&b->to,
             ", \"n_prompts_total\": %llu, \"n_tokens_in_prompt\": %zu, "
             "\"dataset\": \"\", \"activations\": [",
             (unsigned long long)l->sequences, l->n_tokens);
    put_examples(b);
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
    js_addf(&b->to,
            "{\"model_id\": %s, \"layer\": %ld, \"sae_set\": %s, "
            "\"features\": [",
            b->cmd->model_id, b->layer, b->cmd->source);
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
