/* saev-read: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "core/map.h"
#include "core/sig.h"
#include "core/tool.h"

enum {
    O_VIEW = OPT_LONG,
    O_LAYER,
    O_IMGS,
    O_ROWS,
    O_RAW,
    O_DTYPE,
    O_BATCH,
    O_INDEX,
    O_JSON,
    O_DIRECT,
    O_MAX_PATCHES,
    O_DEEP,
    O_SHARD,
    O_DEADLINE,
    O_SVG,
    O_SHUFFLE,
    O_SEED,
    O_EPOCH,
    O_SKIP,
    O_MEM,
    O_TMPDIR,
    O_WINDOW,
    O_SAMPLE,
    O_END,
};

static const struct opt opts[] = {
    { O_VIEW, "view", "cls|image|all", " rows meta stats ", OPT_NOTHING,
      "which tokens (default all)" },
    { O_LAYER, "layer", "N|all", " rows meta stats ", OPT_NOTHING,
      "a layer as the metadata lists it (default all)" },
    { O_IMGS, "imgs", "A-B", " rows meta stats ", OPT_NOTHING,
      "images A to B alone, as if the dump had no others" },
    { O_ROWS, "rows", "FILE", " rows ", OPT_NOTHING,
      "indices, one or a range a line, or .npy of integers; - is stdin" },
    { O_RAW, "raw", NULL, " rows ", OPT_NOTHING,
      "numbers alone, without a .npy header" },
    { O_DTYPE, "dtype", "f32|f16|bf16", " rows ", OPT_NOTHING,
      "of the numbers written (default f32)" },
    { O_BATCH, "batch", "N", " rows ", OPT_NOTHING,
      "one .npy array after another, each of N rows" },
    { O_INDEX, "index", NULL, " rows ", OPT_NOTHING,
      "where rows lie, instead of them" },
    { O_JSON, "json", NULL, " rows verify info stats ", OPT_NOTHING,
      "JSON on stdout instead of TSV" },
    { O_DIRECT, "direct", NULL, " rows ", OPT_NOTHING,
      "read past the page cache, where that can be" },
    { 'j', "threads", "N", " rows verify stats ", OPT_NOTHING,
      "threads (default: CPUs of this process)" },
    { O_MAX_PATCHES, "max-patches", "N", " meta ", OPT_NOTHING,
      "activations that a shard may hold (default: as the first DUMP's)" },
    { O_DEEP, "deep", NULL, " verify ", OPT_NOTHING,
      "read all data: checksums, NaN, zeros where none belong" },
    { O_SHARD, "shard", "I/N", " verify ", OPT_NOTHING,
      "with --deep: the data of part I of N alone (from 0)" },
    { O_DEADLINE, "deadline", "SECONDS", " verify ", OPT_NOTHING,
      "with --deep: stop after that as SIGTERM does: status 75" },
    { O_SVG, "svg", "FILE", " stats ", OPT_NOTHING,
      "draw the dims' deviations into FILE" },
    { O_SHUFFLE, "shuffle", NULL, " rows ", OPT_NOTHING,
      "all rows in a uniformly random order" },
    { O_WINDOW, "window", "W", " rows ", OPT_NOTHING,
      "shuffle by W slots that rows pass through" },
    { O_SAMPLE, "sample", "K", " rows ", OPT_NOTHING,
      "K of the rows, chosen at random" },
    { O_SEED, "seed", "S", " rows ", OPT_NOTHING, "which order (default 0)" },
    { O_EPOCH, "epoch", "E", " rows ", OPT_NOTHING,
      "another one for each E (default 0)" },
    { O_SKIP, "skip", "N", " rows ", OPT_NOTHING,
      "leave out the first N rows of --shuffle or --window" },
    { O_MEM, "mem", "SIZE", " rows ", OPT_NOTHING,
      "what --shuffle may hold in memory (default 1G)" },
    { O_TMPDIR, "tmpdir", "DIR", " rows ", OPT_NOTHING,
      "where --shuffle puts what is more (default $TMPDIR, /tmp)" },
    { 'o', "output", "FILE", NULL, OPT_NOTHING,
      "write there, whole or not at all" },
    { 'f', "force", NULL, NULL, OPT_NOTHING,
      "let -o and --svg replace a file" },
    { 'v', "verbose", NULL, " rows verify stats ", OPT_NOTHING,
      "sum up on stderr" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings, no progress" },
    { 0 },
};

static const struct opt_verb verbs[] = {
    { "rows", "DUMP [INDEX...]", "activations of a view (the default verb)" },
    { "verify", "DUMP...", "is the dump whole? names all that is wrong" },
    { "info", "DUMP...", "shape, version, bytes expected and found" },
    { "stats", "DUMP", "moments of each dim, NaN, norms, the SAE scalar" },
    { "meta", "DUMP...", "metadata.json of a view, of images, of a merge" },
    { 0 },
};

/* In the order of 'verbs'. */
static const struct {
    int (*main)(struct cmd *cmd, struct err *err);
    bool binary; /* its answer is not for a terminal */
} mains[] = {
    { rows_main, true },   { verify_main, false }, { info_main, false },
    { stats_main, false }, { meta_main, false },
};
_Static_assert(sizeof(mains) / sizeof(mains[0]) + 1 ==
                   sizeof(verbs) / sizeof(verbs[0]),
               "a main for each verb");

