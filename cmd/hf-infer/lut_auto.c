/* SPDX-License-Identifier: ISC */
/*
 * --lut-auto: which tables are worth their nats.  Each is measured alone: what
 * it adds to the mean nll of a text's tokens, and how much faster than its
 * layer it is, both on the same rows, in turns.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/score.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/model/tables.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

struct candidate {
    size_t i;                  /* in the tables */
    double us_table, us_layer; /* of a token */
    double us_saved, nats;     /* of a token */
    bool kept;
};

/* The best first: those that cost nothing, by what they save; then by what a
 * nat saves; those that save nothing, or ruin the model, last. */
static int
by_worth(const void *a, const void *b)
{
    const struct candidate *p = a, *q = b;
    bool saves_p = p->us_saved > 0 && isfinite(p->nats);
    bool saves_q = q->us_saved > 0 && isfinite(q->nats);
    bool free_p = saves_p && p->nats <= 0, free_q = saves_q && q->nats <= 0;
    double worth_p = p->us_saved, worth_q = q->us_saved;

    if (saves_p != saves_q)
        return saves_p ? -1 : 1;
    if (free_p != free_q)
        return free_p ? -1 : 1;
    if (saves_p && !free_p) {
        worth_p *= q->nats;
        worth_q *= p->nats;
    }
    if (worth_p != worth_q)
        return worth_p > worth_q ? -1 : 1;
    return p->i < q->i ? -1 : 1;
}

static void
use_kept(struct tables *tables, const struct candidate *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tables_use(tables, c[i].i, c[i].kept);
}

/* All tables of c one at a time, against none: *before is its mean nll. */
static int
measure(struct run *run, struct nll *nll, struct candidate *c, size_t n,
        double *before, struct err *err)
{
    struct progress progress = {
        .what = "tables", .unit = "table", .total = n, .quiet = run->quiet
    };

    for (size_t i = 0; i < n; i++)
        c[i] = (struct candidate){ .i = i };
    use_kept(run->tables, c, n);
    if (score_again(nll, err) < 0)
        return -1;
    *before = nll->sum / (double)nll->n;
    progress_start(&progress);
    for (size_t i = 0; i < n; i++) {
        struct table_times t;

        tables_use(run->tables, i, true);
        if (score_again(nll, err) < 0) {
            if (err->status != EX_DATAERR) {
                progress_end(&progress);
                return -1;
            }
            nll->sum = INFINITY; /* logits are not finite */
        }
        tables_use(run->tables, i, false);
        t = tables_times(run->tables, i);
        c[i].nats = nll->sum / (double)nll->n - *before;
        c[i].us_table = 1e6 * t.table;
        c[i].us_layer = 1e6 * t.layer;
        c[i].us_saved = c[i].us_layer - c[i].us_table;
        progress_at(&progress, i + 1);
    }
    progress_end(&progress);
    return 0;
}

/* Keeps the first ones that save time while their nats are within 'most', and
 * writes the table that shows why; what they save and cost is added up. */
static void
decide(const struct run *run, struct candidate *c, size_t n, double most,
       double *us, double *nats, struct str *tsv)
{
    bool going = true;
    double sum = 0;

    str_adds(tsv, "layer\tus_table\tus_layer\tus_saved\tnats\tnats_sum\t"
                  "kept\n");
    for (size_t i = 0; i < n; i++) {
        sum += c[i].nats;
        going = going && c[i].us_saved > 0 && sum <= most;
        c[i].kept = going;
        if (going) {
            *us += c[i].us_saved;
            *nats = sum;
        }
        str_addf(tsv, "%s\t%.2f\t%.2f\t%.2f\t%.6f\t%.6f\t%s\n",
                 tables_layer(run->tables, c[i].i), c[i].us_table,
                 c[i].us_layer, c[i].us_saved, c[i].nats, sum,
                 going ? "yes" : "no");
    }
}

int
run_lut_auto(struct run *run, struct err *err)
{
    struct nll *nll = score_open(run, "--lut-auto", err);
    size_t n = nll ? tables_count(run->tables) : 0, n_kept = 0;
    struct candidate *c = xcalloc(n, sizeof(*c));
    double before = 0, us = 0, nats = 0;
    struct str tsv = { 0 };
    int rc = nll ? measure(run, nll, c, n, &before, err) : -1;

    if (rc == 0) {
        qsort(c, n, sizeof(*c), by_worth);
        decide(run, c, n, run->lut_auto, &us, &nats, &tsv);
        use_kept(run->tables, c, n);
        for (size_t i = 0; i < n; i++)
            n_kept += c[i].kept;
        rc = score_again(nll, err);
    }
    if (rc == 0)
        rc = out_write(run->out, tsv.s, tsv.n, err);
    if (rc == 0 && !run->quiet)
        tool_say("%zu of %zu table%s kept: %.1f us saved per token, mean nll "
                 "%.6f -> %.6f nats (%+.6f; one at a time %+.6f)",
                 n_kept, n, plural(n), us, before, nll->sum / (double)nll->n,
                 nll->sum / (double)nll->n - before, nats);
    score_close(nll);
    str_free(&tsv);
    free(c);
    return rc;
}
