/* hf-infer: options, and which of the modes runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/hf-infer/run.h"
#include "core/format/stdir.h"
#include "core/kernel/cpu.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/text/chat.h"
#include "core/tool.h"

enum {
    O_FILE = OPT_LONG,
    O_IDS,
    O_RAW,
    O_PLAIN,
    O_STRICT,
    O_CHAT,
    O_TEMPLATE,
    O_SYSTEM,
    O_GREEDY,
    O_TEMPERATURE,
    O_TOP_K,
    O_TOP_P,
    O_MIN_P,
    O_PENALTY,
    O_SEED,
    O_STOP,
    O_IDS_OUT,
    O_RAW_TEXT,
    O_LOGITS,
    O_NLL,
    O_TOP,
    O_ENCODE,
    O_DECODE,
    O_SPECIAL,
    O_SKIP_SPECIAL,
    O_CHUNK,
    O_JSON,
    O_JSONL,
    O_BATCH,
    O_COMPUTE,
    O_KV_DTYPE,
    O_ACTS,
    O_CTX,
    O_PAD,
    O_META,
    O_LORA,
    O_KVC,
    O_KVC_AFTER,
    O_LUT,
    O_LUT_LAYERS,
    O_LUT_REPORT,
    O_RATIO
};

/* The modes' names in 'verbs': which options mean something where. */
#define TEXT_IN  " generate logits nll top acts encode "
#define IDS_IN   " generate logits nll top acts decode "
#define ALL      " generate logits nll top acts encode decode "
#define MODEL_IN " generate logits nll top acts "
#define ACTS     " acts "
#define GENERATE " generate "

