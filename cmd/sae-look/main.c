/* SPDX-License-Identifier: ISC */
/* sae-look: the command line. */
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tool.h"

/* Two numbers with a mark between them. */
static int
set_pair(uint64_t to[2], const char *name, const char *form, char mark,
         uint64_t min, uint64_t max, const char *arg, struct err *err)
{
    const char *at = strchr(arg, mark);
    char *first = at ? xstrndup(arg, (size_t)(at - arg)) : NULL;
    int rc =
        !at ? err_set(err, TU_USAGE, "%s: \"%s\" is not %s", name, arg, form)
            : opt_u64(name, first, min, max, &to[0], err);

    free(first);
    return rc < 0 ? -1 : opt_u64(name, at + 1, min, max, &to[1], err);
}

static int
set_context(void *to, const char *arg, struct err *err)
{
    struct look_cmd *cmd = to;

    cmd->context_all = !strcmp(arg, "all");
    return cmd->context_all ? 0
                            : set_pair(cmd->context, "--context", "A,B or all",
                                       ',', 0, LOOK_MAX_TOKENS, arg, err);
}

static int
set_grid(void *to, const char *arg, struct err *err)
{
    return set_pair(((struct look_cmd *)to)->grid, "--grid", "WxH", 'x', 1,
                    1024, arg, err);
}

