/* SPDX-License-Identifier: ISC */
/*
 * The places of a model where its activations can be looked at or replaced, and
 * what they are called: by hook names, as SAEs have them in their
 * configuration, by short forms, and by TransformerLens.  One table for --acts,
 * --sae, the metadata of dumps, and sae-train; the names of modules are those
 * of parts.h.
 * Source: man/sae.5, "Hook points".
 */
#ifndef CORE_MODEL_PLACES_H
#define CORE_MODEL_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/format/saev.h"
#include "core/model/block.h"
#include "core/model/config.h"
#include "core/str.h"

struct place {
    enum tap_point point;
    int64_t layer; /* -1: the embedding */
    size_t row;    /* private: by which name, as modules share inputs */
};

/* place_find(): which place has this hook name, of any family?  With or without
 * its root, "model.", TransformerLens's, or of a fused layer, which is its
 * first part; ".output" and ".input" may follow a module's. */
bool place_find(struct place *place, const char *name);

/* place_point() finds a short form without its layer, "in:up_proj", in the
 * first n bytes of a text; the layer becomes 0. place_set_layer() moves a
 * place, which may be named by any layer, to one. */
bool place_point(struct place *place, const char *text, size_t n);
void place_set_layer(struct place *place, int64_t layer);

/* place_layers(): which layers a place like this can be of, in a model of so
 * many. */
void place_layers(const struct place *place, int64_t n_layers, int64_t *first,
                  int64_t *last);

/* place_hook() appends "layers.3.mlp.up_proj", as a family calls it, NULL:
 * llama; place_short() "in:up_proj:3", and place_lens() TransformerLens's name
 * in a model, or "-" where it has none.  'linear': it is in a layer of Gated
 * DeltaNet, "layers.3.linear_attn.out_proj"; place_is_linear(): is it in one of
 * a model?  place_hook_in() asks that. */
void place_hook(struct str *to, const struct place *place,
                const struct model_family *family, bool linear);
bool place_is_linear(const struct place *place, const struct config *config);
void place_hook_in(struct str *to, const struct place *place,
                   const struct config *config);
void place_short(struct str *to, const struct place *place);
void place_lens(struct str *to, const struct place *place,
                const struct config *config);

/* place_word() is the short form without its layer. */
const char *place_word(const struct place *place);

/*
 * place_hint() appends, after a message about a name that is none of a hook,
 * what its hook name is, as " (expected layers.3.mlp.up_proj)": where it is a
 * short form, a weight or a bias; not the other side of a module, which is
 * another place.
 * Nothing where it is none of these.
 */
void place_hint(struct str *to, const char *name);

/* place_missing(): is there no such place in a model, for the reason that it
 * appends?  place.row SIZE_MAX: by any name.  The layer must be one of its. */
bool place_missing(struct str *why, const struct config *config,
                   const struct place *place);

/* place_settle() gives a place that has two points in this model, or of NULL in
 * most models, the one that it is listed by: the embedding is the residual
 * stream before the first layer unless positions are added to it, and what a
 * half adds is its module's output unless that is normalized or scaled first.
 * place_same(): are these the same then?  place_same_in(): of a family, NULL as
 * before. */
void place_settle(struct place *place, const struct config *config);
bool place_same(const struct place *a, const struct place *b,
                const struct config *config);
bool place_same_in(const struct place *a, const struct place *b,
                   const struct model_family *family);

/* place_next() goes on to the next place of a model, from .row SIZE_MAX, in the
 * order in which they are computed; false after the last. */
bool place_next(struct place *place, const struct config *config);

/* place_of_dump(): where the rows of its i-th layer are from, if hf-infer made
 * the dump; its hook name is appended then. */
bool place_of_dump(struct str *hook, struct place *place,
                   const struct saev *saev, size_t i);

#endif
