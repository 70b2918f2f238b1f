/* SPDX-License-Identifier: ISC */
/* The command line of moe-sft, and a main for each verb. */
#ifndef MOE_SFT_VERBS_H
#define MOE_SFT_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/model/engine.h"
#include "core/model/train/schedule.h"
#include "core/opt.h"

/* Of a run: as many as --warmup takes. */
#define SFT_MAX_STEPS UINT64_C(1000000000000000)

/* A layer's sizes where neither options nor files give them. */
enum {
    DEFAULT_EXPERTS = 8,
    DEFAULT_TOP_K = 2,
    DEFAULT_HIDDEN = 2048,
    DEFAULT_INTERMEDIATE = 1408,
    DEFAULT_LENGTH = 512,
    DEFAULT_RANK = 8, /* of LoRA */
};

/*
 * The command line.  A verb's main returns 0, the exit status of its answer
 * (TU_NEGATIVE), or -1 with 'err' set; only main.c prints errors and exits.
 */
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
    bool plot;             /* the loss in characters, to stdout */
};
struct tune_options {
    const char *model, *data, *init, *eval;             /* or NULL */
    const char *targets;                                /* NULL: all */
    const char *template;                               /* NULL: the model's */
    struct opt_list template_vars;                      /* NAME=VALUE */
    uint64_t batch, epochs, ctx, eval_every, log_every; /* 0: not given */
    uint64_t slices;
    enum compute compute;
    bool pack, keep_best, dry_run;
    int int8; /* the experts' base weights are */
};
struct cmd {
    const struct opt_line *line; /* which options are given */
    const char *base, *lora, *input, *grad, *cache, *output; /* or NULL */
    struct opt_list lora_args;                               /* -l */
    struct opt_list
        loras;     /* of these, between commas: for verbs with several */
    int64_t layer; /* -1: not given */
    int mode;      /* enum moe_mode; -1: not given */
    int n_threads;
    int64_t n_parts;
    int64_t rank, top_k, length, depth;              /* 0: not given */
    int64_t n_experts, hidden, intermediate, rounds; /* 0: not given */
    int64_t samples;                                 /* of check */
    struct train_options train;                      /* of train and tune */
    struct tune_options tune;                        /* of tune and check */
    double alpha;
    uint64_t seed;
    enum dtype grad_dtype;       /* of backward */
    const char *grads, *against; /* files of tune and check, or NULL */
    bool strict_ids, stacked, json, if_missing, verbose;
    int out_flags;
    char **args;
    int n_args;
};
int info_main(const struct cmd *cmd, struct err *err);
int init_main(const struct cmd *cmd, struct err *err);
int forward_main(const struct cmd *cmd, struct err *err);
int backward_main(const struct cmd *cmd, struct err *err);
int train_main(const struct cmd *cmd, struct err *err);
int tune_main(const struct cmd *cmd, struct err *err);
int check_main(const struct cmd *cmd, struct err *err);
int check_model(const struct cmd *cmd, struct err *err); /* --model's */
double check_relative(double d, double unit);            /* 0 of 0 is 0 */
int merge_main(const struct cmd *cmd, struct err *err);
int convert_main(const struct cmd *cmd, struct err *err);
int quantize_main(const struct cmd *cmd, struct err *err);
int bench_main(const struct cmd *cmd, struct err *err);

/* train_is_stream(): do the batches come from standard input?
 * train_check() checks the command line: -1 with 'err' set (TU_USAGE). */
bool train_is_stream(const struct cmd *cmd);
int train_check(const struct cmd *cmd, struct err *err);

/* train_schedule() is the schedule of so many steps, train_check_warmup()
 * checks --warmup: -1 with 'err' set (TU_USAGE).  train_warn_warmup() warns of
 * one that the steps, if their number is known, do not reach the end of. */
struct schedule train_schedule(const struct train_options *o, uint64_t total);
void train_warn_warmup(const struct schedule *s);
int train_check_warmup(const struct train_options *o, struct err *err);

/* train_tell() prints how a run has ended: the loss for --plot, and, if it took
 * some seconds, a line on stderr. */
struct train_run;
void train_tell(const struct train_run *run, const struct train_options *o,
                double seconds);

#endif
