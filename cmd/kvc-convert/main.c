/* kvc-convert: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/kvc-convert/cmd.h"
#include "cmd/kvc-convert/order.h"
#include "cmd/kvc-convert/pickle.h"
#include "cmd/kvc-convert/source.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tool.h"

enum {
    O_INPUT = OPT_LONG,
    O_FROM,
    O_DTYPE,
    O_FACTOR,
    O_MIN_SEQ_LEN,
    O_PREFIX_ORDER,
    O_SLOT_ORDER,
    O_NUM_HEADS,
    O_HEAD_DIM,
    O_STRICT,
    O_ALLOW,
    O_ALLOW_VIEWS,
    O_PROVENANCE,
    O_INFO,
    O_CHECK,
    O_LAYERS,
    O_DIFF,
    O_JSON,
    O_IF_MISSING,
};

static const struct opt opts[] = {
    { O_INPUT, "input", "FILE", NULL, OPT_NOTHING,
      "a .pth, .safetensors or .bin" },
    { 'o', "output", "FILE", NULL, OPT_NOTHING,
      "a .bin, or of a .bin, safetensors; whole or not at all" },
    { O_FROM, "from", "pth|safetensors|bin", NULL, OPT_NOTHING,
      "the form of --input (default: what it begins like)" },
    { O_DTYPE, "dtype", "fp16|bf16|fp32", NULL, OPT_NOTHING,
      "of the numbers written (default fp16)" },
    { O_PREFIX_ORDER, "prefix-order", "LIST", NULL, OPT_NOTHING,
      "names of the MLPs (default compress_tk,compress_tv,compress_ik,..)" },
    { O_SLOT_ORDER, "slot-order", "LIST", NULL, OPT_NOTHING,
      "their linear layers (default 0,3,6)" },
    { O_FACTOR, "compression-factor", "N", NULL, OPT_NOTHING,
      "tokens that become one (default 0: columns / head_dim)" },
    { O_MIN_SEQ_LEN, "min-seq-len", "N", NULL, OPT_NOTHING,
      "groups below which nothing is compressed (default 2)" },
    { O_NUM_HEADS, "num-heads", "N", NULL, OPT_NOTHING,
      "of the header (default 0)" },
    { O_HEAD_DIM, "head-dim", "N", NULL, OPT_NOTHING,
      "of the header (default 0: rows of the first weight)" },
    { O_STRICT, "strict", NULL, NULL, OPT_NOTHING,
      "no names with module. or compressor. before them, no state_dict" },
    { O_ALLOW, "allow", "NAME", NULL, OPT_NOTHING,
      "a class or function that the checkpoint may name, unused; repeatable" },
    { O_ALLOW_VIEWS, "allow-views", NULL, NULL, OPT_NOTHING,
      "views of few numbers may become many: no bound on the output" },
    { O_PROVENANCE, "provenance", NULL, NULL, OPT_NOTHING,
      "say in the file's metadata where it is from" },
    { O_IF_MISSING, "if-missing", NULL, NULL, OPT_NOTHING,
      "a sound OUTPUT that is there already is success" },
    { O_INFO, "info", NULL, NULL, OPT_NOTHING,
      "print a .bin's header and blocks" },
    { O_CHECK, "check", NULL, NULL, OPT_NOTHING,
      "is a .bin one that an engine can use?" },
    { O_LAYERS, "layers", "N", NULL, OPT_NOTHING,
      "--check: layers of the model" },
    { O_DIFF, "diff", NULL, NULL, OPT_NOTHING,
      "how far two .bin are apart, in ULP" },
    { O_JSON, "json", NULL, NULL, OPT_NOTHING, "--info: JSON instead of TSV" },
    { 'f', "force", NULL, NULL, OPT_NOTHING, "replace an existing OUTPUT" },
    { 'v', "verbose", NULL, NULL, OPT_NOTHING,
      "what was used, ignored, and not called" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "kvc-convert",
    .usage = "kvc-convert --input X.pth --output Y.bin [OPTION...]\n"
             "kvc-convert --input Y.bin --output Z.safetensors\n"
             "kvc-convert --info Y.bin\n"
             "kvc-convert --check [--layers N] Y.bin...\n"
             "kvc-convert --diff A.bin B.bin",
    .summary = "Turns KV-cache compressor checkpoints into the .bin that "
               "engines load, and back.",
    .opts = opts,
};

enum mode { CONVERT, INFO, CHECK, DIFF };

static int
set_number(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    switch (id) {
    case O_FACTOR:
        return opt_i64("--compression-factor", arg, 0, UINT32_MAX, &cmd->factor,
                       err);
    case O_MIN_SEQ_LEN:
        return opt_i64("--min-seq-len", arg, 0, UINT32_MAX, &cmd->min_seq_len,
                       err);
    case O_NUM_HEADS:
        return opt_i64("--num-heads", arg, 0, UINT32_MAX, &cmd->num_heads, err);
    case O_HEAD_DIM:
        return opt_i64("--head-dim", arg, 0, UINT32_MAX, &cmd->head_dim, err);
    default:
        return opt_i64("--layers", arg, 1, UINT32_MAX, &cmd->layers, err);
    }
}

/* Where an option that is a switch, or a string kept as it is, goes. */
static bool
set_plain(struct cmd *cmd, int id, const char *arg)
{
    const struct opt_place places[] = {
        { O_INPUT, NULL, &cmd->input },
        { 'o', NULL, &cmd->output },
        { O_PREFIX_ORDER, NULL, &cmd->prefix_order },
        { O_SLOT_ORDER, NULL, &cmd->slot_order },
        { O_STRICT, &cmd->strict, NULL },
        { O_ALLOW_VIEWS, &cmd->allow_views, NULL },
        { O_PROVENANCE, &cmd->provenance, NULL },
        { O_IF_MISSING, &cmd->if_missing, NULL },
        { O_JSON, &cmd->json, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 0 },
    };

    return opt_store(places, id, arg);
}

