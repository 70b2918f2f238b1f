/*
 * Training: what moe-sft train is told, the batches it reads, the state it
 * keeps on disk, the log it writes.
 */
#ifndef MOE_SFT_TRAIN_H
#define MOE_SFT_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/sft.h"
#include "core/err.h"
#include "core/format/stw.h"
#include "core/model/moe.h"
#include "core/model/train/optim.h"
#include "core/opt.h"
#include "core/par.h"
#include "core/perm.h"
#include "core/str.h"

struct train_options {
    const char *base, *lora, *dir;
    int64_t layer;      /* of the base; -1: its only one */
    char *const *files; /* batches; "-" alone: a stream */
    size_t n_files;
    const char *input, *target; /* instead of files: activations */
    uint64_t length;            /* tokens of a batch of those */
    uint64_t steps;             /* 0: to the end of the stream */
    uint64_t total;             /* of the schedule; 0: 'steps' */
    enum schedule_kind schedule;
    double lr, warmup; /* below 1: a part of 'total' */
    double clip, beta1, beta2, eps, weight_decay;
    uint64_t accumulate, save_every; /* 0: at the end alone */
    bool shuffle, resume, force, verbose, strict_ids;
    uint64_t seed;
    const char *log, *svg; /* NULL: none; no log: stdout */
    int mode;              /* enum moe_mode; -1: the weights' */
    size_t n_parts;
    int n_threads;
};

/*
 * train_run() is the verb.  -1 with 'err' set: SFT_NOT_FINITE (a loss or
 * gradient that is no number), EX_TEMPFAIL (stopped, the state is saved),
 * EX_CANTCREAT (DIR holds a run), and what the files' errors are.
 */
int train_run(const struct train_options *options, struct err *err);

/*
 * Batches by number, 0, 1, ..: files in turn or cuts of an array, again and
 * again, in the permutation of core/perm for (seed, round) if shuffled; or a
 * stream's, each once.
 */
struct array {
    const char *path;
    struct map map; /* .npy, or */
    struct st st;   /* a tensor of a safetensors file */
    enum dtype dtype;
    const uint8_t *data;
    size_t rows, cols;
};

struct data {
    const struct train_options *options;
    const struct base *base;
    struct gemm *gemm; /* of the router */
    uint64_t n;        /* of a round; 0: a stream */
    uint64_t n_read;   /* of the stream */
    struct array input, target;
    struct perm_item *order; /* of round 'round', if shuffled */
    uint64_t round;
};

int data_open(struct data *data, const struct train_options *options,
              const struct base *base, struct par *par, struct err *err);
void data_close(struct data *data); /* a zeroed struct is fine */

/*
 * data_get() reads batch i, with routing and target; a stream's are asked for
 * in order.  1, 0 at the stream's end, or -1 with 'err' set.
 * Owner: the caller, batch_close().
 */
int data_get(struct data *data, uint64_t i, struct batch *batch,
             struct err *err);

/* data_digest() adds the names of the data. */
void data_digest(const struct train_options *options, struct hash *hash);

/* What each step was like. */
struct step_record {
    double loss, lr, grad_norm, tokens;
};

/* What may not change from a run to the one that goes on with it. */
struct setting {
    const char *name; /* "--lr", or "base", "adapter", "data": digests */
    char value[40];
    const char *path; /* of what the digest is of, for messages */
};
#define STATE_MAX_SETTINGS 20

struct state {
    uint64_t step;
    struct step_record *records; /* [step] */
    size_t room;                 /* of records */
    struct setting settings[STATE_MAX_SETTINGS];
    size_t n_settings;
    struct moe_config config; /* shapes */
    struct adamw *adamw;
};

/* state_record() appends what the next step was like. */
void state_record(struct state *state, const struct step_record *record);

/*
 * state_write() writes the file but its name, which stw_commit() gives it;
 * NULL with 'err' set.  state_read() fills step, records, parameters and
 * moments; -1 with 'err' set: a state of other settings is EX_DATAERR and names
 * the first that differs.  One of another instruction set is a warning.
 */
struct stw *state_write(const struct state *state, const char *path,
                        struct err *err);
int state_read(struct state *state, const char *path, struct err *err);

/* log_head(), log_line(): TSV.  log_print() puts it on stdout, unless it is
 * time to stop and nobody reads there.  log_svg(): the curve of the loss. */
void log_head(struct str *to);
void log_line(struct str *to, uint64_t step, const struct step_record *record);
void log_print(const struct str *text, int *first_errno);
void log_svg(struct str *to, const char *title,
             const struct step_record *records, size_t n);

/* log_write() writes --log and --svg, log_remove() takes them away, no devices.
 * log_check(): may it write?  Without --force only what is free or, with
 * --resume, was written by the run of that state: 0, or -1 with 'err' set
 * (EX_CANTCREAT). */
int log_write(const struct train_options *o, const struct state *s,
              struct err *err);
void log_remove(const struct train_options *o);
int log_check(const struct train_options *o, const struct state *s,
              struct err *err);

#endif
