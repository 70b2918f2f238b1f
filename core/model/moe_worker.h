/* SPDX-License-Identifier: ISC */
/* Tasks one after the other in a thread of their own. */
#ifndef CORE_MODEL_MOE_WORKER_H
#define CORE_MODEL_MOE_WORKER_H

#include "core/err.h"

/*
 * A worker: a thread that runs tasks one after the other.  moe_submit() hands
 * it one and returns; moe_sync() waits for all so far and returns the first
 * error since the last sync.  After an error tasks are dropped until then.
 * What a task points at must live until the sync.  For lib/moe.c: the tool
 * itself waits for each step.
 */
struct moe_worker;
struct moe_task {
    int (*run)(void *ctx, struct err *err);
    void *ctx;
};
int moe_worker_open(struct moe_worker **worker, struct err *err);
void moe_worker_close(struct moe_worker *worker); /* syncs; NULL is fine */
void moe_submit(struct moe_worker *worker, struct moe_task task);
int moe_sync(struct moe_worker *worker, struct err *err);

#endif
