/* SPDX-License-Identifier: ISC */
/* hf-infer: the command line, and the start of the mode that it selects. */
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/hf-infer/messages.h"
#include "cmd/hf-infer/run.h"
#include "core/image/picture.h"
#include "core/image/processor.h"
#include "core/kernel/cpu.h"
#include "core/sig.h"
#include "core/tool.h"

static int
add_stop(void *to, const char *arg, struct err *err)
{
    struct stop *stop = &((struct run *)to)->stop;

    if (!*arg)
        return err_set(err, TU_USAGE,
                       "--stop: an empty text would never be found");
    if (stop->n == STOP_MAX)
        return err_set(err, TU_USAGE, "--stop: given more than %d times",
                       STOP_MAX);
    stop->string[stop->n++] = arg;
    return 0;
}

static int
set_steer_at(void *to, const char *arg, struct err *err)
{
    return steer_at_parse(&((struct run *)to)->saes.at, arg, err);
}

/* The modes that an option is for. */
#define TEXT_IN  "generate logits nll top acts encode lut-auto ppl render"
#define CODED_IN "generate logits nll top acts encode lut-auto ppl"
#define IDS_IN   "generate logits nll top acts decode lut-auto ppl"
#define MODEL_IN "generate logits nll top acts lut-auto ppl"

/* N or HxW. */
static int
set_image_size(void *to, const char *arg, struct err *err)
{
    struct run *run = to;
    char *end = NULL;
    size_t height = isdigit((unsigned char)*arg) ? strtoul(arg, &end, 10) : 0;
    size_t width = height;

    if (end && *end == 'x' && isdigit((unsigned char)end[1]))
        width = strtoul(end + 1, &end, 10);
    if (height < 1 || width < 1 || *end || height > PROCESSOR_MAX_SIZE ||
        width > PROCESSOR_MAX_SIZE)
        return err_set(err, TU_USAGE,
                       "--image-size %s: must be N or HxW, of numbers from 1 "
                       "to %d",
                       arg, PROCESSOR_MAX_SIZE);
    run->image_height = height;
    run->image_width = width;
    return 0;
}

