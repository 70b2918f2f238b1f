/* SPDX-License-Identifier: ISC */
/* moe-sft: the command line. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "core/kernel/cpu.h"
#include "core/model/train/lm.h"
#include "core/sig.h"
#include "core/tool.h"

static int
set_betas(void *to, const char *arg, struct err *err)
{
    struct train_options *o = &((struct cmd *)to)->train;
    double betas[2];
    int n = opt_f64_list("--betas", arg, 0, 1, betas, 2, err);

    if (n < 0)
        return -1;
    if (n != 2 || betas[0] == 1 || betas[1] == 1)
        return err_set(
            err, TU_USAGE,
            "--betas: \"%s\" is not two numbers below 1, such as 0.9,0.999",
            arg);
    o->beta1 = betas[0];
    o->beta2 = betas[1];
    return 0;
}

#define OPT_INTO struct cmd
static const struct opt opts[] = {
    { 'b', "base", "BASE",
      "info init! forward! backward! merge! convert quantize! train! check "
      "tune",
      OPT_TEXT(base),
      "frozen weights: stacked safetensors, or a model directory\n"
      "tune: the experts' weights in memory, bf16 or int8" },
    { 'l', "lora", "LORA",
      "info forward! backward! merge! convert! train! check",
      OPT_LIST(lora_args, SIZE_MAX),
      "the adapter: safetensors, or a PEFT directory\n"
      "merge convert: adapters: safetensors or PEFT directories; repeat it "
      "for more" },
    { 'i', "input", "BATCH", "info forward! train check", OPT_TEXT(input),
      "input, expert_ids, weights; - is stdin\n"
      "train: rows x of the layer's input, with --target" },
    { 'c', "cache", "FILE", "forward backward!", OPT_TEXT(cache),
      "a forward's results that its backward needs" },
    { 'g', "grad", "BATCH", "backward!", OPT_TEXT(grad),
      "safetensors with grad_output" },
    { 'm', "model", "MODEL", "tune! check", OPT_TEXT(tune.model),
      "a Hugging Face directory" },
    { 'd', "data", "FILE", "tune! check", OPT_TEXT(tune.data),
      "examples, one JSON object per line; - is stdin" },
    { 'o', "output", "FILE",
      "info init! forward! backward! train! tune check merge! convert! "
      "quantize! bench",
      OPT_TEXT(output),
      "write there, whole or not at all\n"
      "train tune: directory of the run" },
    { 0, "layer", "N",
      "info init forward backward merge convert quantize train check",
      OPT_I64(layer, 0, INT_MAX),
      "the layer of a model or PEFT directory (default: its only one)" },
    { 0, "mode", "bf16|int8", "info forward backward bench train check",
      OPT_WORD(mode, MOE_BF16),
      "arithmetic (default: the weights'; backward: the cache's)" },
    { 'j', "threads", "N",
      "info forward backward merge quantize bench train tune check",
      OPT_INT(n_threads, 1, 1024), "threads (default: CPUs of this process)" },
    { 0, "tp", "N", "info forward backward bench train check",
      OPT_I64(n_parts, 1, 1024), "tensor parallelism over N parts" },
    { 0, "strict-ids", NULL, "forward train", OPT_FLAG(strict_ids),
      "refuse an id that names no expert instead of skipping it" },
    { 0, "grad-dtype", "f32|bf16", "backward", OPT_DTYPE(grad_dtype),
      "type of the gradients (default f32)" },
    { 0, "grads", "FILE", "tune", OPT_TEXT(grads),
      "write the gradients of step 1 to FILE, and train nothing" },
    { 0, "against", "FILE", "check", OPT_TEXT(against),
      "check the gradients in FILE, as tune --grads writes them" },
    { 0, "rank", "R", "info init bench tune check", OPT_I64(rank, 1, INT_MAX),
      "rank of the adapter (default 8)\n"
      "bench tune check: rank of the adapter (default 16)" },
    { 0, "alpha", "A", "init tune check", OPT_F64(alpha, -1e30, 1e30),
      "scale the adapter by A / rank (default 32)\n"
      "tune check: scale the adapter by A / rank (default twice the rank)" },
    { 0, "seed", "S", "init bench train tune check",
      OPT_U64(seed, 0, UINT64_MAX), "seed of the random numbers (default 0)" },
    { 0, "stacked", NULL, "convert", OPT_FLAG(stacked),
      "write adapters of all experts together, PEFT's target_parameters" },
    { 0, "top-k", "K", "info bench", OPT_I64(top_k, 1, INT_MAX),
      "experts per token (default: the batch's, the model's, or 2)" },
    { 0, "length", "N", "info bench train", OPT_I64(length, 1, 1 << 30),
      "tokens per batch (default: the batch's, or 512)" },
    { 0, "depth", "N", "info", OPT_I64(depth, 1, INT_MAX),
      "number of saved forwards (default 1)" },
    { 0, "experts", "N", "info bench", OPT_I64(n_experts, 1, INT_MAX),
      "number of experts without -b (default 8)" },
    { 0, "hidden", "N", "info bench", OPT_I64(hidden, 1, INT_MAX),
      "hidden size without -b (default 2048)" },
    { 0, "intermediate", "N", "info bench", OPT_I64(intermediate, 1, INT_MAX),
      "intermediate size without -b (default 1408)" },
    { 0, "rounds", "N", "bench", OPT_I64(rounds, 1, 10000),
      "number of rounds; the median is printed (default 7)" },
    { 0, "json", NULL, "info quantize bench", OPT_FLAG(json),
      "JSON instead of TSV" },
    { 0, "samples", "N", "check", OPT_I64(samples, 0, 1 << 20),
      "elements of each tensor to check; of a model: tensors of each kind "
      "(default 8)" },
    { 'n', "steps", "N", "train tune", OPT_U64(train.steps, 1, SFT_MAX_STEPS),
      "train up to step N" },
    { 0, "epochs", "E", "tune", OPT_U64(tune.epochs, 1, 1 << 30),
      "train for E passes over the examples (default: of 200 steps, or 1)" },
    { 0, "batch", "N", "tune check", OPT_U64(tune.batch, 1, 1 << 30),
      "sequences per batch (default 8)" },
    { 0, "ctx", "T", "tune check", OPT_U64(tune.ctx, 1, 1 << 30),
      "tokens per sequence (default 2048): longer examples are cut" },
    { 0, "pack", NULL, "tune check", OPT_FLAG(tune.pack),
      "examples share sequences of T tokens, and do not see each other" },
    { 0, "template", "FILE|NAME", "tune check", OPT_FILE(tune.template),
      "template of messages (default: the model's own)" },
    { 0, "template-var", "NAME=VALUE", "tune check",
      OPT_LIST(tune.template_vars, 64),
      "a variable of the template, JSON or text" },
    { 0, "targets", "LIST", "tune check", OPT_TEXT(tune.targets),
      "layers with an adapter: q,k,v,o,gate,up,down, qkv, gate_up, or words "
      "of PEFT's target_modules (default: all)" },
    { 0, "init", "PEFT_DIR", "tune check", OPT_TEXT(tune.init),
      "start from this adapter, with its rank, alpha and targets" },
    { 0, "compute", "f32|bf16", "tune", OPT_WORD(tune.compute, COMPUTE_F32),
      "arithmetic of products with the base weights" },
    { 0, "eval", "FILE", "tune", OPT_TEXT(tune.eval),
      "examples whose loss is logged, also before the first step" },
    { 0, "eval-every", "N", "tune", OPT_U64(tune.eval_every, 1, 1 << 30),
      "steps between evaluations (default: one epoch)" },
    { 0, "keep-best", NULL, "tune", OPT_FLAG(tune.keep_best),
      "keep the adapter with the lowest --eval loss in DIR/best" },
    { 0, "dry-run", NULL, "tune", OPT_FLAG(tune.dry_run),
      "print tokens, an example with its targets, memory; train nothing" },
    { 0, "target", "FILE", "train", OPT_TEXT(train.target),
      "the output to learn, with -i: .npy or FILE:TENSOR" },
    { 0, "lr", "RATE", "train tune", OPT_F64(train.lr, 0, 1e15),
      "learning rate" },
    { 0, "schedule", "constant|linear|cosine", "train tune",
      OPT_WORD(train.schedule, 0),
      "how the learning rate changes (default constant)" },
    { 0, "total", "N", "train", OPT_U64(train.total, 1, 1 << 30),
      "steps the schedule is made for (default: -n)" },
    { 0, "warmup", "N", "train tune", OPT_F64(train.warmup, 0, 1e15),
      "steps over which the rate grows; below 1: a fraction of all" },
    { 0, "clip", "NORM", "train tune", OPT_F64(train.clip, 0, 1e15),
      "largest norm of a gradient; 0: no limit (default 0)\n"
      "tune: largest norm of a gradient; 0: no limit (default 1)" },
    { 0, "weight-decay", "D", "train tune",
      OPT_F64(train.weight_decay, 0, 1e15),
      "AdamW's weight decay (default 0.01)\n"
      "tune: AdamW's weight decay (default 0)" },
    { 0, "betas", "B1,B2", "train", OPT_CALL(set_betas),
      "AdamW's betas (default 0.9,0.999)" },
    { 0, "eps", "E", "train", OPT_F64(train.eps, 1e-30, 1e15),
      "AdamW's epsilon (default 1e-8)" },
    { 0, "accumulate", "N", "train tune", OPT_U64(train.accumulate, 1, 1 << 30),
      "batches per step (default 1)" },
    { 0, "slices", "S", "tune", OPT_U64(tune.slices, 1, LM_MAX_SLICES),
      "parts of a step that are summed apart, for up to S processes" },
    { 0, "shuffle", NULL, "train tune", OPT_FLAG(train.shuffle),
      "shuffle the batches by --seed, anew in each epoch" },
    { 0, "save-every", "N", "train tune", OPT_U64(train.save_every, 0, 1 << 30),
      "steps between checkpoints; 0: only at the end" },
    { 0, "resume", NULL, "train tune", OPT_FLAG(train.resume),
      "continue the run that DIR holds" },
    { 0, "any-isa", NULL, "train tune", OPT_FLAG(train.any_isa),
      "resume on another instruction set, too; the bits will differ" },
    { 0, "log", "FILE", "train", OPT_TEXT(train.log),
      "write a TSV line after each step (default: to stdout)" },
    { 0, "log-every", "N", "tune", OPT_U64(tune.log_every, 1, 1 << 30),
      "print DIR/log.tsv every N steps on stdout, too (default: never)" },
    { 0, "svg", "FILE", "train tune", OPT_TEXT(train.svg),
      "draw the loss as a picture" },
    { 0, "plot", NULL, "train tune", OPT_FLAG(train.plot),
      "draw the loss on stdout in characters, at the end" },
    TOOL_DEADLINE("train tune", ""),
    { 0, "if-missing", NULL, "init forward backward merge convert quantize",
      OPT_FLAG(if_missing), "succeed without writing if sound outputs exist" },
    { 'f', "force", NULL, NULL, OPT_CONST(out_flags, OUT_FORCE),
      "replace existing outputs" },
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "print skipped ids and the set-up on stderr" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings" },
    { 0 },
};

static const struct opt_rule rules[] = {
    /* else one of two would be ignored */
    { OPT_ONCE,
      "base input cache grad output layer target log svg model data init "
      "eval targets grads against template",
      NULL, NULL },
    { OPT_ONE_OF, "steps epochs", NULL, "-n and --epochs both say how long" },
    { OPT_NOT, "rank alpha targets", "init",
      "--init keeps the adapter's rank, alpha and targets" },
    { OPT_NOT, "plot", "log-every grads dry-run", NULL },
    { OPT_ONE_OF, "grads dry-run resume", NULL, NULL },
    { OPT_NOT, "lora input layer mode tp", "model data",
      "-m and -d are a model's, -b, -l, -i, --layer, --mode and --tp a "
      "layer's experts'" },
    { OPT_NEEDS, "batch ctx pack template template-var targets init", "model",
      NULL },
    { OPT_NEEDS, "against", "init",
      "--against is for an adapter's gradients: --init is missing" },
    { OPT_NOT, "output", "grads",
      "--grads trains nothing: -o does not go with it" },
    { OPT_NOT, "if-missing", "force", TOOL_IF_MISSING },
    { 0 },
};

