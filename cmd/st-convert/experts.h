/* SPDX-License-Identifier: ISC */
/*
 * Experts of which a layer has all in one tensor, by rows, and whose matrices
 * are packed one by one: compressed-tensors has forms of linear layers alone,
 * and names as files have them for single experts.
 * Source: llm-compressor, modeling/qwen3_5_moe.py.
 */
#ifndef ST_CONVERT_EXPERTS_H
#define ST_CONVERT_EXPERTS_H

#include "cmd/st-convert/plan.h"
#include "core/model/parts.h"

/* experts_find(): how many parts of each expert has a tensor of the input?  0:
 * it stays as it is, also where --ignore has all of "..experts.".
 * experts_add() adds an item for each matrix, gate's and up's apart, where
 * p->items and p->experts have room. */
size_t experts_find(struct convert_plan *p, const struct st_tensor *t,
                    struct part_at *at);
void experts_add(struct convert_plan *p, const struct stdir_tensor *from,
                 struct part_at at, size_t n_parts);

#endif
