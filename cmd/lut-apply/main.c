/* lut-apply: the command line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/lut-apply/cmd.h"
#include "cmd/lut-apply/run.h"
#include "core/format/stdir.h"
#include "core/kernel/cpu.h"
#include "core/map.h"
#include "core/sig.h"
#include "core/tool.h"

enum {
    O_RATIO = OPT_LONG,
    O_TOP,
    O_TAU,
    O_ABSOLUTE,
    O_WEIGHTED,
    O_X_DTYPE,
    O_DTYPE,
    O_RAW,
    O_BATCH,
    O_REPORT,
    O_JSON,
    O_SVG,
    O_BENCH,
};

static const struct opt opts[] = {
    { 'm', "model", "MODEL", NULL,
      "the layer's own weights: for compensation and --report" },
    { 'i', "input", "FILE", NULL,
      "x: .npy, safetensors FILE[:TENSOR], or raw (default: standard input)" },
    { O_RATIO, "ratio", "R", NULL,
      "compensate the part R of the inputs, 0 to 1, rounded up" },
    { O_TOP, "top", "M", NULL, "compensate the M worst inputs of a row" },
    { O_TAU, "tau", "T", NULL,
      "compensate inputs whose error is over T times the elbow threshold" },
    { O_ABSOLUTE, "absolute", NULL, NULL, "--tau is the threshold itself" },
    { O_WEIGHTED, "weighted", NULL, NULL,
      "errors count times the norm of the weights that they meet" },
    { O_X_DTYPE, "x-dtype", "f32|f16|bf16", NULL, "x is numbers alone" },
    { O_DTYPE, "dtype", "f32|f16|bf16", NULL, "of y (default f32)" },
    { O_RAW, "raw", NULL, NULL, "y is numbers alone, without a .npy header" },
    { O_REPORT, "report", NULL, NULL,
      "instead of y, how far it is from the layer of --model" },
    { O_JSON, "json", NULL, NULL, "--report as JSON instead of TSV" },
    { O_SVG, "svg", "FILE", NULL,
      "--report: draw the output's FVU against --ratio into FILE" },
    { O_BENCH, "bench", NULL, NULL,
      "instead of y, what each step costs with the first batch of x" },
    { O_BATCH, "batch", "N", NULL, "rows at once, same bits (default 64)" },
    { 'j', "threads", "N", NULL, "threads (default: CPUs of this process)" },
    { 'o', "output", "FILE", NULL, "write there, whole or not at all" },
    { 'f', "force", NULL, NULL, "replace an existing output" },
    { 'v', "verbose", NULL, NULL, "set-up on standard error" },
    { 'q', "quiet", NULL, NULL, "no warnings, no progress" },
    { 0 },
};

static const struct opt_tool tool = {
    .name = "lut-apply",
    .usage = "lut-apply [OPTION...] DIR LAYER < x > y\n"
             "lut-apply --report [OPTION...] DIR LAYER -m MODEL < x\n"
             "lut-apply --bench [OPTION...] DIR LAYER < x",
    .summary = "Runs a linear layer on its lookup table.",
    .opts = opts,
};

static int
set_value(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    enum dtype dtype;

    switch (id) {
    case O_RATIO:
        return opt_f64("--ratio", arg, 0, 1, &cmd->ratio, err);
    case O_TOP:
        return opt_i64("--top", arg, 0, INT64_MAX, &cmd->top, err);
    case O_TAU:
        return opt_f64("--tau", arg, 0, 1e30, &cmd->tau, err);
    case O_BATCH:
        return opt_i64("--batch", arg, 1, 65536, &cmd->batch, err);
    case O_DTYPE:
        return opt_dtype("--dtype", arg, &cmd->dtype, err);
    case O_X_DTYPE:
        if (opt_dtype("--x-dtype", arg, &dtype, err) < 0)
            return -1;
        cmd->x_dtype = (int)dtype;
        return 0;
    default:
        return opt_i64("-j", arg, 1, 1024, &cmd->n_threads, err);
    }
}

static int
set_option(struct cmd *cmd, int id, const char *arg, struct err *err)
{
    const struct opt_place places[] = {
        { 'm', NULL, &cmd->model },
        { 'i', NULL, &cmd->input },
        { 'o', NULL, &cmd->out_path },
        { O_ABSOLUTE, &cmd->absolute, NULL },
        { O_WEIGHTED, &cmd->weighted, NULL },
        { O_RAW, &cmd->raw, NULL },
        { O_REPORT, &cmd->report, NULL },
        { O_BENCH, &cmd->bench, NULL },
        { O_SVG, NULL, &cmd->svg },
        { O_JSON, &cmd->json, NULL },
        { 'v', &cmd->verbose, NULL },
        { 'q', &cmd->quiet, NULL },
        { 0 },
    };

    if (opt_store(places, id, arg))
        return 0;
    if (id == 'f') {
        cmd->out_flags = OUT_FORCE;
        return 0;
    }
    return set_value(cmd, id, arg, err);
}

/* An input is not to be replaced by what is made of it. */
static void
check_inputs(const struct cmd *cmd)
{
    const char *const in[] = { cmd->input, cmd->model, cmd->dir };

    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        if (stdir_holds(in[i], cmd->out_path) || stdir_holds(in[i], cmd->svg))
            die_usage("%s is, or has in it, the name of an output", in[i]);
}

