/* moe-sft: the command line. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/layers.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/train.h"
#include "cmd/moe-sft/verbs.h"
#include "cmd/moe-sft/write.h"
#include "core/format/stdir.h"
#include "core/kernel/cpu.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/opt.h"
#include "core/out.h"
#include "core/par.h"
#include "core/sig.h"
#include "core/str.h"
#include "core/tool.h"

enum {
    O_LAYER = OPT_LONG,
    O_MODE,
    O_TP,
    O_STRICT_IDS,
    O_GRADS,
    O_RANK,
    O_ALPHA,
    O_SEED,
    O_STACKED,
    O_TOP_K,
    O_LENGTH,
    O_DEPTH,
    O_EXPERTS,
    O_HIDDEN,
    O_INTERMEDIATE,
    O_ROUNDS,
    O_JSON,
    O_IF_MISSING,
    O_SAMPLES,
};

#define ANY_SIZE_VERBS " info bench "

static const struct opt opts[] = {
    { 'b', "base", "BASE",
      " info init forward backward merge convert quantize train check ",
      OPT_NOTHING, "frozen weights: stacked safetensors, or a model folder" },
    { 'l', "lora", "LORA", " info forward backward merge convert train check ",
      OPT_NOTHING,
      "the adapter: safetensors, or a PEFT folder; merge, convert: some,.." },
    { 'i', "input", "BATCH", " info forward train check ", OPT_NOTHING,
      "safetensors with input, expert_ids, weights; - is stdin; train: "
      "activations, with --target" },
    { 'c', "cache", "FILE", " forward backward ", OPT_NOTHING,
      "what backward needs of a forward" },
    { 'g', "grad", "BATCH", " backward ", OPT_NOTHING,
      "safetensors with grad_output" },
    { 'o', "output", "FILE", NULL, OPT_NOTHING,
      "write there, whole or not at all; train: a folder" },
    { O_LAYER, "layer", "N",
      " info init forward backward merge convert quantize train check ",
      OPT_NOTHING, "of a model folder or PEFT folder (default: the only one)" },
    { O_MODE, "mode", "bf16|int8", " info forward backward bench train check ",
      OPT_NOTHING,
      "arithmetic (default: the weights'; backward: the cache's)" },
    { 'j', "threads", "N",
      " info forward backward merge quantize bench train check ", OPT_NOTHING,
      "threads (default: CPUs of this process)" },
    { O_TP, "tp", "N", " info forward backward bench train check ", OPT_NOTHING,
      "tensor parallelism over N parts (default 1)" },
    { O_STRICT_IDS, "strict-ids", NULL, " forward train ", OPT_NOTHING,
      "an id that is no expert is an error, not a skip" },
    { O_GRADS, "grads", "f32|bf16", " backward ", OPT_NOTHING,
      "of the adapter's gradients (default f32)" },
    { O_RANK, "rank", "R", " info init bench ", OPT_NOTHING,
      "of the adapter (default 8; for bench 16)" },
    { O_ALPHA, "alpha", "A", " init ", OPT_NOTHING,
      "the adapter counts A / rank times (default 32)" },
    { O_SEED, "seed", "S", " init bench train check ", OPT_NOTHING,
      "of random numbers (default 0)" },
    { O_STACKED, "stacked", NULL, " merge ", OPT_NOTHING,
      "a folder's layer as gate_proj, up_proj, down_proj" },
    { O_TOP_K, "top-k", "K", ANY_SIZE_VERBS, OPT_NOTHING,
      "experts of a token (default: the batch's, the model's, or 2)" },
    { O_LENGTH, "length", "N", " info bench train ", OPT_NOTHING,
      "tokens of a batch (default: the batch's, or 512)" },
    { O_DEPTH, "depth", "N", " info ", OPT_NOTHING,
      "forwards kept (default 1)" },
    { O_EXPERTS, "experts", "N", ANY_SIZE_VERBS, OPT_NOTHING,
      "without -b (default 8)" },
    { O_HIDDEN, "hidden", "N", ANY_SIZE_VERBS, OPT_NOTHING,
      "without -b (default 2048)" },
    { O_INTERMEDIATE, "intermediate", "N", ANY_SIZE_VERBS, OPT_NOTHING,
      "without -b (default 1408)" },
    { O_ROUNDS, "rounds", "N", " bench ", OPT_NOTHING,
      "the median of so many is shown (default 7)" },
    { O_JSON, "json", NULL, " info quantize bench ", OPT_NOTHING,
      "JSON instead of TSV" },
    { O_SAMPLES, "samples", "N", " check ", OPT_NOTHING,
      "elements of each tensor to differentiate (default 8)" },
    { 'n', "steps", "N", " train ", OPT_NOTHING, "train to that step" },
    { O_TARGET, "target", "FILE", " train ", OPT_NOTHING,
      "what the output shall be, with -i: .npy or FILE:TENSOR" },
    { O_LR, "lr", "RATE", " train ", OPT_NOTHING,
      "learning rate (default 1e-4)" },
    { O_SCHEDULE, "schedule", "constant|linear|cosine", " train ", OPT_NOTHING,
      "of the learning rate (default constant)" },
    { O_TOTAL, "total", "N", " train ", OPT_NOTHING,
      "steps of the schedule (default: -n)" },
    { O_WARMUP, "warmup", "N", " train ", OPT_NOTHING,
      "steps, or below 1 a part of all, with a growing rate (default 0)" },
    { O_CLIP, "clip", "NORM", " train ", OPT_NOTHING,
      "largest norm of a gradient (default 0: any)" },
    { O_WEIGHT_DECAY, "weight-decay", "D", " train ", OPT_NOTHING,
      "of AdamW (default 0.01)" },
    { O_BETAS, "betas", "B1,B2", " train ", OPT_NOTHING,
      "of AdamW (default 0.9,0.999)" },
    { O_EPS, "eps", "E", " train ", OPT_NOTHING, "of AdamW (default 1e-8)" },
    { O_ACCUMULATE, "accumulate", "N", " train ", OPT_NOTHING,
      "batches of a step (default 1)" },
    { O_SHUFFLE, "shuffle", NULL, " train ", OPT_NOTHING,
      "batches in an order that --seed decides, another each time" },
    { O_SAVE_EVERY, "save-every", "N", " train ", OPT_NOTHING,
      "steps between checkpoints (default 100; 0: at the end alone)" },
    { O_RESUME, "resume", NULL, " train ", OPT_NOTHING,
      "go on with what DIR holds" },
    { O_LOG, "log", "FILE", " train ", OPT_NOTHING,
      "TSV of all steps, with each checkpoint (default: stdout, a line a step)" },
    { O_SVG, "svg", "FILE", " train ", OPT_NOTHING, "the loss as a picture" },
    { O_DEADLINE, "deadline", "SECONDS", " train ", OPT_NOTHING,
      "stop after that as SIGTERM does: status 75" },
    { O_IF_MISSING, "if-missing", NULL,
      " init forward backward merge convert quantize ", OPT_NOTHING,
      "sound outputs that are there already are success" },
    { 'f', "force", NULL, NULL, OPT_NOTHING, "replace existing outputs" },
    { 'v', "verbose", NULL, NULL, OPT_NOTHING,
      "skipped ids and set-up on stderr" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings" },
    { 0 },
};

static const struct opt_verb verbs[] = {
    { "info", "", "shapes, bytes, and the memory that a run will take" },
    { "init", "", "a new adapter: A uniform, B zero" },
    { "forward", "", "the experts' output for a batch" },
    { "backward", "", "gradients, from a forward's cache" },
    { "train", "BATCH...", "trains the adapter: DIR/lora.safetensors" },
    { "check", "", "are the gradients right? 1: no" },
    { "merge", "", "base weights with the adapter added, rounded once" },
    { "convert", "", "an adapter to PEFT's names, or back" },
    { "quantize", "", "base weights as int8 with a scale a row" },
    { "bench", "", "tokens a second" },
    { 0 },
};

/* In the order of 'verbs'. */
static const struct {
    int (*main)(const struct cmd *cmd, struct err *err);
    const char *needs; /* letters of options */
    bool operands;
    bool loras; /* -l may list adapters */
} mains[] = {
    { info_main, "", false, false },
    { init_main, "bo", false, false },
    { forward_main, "blio", false, false },
    { backward_main, "blcgo", false, false },
    { train_main, "blo", true, false },
    { check_main, "bli", false, false },
    { merge_main, "blo", false, true },
    { convert_main, "lo", false, true },
    { quantize_main, "bo", false, false },
    { bench_main, "", false, false },
};
_Static_assert(sizeof(mains) / sizeof(mains[0]) + 1 ==
                   sizeof(verbs) / sizeof(verbs[0]),
               "a main for each verb");

