/* st-inspect: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/text.h"
#include "core/format/stdir.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tool.h"

enum {
    O_JSON = OPT_LONG,
    O_ALIGN,
    O_FOLD,
    O_SORT,
    O_DEPTH,
    O_QUANTILES,
    O_HIST,
    O_BINS,
    O_SVG,
    O_SHA256,
    O_WHOLE,
    O_CHECK,
    O_ALL,
    O_ATOL,
    O_RTOL,
    O_IGNORE_DTYPE,
    O_RAW,
    O_DTYPE,
    O_SLICE,
};

static const struct opt opts[] = {
    { 't', "tensor", "GLOB", " list tree stats hash diff ", OPT_NOTHING,
      "only tensors whose name matches; may be given again" },
    { 'l', "long", NULL, " list ", OPT_NOTHING,
      "add each tensor's place and file" },
    { O_FOLD, "fold", NULL, " list tree ", OPT_NOTHING,
      "repeated layers as one row: layers.{0..31}" },
    { O_SORT, "sort", "name|file|size", " list ", OPT_NOTHING,
      "order of rows; size: largest first (default name)" },
    { O_DEPTH, "depth", "N", " tree ", OPT_NOTHING,
      "levels shown, 0: all (default 3)" },
    { O_QUANTILES, "quantiles", "LIST", " stats ", OPT_NOTHING,
      "which, 0 to 1 (default 0.01,0.25,0.5,0.75,0.99)" },
    { O_HIST, "hist", NULL, " stats ", OPT_NOTHING,
      "rows are bins of a histogram" },
    { O_BINS, "bins", "N", " stats ", OPT_NOTHING,
      "bins of a histogram (default 24)" },
    { O_SVG, "svg", "FILE", " stats ", OPT_NOTHING,
      "draw the histograms into FILE" },
    { O_SHA256, "sha256", NULL, " hash ", OPT_NOTHING,
      "SHA-256 instead of XXH3-128" },
    { O_WHOLE, "whole", NULL, " hash ", OPT_NOTHING,
      "files only, without their tensors" },
    { O_CHECK, "check", "FILE", " hash ", OPT_NOTHING,
      "read digests from FILE and check them; - is stdin" },
    { O_ALL, "all", NULL, " diff ", OPT_NOTHING,
      "rows for equal tensors, too" },
    { O_IGNORE_DTYPE, "ignore-dtype", NULL, " diff ", OPT_NOTHING,
      "equal numbers are equal, whatever their type" },
    { O_ATOL, "atol", "X", " diff ", OPT_NOTHING,
      "|a - b| <= X + rtol |a| is equal (default 0)" },
    { O_RTOL, "rtol", "X", " diff ", OPT_NOTHING, "see --atol (default 0)" },
    { O_RAW, "raw", NULL, " cat ", OPT_NOTHING,
      "bytes as in the file, without a header" },
    { O_DTYPE, "dtype", "f32|f64", " cat ", OPT_NOTHING, "convert to that" },
    { O_SLICE, "slice", "INDEX", " cat ", OPT_NOTHING,
      "as in numpy: \"0:4,:,-1\"" },
    { O_JSON, "json", NULL, NULL, OPT_NOTHING,
      "JSON on stdout instead of TSV" },
    { O_ALIGN, "align", NULL, " list tree stats hash diff meta verify ",
      OPT_NOTHING, "columns padded with spaces instead of tabs" },
    { 'o', "output", "FILE", NULL, OPT_NOTHING,
      "write there, whole or not at all" },
    { 'f', "force", NULL, NULL, OPT_NOTHING,
      "let -o and --svg replace a file" },
    { 'j', "threads", "N", " stats hash verify diff ", OPT_NOTHING,
      "threads (default: CPUs of this process)" },
    { 'v', "verbose", NULL, " list tree stats hash verify diff ", OPT_NOTHING,
      "sum up on stderr" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings, no progress" },
    { 0 },
};

static const struct opt_verb verbs[] = {
    { "list", "FILE|FOLDER", "one row a tensor (the default verb)" },
    { "tree", "FILE|FOLDER", "parameters and bytes by module" },
    { "stats", "FILE|FOLDER", "range, moments, quantiles, NaN, histogram" },
    { "hash", "FILE|FOLDER...", "digests of files and tensors" },
    { "verify", "FILE|FOLDER...", "is the file whole? names the bad ones" },
    { "diff", "A B", "structure, then values; .npy, too" },
    { "cat", "FILE TENSOR", "one tensor as .npy" },
    { "meta", "FILE|FOLDER...", "the header's __metadata__" },
    { 0 },
};

/* In the order of 'verbs'. */
static int (*const mains[])(struct inspect_cmd *cmd, struct err *err) = {
    list_main,   tree_main, stats_main, hash_main,
    verify_main, diff_main, cat_main,   meta_main,
};
_Static_assert(sizeof(mains) / sizeof(mains[0]) + 1 ==
                   sizeof(verbs) / sizeof(verbs[0]),
               "a main for each verb");

