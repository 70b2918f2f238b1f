/*
 * Prompts as JSON objects, one a line:
 *   {"id": anything, "prompt": "text"}   or   {"id": ..., "ids": [1, 47, 387]}
 * "text" is another name of "prompt", as data sets have it.  Where they are
 * prompts to generate from, max_tokens, stop (a string or an array of them),
 * seed, temperature, top_p and top_k may be there, too; each name of another
 * member is warned of once.  Empty lines are ignored.
 */
#ifndef HF_INFER_JSONL_H
#define HF_INFER_JSONL_H

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
    struct str buf;   /* what was read and not yet used */
    size_t at;        /* of it is used already */
    size_t scanned;   /* no end of line before here */
    size_t n_lines;
    bool ended;
    bool settings;                    /* of generation are read */
    char *unknown[JSONL_MAX_UNKNOWN]; /* members that were warned of */
    size_t n_unknown;
};

/* One line.  Starts as { 0 }, ends with jsonl_doc_free(). */
struct jsonl_doc {
    char *where;   /* "standard input: line 7", for messages */
    struct str id; /* js_put_json() of it; empty: there was none */
    bool is_ids;   /* else text */
    struct str text;
    struct ids ids;

    unsigned set;       /* what follows: SET_TEMPERATURE .. SET_SEED of run.h */
    int64_t max_tokens; /* -1: not there */
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
 * jsonl_next() reads one line into 'doc', which must be { 0 }: 1; 0 at the
 * end; -1 with 'err' set (EX_DATAERR, naming the line; EX_IOERR).
 * Without 'wait' it returns 2 where no whole line is there yet: a writer may be
 * waiting for answers before it sends more.  Memory: one line (at most 1 GiB).
 */
int jsonl_next(struct jsonl *jsonl, struct jsonl_doc *doc, bool wait,
               struct err *err);
void jsonl_doc_free(struct jsonl_doc *doc);

/* jsonl_ids() appends the ids of a line, or of its text.  -1 with 'err' set
 * (EX_DATAERR, naming the line; what opening the tokenizer gives). */
struct run;
int jsonl_ids(struct run *run, const struct jsonl_doc *doc, struct ids *ids,
              struct err *err);

#endif
