/* SPDX-License-Identifier: ISC */
/* sae-look: the command line. */
#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/kernel/cpu.h"
#include "core/sig.h"
#include "core/tool.h"

#define OPT_INTO struct look_cmd
static const struct opt opts[] = {
    { 's', "sae", "SAE", "lens!", OPT_FILE(sae), "the SAE, see sae(5)" },
    { 'm', "model", "MODEL", "lens! show", OPT_FILE(model),
      "the model that the rows are of" },
    { 'o', "output", "RUN", "lens", OPT_FILE(output),
      "write RUN/lens.safetensors, of all latents" },
    { 0, "hook", "NAME", "lens", OPT_TEXT(hook),
      "where the rows are from (default: as the SAE says)" },
    { 0, "no-norm", NULL, "lens", OPT_FLAG(no_norm),
      "without the factor of the final norm" },
    { 0, "sort", "index|density|mean|max", "list", OPT_WORD(sort, SORT_INDEX),
      "order of latents; all but index are largest first" },
    { 'n', "most", "N", "lens list", OPT_U64(n, 1, INT64_MAX),
      "show the first N of them (default: all)\n"
      "lens: tokens of each sign (default 10)" },
    { 0, "min-density", "X", "list", OPT_F64(min_density, 0, 1),
      "only latents that are active in at least this share of rows" },
    { 0, "max-density", "X", "list", OPT_F64(max_density, 0, 1),
      "only latents that are active in at most that share" },
    { 0, "quantiles", "Q", "show", OPT_U64(quantiles, 1, LOOK_MAX_EXAMPLES),
      "equal parts of a sample, by value" },
    { 0, "pairs-shown", "N", "show", OPT_U64(pairs_shown, 0, LOOK_MAX_LATENTS),
      "latents that one was most often active with" },
    { 0, "json", NULL, "show", OPT_FLAG(json),
      "an object a line for each latent" },
    TOOL_THREADS("lens"),
    TOOL_FORCE("lens"),
    TOOL_QUIET,
    { 0 },
};

static const struct look_cmd defaults = {
    .max_density = 1,
    .quantiles = 5,
    .pairs_shown = 10,
};

static const struct opt_verb verbs[] = {
    { "lens", "[LATENT...]", "tokens that latents promote and suppress",
      "sae-look lens -s SAE -m MODEL 3,17 100-120\n"
      "sae-look lens -s SAE -m MODEL -o RUN" },
    { "list", "RUN", "a row for each latent: how often, how strongly",
      "sae-look list RUN\n"
      "sae-look list --sort density -n 20 RUN" },
    { "show", "RUN LATENT...", "what latents are: examples, tokens, histogram",
      "sae-look show RUN 17 -m MODEL\n"
      "sae-look show --json RUN 0-99" },
    { 0 },
};

/* In the order of 'verbs'. */
static int (*const mains[])(const struct look_cmd *cmd,
                            struct err *err) = { lens_main, list_main,
                                                 show_main };
TOOL_MAINS(mains, verbs);

static const struct opt_tool tool = {
    .name = "sae-look",
    .usage = "sae-look VERB [OPTION...] [RUN|SAE|LATENT...]",
    .summary = "Shows what the latents of sparse autoencoders are.",
    .opts = opts,
    .verbs = verbs,
    .verb_needed = true,
    .defaults = &defaults,
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
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    if (mains[line.verb](&cmd, &err) < 0)
        die_err(&err);
    tool_end(0);
}
