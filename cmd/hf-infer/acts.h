/* SPDX-License-Identifier: ISC */
/*
 * --acts: activations of many tokens, in windows, for sparse autoencoders,
 * lookup tables and caches on disk.  acts.c runs the windows, acts_write.c
 * names what is written of them.
 */
#ifndef HF_INFER_ACTS_H
#define HF_INFER_ACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/hf-infer/jsonl.h"
#include "cmd/hf-infer/run.h"
#include "core/format/array_out.h"
#include "core/hash.h"
#include "core/image/processor.h"
#include "core/model/block.h"
#include "core/model/places.h"
#include "core/outdir.h"
#include "core/str.h"
#include "core/tty.h"

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
struct docs {
    const char *name; /* of all of them: "docs.jsonl" */
    struct str where; /* of the last, in messages: "docs.jsonl: line 7" */
    size_t n, n_ids;  /* documents, and their ids; 0: not known */

    /* private */
    struct run *run;
    enum { DOCS_ONE, DOCS_LINES, DOCS_NPY } kind;
    bool ended;
    struct ids one;     /* DOCS_ONE */
    struct jsonl jsonl; /* DOCS_LINES */
    int fd;             /* DOCS_NPY, and a text until it is read */
    enum dtype dtype;
    bool rows;               /* [n_rows, length]; else one of them */
    uint64_t n_rows, length; /* of each */
    uint64_t row, i;         /* the next element */
};

int docs_open(struct docs *docs, struct run *run, struct err *err);
void docs_close(struct docs *docs); /* a zeroed struct is fine */

/*
 * docs_next() appends some more ids of the document, each within the
 * vocabulary; *last is set if it ends there.  A .npy comes in pieces, all
 * else a document at a time.  1, or 0 at the end of the last document, or -1
 * with 'err' set.
 */
int docs_next(struct docs *docs, struct ids *ids, bool *last, struct err *err);

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

#define MAX_WINDOWS 64 /* at once */
#define N_TAPS      ((size_t)N_TAP_POINTS)

/* Files of --images beside the dump: of its options of these names. */
enum { ACTS_PIXELS, ACTS_FEATURES, ACTS_IMAGES, N_ACTS_FILES };

/* A window that is run with others. */
struct acts_window {
    struct session *session;
    size_t first, n_ids; /* a->ids: the tokens that are run */
    size_t n_tokens;     /* n_ids, or more: padding */
    size_t at;           /* tokens of the windows before it */
};

/* An array of places of one point. */
struct acts_dump {
    struct acts_spec spec; /* of the run's */
    size_t dim;            /* floats of a token in a place */
    size_t row_nbytes;     /* of a token in all of them */
    uint8_t *acts; /* room for acts_tokens rows: [window, place, token, dim]
                    * f32, little-endian */
    struct array_out array;
    struct array_out ids; /* .out NULL without */
};

/* What a tap is of. */
struct acts_tap {
    struct acts *acts;
    enum tap_point point;
};

struct acts {
    struct run *run;
    struct docs docs; /* of text */
    struct acts_spec spec;
    struct tap taps[N_TAPS]; /* [n_taps] */
    struct acts_tap tapped[N_TAPS];
    size_t n_taps;
    struct outdir_at dir; /* of places of several points; .dir NULL without */
    struct acts_dump *dumps; /* [n_dumps]: one, or one of each place */
    size_t n_dumps;
    size_t n_tokens;   /* of a window; the first one's where they differ */
    size_t n_expected; /* windows, or 0: not known before the end */
    struct ids ids;    /* of the windows, one after another */
    size_t acts_tokens;
    struct acts_window windows[MAX_WINDOWS];
    size_t n_windows;
    struct ids stream; /* packed documents, in no window yet */
    struct out *meta;  /* of --acts-meta, or NULL */
    bool meta_first;   /* it was written before the dump */
    struct out *ids_json;
    struct str ids_default;  /* the metadata, where saev-write looks, or "" */
    struct out *ids_pointer; /* FILE.json there, where the ids are elsewhere */
    struct acts_sources sources;
    const struct images_meta *images;     /* of which it is, or NULL: of text */
    struct array_out files[N_ACTS_FILES]; /* .out NULL without */
    struct hash *sum;                     /* of all ids */
    char sha256[HASH_MAX_HEX];
    size_t n_written; /* windows */
    size_t n_real;    /* tokens that were run */
    size_t n_cut;     /* documents longer than a window */
    size_t n_empty;   /* documents without a token */
    struct progress progress;
    double started;
};

/*
 * acts_open_dumps() makes the dumps of the spec, and the taps that fill them by
 * 'keep', whose ctx is a struct acts_tap, and starts --acts-meta.  acts_room()
 * makes room in them for so many tokens.  acts_start() asks for room on the
 * disk, and starts the clock.  0, or -1 with 'err' set.
 * acts_place() is where a tap's rows of a layer go: to a dump, there to a
 * place; NULL: nowhere.
 * acts_close() frees all that is in 'a', and removes what was not published.
 */
typedef void acts_keep(void *ctx, struct session *session, int64_t layer,
                       size_t first, size_t n, const float *rows);
int acts_open_dumps(struct acts *a, acts_keep *keep, struct err *err);
int acts_room(struct acts *a, size_t n_tokens, struct err *err);
int acts_start(struct acts *a, struct err *err);
struct acts_dump *acts_place(const struct acts_tap *tap, int64_t layer,
                             size_t *place);
void acts_close(struct acts *a);

/*
 * acts_open_output() reads --acts, and starts -o FILE, or -o DIR for places of
 * several points, and acts_open_place() the files there of one.
 * acts_place_ids() says where the ids go: to --acts-ids FILE, or next to
 * metadata that are a file; acts_open_ids() starts that FILE, and FILE.json.
 * acts_write() writes the windows that the dumps have, of so many tokens in
 * all, and before the first ones --acts-meta, of what is known, where a pipe's
 * reader waits for both.  acts_publish() gives all files their names.
 * 0, or -1 with 'err' set.
 */
int acts_open_output(struct acts *a, struct err *err);
int acts_open_place(struct acts *a, struct acts_dump *d, struct err *err);
void acts_place_ids(struct acts *a);
int acts_open_ids(struct acts *a, struct err *err);
int acts_write(struct acts *a, size_t n_windows, size_t n_tokens,
               struct err *err);
int acts_publish(struct acts *a, struct err *err);

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

/* acts_meta() appends that metadata.json of a dump, complete but for what is
 * not known: n_imgs and the ids' sum. */
void acts_meta(struct str *s, const struct acts *a, const struct acts_dump *d);

/* acts_ids_json() appends what --acts-ids writes next to the ids; 'dump' is the
 * name that saev-write gives the dump, or "": not known. */
void acts_ids_json(struct str *s, const struct acts *a,
                   const struct acts_dump *d, const char *dump);

#endif