static const struct opt_tool tool = {
    .name = "saev-read",
    .usage = "saev-read [OPTION...] DUMP [INDEX...]\n"
             "saev-read VERB [OPTION...] DUMP...",
    .summary = "Reads activations that saev-write has cached.",
    .opts = opts,
    .verbs = verbs,
};

static int
parse_layer(struct cmd *cmd, const char *arg, struct err *err)
{
    cmd->layer = SAEV_ALL_LAYERS;
    if (!strcmp(arg, "all"))
        return 0;
    return opt_i64("--layer", arg, INT64_MIN + 1, INT64_MAX, &cmd->layer, err);
}

/* "A-B" or "A": whole numbers, A <= B. */
static int
parse_range(const char *name, const char *arg, struct index_range *range,
            struct err *err)
{
    if (range_parse(range, arg, strlen(arg)) == 0)
        return 0;
    return err_set(err, TU_USAGE, "%s: \"%s\" is not A-B with A <= B", name,
                   arg);
}

static int
parse_threads(struct cmd *cmd, const char *arg, struct err *err)
{
    int64_t n;

    if (opt_i64("-j", arg, 1, 1024, &n, err) < 0)
        return -1;
    cmd->n_threads = (int)n;
    return 0;
}

/* Where an option that is a switch, or a string kept as it is, goes. */
static bool
set_plain(struct cmd *cmd, int id, const char *arg)
{
    const struct opt_place places[] = {
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 'o', NULL, &cmd->out_path },
        { O_ROWS, NULL, &cmd->rows },
        { O_RAW, &cmd->raw, NULL },
        { O_INDEX, &cmd->index, NULL },
        { O_JSON, &cmd->json, NULL },
        { O_DIRECT, &cmd->direct, NULL },
        { O_DEEP, &cmd->deep, NULL },
        { O_SVG, NULL, &cmd->svg },
        { O_SHUFFLE, &cmd->shuffle, NULL },
        { O_TMPDIR, NULL, &cmd->tmpdir },
        { 0 },
    };

    return opt_store(places, id, arg);
}

static int
set_option(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    static const char *const views[] = { "cls", "image", "all", NULL };
    double seconds;
    int i;

    if (set_plain(cmd, id, arg))
        return 0;
    switch (id) {
    case 'j':
        return parse_threads(cmd, arg, err);
    case 'f':
        cmd->out_flags = OUT_FORCE;
        return 0;
    case O_VIEW:
        if ((i = opt_word("--view", arg, views, err)) >= 0)
            cmd->tokens = (enum saev_tokens)i;
        return i < 0 ? -1 : 0;
    case O_LAYER:
        return parse_layer(cmd, arg, err);
    case O_DTYPE:
        return opt_dtype("--dtype", arg, &cmd->dtype, err);
    case O_IMGS:
        return parse_range("--imgs", arg, &cmd->imgs, err);
    case O_MAX_PATCHES:
        return opt_u64("--max-patches", arg, 1, INT64_MAX, &cmd->max_patches,
                       err);
    case O_SHARD:
        cmd->sharded = true;
        return opt_shard(arg, &cmd->part, &cmd->n_parts, err);
    case O_DEADLINE:
        if (opt_f64("--deadline", arg, 0, 1e9, &seconds, err) < 0)
            return -1;
        sig_deadline(seconds);
        return 0;
    case O_WINDOW:
        return opt_u64("--window", arg, 1, INT64_MAX, &cmd->window, err);
    case O_SAMPLE:
        return opt_u64("--sample", arg, 1, INT64_MAX, &cmd->sample, err);
    case O_SEED:
        return opt_u64("--seed", arg, 0, UINT64_MAX, &cmd->perm.seed, err);
    case O_EPOCH:
        return opt_u64("--epoch", arg, 0, UINT64_MAX, &cmd->perm.epoch, err);
    case O_SKIP:
        return opt_u64("--skip", arg, 0, INT64_MAX, &cmd->skip, err);
    case O_MEM:
        return opt_size("--mem", arg, 1, &cmd->mem, err);
    default:
        return opt_u64("--batch", arg, 1, INT64_MAX, &cmd->batch, err);
    }
}