static const struct cmd defaults = {
    .layer = -1,
    .mode = -1,
    .n_parts = 1,
    .alpha = 32,
    .samples = 8,
    .grad_dtype = DT_F32,
    .train = { .lr = 1e-4,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .eps = 1e-8,
               .weight_decay = 0.01,
               .accumulate = 1,
               .save_every = 100 },
    .tune = { .batch = 8, .ctx = 2048, .slices = 8, .compute = COMPUTE_BF16 },
};

static const struct opt_verb verbs[] = {
    { "info", "", "prints shapes, bytes, and the memory that a run will take",
      "moe-sft info -b MODEL --layer 3 --rank 16\n"
      "moe-sft info --experts 256 --top-k 8 --hidden 7168 --intermediate 2048" },
    { "init", "", "makes a new adapter: A uniform, B zero",
      "moe-sft init -b MODEL --layer 3 --rank 16 -o lora.safetensors\n"
      "moe-sft init -b base.safetensors -o lora.safetensors" },
    { "forward", "", "computes the experts' output for a batch",
      "moe-sft forward -b base.safetensors -l lora -i batch -o y -c cache\n"
      "moe-sft forward -b MODEL --layer 3 -l PEFT_DIR -i batch.safetensors "
      "-o y" },
    { "backward", "", "computes gradients from a forward's cache",
      "moe-sft backward -b base.safetensors -l lora.safetensors -c cache -g "
      "dy -o dx\n"
      "moe-sft backward -b MODEL --layer 3 -l PEFT_DIR -c cache -g dy -o dx" },
    { "train", "BATCH...", "trains an adapter of one layer's experts",
      "moe-sft train -b MODEL --layer 3 -l PEFT_DIR -o run -n 200 "
      "*.safetensors\n"
      "moe-sft train -b M --layer 3 -l DIR -o run -n 9 -i x.npy --target y.npy" },
    { "tune", "", "trains an adapter of a whole model on text",
      "moe-sft tune -m MODEL -d chats.jsonl -o adapter\n"
      "moe-sft tune -m MODEL -d chats.jsonl -o DIR --eval other.jsonl "
      "--keep-best" },
    { "check", "", "checks the gradients by differences of the loss; 1: wrong",
      "moe-sft check -m MODEL -d chats.jsonl --samples 2\n"
      "moe-sft check -b MODEL --layer 3 -l lora.safetensors -i "
      "batch.safetensors" },
    { "merge", "", "adds the adapter to the base weights, rounding once",
      "moe-sft merge -b MODEL -l adapter -o merged\n"
      "moe-sft merge -b MODEL -l adapter -l other -o merged" },
    { "convert", "", "converts an adapter to PEFT's form, or back",
      "moe-sft convert -l lora.safetensors -o PEFT_DIR\n"
      "moe-sft convert -l layer0.safetensors -l layer1.safetensors -o PEFT_DIR" },
    { "quantize", "", "writes base weights as int8 with a scale per row",
      "moe-sft quantize -b MODEL --layer 3 -o int8.safetensors\n"
      "moe-sft quantize -b base.safetensors -o int8.safetensors --json" },
    { "bench", "", "measures tokens per second",
      "moe-sft bench --length 1024\n"
      "moe-sft bench --experts 64 --hidden 2048 --intermediate 1408 --mode "
      "int8" },
    { 0 },
};

