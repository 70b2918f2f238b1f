/* moe-sft train: the options that no other verb has. */
#ifndef MOE_SFT_TRAIN_H
#define MOE_SFT_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/moe-sft/verbs.h"
#include "core/err.h"
#include "core/model/train/schedule.h"

struct train_options {
    const char *target; /* with --input: activations instead of batches */
    uint64_t steps;     /* 0: to the end of the stream */
    uint64_t total;     /* of the schedule; 0: 'steps' */
    enum schedule_kind schedule;
    double lr, warmup; /* warmup below 1: a fraction of 'total' */
    double clip, beta1, beta2, eps, weight_decay;
    uint64_t accumulate, save_every; /* save_every 0: only at the end */
    bool shuffle, resume, any_isa;
    const char *log, *svg; /* NULL: none; without a log, lines go to stdout */
};

/* train_is_stream(): do the batches come from standard input?
 * train_check() checks the command line: -1 with 'err' set, TU_USAGE, or
 * EX_CANTCREAT for a log or picture that cannot be a file. */
bool train_is_stream(const struct cmd *cmd);
int train_check(const struct cmd *cmd, struct err *err);

#endif
