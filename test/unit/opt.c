/* SPDX-License-Identifier: ISC */
/* core/opt, core/tty: options, numbers, sizes. */
#include "core/opt.h"

#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/tty.h"
#include "test/unit/tap.h"

static const struct opt opts[] = {
    { 'j', "threads", "N", NULL, OPT_NOTHING, "threads" },
    { 'o', "output", "FILE", "cat stats", OPT_NOTHING, "output file" },
    { 0, "raw", NULL, "cat", OPT_NOTHING, "no header" },
    { 'q', "quiet", NULL, NULL, OPT_NOTHING, "quiet" },
    { 0, "dtype", "f32|bf16", NULL, OPT_NOTHING, "it's a [type]" },
    { 0, "layer", "N|all", NULL, OPT_NOTHING, "a layer" },
    { 0 },
};
static const struct opt_verb verbs[] = {
    { "cat", "FILE", "print", NULL },
    { "stats", "FILE", "count", NULL },
    { 0 },
};
static const struct opt_tool tool = { .name = "demo",
                                      .usage = "demo [-q] FILE\ndemo cat FILE",
                                      .summary = "Shows options.",
                                      .opts = opts,
                                      .verbs = verbs };

static void
test_numbers(void)
{
    static const char *const bad[] = {
        "", " 1", "1 ", "0x1", "1.5", "-1", "11", "99999999999999999999"
    };
    struct err err;
    int64_t i;
    uint64_t u;
    double f;
    int n_refused = 0;

    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
        n_refused += opt_i64("-n", bad[k], 0, 10, &i, &err) < 0 &&
                     opt_u64("-n", bad[k], 0, 10, &u, &err) < 0;
    tap_ok(n_refused == 8, "opt_i64, opt_u64: what is no number is refused");
    tap_ok(!opt_i64("-n", "-7", -9, 9, &i, &err) && i == -7, "opt_i64: -7");
    tap_ok(opt_i64("-n", "9223372036854775808", 0, INT64_MAX, &i, &err) < 0 &&
               opt_u64("-n", "18446744073709551616", 0, UINT64_MAX, &u, &err) <
                   0,
           "opt_i64, opt_u64: what has no 64 bits is not the largest that has");
    tap_ok(!opt_u64("-n", "18446744073709551615", 0, UINT64_MAX, &u, &err) &&
               u == UINT64_MAX,
           "opt_u64: 2^64 - 1");
    tap_ok(opt_f64("-t", "nan", 0, 1, &f, &err) < 0 &&
               opt_f64("-t", "1e999", 0, 1, &f, &err) < 0 &&
               opt_f64("-t", "0.5x", 0, 1, &f, &err) < 0 &&
               !opt_f64("-t", "2.5e-1", 0, 1, &f, &err) && f == 0.25,
           "opt_f64: finite numbers only");
    tap_ok(opt_f64("-t", "1e-400", 0, 1, &f, &err) < 0 &&
               !strcmp(err.what, "-t: \"1e-400\" is too small: write 0") &&
               opt_f64("-t", "-1e-400", 0, 1, &f, &err) < 0 &&
               !opt_f64("-t", "1e-310", 0, 1, &f, &err) && f > 0 &&
               !opt_f64("-t", "0e-400", 0, 1, &f, &err) && f == 0,
           "opt_f64: one that is no 0 does not become 0");
    opt_i64("--top", "x", 1, 5, &i, &err);
    tap_ok(
        err.status == TU_USAGE &&
            !strcmp(err.what, "--top: \"x\" is not a whole number from 1 to 5"),
        "opt_i64: the message names option, value and range");
}

/* As files have them: decimal, "0" or "1", the word, the text. */
struct saved {
    const char *text;
    uint64_t every;
    double rate;
    int word;
    bool flag;
};
#define OPT_INTO struct saved
static const struct opt saved_opts[] = {
    { 0, "text", "FILE", NULL, OPT_FILE(text), "" },
    { 'e', "every", "N", NULL, OPT_U64(every, 1, 10), "" },
    { 0, "rate", "X", NULL, OPT_F64(rate, 0, 1), "" },
    { 0, "word", "aa|bb", NULL, OPT_WORD(word, 0), "" },
    { 0, "flag", NULL, NULL, OPT_FLAG(flag), "" },
    { 0 },
};
#undef OPT_INTO

