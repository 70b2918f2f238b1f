/*
 * saev-read's own parts: the parsed command line, the verbs, and what they
 * share.  A verb returns the exit status of its answer (0, or TU_NEGATIVE),
 * or -1 with 'err' set; only main.c prints errors and exits.
 */
#ifndef SAEV_READ_H
#define SAEV_READ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/npy.h"
#include "core/format/saevdir.h"
#include "core/out.h"
#include "core/par.h"
#include "core/perm.h"
#include "core/tty.h"

struct range {
    size_t first, last; /* both counted */
};

/* range_parse(): "A-B" or "A" in 'n' bytes; -1 if it is not that, or B < A. */
int range_parse(struct range *range, const char *s, size_t n);

struct cmd {
    const char *verb;
    char **args; /* operands after the verb */
    int n_args;
    enum saev_tokens tokens; /* --view */
    int64_t layer;           /* --layer; SAEV_ALL_LAYERS */
    struct range imgs;       /* --imgs; first > last: all */
    enum dtype dtype;        /* of the rows written: F32, F16, BF16 */
    bool raw;                /* no .npy header */
    uint64_t batch;          /* rows of an array; 0: all in one */
    const char *rows;        /* --rows FILE */
    bool index, json;        /* where rows lie, instead of them */
    bool direct, deep;
    bool sharded; /* --shard: */
    uint64_t part, n_parts;
    uint64_t max_patches; /* --max-patches; 0: as it is */
    bool shuffle;
    uint64_t window, sample; /* slots, rows; 0: not asked for */
    uint64_t skip;           /* rows of the order that are not put out */
    struct perm perm;        /* --seed, --epoch */
    size_t mem;              /* bytes that a shuffle may take */
    const char *tmpdir;      /* NULL: $TMPDIR, or /tmp */
    bool quiet, verbose;
    int n_threads;   /* -j; 0: CPUs of this process */
    const char *svg; /* --svg FILE */
    const char *out_path;
    int out_flags; /* OUT_FORCE or 0 */

    struct out *out;
    struct par *par; /* NULL: one thread; main closes it */
};

int rows_main(struct cmd *cmd, struct err *err); /* the default verb */
int verify_main(struct cmd *cmd, struct err *err);
int info_main(struct cmd *cmd, struct err *err);
int stats_main(struct cmd *cmd, struct err *err);
int meta_main(struct cmd *cmd, struct err *err);

/* need_threads() fills cmd->par, once. */
int need_threads(struct cmd *cmd, struct err *err);

/*
 * target.c: what --view, --layer and --imgs choose of a dump: n_rows rows,
 * which are first .. first + n_rows - 1 of 'view'.  Row numbers that users
 * see and that other functions here take count from 'first'.
 * Stays where it is: 'view' points into 'dir'.
 */
struct target {
    struct saevdir dir;
    struct saev_view view;
    size_t first, n_rows;
};

int target_open(struct target *t, const struct cmd *cmd, const char *path,
                struct err *err);
void target_close(struct target *t); /* a zeroed struct is fine */

static inline struct saev_place
target_at(const struct target *t, size_t row)
{
    return saev_view_at(&t->view, t->first + row);
}

/*
 * shards.c: pieces of a dump's shards, by as few reads as pay.  What the page
 * cache has is read as it is; of what it lacks, all between neighbours that
 * are near is read at once, up to 1 MiB.
 */
#define SHARDS_OPEN 64 /* files open at once */

struct piece {
    size_t shard, offset, nbytes;
    void *to;
};

struct shard_file {
    size_t shard;
    int fd; /* -1: none */
    size_t call;
};

struct shards {
    const struct saevdir *dir;
    struct par *par;
    bool direct;     /* O_DIRECT, where the file system has it */
    bool sequential; /* files opened from now on are read from front to end */
    struct shard_file files[SHARDS_OPEN]; /* shard i at i % SHARDS_OPEN */
    size_t call;
    atomic_bool missed; /* set: not all was in the page cache */
    char *scratch;
    size_t n_scratch;
};

int shards_open(struct shards *s, const struct saevdir *dir, int n_threads,
                bool direct, struct err *err);
void shards_close(struct shards *s); /* a zeroed struct is fine */

/* shards_read(): the pieces are in the order of (shard, offset), and none
 * reaches beyond the next one's end. */
int shards_read(struct shards *s, const struct piece *p, size_t n,
                struct err *err);

/* shards_fd(): the file of a shard, open until another takes its place. */
int shards_fd(struct shards *s, size_t shard, struct err *err);

