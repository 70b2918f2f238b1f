/* SPDX-License-Identifier: ISC */
/* The state of a training run as a file: man/moe-sft.5. */
#ifndef CORE_MODEL_TRAIN_STATE_H
#define CORE_MODEL_TRAIN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/format/st.h"
#include "core/format/stw.h"
#include "core/model/train/adamw.h"
#include "core/model/train/log.h"
#include "core/opt_value.h"

/* What must be the same when a run is resumed. */
struct train_setting {
    const char *name; /* "--lr", or "base", "adapter", "data": digests */
    char *value;
    const char *path; /* of what the digest is of, for messages */
    bool is_free;     /* it is kept, but may differ */
};
#define TRAIN_MAX_SETTINGS 40

/* Parameters by name: they, and their moments, follow each other in the
 * optimizer's arrays. */
struct train_tensor {
    const char *name;
    uint64_t shape[3]; /* n_dims of them */
    size_t n_dims;
};

/* More numbers that steps change. */
struct train_numbers {
    const char *name;
    double *at; /* [n] */
    uint64_t n;
};

struct train_state {
    const char *program;    /* for messages: "moe-sft train" */
    const char *format;     /* of the file: "moe-sft state 1" */
    const char *arithmetic; /* what the steps' bits depend on */
    bool any_isa;           /* a run with other arithmetic may continue it */
    uint64_t step;
    const struct train_table *table;
    double *records; /* [step][table->n] */
    size_t room;     /* of records */
    struct eval_list evals;
    struct train_setting settings[TRAIN_MAX_SETTINGS];
    size_t n_settings;
    const struct train_tensor *tensors; /* [n_tensors] */
    size_t n_tensors;
    struct adamw *adamw;
    const struct train_numbers *others; /* [n_others] */
    size_t n_others;
};

/* train_state_at() is the record of step i + 1. */
static inline double *
train_state_at(const struct train_state *s, uint64_t i)
{
    return s->records + i * s->table->n;
}

/* train_state_set() adds a setting, whose value is copied; 'path' is what the
 * digest is of, or NULL.  train_state_may_differ() lets the last one differ. */
void train_state_set(struct train_state *state, const char *name,
                     const char *value, const char *path);
void train_state_set_number(struct train_state *state, const char *name,
                            double value);

void train_state_may_differ(struct train_state *state);

/*
 * An option of a tool's table as a setting, whose name is what the option is
 * called, "--lr" or "-n", and whose value is opt_save()'s.
 * train_state_set_option() adds that of 'from', the tool's struct.
 * train_state_option() takes it from a state to its place in 'to'; 'kept' gets
 * a copy of a text, for opt_drop().  1; 0: the state does not say; -1 with
 * 'err' set (EX_DATAERR): it is nothing that the option can be.
 */
struct opt_tool;
void train_state_set_option(struct train_state *state,
                            const struct opt_tool *tool, const char *name,
                            const void *from);
int train_state_option(const struct st *st, const struct opt_tool *tool,
                       const char *name, void *to, struct opt_list *kept,
                       struct err *err);

/* train_state_was() fills 'err' (EX_DATAERR): the state at 'path' has another
 * value of a setting; -1. */
int train_state_was(const char *path, const char *name, const char *was,
                    const char *now, struct err *err);

/* train_state_record() appends what the next step was like, train_state_eval()
 * a loss after the last one. */
void train_state_record(struct train_state *state, const double *record);
void train_state_eval(struct train_state *state, double loss);

/*
 * train_state_write() writes the file, which gets its name by stw_commit();
 * NULL with 'err' set.  train_state_read() fills step, records, parameters
 * and moments; -1 with 'err' set: a state of other settings is EX_DATAERR and
 * names the first that differs; so is one of other arithmetic, which with
 * any_isa is a warning.  A state without checksums is damaged.
 * train_state_open() is st_open() of a state: a file that is mostly a hole is
 * EX_DATAERR, so that memory and time are bounded by what is on the disk.
 * Owner: the caller, until train_state_close(); a zeroed struct is fine.
 */
struct stw *train_state_write(const struct train_state *state, const char *path,
                              struct err *err);
int train_state_open(struct st *st, const char *path, struct err *err);
int train_state_read(struct train_state *state, const char *path,
                     struct err *err);
void train_state_close(struct train_state *state);

#endif
