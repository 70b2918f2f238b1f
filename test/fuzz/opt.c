/* SPDX-License-Identifier: ISC */
/* core/opt: any words as numbers, sizes and options. */
#include "core/opt.h"

#include <math.h>

#include "core/dtype.h"
#include "test/fuzz/files.h"

struct all {
    bool flag;
    int64_t number;
    const char *file;
    struct opt_list list;
    int word, dtype;
    uint64_t part, n_parts;
};

#define OPT_INTO struct all
static const struct opt opts[] = {
    { 'a', "all", NULL, NULL, OPT_FLAG(flag), "" },
    { 'n', "number", "N", NULL, OPT_I64(number, 3, 9), "" },
    { 'f', "file", "F", "list!", OPT_FILE(file), "" },
    { 'l', "lists", "X", NULL, OPT_LIST(list, 3), "" },
    { 0, "word", "x|yy|z,..", NULL, OPT_WORD(word, 1), "" },
    { 0, "dtype", "f32|bf16", NULL, OPT_DTYPE(dtype), "" },
    { 0, "shard", "I/N", "stats", OPT_SHARD(part, n_parts), "" },
    { 0 },
};
static const struct opt_verb verbs[] = { { "list", "", "", NULL },
                                         { "stats", "", "", NULL },
                                         { 0 } };
static const struct opt_rule rules[] = {
    { OPT_NOT, "all", "number lists", NULL },
    { OPT_NEEDS, "word", "dtype all", NULL },
    { OPT_ONCE, "file", NULL, NULL },
    { 0 },
};
static const struct opt_tool tool = {
    .name = "t", .opts = opts, .verbs = verbs, .rules = rules
};

static void
check_numbers(const char *s)
{
    struct err err;
    int64_t i;
    uint64_t u;
    double f;
    size_t n;

    if (opt_i64("-n", s, -5, INT64_MAX, &i, &err) == 0)
        MUST(i >= -5);
    if (opt_u64("-n", s, 3, 1000, &u, &err) == 0)
        MUST(u >= 3 && u <= 1000);
    if (opt_f64("-n", s, -1, 1e300, &f, &err) == 0)
        MUST(isfinite(f) && f >= -1 && f <= 1e300);
    if (opt_size("-n", s, 64, &n, &err) == 0)
        MUST(n >= 64);
}

/* What is taken is in range, and keeps the rules. */
static void
check_line(const struct opt_line *line, const struct all *all)
{
    MUST(line->verb == 0 || line->verb == 1);
    MUST(opt_given(line, "all") ? all->flag && !opt_given(line, "lists")
                                : !all->flag);
    MUST(!opt_given(line, "number") || (all->number >= 3 && all->number <= 9));
    MUST((line->verb == 0) == (all->file != NULL));
    MUST(opt_given(line, "file") <= 1 && (!all->file || *all->file));
    MUST(all->list.n == (size_t)opt_given(line, "lists") && all->list.n <= 3);
    MUST(all->word >= 0 && all->word <= 3);
    MUST(!opt_given(line, "dtype") || dtype_computes((enum dtype)all->dtype));
    MUST(all->part <= all->n_parts && (line->verb == 1 || !all->n_parts));
}

/* Words end at NULs. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1), *argv[34] = { (char[]){ "t" } };
    struct all all = { 0 };
    struct opt_line line;
    struct err err;
    int argc = 1, rc;

    memcpy(text, data, n);
    text[n] = '\0';
    for (char *p = text; p <= text + n && argc < 33; p += strlen(p) + 1) {
        check_numbers(p);
        argv[argc++] = p;
    }
    rc = opt_parse(&line, &tool, argc, argv, &all, &err);
    MUST(rc == 0 || rc == 'h' || rc == 'V' ||
         (rc == -1 && err.status == TU_USAGE && *err.what));
    if (rc == 0)
        check_line(&line, &all);
    free(all.list.item);
    free(text);
    return 0;
}