static const struct opt_tool tool = {
    .name = "moe-sft",
    .usage = "moe-sft VERB [OPTION...]",
    .summary = "Fine-tunes the experts of a mixture-of-experts layer by LoRA.",
    .opts = opts,
    .verbs = verbs,
};

/* Where an option that is a switch, or a string kept as it is, goes. */
static bool
set_plain(struct cmd *cmd, int id, const char *arg)
{
    const struct opt_place places[] = {
        { 'b', NULL, &cmd->base },
        { 'l', NULL, &cmd->lora },
        { 'i', NULL, &cmd->input },
        { 'g', NULL, &cmd->grad },
        { 'c', NULL, &cmd->cache },
        { 'o', NULL, &cmd->output },
        { O_STACKED, &cmd->stacked, NULL },
        { O_STRICT_IDS, &cmd->strict_ids, NULL },
        { O_JSON, &cmd->json, NULL },
        { O_IF_MISSING, &cmd->if_missing, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 0 },
    };

    return opt_store(places, id, arg);
}

/* Whole numbers; false for what is none of them. */
static bool
set_number(struct cmd *cmd, int id, const char *arg, int *rc, struct err *err)
{
    const struct {
        int id;
        const char *name;
        int64_t min, max, *to;
    } numbers[] = {
        { O_LAYER, "--layer", 0, INT32_MAX, &cmd->layer },
        { 'j', "-j", 1, 1024, &cmd->n_threads },
        { O_TP, "--tp", 1, 1024, &cmd->n_parts },
        { O_RANK, "--rank", 1, INT32_MAX, &cmd->rank },
        { O_TOP_K, "--top-k", 1, INT32_MAX, &cmd->top_k },
        { O_LENGTH, "--length", 1, 1 << 30, &cmd->length },
        { O_DEPTH, "--depth", 1, INT32_MAX, &cmd->depth },
        { O_EXPERTS, "--experts", 1, INT32_MAX, &cmd->n_experts },
        { O_HIDDEN, "--hidden", 1, INT32_MAX, &cmd->hidden },
        { O_INTERMEDIATE, "--intermediate", 1, INT32_MAX, &cmd->intermediate },
        { O_SAMPLES, "--samples", 0, 1 << 20, &cmd->samples },
        { O_ROUNDS, "--rounds", 1, 10000, &cmd->rounds },
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].id == id) {
            *rc = opt_i64(numbers[i].name, arg, numbers[i].min, numbers[i].max,
                          numbers[i].to, err);
            return true;
        }
    return false;
}

