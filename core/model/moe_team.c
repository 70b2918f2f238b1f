/* SPDX-License-Identifier: ISC */
/* Teams of threads that share the parts of the operator. */
#include <stdlib.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/moe_operator.h"
#include "core/node.h"
#include "core/par.h"

size_t
moe_teams(const struct moe_config *c, int n_threads)
{
    return n_threads < 1 ? 1 : smaller(c->n_parts, (size_t)n_threads);
}

static void
open_team(void *ctx)
{
    struct moe_team *t = ctx;

    if (t->node >= 0)
        node_bind(t->node);
    t->failed = par_open(&t->par, t->n_threads, &t->err) < 0 ||
                gemm_open(&t->gemm, t->par, &t->err) < 0;
}

/* One team is the caller and the operator's own threads. */
int
moe_teams_open(struct moe *moe, int n_threads, struct err *err)
{
    size_t n = moe_teams(&moe->config, n_threads);
    int nodes = node_count(), each = n_threads / (int)n;
    int more = n_threads % (int)n;

    moe->teams = xcalloc(n, sizeof(*moe->teams));
    moe->n_teams = n;
    if (n == 1) {
        moe->teams->par = moe->par;
        return gemm_open(&moe->teams->gemm, moe->par, err);
    }
    for (size_t i = 0; i < n; i++) {
        struct moe_team *t = &moe->teams[i];

        t->moe = moe;
        t->index = i;
        t->node = nodes > 1 ? (int)i % nodes : -1;
        t->n_threads = each + ((int)i < more);
        if (par_worker_open(&t->worker, err) < 0)
            return -1;
        par_submit(t->worker, open_team, t);
    }
    for (size_t i = 0; i < n; i++) {
        par_sync(moe->teams[i].worker);
        if (moe->teams[i].failed) {
            *err = moe->teams[i].err;
            return -1;
        }
    }
    return 0;
}

void
moe_teams_close(struct moe *moe)
{
    for (size_t i = 0; i < moe->n_teams; i++) {
        struct moe_team *t = &moe->teams[i];

        par_worker_close(t->worker);
        gemm_close(t->gemm);
        if (t->par != moe->par)
            par_close(t->par);
    }
    free(moe->teams);
}

static void
run_team(void *ctx)
{
    const struct moe_team *t = ctx;

    for (size_t i = t->index; i < t->moe->config.n_parts; i += t->moe->n_teams)
        t->fn(t->ctx, &t->moe->parts[i]);
}

void
moe_for_parts(struct moe *moe, void (*fn)(void *ctx, struct moe_part *part),
              void *ctx)
{
    for (size_t i = 0; i < moe->config.n_parts && moe->n_teams == 1; i++)
        fn(ctx, &moe->parts[i]);
    for (size_t i = 0; i < moe->n_teams && moe->n_teams > 1; i++) {
        moe->teams[i].fn = fn;
        moe->teams[i].ctx = ctx;
        par_submit(moe->teams[i].worker, run_team, &moe->teams[i]);
    }
    for (size_t i = 0; i < moe->n_teams && moe->n_teams > 1; i++)
        par_sync(moe->teams[i].worker);
}