static void
set_mode(enum mode *mode, enum mode to)
{
    if (*mode != CONVERT)
        die_usage("--info, --check and --diff: one of them, once");
    *mode = to;
}

/* MODULE.NAME; what could run code stays refused. */
static int
add_allowed(struct cmd *cmd, const char *arg, struct err *err)
{
    const char *dot = strrchr(arg, '.');
    char *module = xstrndup(arg, dot ? (size_t)(dot - arg) : 0);
    bool dangerous = dot && pickle_dangerous(module, dot + 1);

    free(module);
    if (!dot || dot == arg || !dot[1])
        return err_set(err, TU_USAGE, "--allow: \"%s\" is not MODULE.NAME",
                       arg);
    if (dangerous)
        return err_set(err, TU_USAGE,
                       "--allow: %s could run code: no checkpoint needs it",
                       arg);
    cmd->allowed =
        xrealloc(cmd->allowed, cmd->n_allowed + 2, sizeof(*cmd->allowed));
    cmd->allowed[cmd->n_allowed++] = arg;
    cmd->allowed[cmd->n_allowed] = NULL;
    return 0;
}

static int
set_option(struct cmd *cmd, enum mode *mode, int id, const char *arg,
           struct err *err)
{
    static const char *const forms[] = { "pth", "safetensors", "bin", NULL };
    static const char *const dtypes[] = { "fp16", "bf16", "fp32", NULL };
    static const enum dtype dtype_of[] = { DT_F16, DT_BF16, DT_F32 };
    int i;

    if (set_plain(cmd, id, arg))
        return 0;
    switch (id) {
    case O_INFO:
        set_mode(mode, INFO);
        return 0;
    case O_CHECK:
        set_mode(mode, CHECK);
        return 0;
    case O_DIFF:
        set_mode(mode, DIFF);
        return 0;
    case 'f':
        cmd->out_flags = OUT_FORCE;
        return 0;
    case O_ALLOW:
        return add_allowed(cmd, arg, err);
    case O_FROM:
        i = opt_word("--from", arg, forms, err);
        cmd->from = (enum form)(FORM_PTH + i);
        return i < 0 ? -1 : 0;
    case O_DTYPE:
        if ((i = opt_word("--dtype", arg, dtypes, err)) >= 0)
            cmd->dtype = (int)dtype_of[i];
        return i < 0 ? -1 : 0;
    default:
        return set_number(cmd, id, arg, err);
    }
}

