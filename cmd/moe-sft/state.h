/* The state of a training run as a file: man/moe-sft.1 "FILES". */
#ifndef MOE_SFT_STATE_H
#define MOE_SFT_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/stw.h"
#include "core/model/moe.h"
#include "core/model/train/adamw.h"

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

#endif
