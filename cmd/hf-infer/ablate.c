/* SPDX-License-Identifier: ISC */
/* --ablate-each: what each latent does to the likelihood of a text. */
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/score.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/model/splice.h"

struct ablations {
    const struct steer *steer;
    struct steer_each each;
    double *nats;     /* [n + 1], of the text as it is first */
    size_t *n_active; /* [n] tokens */
    double *kept;     /* [window] nats of the text as it is */
};

/* A latent's places in each.found, the earliest first. */
struct active {
    const struct steer_found *found;
    size_t n;
};

static int
by_change(const void *a, const void *b)
{
    const struct steer_found *x = a, *y = b;

    return x->change != y->change
               ? (x->change > y->change ? 1 : -1)
               : (x->position > y->position) - (x->position < y->position);
}

static int
latest_first(const void *a, const void *b)
{
    const struct steer_found *x = ((const struct active *)a)->found;
    const struct steer_found *y = ((const struct active *)b)->found;

    return x->position != y->position ? (x->position < y->position ? 1 : -1)
                                      : by_change(x, y);
}

/*
 * Scores a window without one latent.  The tokens before the first one in which
 * it is active are as they were; so are their keys and values, as latents come
 * in the order of latest_first().
 */
static int
score_without(struct nll *nll, const struct active *latent, size_t begin,
              size_t end, size_t first, struct err *err)
{
    struct ablations *a = nll->ctx;
    size_t from = latent->found->position, change = latent->found->change;
    struct session *session = nll->run->session;
    int rc;

    /* a state goes back to the window's beginning */
    from = session_back(session, from);
    a->each.now = change;
    memset(a->each.c, 0, (end - begin) * sizeof(*a->each.c));
    for (size_t i = 0; i < latent->n; i++)
        a->each.c[latent->found[i].position] = -latent->found[i].f;
    nll->sum = a->nats[change + 1];
    for (size_t i = first; i <= begin + from; i++)
        nll->sum += a->kept[i - first];
    rc = score_tokens(nll, begin + from, end, first, err);
    a->nats[change + 1] = nll->sum;
    return rc;
}

/* Scores a window as it is, then without each latent that is active in it. */
static int
score_each_window(struct nll *nll, size_t begin, size_t end, size_t seen,
                  struct err *err)
{
    struct ablations *a = nll->ctx;
    struct steer_each *each = &a->each;
    size_t first = begin + larger(seen, 1), n = 0;
    struct active *active = xcalloc(a->steer->n, sizeof(*active));
    bool *has = xcalloc(a->steer->n, sizeof(*has));
    int rc;

    each->now = STEER_NONE;
    each->n_found = 0;
    nll->kept = a->kept;
    nll->n_kept = 0;
    nll->sum = a->nats[0];
    rc = score_tokens(nll, begin, end, first, err);
    a->nats[0] = nll->sum;
    nll->kept = NULL;
    if (each->n_found)
        qsort(each->found, each->n_found, sizeof(*each->found), by_change);
    for (size_t i = 0; i < each->n_found; i++) {
        const struct steer_found *f = &each->found[i];

        if (!has[f->change])
            active[n++] = (struct active){ f, 0 };
        has[f->change] = true;
        active[n - 1].n++;
        a->n_active[f->change] += f->position >= seen;
    }
    if (n)
        qsort(active, n, sizeof(*active), latest_first);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = score_without(nll, &active[i], begin, end, first, err);
    for (size_t i = 0; i < a->steer->n; i++)
        for (size_t k = 0; k < nll->n_kept && !has[i]; k++)
            a->nats[i + 1] += a->kept[k];
    free(active);
    free(has);
    return rc;
}

static int
print_table(const struct run *run, const struct ablations *a, struct err *err)
{
    struct str tsv = { 0 };
    int rc;

    str_adds(&tsv, "latent\trows_active\tnll_sum\tdelta\n");
    for (size_t i = 0; i < a->steer->n; i++) {
        str_addf(&tsv, "%u\t%zu\t", a->steer->list[i].latent, a->n_active[i]);
        js_put_f64(&tsv, a->nats[i + 1]);
        str_addc(&tsv, '\t');
        js_put_f64(&tsv, a->nats[i + 1] - a->nats[0]);
        str_addc(&tsv, '\n');
    }
    rc = out_write(run->out, tsv.s, tsv.n, err);
    str_free(&tsv);
    return rc;
}

int
score_each(struct nll *nll, struct err *err)
{
    struct run *run = nll->run;
    size_t window = smaller(score_window(run), nll->text.n);
    size_t hidden = (size_t)run->config->hidden_size;
    const struct steer *steer = &run->splices->list[run->splices->n - 1].steer;
    struct ablations a = {
        .steer = steer,
        .each = { .n_layers = splices_before(run->splices),
                  .c = xcalloc(window, sizeof(float)) },
        .nats = xcalloc(steer->n + 1, sizeof(double)),
        .n_active = xcalloc(steer->n, sizeof(size_t)),
        .kept = xcalloc(window, sizeof(double)),
    };
    int rc = 0;

    if (a.each.n_layers) {
        a.each.rows = mem_big(window, hidden * sizeof(float),
                              "the rows of a window", err);
        rc = a.each.rows ? 0 : -1;
    }
    run->engine->each = &a.each;
    nll->window = score_each_window;
    nll->ctx = &a;
    if (rc == 0)
        rc = score_again(nll, err);
    if (rc == 0)
        rc = print_table(run, &a, err);
    run->engine->each = NULL;
    nll->sum = a.nats[0]; /* for the summary */
    nll->n = nll->text.n - 1;
    if (a.each.rows)
        mem_big_free(a.each.rows, window, hidden * sizeof(float));
    free(a.each.found);
    free(a.each.c);
    free(a.nats);
    free(a.n_active);
    free(a.kept);
    return rc;
}
