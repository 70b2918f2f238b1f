/*
 * Which tokens make a chunk: those that go through the layers together.
 */
#ifndef CORE_MODEL_CHUNK_H
#define CORE_MODEL_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;

/* Consecutive tokens of one sequence: rows row .. row + n - 1 of a chunk, at
 * positions first .. first + n - 1, in slots slot .. slot + n - 1. */
struct span {
    struct session *session;
    size_t row, n, first, slot;
    bool generated; /* see COMPUTE_BF16 */
};

/* A token's place. */
struct row {
    struct session *session;
    size_t position, slot;
    int32_t id;
};

/* A chunk: its spans cover its rows, in their order. */
struct chunk {
    struct span *spans; /* [n_spans] */
    size_t n_spans;
    struct row *rows; /* [n_rows] */
    size_t n_rows;
    size_t *wanted; /* [n_wanted] rows whose logits are asked for, ascending */
    size_t n_wanted;
    float *cosines, *sines; /* [n_rows, head_dim / 2] of the rows' positions,
                             * filled by chunk_run() */
};

#endif