#define OPT_INTO struct run
static const struct opt opts[] = {
    { 'p', "prompt", "TEXT", TEXT_IN, OPT_TEXT(prompt),
      "the prompt (default: standard input)" },
    { 0, "file", "FILE", TEXT_IN " decode", OPT_TEXT(prompt_file),
      "file with the prompt (--decode: with ids)" },
    { 0, "ids", "LIST", IDS_IN, OPT_TEXT(ids_text),
      "prompt as ids: 1,47,387; - is standard input" },
    { 0, "raw", NULL, MODEL_IN, OPT_FLAG(raw),
      "add no special tokens to the prompt" },
    { 0, "prepend-bos", NULL, MODEL_IN, OPT_FLAG(prepend_bos),
      "begin the prompt, or each window of --acts, with bos" },
    { 0, "plain", NULL, CODED_IN, OPT_FLAG(plain),
      "read names of special tokens as plain text" },
    { 0, "strict-utf8", NULL, TEXT_IN, OPT_FLAG(strict_utf8),
      "refuse a prompt that is not UTF-8" },
    { 0, "as-text", NULL, TEXT_IN, OPT_FLAG(as_text),
      "read a JSON file as text, not as prompts (--jsonl)" },
    { 0, "chat", NULL, TEXT_IN, OPT_FLAG(chat),
      "treat the prompt as a user's message (none: converse)" },
    { 0, "messages", "FILE.json", TEXT_IN, OPT_TEXT(messages),
      "a conversation for --chat: messages, tools and other variables" },
    { 0, "template", "FILE|NAME", TEXT_IN, OPT_FILE(template),
      "template of --chat (default: the model's own)" },
    { 0, "template-var", "NAME=VALUE", TEXT_IN, OPT_LIST(template_vars, 64),
      "a variable of the template, JSON or text" },
    { 0, "system", "TEXT", TEXT_IN, OPT_TEXT(system),
      "system message of --chat" },
    { 'n', "max-tokens", "N", "generate", OPT_I64(max_tokens, 0, INT32_MAX),
      "tokens to generate (default 256)" },
    { 0, "greedy", NULL, "generate", OPT_FLAG(sampler.greedy),
      "always the most likely token" },
    { 0, "temperature", "T", "generate", OPT_F64(sampler.temperature, 0, 1e6),
      "divide the logits by T (default 1; 0: --greedy)" },
    { 0, "top-k", "K", "generate", OPT_I64(sampler.top_k, 0, INT32_MAX),
      "keep the K most likely (default 0: all)" },
    { 0, "top-p", "P", "generate", OPT_F64(sampler.top_p, 0, 1),
      "keep the most likely up to a total probability P (default 1)" },
    { 0, "min-p", "P", "generate", OPT_F64(sampler.min_p, 0, 1),
      "keep tokens with at least P times the best probability" },
    { 0, "repetition-penalty", "X", "generate",
      OPT_F64(sampler.repetition_penalty, 1e-6, 1e6),
      "penalty for ids that came before (default 1)" },
    { 0, "seed", "N", "generate", OPT_U64(sampler.seed, 0, UINT64_MAX),
      "seed of the random numbers" },
    { 0, "stop", "TEXT", "generate", OPT_CALL(add_stop),
      "stop before TEXT; may be given 16 times" },
    { 0, "jsonl", NULL, "generate nll acts render", OPT_FLAG(jsonl),
      "read prompts and write answers as JSON objects, one per line" },
    { 0, "batch", "N", "generate acts", OPT_I64(batch, 1, 1024),
      "number of prompts computed together" },
    { 0, "skip-bad", NULL, "generate acts", OPT_FLAG(skip_bad),
      "skip bad lines, or broken images, with a warning" },
    { 0, "resume", NULL, "generate", OPT_FLAG(resume),
      "continue after the answers in FILE.partial" },
    { 0, "logprobs", "N", "generate", OPT_I64(n_best, 0, LOGPROBS_MAX),
      "log-probabilities, and those of the N best, in --json or --jsonl" },
    { 0, "ids-out", NULL, "generate", OPT_FLAG(ids_out),
      "print ids instead of text" },
    { 0, "logits", "FILE", NULL, OPT_TEXT(logits_path),
      "write f32 [tokens, vocab] as .npy" },
    { 0, "nll", NULL, NULL, OPT_NOTHING,
      "negative log-likelihood of each token, and the perplexity" },
    { 0, "ppl", NULL, NULL, OPT_NOTHING, "print the perplexity alone" },
    { 0, "top", "K", NULL, OPT_I64(top_k_logits, 1, INT32_MAX),
      "mean, std and the K largest of the last logits" },
    { 0, "acts", "SPEC", NULL, OPT_TEXT(acts),
      "dump activations: layers.1,layers.3, or short: resid:1,3 in:up_proj:0-5" },
    { 0, "places", NULL, NULL, OPT_NOTHING,
      "print what --acts and --sae can name in this model" },
    { 0, "families", NULL, NULL, OPT_NOTHING,
      "print the families of models that run here; needs no MODEL" },
    { 0, "ctx", "T", "nll acts lut-auto ppl", OPT_I64(ctx, 1, INT32_MAX),
      "windows of T tokens (--nll: default the context)" },
    { 0, "stride", "N", "nll lut-auto ppl", OPT_I64(stride, 1, INT32_MAX),
      "start a window every N tokens of a longer text" },
    { 0, "pad", NULL, "acts", OPT_FLAG(pad),
      "one document per window, padded with zeros" },
    { 0, "acts-meta", "FILE", "acts", OPT_TEXT(acts_meta),
      "write SAEV metadata of the dump" },
    { 0, "acts-ids", "FILE", "acts", OPT_TEXT(acts_ids),
      "write the windows' token ids as .npy, and FILE.json" },
    { 0, "images", "SRC", "generate acts", OPT_FILE(images),
      "pictures for a vision encoder: a directory, .tar, list, PNG or JPEG" },
    { 0, "features", "FILE.npy", "generate acts", OPT_FILE(features),
      "write the encoder's pooled features of each image" },
    { 0, "pixels", "FILE.npy", "generate acts", OPT_FILE(pixels),
      "write what the encoder gets of each image; alone: runs no model" },
    { 0, "acts-images", "FILE.tsv", "generate acts", OPT_FILE(acts_images),
      "write which image each row is: label, class, path" },
    { 0, "no-cls", NULL, "acts", OPT_FLAG(no_cls),
      "leave out the CLS token of each image" },
    { 0, "exif", NULL, "generate acts", OPT_FLAG(exif),
      "turn images upright by their orientation tag" },
    { 0, "image-size", "N|HxW", "generate acts", OPT_CALL(set_image_size),
      "resize images to this, in place of the preprocessor's size" },
    { 0, "hash-images", NULL, "acts", OPT_FLAG(hash_images),
      "metadata have a hash of the images' bytes, too" },
    { 0, "max-pixels", "N", "generate acts",
      OPT_I64(max_pixels, 1, (int64_t)PICTURE_MAX_SIDE *PICTURE_MAX_SIDE),
      "an image with more pixels is broken" },
    { 0, "encode", NULL, NULL, OPT_NOTHING, "text to ids" },
    { 0, "render", NULL, NULL, OPT_NOTHING,
      "print the text that the chat template gives" },
    { 0, "decode", NULL, NULL, OPT_NOTHING, "ids to text" },
    { 0, "special", NULL, "encode", OPT_FLAG(special),
      "add special tokens such as bos" },
    { 0, "skip-special", NULL, "decode", OPT_FLAG(skip_special),
      "leave special tokens out" },
    { 0, "raw-text", NULL, "generate decode render", OPT_FLAG(raw_text),
      "print control characters on a terminal, too" },
    { 0, "json", NULL, "generate nll top encode ppl", OPT_FLAG(json),
      "print JSON" },
    { 'o', "output", "FILE",
      "generate nll top acts encode decode lut-auto places ppl "
      "families render",
      OPT_TEXT(output),
      "output file; a directory for --acts of several points" },
    TOOL_FORCE(NULL),
    { 0, "session", "FILE", "generate top", OPT_FILE(session_file),
      "begin with the keys and values of --save-session" },
    { 0, "save-session", "FILE", "generate top", OPT_FILE(save_session),
      "write the prompt's keys and values" },
    { 0, "chunk", "N", MODEL_IN, OPT_I64(chunk, 1, 65536),
      "prompt tokens computed together (the bits stay the same)" },
    { 0, "compute", "f32|bf16", MODEL_IN,
      OPT_WORD(arithmetic.compute, COMPUTE_F32),
      "bf16 is less exact, faster if the CPU has it (default f32)" },
    { 0, "kv-dtype", "f32|f16|bf16", MODEL_IN, OPT_DTYPE(arithmetic.kv),
      "f16 and bf16 take half the cache (default f32)" },
    { 0, "kv-latents", NULL, MODEL_IN, OPT_FLAG(arithmetic.latents),
      "DeepSeek: cache latents, in place of the heads' keys and values" },
    { 0, "lora", "PATH,..", MODEL_IN, OPT_LIST(lora, 16),
      "add low-rank adapters: PEFT directories, or moe-sft's FILE[@LAYER]" },
    { 0, "kvc", "FILE.bin", "generate nll", OPT_TEXT(kvc),
      "compress the prompt's keys and values by FILE.bin" },
    { 0, "kvc-after", "N", "nll", OPT_I64(kvc_after, 1, INT32_MAX),
      "tokens before --kvc compresses (default: half of the text)" },
    { 0, "sae", "SAE[@HOOK]", MODEL_IN, OPT_LIST(saes.specs[SPLICE_SAE], 1024),
      "replace activations by an SAE's reconstruction" },
    { 0, "sae-center", NULL, MODEL_IN, OPT_FLAG(saes.center),
      "encode rows less their mean: centred writing weights" },
    { 0, "sae-zero", NULL, MODEL_IN, OPT_FLAG(saes.zero),
      "put zeros there instead" },
    { 0, "steer", "SAE[@HOOK]:CHANGE,..", MODEL_IN,
      OPT_LIST(saes.specs[SPLICE_STEER], 1024),
      "change an SAE's latents: 17+8 adds, 17=0 sets, 17*2 scales" },
    { 0, "ablate", "SAE[@HOOK]:LATENTS", MODEL_IN,
      OPT_LIST(saes.specs[SPLICE_ABLATE], 1024),
      "set these latents to 0: 3,17,100-120" },
    { 0, "ablate-each", "SAE[@HOOK]:LATENTS", "nll",
      OPT_LIST(saes.specs[SPLICE_EACH], 1),
      "print what ablating each latent alone does to the nll" },
    { 0, "steer-at", "all|prompt|generated|A-B", MODEL_IN,
      OPT_CALL(set_steer_at), "tokens that are steered (default all)" },
    { 0, "lut", "DIR", MODEL_IN, OPT_TEXT(lut),
      "run linear layers on the lookup tables of DIR" },
    { 0, "lut-layers", "GLOB,..", MODEL_IN, OPT_TEXT(table.layers),
      "use only tables of layers that match (default: all)" },
    { 0, "ratio", "R", MODEL_IN, OPT_F64(table.ratio, 0, 1),
      "fraction of inputs that --lut compensates (default 0)" },
    { 0, "tau", "T", MODEL_IN, OPT_F64(table.tau, 0, 1e30),
      "compensate inputs with an error over T times the elbow threshold" },
    { 0, "dims", "DIR", MODEL_IN, OPT_TEXT(table.dims),
      "compensate the inputs in DIR/LAYER.npy, the same for all tokens" },
    { 0, "lut-report", "FILE", "generate logits nll top acts ppl",
      OPT_TEXT(lut_report),
      "write the error of each table against its layer; -v: their times" },
    { 0, "lut-auto", "NATS", NULL, OPT_F64(lut_auto, 0, 1e6),
      "print which tables save most time for NATS per token" },
    { 0, "no-screen", NULL, MODEL_IN, OPT_FLAG(no_screen),
      "compute all pre-activations exactly; the bits are the same" },
    TOOL_THREADS(MODEL_IN),
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "report set-up and speed on standard error" },
    { 'q', "quiet", NULL, NULL, OPT_FLAG(quiet), "no warnings, no summary" },
    { 0 }
};

