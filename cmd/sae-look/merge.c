/* SPDX-License-Identifier: ISC */
/*
 * sae-look merge: parts of a scan become the RUN of all of their rows, with the
 * bytes that one scan would have given it.
 */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

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
    struct look l; /* the first part, then the RUN of all */
    struct merge_range *ranges;
    size_t n_ranges;
    struct look_pass *pass;
    struct par *par;
};

/* What the first difference between two parts is, or NULL. */
static const char *
difference(const struct look *a, const struct look *b)
{
    static const char *const keys[] = {
        "sae_xxh3",       "latents",  "d",    "hook",
        "ids_sha256",     "T",        "top",  "sample",
        "context",        "per",      "seed", "skip_ids",
        "skip_positions", "max_norm",
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        json_t *x = json_object_get(a->json, keys[i]);
        json_t *y = json_object_get(b->json, keys[i]);

        if (x != y && !json_equal(x, y))
            return keys[i];
    }
    if (a->m != b->m || memcmp(a->latent, b->latent, a->m * sizeof(*a->latent)))
        return "latent";
    if (a->p != b->p || (a->p && memcmp(a->pair_latent, b->pair_latent,
                                        a->p * sizeof(*a->pair_latent))))
        return "pair_latent";
    return NULL;
}

static int
read_part(struct merge *m, int i, struct err *err)
{
    struct look part = { 0 }, *l = i ? &part : &m->l;
    int rc = look_open(l, m->cmd->args[i], err);
    const char *what = rc == 0 ? difference(&m->l, l) : NULL;

    if (what)
        rc = err_data(err, m->cmd->args[i], "its %s is not that of %s", what,
                      m->cmd->args[0]);
    for (size_t k = 0; rc == 0 && k < l->n_input; k++) {
        m->ranges = xrealloc(m->ranges, m->n_ranges + 1, sizeof(*m->ranges));
        m->ranges[m->n_ranges++] =
            (struct merge_range){ l->input[k][0], l->input[k][1], i };
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

/* Do they follow each other?  Ranges that touch become one of the RUN, which
 * has no rows yet. */
static int
join_ranges(struct merge *m, struct err *err)
{
    struct look *l = &m->l;

    qsort(m->ranges, m->n_ranges, sizeof(*m->ranges), by_first);
    l->input = xrealloc(l->input, m->n_ranges, sizeof(*l->input));
    l->n_input = 0;
    l->rows = l->left_out = l->sequences = 0;
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
        rc = err_data(err, m->cmd->args[i], "was changed while it was read");
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
    look_close(&m.l);
    return rc;
}
