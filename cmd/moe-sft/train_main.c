/* moe-sft train: what its options must be. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/moe-sft/train.h"
#include "cmd/moe-sft/verbs.h"
#include "core/format/stdir.h"
#include "core/map.h"
#include "core/out.h"
#include "core/sig.h"

static bool
is_stream(const struct train_options *o)
{
    return o->n_files == 1 && !strcmp(o->files[0], "-");
}

static int
check_data(const struct train_options *o, struct err *err)
{
    if (!o->input != !o->target)
        return err_set(err, TU_USAGE, "--input and --target come together");
    if (!o->input && o->n_files == 0)
        return err_set(err, TU_USAGE,
                       "batches are missing: files, - for a stream, or --input "
                       "and --target");
    if (o->input && o->n_files > 0)
        return err_set(err, TU_USAGE, "batches are files or --input, not both");
    for (size_t i = 0; i < o->n_files; i++)
        if (!strcmp(o->files[i], "-") && o->n_files > 1)
            return err_set(err, TU_USAGE,
                           "batches are files or -, a stream, not both");
    if (o->shuffle && is_stream(o))
        return err_set(err, TU_USAGE, "--shuffle: a stream has its own order");
    return 0;
}

static int
check_schedule(const struct train_options *o, struct err *err)
{
    if (o->steps == 0 && !is_stream(o))
        return err_set(err, TU_USAGE, "-n STEPS is missing");
    if (o->steps == 0 && o->total == 0 &&
        (o->schedule != SCHEDULE_CONSTANT || (o->warmup > 0 && o->warmup < 1)))
        return err_set(err, TU_USAGE,
                       "--schedule and --warmup need --total, or -n");
    if (o->warmup >= 1 && o->warmup != floor(o->warmup))
        return err_set(err, TU_USAGE,
                       "--warmup %g is neither steps nor a part of them",
                       o->warmup);
    if (o->total && o->steps > o->total && o->schedule != SCHEDULE_CONSTANT)
        return err_set(err, TU_USAGE, "-n %llu is beyond --total %llu",
                       (unsigned long long)o->steps,
                       (unsigned long long)o->total);
    return 0;
}

/* Does the run keep it in DIR? */
static bool
is_kept(const struct train_options *o, const char *path)
{
    static const char *const names[] = { "state", "lora" };
    bool found = false;

    for (int i = 0; path && i < 2; i++) {
        struct str kept = { 0 };

        str_addf(&kept, "%s/%s.safetensors", o->dir, names[i]);
        found = found || file_same(path, kept.s);
        str_free(&kept);
    }
    return found;
}

/* Is that also a file that the run reads, or keeps? */
static bool
is_other(const struct train_options *o, const char *path)
{
    const char *const other[] = { o->base, o->lora, o->dir, o->input,
                                  o->target };
    bool found = is_kept(o, path);

    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        found = found || stdir_holds(other[i], path);
    for (size_t i = 0; i < o->n_files; i++)
        found = found || stdir_holds(o->files[i], path);
    return found;
}

/* What is read is not to be what is written again and again. */
static int
check_inputs(const struct train_options *o, struct err *err)
{
    const char *const in[] = { o->base, o->lora };

    for (int i = 0; i < 2; i++)
        if (is_kept(o, in[i]))
            return err_set(err, TU_USAGE, "-%c %s is what -o %s would replace",
                           i ? 'l' : 'b', in[i], o->dir);
    return 0;
}

/* Each is written again and again, as a whole. */
static int
check_kind(const char *path, struct err *err)
{
    struct stat st;

    if (!path || stat(path, &st) < 0 || S_ISREG(st.st_mode) ||
        S_ISCHR(st.st_mode))
        return 0;
    return err_set(err, EX_CANTCREAT, "%s: is not a file", path);
}

static int
check_outputs(struct train_options *o, struct err *err)
{
    if (o->log && !strcmp(o->log, "-"))
        o->log = NULL;
    if (o->svg && !strcmp(o->svg, "-"))
        return err_set(err, TU_USAGE, "--svg wants a file's name, not -");
    if (is_other(o, o->log))
        return err_set(err, TU_USAGE,
                       "--log %s is the name of another file of this command",
                       o->log);
    if (is_other(o, o->svg) || file_same(o->svg, o->log))
        return err_set(err, TU_USAGE,
                       "--svg %s is the name of another file of this command",
                       o->svg);
    return check_kind(o->log, err) < 0 ? -1 : check_kind(o->svg, err);
}

int
train_main(const struct cmd *cmd, struct err *err)
{
    struct train_options o = *cmd->train;

    o.base = cmd->base;
    o.lora = cmd->lora;
    o.dir = cmd->output;
    o.layer = cmd->layer;
    o.input = cmd->input;
    o.files = cmd->args;
    o.n_files = (size_t)cmd->n_args;
    o.force = cmd->out_flags & OUT_FORCE;
    o.verbose = cmd->verbose;
    o.strict_ids = cmd->strict_ids;
    o.seed = cmd->seed;
    if (cmd->length && !o.input)
        return err_set(err, TU_USAGE, "--length is for --input");
    if (cmd->length)
        o.length = (uint64_t)cmd->length;
    o.mode = cmd->mode;
    o.n_parts = (size_t)cmd->n_parts;
    o.n_threads = cmd->n_threads;
    if (check_inputs(&o, err) < 0 || check_data(&o, err) < 0 ||
        check_schedule(&o, err) < 0 || check_outputs(&o, err) < 0)
        return -1;
    sig_install(false);
    return train_run(&o, err);
}