static const struct opt_tool tool = {
    .name = "st-inspect",
    .usage = "st-inspect [VERB] [OPTION...] FILE|FOLDER...",
    .summary = "Shows what is in safetensors files and model folders, and "
               "checks it.",
    .opts = opts,
    .verbs = verbs,
};

static int
parse_quantiles(struct inspect_cmd *cmd, const char *list, struct err *err)
{
    char one[32];

    cmd->n_quantiles = 0;
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");

        if (cmd->n_quantiles == MAX_QUANTILES)
            return err_set(err, TU_USAGE, "--quantiles: more than %d of them",
                           MAX_QUANTILES);
        if (n >= sizeof(one))
            return err_set(err, TU_USAGE,
                           "--quantiles: \"%s\" has a number of more than %zu "
                           "characters",
                           list, sizeof(one) - 1);
        memcpy(one, p, n);
        one[n] = '\0';
        if (opt_f64("--quantiles", one, 0, 1,
                    &cmd->quantiles[cmd->n_quantiles++], err) < 0)
            return -1;
        p += n;
        if (!*p)
            return 0;
    }
}

static int
parse_numbers(struct inspect_cmd *cmd, int id, const char *arg, struct err *err)
{
    int64_t n;

    switch (id) {
    case O_DEPTH:
        return opt_i64("--depth", arg, 0, TREE_MAX_DEPTH, &cmd->depth, err);
    case O_BINS:
        cmd->n_bins_given = true;
        return opt_i64("--bins", arg, 1, MAX_BINS, &cmd->n_bins, err);
    case O_QUANTILES:
        return parse_quantiles(cmd, arg, err);
    case O_ATOL:
        return opt_f64("--atol", arg, 0, 1e300, &cmd->atol, err);
    case O_RTOL:
        return opt_f64("--rtol", arg, 0, 1e300, &cmd->rtol, err);
    default:
        if (opt_i64("-j", arg, 1, 1024, &n, err) < 0)
            return -1;
        cmd->n_threads = (int)n;
        return 0;
    }
}

static int
parse_words(struct inspect_cmd *cmd, int id, const char *arg, struct err *err)
{
    static const char *const sorts[] = { "name", "file", "size", NULL };
    static const char *const dtypes[] = { "f32", "f64", NULL };
    int i = -1;

    if (id == O_SORT && (i = opt_word("--sort", arg, sorts, err)) >= 0)
        cmd->sort = (enum sort_key)i;
    if (id == O_DTYPE && (i = opt_word("--dtype", arg, dtypes, err)) >= 0)
        cmd->dtype = i ? DT_F64 : DT_F32;
    return i < 0 ? -1 : 0;
}

static void
add_glob(struct inspect_cmd *cmd, const char *glob)
{
    cmd->globs = xrealloc(cmd->globs, cmd->n_globs + 1, sizeof(*cmd->globs));
    cmd->globs[cmd->n_globs++] = glob;
}

/* Where an option that is a switch, or a string kept as it is, goes. */
static bool
set_plain(struct inspect_cmd *cmd, int id, const char *arg)
{
    const struct opt_place places[] = {
        { 'l', &cmd->long_rows, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 'o', NULL, &cmd->out_path },
        { O_JSON, &cmd->json, NULL },
        { O_ALIGN, &cmd->align, NULL },
        { O_FOLD, &cmd->fold, NULL },
        { O_HIST, &cmd->hist, NULL },
        { O_WHOLE, &cmd->whole, NULL },
        { O_ALL, &cmd->all, NULL },
        { O_IGNORE_DTYPE, &cmd->ignore_dtype, NULL },
        { O_RAW, &cmd->raw, NULL },
        { O_SVG, NULL, &cmd->svg },
        { O_CHECK, NULL, &cmd->check },
        { O_SLICE, NULL, &cmd->slice },
        { 0 },
    };

    return opt_store(places, id, arg);
}

static int
set_option(struct inspect_cmd *cmd, int id, const char *arg, struct err *err)
{
    if (set_plain(cmd, id, arg))
        return 0;
    switch (id) {
    case 't':
        add_glob(cmd, arg);
        return 0;
    case 'f':
        cmd->out_flags = OUT_FORCE;
        return 0;
    case O_SHA256:
        cmd->hash = HASH_SHA256;
        return 0;
    case O_SORT:
    case O_DTYPE:
        return parse_words(cmd, id, arg, err);
    default:
        return parse_numbers(cmd, id, arg, err);
    }
}

