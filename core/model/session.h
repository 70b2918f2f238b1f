/*
 * One sequence: how many tokens it was fed, and its KV cache.
 */
#ifndef CORE_MODEL_SESSION_H
#define CORE_MODEL_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/kv.h"

struct engine;

struct session {
    struct engine *engine;
    size_t max_tokens, n; /* n: tokens fed */
    size_t gone;          /* of their slots in the cache: session_compress() */
    struct kv kv;
};

/*
 * session_new() starts an empty sequence of at most 'max_tokens' (a
 * min with config.max_positions is the caller's decision; more is allowed
 * for tests).  The KV cache grows as it is filled, and belongs to the
 * session.
 * Owner: the caller, until session_close().
 */
struct session *session_new(struct engine *engine, size_t max_tokens);
void session_close(struct session *session); /* NULL is fine */

/* session_length() is the number of tokens fed. */
size_t session_length(const struct session *session);

/* session_cached() is the number of keys in the cache, of each head: the
 * session's length, until it is compressed. */
size_t session_cached(const struct session *session);

/* session_feed() feeds one sequence with a prompt, or a part of it;
 * session_step() with a token that was generated. */
int session_feed(struct session *session, const int32_t *ids, size_t n,
                 float *logits, size_t n_logits, struct err *err);
int session_step(struct session *session, int32_t id, float *logits,
                 struct err *err);

#endif
