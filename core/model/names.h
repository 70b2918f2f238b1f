/* SPDX-License-Identifier: ISC */
/*
 * Names of layers and tensors: "model.layers.0.self_attn.q_proj".  A family has
 * a root of its own, as "transformer.", and a model of several another one, as
 * "model.language_model.".  Files saved from the base class of a model lack
 * the root, and so may what a user types.  Only this file knows where.
 */
#ifndef CORE_MODEL_NAMES_H
#define CORE_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/format/stdir.h"
#include "core/near.h"

/* names_short() is what follows the root in a name, or all of it; tables have
 * "model." before a root, too: "model.transformer.h.0.mlp.c_fc". */
const char *names_short(const char *name);

/*
 * names_layer() finds "layers.N", DINO's "layer.N", GPT-2's "h.N", or
 * TransformerLens's "blocks.N", at the start of a name or after a dot: where it
 * begins, what follows it in '*end', and N, INT64_MAX if it is beyond that;
 * NULL if there is none.
 */
const char *names_layer(const char *name, int64_t *n, const char **end);

/* names_root() is what the names of a model's tensors begin with in this
 * directory: the root before 'name', of a tensor that is there with one; NULL:
 * it is there with none. */
const char *names_root(const struct stdir *dir, const char *name);

/* names_tensor() finds the tensor NAME.WORD, "q_proj" and "weight", with or
 * without the "model." of its name; NULL if there is none. */
const struct stdir_tensor *names_tensor(const struct stdir *dir,
                                        const char *name, const char *word);

/*
 * names_expert() takes the name of an expert's tensor apart, or of the stack of
 * all: PREFIX, the expert's number and a dot where it has one, and the tail
 * that is asked for, "gate_proj.weight".  False: it has another tail.
 */
struct expert_name {
    size_t prefix_n; /* bytes */
    int64_t layer;   /* N of the last "layers.N." of the prefix; -1: none */
    int64_t expert;  /* -1: none */
};
bool names_expert(struct expert_name *name, const struct st_tensor *t,
                  const char *tail);

/* names_match(): does the pattern, as fnmatch(3) has it, match the name, with
 * or without its root? */
bool names_match(const char *glob, const char *name);

/* Patterns of layers, GLOB,GLOB,.., and which of them some layer has matched.
 */
struct globs {
    char **glob;       /* [n] */
    bool *used;        /* [n] */
    struct near *near; /* [n] of the names that it did not match */
    size_t n;
};

/* globs_open() splits a list; empty patterns are left out, NULL has none.
 * Owner: the caller, until globs_close(). */
void globs_open(struct globs *globs, const char *list);
void globs_close(struct globs *globs); /* a zeroed struct is fine */

/* globs_match(): does any of them match?  globs_use() marks those that do.
 * globs_unused() is the first that is not marked, or NULL; globs_hint() is
 * near_hint() of it, of the names that globs_use() or globs_near() has seen. */
bool globs_match(const struct globs *globs, const char *name);
void globs_use(struct globs *globs, const char *name);
void globs_near(struct globs *globs, const char *name);
const char *globs_unused(const struct globs *globs);
const char *globs_hint(struct globs *globs);

#endif