static int
set_option(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    static const char *const grads[] = { "f32", "bf16", NULL };
    int i, rc;

    if (set_plain(cmd, id, arg))
        return 0;
    if (set_number(cmd, id, arg, &rc, err) ||
        train_option(cmd->train, id, arg, &rc, err))
        return rc;
    switch (id) {
    case 'f':
        cmd->out_flags = OUT_FORCE;
        return 0;
    case O_MODE:
        cmd->mode = opt_word("--mode", arg, mode_names, err);
        return cmd->mode < 0 ? -1 : 0;
    case O_GRADS:
        if ((i = opt_word("--grads", arg, grads, err)) >= 0)
            cmd->grads = i ? DT_BF16 : DT_F32;
        return i < 0 ? -1 : 0;
    case O_ALPHA:
        return opt_f64("--alpha", arg, -1e30, 1e30, &cmd->alpha, err);
    default:
        return opt_u64("--seed", arg, 0, UINT64_MAX, &cmd->seed, err);
    }
}

/* What names a file or a layer is given once: of two, one would be silently
 * dropped. */
static void
check_once(const int *seen, int verb)
{
    static const int once[] = { 'b', 'l',     'i',      'c',   'g',
                                'o', O_LAYER, O_TARGET, O_LOG, O_SVG };

    for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
        if (seen[once[i]] > 1 && !(once[i] == 'l' && mains[verb].loras))
            for (const struct opt *o = opts; o->id; o++)
                if (o->id == once[i])
                    die_usage("%s: --%s is given %d times", verbs[verb].name,
                              o->name, seen[o->id]);
}

static void
check_needs(const int *seen, int verb)
{
    for (const char *c = mains[verb].needs; *c; c++)
        for (const struct opt *o = opts; o->id; o++)
            if (o->id == *c && !seen[o->id])
                die_usage("%s: -%c %s is needed", verbs[verb].name, *c, o->arg);
}

