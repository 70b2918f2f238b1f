/* SPDX-License-Identifier: ISC */
/* moe-sft train: checks of the command line. */
#include <math.h>
#include <string.h>

#include "cmd/moe-sft/verbs.h"
#include "core/model/train/run.h"
#include "core/str.h"
#include "core/tool.h"

bool
train_is_stream(const struct cmd *cmd)
{
    return cmd->n_args == 1 && !strcmp(cmd->args[0], "-");
}

struct schedule
train_schedule(const struct train_options *o, uint64_t total)
{
    double warmup = o->warmup < 1 ? ceil(o->warmup * (double)total) : o->warmup;

    return (struct schedule){ .kind = o->schedule,
                              .lr = o->lr,
                              .total = total,
                              .warmup = (uint64_t)warmup };
}

void
train_warn_warmup(const struct schedule *s)
{
    if (s->total && s->warmup >= s->total)
        schedule_warn(s->total, s->warmup);
}

int
train_check_warmup(const struct train_options *o, struct err *err)
{
    if (o->warmup < 1 || o->warmup == floor(o->warmup))
        return 0;
    return err_set(
        err, TU_USAGE,
        "--warmup %g is neither a number of steps nor a fraction of them",
        o->warmup);
}

void
train_tell(const struct train_run *run, const struct train_options *o,
           double seconds)
{
    struct str picture = { 0 }, line = { 0 };

    if (o->plot) {
        train_run_plot(run, &picture);
        tool_put("%s", picture.s);
    }
    if (seconds > 0) {
        train_run_summary(run, train_step_table.loss, &line);
        tool_say("%s, %.0f s", line.s, seconds);
    }
    str_free(&picture);
    str_free(&line);
}

int
train_check(const struct cmd *cmd, struct err *err)
{
    const struct train_options *o = &cmd->train;
    bool stream = train_is_stream(cmd);

    if (cmd->length && !cmd->input)
        return err_set(err, TU_USAGE, "--length is for --input");
    if (!cmd->input != !o->target)
        return err_set(err, TU_USAGE, "--input and --target come together");
    if (!cmd->input && cmd->n_args == 0)
        return err_set(err, TU_USAGE,
                       "batches are missing: files, - for a stream, or --input "
                       "and --target");
    if (cmd->input && cmd->n_args > 0)
        return err_set(err, TU_USAGE, "batches are files or --input, not both");
    for (int i = 0; i < cmd->n_args; i++)
        if (!strcmp(cmd->args[i], "-") && !stream)
            return err_set(err, TU_USAGE,
                           "batches are files or -, a stream, not both");
    if (o->shuffle && stream)
        return err_set(err, TU_USAGE, "--shuffle: a stream has its own order");
    if (o->steps == 0 && !stream)
        return err_set(err, TU_USAGE, "-n STEPS is missing");
    if (o->steps == 0 && o->total == 0 &&
        (o->schedule != SCHEDULE_CONSTANT || (o->warmup > 0 && o->warmup < 1)))
        return err_set(err, TU_USAGE,
                       "--schedule and --warmup need --total, or -n");
    if (train_check_warmup(o, err) < 0)
        return -1;
    if (o->total && o->steps > o->total && o->schedule != SCHEDULE_CONSTANT)
        return err_set(err, TU_USAGE, "-n %llu is beyond --total %llu",
                       (unsigned long long)o->steps,
                       (unsigned long long)o->total);
    if (o->plot && !o->log)
        return err_set(err, TU_USAGE,
                       "--plot needs --log FILE: else the steps' lines are on "
                       "standard output");
    if (o->svg && !strcmp(o->svg, "-"))
        return err_set(err, TU_USAGE, "--svg needs a file name, not -");
    return 0;
}
