/*
 * A run: some images of a dump, from their stream to the shards that gather in
 * a folder of the run's.
 */
#ifndef SAEV_WRITE_RUN_H
#define SAEV_WRITE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cmd/saev-write/cmd.h"
#include "cmd/saev-write/input.h"
#include "core/hash.h"
#include "core/outdir.h"
#include "core/str.h"
#include "core/tty.h"

/* A shard's checksum, and of how many bytes: another run that fills the folder,
 * too, may have the last one with zeros, or without. */
struct shard_sum {
    char hex[HASH_MAX_HEX]; /* "": not known */
    size_t nbytes;
};

struct write_run {
    const struct write_cmd *cmd;
    struct saev saev;
    char hash[SAEV_HASH_MAX]; /* "" until the images are counted */
    struct str path;          /* PARENT/HASH, then */
    dev_t old_dev;            /* what that was when the run began; 0: nothing */
    ino_t old_ino;
    bool old_known;   /* not while the images were to be counted */
    struct str stage; /* name of the folder where shards gather */
    struct outdir *dir;
    bool all_there; /* in dir, written or compared */
    size_t counted; /* images there, of a run that was counted to its end */
    struct float_input in;
    size_t begin, end;      /* shards of this run; end SIZE_MAX: counted */
    size_t n_kept;          /* shards found complete */
    size_t *made, n_made;   /* [n_made], shards written */
    struct shard_sum *sums; /* [n_sums] of shards, for the manifest */
    size_t n_sums;
    unsigned char *buf, *old; /* [INPUT_FLOATS] f32 each */
    struct progress progress;
};

/*
 * Each of these fills the fields that stand behind it; -1 with 'err' set.
 * run_load() begins with the metadata of -m and the command line.  Owner: the
 * caller, until run_free().
 */
int run_name(struct write_run *run, struct err *err); /* hash, path */
int run_load(struct write_run *run, const struct write_cmd *cmd,
             struct err *err);
void run_free(struct write_run *run); /* a zeroed struct is fine */
int run_part(struct write_run *run, struct err *err); /* begin, end */
int run_exists(struct write_run *run,
               struct err *err); /* 1: is there, and right */

/* run_late(): a run failed with 'err'.  Was it for another that published the
 * same dump meanwhile?  Then 0 with --if-missing, once HASH is known, else -1
 * and EX_CANTCREAT. */
int run_late(struct write_run *run, bool shared, struct err *err);
int run_stage(struct write_run *run, bool shared, struct err *err); /* dir */
int run_buffers(struct write_run *run, struct err *err); /* buf, old */

/* The folder of a run that was stopped, or of parts: is there one?  Once the
 * dump is published it is waste. */
bool run_part_exists(const struct write_run *run);
void run_drop_part(const struct write_run *run);

/* run_images(): what the run still lacks; n is SIZE_MAX where nobody knows. */
int run_images(struct write_run *run, size_t *first, size_t *n,
               struct err *err);
int run_stream(struct write_run *run, struct err *err); /* all the rest */

#endif
