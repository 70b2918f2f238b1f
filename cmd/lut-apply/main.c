/* SPDX-License-Identifier: ISC */
/* lut-apply: the command line. */
#include <math.h>
#include <string.h>

#include "cmd/lut-apply/apply.h"
#include "core/format/stdir.h"
#include "core/inuse.h"
#include "core/kernel/cpu.h"
#include "core/sig.h"
#include "core/tool.h"
#include "core/tty.h"

#define OPT_INTO struct apply_cmd
static const struct opt opts[] = {
    { 'm', "model", "MODEL", "apply report! bench", OPT_TEXT(model),
      "the layer's own weights: for compensation and --report" },
    { 'i', "input", "FILE", NULL, OPT_TEXT(input),
      "x: .npy, safetensors FILE[:TENSOR], or raw (default: standard input)" },
    { 0, "ratio", "R", NULL, OPT_F64(ratio, 0, 1),
      "compensate the fraction R of the inputs, rounded up" },
    { 0, "top", "M", NULL, OPT_I64(top, 0, INT64_MAX),
      "compensate the M inputs of a row with the largest errors" },
    { 0, "tau", "T", NULL, OPT_F64(tau, 0, 1e30),
      "compensate inputs whose error is over T times the elbow threshold" },
    { 0, "dims", "FILE", NULL, OPT_FILE(dims),
      "compensate these inputs of all rows: ascending, .npy" },
    { 0, "absolute", NULL, NULL, OPT_FLAG(absolute),
      "--tau is the threshold itself" },
    { 0, "weighted", NULL, NULL, OPT_FLAG(weighted),
      "weight errors by the norm of the weights that they multiply" },
    { 0, "x-dtype", "f32|f16|bf16", NULL, OPT_DTYPE(x_dtype), "type of raw x" },
    { 0, "dtype", "f32|f16|bf16", "apply", OPT_DTYPE(dtype), "type of y" },
    { 0, "raw", NULL, "apply", OPT_FLAG(raw),
      "write raw numbers, without a .npy header" },
    { 0, "codes", "FILE", "apply", OPT_FILE(arrays[0]),
      "write the indices of each row's directions there, .npy" },
    { 0, "values", "FILE", "apply", OPT_FILE(arrays[1]),
      "write their pre-activations there, .npy" },
    { 0, "xhat", "FILE", "apply", OPT_FILE(arrays[2]),
      "write each row as they reconstruct it there, .npy" },
    { 0, "report", NULL, NULL, OPT_NOTHING,
      "write the error against the layer of --model instead of y" },
    { 0, "json", NULL, "report", OPT_FLAG(json), "JSON instead of TSV" },
    { 0, "svg", "FILE", "report", OPT_TEXT(svg),
      "draw the output's FVU against --ratio into FILE" },
    { 0, "plot", NULL, "report", OPT_FLAG(plot),
      "draw it on stdout, in characters, instead of the table" },
    { 0, "bench", NULL, NULL, OPT_NOTHING,
      "write the time of each step with the first batch of x instead of y" },
    { 0, "no-screen", NULL, NULL, OPT_FLAG(no_screen),
      "compute all pre-activations exactly; the bits stay the same" },
    { 0, "batch", "N", NULL, OPT_I64(batch, 1, 65536),
      "rows at once; the bits stay the same" },
    TOOL_THREADS(NULL),
    TOOL_OUTPUT,
    TOOL_FORCE(NULL),
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "report the layer and its weights on stderr" },
    TOOL_QUIET,
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_ONE_OF, "ratio top tau dims", NULL, NULL },
    { OPT_NEEDS, "absolute", "tau", NULL },
    { OPT_NOT, "plot", "json",
      "--json and --plot are two forms of one output" },
    { OPT_NEEDS, "weighted", "ratio top tau", NULL },
    { 0 },
};

static const struct apply_cmd defaults = { .input = "-",
                                           .out_path = "-",
                                           .dtype = DT_F32,
                                           .batch = 64,
                                           .ratio = NAN,
                                           .tau = NAN,
                                           .top = -1,
                                           .x_dtype = -1 };

static const struct opt_tool tool = {
    .name = "lut-apply",
    .usage = "lut-apply [OPTION...] DIR LAYER < x > y\n"
             "lut-apply --report [OPTION...] DIR LAYER -m MODEL < x\n"
             "lut-apply --bench [OPTION...] DIR LAYER < x",
    .summary = "Runs a linear layer on its lookup table.",
    .examples =
        "lut-apply lut layers.0.self_attn.qkv_proj < x.npy > y.npy\n"
        "lut-apply --report lut layers.0.self_attn.qkv_proj -m MODEL < x.npy",
    .opts = opts,
    .modes = "apply report bench",
    .rules = rules,
    .defaults = &defaults,
};

static mode_main *const mains[] = { apply_main, report_main, bench_main };

int
main(int argc, char **argv)
{
    struct apply_cmd cmd = defaults;
    struct apply_run run = { 0 };
    struct opt_line line;
    struct err err;
    int rc = -1;

    tool_parse(&line, &tool, argc, argv, &cmd);
    if (line.n_args != 2)
        die_usage("needs DIR LAYER (found %d operand%s)", line.n_args,
                  plural(line.n_args));
    cmd.dir = line.args[0];
    cmd.name = line.args[1];
    if (cmd.dims && !strcmp(cmd.dims, "-") && !strcmp(cmd.input, "-"))
        die_usage("--dims and x cannot both be standard input");
    if (cmd.dtype == DT_BF16 && !cmd.raw)
        die_usage(".npy has no bf16: --dtype bf16 needs --raw");
    sig_install(true);
    if (cpu_check(&err) < 0 || inuse_will_read(cmd.input, &err) < 0 ||
        out_open(&cmd.out, cmd.out_path, cmd.out_flags | OUT_TABLE,
                 mains[line.verb] == apply_main, &err) < 0)
        die_err(&err);
    if (run_open(&run, &cmd, &err) == 0)
        rc = mains[line.verb](&run, &err);
    run_close(&run);
    if (rc < 0)
        out_abort(cmd.out);
    if (rc < 0 || out_commit(cmd.out, &err) < 0)
        die_err(&err);
    tool_end(0);
}
