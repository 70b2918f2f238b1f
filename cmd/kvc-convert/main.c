/* SPDX-License-Identifier: ISC */
/* kvc-convert: the command line. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/kvc-convert/source.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"

#define OPT_INTO struct convert_cmd
static const struct opt opts[] = {
    { 'i', "input", "FILE", "convert!", OPT_TEXT(input),
      "a .pth, .safetensors or .bin" },
    { 'o', "output", "FILE", "convert!", OPT_TEXT(output),
      "a .bin or, of a .bin, .safetensors; whole or not at all" },
    { 0, "dtype", "f16|bf16|f32", "convert", OPT_DTYPE(dtype),
      "type of the numbers in the .bin (default f16)" },
    { 0, "prefix-order", "LIST", "convert", OPT_TEXT(prefix_order),
      "names of the MLPs (default compress_tk,compress_tv,compress_ik,..)" },
    { 0, "slot-order", "LIST", "convert", OPT_TEXT(slot_order),
      "their linear layers (default 0,3,6)" },
    { 0, "compression-factor", "N", "convert", OPT_I64(factor, 0, UINT32_MAX),
      "tokens compressed to one (default 0: columns / head_dim)" },
    { 0, "min-seq-len", "N", "convert", OPT_I64(min_seq_len, 0, UINT32_MAX),
      "groups below which nothing is compressed (default 2)" },
    { 0, "num-heads", "N", "convert", OPT_I64(num_heads, 0, UINT32_MAX),
      "heads in the header (default 0)" },
    { 0, "head-dim", "N", "convert", OPT_I64(head_dim, 0, UINT32_MAX),
      "size of a head in the header (default 0: rows of the last weight)" },
    { 0, "strict", NULL, "convert", OPT_FLAG(strict),
      "look for the weights only where the engine's script does" },
    { 0, "allow", "NAME", "convert", OPT_LIST(allowed, SIZE_MAX),
      "a class or function to ignore in the checkpoint; repeatable" },
    { 0, "allow-views", NULL, "convert", OPT_FLAG(allow_views),
      "do not limit how large views of stored numbers become" },
    { 0, "provenance", NULL, "convert", OPT_FLAG(provenance),
      "record the source in the file's metadata" },
    { 0, "if-missing", NULL, "convert", OPT_FLAG(if_missing),
      "succeed without writing if a sound OUTPUT exists" },
    { 0, "info", NULL, NULL, OPT_NOTHING, "print a .bin's header and blocks" },
    { 0, "check", NULL, NULL, OPT_NOTHING,
      "check that an engine can use a .bin" },
    { 0, "layers", "N", "check", OPT_I64(layers, 1, UINT32_MAX),
      "layers of the model" },
    { 0, "diff", NULL, NULL, OPT_NOTHING, "compare two .bin, in ULP" },
    { 0, "json", NULL, "info", OPT_FLAG(json), "JSON instead of TSV" },
    TOOL_FORCE("convert"),
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "report what was used, ignored, and not called" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings" },
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_NOT, "if-missing", "force", TOOL_IF_MISSING },
    { 0 },
};

static const struct convert_cmd defaults = { .dtype = -1,
                                             .factor = -1,
                                             .min_seq_len = -1,
                                             .num_heads = -1,
                                             .head_dim = -1 };

static const struct opt_tool tool = {
    .name = "kvc-convert",
    .usage = "kvc-convert --input X.pth --output Y.bin [OPTION...]\n"
             "kvc-convert --input Y.bin --output Z.safetensors\n"
             "kvc-convert --info Y.bin\n"
             "kvc-convert --check [--layers N] Y.bin...\n"
             "kvc-convert --diff A.bin B.bin",
    .summary = "Converts KV-cache compressor checkpoints to the .bin that "
               "engines load, or back.",
    .examples = "kvc-convert --input c.pth --output c.bin\n"
                "kvc-convert --check --layers 28 c.bin",
    .opts = opts,
    .modes = "convert info check diff",
    .rules = rules,
    .defaults = &defaults,
};

struct job {
    const struct convert_cmd *cmd;
    bool to_bin;
};

static int
is_sound(void *ctx, struct err *err)
{
    const struct job *job = ctx;
    const char *path = job->cmd->output;
    struct stdir dir = { 0 };
    struct kvc k = { 0 };
    int rc;

    if (access(path, F_OK) < 0)
        return 0;
    rc = job->to_bin ? kvc_open(&k, path, err) : stdir_open(&dir, path, err);
    stdir_close(&dir);
    kvc_close(&k);
    return rc < 0 ? -1 : 1;
}

static int
make(void *ctx, struct err *err)
{
    const struct job *job = ctx;

    return job->to_bin ? convert(job->cmd, err) : back(job->cmd, err);
}

static int
convert_main(const struct convert_cmd *cmd, struct err *err)
{
    enum form form;
    struct order order = { 0 };
    struct job job = { .cmd = cmd };
    bool of_bin = cmd->strict || cmd->allowed.n || cmd->allow_views ||
                  cmd->provenance || cmd->dtype >= 0 || cmd->factor >= 0 ||
                  cmd->min_seq_len >= 0 || cmd->num_heads >= 0 ||
                  cmd->head_dim >= 0;
    int rc;

    if (cmd->n_args)
        return err_set(err, TU_USAGE,
                       "\"%s\": name files with --input and --output",
                       cmd->args[0]);
    for (size_t i = 0; i < cmd->allowed.n; i++) {
        const char *global = cmd->allowed.item[i];
        const char *dot = strrchr(global, '.');
        char *module = xstrndup(global, dot ? (size_t)(dot - global) : 0);
        bool dangerous = dot && pickle_dangerous(module, dot + 1);

        free(module);
        if (!dot || dot == global || !dot[1])
            return err_set(err, TU_USAGE, "--allow: \"%s\" is not MODULE.NAME",
                           global);
        if (dangerous)
            return err_set(err, TU_USAGE,
                           "--allow: %s could run code: no checkpoint needs it",
                           global);
    }
    rc = order_read(&order,
                    cmd->prefix_order ? cmd->prefix_order : DEFAULT_PREFIXES,
                    cmd->slot_order ? cmd->slot_order : DEFAULT_SLOTS, err);
    order_free(&order);
    if (rc < 0 || form_of(cmd->input, &form, err) < 0)
        return -1;
    if (str_ends(cmd->output, ".pth"))
        return err_set(err, TU_USAGE,
                       "--output: %s: checkpoints are not written (expected "
                       ".bin or .safetensors)",
                       cmd->output);
    job.to_bin = form != FORM_BIN;
    if (form != FORM_UNKNOWN &&
        str_ends(cmd->output, job.to_bin ? ".safetensors" : ".bin"))
        return err_set(err, TU_USAGE, "--output: %s is converted to %s",
                       cmd->input,
                       job.to_bin ? "a .bin, not to safetensors"
                                  : "safetensors, and these to a .bin");
    if (!job.to_bin && of_bin)
        return err_set(err, TU_USAGE,
                       "--input: %s is a .bin already: only --prefix-order and "
                       "--slot-order apply",
                       cmd->input);
    return tool_make(cmd->if_missing, is_sound, make, &job, err);
}

static mode_main *const mains[] = { convert_main, info, check, diff };

int
main(int argc, char **argv)
{
    struct convert_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };
    int status;

    tool_parse(&line, &tool, argc, argv, &cmd);
    cmd.args = line.args;
    cmd.n_args = line.n_args;
    sig_install(true);
    status = mains[line.verb](&cmd, &err);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
