/* SPDX-License-Identifier: ISC */
/* st-inspect: the command line. */
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/text.h"
#include "core/format/stdir.h"
#include "core/inuse.h"
#include "core/map.h"
#include "core/sig.h"
#include "core/tool.h"

static int
set_quantiles(void *to, const char *arg, struct err *err)
{
    struct inspect_cmd *cmd = to;
    int n = opt_f64_list("--quantiles", arg, 0, 1, cmd->quantiles,
                         MAX_QUANTILES, err);

    cmd->n_quantiles = (size_t)n;
    return n < 0 ? -1 : 0;
}

#define OPT_INTO struct inspect_cmd
static const struct opt opts[] = {
    { 't', "tensor", "GLOB", "list tree stats hash diff",
      OPT_LIST(globs, SIZE_MAX),
      "only tensors whose name matches; may be repeated" },
    { 'l', "long", NULL, "list", OPT_FLAG(long_rows),
      "add each tensor's place and file" },
    { 0, "fold", NULL, "list tree", OPT_FLAG(fold),
      "repeated layers as one row: layers.{0..31}" },
    { 0, "depth", "N", "tree", OPT_I64(depth, 0, TREE_MAX_DEPTH),
      "levels shown, 0: all" },
    { 0, "dequantize", NULL, "stats diff cat", OPT_FLAG(dequantize),
      "packed weights as the numbers that they stand for" },
    { 0, "quantiles", "LIST", "stats", OPT_CALL(set_quantiles),
      "which, 0 to 1 (default 0.01,0.25,0.5,0.75,0.99)" },
    { 0, "hist", NULL, "stats", OPT_FLAG(hist),
      "rows are bins of a histogram" },
    { 0, "bins", "N", "stats", OPT_I64(n_bins, 1, MAX_BINS),
      "bins of a histogram" },
    { 0, "svg", "FILE", "stats", OPT_TEXT(svg),
      "draw the histograms into FILE" },
    { 0, "plot", NULL, "stats", OPT_FLAG(plot),
      "draw them on stdout, in characters, instead of the table" },
    { 0, "sha256", NULL, "hash", OPT_CONST(hash, HASH_SHA256),
      "SHA-256 instead of XXH3-128" },
    { 0, "whole", NULL, "hash", OPT_FLAG(whole),
      "files only, without their tensors" },
    { 0, "check", "FILE", "hash", OPT_TEXT(check),
      "read digests from FILE and check them; - is stdin" },
    { 0, "all", NULL, "diff", OPT_FLAG(all), "also rows for equal tensors" },
    { 0, "ignore-dtype", NULL, "diff", OPT_FLAG(ignore_dtype),
      "equal numbers are equal, whatever their type" },
    { 0, "atol", "X", "diff", OPT_F64(atol, 0, 1e300),
      "|a - b| <= X + rtol |a| is equal" },
    { 0, "rtol", "X", "diff", OPT_F64(rtol, 0, 1e300), "see --atol" },
    { 0, "raw", NULL, "cat", OPT_FLAG(raw),
      "bytes as in the file, without a header" },
    { 0, "dtype", "f32|f64", "cat", OPT_DTYPE(dtype), "convert to that" },
    { 0, "slice", "INDEX", "cat", OPT_TEXT(slice),
      "as in numpy: \"0:4,:,-1\"" },
    { 0, "json", NULL, NULL, OPT_FLAG(json), "JSON on stdout instead of TSV" },
    { 0, "align", NULL, "list tree stats hash diff meta verify",
      OPT_FLAG(align), "pad columns with spaces instead of tabs" },
    TOOL_OUTPUT,
    TOOL_FORCE(NULL),
    TOOL_THREADS("stats hash verify diff"),
    { 'v', "verbose", NULL, "list tree stats hash verify diff",
      OPT_FLAG(verbose), "a summary on stderr" },
    TOOL_QUIET,
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_NEEDS, "bins", "hist svg plot", NULL },
    { OPT_NOT, "plot", "json hist align quantiles", NULL },
    { OPT_NOT, "json", "align", "--json has no columns to --align" },
    { OPT_NOT, "json", "raw", "--json and --raw are two forms of one output" },
    { OPT_NOT, "json", "dtype",
      "--json gives the numbers as they are, without --dtype" },
    { OPT_NOT, "raw", "dtype",
      "--raw gives the bytes as they are, without --dtype" },
    { OPT_NOT, "raw", "dequantize",
      "--raw gives the bytes as they are, without --dequantize" },
    { OPT_NOT, "check", "tensor sha256 whole",
      "--check FILE says what is hashed and how: not with --tensor, --sha256 or --whole" },
    { OPT_NOT, "whole", "tensor", "--whole hashes files, without --tensor" },
    { OPT_NOT, "fold", "long",
      "--fold joins tensors, which have different places" },
    { 0 },
};

