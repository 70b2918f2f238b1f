/* SPDX-License-Identifier: ISC */
/* A forward's cache as a file. */
#ifndef MOE_SFT_CACHE_H
#define MOE_SFT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/run.h"
#include "core/err.h"
#include "core/format/stw.h"
#include "core/model/moe.h"

/*
 * A forward's cache as a file: the batch, gate and up, and digests of all that
 * a backward depends on.  cache_write() writes that of the run's last forward;
 * the caller commits it, or NULL with 'err' set.
 */
#define CACHE_VERSION_KEY "moe_sft_cache" /* of __metadata__ */
struct stw *cache_write(const struct sft_run *run, const char *path,
                        struct err *err);

/*
 * cache_open() reads one, and checks it against the run's base weights and
 * adapter; 'mode' -1: the file's.  -1 with 'err' set (EX_DATAERR) names what
 * differs.
 */
struct cache {
    struct batch batch;
    enum moe_mode mode;
    size_t n_rows;
    uint16_t *gate, *up; /* [n_rows, intermediate] */
};
int cache_open(struct cache *c, const struct sft_run *run, const char *path,
               int mode, struct err *err);
void cache_close(struct cache *c); /* a zeroed struct is fine */

#endif
