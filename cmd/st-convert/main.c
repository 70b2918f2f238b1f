/* SPDX-License-Identifier: ISC */
/* st-convert: the command line. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/st-convert/cmd.h"
#include "cmd/st-convert/plan.h"
#include "cmd/st-convert/write.h"
#include "core/format/stdir.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/tool.h"
#include "core/tty.h"

#define OPT_INTO struct st_convert_cmd
static const struct opt opts[] = {
    { 0, "dtype", "bf16|f16|f32", NULL, OPT_DTYPE(dtype),
      "round floating tensors to that, to nearest even" },
    { 0, "weights", "fp8|int8|int4", NULL, OPT_WORD(weights, ENCODE_F8),
      "pack the weights of linear layers, as compressed-tensors" },
    { 0, "group", "N", NULL, OPT_I64(group, 8, 1 << 20),
      "columns that have a scale, a multiple of 8 (default: int4 128, int8 all)" },
    { 0, "asymmetric", NULL, NULL, OPT_FLAG(asymmetric),
      "int4 with a zero point for each scale" },
    { 0, "scales", "lsq|absmax", NULL, OPT_WORD(absmax, 0),
      "int4's scales: of least squared error, or absmax / 7.5" },
    { 0, "activations", "DIR", NULL, OPT_FILE(activations),
      "weigh errors by what layers read: hf-infer --acts in:.. -o DIR" },
    { 0, "head", NULL, NULL, OPT_FLAG(head),
      "pack lm_head, too; of a tied model as a copy of its own" },
    { 0, "ignore", "GLOB", NULL, OPT_LIST(ignored, SIZE_MAX),
      "leave these layers as they are; repeatable" },
    { 0, "dequantize", NULL, NULL, OPT_FLAG(dequantize),
      "packed weights back to numbers" },
    { 0, "select", "GLOB", NULL, OPT_LIST(selected, SIZE_MAX),
      "only these tensors; repeatable" },
    { 0, "rename", "FROM=TO", NULL, OPT_LIST(renamed, SIZE_MAX),
      "replace FROM in names (^FROM: at their start); repeatable" },
    { 0, "shard-size", "BYTES", NULL, OPT_SIZE(shard_nbytes, 1),
      "files of at most that, such as 4GiB (default: as the input)" },
    { 0, "merge", NULL, NULL, OPT_FLAG(merge), "one file" },
    { 0, "json", NULL, NULL, OPT_FLAG(json), "JSON instead of TSV" },
    OPT_PUT('o', "output", "OUT", NULL, OPT_FILE(out_path),
            "a directory or, for a file, a file; whole or not at all"),
    TOOL_FORCE(NULL),
    { 0, "if-missing", NULL, NULL, OPT_FLAG(if_missing),
      "succeed without writing if a sound OUT exists" },
    TOOL_THREADS(NULL),
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "report what is left as it is, and why" },
    TOOL_QUIET,
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_NOT, "if-missing", "force", TOOL_IF_MISSING },
    { OPT_NOT, "merge", "shard-size", NULL },
    { OPT_NOT, "dequantize", "weights",
      "--dequantize first, then --weights of what it makes" },
    { OPT_NEEDS, "group asymmetric scales activations head ignore", "weights",
      NULL },
    { 0 },
};

static const struct st_convert_cmd defaults = { .dtype = -1, .weights = -1 };

static const struct opt_group groups[] = {
    { "dtype", "numbers" },
    { "select", "tensors and files" },
    { "json", "output" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "st-convert",
    .usage = "st-convert [OPTION...] -o OUT MODEL|FILE",
    .summary = "Converts safetensors: types, packed weights, names, shards.",
    .examples = "st-convert MODEL -o Q --weights int4\n"
                "st-convert MODEL -o one --merge --dtype f16",
    .opts = opts,
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
};

static int
is_sound(void *ctx, struct err *err)
{
    const struct st_convert_cmd *cmd = ctx;
    struct stdir out = { 0 };
    int rc;

    if (access(cmd->out_path, F_OK) < 0)
        return 0;
    rc = stdir_open(&out, cmd->out_path, err);
    stdir_close(&out);
    return rc < 0 ? -1 : 1;
}

static int
convert(void *cmd, struct err *err)
{
    struct convert_plan plan;
    int rc = plan_open(&plan, cmd, err);

    if (rc == 0)
        rc = convert_write(&plan, err);
    plan_close(&plan);
    return rc;
}

static int
check(const struct st_convert_cmd *cmd, struct err *err)
{
    if (cmd->weights != ENCODE_I4 && (cmd->asymmetric || cmd->activations))
        return err_set(err, TU_USAGE, "%s is for --weights int4",
                       cmd->asymmetric ? "--asymmetric" : "--activations");
    if (cmd->activations && cmd->absmax)
        return err_set(err, TU_USAGE,
                       "--activations is for --scales lsq, which looks at "
                       "errors");
    if (cmd->weights == ENCODE_F8 && cmd->group)
        return err_set(err, TU_USAGE, "--group is for --weights int4 and int8");
    if (cmd->group % 8)
        return err_set(err, TU_USAGE, "--group: %lld is not a multiple of 8",
                       (long long)cmd->group);
    return 0;
}

int
main(int argc, char **argv)
{
    struct st_convert_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };

    tool_parse(&line, &tool, argc, argv, &cmd);
    if (line.n_args != 1)
        die_usage(line.n_args ? "one MODEL or FILE, not %d"
                              : "a MODEL or FILE is missing",
                  line.n_args);
    if (!cmd.out_path)
        die_usage("-o OUT is missing");
    cmd.input = line.args[0];
    sig_install(true);
    if (check(&cmd, &err) < 0 ||
        tool_make(cmd.if_missing, is_sound, convert, &cmd, &err) < 0)
        die_err(&err);
    free(cmd.ignored.item);
    free(cmd.selected.item);
    free(cmd.renamed.item);
    tool_end(0);
}