static const struct opt opts[] = {
    { 'p', "prompt", "TEXT", TEXT_IN, OPT_NOTHING,
      "the prompt (default: standard input)" },
    { O_FILE, "file", "FILE", ALL, OPT_NOTHING,
      "the prompt's file (with --decode: ids)" },
    { O_IDS, "ids", "LIST", IDS_IN, OPT_NOTHING,
      "token ids: 1,47,387; - reads them" },
    { O_RAW, "raw", NULL, MODEL_IN, OPT_NOTHING,
      "add no special tokens to the prompt" },
    { O_PLAIN, "plain", NULL, TEXT_IN, OPT_NOTHING,
      "special tokens' names are text" },
    { O_STRICT, "strict-utf8", NULL, TEXT_IN, OPT_NOTHING,
      "invalid UTF-8 is an error" },
    { O_CHAT, "chat", NULL, TEXT_IN, OPT_NOTHING,
      "the prompt is a user's turn" },
    { O_TEMPLATE, "template", "chatml|llama3|mistral", TEXT_IN, OPT_NOTHING,
      "of --chat (default: recognised)" },
    { O_SYSTEM, "system", "TEXT", TEXT_IN, OPT_NOTHING,
      "system text of --chat" },
    { 'n', "max-tokens", "N", GENERATE, OPT_NOTHING,
      "tokens to generate (default 256)" },
    { O_GREEDY, "greedy", NULL, GENERATE, OPT_NOTHING,
      "always the likeliest token" },
    { O_TEMPERATURE, "temperature", "T", GENERATE, OPT_NOTHING,
      "1e-6 to 1e6 (default 1)" },
    { O_TOP_K, "top-k", "K", GENERATE, OPT_NOTHING,
      "the K likeliest (default 0: all)" },
    { O_TOP_P, "top-p", "P", GENERATE, OPT_NOTHING,
      "the likeliest P (default 1: all)" },
    { O_MIN_P, "min-p", "P", GENERATE, OPT_NOTHING,
      "P times the best at least (default 0)" },
    { O_PENALTY, "repetition-penalty", "X", GENERATE, OPT_NOTHING,
      "1e-6 to 1e6 (default 1)" },
    { O_SEED, "seed", "N", GENERATE, OPT_NOTHING, "of the draws (default 0)" },
    { O_STOP, "stop", "TEXT", GENERATE, OPT_NOTHING,
      "end before TEXT; up to 16 times" },
    { O_JSONL, "jsonl", NULL, " generate acts ", OPT_NOTHING,
      "prompts are JSON objects, one a line; so are answers" },
    { O_BATCH, "batch", "N", GENERATE, OPT_NOTHING,
      "prompts at once (default 16)" },
    { O_IDS_OUT, "ids-out", NULL, GENERATE, OPT_NOTHING,
      "print ids instead of text" },
    { O_LOGITS, "logits", "FILE", NULL, OPT_NOTHING,
      "write f32 [tokens, vocab] as .npy" },
    { O_NLL, "nll", NULL, NULL, OPT_NOTHING,
      "log-likelihood of each token of the text" },
    { O_TOP, "top", "K", NULL, OPT_NOTHING,
      "mean, std and the K best of the last logits" },
    { O_ACTS, "acts", "SPEC", NULL, OPT_NOTHING,
      "dump activations: resid:0,3 attn:all in:q_proj:0-5" },
    { O_CTX, "ctx", "T", ACTS, OPT_NOTHING,
      "pack the tokens into windows of T" },
    { O_PAD, "pad", NULL, ACTS, OPT_NOTHING,
      "a document a window of --ctx, zeros behind" },
    { O_META, "acts-meta", "FILE", ACTS, OPT_NOTHING,
      "write SAEV metadata of the dump" },
    { O_ENCODE, "encode", NULL, NULL, OPT_NOTHING, "text to ids" },
    { O_DECODE, "decode", NULL, NULL, OPT_NOTHING, "ids to text" },
    { O_SPECIAL, "special", NULL, " encode ", OPT_NOTHING,
      "add bos and the like" },
    { O_SKIP_SPECIAL, "skip-special", NULL, " decode ", OPT_NOTHING,
      "leave special tokens out" },
    { O_RAW_TEXT, "raw-text", NULL, " generate decode ", OPT_NOTHING,
      "control characters as they are on a terminal, too" },
    { O_JSON, "json", NULL, " generate nll top encode ", OPT_NOTHING,
      "print JSON" },
    { 'o', "output", "FILE", " generate nll top acts encode decode ",
      OPT_NOTHING, "output file (default: standard output)" },
    { 'f', "force", NULL, ALL, OPT_NOTHING, "replace an existing output file" },
    { O_CHUNK, "chunk", "N", MODEL_IN, OPT_NOTHING,
      "prompt tokens at once, same bits (default 256)" },
    { O_COMPUTE, "compute", "f32|bf16", MODEL_IN, OPT_NOTHING,
      "bf16: faster, less exact (default f32)" },
    { O_KV_DTYPE, "kv-dtype", "f32|f16|bf16", MODEL_IN, OPT_NOTHING,
      "f16, bf16: half the cache (default f32)" },
    { O_LORA, "lora", "PATH,..", MODEL_IN, OPT_NOTHING,
      "add low-rank adapters: PEFT folders, or moe-sft's FILE[@LAYER]" },
    { O_KVC, "kvc", "FILE.bin", " generate nll ", OPT_NOTHING,
      "compress the prompt's keys and values by FILE.bin" },
    { O_KVC_AFTER, "kvc-after", "N", " nll ", OPT_NOTHING,
      "tokens before --kvc compresses (default: half of the text)" },
    { O_LUT, "lut", "DIR", MODEL_IN, OPT_NOTHING,
      "run linear layers on the lookup tables of DIR" },
    { O_LUT_LAYERS, "lut-layers", "GLOB,..", MODEL_IN, OPT_NOTHING,
      "those of --lut alone whose names match (default: all)" },
    { O_RATIO, "ratio", "R", MODEL_IN, OPT_NOTHING,
      "part of each layer's inputs that --lut compensates (default 0)" },
    { O_LUT_REPORT, "lut-report", "FILE", MODEL_IN, OPT_NOTHING,
      "write there how far each table is from its layer" },
    { 'j', "threads", "N", MODEL_IN, OPT_NOTHING,
      "threads (default: CPUs of this process)" },
    { 'v', "verbose", NULL, ALL, OPT_NOTHING,
      "set-up and speed on standard error" },
    { 'q', "quiet", NULL, ALL, OPT_NOTHING, "no warnings, no summary" },
    { 0 }
};

static const struct opt_tool tool = {
    .name = "hf-infer",
    .usage = "hf-infer MODEL [-p TEXT | --file FILE | --ids LIST] [-n N] "
             "[--greedy]\n"
             "hf-infer MODEL --jsonl [-n N] [--batch N] < PROMPTS.jsonl\n"
             "hf-infer MODEL --logits FILE.npy | --nll | --top K ...\n"
             "hf-infer MODEL --acts SPEC [--ctx T] [--acts-meta FILE] ...\n"
             "hf-infer MODEL --encode | --decode ...",
    .summary = "Runs a Hugging Face model folder (llama, mistral, qwen2, "
               "qwen3, qwen3_moe) on the CPU.",
    .opts = opts,
};

static const char *const mode_names[] = { "generate", "logits", "nll",   "top",
                                          "acts",     "encode", "decode" };

