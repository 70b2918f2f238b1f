/* core/opt: any words as numbers, sizes and options. */
#include "core/opt.h"

#include <math.h>

#include "test/fuzz/files.h"

static const struct opt opts[] = {
    { 'a', "all", NULL, NULL, OPT_NOTHING, "" },
    { 'n', "number", "N", NULL, OPT_NOTHING, "" },
    { OPT_LONG, "nothing", NULL, " list ", OPT_NOTHING, "" },
    { 0 },
};
static const struct opt_tool tool = { "t", "t", "", opts, NULL };

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

/* Words end at NULs. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1), *argv[34] = { (char[]){ "t" } };
    int argc = 1, index, c;
    const char *arg;
    struct err err;

    memcpy(text, data, n);
    text[n] = '\0';
    for (char *p = text; p <= text + n && argc < 33; p += strlen(p) + 1) {
        check_numbers(p);
        argv[argc++] = p;
    }
    opt_rewind();
    while ((c = opt_next(&tool, argc, argv, &arg, &index, &err)) >= 0) {
        MUST(strchr("anhV", c) || c == OPT_LONG);
        MUST((c == 'n') == (arg != NULL));
    }
    MUST(c == -1 || (c == -TU_USAGE && *err.what));
    free(text);
    return 0;
}
