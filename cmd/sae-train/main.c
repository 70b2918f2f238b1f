/* SPDX-License-Identifier: ISC */
/* sae-train: the command line. */
#include <string.h>

#include "cmd/sae-train/cmd.h"
#include "core/format/sae.h"
#include "core/format/saevdir.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/tool.h"

#define OPT_INTO struct train_cmd
static const struct opt opts[] = {
    { 'o', "output", "DIR", "train!", OPT_FILE(output),
      "directory of the SAE, or of those of --sae and --layers" },
    { 'k', "k", "N", "train", OPT_U64(o.k, 1, 1000000000),
      "active latents per row" },
    { 0, "latents", "N", "train", OPT_U64(o.latents, 1, UINT32_MAX - 1),
      "number of latents (default: --init's, or --expansion * d)" },
    { 0, "expansion", "N", "train", OPT_U64(o.expansion, 1, 1000000),
      "number of latents divided by d" },
    { 0, "activation", "topk|batchtopk", "train", OPT_WORD(o.activation, 0),
      "keep the k largest of each row, or k per row of a whole batch" },
    { 0, "batch", "ROWS", "train", OPT_U64(o.batch, 1, 1 << 30),
      "rows per step (default: by their number, 64 to 16384)" },
    { 'n', "steps", "N", "train", OPT_U64(steps, 1, UINT32_MAX),
      "steps (default: those of --epochs)" },
    { 0, "epochs", "N", "train", OPT_U64(o.epochs, 1, UINT32_MAX),
      "passes over the rows (default: 2097152 / rows, 1 to 64)" },
    { 0, "lr", "X", "train", OPT_F64(o.lr, 0, 1e9),
      "learning rate (default: by latents and rows, see the page)" },
    { 0, "warmup", "STEPS", "train", OPT_U64(o.warmup, 0, UINT32_MAX),
      "steps over which the learning rate grows from 0 (default: 1 in "
      "20, at most 1000)" },
    { 0, "decay", "PART", "train", OPT_F64(o.decay, 0, 1),
      "last part of the steps, over which the rate falls to 0" },
    { 0, "clip", "X", "train", OPT_F64(o.clip, 0, 1e9),
      "largest norm of the gradient; 0: no limit" },
    { 0, "no-normalize", NULL, "train", OPT_FLAG(o.no_normalize),
      "let rows of W_dec have any norm" },
    { 0, "aux-coef", "X", "train", OPT_F64(o.aux_coef, 0, 1e9),
      "weight of the dead latents' loss" },
    { 0, "aux-k", "N", "train", OPT_U64(o.aux_k, 0, 1000000000),
      "dead latents per row in that loss; 0: none (default: d / 2)" },
    { 0, "dead-after", "ROWS", "train", OPT_U64(o.dead_after, 1, INT64_MAX),
      "rows after which an inactive latent is dead" },
    { 0, "compute", "f32|bf16", "train", OPT_WORD(o.compute, 0),
      "arithmetic of the encoder: exact, or rounded" },
    { 0, "seed", "S", "train", OPT_U64(o.seed, 0, UINT64_MAX),
      "seed of the random directions" },
    { 0, "init", "SAE", "train", OPT_FILE(o.init),
      "start from this SAE instead" },
    { 0, "sae", "NAME:KEY=VALUE,..", "train", OPT_LIST(saes, 4096),
      "train several SAEs in one pass, each in DIR/NAME" },
    { 0, "layers", "NAME,..", "train", OPT_TEXT(layers),
      "rows are [.., layers, tokens, d]: train one SAE per layer" },
    { 0, "hook", "NAME", "train", OPT_TEXT(o.hook),
      "place that the rows come from (default: as the dump says)" },
    { 0, "format", "sparsify|saelens", "train", OPT_WORD(o.format, 0),
      "names of files and tensors" },
    { 's', "saes", "SAE", "eval!", OPT_LIST(eval, 4096),
      "an SAE; repeat it for several in one pass" },
    { 0, "by", "token", "eval", OPT_WORD(by, 1),
      "print the twenty tokens that have most of the error" },
    { 0, "dim", "D", "train eval", OPT_U64(dim, 1, 1 << 24),
      "the input is raw rows of D numbers" },
    { 0, "x-dtype", "f32|f16|bf16", "train eval", OPT_DTYPE(x_dtype),
      "type of raw numbers (default f32)" },
    { 0, "tokens", "N", "train", OPT_U64(tokens, 1, 1 << 30),
      "tokens of a block, for raw rows with --layers" },
    { 0, "input-at", "ROW", "train", OPT_U64(input_at, 0, INT64_MAX),
      "the input begins with that row (see info)" },
    { 0, "skip-bad", NULL, "train eval", OPT_FLAG(o.skip_bad),
      "leave out rows with NaN or Inf" },
    { 0, "skip-ids", "LIST", "train eval", OPT_TEXT(o.skip_ids),
      "leave out tokens with these ids, as 1021,1023, or \"special\" ones" },
    { 0, "skip-positions", "N", "train eval",
      OPT_U64(o.skip_positions, 0, INT64_MAX),
      "leave out the first N tokens of each window or image" },
    { 0, "max-norm", "X", "train eval", OPT_F64(o.max_norm, 0, 1e300),
      "leave out rows with a larger L2 norm" },
    { 0, "save-every", "STEPS", "train", OPT_U64(save_every, 0, UINT32_MAX),
      "steps between writes of DIR/state.safetensors; 0: at the end" },
    { 0, "log-every", "STEPS", "train", OPT_U64(o.log_every, 1, UINT32_MAX),
      "steps between lines of DIR/log.tsv" },
    { 0, "resume", NULL, "train", OPT_FLAG(resume),
      "continue from DIR/state.safetensors" },
    { 0, "any-isa", NULL, "train", OPT_FLAG(any_isa),
      "resume on another instruction set, too; the bits will differ" },
    TOOL_DEADLINE("train", ""),
    { 0, "svg", "FILE", "train eval", OPT_FILE(svg),
      "draw the loss, or how often latents are active" },
    { 0, "plot", NULL, "train eval", OPT_FLAG(plot),
      "draw it on stdout, in characters" },
    { 'l', "long", NULL, "info", OPT_FLAG(long_info),
      "print what the SAE is and how it was trained (the default)" },
    { 0, "rows", NULL, "info", OPT_FLAG(rows),
      "print only how many rows of the input the run used" },
    { 0, "json", NULL, "eval info", OPT_FLAG(json), "JSON instead of TSV" },
    TOOL_THREADS("train eval"),
    TOOL_FORCE("train eval"),
    { 'v', "verbose", NULL, "train", OPT_FLAG(verbose),
      "print a line for each step on stderr" },
    TOOL_QUIET,
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_ONE_OF, "latents expansion", NULL, NULL },
    { OPT_ONE_OF, "sae layers", NULL, NULL },
    { OPT_ONE_OF, "steps epochs", NULL, NULL },
    { OPT_ONE_OF, "long rows json", NULL, NULL },
    { OPT_NOT, "hook", "layers", "--layers names the hooks, too" },
    { OPT_NOT, "skip-bad", "layers",
      "--skip-bad would move the layers against each other: not with --layers" },
    { OPT_NOT, "by", "dim skip-bad plot", NULL },
    { OPT_NEEDS, "x-dtype", "dim", NULL },
    { OPT_NEEDS, "tokens", "layers", NULL },
    { OPT_NOT, "plot", "json",
      "--json and --plot are two forms of one output" },
    { OPT_NEEDS, "any-isa", "resume", NULL },
    { OPT_NOT, "resume", "force", "--resume keeps what --force replaces" },
    { 0 },
};