/* An input in the folder that another is exchanged for goes with it. */
static void
check_folder(const char *in, const char *output)
{
    DIR *d = in ? opendir(output) : NULL;
    struct str path = { 0 };
    struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d))) {
        str_clear(&path);
        str_addf(&path, "%s/%s", output, e->d_name);
        found = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                stdir_holds(in, path.s);
    }
    if (found)
        die_usage("-o %s: is replaced, but %s in it is a file of this command",
                  output, e->d_name);
    str_free(&path);
    if (d)
        closedir(d);
}

/* Two outputs of one name, or an input that would be replaced. */
static void
check_files(const struct cmd *cmd)
{
    /* what --force does not replace may lie in a folder that is read */
    bool (*is_lost)(const char *, const char *) =
        cmd->out_flags & OUT_FORCE ? stdir_holds : file_same;
    bool forward = !strcmp(cmd->verb, "forward");
    const char *in[] = { cmd->base, cmd->lora, cmd->input, cmd->grad,
                         cmd->cache };
    size_t n = sizeof(in) / sizeof(in[0]);

    for (size_t i = 0; i < cmd->n_loras; i++)
        if (is_lost(cmd->loras[i].path, cmd->output))
            die_usage("-o %s is the name of another file of this command",
                      cmd->output);
    for (size_t i = 0; i < n; i++) {
        if (is_lost(in[i], cmd->output))
            die_usage("-o %s is the name of another file of this command",
                      cmd->output);
        if (i + 1 < n && forward && is_lost(in[i], cmd->cache))
            die_usage("-c %s is the name of another file of this command",
                      cmd->cache);
    }
    for (size_t i = 0; cmd->out_flags && i < cmd->n_loras; i++)
        check_folder(cmd->loras[i].path, cmd->output);
    if (cmd->out_flags && cmd->n_loras)
        check_folder(cmd->base, cmd->output);
    if (cmd->if_missing && cmd->out_flags)
        die_usage("--if-missing keeps what --force replaces");
}

/* Reads the command line; returns the verb's place in the table. */
static int
parse(struct cmd *cmd, int argc, char **argv)
{
    int seen[TRAIN_OPT_END] = { 0 };
    const char **loras = xcalloc((size_t)argc, sizeof(*loras));
    struct err err;
    const char *arg;
    int id, index, verb;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1) {
        if (id == 'l')
            loras[seen[id]] = arg;
        seen[id]++;
        if (set_option(cmd, id, arg, &err) < 0)
            die_err(&err);
    }
    if (index == argc)
        die_usage("a verb is missing");
    verb = opt_verb(&tool, argv[index]);
    if (verb < 0)
        die_usage("\"%s\" is no verb", argv[index]);
    cmd->verb = verbs[verb].name;
    cmd->args = argv + index + 1;
    cmd->n_args = argc - index - 1;
    if (cmd->n_args && !mains[verb].operands)
        die_usage("%s: \"%s\": files are named by options", cmd->verb,
                  cmd->args[0]);
    for (id = 0; id < TRAIN_OPT_END; id++)
        if (seen[id] && opt_for_verb(&tool, id, cmd->verb, &err) < 0)
            die_err(&err);
    check_needs(seen, verb);
    check_once(seen, verb);
    if (cmd->lora && !mains[verb].loras) {
        char *path = xstrdup(cmd->lora);

        peft_enter_trained(&path);
        cmd->lora = path;
    }
    for (int i = 0; mains[verb].loras && i < seen['l']; i++)
        if (lora_add(cmd, loras[i], &err) < 0)
            die_err(&err);
    free(loras);
    check_files(cmd);
    return verb;
}

int
main(int argc, char **argv)
{
    struct train_options train = train_defaults;
    struct cmd cmd = { .layer = -1,
                       .mode = -1,
                       .n_parts = 1,
                       .alpha = 32,
                       .grads = DT_F32,
                       .samples = 8,
                       .train = &train };
    struct err err = { 0 };
    int verb, status;

    tool_start(&tool);
    cmd.n_threads = par_default();
    verb = parse(&cmd, argc, argv);
    if (cmd.quiet)
        tool_quiet();
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    status = cmd.if_missing ? is_there(&cmd, &err) : 0;
    if (status == 0 && cmd.if_missing && is_half_done(&cmd))
        cmd.out_flags = OUT_FORCE;
    if (status == 0)
        status = mains[verb].main(&cmd, &err);
    else if (status > 0)
        status = 0;
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