static const struct opt_group groups[] = {
    { "base", "files" },
    { "layer", "what is computed" },
    { "steps", "examples and steps" },
    { "target", "training" },
    { "save-every", "the run" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "moe-sft",
    .usage = "moe-sft VERB [OPTION...]",
    .summary = "Fine-tunes models, and the experts of a layer, by LoRA.",
    .opts = opts,
    .verbs = verbs,
    .verb_needed = true,
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
    .rare =
        "cache grad strict-ids grad-dtype grads against seed alpha stacked top-k length depth "
        "experts hidden intermediate rounds json samples tp pack template "
        "template-var init eval-every keep-best target schedule total clip weight-decay "
        "betas eps accumulate slices any-isa log log-every deadline "
        "if-missing",
    .pages = "train tune",
};

/* In the order of 'verbs'. */
static int (*const mains[])(const struct cmd *cmd, struct err *err) = {
    info_main,  init_main,  forward_main, backward_main, train_main, tune_main,
    check_main, merge_main, convert_main, quantize_main, bench_main,
};
TOOL_MAINS(mains, verbs);

static int
is_sound(void *ctx, struct err *err)
{
    const struct cmd *cmd = ctx;
    bool forward = mains[cmd->line->verb] == forward_main;

    return outputs_exist(cmd, forward ? cmd->cache : NULL, err);
}

static int
make(void *ctx, struct err *err)
{
    const struct cmd *cmd = ctx;

    return mains[cmd->line->verb](cmd, err);
}

/* PATH,..; but the name of a file that is there may have a comma. */
static void
add_loras(struct opt_list *to, const char *arg)
{
    bool is_file = access(arg, F_OK) == 0;

    for (const char *at = arg; at;) {
        size_t n = is_file ? strlen(at) : strcspn(at, ",");

        if (n == 0)
            die_usage("-l: an empty file name");
        opt_keep(to, at, n);
        at = at[n] ? at + n + 1 : NULL;
    }
}

int
main(int argc, char **argv)
{
    struct cmd cmd = defaults;
    int (*run)(const struct cmd *, struct err *);
    struct opt_line line;
    struct err err = { 0 };
    int status;

    cmd.line = &line;
    tool_parse(&line, &tool, argc, argv, &cmd);
    run = mains[line.verb];
    cmd.args = line.args;
    cmd.n_args = line.n_args;
    if (cmd.n_args && run != train_main)
        die_usage("%s: \"%s\": files are named by options",
                  verbs[line.verb].name, cmd.args[0]);
    for (size_t i = 0; i < cmd.lora_args.n; i++)
        add_loras(&cmd.loras, cmd.lora_args.item[i]);
    if (run != merge_main && run != convert_main) {
        if (cmd.lora_args.n > 1)
            die_usage("-l is given %zu times", cmd.lora_args.n);
        cmd.lora = cmd.lora_args.n ? cmd.lora_args.item[0] : NULL;
    }
    if (cmd.train.log && !strcmp(cmd.train.log, "-"))
        cmd.train.log = NULL;
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    status = tool_make(cmd.if_missing, is_sound, make, &cmd, &err);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
