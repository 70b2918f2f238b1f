/*
 * --kvc: a session's cache made shorter by the MLPs of a kvc(5) file.
 */
#ifndef CORE_MODEL_COMPRESSOR_H
#define CORE_MODEL_COMPRESSOR_H

#include "core/err.h"
#include "core/model/config.h"

struct session;

/*
 * A KV-cache compressor, as kvc(5) describes it.  compressor_open() reads the
 * file and checks that it fits: layers, head_dim, no sliding windows.
 * -1 with 'err' set, as kvc_open() does; EX_DATAERR for a model it is not of.
 * Owner: the caller, until compressor_close().  Read-only after opening.
 */
struct compressor;
int compressor_open(struct compressor **compressor, const char *path,
                    const struct config *config, struct err *err);
void compressor_close(struct compressor *compressor); /* NULL is fine */

/*
 * session_compress() makes the keys and values of all tokens fed so far fewer,
 * where they are enough groups; tokens fed later have the positions they would
 * have had.  Once in a session.
 * 1, 0 (too few), or -1 with 'err' set (EX_SOFTWARE).
 */
int session_compress(struct session *session,
                     const struct compressor *compressor, struct err *err);

#endif