static const struct opt_rule rules[] = {
    { OPT_ONE_OF, "prompt file ids messages", NULL, NULL },
    /* else one of two would be ignored */
    { OPT_ONCE,
      "prompt file ids messages template acts kvc lut lut-layers images "
      "session save-session",
      NULL, NULL },
    { OPT_NOT, "ids", "chat raw plain strict-utf8", NULL },
    { OPT_NEEDS, "messages system template template-var render", "chat", NULL },
    { OPT_NOT, "chat", "raw plain special",
      "--chat decides on special tokens: not with --raw, --plain or --special" },
    { OPT_NOT, "greedy", "temperature top-k top-p min-p seed",
      "--greedy does not sample: of the sampler's options only "
      "--repetition-penalty goes with it" },
    { OPT_NOT, "raw-text", "json jsonl ids-out",
      "--raw-text is about text: not with --json, --jsonl or --ids-out" },
    { OPT_NOT, "ids-out", "json jsonl stop", NULL },
    { OPT_NOT, "jsonl", "json prompt ids messages", NULL },
    { OPT_NOT, "as-text", "jsonl prompt ids messages", NULL },
    { OPT_NEEDS, "logprobs", "json jsonl",
      "--logprobs needs --json or --jsonl, which print them" },
    { OPT_NEEDS, "pad", "ctx", NULL },
    { OPT_NOT, "kvc", "ctx stride kv-latents", NULL },
    { OPT_NEEDS, "kvc-after", "kvc", NULL },
    { OPT_NOT, "session save-session", "kvc sae steer ablate lut",
      "--session and --save-session are of the model and --lora alone: not "
      "with --kvc, --sae, --steer, --ablate or --lut" },
    { OPT_NOT, "save-session", "jsonl", NULL },
    { OPT_NEEDS, "sae-zero", "sae", NULL },
    { OPT_NEEDS, "sae-center", "sae steer ablate ablate-each", NULL },
    { OPT_NEEDS, "steer-at", "steer ablate ablate-each", NULL },
    { OPT_NOT, "ablate-each", "json jsonl kvc", NULL },
    { OPT_ONE_OF, "ratio tau dims", NULL, NULL },
    { OPT_NEEDS, "lut-layers ratio tau dims lut-report lut-auto", "lut", NULL },
    { OPT_NEEDS, "no-screen", "lut sae steer ablate ablate-each", NULL },
    { OPT_NEEDS, "resume", "jsonl", NULL },
    { OPT_NEEDS, "batch skip-bad", "jsonl images", NULL },
    { OPT_NEEDS,
      "features pixels acts-images no-cls exif image-size hash-images "
      "max-pixels",
      "images", NULL },
    { OPT_NOT,
      "prompt file ids raw prepend-bos plain strict-utf8 as-text chat "
      "messages template template-var system max-tokens greedy temperature "
      "top-k top-p min-p "
      "repetition-penalty seed stop jsonl resume logprobs ids-out raw-text json "
      "ctx pad "
      "acts-ids chunk session save-session kv-dtype kv-latents lora kvc steer ablate ablate-each "
      "steer-at lut lut-layers ratio tau dims lut-report no-screen",
      "images", NULL },
    { OPT_NEEDS, "images", "acts features pixels",
      "--images needs --acts, --features or --pixels" },
    { OPT_NEEDS, "resume", "output", NULL },
    { OPT_ONE_OF, "verbose quiet", NULL, NULL },
    { OPT_NEEDS, "force",
      "output logits acts-meta acts-ids lut-report features pixels "
      "acts-images save-session",
      "--force needs an output file" },
    { 0 },
};

