/* SPDX-License-Identifier: ISC */
/*
 * --acts: activations of many tokens, in windows, for sparse autoencoders,
 * lookup tables and caches on disk.
 */
#ifndef HF_INFER_ACTS_H
#define HF_INFER_ACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/hf-infer/run.h"
#include "core/hash.h"
#include "core/image/processor.h"
#include "core/model/places.h"
#include "core/str.h"

/* What --acts names, hooks or short forms: "layers.1,layers.3.mlp.up_proj",
 * "resid:0,3", "in:q_proj:0-5". */
struct acts_spec {
    struct place *places; /* [n] in the order given, each once */
    size_t n;
    bool is_mixed;    /* of several points */
    size_t n_again;   /* names of places that other names had */
    struct str again; /* of which the first is: "X and Y are one place" */
};

/* acts_spec_parse(): -1 with 'err' set (TU_USAGE), naming what is wrong.  Two
 * names of one place, as of layers that share an input, are wrong unless it is
 * mixed.  Owner: the caller, until acts_spec_free(), after an error, too. */
int acts_spec_parse(struct acts_spec *spec, const char *text,
                    const struct config *config, struct err *err);
void acts_spec_free(struct acts_spec *spec); /* a zeroed struct is fine */

/*
 * The documents of a run, one after another: a prompt, a list of ids, JSON
 * lines, or the rows of a .npy of token ids.
 */
struct docs;

int docs_open(struct docs **docs, struct run *run, struct err *err);
void docs_close(struct docs *docs); /* NULL is fine */

/*
 * docs_next() appends some more ids of the document, each within the
 * vocabulary; *last is set if it ends there.  A .npy comes in pieces, all
 * else a document at a time.  1, or 0 at the end of the last document, or -1
 * with 'err' set.
 */
int docs_next(struct docs *docs, struct ids *ids, bool *last, struct err *err);

/* docs_where() names the last document for messages: "docs.jsonl: line 7". */
const char *docs_where(const struct docs *docs);

/* docs_input() names all of them: "docs.jsonl". */
const char *docs_input(const struct docs *docs);

/* docs_count() is how many there are, or 0 where that is not known. */
size_t docs_count(const struct docs *docs);

/* docs_n_ids() is how many ids these have, before the first docs_next(). */
size_t docs_n_ids(const struct docs *docs);

/* What a dump is made from, by XXH3-128. */
struct acts_sources {
    /* "" where it is not known, or not asked for */
    char input_xxh3[HASH_MAX_HEX], tokenizer_xxh3[HASH_MAX_HEX];
    struct str text; /* members of the metadata's "data" */
};

/* What the metadata say of images, where the run's options do not. */
struct images_meta {
    const char *source;
    char *ckpt; /* the model's name */
    bool cls;   /* rows begin with the CLS token */
    const struct processor *processor;
    char xxh3[HASH_MAX_HEX]; /* of the images; "" not known */
    size_t n_skipped;        /* so far, with --skip-bad */
};

/* What a SAEV metadata.json says about a dump. */
struct acts_shape {
    const struct acts_spec *spec;
    size_t dim, n_tokens; /* of a window */
    size_t n_windows;     /* 0: not known */
    const char *input;    /* its name */
    const char *windows;  /* "packed", "padded", "whole" */
    const char *sha256;   /* of all ids as int32, -1 where padded; or NULL */
    const struct images_meta *images; /* in place of these three; or NULL */
    const struct acts_sources *sources;
};

/*
 * acts_sources() says what the numbers depend on, to be asked for before the
 * input is read: for --acts-meta the instruction set, and the XXH3 of the
 * input, the model, its adapters and its tables; for --acts-ids those of the
 * input and of tokenizer.json.  Of an input that cannot be read twice there is
 * none, which a warning says where it is for metadata. Owner: the caller of
 * sources->text. 0, or -1 with 'err' set (EX_NOINPUT, EX_IOERR).  Cost: reads
 * all these files.
 */
int acts_sources(struct acts_sources *sources, const struct run *run,
                 struct err *err);

/* acts_meta() appends that metadata.json, complete but for what is not known:
 * n_imgs and the ids' sum. */
void acts_meta(struct str *s, const struct run *run,
               const struct acts_shape *shape);

/* acts_ids_json() appends what --acts-ids writes next to the ids; 'dump' is the
 * name that saev-write gives the dump, or "": not known; 'tok' or NULL. */
void acts_ids_json(struct str *s, const struct acts_shape *shape,
                   const char *dump, const struct tok *tok);

#endif
