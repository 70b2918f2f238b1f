/*
 * The order of a model's steps, and the points where its activations can be
 * looked at: tap.h.
 */
#ifndef CORE_MODEL_BLOCK_H
#define CORE_MODEL_BLOCK_H

#include <stddef.h>

struct activations;
struct chunk;
struct engine;

/*
 * chunk_run() puts a chunk of at most the engine's rows, whose keys and values
 * have room, through all layers, and writes the wanted rows' logits, [n_wanted,
 * vocab_size].  acts [n_acts]: 1, which all layers use one after the other, or
 * as many as there are layers.
 */
void chunk_run(struct engine *engine, const struct chunk *chunk,
               const struct activations *acts, size_t n_acts, float *logits);

#endif