/* Is there an option that shapes a .bin that is made? */
static bool
shapes_bin(const struct cmd *cmd)
{
    return cmd->dtype >= 0 || cmd->factor >= 0 || cmd->min_seq_len >= 0 ||
           cmd->num_heads >= 0 || cmd->head_dim >= 0 || cmd->strict ||
           cmd->allowed || cmd->allow_views || cmd->provenance;
}

/* Options that say opposite things, or that need another one. */
static void
check_options(const struct cmd *cmd, enum mode mode)
{
    struct order order = { 0 };
    struct err err;

    if (mode == CONVERT) {
        if (!cmd->input || !cmd->output)
            die_usage("--input FILE and --output FILE are needed");
        if (file_same(cmd->input, cmd->output))
            die_usage("--input and --output are both %s", cmd->output);
        if (cmd->n_args)
            die_usage("\"%s\": files are named by --input and --output",
                      cmd->args[0]);
        if (cmd->layers || cmd->json)
            die_usage("--layers is for --check, --json for --info");
    } else if (cmd->input || cmd->output || cmd->out_flags) {
        die_usage("--info, --check and --diff take FILE.bin as operands");
    } else if (shapes_bin(cmd) || cmd->from || cmd->prefix_order ||
               cmd->slot_order || cmd->if_missing) {
        die_usage("--info, --check and --diff convert nothing");
    }
    if (mode != CHECK && cmd->layers)
        die_usage("--layers is for --check");
    if (mode != INFO && cmd->json)
        die_usage("--json is for --info");
    if ((cmd->prefix_order &&
         order_prefixes(&order, cmd->prefix_order, &err) < 0) ||
        (cmd->slot_order && order_slots(&order, cmd->slot_order, &err) < 0))
        die_err(&err);
    order_free(&order);
    if (cmd->if_missing && cmd->out_flags)
        die_usage("--if-missing keeps what --force replaces");
}

static enum mode
parse(struct cmd *cmd, int argc, char **argv)
{
    enum mode mode = CONVERT;
    struct err err;
    const char *arg;
    int id, index;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1)
        if (set_option(cmd, &mode, id, arg, &err) < 0)
            die_err(&err);
    cmd->args = argv + index;
    cmd->n_args = argc - index;
    check_options(cmd, mode);
    return mode;
}

/* --if-missing: 1 if the output is there and sound. */
static int
is_there(const struct cmd *cmd, enum form form, struct err *err)
{
    struct stdir dir;
    struct kvc k;

    if (!cmd->if_missing || access(cmd->output, F_OK) < 0)
        return 0;
    if (form == FORM_BIN) {
        if (stdir_open(&dir, cmd->output, err) < 0)
            return -1;
        stdir_close(&dir);
        return 1;
    }
    if (kvc_open(&k, cmd->output, err) < 0)
        return -1;
    kvc_close(&k);
    return 1;
}

static int
run_convert(const struct cmd *cmd, struct err *err)
{
    enum form form = cmd->from;
    size_t n = strlen(cmd->output);
    int there;

    if (form == FORM_AUTO && form_of(cmd->input, &form, err) < 0)
        return -1;
    if ((form == FORM_PTH || form == FORM_SAFETENSORS) && n > 12 &&
        !strcmp(cmd->output + n - 12, ".safetensors"))
        return err_set(err, TU_USAGE,
                       "--output: %s becomes a .bin; that becomes safetensors",
                       cmd->input);
    if (form == FORM_BIN && shapes_bin(cmd))
        return err_set(err, TU_USAGE,
                       "--input: %s is a .bin already: of what shapes one, "
                       "only --prefix-order and --slot-order go with it",
                       cmd->input);
    there = is_there(cmd, form, err);
    if (there)
        return there < 0 ? -1 : 0;
    return form == FORM_BIN ? back(cmd, err) : convert(cmd, err);
}

int
main(int argc, char **argv)
{
    static int (*const run[])(const struct cmd *cmd,
                              struct err *err) = { run_convert, info, check,
                                                   diff };
    struct cmd cmd = { .dtype = -1,
                       .factor = -1,
                       .min_seq_len = -1,
                       .num_heads = -1,
                       .head_dim = -1 };
    struct err err = { 0 };
    enum mode mode;
    int status;

    tool_start(&tool);
    sig_install(true);
    mode = parse(&cmd, argc, argv);
    if (cmd.quiet)
        tool_quiet();
    status = run[mode](&cmd, &err);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
