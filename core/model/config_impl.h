/* SPDX-License-Identifier: ISC */
/*
 * What the files that read a model's configuration share: config.c,
 * config_sampler.c, rope.c.
 */
#ifndef CORE_MODEL_CONFIG_IMPL_H
#define CORE_MODEL_CONFIG_IMPL_H

#include "core/err.h"
#include "core/js.h"
#include "core/model/config.h"

/* js_unsupported(): EX_DATAERR 'FILE: PATH "S" is not supported (KNOWN)'. */
int js_unsupported(const struct js *js, const char *s, const char *known,
                   struct err *err);

/* config_range() reads a number in [min, max]; *v is kept where it is
 * absent. */
int config_range(const struct js *root, const char *key, double min, double max,
                 double *v, struct err *err);

/* config_ends() reads the ids that begin and end a text: what this file says
 * replaces what was said before. */
int config_ends(struct config *c, const struct js *root, struct err *err);

/* config_sampler() reads generation_config.json, or fills in what is neutral
 * where that is absent. */
int config_sampler(struct config *c, const struct js *root, struct err *err);

#endif