/* Options about the order of rows: one order, and what it needs. */
static void
check_order(const struct cmd *cmd, const bool *seen)
{
    bool random = cmd->shuffle || cmd->window || cmd->sample;

    if (cmd->window && (cmd->shuffle || cmd->sample))
        die_usage("--window does not go with %s",
                  cmd->shuffle ? "--shuffle" : "--sample");
    if ((seen[O_SEED] || seen[O_EPOCH]) && !random)
        die_usage("--%s is for --shuffle, --window and --sample",
                  seen[O_SEED] ? "seed" : "epoch");
    if (seen[O_SKIP] && ((!cmd->shuffle && !cmd->window) || cmd->sample))
        die_usage("--skip is for --shuffle and --window%s",
                  cmd->sample ? ", not for --sample" : "");
    if ((seen[O_MEM] || seen[O_TMPDIR]) && (!cmd->shuffle || cmd->sample))
        die_usage("--%s is for --shuffle%s", seen[O_MEM] ? "mem" : "tmpdir",
                  cmd->sample ? ", not for --sample" : "");
}

/* Reads the command line; returns the verb's place in the table. */
static int
parse(struct cmd *cmd, int argc, char **argv)
{
    bool seen[O_END] = { false };
    struct err err;
    const char *arg;
    int id, index, verb;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1) {
        seen[id] = true;
        if (set_option(cmd, id, arg, &err) < 0)
            die_err(&err);
    }
    if (index == argc)
        die_usage("a DUMP is missing");
    verb = opt_verb(&tool, argv[index]);
    index += verb >= 0;
    verb = verb >= 0 ? verb : 0;
    cmd->verb = verbs[verb].name;
    cmd->args = argv + index;
    cmd->n_args = argc - index;
    for (id = 0; id < O_END; id++)
        if (seen[id] && opt_for_verb(&tool, id, cmd->verb, &err) < 0)
            die_err(&err);
    check_order(cmd, seen);
    if ((seen[O_SHARD] || seen[O_DEADLINE]) && !cmd->deep)
        die_usage("--%s is for --deep", seen[O_SHARD] ? "shard" : "deadline");
    return verb;
}

/* Nothing in a dump is changed, nor what --rows reads. */
static void
check_output(const struct cmd *cmd, const char *path)
{
    int n_dumps = strcmp(cmd->verb, "rows") != 0 ? cmd->n_args : 1;

    if (!path || !strcmp(path, "-"))
        return;
    if (file_same(cmd->rows, path))
        die_usage("%s is the name of an input", path);
    for (int i = 0; i < n_dumps && i < cmd->n_args; i++)
        if (file_is_in(path, cmd->args[i]))
            die_usage("%s is in %s, of which nothing is changed", path,
                      cmd->args[i]);
}

/* Options that say opposite things, or that need another one. */
static void
check_options(const struct cmd *cmd)
{
    check_output(cmd, cmd->out_path);
    check_output(cmd, cmd->svg);
    if (cmd->svg && !strcmp(cmd->svg, "-") && !strcmp(cmd->out_path, "-"))
        die_usage("--svg - leaves standard output to the picture: -o FILE "
                  "takes the numbers");
    if (file_same(cmd->svg, cmd->out_path))
        die_usage("--svg and -o are both %s", cmd->svg);
    if (cmd->dtype == DT_BF16 && !cmd->raw)
        die_usage(".npy has no bf16: --dtype bf16 needs --raw");
    if (cmd->batch && cmd->raw)
        die_usage("--batch needs .npy headers: --raw has none");
    if (cmd->index &&
        (cmd->raw || cmd->batch || cmd->direct || cmd->dtype != DT_F32))
        die_usage("--index gives places: --raw, --dtype, --batch and --direct "
                  "are of numbers");
}

int
main(int argc, char **argv)
{
    struct cmd cmd = {
        .tokens = SAEV_ALL,
        .layer = SAEV_ALL_LAYERS,
        .dtype = DT_F32,
        .imgs = { 1, 0 },
        .n_parts = 1,
        .mem = (size_t)1 << 30,
        .out_path = "-",
    };
    struct err err = { 0 };
    int verb, status;

    tool_start(&tool);
    verb = parse(&cmd, argc, argv);
    check_options(&cmd);
    sig_install(!cmd.deep); /* what was found until then is told */
    if (cmd.quiet)
        tool_quiet();
    if (out_open(&cmd.out, cmd.out_path, cmd.out_flags,
                 mains[verb].binary && !cmd.index, &err) < 0)
        die_err(&err);
    status = mains[verb].main(&cmd, &err);
    par_close(cmd.par);
    if (status == EX_TEMPFAIL && strcmp(cmd.out_path, "-") != 0) {
        out_abort(cmd.out); /* part of an answer is no file */
        tool_end(status);
    }
    if (status < 0 || out_commit(cmd.out, &err) < 0) {
        if (status < 0)
            out_abort(cmd.out);
        die_err(&err);
    }
    tool_end(status);
}
