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

/* No real model comes near; every product of them fits 64 bits by far. */
#define CONFIG_MAX_WIDTH  (1 << 20)
#define CONFIG_MAX_LAYERS (1 << 12)
#define CONFIG_MAX_HEADS  (1 << 12)

/* js_unsupported(): EX_DATAERR 'FILE: PATH "S" is not supported (KNOWN)'. */
int js_unsupported(const struct js *js, const char *s, const char *known,
                   struct err *err);

/* config_count() reads a whole number in 1 .. max; 'absent' is what it is where
 * config.json does not say; it must where that is 0 or over max.  config_act()
 * reads hidden_act. */
int config_count(const struct config *c, const struct js *root, const char *key,
                 int64_t max, int64_t absent, int64_t *v, struct err *err);
int config_act(struct config *c, const struct js *root, struct err *err);

/* config_mixers() reads which layers have which, and the sizes of Gated
 * DeltaNet; config_layer_types(): are they as many names as layers? */
int config_mixers(struct config *c, const struct js *root, struct err *err);
int config_layer_types(const struct config *c, const struct js *types,
                       struct err *err);

/* config_vision() reads all of a vision encoder's. */
int config_vision(struct config *c, const struct js *root, struct err *err);

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
