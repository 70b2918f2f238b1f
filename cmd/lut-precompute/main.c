/* SPDX-License-Identifier: ISC */
/* lut-precompute: the command line. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/lut-precompute/cmd.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/outdir.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"
#include "core/tty.h"

#define EPOCH_CHARS 32
#define LAST_EPOCH  253402300799 /* 9999-12-31T23:59:59Z */

/* --fuse: words with commas between. */
static int
set_fuse(void *to, const char *arg, struct err *err)
{
    struct precompute_cmd *cmd = to;
    char *list = xstrdup(arg), *next = list, *word;
    int i = 0;

    while (i >= 0 && (word = strsep(&next, ","))) {
        i = opt_choice("--fuse", word, "qkv|gate_up", err);
        cmd->fuse_qkv |= i == 0;
        cmd->fuse_gate_up |= i == 1;
    }
    free(list);
    return i < 0 ? -1 : 0;
}

#define OPT_INTO struct precompute_cmd
static const struct opt opts[] = {
    { 'm', "model", "MODEL", "make calibrate", OPT_FILE(model),
      "the model: a directory with config.json" },
    { 's', "sae", "SAE", "make", OPT_FILE(sae),
      "a checkpoint, or a directory with one for each layer" },
    { 'o', "output", "DIR", "make", OPT_FILE(output),
      "the directory of tables (default MODEL/lut)" },
    { 0, "layers", "GLOB,..", "make", OPT_TEXT(layers),
      "only layers that match, with or without model. (default: all with an SAE)" },
    { 0, "fuse", "qkv|gate_up,..", "make", OPT_CALL(set_fuse),
      "one table instead of several" },
    { 0, "dtype", "bf16|f16|f32", "make", OPT_DTYPE(dtype),
      "type of the tables" },
    { 0, "compute", "f32|bf16", "make", OPT_WORD(bf16, 0),
      "bf16: three times as fast on CPUs with AMX, less exact" },
    { 0, "k", "K", "make", OPT_U64(k, 1, INT32_MAX),
      "tables of the K largest latents (default: as the SAE says)" },
    { 0, "centering", "fold|explicit", "make", OPT_WORD(keep_centering, 0),
      "fold the decoder's bias into the encoder's, or keep it" },
    { 0, "no-model-prefix", NULL, "make", OPT_FLAG(no_prefix),
      "name layers and files without model., as the Python exporter does" },
    { 0, "store-weights", NULL, "make", OPT_FLAG(store_weights),
      "store the layer's weights, too: for compensation without the model" },
    { 0, "screen", NULL, "make", OPT_FLAG(screen),
      "also store the encoder in int8, to screen a few rows" },
    { 0, "index", "DIR", "make", OPT_FILE(index),
      "write metadata.json from the tables in DIR" },
    { 0, "resume", NULL, "make", OPT_FLAG(resume),
      "keep existing files of the same sources and options" },
    { 0, "shard", "I/N", "make", OPT_SHARD(part, n_parts),
      "every N-th layer from the I-th (from 0), no metadata.json" },
    { 0, "verify", NULL, "make", OPT_FLAG(verify),
      "compare a sample of each file with sums in double precision" },
    { 0, "dry-run", NULL, "make", OPT_FLAG(dry_run),
      "print layers, bytes, GFLOP and seconds; write nothing" },
    { 'i', "input", "FILE", "calibrate", OPT_TEXT(input),
      "x: .npy, safetensors FILE[:TENSOR], or raw (default: standard input)" },
    { 0, "x-dtype", "f32|f16|bf16", "calibrate", OPT_DTYPE(x_dtype),
      "type of raw x" },
    { 0, "dims", "FILE", "calibrate", OPT_FILE(dims),
      "write the inputs of --top there, for lut-apply --dims" },
    { 0, "top", "M", "calibrate", OPT_I64(top, 1, INT64_MAX),
      "the M inputs that the table misses most" },
    TOOL_DEADLINE("make", ""),
    TOOL_THREADS(NULL),
    TOOL_FORCE(NULL),
    { 'v', "verbose", NULL, "make", OPT_FLAG(verbose),
      "a line on stderr for each layer" },
    TOOL_QUIET,
    { 0 },
};

