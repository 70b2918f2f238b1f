/* SPDX-License-Identifier: ISC */
#include "core/model/moe_worker.h"

#include <stdlib.h>

#include "core/mem.h"
#include "core/par.h"

struct moe_worker {
    struct par_worker *thread;
    struct err err; /* the first since the last sync: the thread's own */
};

struct queued {
    struct moe_worker *worker;
    struct moe_task task;
};

int
moe_worker_open(struct moe_worker **worker, struct err *err)
{
    struct moe_worker *w = xcalloc(1, sizeof(*w));

    *worker = NULL;
    if (par_worker_open(&w->thread, err) < 0) {
        free(w);
        return -1;
    }
    *worker = w;
    return 0;
}

void
moe_worker_close(struct moe_worker *w)
{
    if (!w)
        return;
    par_worker_close(w->thread);
    free(w);
}

static void
run(void *ctx)
{
    struct queued *q = ctx;

    if (q->worker->err.status == 0)
        q->task.run(q->task.ctx, &q->worker->err);
    free(q);
}

void
moe_submit(struct moe_worker *w, struct moe_task task)
{
    struct queued *q = xmalloc(sizeof(*q));

    q->worker = w;
    q->task = task;
    par_submit(w->thread, run, q);
}

int
moe_sync(struct moe_worker *w, struct err *err)
{
    par_sync(w->thread);
    if (w->err.status == 0)
        return 0;
    *err = w->err;
    w->err.status = 0;
    return -1;
}
