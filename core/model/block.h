/*
 * The order of a model's steps, and the points where its activations can be
 * looked at: tap.h.
 */
#ifndef CORE_MODEL_BLOCK_H
#define CORE_MODEL_BLOCK_H

struct engine;

/*
 * chunk_run() puts the engine's chunk, whose keys and values have room, through
 * all layers, and writes the wanted rows' logits, [n_wanted, vocab_size].
 */
void chunk_run(struct engine *engine, float *logits);

#endif