/* What --index does not take. */
#define INDEX_NOT                                             \
    "model sae output layers fuse dtype compute k centering " \
    "no-model-prefix store-weights screen resume shard verify dry-run deadline force"

static const struct opt_rule rules[] = {
    { OPT_NOT, "dry-run", "verify", "--dry-run writes nothing to --verify" },
    { OPT_NOT, INDEX_NOT, "index", NULL },
    { OPT_NEEDS, "dims", "top", "--dims FILE needs --top M" },
    { OPT_NEEDS, "top", "dims", NULL },
    { 0 },
};

enum { MAKE, CALIBRATE };
static const struct opt_verb verbs[] = {
    { "make", "", "makes the tables (the default verb)",
      "lut-precompute -m MODEL -s SAE -o lut\n"
      "lut-precompute -m MODEL -s SAE --fuse qkv,gate_up --dry-run" },
    { "calibrate", "DIR LAYER", "finds what lut-apply --tau and --dims need",
      "lut-precompute calibrate -m MODEL lut layers.0.mlp.up_proj < x" },
    { 0 },
};

static const struct precompute_cmd defaults = { .dtype = DT_BF16,
                                                .input = "-",
                                                .x_dtype = -1 };

static const struct opt_group groups[] = {
    { "model", "model, SAEs and layers" },
    { "dtype", "the tables" },
    { "index", "the run" },
    { "input", "calibrate" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "lut-precompute",
    .usage = "lut-precompute -m MODEL -s SAE [-o DIR] [OPTION...]\n"
             "lut-precompute --index DIR\n"
             "lut-precompute calibrate [OPTION...] DIR LAYER < x",
    .summary = "Makes lookup tables of linear layers from sparse "
               "autoencoders.",
    .opts = opts,
    .verbs = verbs,
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
    .rare = "compute centering no-model-prefix deadline",
};

/* SOURCE_DATE_EPOCH as "2025-12-24T10:00:00Z": false where it is not set. */
static bool
read_epoch(char text[EPOCH_CHARS])
{
    const char *s = getenv("SOURCE_DATE_EPOCH");
    uint64_t seconds;
    struct err err;
    struct tm tm;
    time_t t;

    if (!s)
        return false;
    if (opt_u64("SOURCE_DATE_EPOCH", s, 0, LAST_EPOCH, &seconds, &err) < 0)
        die_err(&err);
    t = (time_t)seconds;
    gmtime_r(&t, &tm);
    strftime(text, EPOCH_CHARS, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return true;
}

int
main(int argc, char **argv)
{
    struct precompute_cmd cmd = defaults;
    struct opt_line line;
    struct str lut = { 0 };
    char created_at[EPOCH_CHARS];
    struct err err = { 0 };
    int status;

    tool_parse(&line, &tool, argc, argv, &cmd);
    if (line.verb == CALIBRATE && line.n_args != 2)
        die_usage("calibrate: needs DIR LAYER (found %d operand%s)",
                  line.n_args, plural((uint64_t)line.n_args));
    if (cmd.dims && !strcmp(cmd.dims, "-"))
        die_usage("--dims FILE: standard output has the table");
    if (line.verb == MAKE && line.n_args)
        die_usage("\"%s\": no operands are taken", line.args[0]);
    if (line.verb == MAKE && !cmd.index && (!cmd.model || !cmd.sae))
        die_usage("-%s is needed", cmd.model ? "s SAE" : "m MODEL");
    if (line.verb == MAKE && read_epoch(created_at))
        cmd.created_at = created_at;
    if (cmd.output && outdir_check_name(cmd.output, &err) < 0)
        die_err(&err);
    sig_install(line.verb == CALIBRATE);
    if (line.verb == CALIBRATE) {
        cmd.dir = line.args[0];
        cmd.layer = line.args[1];
    }
    if (!cmd.output && cmd.model) {
        str_addf(&lut, "%s/lut", cmd.model);
        cmd.output = lut.s;
    }
    status = line.verb == CALIBRATE ? calibrate(&cmd, &err)
             : cmd.index            ? index_write(cmd.index, true, &err)
                                    : run_all(&cmd, &err);
    str_free(&lut);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
