#include "core/opt_value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/str.h"

int
opt_i64(const char *name, const char *arg, int64_t min, int64_t max,
        int64_t *value, struct err *err)
{
    char *end;

    errno = 0;
    *value = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || *arg == ' ' || *value < min ||
        *value > max)
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a whole number from %lld to %lld",
                       name, arg, (long long)min, (long long)max);
    return 0;
}

int
opt_u64(const char *name, const char *arg, uint64_t min, uint64_t max,
        uint64_t *value, struct err *err)
{
    char *end;

    errno = 0;
    *value = strtoull(arg, &end, 10);
    if (*arg < '0' || *arg > '9' || *end || errno || *value < min ||
        *value > max)
        return err_set(
            err, TU_USAGE, "%s: \"%s\" is not a whole number from %llu to %llu",
            name, arg, (unsigned long long)min, (unsigned long long)max);
    return 0;
}

int
opt_f64(const char *name, const char *arg, double min, double max,
        double *value, struct err *err)
{
    char *end;

    errno = 0;
    *value = strtod(arg, &end);
    if (end == arg || *end || *arg == ' ' || !isfinite(*value) ||
        *value < min || *value > max)
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a number from %g to %g", name, arg,
                       min, max);
    return 0;
}

/* The power of two that a suffix stands for; -1: none. */
static int
size_shift(const char *suffix)
{
    static const char units[] = "KMGT";
    const char *unit;

    if (!*suffix)
        return 0;
    unit = strchr(units, *suffix);
    return unit && !suffix[1] ? 10 * (int)(unit - units + 1) : -1;
}

int
opt_size(const char *name, const char *arg, size_t min, size_t *nbytes,
         struct err *err)
{
    unsigned long long n;
    char *end;
    int shift;

    errno = 0;
    n = strtoull(arg, &end, 10);
    shift = size_shift(end);
    if (*arg < '0' || *arg > '9' || shift < 0)
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a size such as 100000, 64M or 2G",
                       name, arg);
    if (errno || n > SIZE_MAX >> shift)
        return err_set(err, TU_USAGE, "%s: %s is beyond %llu bytes", name, arg,
                       (unsigned long long)SIZE_MAX);
    *nbytes = (size_t)n << shift;
    if (*nbytes < min)
        return err_set(err, TU_USAGE, "%s: %s is less than %zu bytes", name,
                       arg, min);
    return 0;
}

int
opt_shard(const char *arg, uint64_t *part, uint64_t *n_parts, struct err *err)
{
    const char *slash = strchr(arg, '/');
    char first[24];

    if (!slash || (size_t)(slash - arg) >= sizeof(first))
        return err_set(err, TU_USAGE, "--shard: \"%s\" is not I/N, such as 2/8",
                       arg);
    memcpy(first, arg, (size_t)(slash - arg));
    first[slash - arg] = '\0';
    if (opt_u64("--shard I/N: N", slash + 1, 1, 1 << 30, n_parts, err) < 0)
        return -1;
    return opt_u64("--shard I/N: I", first, 0, *n_parts - 1, part, err);
}

int
opt_word(const char *name, const char *arg, const char *const *words,
         struct err *err)
{
    struct str all = { 0 };

    for (int i = 0; words[i]; i++)
        if (!strcmp(arg, words[i]))
            return i;
    for (int i = 0; words[i]; i++)
        str_addf(&all, "%s%s", i ? ", " : "", words[i]);
    err_set(err, TU_USAGE, "%s: \"%s\" is not one of %s", name, arg, all.s);
    str_free(&all);
    return -1;
}

int
opt_dtype(const char *name, const char *arg, enum dtype *dtype, struct err *err)
{
    static const char *const words[] = { "f32", "f16", "bf16", NULL };
    static const enum dtype dtypes[] = { DT_F32, DT_F16, DT_BF16 };
    int i = opt_word(name, arg, words, err);

    if (i < 0)
        return -1;
    *dtype = dtypes[i];
    return 0;
}