static void
test_saved(void)
{
    static const struct saved none = { .word = -1 };
    static const struct {
        const char *name, *set, *unset, *bad;
    } cases[] = { { "--text", "a b", "", NULL },
                  { "-e", "10", "0", "11" },
                  { "--rate", "0.25", "0", "1.5" },
                  { "--word", "bb", "", "cc" },
                  { "--flag", "1", "0", "yes" } };
    const struct opt_tool t = { .name = "demo", .opts = saved_opts };
    struct saved to = none, copy = none, bad;
    struct opt_list kept = { 0 };
    struct str text = { 0 };
    struct err err;
    bool loaded = true, saved = true, unset = true, refused = true;

    for (int i = 0; i < 5; i++)
        loaded &= opt_load(opt_of(&t, cases[i].name), "x", cases[i].set, NULL,
                           &to, &err) == 0;
    tap_ok(loaded && !strcmp(to.text, "a b") && to.every == 10 &&
               to.rate == 0.25 && to.word == 1 && to.flag,
           "opt_load: text, number, word and flag at their places");
    for (int i = 0; i < 5; i++) {
        const struct opt *o = opt_of(&t, cases[i].name);

        str_clear(&text);
        opt_save(o, &to, &text);
        saved &= !strcmp(text.s, cases[i].set);
        str_clear(&text);
        opt_save(o, &none, &text);
        saved &= !strcmp(text.s, cases[i].unset);
        opt_copy(o, &to, &copy);
        unset &= opt_load(o, "x", cases[i].unset, &none, &to, &err) == 0;
        refused &= !cases[i].bad ||
                   opt_load(o, "x", cases[i].bad, &none, &bad, &err) == -1;
    }
    tap_ok(saved, "opt_save: the text that opt_load() takes");
    tap_ok(unset && !to.text && to.every == 0 && to.word == -1 && !to.flag,
           "opt_load: a default is possible, even out of range");
    tap_ok(refused && err.status == TU_USAGE &&
               !strcmp(err.what, "x: \"yes\" is not one of 0, 1") &&
               opt_load(opt_of(&t, "-e"), "x", "0", NULL, &to, &err) < 0,
           "opt_load: else what is out of range is refused");
    tap_ok(copy.every == 10 && copy.word == 1 && copy.rate == 0.25,
           "opt_copy: the values alone");
    opt_keep(&kept, "abc", 2);
    tap_ok(kept.n == 1 && !strcmp(kept.item[0], "ab"), "opt_keep: a copy");
    opt_drop(&kept);
    str_free(&text);
}

static void
test_number_lists(void)
{
    struct err err;
    double v[3] = { 0 };

    tap_ok(opt_f64_list("-t", "0.5", 0, 1, v, 3, &err) == 1 && v[0] == 0.5 &&
               opt_f64_list("-t", "1,0,0.25", 0, 1, v, 3, &err) == 3 &&
               v[0] == 1 && v[1] == 0 && v[2] == 0.25,
           "opt_f64_list: numbers, and how many");
    tap_ok(opt_f64_list("-t", "", 0, 1, v, 3, &err) < 0 &&
               opt_f64_list("-t", "1,", 0, 1, v, 3, &err) < 0 &&
               opt_f64_list("-t", "1,2", 0, 1, v, 3, &err) < 0,
           "opt_f64_list: what is none, or out of range, is refused");
    tap_ok(opt_f64_list("-t", "1,1,1,1", 0, 1, v, 3, &err) < 0 &&
               !strcmp(err.what, "-t: more than 3 of them"),
           "opt_f64_list: too many");
}

