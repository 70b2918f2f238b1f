/* saev-write: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-write/write.h"
#include "core/mem.h"
#include "core/opt.h"
#include "core/sig.h"
#include "core/tool.h"

enum {
    O_HASH = OPT_LONG,
    O_IMAGES,
    O_FINISH,
    O_DTYPE,
    O_RAW,
    O_SHARD,
    O_RESUME,
    O_FIRST,
    O_PAD,
    O_MANIFEST,
    O_IF_MISSING,
    O_NO_SYNC,
    O_DEADLINE,
};

static const struct opt opts[] = {
    { 'm', "meta", "FILE", NULL, OPT_NOTHING,
      "metadata.json of the dump; read after the stream's first byte" },
    { 'o', "output", "FOLDER", NULL, OPT_NOTHING,
      "the dump becomes FOLDER/HASH" },
    { O_DTYPE, "dtype", "f32|f16|bf16", NULL, OPT_NOTHING,
      "of a raw stream (default f32)" },
    { O_RAW, "raw", NULL, NULL, OPT_NOTHING,
      "the stream is raw, whatever it begins with" },
    { O_SHARD, "shard", "I/N", NULL, OPT_NOTHING,
      "write part I of N (from 0), for --finish to publish" },
    { O_FINISH, "finish", NULL, NULL, OPT_NOTHING,
      "publish what all parts have written" },
    { O_RESUME, "resume", NULL, NULL, OPT_NOTHING,
      "pass over what a run that was stopped has written" },
    { O_FIRST, "first", "IMG", NULL, OPT_NOTHING,
      "the stream begins with image IMG (default: this part's first)" },
    { O_IMAGES, "images", NULL, NULL, OPT_NOTHING,
      "print the first image that is missing and how many; write nothing" },
    { O_HASH, "hash", NULL, NULL, OPT_NOTHING,
      "print HASH, and the path if there is -o; write nothing" },
    { O_PAD, "pad", NULL, NULL, OPT_NOTHING,
      "zeros behind the last image, as the Python writer leaves them" },
    { O_MANIFEST, "manifest", NULL, NULL, OPT_NOTHING,
      "XXH3 of each shard in manifest.xxh3 beside them" },
    { O_IF_MISSING, "if-missing", NULL, NULL, OPT_NOTHING,
      "a dump that is there and right is success, nothing is written" },
    { 'f', "force", NULL, NULL, OPT_NOTHING, "replace a dump that is there" },
    { O_NO_SYNC, "no-sync", NULL, NULL, OPT_NOTHING,
      "do not wait for the disk: a power cut may spoil the dump" },
    { O_DEADLINE, "deadline", "SECONDS", NULL, OPT_NOTHING,
      "stop after that as SIGTERM does: status 75" },
    { 'v', "verbose", NULL, NULL, OPT_NOTHING,
      "what was written, and how fast" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings, no progress" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "saev-write",
    .usage = "saev-write -m META -o FOLDER [OPTION...] [FILE]\n"
             "saev-write -m META -o FOLDER --shard I/N [FILE]\n"
             "saev-write -m META -o FOLDER --finish\n"
             "saev-write -m META --hash | --images [-o FOLDER]",
    .summary = "Caches a stream of activations on disk, in the SAEV protocol.",
    .opts = opts,
};

static int
set_value(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    size_t n = strlen(arg);
    double seconds;

    switch (id) {
    case 'm':
        cmd->meta_path = arg;
        return 0;
    case 'o':
        while (n > 1 && arg[n - 1] == '/')
            n--;
        free(cmd->parent);
        cmd->parent = xstrndup(arg, n);
        return 0;
    case O_DTYPE:
        cmd->dtype_given = true;
        return opt_dtype("--dtype", arg, &cmd->dtype, err);
    case O_SHARD:
        cmd->sharded = true;
        return opt_shard(arg, &cmd->part, &cmd->n_parts, err);
    case O_FIRST:
        cmd->first_given = true;
        return opt_u64("--first", arg, 0, INT64_MAX, &cmd->first, err);
    default:
        if (opt_f64("--deadline", arg, 0, 1e9, &seconds, err) < 0)
            return -1;
        sig_deadline(seconds);
        return 0;
    }
}

static int
set_option(struct cmd *cmd, enum mode *mode, int id, const char *arg,
           struct err *err)
{
    const struct opt_place places[] = {
        { O_RAW, &cmd->raw, NULL },
        { O_RESUME, &cmd->resume, NULL },
        { O_PAD, &cmd->pad, NULL },
        { O_MANIFEST, &cmd->manifest, NULL },
        { O_IF_MISSING, &cmd->if_missing, NULL },
        { O_NO_SYNC, &cmd->no_sync, NULL },
        { 'f', &cmd->force, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 0 },
    };
    enum mode wish = id == O_HASH     ? HASH
                     : id == O_IMAGES ? IMAGES
                     : id == O_FINISH ? FINISH
                                      : STREAM;

    if (wish != STREAM) {
        if (*mode != STREAM && *mode != wish)
            return err_set(err, TU_USAGE,
                           "--hash, --images and --finish are three things");
        *mode = wish;
        return 0;
    }
    if (opt_store(places, id, arg))
        return 0;
    return set_value(cmd, id, arg, err);
}

/* Options that say opposite things, or that need another one. */
static void
check_options(const struct cmd *cmd, enum mode mode)
{
    if (!cmd->meta_path)
        die_usage("-m META is missing");
    if (!cmd->parent && mode != HASH && (mode != IMAGES || cmd->resume))
        die_usage("-o FOLDER is missing");
    if (cmd->if_missing && cmd->force)
        die_usage("--if-missing keeps what --force replaces");
    if (mode == FINISH && cmd->sharded)
        die_usage("--finish publishes all parts, not one --shard");
    if (cmd->sharded && (cmd->manifest || cmd->pad))
        die_usage("--%s is for --finish, not for one --shard",
                  cmd->pad ? "pad" : "manifest");
    if (mode != STREAM && (cmd->first_given || cmd->dtype_given || cmd->raw ||
                           strcmp(cmd->input_path, "-") != 0))
        die_usage("--hash, --images and --finish read no stream");
    if (mode == STREAM && !strcmp(cmd->meta_path, "-") &&
        !strcmp(cmd->input_path, "-"))
        die_usage("standard input cannot be both metadata and stream");
}

static enum mode
parse(struct cmd *cmd, int argc, char **argv)
{
    enum mode mode = STREAM;
    struct err err;
    const char *arg;
    int id, index;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1)
        if (set_option(cmd, &mode, id, arg, &err) < 0)
            die_err(&err);
    if (argc - index > 1)
        die_usage("one FILE at most, not \"%s\" and \"%s\"", argv[index],
                  argv[index + 1]);
    if (index < argc)
        cmd->input_path = argv[index];
    check_options(cmd, mode);
    if (cmd->parent && outdir_check_name(cmd->parent, &err) < 0)
        die_err(&err);
    return mode;
}

int
main(int argc, char **argv)
{
    struct cmd cmd = { .input_path = "-", .dtype = DT_F32 };
    struct run run = { 0 };
    struct err err = { 0 };
    enum mode mode;
    int rc;

    tool_start(&tool);
    sig_install(false);
    mode = parse(&cmd, argc, argv);
    if (cmd.quiet)
        tool_quiet();
    rc = run_mode(&run, &cmd, mode, &err);
    run_free(&run);
    if (rc < 0)
        die_err(&err);
    tool_end(0);
}
