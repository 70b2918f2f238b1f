/* SPDX-License-Identifier: ISC */
/* saev-read: the command line. */
#include <string.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/select.h"
#include "core/inuse.h"
#include "core/par.h"
#include "core/sig.h"
#include "core/tool.h"

static int
set_layer(void *to, const char *arg, struct err *err)
{
    int64_t *layer = &((struct read_cmd *)to)->layer;

    *layer = SAEV_ALL_LAYERS;
    if (!strcmp(arg, "all"))
        return 0;
    return opt_i64("--layer", arg, INT64_MIN + 1, INT64_MAX, layer, err);
}

/* "A-B" or "A": whole numbers, A <= B. */
static int
set_imgs(void *to, const char *arg, struct err *err)
{
    if (range_parse(&((struct read_cmd *)to)->imgs, arg) == 0)
        return 0;
    return err_set(err, TU_USAGE, "--imgs: \"%s\" is not A-B with A <= B", arg);
}

#define OPT_INTO struct read_cmd
static const struct opt opts[] = {
    { 0, "view", "cls|image|all", "rows meta stats", OPT_WORD(tokens, SAEV_CLS),
      "which tokens" },
    { 0, "layer", "N|all", "rows meta stats", OPT_CALL(set_layer),
      "a layer as the metadata lists it (default all)" },
    { 0, "imgs", "A-B", "rows meta stats", OPT_CALL(set_imgs),
      "only images A to B, as if the dump had no others" },
    { 0, "rows", "FILE", "rows", OPT_TEXT(rows),
      "indices, one or a range per line, or .npy of integers; - is stdin" },
    { 0, "padding", NULL, "rows stats", OPT_FLAG(mask.padding),
      "also rows after a document's end, which --pad filled" },
    { 0, "skip-ids", "LIST", "rows stats", OPT_TEXT(skip_ids),
      "leave out tokens with these ids, as 1021,1023, or \"special\" ones" },
    { 0, "skip-positions", "N", "rows stats",
      OPT_U64(mask.positions, 0, INT64_MAX),
      "leave out the first N tokens of each window or image" },
    { 0, "max-norm", "X", "rows stats", OPT_F64(mask.max_norm, 0, 1e300),
      "leave out rows with a larger L2 norm" },
    { 0, "raw", NULL, "rows", OPT_FLAG(raw),
      "only the numbers, without a .npy header" },
    { 0, "dtype", "f32|f16|bf16", "rows", OPT_DTYPE(dtype),
      "type of the numbers written" },
    { 0, "batch", "N", "rows", OPT_U64(batch, 1, INT64_MAX),
      "one .npy array after another, each of N rows" },
    { 0, "index", NULL, "rows", OPT_FLAG(index),
      "print where the rows are instead of the rows" },
    { 0, "json", NULL, "rows verify info stats", OPT_FLAG(json),
      "JSON on stdout instead of TSV" },
    { 0, "direct", NULL, "rows", OPT_FLAG(direct),
      "bypass the page cache (O_DIRECT) where possible" },
    TOOL_THREADS("rows verify stats"),
    { 0, "max-patches", "N", "meta", OPT_U64(max_patches, 1, INT64_MAX),
      "activations a shard may hold (default: as in the first DUMP)" },
    { 0, "deep", NULL, "verify", OPT_FLAG(deep),
      "read all data: checksums, NaN, images of zeros" },
    { 0, "shard", "I/N", "verify", OPT_SHARD(part, n_parts),
      "with --deep: only the data of part I of N (from 0)" },
    TOOL_DEADLINE("verify", "with --deep: "),
    { 0, "strict", NULL, "rows stats meta", OPT_FLAG(strict),
      "refuse a dump that is not named by the hash of its metadata" },
    { 0, "svg", "FILE", "stats", OPT_TEXT(svg),
      "draw the deviations of all dims to FILE" },
    { 0, "plot", NULL, "stats", OPT_FLAG(plot),
      "draw them on stdout, in characters, instead of the table" },
    { 0, "shuffle", NULL, "rows", OPT_FLAG(shuffle),
      "all rows in a uniformly random order" },
    { 0, "window", "W", "rows", OPT_U64(window, 1, INT64_MAX),
      "a locally random order, through W slots of a row each" },
    { 0, "sample", "K", "rows", OPT_U64(sample, 1, INT64_MAX),
      "K rows selected at random" },
    { 0, "seed", "S", "rows", OPT_U64(perm.seed, 0, UINT64_MAX),
      "seed of the random order" },
    { 0, "epoch", "E", "rows", OPT_U64(perm.epoch, 0, UINT64_MAX),
      "number of the pass; each has another order" },
    { 0, "skip", "N", "rows", OPT_U64(skip, 0, INT64_MAX),
      "leave out the first N rows of --shuffle or --window" },
    { 0, "mem", "SIZE", "rows", OPT_SIZE(mem, 1), "memory for --shuffle" },
    { 0, "tmpdir", "DIR", "rows", OPT_TEXT(tmpdir),
      "where --shuffle puts what exceeds it (default $TMPDIR, /tmp)" },
    TOOL_OUTPUT,
    TOOL_FORCE(NULL),
    { 'v', "verbose", NULL, "rows verify stats", OPT_FLAG(verbose),
      "a summary on stderr" },
    TOOL_QUIET,
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_NOT, "window", "shuffle sample", NULL },
    { OPT_NEEDS, "seed epoch", "shuffle window sample", NULL },
    { OPT_NOT, "skip mem tmpdir", "sample", NULL },
    { OPT_NEEDS, "skip", "shuffle window", NULL },
    { OPT_NEEDS, "mem tmpdir", "shuffle", NULL },
    { OPT_NEEDS, "shard deadline", "deep", NULL },
    { OPT_NOT, "batch", "raw", "--batch needs .npy headers: --raw has none" },
    { OPT_NOT, "index", "raw batch direct dtype",
      "--index prints no numbers: --raw, --dtype, --batch and --direct need them" },
    { OPT_NOT, "plot", "json",
      "--json and --plot are two forms of one output" },
    { 0 },
};

