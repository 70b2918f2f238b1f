/* SPDX-License-Identifier: ISC */
/*
 * sae-look merge: parts of a scan become the RUN of all of their rows, with the
 * bytes that one scan would have given it.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/mem.h"
#include "core/model/look_pass.h"
#include "core/outdir.h"

/* Rows of a part. */
struct merge_range {
    uint64_t first, end;
    int part;
};

struct merge {
    const struct look_cmd *cmd;
    struct look l; /* of the first part, then of all */
    struct merge_range *ranges;
    size_t n_ranges;
    struct look_pass *pass;
    struct par *par;
};

static bool
same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool
same_numbers(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    return n_a == n_b && (n_a == 0 || !memcmp(a, b, n_a * sizeof(*a)));
}

/* What the first difference between two parts is, or NULL. */
static const char *
difference(const struct look *a, const struct look *b)
{
    const struct {
        const char *name;
        bool same;
    } all[] = {
        { "sae_xxh3", same_text(a->sae_xxh3, b->sae_xxh3) },
        { "latents", a->n == b->n },
        { "d", a->d == b->d },
        { "hook", same_text(a->hook, b->hook) },
        { "ids_sha256", same_text(a->ids_sha256, b->ids_sha256) },
        { "T", a->n_tokens == b->n_tokens },
        { "top", a->top.n == b->top.n },
        { "sample", a->sample.n == b->sample.n },
        { "context",
          a->context[0] == b->context[0] && a->context[1] == b->context[1] },
        { "per", a->per_row == b->per_row },
        { "seed", a->seed == b->seed },
        { "skip_ids", same_numbers(a->mask.ids, a->mask.n_ids, b->mask.ids,
                                   b->mask.n_ids) },
        { "skip_positions", a->mask.positions == b->mask.positions },
        { "max_norm", a->mask.max_norm == b->mask.max_norm },
        { "latent", same_numbers(a->latent, a->m, b->latent, b->m) },
        { "pair_latent",
          same_numbers(a->pair_latent, a->p, b->pair_latent, b->p) },
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (!all[i].same)
            return all[i].name;
    return NULL;
}

static int32_t *
copy_numbers(const int32_t *from, size_t n)
{
    int32_t *to = xcalloc(n + 1, sizeof(*to));

    if (n)
        memcpy(to, from, n * sizeof(*to));
    return to;
}

/* A RUN of no rows yet, with a part's options. */
static void
begin_as(struct look *l, const struct look *part)
{
    *l = *part;
    l->path = NULL;
    l->sae = xstrdup(part->sae);
    l->sae_xxh3 = xstrdup(part->sae_xxh3);
    l->hook = part->hook ? xstrdup(part->hook) : NULL;
    l->ids_sha256 = part->ids_sha256 ? xstrdup(part->ids_sha256) : NULL;
    l->mask.ids = copy_numbers(part->mask.ids, part->mask.n_ids);
    l->latent = copy_numbers(part->latent, part->m);
    l->pair_latent = copy_numbers(part->pair_latent, part->p);
    l->input = NULL;
    l->n_input = 0;
    l->rows = l->left_out = l->sequences = 0;
    l->st = (struct st){ 0 };
    l->copies = NULL;
    l->n_copies = 0;
}

static int
read_part(struct merge *m, int i, struct err *err)
{
    struct look part;
    const char *what = NULL;
    int rc = look_open(&part, m->cmd->args[i], err);

    if (rc == 0 && i == 0)
        begin_as(&m->l, &part);
    else if (rc == 0 && (what = difference(&m->l, &part)))
        rc = err_set(err, EX_DATAERR, "%s: its %s is not that of %s",
                     m->cmd->args[i], what, m->cmd->args[0]);
    for (size_t k = 0; rc == 0 && k < part.n_input; k++) {
        m->ranges = xrealloc(m->ranges, m->n_ranges + 1, sizeof(*m->ranges));
        m->ranges[m->n_ranges++] =
            (struct merge_range){ part.input[k][0], part.input[k][1], i };
    }
    look_close(&part);
    return rc;
}

static int
by_first(const void *a, const void *b)
{
    const struct merge_range *x = a, *y = b;

    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->end > y->end) - (x->end < y->end);
}

/* Do they follow each other?  Ranges that touch become one of the RUN. */
static int
join_ranges(struct merge *m, struct err *err)
{
    struct look *l = &m->l;

    qsort(m->ranges, m->n_ranges, sizeof(*m->ranges), by_first);
    l->input = xcalloc(m->n_ranges, sizeof(*l->input));
    for (size_t i = 0; i < m->n_ranges; i++) {
        const struct merge_range *r = &m->ranges[i], *before = r - 1;

        if (i > 0 && r->first < before->end)
            return err_set(err, EX_DATAERR,
                           "%s and %s both have rows from %llu on",
                           m->cmd->args[before->part], m->cmd->args[r->part],
                           (unsigned long long)r->first);
        if (i > 0 && r->first > before->end && !m->cmd->gaps)
            return err_set(err, EX_DATAERR,
                           "no part has rows %llu to %llu, between %s and %s "
                           "(--gaps allows that)",
                           (unsigned long long)before->end,
                           (unsigned long long)r->first - 1,
                           m->cmd->args[before->part], m->cmd->args[r->part]);
        if (i == 0 || r->first > before->end)
            l->input[l->n_input++][0] = r->first;
        l->input[l->n_input - 1][1] = r->end;
    }
    return 0;
}

static int
add_part(struct merge *m, int i, struct err *err)
{
    struct look part;
    int rc = look_open(&part, m->cmd->args[i], err);

    if (rc == 0 && difference(&m->l, &part))
        rc = err_set(err, EX_DATAERR, "%s: was changed while it was read",
                     m->cmd->args[i]);
    if (rc == 0)
        rc = look_check_examples(&part, &part.top, err);
    if (rc == 0)
        rc = look_check_examples(&part, &part.sample, err);
    if (rc == 0)
        rc = look_pass_merge(m->pass, &part, err);
    if (rc == 0 && m->ranges[0].part == i) { /* whatever their order here */
        free(m->l.sae);
        m->l.sae = xstrdup(part.sae);
    }
    look_close(&part);
    return rc;
}

int
merge_main(const struct look_cmd *cmd, struct err *err)
{
    struct merge m = { .cmd = cmd };
    struct outdir_at out = { 0 };
    int rc = 0;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "merge takes RUNs");
    for (int i = 0; i < cmd->n_args && rc == 0; i++)
        rc = read_part(&m, i, err);
    if (rc == 0)
        rc = join_ranges(&m, err);
    if (rc == 0)
        rc = outdir_at_open(&out, cmd->output, cmd->out_flags, err);
    if (rc == 0)
        rc = par_open(&m.par, cmd->n_threads, err);
    if (rc == 0)
        rc = look_pass_open(&m.pass, &m.l, NULL, m.par, err);
    for (int i = 0; i < cmd->n_args && rc == 0; i++)
        rc = add_part(&m, i, err);
    if (rc == 0) {
        look_pass_end(m.pass);
        rc = look_write(&m.l, outdir_path(out.dir), err);
    }
    if (rc == 0)
        rc = outdir_at_commit(&out, err);
    outdir_at_abort(&out);
    look_pass_close(m.pass);
    par_close(m.par);
    free(m.ranges);
    free(m.l.latent);
    free(m.l.pair_latent);
    look_close(&m.l);
    return rc;
}