#define MAX_GIVEN 64

/* Which options were given: what a mode does not take is refused at the end,
 * when the mode is known. */
struct given {
    int id[MAX_GIVEN];
    int n;
    int n_modes, n_prompts;
};

static void
number(const char *name, const char *arg, int64_t min, int64_t max,
       int64_t *value)
{
    struct err err;

    if (opt_i64(name, arg, min, max, value, &err) < 0)
        die_err(&err);
}

static void
real(struct run *run, unsigned bit, const char *name, const char *arg,
     double min, double max, double *value)
{
    struct err err;

    if (opt_f64(name, arg, min, max, value, &err) < 0)
        die_err(&err);
    run->sampler_set |= bit;
}

static void
set_mode(struct run *run, struct given *given, enum mode mode)
{
    run->mode = mode;
    given->n_modes++;
}

/* Where an option that is a switch, or a string kept as it is, goes. */
static bool
set_plain(struct run *run, int c, const char *arg)
{
    const struct opt_place places[] = {
        { 'p', NULL, &run->prompt },
        { O_FILE, NULL, &run->prompt_file },
        { O_IDS, NULL, &run->ids_text },
        { O_RAW, &run->raw, NULL },
        { O_PLAIN, &run->plain, NULL },
        { O_STRICT, &run->strict_utf8, NULL },
        { O_SPECIAL, &run->special, NULL },
        { O_SKIP_SPECIAL, &run->skip_special, NULL },
        { O_CHAT, &run->chat, NULL },
        { O_SYSTEM, NULL, &run->system },
        { O_JSONL, &run->jsonl, NULL },
        { O_PAD, &run->pad, NULL },
        { O_META, NULL, &run->acts_meta },
        { O_IDS_OUT, &run->ids_out, NULL },
        { O_RAW_TEXT, &run->raw_text, NULL },
        { O_JSON, &run->json, NULL },
        { 'o', NULL, &run->output },
        { O_KVC, NULL, &run->kvc },
        { O_LUT, NULL, &run->lut },
        { O_LUT_LAYERS, NULL, &run->lut_layers },
        { O_LUT_REPORT, NULL, &run->lut_report },
        { 'v', &run->verbose, NULL },
        { 'q', &run->quiet, NULL },
        { 0 },
    };

    return opt_store(places, c, arg);
}

static void
add_stop(struct run *run, const char *arg)
{
    if (!*arg)
        die_usage("--stop: an empty text stops nothing");
    if (run->stop.n == STOP_MAX)
        die_usage("--stop: given more than %d times", STOP_MAX);
    run->stop.string[run->stop.n++] = arg;
}

static void
add_lora(struct run *run, const char *arg)
{
    if (run->n_lora == MAX_LORA)
        die_usage("--lora: given more than %d times", MAX_LORA);
    run->lora[run->n_lora++] = arg;
}

static bool
take_sampler_option(struct run *run, int c, const char *arg)
{
    struct sampler *s = &run->sampler;
    struct err err;

    switch (c) {
    case O_GREEDY:
        run->sampler_set |= SET_GREEDY;
        return s->greedy = true;
    case O_TEMPERATURE:
        real(run, SET_TEMPERATURE, "--temperature", arg, 1e-6, 1e6,
             &s->temperature);
        return true;
    case O_TOP_K:
        number("--top-k", arg, 0, INT32_MAX, &s->top_k);
        run->sampler_set |= SET_TOP_K;
        return true;
    case O_TOP_P:
        real(run, SET_TOP_P, "--top-p", arg, 0, 1, &s->top_p);
        return true;
    case O_MIN_P:
        real(run, SET_MIN_P, "--min-p", arg, 0, 1, &s->min_p);
        return true;
    case O_PENALTY:
        real(run, SET_PENALTY, "--repetition-penalty", arg, 1e-6, 1e6,
             &s->repetition_penalty);
        return true;
    case O_SEED:
        if (opt_u64("--seed", arg, 0, UINT64_MAX, &s->seed, &err) < 0)
            die_err(&err);
        run->sampler_set |= SET_SEED;
        return true;
    case O_STOP:
        add_stop(run, arg);
        return true;
    default:
        return false;
    }
}

