/*
 * saev-write's own parts: the command line, the input stream, the run that
 * turns one into shards, and the end that publishes them.  Only main.c prints
 * errors and exits.
 */
#ifndef SAEV_WRITE_H
#define SAEV_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/saev.h"
#include "core/hash.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/tty.h"

struct cmd {
    const char *meta_path;  /* -m */
    const char *parent;     /* -o, without a slash at its end */
    const char *input_path; /* "-": standard input */
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

/*
 * input.c: numbers from a file or pipe, whatever their form there.
 */
struct input {
    const char *name; /* for messages */
    int fd;
    enum dtype dtype;
    unsigned char *head; /* [INPUT_HEAD] read, not taken yet: */
    size_t head_at, head_n;
    uint64_t n_taken; /* bytes of numbers, in the input's own dtype */
    float *native;    /* for conversion */
};

int input_open(struct input *in, const struct cmd *cmd, struct err *err);
void input_close(struct input *in); /* a zeroed struct is fine */

/* input_left() is how many bytes of f32 a file still has; SIZE_MAX for what is
 * none, whose end nobody knows. */
size_t input_left(const struct input *in);

/* input_more() waits until there is a byte: 1, or 0 at the end; -1 with 'err'
 * set, EX_TEMPFAIL when asked to stop, as all that wait here. */
int input_more(struct input *in, struct err *err);

/* input_header() takes a .npy header: 1 with the number of images it
 * promises, or 0 if there is none. */
int input_header(struct input *in, const struct saev *saev, size_t *n_imgs,
                 struct err *err);

/* input_read() fills 'to' with f32 numbers, little-endian, until n or the
 * end: how many, or -1.  input_move() hands f32 input on to 'out': how many
 * bytes, 0 at the end; only where input_moves(). */
#define INPUT_FLOATS ((size_t)256 << 10) /* at most, in one input_read() */
ssize_t input_read(struct input *in, void *to, size_t n, struct err *err);
bool input_moves(const struct input *in);
ssize_t input_move(struct input *in, struct out *out, size_t nbytes,
                   struct err *err);

/* A shard's checksum, and of how many bytes: another run that fills the folder,
 * too, may have the last one with zeros, or without. */
struct shard_sum {
    char hex[HASH_MAX_HEX]; /* "": not known */
    size_t nbytes;
};

/*
 * A run: some images of a dump, in the folder where its shards gather.
 */
struct run {
    const struct cmd *cmd;
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
    struct input in;
    size_t begin, end;      /* shards of this run; end SIZE_MAX: counted */
    size_t n_kept;          /* shards found complete */
    size_t *made, n_made;   /* [n_made], shards written */
    struct shard_sum *sums; /* [n_sums] of shards, for the manifest */
    size_t n_sums;
    unsigned char *buf, *old; /* [INPUT_FLOATS] f32 each */
    struct progress progress;
};

/* run.c */
int run_name(struct run *run, struct err *err); /* hash, path */
int run_load(struct run *run, const struct cmd *cmd, struct err *err);
void run_free(struct run *run);                   /* a zeroed struct is fine */
int run_part(struct run *run, struct err *err);   /* begin, end */
int run_exists(struct run *run, struct err *err); /* 1: is there, and right */

/* run_late(): a run failed with 'err'.  Was it for another that published the
 * same dump meanwhile?  Then 0 with --if-missing, once HASH is known, else -1
 * and EX_CANTCREAT. */
int run_late(struct run *run, bool shared, struct err *err);
int run_stage(struct run *run, bool shared, struct err *err); /* dir */
int run_buffers(struct run *run, struct err *err);            /* buf, old */

/* The folder of a run that was stopped, or of parts: is there one?  Once the
 * dump is published it is waste. */
bool run_part_exists(const struct run *run);
void run_drop_part(const struct run *run);

/* run_images(): what the run still lacks; n is SIZE_MAX where nobody knows. */
int run_images(struct run *run, size_t *first, size_t *n, struct err *err);
int run_stream(struct run *run, struct err *err); /* all the rest */

/* shard.c: is a shard complete in the folder?  And one shard of the stream. */
void shard_path(const struct run *run, size_t shard, struct str *path);
bool shard_there(const struct run *run, size_t shard);
int shard_check(struct run *run, size_t shard, struct err *err);
int shard_write(struct run *run, size_t shard, struct err *err);
int shard_pad(struct out *out, struct hash *hash, size_t nbytes,
              struct err *err);
void shard_set_sum(struct run *run, size_t shard, size_t nbytes,
                   struct hash *hash);

/* publish.c: the last steps, from shards to a dump. */
int publish(struct run *run, bool shared, struct err *err);
int finish(struct run *run, struct err *err); /* of shards written before */

/* mode.c: run_mode() does what the command line asks for, and prints its
 * answer: 0, or -1 with 'err' set. */
enum mode { STREAM, HASH, IMAGES, FINISH };
int run_mode(struct run *run, const struct cmd *cmd, enum mode mode,
             struct err *err);

#endif
