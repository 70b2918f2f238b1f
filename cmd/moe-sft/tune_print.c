/* SPDX-License-Identifier: ISC */
/* moe-sft tune --dry-run: what would be trained, and what it takes. */
#include "cmd/moe-sft/tune.h"
#include "core/js.h"
#include "core/tool.h"

static void
put_count(struct str *to, const char *name, uint64_t n)
{
    str_addf(to, "%s\t%llu\n", name, (unsigned long long)n);
}

static void
put_data(struct str *to, const char *prefix, const struct tune_data *d,
         const struct tune_windows *w)
{
    const struct {
        const char *name;
        size_t n;
    } counts[] = {
        { "examples", d->n },
        { "sequences", w->n },
        { "tokens", d->ids.n },
        { "targets", d->n_targets },
        { "truncated", d->n_truncated },
        { "dropped", d->n_dropped },
        { "longest", d->longest },
    };

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        str_addf(to, "%s%s\t%zu\n", prefix, counts[i].name, counts[i].n);
}

/* What lm_prepare() takes, and the optimizer and the examples here. */
static int
put_memory(const struct tune *t, struct str *to, struct err *err)
{
    size_t tokens = t->data.ids.n + t->eval_data.ids.n, own[2];
    struct lm_memory m;

    if (lm_memory(t->lm, &m, err) < 0)
        return -1;
    own[0] = t->lm->n_params * 3 * sizeof(float);
    own[1] = tokens * 2 * sizeof(int32_t) * (t->o.tune.pack ? 2 : 1) +
             (t->data.n + t->eval_data.n) *
                 (sizeof(struct tune_example) + sizeof(struct lm_seq) +
                  (t->o.tune.pack ? 3 : 2) * sizeof(size_t));
    str_addf(to, "memory: adapter and moments\t%zu\n", own[0]);
    str_addf(to, "memory: examples\t%zu\n", own[1]);
    for (size_t i = 0; i < m.n_items; i++)
        str_addf(to, "memory: %s\t%zu\n", m.item[i].name, m.item[i].nbytes);
    put_count(to, "memory: total", m.total + own[0] + own[1]);
    put_count(to, "memory: mapped files", m.mapped);
    return 0;
}

/* The first example with a target, or the first: each token, and the label that
 * the logits before it are trained on. */
static void
put_example(const struct tune *t, struct str *to)
{
    const struct tune_data *d = &t->data;
    size_t i = 0, k = 0;

    while (k < d->labels.n && d->labels.id[k] == LM_NO_LABEL)
        k++;
    while (k < d->labels.n && d->examples[i].first + d->examples[i].n <= k)
        i++;
    str_addf(to, "\nline\tposition\tid\tlabel\ttext\n");
    for (k = 0; k < d->examples[i].n; k++) {
        size_t at = d->examples[i].first + k;
        struct str bytes = { 0 };

        str_addf(to, "%zu\t%zu\t%d\t%d\t", d->examples[i].line, k,
                 (int)d->ids.id[at], (int)d->labels.id[at]);
        if (t->text.tok && tok_bytes(t->text.tok, d->ids.id[at], &bytes))
            str_esc(to, bytes.s, bytes.n);
        str_free(&bytes);
        str_addc(to, '\n');
    }
}

/* With --pack: which lines share a sequence. */
static void
put_windows(const struct tune *t, struct str *to)
{
    const struct tune_windows *w = &t->windows;

    str_adds(to, "\nsequence\ttokens\tlines\n");
    for (size_t i = 0; i < w->n; i++) {
        str_addf(to, "%zu\t%zu", i, w->seqs[i].n);
        for (size_t k = w->first[i]; k < w->first[i + 1]; k++)
            str_addf(to, "%c%zu", k == w->first[i] ? '\t' : ',',
                     t->data.examples[w->order[k]].line);
        str_addc(to, '\n');
    }
}

int
tune_print(const struct tune *t, struct err *err)
{
    const struct lm_lora *lora = &t->lm->lora;
    struct str text = { 0 };
    int rc;

    if (ranks_self(t->ranks) > 0)
        return 0;
    put_data(&text, "", &t->data, &t->windows);
    if (t->eval_data.n)
        put_data(&text, "eval ", &t->eval_data, &t->eval_windows);
    put_count(&text, "steps of an epoch", t->per_epoch);
    put_count(&text, "steps", t->total);
    str_adds(&text, "targets of the adapter\t");
    tune_targets(&text, &t->config, lora->targets);
    str_addf(&text, "\nrank\t%zu\nalpha\t", lora->rank);
    js_put_f64(&text, lora->alpha);
    str_addc(&text, '\n');
    put_count(&text, "parameters", t->lm->n_params);
    put_count(&text, "slices", t->o.tune.slices);
    if (ranks_count(t->ranks) > 1)
        put_count(&text, "ranks", (uint64_t)ranks_count(t->ranks));
    rc = put_memory(t, &text, err);
    if (rc == 0) {
        put_example(t, &text);
        if (t->o.tune.pack)
            put_windows(t, &text);
        tool_put("%s", text.s);
    }
    str_free(&text);
    return rc;
}