static const struct read_cmd defaults = {
    .tokens = SAEV_ALL,
    .layer = SAEV_ALL_LAYERS,
    .dtype = DT_F32,
    .imgs = { 1, 0 },
    .n_parts = 1,
    .mem = (size_t)1 << 30,
    .out_path = "-",
};

static const struct opt_verb verbs[] = {
    { "rows", "DUMP [INDEX...]", "activations of a view (the default verb)",
      "saev-read --shuffle --seed 1 DUMP > rows.npy\n"
      "saev-read --layer 13 --view image --raw DUMP 0 5 17-20 > rows.f32" },
    { "verify", "DUMP...", "is the dump complete and sound? lists all problems",
      "saev-read verify --deep DUMP" },
    { "info", "DUMP...", "shape, version, bytes expected and found",
      "saev-read info DUMP" },
    { "stats", "DUMP", "moments of each dim, NaN, norms, the SAE scalar",
      "saev-read stats --plot DUMP\n"
      "saev-read stats --layer 13 --svg spectrum.svg DUMP > stats.tsv" },
    { "meta", "DUMP...", "metadata.json of a view, of images, of a merge",
      "saev-read meta --imgs 0-99 DUMP > meta.json" },
    { 0 },
};

/* In the order of 'verbs'. */
static const struct {
    int (*main)(struct read_cmd *cmd, struct err *err);
    bool binary; /* its answer is not for a terminal */
} mains[] = {
    { rows_main, true },   { verify_main, false }, { info_main, false },
    { stats_main, false }, { meta_main, false },
};
TOOL_MAINS(mains, verbs);

static const struct opt_group groups[] = {
    { "view", "which rows" },
    { "raw", "as what" },
    { "threads", "checks and statistics" },
    { "shuffle", "in another order" },
    { "output", "files" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "saev-read",
    .usage = "saev-read [OPTION...] DUMP [INDEX...]\n"
             "saev-read VERB [OPTION...] DUMP...",
    .summary = "Reads activations that saev-write has cached.",
    .opts = opts,
    .verbs = verbs,
    .rules = rules,
    .defaults = &defaults,
    .groups = groups,
    .rare = "direct max-patches shard deadline epoch mem tmpdir strict",
};

int
main(int argc, char **argv)
{
    struct read_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };
    int status;

    tool_parse(&line, &tool, argc, argv, &cmd);
    line.n_args = saevdir_operands(line.args, line.n_args);
    if (line.n_args == 0)
        die_usage("a DUMP is missing");
    cmd.verb = verbs[line.verb].name;
    cmd.args = line.args;
    cmd.n_args = line.n_args;
    cmd.layer_given = opt_given(&line, "layer");
    cmd.sharded = opt_given(&line, "shard");
    for (int i = 0; i < cmd.n_args && (i == 0 || line.verb != 0); i++) {
        char *dump = saevdir_find(cmd.args[i], &err); /* or the verb says so */

        cmd.args[i] = dump ? dump : cmd.args[i];
        if (inuse_input_dir(cmd.args[i], &err) < 0)
            die_err(&err);
    }
    if (cmd.skip_ids && saev_mask_ids(&cmd.mask, cmd.skip_ids, &err) < 0)
        die_err(&err);
    if (cmd.dtype == DT_BF16 && !cmd.raw)
        die_usage(".npy has no bf16: --dtype bf16 needs --raw");
    sig_install(!cmd.deep); /* what was found until then is printed */
    if (out_open(&cmd.out, cmd.out_path, cmd.out_flags | OUT_TABLE,
                 mains[line.verb].binary && !cmd.index, &err) < 0)
        die_err(&err);
    status = mains[line.verb].main(&cmd, &err);
    par_close(cmd.par);
    if (status == EX_TEMPFAIL && strcmp(cmd.out_path, "-") != 0) {
        out_abort(cmd.out); /* no file of half an answer */
        tool_end(status);
    }
    if (status < 0 || out_commit(cmd.out, &err) < 0) {
        if (status < 0)
            out_abort(cmd.out);
        die_err(&err);
    }
    tool_end(status);
}
