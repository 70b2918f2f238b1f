/* lut-precompute: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-precompute/precompute.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/opt.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"

enum {
    O_LAYERS = OPT_LONG,
    O_FUSE,
    O_DTYPE,
    O_K,
    O_CENTERING,
    O_STORE_WEIGHTS,
    O_INDEX,
    O_RESUME,
    O_SHARD,
    O_VERIFY,
    O_DRY_RUN,
    O_DEADLINE,
};

static const struct opt opts[] = {
    { 'm', "model", "MODEL", NULL, OPT_NOTHING,
      "the model: a folder with config.json" },
    { 's', "sae", "SAE", NULL, OPT_NOTHING,
      "a checkpoint, or a folder with one for each layer" },
    { 'o', "output", "DIR", NULL, OPT_NOTHING,
      "the folder of tables (default MODEL/lut)" },
    { O_LAYERS, "layers", "GLOB,..", NULL, OPT_NOTHING,
      "only these, with or without model. before (default: all with an SAE)" },
    { O_FUSE, "fuse", "qkv|gate_up,..", NULL, OPT_NOTHING,
      "one table in place of several" },
    { O_DTYPE, "dtype", "bf16|f16|f32", NULL, OPT_NOTHING,
      "of the tables (default bf16)" },
    { O_K, "k", "K", NULL, OPT_NOTHING,
      "latents active at most (default: as the SAE says)" },
    { O_CENTERING, "centering", "fold|explicit", NULL, OPT_NOTHING,
      "fold it into the bias, or keep it explicit (default fold)" },
    { O_STORE_WEIGHTS, "store-weights", NULL, NULL, OPT_NOTHING,
      "the layer's weights, too: for compensation without the model" },
    { O_INDEX, "index", "DIR", NULL, OPT_NOTHING,
      "make metadata.json from the files" },
    { O_RESUME, "resume", NULL, NULL, OPT_NOTHING,
      "keep files that are there, of the same sources and options" },
    { O_SHARD, "shard", "I/N", NULL, OPT_NOTHING,
      "every N-th layer from the I-th (from 0), no metadata.json" },
    { O_VERIFY, "verify", NULL, NULL, OPT_NOTHING,
      "compare a sample of each file with sums in double precision" },
    { O_DRY_RUN, "dry-run", NULL, NULL, OPT_NOTHING,
      "print layers, bytes, GFLOP and seconds; write nothing" },
    { O_DEADLINE, "deadline", "SECONDS", NULL, OPT_NOTHING,
      "stop after that as SIGTERM does: status 75" },
    { 'j', "threads", "N", NULL, OPT_NOTHING,
      "threads (default: CPUs of this process)" },
    { 'f', "force", NULL, NULL, OPT_NOTHING, "replace files that are there" },
    { 'v', "verbose", NULL, NULL, OPT_NOTHING,
      "a line on stderr for each layer" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings, no progress" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "lut-precompute",
    .usage = "lut-precompute -m MODEL -s SAE [-o DIR] [OPTION...]\n"
             "lut-precompute --index DIR",
    .summary = "Makes lookup tables of linear layers from sparse "
               "autoencoders.",
    .opts = opts,
};

static int
set_fuse(struct cmd *cmd, const char *arg, struct err *err)
{
    static const char *const words[] = { "qkv", "gate_up", NULL };
    char *list = xstrdup(arg), *save = NULL;
    int i = 0;

    for (char *s = strtok_r(list, ",", &save); s && i >= 0;
         s = strtok_r(NULL, ",", &save)) {
        i = opt_word("--fuse", s, words, err);
        cmd->fuse_qkv |= i == 0;
        cmd->fuse_gate_up |= i == 1;
    }
    if (!*arg)
        i = opt_word("--fuse", arg, words, err);
    free(list);
    return i < 0 ? -1 : 0;
}

static int
set_centering(struct cmd *cmd, const char *arg, struct err *err)
{
    static const char *const words[] = { "fold", "explicit", NULL };
    int i = opt_word("--centering", arg, words, err);

    cmd->keep_centering = i == 1;
    return i < 0 ? -1 : 0;
}

static int
set_deadline(const char *arg, struct err *err)
{
    double seconds;

    if (opt_f64("--deadline", arg, 0, 1e9, &seconds, err) < 0)
        return -1;
    sig_deadline(seconds);
    return 0;
}

static int
set_number(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    int64_t n;

    if (id == O_SHARD)
        return opt_shard(arg, &cmd->part, &cmd->n_parts, err);
    if (id == O_DEADLINE)
        return set_deadline(arg, err);
    if (id == O_K) {
        if (opt_i64("--k", arg, 1, INT32_MAX, &n, err) < 0)
            return -1;
        cmd->k = (size_t)n;
        return 0;
    }
    if (opt_i64("-j", arg, 1, 1024, &n, err) < 0)
        return -1;
    cmd->n_threads = (int)n;
    return 0;
}

static int
set_value(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    if (!*arg && (id == 'm' || id == 's' || id == 'o' || id == O_INDEX))
        return err_set(err, TU_USAGE, "%s: \"\" is no file's name",
                       id == 'm'   ? "-m"
                       : id == 's' ? "-s"
                       : id == 'o' ? "-o"
                                   : "--index");
    switch (id) {
    case 'm':
        cmd->model = arg;
        return 0;
    case 's':
        cmd->sae = arg;
        return 0;
    case 'o':
        cmd->output = arg;
        return 0;
    case O_INDEX:
        cmd->index = arg;
        return 0;
    case O_LAYERS:
        cmd->layers = arg;
        return 0;
    case O_FUSE:
        return set_fuse(cmd, arg, err);
    case O_DTYPE:
        return opt_dtype("--dtype", arg, &cmd->dtype, err);
    case O_CENTERING:
        return set_centering(cmd, arg, err);
    default:
        return set_number(cmd, id, arg, err);
    }
}

static int
set_option(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    const struct opt_place places[] = {
        { O_STORE_WEIGHTS, &cmd->store_weights, NULL },
        { O_RESUME, &cmd->resume, NULL },
        { O_VERIFY, &cmd->verify, NULL },
        { O_DRY_RUN, &cmd->dry_run, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 0 },
    };

    if (opt_store(places, id, arg))
        return 0;
    if (id == 'f') {
        cmd->out_flags = OUT_FORCE;
        return 0;
    }
    return set_value(cmd, id, arg, err);
}

static void
parse(struct cmd *cmd, int argc, char **argv)
{
    struct err err;
    const char *arg;
    bool more = false; /* than --index uses */
    int id, index;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1) {
        if (set_option(cmd, id, arg, &err) < 0)
            die_err(&err);
        more |= id != O_INDEX && id != 'q' && id != 'v' && id != 'j';
    }
    if (index < argc)
        die_usage("\"%s\": no operands are taken", argv[index]);
    if (cmd->index) {
        if (more)
            die_usage("--index DIR stands alone");
        return;
    }
    if (!cmd->model || !cmd->sae)
        die_usage("-m MODEL and -s SAE are needed");
    if (cmd->dry_run && cmd->verify)
        die_usage("--dry-run writes nothing to --verify");
    if (cmd->output && outdir_check_name(cmd->output, &err) < 0)
        die_err(&err);
}

int
main(int argc, char **argv)
{
    struct cmd cmd = { .dtype = DT_BF16, .n_threads = par_default() };
    struct str lut = { 0 };
    struct err err = { 0 };
    int status;

    tool_start(&tool);
    sig_install(false);
    parse(&cmd, argc, argv);
    if (cmd.quiet)
        tool_quiet();
    if (!cmd.output && cmd.model) {
        str_addf(&lut, "%s/lut", cmd.model);
        cmd.output = lut.s;
    }
    status =
        cmd.index ? index_folder(cmd.index, true, &err) : run_all(&cmd, &err);
    str_free(&lut);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