static void
test_size_arguments(void)
{
    static const struct {
        const char *arg;
        size_t nbytes;
    } good[] = { { "100000", 100000 },
                 { "64M", 67108864 },
                 { "2G", 2147483648 },
                 { "1K", 1024 },
                 { "3T", 3298534883328 },
                 { "5KiB", 5120 },
                 { "64MiB", 67108864 },
                 { "2GiB", 2147483648 },
                 { "3TiB", 3298534883328 },
                 { "17", 17 },
                 { "18446744073709551615", SIZE_MAX },
                 { "16777215T", 18446742974197923840u } };
    static const char *const bad[] = {
        "",     "M",         "-1M",  " 1M", "1MB",       "1.5G",
        "1m",   "64 M",      "0x10", "1P",  "16777216T", "18446744073709551616",
        "16",   "16777217T", "1Ki",  "1iB", "1kiB",      "1KiBB",
        "1GIB", "1B"
    };
    struct err err;
    size_t n;
    int n_good = 0, n_refused = 0;

    for (size_t k = 0; k < sizeof(good) / sizeof(good[0]); k++)
        n_good += !opt_size("--mem", good[k].arg, 17, &n, &err) &&
                  n == good[k].nbytes;
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
        n_refused += opt_size("--mem", bad[k], 17, &n, &err) < 0 &&
                     err.status == TU_USAGE;
    tap_ok(n_good == 12, "opt_size: bytes, and powers of 1024");
    tap_ok(n_refused == 20, "opt_size: no size, too large, too small");
    opt_size("--mem", "1m", 0, &n, &err);
    tap_ok(!strcmp(err.what,
                   "--mem: \"1m\" is not a size such as 100000, 64M or 2GiB"),
           "opt_size: the message shows how");
}

static void
test_shards(void)
{
    static const char *const bad[] = { "",
                                       "1",
                                       "/",
                                       "1/",
                                       "/2",
                                       "2/2",
                                       "0/0",
                                       "-1/2",
                                       "1/2/3",
                                       "1 /2",
                                       "a/b",
                                       "0/1073741825",
                                       "000000000000000000000000/1" };
    uint64_t i = 9, n = 9;
    struct err err;
    int n_refused = 0;

    tap_ok(!opt_shard("2/8", &i, &n, &err) && i == 2 && n == 8 &&
               !opt_shard("0/1", &i, &n, &err) && i == 0 && n == 1,
           "opt_shard: part I of N");
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
        n_refused +=
            opt_shard(bad[k], &i, &n, &err) < 0 && err.status == TU_USAGE;
    tap_ok(n_refused == 13, "opt_shard: what is none is refused");
}

static void
test_choices(void)
{
    struct err err = { 0 };

    tap_ok(opt_choice("--view", "cls", "cls|image", &err) == 0 &&
               opt_choice("--view", "image", "cls|image,..", &err) == 1,
           "opt_choice: a word's place");
    tap_ok(opt_choice("--view", "imag", "cls|image", &err) < 0 &&
               err.status == TU_USAGE &&
               !strcmp(err.what, "--view: \"imag\" is not one of cls, image"),
           "opt_choice: another word, and those that could be");
    tap_ok(opt_choice("--dtype", "fp16", "bf16|f16|f32", &err) == 1 &&
               opt_choice("--dtype", "fp32", "bf16|f16|f32", &err) == 2 &&
               opt_choice("--dtype", "f32", "bf16|f16|f32", &err) == 2 &&
               opt_choice("--dtype", "fp", "bf16|f16|f32", &err) < 0 &&
               opt_choice("--dtype", "bfp16", "bf16|f16|f32", &err) < 0 &&
               opt_choice("--dtype", "fp64", "f32|f16", &err) < 0 &&
               opt_choice("--dtype", "fpile", "file|f16", &err) < 0,
           "opt_choice: fp16 and fp32 are f16 and f32");
    tap_ok(opt_choice("--view", "", "cls|image,..", &err) < 0 &&
               opt_choice("--view", "..", "cls|image,..", &err) < 0,
           "opt_choice: what follows a comma is no word");
}

static void
test_help(void)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    opt_print_help(&(struct opt_line){ .tool = &tool, .help_verb = -1 }, f);
    fclose(f);
    tap_ok(strstr(text, "usage: demo [-q] FILE\n       demo cat FILE\n") &&
               strstr(text, "  -j, --threads N ") &&
               strstr(text, "      --raw ") && strstr(text, "  -V, --version"),
           "opt_print_help: usage lines, every option, the common ones");
    free(text);
}

