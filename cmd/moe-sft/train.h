/* moe-sft train: its options, and the verb. */
#ifndef MOE_SFT_TRAIN_H
#define MOE_SFT_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/train/schedule.h"
#include "core/opt.h"

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

#endif
