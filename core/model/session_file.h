/* SPDX-License-Identifier: ISC */
/*
 * A prompt's ids, keys and values as a safetensors file: chat(5), SESSIONS.
 */
#ifndef CORE_MODEL_SESSION_FILE_H
#define CORE_MODEL_SESSION_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct engine;
struct session;
struct stw;

/*
 * session_file_begin() starts the file of a session that is to have these ids
 * [n]: flags as out_open(), and there is room for it.  NULL with 'err' set as
 * stw_open() does.  session_file_end() writes it, once they are fed: 0, or -1
 * with 'err' set (EX_IOERR; EX_SOFTWARE: memory).
 * Owner: the caller, until session_file_end(), whatever it returns, or
 * stw_free().
 */
struct stw *session_file_begin(const struct session *session,
                               const int32_t *ids, size_t n, const char *path,
                               int flags, struct err *err);
int session_file_end(struct stw *file, const struct session *session,
                     const int32_t *ids, struct err *err);

/*
 * session_file_read() makes a session of a file, for session_fork(), and *ids
 * its ids [session->n].  Nothing is allocated for sizes that the file does not
 * have.
 * -1 with 'err' set: as st_open() does; EX_DATAERR for another model,
 * arithmetic or type of the cache, and for a file that is damaged.
 * Owner: the caller, of both.
 */
int session_file_read(struct session **session, int32_t **ids,
                      struct engine *engine, const char *path, struct err *err);

#endif