/* The script of 'shell', for the caller to free. */
static char *
completion(const char *shell)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    int rc = opt_print_completion(&tool, shell, f);

    fclose(f);
    tap_ok((rc == 0) == (strcmp(shell, "fish") != 0) && (rc == 0) == (n > 0),
           "opt_print_completion: %s", shell);
    return text;
}

static void
test_completion(void)
{
    char *bash = completion("bash"), *zsh = completion("zsh");

    free(completion("fish"));
    tap_ok(strstr(bash, "compgen -W 'cat stats'") &&
               strstr(bash, "case $verb in (''|cat) options+=' --raw' ;;") &&
               strstr(bash, "\n    options+=' --threads'\n"),
           "bash: verbs, and each option for the verbs that take it");
    tap_ok(strstr(bash, "(--dtype) words='f32 bf16' ;;") &&
               strstr(bash, "(--layer) words='all' ;;") &&
               strstr(bash, "(-j|--threads) words= ;;") &&
               strstr(bash, "(-o|--output) return ;;"),
           "bash: words, numbers, files");
    tap_ok(
        strstr(zsh, "--dtype='[it'\\''s a \\[type\\]]:f32|bf16:(f32 bf16)'") !=
            NULL,
        "zsh: words, and a help with quotes and brackets");
    tap_ok(strstr(zsh, "{-o+,--output=}'[output file]:FILE:_files'") &&
               strstr(zsh, "{-j+,--threads=}'[threads]:N: '") &&
               strstr(zsh, "{-q,--quiet}'[quiet]'"),
           "zsh: files, numbers, a switch");
    free(bash);
    free(zsh);
}

/* ---- a tool's struct, its options and their rules ---- */

struct demo {
    bool raw, json;
    int mode, n_threads;
    enum { ROW_NAME, ROW_FILE, ROW_SIZE } sort;
    const char *file, *text;
    struct opt_list globs;
    int64_t depth;
    uint64_t seed, part, n_parts;
    double rate;
    size_t mem;
    int dtype;
    char first; /* of --first */
};

static int
take_first(void *to, const char *arg, struct err *err)
{
    if (!*arg)
        return err_set(err, TU_USAGE, "--first: nothing");
    ((struct demo *)to)->first = *arg;
    return 0;
}

#define OPT_INTO struct demo
static const struct opt all_opts[] = {
    { 0, "raw", NULL, "list! tree", OPT_FLAG(raw), "no header" },
    { 0, "json", NULL, NULL, OPT_FLAG(json), "JSON" },
    { 'f', "force", NULL, NULL, OPT_CONST(mode, 7), "replace" },
    { 'o', "output", "FILE", "tree!", OPT_FILE(file), "a file" },
    { 0, "text", "TEXT", NULL, OPT_TEXT(text), "a text" },
    { 't', "tensor", "GLOB", NULL, OPT_LIST(globs, 2), "some" },
    { 'j', "threads", "N", NULL, OPT_INT(n_threads, 1, 8), "threads" },
    { 0, "depth", "N", NULL, OPT_I64(depth, -1, 9), "levels" },
    { 0, "seed", "S", NULL, OPT_U64(seed, 0, UINT64_MAX), "which" },
    { 0, "rate", "R", NULL, OPT_F64(rate, 1e-9, 1), "rate" },
    { 0, "mem", "SIZE", NULL, OPT_SIZE(mem, 1), "memory" },
    { 0, "shard", "I/N", NULL, OPT_SHARD(part, n_parts), "a part" },
    { 0, "sort", "file|size", NULL, OPT_WORD(sort, ROW_FILE), "order" },
    { 0, "dtype", "fp16|bf16|f64", NULL, OPT_DTYPE(dtype), "type" },
    { 0, "first", "X", NULL, OPT_CALL(take_first), "a letter" },
    { 0, "hint", NULL, NULL, OPT_NOTHING, "nothing (default: all)" },
    { 0 },
};
static const struct opt_rule rules[] = {
    { OPT_ONE_OF, "depth seed force", NULL, NULL },
    { OPT_ONCE, "output text", NULL, NULL },
    { OPT_NEEDS, "sort hint", "mem rate output", NULL },
    { OPT_NOT, "json", "raw dtype", NULL },
    { OPT_NOT, "json", "text", "--json has no text" },
    { 0 },
};
static const struct opt_verb all_verbs[] = {
    { "list", "FILE", "rows", NULL },
    { "tree", "FILE", "a tree", NULL },
    { "stats", "FILE", "numbers", NULL },
    { 0 },
};
static const struct demo defaults = {
    .depth = 3, .rate = 1e-4, .mem = 3 << 20, .sort = ROW_SIZE, .dtype = DT_F64
};
static const struct opt_tool verbs_tool = { .name = "demo",
                                            .usage = "demo",
                                            .summary = "",
                                            .opts = all_opts,
                                            .verbs = all_verbs,
                                            .rules = rules,
                                            .defaults = &defaults };