static const struct run defaults = {
    .max_tokens = -1,
    .n_best = -1,
    .chunk = 512,
    .batch = 16,
    .max_pixels = (int64_t)PICTURE_MAX_PIXELS,
    .arithmetic.kv = DT_F32,
    .table = { .ratio = -1, .tau = -1 },
    .lut_auto = -1,
};

static const struct opt_group groups[] = {
    { "prompt", "the prompt" },
    { "max-tokens", "generation" },
    { "jsonl", "many prompts" },
    { "logits", "instead of generating" },
    { "images", "images" },
    { "encode", "tokens" },
    { "output", "files" },
    { "chunk", "arithmetic" },
    { "lora", "changes to the model" },
    { "threads", "the run" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "hf-infer",
    .usage =
        "hf-infer MODEL [-p TEXT | --file FILE | --ids LIST] [-n N] "
        "[--greedy]\n"
        "hf-infer MODEL --jsonl [-n N] [--batch N] < PROMPTS.jsonl\n"
        "hf-infer MODEL --logits FILE.npy | --nll | --ppl | --top K ...\n"
        "hf-infer MODEL --acts SPEC [--ctx T] [--acts-meta FILE] ...\n"
        "hf-infer VIT --images SRC --acts SPEC | --features FILE.npy | ...\n"
        "hf-infer MODEL --lut DIR --lut-auto NATS --file FILE\n"
        "hf-infer MODEL --places | --encode | --decode | --render ...\n"
        "hf-infer --families",
    .summary = "Runs a Hugging Face model on the CPU: llama, gemma2, gpt2, ... "
               "(--families).",
    .examples = "hf-infer MODEL --chat -p \"What is the capital of France?\"\n"
                "hf-infer MODEL --ppl < text",
    .opts = opts,
    /* enum mode */
    .modes = "generate logits nll top acts encode decode lut-auto places ppl "
             "families render",
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
    .rare =
        "raw prepend-bos plain strict-utf8 as-text messages template template-var system top-k min-p repetition-penalty "
        "batch skip-bad resume logprobs ids-out stride pad acts-ids render special "
        "acts-images no-cls exif image-size hash-images max-pixels "
        "skip-special raw-text chunk kv-dtype kv-latents kvc-after sae-center sae-zero "
        "ablate-each steer-at lut-layers ratio tau dims lut-report no-screen "
        "session save-session",
};

int
main(int argc, char **argv)
{
    static int (*const modes[])(struct run *, struct err *) = {
        run_generate, run_logits, run_nll,      run_top,    run_acts,
        run_encode,   run_decode, run_lut_auto, run_places, run_nll,
        run_families, run_render, run_images
    };
    static const struct {
        unsigned bit;
        const char *option;
    } settings[] = {
        { SET_TEMPERATURE, "temperature" },
        { SET_TOP_K, "top-k" },
        { SET_TOP_P, "top-p" },
        { SET_MIN_P, "min-p" },
        { SET_PENALTY, "repetition-penalty" },
        { SET_SEED, "seed" },
        { SET_GREEDY, "greedy" },
    };
    struct run run = defaults;
    struct opt_line line;
    struct err err;
    int rc = -1;

    tool_parse(&line, &tool, argc, argv, &run);
    run.mode = run.images ? MODE_IMAGES : (enum mode)line.verb;
    if (run.mode == MODE_ACTS)
        for (int i = 0; i < 2; i++)
            if (opt_given(&line, i ? "batch" : "skip-bad"))
                die_usage("option --%s has no meaning for --acts of text",
                          i ? "batch" : "skip-bad");
    if (run.images && run.output && !run.acts)
        die_usage("-o is for --acts: --features and --pixels name their files");
    if (run.images && !opt_given(&line, "batch"))
        run.batch = 0;
    if (line.n_args == 0 && run.mode != MODE_FAMILIES)
        die_usage("no model directory given");
    if (line.n_args > 1)
        die_usage("\"%s\": there is one model, and the prompt is given by "
                  "-p, --file or standard input",
                  line.args[1]);
    run.dir = line.n_args ? line.args[0] : NULL;
    if (messages_check(&run, &err) < 0)
        die_err(&err);
    if (run.messages)
        run.prompt_file = run.messages;
    if (run.mode != MODE_PLACES && run.mode != MODE_FAMILIES &&
        run.mode != MODE_IMAGES && !run.prompt && !run.prompt_file &&
        !run.ids_text && isatty(0)) {
        run.converses = run.mode == MODE_GENERATE && run.chat && isatty(1) &&
                        !run.output && !run.jsonl && !run.json && !run.ids_out;
        if (!run.converses)
            die_usage(
                "no prompt: give -p, --file, --ids or --messages, or pipe "
                "it in");
        if (run.kvc || run.save_session)
            die_usage("--%s is of one prompt: not in a conversation",
                      run.kvc ? "kvc" : "save-session");
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (opt_given(&line, settings[i].option))
            run.sampler_set |= settings[i].bit;
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    rc = outputs_open(&run, &err);
    if (rc == 0 && run.chat)
        rc = messages_open(&run, &err);
    if (rc == 0)
        rc = modes[run.mode](&run, &err);
    rc = outputs_close(&run, rc, &err);
    run_close(&run);
    if (rc < 0)
        die_err(&err);
    tool_end(0);
}
