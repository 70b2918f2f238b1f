/* SPDX-License-Identifier: ISC */
/* saev-write: the command line. */
#include <string.h>

#include "cmd/saev-write/run.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tool.h"

#define OPT_INTO struct write_cmd
static const struct opt opts[] = {
    { 'm', "meta", "FILE", "stream! hash! images! finish!", OPT_TEXT(meta_path),
      "metadata.json of the dump; read after the stream's first byte" },
    { 'o', "output", "DIR", "stream! hash images finish!", OPT_TEXT(parent),
      "the dump becomes DIR/HASH" },
    { 0, "dtype", "f32|f16|bf16", "stream", OPT_DTYPE(dtype),
      "type of a raw stream" },
    { 0, "raw", NULL, "stream", OPT_FLAG(raw),
      "the stream is raw, whatever it begins with" },
    { 0, "shard", "I/N", "stream hash images", OPT_SHARD(part, n_parts),
      "write part I of N (from 0), for --finish to publish" },
    { 0, "finish", NULL, NULL, OPT_NOTHING, "publish what all parts wrote" },
    { 0, "resume", NULL, NULL, OPT_FLAG(resume),
      "continue a run that was stopped" },
    { 0, "first", "IMG", "stream", OPT_U64(first, 0, INT64_MAX),
      "the stream begins with image IMG (default: this part's first)" },
    { 0, "images", NULL, NULL, OPT_NOTHING,
      "print the first image that is missing and how many; write nothing" },
    { 0, "hash", NULL, NULL, OPT_NOTHING,
      "print HASH, and the path if there is -o; write nothing" },
    { 0, "pad", NULL, NULL, OPT_FLAG(pad),
      "fill the last shard with zeros, as the Python writer does" },
    { 0, "manifest", NULL, NULL, OPT_FLAG(manifest),
      "write the XXH3 of each shard to manifest.xxh3" },
    { 0, "ids", "FILE", NULL, OPT_TEXT(ids_path),
      "token ids of the dump, as hf-infer --acts-ids writes them" },
    { 0, "if-missing", NULL, NULL, OPT_FLAG(if_missing),
      "succeed without writing if a complete dump exists" },
    { 'f', "force", NULL, NULL, OPT_FLAG(force), "replace an existing dump" },
    { 0, "no-sync", NULL, NULL, OPT_FLAG(no_sync),
      "do not wait for the disk: a power cut may spoil the dump" },
    TOOL_DEADLINE(NULL, ""),
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "report what was written" },
    TOOL_QUIET,
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_NOT, "if-missing", "force", TOOL_IF_MISSING },
    { OPT_NOT, "shard", "pad manifest ids",
      "--pad, --manifest and --ids are for --finish, not for one --shard" },
    { 0 },
};

enum { STREAM, HASH, IMAGES, FINISH }; /* as .modes below */
static const struct write_cmd defaults = { .input_path = "-", .dtype = DT_F32 };

static const struct opt_tool tool = {
    .name = "saev-write",
    .usage = "saev-write -m META -o DIR [OPTION...] [FILE]\n"
             "saev-write -m META -o DIR --shard I/N [FILE]\n"
             "saev-write -m META -o DIR --finish\n"
             "saev-write -m META --hash | --images [-o DIR]",
    .summary = "Caches a stream of activations on disk, in the SAEV protocol.",
    .examples =
        "hf-infer M --acts resid:3 --ctx 64 --acts-meta m.json < text |\n"
        "    saev-write -m m.json -o dumps\n"
        "saev-write -m m.json -o dumps --if-missing rows.f32",
    .opts = opts,
    .modes = "stream hash images finish",
    .rules = rules,
    .defaults = &defaults,
};

int
main(int argc, char **argv)
{
    struct write_cmd cmd = defaults;
    struct write_run run = { 0 };
    struct opt_line line;
    struct err err = { 0 };
    bool is_stdin;
    size_t n;
    int rc;

    tool_parse(&line, &tool, argc, argv, &cmd);
    if (line.n_args > 1)
        die_usage("one FILE at most, not \"%s\" and \"%s\"", line.args[0],
                  line.args[1]);
    if (line.n_args)
        cmd.input_path = line.args[0];
    is_stdin = !strcmp(cmd.input_path, "-");
    if (line.verb != STREAM && !is_stdin)
        die_usage("--hash, --images and --finish read no stream");
    if (line.verb == STREAM && is_stdin && !strcmp(cmd.meta_path, "-"))
        die_usage("standard input cannot be both metadata and stream");
    if (line.verb == IMAGES && cmd.resume && !cmd.parent)
        die_usage("--images --resume: -o DIR is needed");
    cmd.dtype_given = opt_given(&line, "dtype");
    cmd.first_given = opt_given(&line, "first");
    cmd.sharded = opt_given(&line, "shard");
    if (cmd.parent) {
        n = strlen(cmd.parent);
        while (n > 1 && cmd.parent[n - 1] == '/')
            n--;
        cmd.parent = xstrndup(cmd.parent, n);
        if (outdir_check_name(cmd.parent, &err) < 0)
            die_err(&err);
    }
    sig_install(false);
    rc = line.verb == STREAM || line.verb == FINISH
             ? write_dump(&run, &cmd, line.verb == FINISH, &err)
             : print_plan(&run, &cmd, line.verb == IMAGES, &err);
    run_free(&run);
    if (rc < 0)
        die_err(&err);
    tool_end(0);
}
