/* SPDX-License-Identifier: ISC */
/*
 * The linear layers of a model's directory, single and fused, and which of them
 * are made, each from which SAE.
 */
#ifndef LUT_PRECOMPUTE_TARGET_H
#define LUT_PRECOMPUTE_TARGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "cmd/lut-precompute/cmd.h"
#include "core/format/lut.h"
#include "core/format/matrix.h"
#include "core/format/stdir.h"
#include "core/kernel/gemm.h"
#include "core/model/family.h"
#include "core/model/form.h"

struct target_part {
    char *name;           /* "model.layers.0.self_attn.q_proj" */
    struct gemm_matrix w; /* [its outputs, in] */
    struct matrix bias;   /* [1, its outputs], or none */
};

struct target_layer {
    char *name;
    const char *op; /* its last word, in name */
    size_t in, out;
    size_t n_parts;
    struct target_part parts[LUT_MAX_PARTS];
    bool has_bias;
    struct form_memory memory;
};

struct target_model {
    struct stdir dir;
    const struct model_family *family; /* or NULL */
    struct quantization packed;        /* weights that are */
    json_t *config;                    /* model_config of metadata.json */
    char *name;                        /* source_model */
};

/* target_model_open(): -1 with 'err' set, as stdir_open() or for its
 * config.json.  Owner: the caller, until target_model_close(). */
int target_model_open(struct target_model *m, const char *path,
                      struct err *err);
void target_model_close(struct target_model *m); /* a zeroed struct is fine */

/* base_name() is a path's last component, for the caller to free; of "" and "."
 * that of the directory they mean.  NULL with 'err' set: it does not exist. */
char *base_name(const char *path, struct err *err);

/* target_open() finds a single or fused layer by its full name: 1, or 0 where
 * the model has none; -1 with 'err' set. */
int target_open(struct target_layer *t, const struct target_model *m,
                const char *name, struct err *err);
void target_close(struct target_layer *t);

/* A layer that has an SAE and is asked for. */
struct planned_table {
    char *layer, *sae; /* full name; path of a checkpoint */
    bool fused;        /* in place of its parts, which the model has */
};

struct table_plan {
    size_t n;
    struct planned_table *work; /* [n], by name in natural order */
};

/*
 * plan_make() lists the layers to make: every 2-D tensor NAME.weight of the
 * model is one, and every packed layer.  -1 with 'err' set: EX_NOINPUT,
 * EX_DATAERR, TU_USAGE
 * (--layers).  Owner: the caller, until plan_free().
 */
int plan_make(struct table_plan *plan, const struct precompute_cmd *cmd,
              const struct target_model *m, struct err *err);
void plan_free(struct table_plan *plan);

#endif
