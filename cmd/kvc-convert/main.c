/* kvc-convert: the command line. */
#include "cmd/kvc-convert/cmd.h"
#include "core/sig.h"
#include "core/tool.h"

#define OPT_INTO struct convert_cmd
static const struct opt opts[] = {
    { 0, "input", "FILE", "convert!", OPT_TEXT(input),
      "a .pth, .safetensors or .bin" },
    { 'o', "output", "FILE", "convert!", OPT_TEXT(output),
      "a .bin, or of a .bin, safetensors; whole or not at all" },
    { 0, "from", "pth|safetensors|bin", "convert", OPT_WORD(from, FORM_PTH),
      "the form of --input (default: what it begins like)" },
    { 0, "dtype", "fp16|bf16|fp32", "convert", OPT_DTYPE(dtype),
      "of the numbers written (default fp16)" },
    { 0, "prefix-order", "LIST", "convert", OPT_TEXT(prefix_order),
      "names of the MLPs (default compress_tk,compress_tv,compress_ik,..)" },
    { 0, "slot-order", "LIST", "convert", OPT_TEXT(slot_order),
      "their linear layers (default 0,3,6)" },
    { 0, "compression-factor", "N", "convert", OPT_I64(factor, 0, UINT32_MAX),
      "tokens that become one (default 0: columns / head_dim)" },
    { 0, "min-seq-len", "N", "convert", OPT_I64(min_seq_len, 0, UINT32_MAX),
      "groups below which nothing is compressed (default 2)" },
    { 0, "num-heads", "N", "convert", OPT_I64(num_heads, 0, UINT32_MAX),
      "of the header (default 0)" },
    { 0, "head-dim", "N", "convert", OPT_I64(head_dim, 0, UINT32_MAX),
      "of the header (default 0: rows of the first weight)" },
    { 0, "strict", NULL, "convert", OPT_FLAG(strict),
      "no names with module. or compressor. before them, no state_dict" },
    { 0, "allow", "NAME", "convert", OPT_LIST(allowed, SIZE_MAX),
      "a class or function that the checkpoint may name, unused; repeatable" },
    { 0, "allow-views", NULL, "convert", OPT_FLAG(allow_views),
      "views of few numbers may become many: no bound on the output" },
    { 0, "provenance", NULL, "convert", OPT_FLAG(provenance),
      "say in the file's metadata where it is from" },
    { 0, "if-missing", NULL, "convert", OPT_FLAG(if_missing),
      "a sound OUTPUT that is there already is success" },
    { 0, "info", NULL, NULL, OPT_NOTHING, "print a .bin's header and blocks" },
    { 0, "check", NULL, NULL, OPT_NOTHING,
      "is a .bin one that an engine can use?" },
    { 0, "layers", "N", "check", OPT_I64(layers, 1, UINT32_MAX),
      "layers of the model" },
    { 0, "diff", NULL, NULL, OPT_NOTHING,
      "how far two .bin are apart, in ULP" },
    { 0, "json", NULL, "info", OPT_FLAG(json), "JSON instead of TSV" },
    TOOL_FORCE("convert"),
    { 'v', "verbose", NULL, NULL, OPT_FLAG(verbose),
      "what was used, ignored, and not called" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "no warnings" },
    { 0 },
};

static const struct opt_rule rules[] = {
    { OPT_NOT, "if-missing", "force", TOOL_IF_MISSING },
    { 0 },
};

static const struct convert_cmd defaults = { .dtype = -1,
                                             .factor = -1,
                                             .min_seq_len = -1,
                                             .num_heads = -1,
                                             .head_dim = -1 };

static const struct opt_tool tool = {
    .name = "kvc-convert",
    .usage = "kvc-convert --input X.pth --output Y.bin [OPTION...]\n"
             "kvc-convert --input Y.bin --output Z.safetensors\n"
             "kvc-convert --info Y.bin\n"
             "kvc-convert --check [--layers N] Y.bin...\n"
             "kvc-convert --diff A.bin B.bin",
    .summary = "Turns KV-cache compressor checkpoints into the .bin that "
               "engines load, and back.",
    .opts = opts,
    .modes = "convert info check diff",
    .rules = rules,
    .defaults = &defaults,
};

static mode_main *const mains[] = { convert_main, info, check, diff };

int
main(int argc, char **argv)
{
    struct convert_cmd cmd = defaults;
    struct opt_line line;
    struct err err = { 0 };
    int status;

    tool_parse(&line, &tool, argc, argv, &cmd);
    cmd.args = line.args;
    cmd.n_args = line.n_args;
    sig_install(true);
    status = mains[line.verb](&cmd, &err);
    if (status < 0)
        die_err(&err);
    tool_end(status);
}