#define OPT_INTO struct look_cmd
static const struct opt opts[] = {
    { 's', "sae", "SAE", "scan! lens!", OPT_FILE(sae), "the SAE, see sae(5)" },
    { 'o', "output", "RUN", "scan! merge! lens html prompts", OPT_FILE(output),
      "directory to write, whole or not at all\n"
      "lens: write RUN/lens.safetensors, of all latents\n"
      "html prompts: file to write, whole or not at all" },
    { 0, "acts-ids", "FILE", "scan", OPT_FILE(acts_ids),
      "token ids of all rows, as hf-infer --acts-ids writes them" },
    { 0, "tokens", "T", "scan", OPT_U64(tokens, 1, LOOK_MAX_TOKENS),
      "tokens of a sequence (default: of the ids or dump, or 1)" },
    { 0, "input-at", "ROW", "scan", OPT_U64(input_at, 0, INT64_MAX / 2),
      "the input is a part that begins with that row" },
    { 0, "dim", "D", "scan", OPT_U64(dim, 1, 1 << 24),
      "the input is raw rows of D numbers" },
    { 0, "x-dtype", "f32|f16|bf16", "scan", OPT_DTYPE(x_dtype),
      "type of raw numbers (default f32)" },
    { 0, "skip-ids", "LIST", "scan", OPT_TEXT(skip_ids),
      "leave out tokens of these ids; special: all special ones" },
    { 0, "skip-positions", "N", "scan", OPT_U64(skip_positions, 0, INT64_MAX),
      "leave out the first N tokens of each sequence" },
    { 0, "max-norm", "X", "scan", OPT_F64(max_norm, 0, 1e300),
      "leave out rows with a larger L2 norm (0: none)" },
    { 0, "skip-bad", NULL, "scan", OPT_FLAG(skip_bad),
      "leave out rows with NaN or Inf" },
    { 0, "per", "sequence|row", "scan", OPT_WORD(per, LOOK_PER_SEQUENCE),
      "what an example is" },
    { 0, "top", "K", "scan", OPT_U64(top, 0, LOOK_MAX_EXAMPLES),
      "examples of the largest values, for each latent" },
    { 0, "sample", "M", "scan", OPT_U64(sample, 0, LOOK_MAX_EXAMPLES),
      "examples at random" },
    { 0, "seed", "S", "scan", OPT_U64(seed, 0, INT64_MAX), "of these" },
    { 0, "context", "A,B|all", "scan", OPT_CALL(set_context),
      "tokens before and after (default 20,11, or all without ids)" },
    { 0, "latents", "LATENTS", "scan html prompts export", OPT_TEXT(latents),
      "only these, such as 3,17,100-120" },
    { 0, "pairs", "LATENTS", "scan", OPT_TEXT(pairs),
      "count what is active together with these" },
    { 0, "codes", "DIR", "scan", OPT_FILE(codes),
      "write all activations, too, as delphi's cache" },
    { 0, "splits", "N", "scan", OPT_U64(splits, 1, 256),
      "files of these, by latents" },
    { 0, "model-id", "NAME", "scan export!", OPT_TEXT(model_id),
      "the model, for their config.json\n"
      "export: the model's name at neuronpedia.org" },
    { 0, "mem", "SIZE", "scan", OPT_SIZE(mem, 1),
      "fail if more memory than that is needed" },
    { 0, "gaps", NULL, "merge", OPT_FLAG(gaps),
      "rows between the parts may be missing" },
    { 'm', "model", "MODEL", "lens! show html prompts! export!",
      OPT_FILE(model), "the model that the rows are of" },
    { 0, "hook", "NAME", "lens", OPT_TEXT(hook),
      "where the rows are from (default: as the SAE says)" },
    { 0, "no-norm", NULL, "lens", OPT_FLAG(no_norm),
      "without the factor of the final norm" },
    { 0, "sort", "index|density|mean|max", "list html",
      OPT_WORD(sort, SORT_INDEX),
      "order of latents; all but index are largest first" },
    { 'n', "most", "N", "lens list diff html", OPT_U64(n, 1, INT64_MAX),
      "show the first N of them (default: all)\n"
      "lens: tokens of each sign (default 10)\n"
      "html: show the first N of them (default 200)" },
    { 0, "min-density", "X", "list html", OPT_F64(min_density, 0, 1),
      "only latents that are active in at least this share of rows" },
    { 0, "max-density", "X", "list html", OPT_F64(max_density, 0, 1),
      "only latents that are active in at most that share" },
    { 0, "quantiles", "Q", "show html export",
      OPT_U64(quantiles, 1, LOOK_MAX_EXAMPLES),
      "equal parts of a sample, by value" },
    { 0, "pairs-shown", "N", "show", OPT_U64(pairs_shown, 0, LOOK_MAX_LATENTS),
      "latents that one was most often active with" },
    { 0, "json", NULL, "show compare", OPT_FLAG(json),
      "an object a line for each latent\n"
      "compare: one object, of all latents" },
    { 0, "examples", "N", "html", OPT_U64(examples, 0, LOOK_MAX_EXAMPLES),
      "strongest examples of a latent" },
    { 0, "images", "LIST", "html", OPT_FILE(images),
      "file with the path of a picture for each image, one per line,\n"
      "or hf-infer's --acts-images" },
    { 0, "grid", "WxH", "html", OPT_CALL(set_grid),
      "patches of an image: W in a row, H rows" },
    { 0, "max-bytes", "SIZE", "html", OPT_SIZE(max_bytes, 1),
      "refuse to write a larger page" },
    { 0, "negatives", "N", "prompts", OPT_U64(negatives, 0, 100),
      "add texts in which the latent is not active" },
    { 0, "neuronpedia", "DIR", "export!", OPT_FILE(neuronpedia),
      "write SAEDashboard's batch-0.json, .. there" },
    { 0, "source", "ID", "export!", OPT_TEXT(source),
      "the SAE's name at neuronpedia.org" },
    TOOL_THREADS("scan merge lens compare"),
    TOOL_FORCE("scan merge lens html prompts label export"),
    TOOL_QUIET,
    { 0 },
};

static const struct look_cmd defaults = {
    .max_density = 1,
    .quantiles = 5,
    .pairs_shown = 10,
    .x_dtype = -1,
    .top = 20,
    .sample = 40,
    .context = { 20, 11 },
    .model_id = "",
    .splits = 5,
    .mem = (size_t)4 << 30,
    .examples = 10,
    .max_bytes = (size_t)32 << 20,
};