static const struct opt_tool needy_tool = {
    .name = "demo", .opts = all_opts, .verbs = all_verbs, .verb_needed = true
};
static const struct opt_tool plain_tool = { .name = "demo",
                                            .opts = all_opts,
                                            .rules = rules };

static const struct opt mode_opts[] = {
    { 0, "nll", NULL, NULL, OPT_NOTHING, "" },
    { 0, "top", "K", NULL, OPT_I64(depth, 1, 9), "" },
    { 0, "json", NULL, "nll top", OPT_FLAG(json), "" },
    { 'n', "steps", "N", "run!", OPT_I64(depth, 1, 9), "" },
    { 0, "raw", NULL, "run nll!", OPT_FLAG(raw), "" },
    { 0 },
};
static const struct opt_tool modes_tool = { .name = "demo",
                                            .opts = mode_opts,
                                            .modes = "run nll top" };

static struct demo
parse(const struct opt_tool *of, const char *words, struct opt_line *line,
      int *rc, struct err *err)
{
    static char copy[128];
    static char *argv[32];
    struct demo demo = defaults;
    int argc = 0;

    snprintf(copy, sizeof(copy), "demo %s", words);
    for (char *s = strtok(copy, " "); s; s = strtok(NULL, " "))
        argv[argc++] = s;
    argv[argc] = NULL;
    *err = (struct err){ 0 };
    *rc = opt_parse(line, of, argc, argv, &demo, err);
    return demo;
}

static void
refused(const struct opt_tool *of, const char *words, const char *what)
{
    struct opt_line line;
    struct err err;
    int rc;

    free(parse(of, words, &line, &rc, &err).globs.item);
    tap_ok(rc < 0 && err.status == TU_USAGE && !strcmp(err.what, what),
           "opt_parse: '%s': %s", words, what);
}

static void
test_getopt(void)
{
    struct opt_line line;
    struct err err;
    int rc;

    parse(&tool, "-qj3 a --output=x -j 4 b -- -q", &line, &rc, &err);
    tap_ok(rc == 0 && line.n_args == 3 && !strcmp(line.args[2], "-q") &&
               opt_given(&line, "quiet") == 1 &&
               opt_given(&line, "threads") == 2 &&
               opt_given(&line, "output") == 1 && !opt_given(&line, "raw"),
           "opt_parse: letters together, =, operands between, and --");
    parse(&tool, "--thr 4", &line, &rc, &err);
    tap_ok(rc == 0 && opt_given(&line, "threads") == 1,
           "opt_parse: a name may be cut short");
    parse(&tool, "-q --version", &line, &rc, &err);
    tap_ok(rc == 'V', "opt_parse: the common options");
    refused(&tool, "-x", "there is no option -x");
    refused(&tool, "--nope", "there is no option --nope");
    refused(&tool, "--threds=4",
            "there is no option --threds (did you mean --threads?)");
    refused(&tool, "--VERSOIN",
            "there is no option --VERSOIN (did you mean --version?)");
    refused(&tool, "-j", "option -j needs an argument");
    refused(&tool, "--output", "option --output needs an argument");
    refused(&tool, "--raw -xq a", "there is no option -x");
    refused(&tool, "--raw -qxq", "there is no option -x");
    refused(&tool, "--raw -qj", "option -j needs an argument");
    refused(&tool, "-q --thr=4 --ra=1", "option --ra=1 takes no argument");
    refused(&tool, "--quiet=1", "option --quiet=1 takes no argument");
    refused(&tool, "--raw=1", "option --raw=1 takes no argument");
}