/*
 * gather.c: rows of a target by their numbers, into memory, as they are in the
 * files: f32 little-endian.  Some 8 MiB of its own, whatever n.
 */
struct want {
    size_t row, at; /* the place in the answer */
};

struct gather {
    const struct target *t;
    size_t row_nbytes;
    struct shards shards;
    struct want *wants;   /* [2 * MAX_WANTS] */
    struct piece *pieces; /* [MAX_WANTS] */
};

int gather_open(struct gather *g, const struct target *t, int n_threads,
                bool direct, struct err *err);
void gather_close(struct gather *g); /* a zeroed struct is fine */

/* gather_rows(): row rows[i] < n_rows to to[i * row_nbytes]; in any order,
 * duplicates are fine.  Best with many at once, as they are sorted for the
 * disk.  gather_range(): rows first .. first + n - 1, read in their order. */
int gather_rows(struct gather *g, const size_t *rows, size_t n, void *to,
                struct err *err);
int gather_range(struct gather *g, size_t first, size_t n, void *to,
                 struct err *err);

/* gather_run(): how many rows from 'row' on lie together in one file. */
size_t gather_run(const struct target *t, size_t row);

/*
 * emit.c: rows on their way out, as .npy, a sequence of .npy arrays (--batch)
 * or raw, of any of the dtypes, with progress.  emit_open() is told how many
 * rows there will be; then they come as f32 little-endian, in any number of
 * calls.  emit_say() is the line of -v.  -1 with 'err' set.
 */
struct emit {
    struct out *out;
    enum dtype dtype;
    size_t d;
    bool raw;
    size_t array_rows;     /* of a full array; 0: one for all */
    size_t n_rows, n_done; /* of all; handed to 'out' */
    size_t array_left;     /* of the array that is being written */
    float *native;         /* [EMIT_FLOATS] in this machine's order */
    void *converted;       /* [EMIT_FLOATS] of dtype; both NULL for F32 */
    struct progress progress;
};

int emit_open(struct emit *emit, const struct cmd *cmd, size_t n_rows, size_t d,
              struct err *err);
int emit_rows(struct emit *emit, const void *rows, size_t n_rows,
              struct err *err);

/* emit_pieces(): row v[i] as it is in memory (F32), by out_writev(). */
int emit_pieces(struct emit *emit, struct iovec *v, size_t n_rows, bool lend,
                struct err *err);

/* emit_copy(): n_rows that are in a file as they shall be (F32), by the
 * kernel. */
int emit_copy(struct emit *emit, int fd, const char *name, size_t offset,
              size_t n_rows, struct err *err);
void emit_say(struct emit *emit, const struct cmd *cmd);
void emit_close(struct emit *emit); /* a zeroed struct is fine */

/*
 * list.c: the rows that operands and --rows FILE name, in their order, or all.
 * list_open() has looked at every one.  list_next(): 1, 0 at the end, -1.
 */
struct list {
    const struct target *t;
    struct list_layer *layers; /* of the dump, by their numbers */
    size_t n_rows;             /* of all ranges */
    size_t n_left;             /* of them, not given yet */
    struct range *ranges;      /* [n_ranges], of the operands */
    size_t n_ranges, next;
    FILE *file; /* NULL: none */
    const char *name;
    bool is_npy, reading; /* 'reading': now, and not in 'ranges' */
    struct npy npy;
    size_t line; /* lines or elements read */
    char *text;
    size_t text_cap;
    struct str kept;
};

int list_open(struct list *l, const struct target *t, char **words, int n_words,
              const char *path, struct err *err);
int list_next(struct list *l, struct range *r, struct err *err);
void list_close(struct list *l);

/* place.c: --index, as TSV or JSON. */
struct places {
    struct out *out;
    const struct target *t;
    bool json;
    size_t n;
    struct str text;
};

/* places_open() begins an answer, places_put() adds a row's place, and
 * places_end() writes what is left. */
void places_open(struct places *p, const struct cmd *cmd,
                 const struct target *t);
int places_put(struct places *p, size_t row, struct err *err);
int places_end(struct places *p, struct err *err);
void places_close(struct places *p);

/*
 * rows_put() answers a command line with n_rows rows of 't', whose numbers
 * 'next' gives, up to 'max' at a time, in the order of the answer; *n = 0 is
 * their end.  With --index it prints where they lie.
 */
typedef int rows_next(void *ctx, size_t *rows, size_t max, size_t *n,
                      struct err *err);
int rows_put(const struct cmd *cmd, const struct target *t, size_t n_rows,
             rows_next *next, void *ctx, struct err *err);

#endif