static const struct opt_rule rules[] = {
    { OPT_ONCE, "acts-ids skip-ids latents pairs images", NULL, NULL },
    { OPT_NEEDS, "x-dtype", "dim", NULL },
    { OPT_NEEDS, "splits", "codes", NULL },
    { OPT_NEEDS, "model-id", "codes neuronpedia", NULL },
    { OPT_NEEDS, "images", "grid", "--images needs --grid" },
    { OPT_NEEDS, "grid", "images", NULL },
    { OPT_NOT, "latents", "sort most min-density max-density", NULL },
    { 0 },
};

static const struct opt_verb verbs[] = {
    { "scan", "[FILE...]", "what each latent does in rows, in one pass",
      "sae-look scan -s SAE --acts-ids ids.npy -o RUN rows.npy\n"
      "sae-look scan -s SAE --skip-ids special -o RUN DUMP" },
    { "merge", "RUN...", "RUNs of parts of the rows become one",
      "sae-look merge -o RUN PART..." },
    { "lens", "[LATENT...]", "tokens that latents promote and suppress",
      "sae-look lens -s SAE -m MODEL 3,17 100-120\n"
      "sae-look lens -s SAE -m MODEL -o RUN" },
    { "list", "RUN", "a row for each latent: how often, how strongly",
      "sae-look list RUN\n"
      "sae-look list --sort density -n 20 RUN" },
    { "show", "RUN LATENT...", "what latents are: examples, tokens, histogram",
      "sae-look show RUN 17 -m MODEL\n"
      "sae-look show --json RUN 0-99" },
    { "compare", "SAE SAE",
      "for each latent the most similar one of another SAE",
      "sae-look compare SAE OTHER\n"
      "sae-look compare --json SAE OTHER" },
    { "diff", "RUN RUN", "where the densities of latents differ",
      "sae-look diff RUN OTHER\n"
      "sae-look diff -n 20 RUN OTHER" },
    { "html", "RUN", "one page of them, which opens from disk",
      "sae-look html -m MODEL -o latents.html RUN\n"
      "sae-look html --images LIST --grid 16x16 -o latents.html RUN" },
    { "prompts", "RUN", "a question for each latent, for hf-infer --jsonl",
      "sae-look prompts -m MODEL RUN | hf-infer BIG --jsonl > answers.jsonl" },
    { "label", "RUN ANSWERS", "labels, from a model's answers to these",
      "sae-look label RUN answers.jsonl" },
    { "export", "RUN", "batches for neuronpedia.org",
      "sae-look export --neuronpedia DIR --model-id gpt2-small "
      "--source 5-res-jb -m gpt2 RUN" },
    { 0 },
};

/* In the order of 'verbs'. */
static int (*const mains[])(const struct look_cmd *cmd, struct err *err) = {
    scan_main, merge_main, lens_main,    list_main,  show_main,  compare_main,
    diff_main, html_main,  prompts_main, label_main, export_main
};
TOOL_MAINS(mains, verbs);

static const struct opt_tool tool = {
    .name = "sae-look",
    .usage = "sae-look VERB [OPTION...] [RUN|SAE|LATENT...]",
    .summary = "Shows what the latents of sparse autoencoders are.",
    .opts = opts,
    .rules = rules,
    .verbs = verbs,
    .verb_needed = true,
    .defaults = &defaults,
    .pages = "html export",
    .rare = "input-at dim x-dtype per seed splits mem gaps no-norm min-density "
            "max-density pairs-shown negatives",
};

int
main(int argc, char **argv)
{
    struct look_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };

    tool_parse(&line, &tool, argc, argv, &cmd);
    cmd.line = &line;
    cmd.args = line.args;
    cmd.n_args = line.n_args;
    if (cmd.dim && cmd.x_dtype < 0)
        cmd.x_dtype = DT_F32;
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    if (mains[line.verb](&cmd, &err) < 0)
        die_err(&err);
    tool_end(0);
}