/* Options that say opposite things, or that need another one. */
static void
check_options(const struct cmd *cmd)
{
    int modes = !isnan(cmd->ratio) + (cmd->top >= 0) + !isnan(cmd->tau);

    if (modes > 1)
        die_usage("--ratio, --top and --tau exclude each other");
    if (cmd->absolute && isnan(cmd->tau))
        die_usage("--absolute is for --tau");
    if (cmd->weighted && !modes)
        die_usage("--weighted is for --ratio, --top and --tau");
    if (cmd->report && !cmd->model)
        die_usage("--report needs the layer's own weights: -m MODEL");
    if ((cmd->json || cmd->svg) && !cmd->report)
        die_usage("--%s is for --report", cmd->json ? "json" : "svg");
    if (cmd->report && cmd->bench)
        die_usage("--report and --bench exclude each other");
    if ((cmd->report || cmd->bench) && (cmd->raw || cmd->dtype != DT_F32))
        die_usage("--report and --bench write no y: not with --raw or --dtype");
    if (file_same(cmd->svg, cmd->out_path))
        die_usage("--svg and -o are both %s", cmd->svg);
    check_inputs(cmd);
    if (cmd->dtype == DT_BF16 && !cmd->raw)
        die_usage(".npy has no bf16: --dtype bf16 needs --raw");
}

static void
parse(struct cmd *cmd, int argc, char **argv)
{
    struct err err;
    const char *arg;
    int id, index;

    while ((id = tool_opt(&tool, argc, argv, &arg, &index)) != -1)
        if (set_option(cmd, id, arg, &err) < 0)
            die_err(&err);
    if (argc - index != 2)
        die_usage("needs DIR LAYER (found %d operands)", argc - index);
    cmd->dir = argv[index];
    cmd->name = argv[index + 1];
    check_options(cmd);
}

int
main(int argc, char **argv)
{
    struct cmd cmd = {
        .ratio = NAN,
        .tau = NAN,
        .top = -1,
        .x_dtype = -1,
        .dtype = DT_F32,
        .batch = 64,
        .input = "-",
        .out_path = "-",
    };
    struct run run = { 0 };
    struct err err = { 0 };
    int rc;

    tool_start(&tool);
    cmd.n_threads = par_default();
    parse(&cmd, argc, argv);
    if (cmd.quiet)
        tool_quiet();
    if (cpu_check(&err) < 0)
        die_err(&err);
    sig_install(true);
    if (out_open(&cmd.out, cmd.out_path, cmd.out_flags,
                 !cmd.report && !cmd.bench, &err) < 0)
        die_err(&err);
    rc = run_open(&run, &cmd, &err);
    if (rc == 0)
        rc = (cmd.report  ? report_main
              : cmd.bench ? bench_main
                          : apply_main)(&run, &err);
    run_close(&run);
    if (rc == 0)
        rc = out_commit(cmd.out, &err);
    else
        out_abort(cmd.out);
    if (rc < 0)
        die_err(&err);
    tool_end(0);
}