/* Reads the command line; returns the verb's place in the table. */
static int
parse(struct inspect_cmd *cmd, int argc, char **argv)
{
    bool seen[O_SLICE + 1] = { false };
    struct err err;
    const char *arg;
    int id, index, verb;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1) {
        seen[id] = true;
        if (set_option(cmd, id, arg, &err) < 0)
            die_err(&err);
    }
    if (index == argc)
        die_usage("a FILE or FOLDER is missing");
    verb = opt_verb(&tool, argv[index]);
    index += verb >= 0;
    verb = verb >= 0 ? verb : 0;
    cmd->verb = verbs[verb].name;
    cmd->args = argv + index;
    cmd->n_args = argc - index;
    for (id = 0; id <= O_SLICE; id++)
        if (seen[id] && opt_for_verb(&tool, id, cmd->verb, &err) < 0)
            die_err(&err);
    return verb;
}

/* An input is not to be replaced by what is found in it. */
static void
check_output(const struct inspect_cmd *cmd, const char *path)
{
    int n_files = strcmp(cmd->verb, "cat") ? cmd->n_args : 1;
    bool input = file_same(cmd->check, path);

    if (!strcmp(path, "-"))
        return;
    for (int i = 0; i < n_files && i < cmd->n_args; i++)
        input = input || stdir_holds(cmd->args[i], path);
    if (input)
        die_usage("%s is the name of an input", path);
}

/* A name mistyped is told before the work on the others, and not after it;
 * verify goes on to the next. */
static void
check_inputs(const struct inspect_cmd *cmd)
{
    bool all_files =
        strcmp(cmd->verb, "verify") != 0 && strcmp(cmd->verb, "cat") != 0;
    struct err err;

    for (int i = 0; all_files && i < cmd->n_args; i++)
        if (file_missing(cmd->args[i])) {
            err_sys(&err, EX_NOINPUT, "%s", cmd->args[i]);
            die_err(&err);
        }
}

/* Options that say opposite things, or that need another one. */
static void
check_options(const struct inspect_cmd *cmd)
{
    if (cmd->n_bins_given && !cmd->hist && !cmd->svg)
        die_usage("--bins is for --hist and --svg");
    if (cmd->json && cmd->align)
        die_usage("--json has no columns to --align");
    if (cmd->svg && !strcmp(cmd->svg, "-") && !strcmp(cmd->out_path, "-"))
        die_usage("--svg - leaves standard output to the picture: -o FILE "
                  "takes the numbers");
    if (file_same(cmd->svg, cmd->out_path))
        die_usage("--svg and -o are both %s", cmd->svg);
    check_output(cmd, cmd->out_path);
    if (cmd->svg)
        check_output(cmd, cmd->svg);
    if (cmd->json && cmd->raw)
        die_usage("--json and --raw are two forms of one output");
    if (cmd->json && cmd->dtype >= 0)
        die_usage("--json gives the numbers as they are, without --dtype");
    if (cmd->raw && cmd->dtype >= 0)
        die_usage("--raw gives the bytes as they are, without --dtype");
    if (cmd->check && cmd->n_globs)
        die_usage("--check FILE says which tensors, without --tensor");
    if (cmd->check && cmd->hash != HASH_XXH3)
        die_usage("--check FILE says which digests, without --sha256");
    if (cmd->check && cmd->whole)
        die_usage("--check FILE says what is hashed, without --whole");
    if (cmd->whole && cmd->n_globs)
        die_usage("--whole hashes files, without --tensor");
    if (cmd->fold && (cmd->long_rows || cmd->sort == SORT_FILE))
        die_usage("--fold joins tensors, which then have no one place");
}

int
main(int argc, char **argv)
{
    struct inspect_cmd cmd = {
        .dtype = -1,
        .depth = 3,
        .n_bins = 24,
        .out_path = "-",
        .quantiles = { 0.01, 0.25, 0.5, 0.75, 0.99 },
        .n_quantiles = 5,
    };
    struct err err = { 0 };
    int verb, status;

    tool_start(&tool);
    sig_install(true);
    verb = parse(&cmd, argc, argv);
    check_options(&cmd);
    check_inputs(&cmd);
    if (cmd.quiet)
        tool_quiet();
    if (out_open(&cmd.out, cmd.out_path, cmd.out_flags,
                 !strcmp(cmd.verb, "cat") && !cmd.json, &err) < 0)
        die_err(&err);
    status = mains[verb](&cmd, &err);
    par_close(cmd.par);
    if (status < 0 || text_finish(&cmd, &err) < 0) {
        out_abort(cmd.out);
        die_err(&err);
    }
    str_free(&cmd.text);
    free(cmd.globs);
    tool_end(status);
}
