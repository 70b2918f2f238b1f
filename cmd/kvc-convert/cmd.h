/* SPDX-License-Identifier: ISC */
/*
 * kvc-convert's command line, as parsed, and its verbs; only main.c prints
 * errors and exits.
 */
#ifndef KVC_CONVERT_CMD_H
#define KVC_CONVERT_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/opt_value.h"

struct convert_cmd {
    const char *input, *output;
    int dtype; /* of the .bin; -1: not given */
    int64_t factor, min_seq_len, num_heads, head_dim; /* -1: not given */
    const char *prefix_order, *slot_order;            /* as typed, or NULL */
    struct opt_list allowed;                          /* --allow */
    bool strict, allow_views, provenance, if_missing, json, verbose;
    int out_flags;  /* OUT_FORCE or 0 */
    int64_t layers; /* --layers; 0: not known */
    char **args;
    int n_args;
};

/* The verbs.  They return the exit status of the answer (0, or TU_NEGATIVE), or
 * -1 with 'err' set. */
int convert(const struct convert_cmd *cmd, struct err *err); /* to .bin */
int back(const struct convert_cmd *cmd, struct err *err); /* to safetensors */

/* The modes. */
typedef int mode_main(const struct convert_cmd *cmd, struct err *err);
mode_main info, check, diff;

#endif
