/* The command line of moe-sft, and a main for each verb. */
#ifndef MOE_SFT_VERBS_H
#define MOE_SFT_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"

/* Exit status of training whose loss is NaN or infinite. */
#define SFT_NOT_FINITE 76

/* A layer's sizes where neither options nor files give them. */
enum {
    DEFAULT_EXPERTS = 8,
    DEFAULT_TOP_K = 2,
    DEFAULT_HIDDEN = 2048,
    DEFAULT_INTERMEDIATE = 1408,
    DEFAULT_LENGTH = 512,
};

/*
 * The command line.  A verb's main returns 0, the exit status of its answer
 * (TU_NEGATIVE), or -1 with 'err' set; only main.c prints errors and exits.
 */
struct lora_arg {
    char *path;
    int64_t layer; /* of PATH@LAYER; -1: not given */
};
struct cmd {
    const char *base, *lora, *input, *grad, *cache, *output; /* or NULL */
    struct lora_arg *loras; /* [n_loras]: for verbs with several */
    size_t n_loras;
    int64_t layer; /* -1: not given */
    int mode;      /* enum moe_mode; -1: not given */
    int n_threads;
    int64_t n_parts;
    int64_t rank, top_k, length, depth;              /* 0: not given */
    int64_t n_experts, hidden, intermediate, rounds; /* 0: not given */
    int64_t samples;                                 /* of check */
    struct train_options *train;                     /* of train alone */
    double alpha;
    uint64_t seed;
    enum dtype grads; /* of the LoRA gradients: F32 or BF16 */
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
int check_main(const struct cmd *cmd, struct err *err);
int merge_main(const struct cmd *cmd, struct err *err);
int convert_main(const struct cmd *cmd, struct err *err);
int quantize_main(const struct cmd *cmd, struct err *err);
int bench_main(const struct cmd *cmd, struct err *err);

#endif