static void
test_values(void)
{
    struct opt_line line;
    struct err err;
    int rc;
    struct demo d = parse(
        &plain_tool,
        "--raw -f -o x --text y -t a b -t c -j 8 --rate 0.5 --sh 2/8 -- -z",
        &line, &rc, &err);

    tap_ok(rc == 0 && d.raw && !d.json && d.mode == 7 && !strcmp(d.file, "x") &&
               !strcmp(d.text, "y") && d.n_threads == 8 && d.rate == 0.5 &&
               d.part == 2 && d.n_parts == 8 && d.depth == 3,
           "opt_parse: each value is in its field, and no other");
    tap_ok(d.globs.n == 2 && !strcmp(d.globs.item[0], "a") &&
               !strcmp(d.globs.item[1], "c") && !d.globs.item[2],
           "opt_parse: a list has all that is given, in order");
    tap_ok(line.n_args == 2 && !strcmp(line.args[0], "b") &&
               !strcmp(line.args[1], "-z") && opt_given(&line, "tensor") == 2 &&
               opt_given(&line, "raw") == 1 && !opt_given(&line, "json"),
           "opt_parse: operands, and how often an option is given");
    free(d.globs.item);
    d = parse(&plain_tool,
              "--depth -1 --mem 2K --sort file --dtype fp16 --first q", &line,
              &rc, &err);
    tap_ok(rc == 0 && d.depth == -1 && d.mem == 2048 && d.sort == ROW_FILE &&
               d.dtype == DT_F16 && d.first == 'q',
           "opt_parse: a size, words, a function");
    d = parse(&plain_tool, "--seed 18446744073709551615 --dtype bf16", &line,
              &rc, &err);
    tap_ok(rc == 0 && d.seed == UINT64_MAX && d.dtype == DT_BF16,
           "opt_parse: 64 bits");
    parse(&plain_tool, "--raw -h --depth x", &line, &rc, &err);
    tap_ok(rc == 'h', "opt_parse: help comes before what is behind it");
    refused(&plain_tool, "-j 9", "-j: \"9\" is not a whole number from 1 to 8");
    refused(&plain_tool, "--rate 2",
            "--rate: \"2\" is not a number from 1e-09 to 1");
    refused(&plain_tool, "--sort name",
            "--sort: \"name\" is not one of file, size");
    refused(&plain_tool, "--output=", "-o: \"\" is not a file name");
    refused(&plain_tool, "-ta -tb -tc", "-t: given more than 2 times");
    refused(&plain_tool, "--first=", "--first: nothing");
    refused(&plain_tool, "--s 4",
            "option --s is ambiguous: --seed, --shard, --sort");
}

static void
test_line_verbs(void)
{
    struct opt_line line;
    struct err err;
    int rc;

    parse(&verbs_tool, "--raw list a", &line, &rc, &err);
    tap_ok(rc == 0 && line.verb == 0 && line.n_args == 1, "opt_parse: a verb");
    parse(&verbs_tool, "--raw a list", &line, &rc, &err);
    tap_ok(rc == 0 && line.verb == 0 && line.n_args == 2,
           "opt_parse: the first verb is the default");
    parse(&verbs_tool, "stats", &line, &rc, &err);
    tap_ok(rc == 0 && line.verb == 2 && line.n_args == 0,
           "opt_parse: a verb without operands");
    refused(&verbs_tool, "list", "list: --raw is needed");
    refused(&verbs_tool, "tree", "tree: -o FILE is needed");
    refused(&verbs_tool, "stat --raw",
            "\"stat\" is neither a file nor a verb: list, tree, stats (did you "
            "mean \"stats\"?)");
    refused(&verbs_tool, "fly --raw",
            "\"fly\" is neither a file nor a verb: list, tree, stats");
    for (const char *const *w =
             (const char *const[]){ "fly.st --raw", "--raw fly", "/ --raw",
                                    NULL };
         *w; w++) {
        parse(&verbs_tool, *w, &line, &rc, &err);
        tap_ok(rc == 0 && line.verb == 0 && line.n_args == 1,
               "opt_parse: '%s': an operand", *w);
    }
    refused(&verbs_tool, "stats --raw",
            "option --raw has no meaning for stats");
    refused(&needy_tool, "--json", "a verb is missing: list, tree, stats");
    refused(&needy_tool, "fly", "\"fly\" is not a verb: list, tree, stats");
}

