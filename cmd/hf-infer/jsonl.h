/*
 * Prompts as JSON lines: {"id": ANY, "prompt": TEXT} or {"id": ANY, "ids":
 * [INT, ...]} each, read one at a time from a file or pipe of any length.
 */
#ifndef HF_INFER_JSONL_H
#define HF_INFER_JSONL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* A longer line is refused: memory stays bounded whatever comes. */
#define JSONL_MAX_LINE ((size_t)64 << 20)

/* One line.  Either 'text' or 'ids' is there, never both. */
struct jsonl_line {
    size_t number; /* 1: the file's first line */
    char *id;      /* the id's value as JSON text, or NULL: it has none */
    char *text;    /* the prompt, UTF-8, NUL-terminated; may hold NULs */
    size_t text_nbytes;
    int32_t *ids; /* [n_ids], each >= 0 */
    size_t n_ids;
};

struct jsonl;

/*
 * jsonl_open() opens 'path', or standard input for "-".  0, or -1 with 'err'
 * set (EX_NOINPUT).  Owner: the caller, until jsonl_close().
 */
int jsonl_open(struct jsonl **jsonl, const char *path, struct err *err);
void jsonl_close(struct jsonl *jsonl); /* NULL is fine */

/* jsonl_name() is what messages call the input: "standard input". */
const char *jsonl_name(const struct jsonl *jsonl);

/*
 * jsonl_next() reads the next line that is not blank.  1, or 0 at the end, or
 * -1 with 'err' set ("NAME: line 7: ...", EX_DATAERR; EX_IOERR): no JSON
 * object, a key twice, neither or both of a prompt and ids, ids that are no
 * token ids, a line that is too long.  "text" is another name of "prompt", as
 * datasets have it; other keys are passed over.
 * Owner of what 'line' holds: the caller, until jsonl_line_free().
 */
int jsonl_next(struct jsonl *jsonl, struct jsonl_line *line, struct err *err);
void jsonl_line_free(struct jsonl_line *line); /* a zeroed struct is fine */

/* jsonl_parse() reads one line's bytes; 'name' is for messages. */
int jsonl_parse(struct jsonl_line *line, const char *s, size_t nbytes,
                const char *name, struct err *err);

#endif