static bool
take_mode_option(struct run *run, struct given *given, int c, const char *arg)
{
    switch (c) {
    case O_LOGITS:
        run->logits_path = arg;
        set_mode(run, given, MODE_LOGITS);
        return true;
    case O_NLL:
        set_mode(run, given, MODE_NLL);
        return true;
    case O_TOP:
        number("--top", arg, 1, INT32_MAX, &run->top_k_logits);
        set_mode(run, given, MODE_TOP);
        return true;
    case O_ACTS:
        run->acts = arg;
        set_mode(run, given, MODE_ACTS);
        return true;
    case O_ENCODE:
        set_mode(run, given, MODE_ENCODE);
        return true;
    case O_DECODE:
        set_mode(run, given, MODE_DECODE);
        return true;
    default:
        return false;
    }
}

static int
word(const char *name, const char *arg, const char *const *words)
{
    struct err err;
    int i = opt_word(name, arg, words, &err);

    if (i < 0)
        die_err(&err);
    return i;
}

static void
take_other_option(struct run *run, int c, const char *arg)
{
    static const char *const computes[] = { "f32", "bf16", NULL };
    struct err err;

    switch (c) {
    case 'n':
        number("-n", arg, 0, INT32_MAX, &run->max_tokens);
        break;
    case O_TEMPLATE:
        run->format = chat_parse(arg);
        if (run->format < 0)
            die_usage("--template: \"%s\" is not chatml, llama3 or mistral",
                      arg);
        break;
    case O_BATCH:
        number("--batch", arg, 1, 1024, &run->batch);
        break;
    case O_CTX:
        number("--ctx", arg, 1, INT32_MAX, &run->ctx);
        break;
    case 'f':
        run->out_flags |= OUT_FORCE;
        break;
    case O_CHUNK:
        number("--chunk", arg, 1, 65536, &run->chunk);
        break;
    case O_COMPUTE:
        run->compute =
            word("--compute", arg, computes) ? COMPUTE_BF16 : COMPUTE_F32;
        break;
    case O_LORA:
        add_lora(run, arg);
        break;
    case O_KVC_AFTER:
        number("--kvc-after", arg, 1, INT32_MAX, &run->kvc_after);
        break;
    case O_KV_DTYPE:
        if (opt_dtype("--kv-dtype", arg, &run->kv_dtype, &err) < 0)
            die_err(&err);
        break;
    case O_RATIO:
        real(run, 0, "--ratio", arg, 0, 1, &run->lut_ratio);
        break;
    case 'j':
        number("-j", arg, 1, 1024, &run->n_threads);
        break;
    }
}

/* Where the answer goes. */
static const char *
answer_path(const struct run *run)
{
    return run->logits_path ? run->logits_path
           : run->output    ? run->output
                            : "-";
}

/* Would an output replace it, or a file in it? */
static bool
is_output(const struct run *run, const char *path)
{
    return stdir_holds(path, answer_path(run)) ||
           stdir_holds(path, run->acts_meta) ||
           stdir_holds(path, run->lut_report);
}

/* DIR, FILE or FILE@LAYER. */
static void
check_adapter(const struct run *run, const char *path)
{
    const char *layer;
    char *file = file_split(path, '@', &layer);

    if (is_output(run, file ? file : path))
        die_usage("--lora %s is, or has in it, the name of an output", path);
    free(file);
}

/* An input is not to be replaced by what is made of it. */
static void
check_inputs(const struct run *run)
{
    const struct {
        const char *option, *path;
    } in[] = {
        { "", run->dir },
        { "--file ", run->prompt_file },
        { "--kvc ", run->kvc },
        { "--lut ", run->lut },
    };

    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        if (is_output(run, in[i].path))
            die_usage("%s%s is, or has in it, the name of an output",
                      in[i].option, in[i].path);
    for (int i = 0; i < run->n_lora; i++)
        for (const char *at = run->lora[i]; at;) {
            size_t n = strcspn(at, ",");
            char *path = xstrndup(at, n);

            check_adapter(run, path);
            free(path);
            at = at[n] ? at + n + 1 : NULL;
        }
}

