/* SPDX-License-Identifier: ISC */
/*
 * What runs a model on the CPU: threads, the activations of a chunk of tokens
 * of one or more sequences, and those sequences.
 */
#ifndef CORE_MODEL_ENGINE_H
#define CORE_MODEL_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/model/block.h"
#include "core/model/experts.h"
#include "core/model/kv.h"
#include "core/par.h"

struct gemm;
struct model;
struct steer_each;

/*
 * How exact the linear layers are: all in f32, or with their inputs rounded to
 * bf16.  Then the tokens of prompts go through gemm_bf16(), which rounds F16
 * and F32 weights, too, others through gemm_exact(): each token's bits depend
 * on which of the two it is.  Attention of prompts has bf16 operands where the
 * CPU has an instruction for them.  BF16 weights take all through gemm_exact()
 * where it has none for such products.
 */
enum compute { COMPUTE_F32, COMPUTE_BF16 };

struct engine_options {
    size_t chunk; /* tokens that go through the layers together, 1 or more;
                   * fewer where their activations take over 512 MiB */
    enum compute compute;
    enum dtype kv; /* of keys and values in the cache: F32, F16 or BF16 */
    bool bare;     /* without activations, for whoever runs block.h's steps with
                    * theirs: it is not fed, and a chunk may always have as many
                    * tokens as 'chunk' says */
    size_t least;  /* tokens that a chunk has in any case: an image's */
    bool latents;  /* the cache has MLA's latents: see mla.h */
};

struct engine {
    const struct model *model;
    struct par *par;
    struct gemm *gemm;
    struct engine_options options;

    struct chunk chunk;        /* that is filled, then run */
    int32_t *ids;              /* [chunk] of its rows' tokens; of those that
                                * are left where only wanted rows are */
    struct span *wanted_spans; /* [chunk]: of its wanted rows */
    struct activations acts;   /* of one layer after the other */

    void *memory; /* of these activations and of what follows */
    size_t nbytes;
    float *head_in;           /* [chunk, hidden]: of lm_head */
    float *attention_scratch; /* [threads, attention_scratch()] */
    bool attention_bf16;      /* of prompts and training */
    /* COMPUTE_BF16: the input of a linear layer, rounded, and in f32 again */
    uint16_t *rounded;           /* [chunk, gemm_ld_bf16(widest input, of a
                                  * bare one also output)]; or int8 of them,
                                  * which is less */
    float *row_scale;            /* [chunk] of int8; with experts */
    float *widened;              /* [chunk, widest input] */
    struct experts_work experts; /* if the model has experts */
    float *low;                  /* [chunk, lora_rank]: between a and b */
    /* where the model has tables */
    struct table_work *table_work;
    float *table_y; /* [2, chunk, table_out]: a table's, the layer's */
    size_t table_out;
    struct latents_work *splice_work; /* where it has SAEs */
    struct steer_each *each;          /* the caller's; NULL: none */
};

/*
 * engine_open() allocates the threads' workspace and room for the activations
 * of a chunk of tokens: the matrices are read once for them.  'par' is borrowed
 * and may be NULL.
 * -1 with 'err' set (EX_SOFTWARE).  One thread at a time may use an engine.
 * Owner: the caller, until engine_close(), after its sessions.
 */
int engine_open(struct engine **engine, const struct model *model,
                struct par *par, const struct engine_options *options,
                struct err *err);
void engine_close(struct engine *engine); /* NULL is fine */

/* engine_bare_nbytes() is what a bare one allocates; false if it leaves 64
 * bits. */
bool engine_bare_nbytes(const struct model *model, int n_threads,
                        const struct engine_options *options, size_t *nbytes);

/* One sequence and its KV cache, which grows as it is filled. */
struct session {
    struct engine *engine;
    size_t max_tokens;
    size_t n;        /* tokens fed */
    size_t n_cached; /* keys in the cache, of each head: n, or fewer after
                      * session_compress() */
    struct kv kv;
    struct state state; /* of layers without keys, after n tokens */
    struct state kept;  /* the same after n_kept, which may be to come; of */
    size_t n_kept;      /* 0 none is kept */
};

/*
 * session_new() starts an empty sequence of at most 'max_tokens'; whether that
 * may be more than config.max_positions is the caller's decision.
 * Owner: the caller, until session_close().
 */
struct session *session_new(struct engine *engine, size_t max_tokens);
void session_close(struct session *session); /* NULL is fine */

/*
 * session_fork() starts a sequence that begins with the first n tokens of
 * another one, without computing them again: it shares the cache's blocks until
 * one of the two writes there.  Its bits are those of a sequence fed from its
 * first token on if these n were fed as it would be: in COMPUTE_BF16, or
 * steered, as a prompt or as generated.
 * Owner: the caller, until session_close(), in any order.
 * n must be what session_reach() gives; it keeps its state after these.
 * session_may_fork() must be true: else it would have other keys, since one of
 * the two may become long and has longrope's long factors, or since 'from' is
 * compressed.
 */
bool session_may_fork(const struct session *from, size_t max_tokens);
struct session *session_fork(const struct session *from, size_t n,
                             size_t max_tokens);

/*
 * session_reach() is how many of a session's first n tokens it can go back to,
 * or be forked after: n, but where layers have a state, which cannot be cut,
 * those that were fed when it was, or are now, or none.  session_keep() keeps
 * it after n tokens, which may be fed later, in place of what was kept before.
 */
size_t session_reach(const struct session *session, size_t n);
void session_keep(struct session *session, size_t n);

/* session_back() forgets all tokens but the first session_reach(n), which it
 * returns; not after session_compress().  max_tokens stays, and so do
 * longrope's factors.  session_cut() gives up their memory, too. */
size_t session_back(struct session *session, size_t n);
size_t session_cut(struct session *session, size_t n);

/* n tokens that are appended to a session. */
struct feed {
    struct session *session;
    const int32_t *ids; /* [n] */
    size_t n;
    size_t n_logits; /* of the last so many of them: 0 .. n */
    bool generated;  /* by the model: see COMPUTE_BF16 */
};

/*
 * engine_feed() feeds several sequences at once: their tokens share the passes
 * over the matrices.  A session may be there once.  'tap' may be NULL.
 * 'logits' gets the rows [vocab_size] f32 that are asked for, in the order of
 * the feeds, without gaps.
 * The bits do not depend on how a sequence is cut into calls, on what else is
 * fed, the chunk, nor on threads.
 * -1 with 'err' set and nothing fed: an id outside the vocabulary, more than
 * max_tokens (EX_DATAERR), memory (EX_SOFTWARE).
 */
int engine_feed(struct engine *engine, const struct feed *feeds, size_t n_feeds,
                const struct tap *tap, float *logits, struct err *err);

/* session_feed() feeds one sequence with a prompt, or a part of it. */
int session_feed(struct session *session, const int32_t *ids, size_t n,
                 float *logits, size_t n_logits, struct err *err);

#endif
