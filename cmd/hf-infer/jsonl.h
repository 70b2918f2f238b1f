/* SPDX-License-Identifier: ISC */
/*
 * Prompts as JSON objects, one a line:
 *   {"id": anything, "prompt": "text"}   or   {"id": ..., "ids": [1, 47, 387]}
 *   or   {"id": ..., "messages": [{"role": ..., "content": ...}, ..]}
 * "text" means the same as "prompt": many data sets use that name.  With
 * messages, members that are no settings are variables of the chat template.
 * Where text
 * is generated, a line may also have settings of its own: max_tokens, stop (a
 * string or an array of strings), seed, temperature, top_p, top_k and logprobs.
 * Unknown members are ignored, with one warning for each name.  So are empty
 * lines.
 */
#ifndef HF_INFER_JSONL_H
#define HF_INFER_JSONL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "cmd/hf-infer/stop.h"
#include "core/err.h"
#include "core/str.h"
#include "core/text/tok.h"

#define JSONL_MAX_UNKNOWN 32

struct jsonl {
    int fd;
    const char *name; /* for messages */
    struct str buf;   /* bytes read from fd */
    size_t at;        /* offset in buf of the next line */
    size_t scanned;   /* buf[at .. scanned) has no newline */
    size_t n_lines;
    bool ended;                       /* fd is at its end */
    bool settings;                    /* lines may have settings */
    char *unknown[JSONL_MAX_UNKNOWN]; /* names that were warned of */
    size_t n_unknown;
};

/* One line.  Starts as { 0 }, ends with jsonl_doc_free(). */
struct jsonl_doc {
    char *where;   /* "standard input: line 7", for messages */
    struct str id; /* JSON text, by js_put_json(); empty: no "id" */
    bool is_ids;   /* the prompt is 'ids', else 'text' or 'vars' */
    struct str text;
    struct ids ids;
    json_t *vars; /* messages, as chat_vars(); or NULL */

    /* settings: bits of 'set', SET_TEMPERATURE .. SET_SEED of run.h, are those
     * that the line has */
    unsigned set;
    int64_t max_tokens; /* -1: not given */
    int64_t n_best;     /* of "logprobs"; -1: not given */
    int64_t top_k;
    double temperature, top_p;
    uint64_t seed;
    char *stop[STOP_MAX]; /* [n_stop] */
    size_t n_stop;
};

/* jsonl_open() reads 'path', "-" for standard input.  -1 with 'err' set
 * (EX_NOINPUT). */
int jsonl_open(struct jsonl *jsonl, const char *path, struct err *err);
void jsonl_close(struct jsonl *jsonl);

/*
 * jsonl_next() reads one line into 'doc', which must be { 0 }.
 * Returns 1; 0 at the end; -1 with 'err' set (EX_DATAERR, naming the line;
 * EX_IOERR); or, without 'wait', JSONL_NOT_YET if no whole line has arrived:
 * the writer may be waiting for answers before it sends more. Memory: one line
 * (at most 1 GiB).
 */
#define JSONL_NOT_YET 2
int jsonl_next(struct jsonl *jsonl, struct jsonl_doc *doc, bool wait,
               struct err *err);
void jsonl_doc_free(struct jsonl_doc *doc);

/* jsonl_vars() is the conversation of a line with --chat, or NULL with 'err'
 * set (EX_DATAERR).  Owner: the caller. */
struct run;
json_t *jsonl_vars(const struct run *run, const struct jsonl_doc *doc,
                   struct err *err);

/* jsonl_ids() appends the ids of a line, or of its text.  -1 with 'err' set
 * (EX_DATAERR, naming the line; what opening the tokenizer gives). */
int jsonl_ids(struct run *run, const struct jsonl_doc *doc, struct ids *ids,
              struct err *err);

#endif