/* What makes no sense together. */
static void
check_combination(const struct run *run, const struct given *given)
{
    struct err err;
    if (given->n_modes > 1)
        die_usage(
            "--logits, --nll, --top, --acts, --encode, --decode exclude each "
            "other");
    for (int i = 0; i < given->n; i++)
        if (opt_for_verb(&tool, given->id[i], mode_names[run->mode], &err) < 0)
            die_usage("%s, which is what this command line asks for", err.what);
    if (given->n_prompts > 1)
        die_usage("-p, --file, --ids: there is one prompt");
    check_inputs(run);
    if (run->ids_text &&
        (run->chat || run->raw || run->plain || run->strict_utf8))
        die_usage("--ids is no text: --chat, --raw, --plain and "
                  "--strict-utf8 have no meaning for it");
    if (!run->chat && (run->system || run->format >= 0))
        die_usage("--system and --template need --chat");
    if (run->chat && (run->raw || run->plain || run->special))
        die_usage("--chat decides on special tokens: not with --raw, --plain "
                  "or --special");
    if ((run->sampler_set & SET_GREEDY) &&
        (run->sampler_set & ~(SET_GREEDY | SET_PENALTY)))
        die_usage("--greedy draws nothing: only --repetition-penalty goes "
                  "with it");
    if (run->ids_out && run->json)
        die_usage("--json prints the ids as well: not with --ids-out");
    if (run->ids_out && run->stop.n)
        die_usage("--stop looks at text: not with --ids-out");
    if (run->raw_text && (run->json || run->jsonl || run->ids_out))
        die_usage("--raw-text is about text: not with --json, --jsonl or "
                  "--ids-out");
    if (run->jsonl && (run->prompt || run->ids_text))
        die_usage("--jsonl reads its prompts from --file or standard input: "
                  "not with -p or --ids");
    if (run->jsonl && (run->json || run->ids_out))
        die_usage("--jsonl prints ids and text as JSON: not with --json or "
                  "--ids-out");
    if (run->pad && !run->ctx)
        die_usage("--pad needs --ctx");
    if (file_same(run->acts_meta, answer_path(run)))
        die_usage("-o and --acts-meta name the same file");
    if (run->kvc_after && !run->kvc)
        die_usage("--kvc-after needs --kvc");
    if (!run->lut &&
        (run->lut_layers || run->lut_report || run->lut_ratio >= 0))
        die_usage("--lut-layers, --ratio and --lut-report need --lut");
    if (file_same(run->lut_report, answer_path(run)) ||
        file_same(run->lut_report, run->acts_meta))
        die_usage("--lut-report needs a file that the answer does not go to");
    if (run->batch && !run->jsonl)
        die_usage("--batch needs --jsonl");
    if (run->verbose && run->quiet)
        die_usage("-v and -q exclude each other");
    if ((run->out_flags & OUT_FORCE) && !run->output && !run->logits_path &&
        !run->acts_meta && !run->lut_report)
        die_usage("--force needs an output file");
    if (given->n_prompts == 0 && isatty(0))
        die_usage("no prompt: give -p, --file or --ids, or pipe it in");
}

static void
parse(struct run *run, int argc, char **argv)
{
    struct given given = { 0 };
    const char *arg;
    int c, index;

    while ((c = tool_opt(&tool, argc, argv, &arg, &index)) >= 0) {
        if (given.n < MAX_GIVEN)
            given.id[given.n++] = c;
        else
            die_usage("more than %d options", MAX_GIVEN);
        given.n_prompts += c == 'p' || c == O_FILE || c == O_IDS;
        if (!set_plain(run, c, arg) && !take_sampler_option(run, c, arg) &&
            !take_mode_option(run, &given, c, arg))
            take_other_option(run, c, arg);
    }
    if (index == argc)
        die_usage("no model folder given");
    if (index + 1 < argc)
        die_usage("\"%s\": there is one model, and the prompt is given by "
                  "-p, --file or standard input",
                  argv[index + 1]);
    run->dir = argv[index];
    check_combination(run, &given);
    if (!run->batch)
        run->batch = 16;
}

int
main(int argc, char **argv)
{
    static int (*const modes[])(struct run *, struct err *) = {
        run_generate, run_logits, run_nll,   run_top,
        run_acts,     run_encode, run_decode
    };
    struct run run = { .max_tokens = -1,
                       .chunk = 256,
                       .kv_dtype = DT_F32,
                       .format = -1,
                       .lut_ratio = -1 };
    struct err err;
    int rc = 0;

    tool_start(&tool);
    run.n_threads = par_default();
    parse(&run, argc, argv);
    if (run.quiet)
        tool_quiet();
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    if (out_open(&run.out, answer_path(&run), run.out_flags,
                 run.mode == MODE_LOGITS || run.mode == MODE_ACTS, &err) < 0)
        die_err(&err);
    if (run.lut_report &&
        out_open(&run.lut_out, run.lut_report, run.out_flags, false, &err) < 0)
        rc = -1;
    if (rc == 0)
        rc = modes[run.mode](&run, &err);
    if (rc == 0)
        rc = run_lut_report(&run, &err);
    if (rc == 0 && run.out) /* a mode may have done it */
        rc = out_commit(run.out, &err);
    else
        out_abort(run.out);
    out_abort(run.lut_out);
    run_close(&run);
    if (rc < 0)
        die_err(&err);
    tool_end(0);
}