static void
test_modes(void)
{
    struct opt_line line;
    struct err err;
    int rc;

    parse(&modes_tool, "-n 3 x", &line, &rc, &err);
    tap_ok(rc == 0 && line.verb == 0 && line.n_args == 1,
           "opt_parse: the first mode is the default");
    parse(&modes_tool, "--json --top 3", &line, &rc, &err);
    tap_ok(rc == 0 && line.verb == 2, "opt_parse: an option is the mode");
    refused(&modes_tool, "", "-n N is needed");
    refused(&modes_tool, "--nll --top 3", "--nll and --top exclude each other");
    refused(&modes_tool, "-n 3 --json", "--json is for --nll and --top");
    refused(&modes_tool, "-n 3 --top 3", "option -n has no meaning for --top");
    refused(&modes_tool, "--nll", "--nll: --raw is needed");
}

static void
test_rules(void)
{
    struct opt_line line;
    struct err err;
    int rc;

    refused(&plain_tool, "-f --seed 1",
            "--depth, --seed and -f exclude each other");
    refused(&plain_tool, "-o a -o b", "-o is given 2 times");
    refused(&plain_tool, "--text a --text=b --text c",
            "--text is given 3 times");
    refused(&plain_tool, "--hint", "--hint is for --mem, --rate and -o");
    refused(&plain_tool, "--json --dtype f64",
            "--json does not go with --dtype");
    refused(&plain_tool, "--json --text x", "--json has no text");
    parse(&plain_tool, "--hint --rate 1 --sort size -o x --json", &line, &rc,
          &err);
    tap_ok(rc == 0, "opt_parse: what keeps the rules is taken");
}

static void
test_defaults(void)
{
    static const char *const want[] = { "levels, -1 to 9 (default 3)\n",
                                        "which (default 0)\n",
                                        "rate, 1e-9 to 1 (default 1e-4)\n",
                                        "memory (default 3M)\n",
                                        "order (default size)\n",
                                        "type (default f64)\n",
                                        "threads, 1 to 8\n",
                                        "nothing (default: all)\n" };
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    int n_found = 0;

    opt_print_help(&(struct opt_line){ .tool = &verbs_tool, .help_verb = -1 },
                   f);
    fclose(f);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        n_found += strstr(text, want[i]) != NULL;
    tap_ok(n_found == 8,
           "opt_print_help: ranges and defaults, of what has them");
    free(text);
}

/* A line of help for some verbs: for each of them, and for no other. */
static void
test_verb_help(void)
{
    static const struct opt o = { .name = "x",
                                  .help = "one\n"
                                          "tree stats: two" };
    static const char *const of[] = { "list", "tree", "stats", "tre" };
    static const char *const want[] = { "one", "two", "two", "one" };

    for (int i = 0; i < 4; i++) {
        struct str text = { 0 };

        opt_help(&plain_tool, &o, of[i], &text);
        tap_ok(!strcmp(text.s, want[i]), "opt_help of %s: %s", of[i], text.s);
        str_free(&text);
    }
}

static void
test_sizes(void)
{
    static const struct {
        uint64_t n;
        const char *text;
    } t[] = { { 0, "0 B" },
              { 1023, "1023 B" },
              { 1024, "1.00 KiB" },
              { 1536, "1.50 KiB" },
              { 1048576, "1.00 MiB" },
              { 1191182336, "1.11 GiB" },
              { UINT64_MAX, "16.0 EiB" } };
    char buf[16];

    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        tap_ok(!strcmp(size_iec(buf, t[i].n), t[i].text), "size_iec: %s",
               t[i].text);
}

int
main(void)
{
    test_numbers();
    test_saved();
    test_number_lists();
    test_size_arguments();
    test_shards();
    test_choices();
    test_help();
    test_completion();
    test_getopt();
    test_values();
    test_line_verbs();
    test_modes();
    test_rules();
    test_defaults();
    test_verb_help();
    test_sizes();
    return tap_done();
}
