/* SPDX-License-Identifier: ISC */
/*
 * saev-write: the command line, a run, and its steps.
 *
 * A run takes some images of a dump from a stream to shards, which are
 * collected in a hidden directory, the stage, until it is published.  The
 * images may be all, those of one --shard, or, when the metadata leave out
 * n_imgs, as many as the stream has: then they are counted.
 *
 *   run_load()     what the dump is, and which of its shards are this run's
 *   run_exists()   is it there already?
 *   run_stream()   the shards, from the stream (shard.c: one of them)
 *   publish()      zeros, checksums, metadata, the name (publish.c)
 *
 * All return 0, or -1 with 'err' set; only main.c prints errors and exits.
 */
#ifndef SAEV_WRITE_RUN_H
#define SAEV_WRITE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/saev-write/input.h"
#include "core/hash.h"
#include "core/outdir.h"
#include "core/str.h"
#include "core/tty.h"

struct write_cmd {
    const char *meta_path;  /* -m */
    const char *parent;     /* -o, without a slash at its end */
    const char *input_path; /* "-": standard input */
    const char *ids_path;   /* --ids, or NULL */
    enum dtype dtype;       /* of raw input */
    bool dtype_given;
    bool raw; /* do not look for a .npy header */
    bool pad, if_missing, force, manifest, resume, no_sync;
    bool sharded; /* --shard: */
    uint64_t part, n_parts;
    bool first_given; /* --first: */
    uint64_t first;   /* the image the stream begins with */
    bool quiet, verbose;
};

/* The checksum of the first 'nbytes' bytes of a shard. */
struct shard_sum {
    char hex[HASH_MAX_HEX]; /* "": not known */
    size_t nbytes;
};

struct write_run {
    const struct write_cmd *cmd;
    struct saev saev;
    bool counts;              /* the metadata leave out n_imgs */
    char hash[SAEV_HASH_MAX]; /* "" until the images are counted, as 'path': */
    struct str path;          /* PARENT/HASH */
    struct str stage;         /* the stage's name, which has no '.' before it */
    struct outdir *dir;       /* the stage */
    size_t counted; /* images that an earlier run has counted to the stream's
                       end; SIZE_MAX: none has */
    struct float_input in;
    size_t begin, end;      /* shards of this run; end SIZE_MAX: counted */
    size_t n_kept;          /* shards found complete */
    size_t *made, n_made;   /* [n_made], shards written */
    struct shard_sum *sums; /* [n_sums] of shards, for the manifest */
    size_t n_sums;
    bool ids, ids_json; /* stored with the shards: ids.npy, and its .json */
    unsigned char *buf, *old; /* [INPUT_FLOATS] f32 each */
    struct progress progress;
    bool tells; /* it was drawn */
};

/* ---- run.c ---- */

/* run_load() reads the metadata.  Owner: the caller, until run_free(), which
 * takes a zeroed struct, too. */
int run_load(struct write_run *run, const struct write_cmd *cmd,
             struct err *err);
void run_free(struct write_run *run);

/* run_name() sets hash and path once n_imgs is known; run_stage() opens the
 * stage, which is 'shared' with other runs, as outdir_open(); run_buffers()
 * allocates buf, old. */
int run_name(struct write_run *run, struct err *err);
int run_stage(struct write_run *run, bool shared, struct err *err);
int run_buffers(struct write_run *run, struct err *err);

/* run_exists(): 1 if the dump is there and --if-missing makes that success. */
int run_exists(struct write_run *run, struct err *err);

/* run_second() looks once more after a run that ended with 'rc', 1 where it was
 * not the first to publish: if another run has published the dump meanwhile, 0
 * with --if-missing if that one is whole, else -1 and EX_TEMPFAIL.  The shards
 * of this run, which nobody needs any more, are then removed. */
int run_second(struct write_run *run, int rc, struct err *err);

/* run_part_exists(): is there a stage of parts, or of a run that was stopped?
 */
bool run_part_exists(const struct write_run *run);

/* run_imgs_before() counts the images before shard 'end', SIZE_MAX before the
 * end of a stream that is counted; run_first_img() is the stream's first. */
size_t run_imgs_before(const struct write_run *run, size_t end);
size_t run_first_img(const struct write_run *run);

/* run_images(): the first image that is missing, and how many are from there
 * on, SIZE_MAX if nobody knows. */
int run_images(struct write_run *run, size_t *first, size_t *n,
               struct err *err);
int run_stream(struct write_run *run, struct err *err);

/* ---- shard.c ---- */

/* shard_path() replaces 'path' by that of a shard in the stage. */
void shard_path(const struct write_run *run, size_t shard, struct str *path);

/* shard_exists(): is there a file of its size?  shard_check() compares the
 * stream with it.  shard_write() fills one from the stream. */
bool shard_exists(const struct write_run *run, size_t shard);
int shard_check(struct write_run *run, size_t shard, struct err *err);
int shard_write(struct write_run *run, size_t shard, struct err *err);

/* shard_set_sum() keeps a shard's hash, and frees it. */
void shard_set_sum(struct write_run *run, size_t shard, size_t nbytes,
                   struct hash *hash);

/* ---- publish.c ---- */

/* publish() takes the last steps of a run, finish() those of shards that were
 * written before, by it or by others; 1 with 'err' set, as run_stream(), where
 * another run was first. */
int publish(struct write_run *run, bool shared, struct err *err);
int finish(struct write_run *run, struct err *err);

/* ---- ids.c ---- */

/* ids_store() puts the ids of --ids FILE, or else those that hf-infer left for
 * this dump next to the metadata, if any, into the stage. */
int ids_store(struct write_run *run, struct err *err);

/* ---- mode.c ---- */

/* print_plan() does --hash or --images, write_dump() writes the stream, or
 * finishes what parts wrote, and prints the dump's path. */
int print_plan(struct write_run *run, const struct write_cmd *cmd, bool images,
               struct err *err);
int write_dump(struct write_run *run, const struct write_cmd *cmd,
               bool finishes, struct err *err);

#endif