static const struct inspect_cmd defaults = {
    .dtype = -1,
    .depth = 3,
    .n_bins = 24,
    .out_path = "-",
    .quantiles = { 0.01, 0.25, 0.5, 0.75, 0.99 },
    .n_quantiles = 5,
};

static const struct opt_verb verbs[] = {
    { "list", "FILE|DIR", "one row a tensor (the default verb)",
      "st-inspect list --fold --align MODEL\n"
      "st-inspect list --long model.safetensors" },
    { "tree", "FILE|DIR", "parameters and bytes by module",
      "st-inspect tree --align MODEL\n"
      "st-inspect tree --depth 2 MODEL" },
    { "stats", "FILE|DIR", "range, moments, quantiles, NaN, histogram",
      "st-inspect stats --align MODEL\n"
      "st-inspect stats --hist -t '*embed*' MODEL" },
    { "hash", "FILE|DIR...", "digests of files and tensors",
      "st-inspect hash --sha256 MODEL > sums\n"
      "st-inspect hash --check sums" },
    { "verify", "FILE|DIR...", "is the file whole? names the bad ones",
      "st-inspect verify MODEL && echo sound\n"
      "st-inspect verify *.safetensors" },
    { "diff", "A B", "structure, then values; .npy, too",
      "st-inspect diff before.safetensors after.safetensors\n"
      "st-inspect diff --ignore-dtype -t lm_head.weight MODEL OTHER" },
    { "cat", "FILE TENSOR", "one tensor as .npy",
      "st-inspect cat MODEL model.norm.weight --dtype f32 > norm.npy\n"
      "st-inspect cat --slice 0:2,:4 --json MODEL lm_head.weight" },
    { "meta", "FILE|DIR...", "the header's __metadata__",
      "st-inspect meta model.safetensors\n"
      "st-inspect meta --json MODEL" },
    { 0 },
};

/* In the order of 'verbs'. */
static int (*const mains[])(struct inspect_cmd *cmd, struct err *err) = {
    list_main,   tree_main, stats_main, hash_main,
    verify_main, diff_main, cat_main,   meta_main,
};
TOOL_MAINS(mains, verbs);

static const struct opt_group groups[] = {
    { "tensor", "which tensors, in which form" },
    { "quantiles", "statistics" },
    { "sha256", "checks" },
    { "raw", "numbers" },
    { "json", "files" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "st-inspect",
    .usage = "st-inspect [VERB] [OPTION...] FILE|DIR...",
    .summary = "Shows what is in safetensors files and model directories, and "
               "checks it.",
    .opts = opts,
    .verbs = verbs,
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
    .rare = "bins align quantiles depth atol rtol ignore-dtype",
};

int
main(int argc, char **argv)
{
    struct inspect_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };
    int status;

    tool_parse(&line, &tool, argc, argv, &cmd);
    cmd.verb = verbs[line.verb].name;
    cmd.args = line.args;
    cmd.n_args = line.n_args;
    cmd.row = (struct record){ .to = &cmd.text, .json = cmd.json };
    /* A missing input is reported before the work on the others; verify
     * continues with the next. */
    for (int i = 0; i < cmd.n_args; i++)
        if (strcmp(cmd.verb, "verify") != 0 && strcmp(cmd.verb, "cat") != 0 &&
            file_missing(cmd.args[i])) {
            err_sys(&err, EX_NOINPUT, "%s", cmd.args[i]);
            die_err(&err);
        }
    sig_install(true);
    for (int i = 0; i < cmd.n_args; i++)
        if ((i == 0 || strcmp(cmd.verb, "cat") != 0) &&
            inuse_will_read(cmd.args[i], &err) < 0)
            die_err(&err);
    if (out_open(&cmd.out, cmd.out_path,
                 cmd.out_flags | (cmd.align ? OUT_ALIGN : OUT_TABLE),
                 !strcmp(cmd.verb, "cat") && !cmd.json, &err) < 0)
        die_err(&err);
    status = mains[line.verb](&cmd, &err);
    par_close(cmd.par);
    if (status < 0 || text_finish(&cmd, &err) < 0) {
        out_abort(cmd.out);
        die_err(&err);
    }
    str_free(&cmd.text);
    free(cmd.globs.item);
    tool_end(status);
}