static const struct train_cmd defaults = {
    .o = { .k = 32,
           .expansion = 16,
           .aux_coef = 1.0 / 32,
           .aux_k = UINT64_MAX,
           .dead_after = 10000000,
           .lr = -1,
           .warmup = UINT64_MAX,
           .decay = 0.2,
           .log_every = 1 },
    .x_dtype = -1,
    .save_every = 500,
};

enum { TRAIN, EVAL, INFO };
static const struct opt_verb verbs[] = {
    { "train", "[FILE...]", "train SAEs on rows of activations (the default)",
      "sae-train -o SAE -k 32 DUMP\n"
      "saev-read --shuffle DUMP | sae-train -o SAE --latents 16384" },
    { "eval", "[FILE...]", "how well SAEs reconstruct rows",
      "sae-train eval -s SAE DUMP\n"
      "sae-train eval -s SAE -s OTHER --json rows.npy" },
    { "info", "DIR...", "what an SAE is, and the run that trained it",
      "sae-train info SAE\n"
      "sae-train info --rows SAE" },
    { 0 },
};

static int (*const mains[])(const struct train_cmd *cmd,
                            struct err *err) = { train_main, eval_main,
                                                 info_main };
TOOL_MAINS(mains, verbs);

static const struct opt_group groups[] = {
    { "output", "the autoencoder" }, { "batch", "training" },
    { "sae", "several at once" },    { "saes", "rows" },
    { "save-every", "the run" },     { 0 },
};

static const struct opt_tool tool = {
    .name = "sae-train",
    .usage = "sae-train -o DIR [OPTION...] [FILE...]\n"
             "sae-train eval -s SAE [OPTION...] [FILE...]\n"
             "sae-train info [OPTION...] DIR...",
    .summary = "Trains sparse autoencoders on rows of activations.",
    .opts = opts,
    .verbs = verbs,
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
    .rare = "expansion no-normalize aux-coef aux-k dead-after clip decay "
            "hook tokens input-at log-every any-isa deadline seed compute",
};

int
main(int argc, char **argv)
{
    struct train_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };

    tool_parse(&line, &tool, argc, argv, &cmd);
    cmd.line = &line;
    cmd.paths = line.args;
    cmd.n_paths = line.n_args;
    if (line.verb != INFO && !cmd.dim) /* of raw rows any file may be one */
        cmd.n_paths = saevdir_operands(cmd.paths, cmd.n_paths);
    if (cmd.dim && cmd.x_dtype < 0)
        cmd.x_dtype = DT_F32;
    if (cmd.dim && cmd.layers && !cmd.tokens)
        die_usage("raw rows by --layers need --tokens");
    if (cmd.svg && !strcmp(cmd.svg, "-"))
        die_usage("--svg needs a file name, not -");
    if ((line.verb != INFO && cpu_check(&err) < 0) ||
        mains[line.verb](&cmd, &err) < 0)
        die_err(&err);
    tool_end(0);
}
