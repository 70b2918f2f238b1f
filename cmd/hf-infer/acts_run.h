/* SPDX-License-Identifier: ISC */
/*
 * A run of --acts: acts.c runs the windows, acts_write.c names what is written
 * of them.
 */
#ifndef HF_INFER_ACTS_RUN_H
#define HF_INFER_ACTS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/hf-infer/acts.h"
#include "core/format/array_out.h"
#include "core/hash.h"
#include "core/model/block.h"
#include "core/outdir.h"
#include "core/tty.h"

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

/* What a tap is of: places by layer + 1, SIZE_MAX for none. */
struct acts_tap {
    struct acts *acts;
    size_t *place; /* [model layers + 1] in spec */
};

struct acts {
    struct run *run;
    struct docs *docs;
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

#endif
