/* SPDX-License-Identifier: ISC */
#include "core/opt_value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/opt.h"
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
    if (*value == 0 && errno == ERANGE) /* and 0 may mean: no limit */
        return err_set(err, TU_USAGE, "%s: \"%s\" is too small: write 0", name,
                       arg);
    if (end == arg || *end || *arg == ' ' || !isfinite(*value) ||
        *value < min || *value > max)
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a number from %g to %g", name, arg,
                       min, max);
    return 0;
}

int
opt_f64_list(const char *name, const char *arg, double min, double max,
             double *values, int most, struct err *err)
{
    char *list = xstrdup(arg), *next = list, *one;
    int n = 0;

    while (n >= 0 && (one = strsep(&next, ",")))
        if (n == most)
            n = err_set(err, TU_USAGE, "%s: more than %d of them", name, most);
        else
            n = opt_f64(name, one, min, max, &values[n], err) < 0 ? -1 : n + 1;
    free(list);
    return n;
}

int
opt_size(const char *name, const char *arg, size_t min, size_t *nbytes,
         struct err *err)
{
    static const char units[] = "KMGT";
    const char *unit;
    unsigned long long n;
    int shift = 0;
    char *end;

    errno = 0;
    n = strtoull(arg, &end, 10);
    if (*end) { /* "M" or "MiB": "MB" may mean 10^6 */
        unit = strchr(units, *end);
        shift = unit && (!end[1] || !strcmp(end + 1, "iB"))
                    ? 10 * (int)(unit - units + 1)
                    : -1;
    }
    if (*arg < '0' || *arg > '9' || shift < 0)
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a size such as 100000, 64M or 2GiB",
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

/* The next of "f32|f16"; what follows a comma is for the reader alone. */
static const char *
next_choice(const char **words, size_t *n)
{
    const char *s = *words;

    if (!*s || *s == ',')
        return NULL;
    *n = strcspn(s, "|,");
    *words = s + *n + (s[*n] == '|');
    return s;
}

/* Is 'arg' this word, or its synonym: "fp16" and "fp32" of "f16" and "f32"? */
static bool
is_choice(const char *arg, const char *word, size_t n)
{
    bool is_float =
        !strncmp(arg, "fp", 2) && n > 1 && isdigit((unsigned char)word[1]);

    if (is_float && *word == 'f')
        return is_choice(arg + 2, word + 1, n - 1);
    return strlen(arg) == n && !memcmp(arg, word, n);
}

int
opt_choice(const char *name, const char *arg, const char *words,
           struct err *err)
{
    const char *next = words, *s;
    struct str all = { 0 };
    size_t n;

    for (int i = 0; (s = next_choice(&next, &n)); i++)
        if (is_choice(arg, s, n))
            return i;
    for (next = words; (s = next_choice(&next, &n));)
        str_addf(&all, "%s%.*s", all.n ? ", " : "", (int)n, s);
    err_set(err, TU_USAGE, "%s: \"%s\" is not one of %s", name, arg, all.s);
    str_free(&all);
    return -1;
}

/* What word i of an option's, of n bytes, stands for: the dtypes "bf16" BF16,
 * and "fp16" F16. */
static int
value_of(const struct opt *o, int i, const char *word, size_t n)
{
    char name[8];
    size_t n_name = 0;

    if (o->to.kind != OPT_IS_DTYPE)
        return (int)o->to.min + i;
    for (size_t k = 0; k < n && n_name < sizeof(name); k++)
        if (word[k] != 'p')
            name[n_name++] = (char)toupper((unsigned char)word[k]);
    return dtype_parse(name, n_name);
}

int
opt_put(const struct opt *o, const char *name, const char *arg, void *to,
        struct err *err)
{
    void *at = (char *)to + o->to.at;
    struct opt_list *list;
    int64_t whole;
    int i;

    switch (o->to.kind) {
    case OPT_IS_NOTHING:
        return 0;
    case OPT_IS_FLAG:
        *(bool *)at = true;
        return 0;
    case OPT_IS_CONST:
        *(int *)at = (int)o->to.min;
        return 0;
    case OPT_IS_FILE:
        if (!*arg)
            return err_set(err, TU_USAGE, "%s: \"\" is not a file name", name);
        /* fall through */
    case OPT_IS_TEXT:
        *(const char **)at = arg;
        return 0;
    case OPT_IS_LIST:
        list = at;
        if (list->n == o->to.max)
            return err_set(err, TU_USAGE, "%s: given more than %zu times", name,
                           list->n);
        list->item = xrealloc(list->item, list->n + 2, sizeof(*list->item));
        list->item[list->n++] = arg;
        list->item[list->n] = NULL;
        return 0;
    case OPT_IS_INT:
        if (opt_i64(name, arg, o->to.min, (int64_t)o->to.max, &whole, err) < 0)
            return -1;
        *(int *)at = (int)whole;
        return 0;
    case OPT_IS_I64:
        return opt_i64(name, arg, o->to.min, (int64_t)o->to.max, at, err);
    case OPT_IS_U64:
        return opt_u64(name, arg, (uint64_t)o->to.min, o->to.max, at, err);
    case OPT_IS_F64:
        return opt_f64(name, arg, o->to.low, o->to.high, at, err);
    case OPT_IS_SIZE:
        return opt_size(name, arg, (size_t)o->to.min, at, err);
    case OPT_IS_SHARD:
        return opt_shard(arg, at, (uint64_t *)((char *)to + o->to.also), err);
    case OPT_IS_WORD:
    case OPT_IS_DTYPE:
        i = opt_choice(name, arg, o->arg, err);
        if (i < 0)
            return -1;
        *(int *)at = value_of(o, i, arg, strlen(arg));
        return 0;
    case OPT_IS_CALL:
        return o->to.call(to, arg, err);
    }
    return 0;
}

const char *
opt_keep(struct opt_list *list, const char *s, size_t n)
{
    list->item = xrealloc(list->item, list->n + 1, sizeof(*list->item));
    return list->item[list->n++] = xstrndup(s, n);
}

void
opt_drop(struct opt_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free((char *)(uintptr_t)list->item[i]);
    free(list->item);
    *list = (struct opt_list){ 0 };
}

void
opt_save(const struct opt *o, const void *from, struct str *text)
{
    const void *at = (const char *)from + o->to.at;
    const char *next = o->arg, *s;
    size_t n;

    str_adds(text, "");
    switch (o->to.kind) {
    case OPT_IS_FLAG:
        str_addc(text, *(const bool *)at ? '1' : '0');
        break;
    case OPT_IS_TEXT:
    case OPT_IS_FILE:
        s = *(const char *const *)at;
        str_adds(text, s ? s : "");
        break;
    case OPT_IS_I64:
        str_addf(text, "%lld", (long long)*(const int64_t *)at);
        break;
    case OPT_IS_U64:
        str_addf(text, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case OPT_IS_F64:
        js_put_f64(text, *(const double *)at);
        break;
    case OPT_IS_WORD:
    case OPT_IS_DTYPE:
        for (int i = 0; (s = next_choice(&next, &n)); i++)
            if (*(const int *)at == value_of(o, i, s, n))
                str_add(text, s, n);
        break;
    default:
        break;
    }
}

void
opt_copy(const struct opt *o, const void *from, void *to)
{
    static const size_t sizes[] = {
        [OPT_IS_FLAG] = sizeof(bool),    [OPT_IS_TEXT] = sizeof(char *),
        [OPT_IS_FILE] = sizeof(char *),  [OPT_IS_I64] = sizeof(int64_t),
        [OPT_IS_U64] = sizeof(uint64_t), [OPT_IS_F64] = sizeof(double),
        [OPT_IS_WORD] = sizeof(int),     [OPT_IS_DTYPE] = sizeof(int),
    };

    memcpy((char *)to + o->to.at, (const char *)from + o->to.at,
           sizes[o->to.kind]);
}

int
opt_load(const struct opt *o, const char *name, const char *text,
         const void *defaults, void *to, struct err *err)
{
    void *at = (char *)to + o->to.at;
    struct str own = { 0 };
    int rc = 0;

    if (defaults)
        opt_save(o, defaults, &own);
    if (own.s && !strcmp(own.s, text)) {
        opt_copy(o, defaults, to);
    } else if (o->to.kind == OPT_IS_FLAG) {
        rc = opt_choice(name, text, "0|1", err);
        if (rc >= 0)
            *(bool *)at = rc;
    } else if (!*text &&
               (o->to.kind == OPT_IS_FILE || o->to.kind == OPT_IS_TEXT)) {
        *(const char **)at = NULL;
    } else {
        rc = opt_put(o, name, text, to, err);
    }
    str_free(&own);
    return rc < 0 ? -1 : 0;
}

/* Ranges that end beyond it are of whatever a program can hold. */
#define MAX_SHOWN 1000000

/* The shorter of 0.0001 and 1e-4, as one types it. */
static void
put_real(double x, struct str *text)
{
    char plain[32], power[32], *e;

    snprintf(plain, sizeof(plain), "%.15g", x);
    snprintf(power, sizeof(power), "%.0e", x);
    e = strchr(power, 'e') + 1;
    e += *e == '-';
    memmove(e, e + strspn(e, "+0"), strlen(e + strspn(e, "+0")) + 1);
    str_adds(text, strlen(power) < strlen(plain) && strtod(power, NULL) == x
                       ? power
                       : plain);
}

void
opt_default(const struct opt *o, const void *defaults, struct str *text)
{
    const void *at = (const char *)defaults + o->to.at;
    int64_t whole = 0;
    size_t n;
    double x;
    int i = 0;

    switch (o->to.kind) {
    case OPT_IS_INT:
    case OPT_IS_I64:
    case OPT_IS_U64: /* none has a default beyond 2^63 */
        whole =
            o->to.kind == OPT_IS_INT ? *(const int *)at : *(const int64_t *)at;
        if (whole >= o->to.min && (whole < 0 || (uint64_t)whole <= o->to.max))
            str_addf(text, "%lld", (long long)whole);
        break;
    case OPT_IS_F64:
        x = *(const double *)at;
        if (x >= o->to.low && x <= o->to.high)
            put_real(x, text);
        break;
    case OPT_IS_SIZE:
        /* in the largest unit of which it is a whole number */
        for (n = *(const size_t *)at; i < 4 && n && n % 1024 == 0; i++)
            n /= 1024;
        str_addf(text, "%zu%.1s", n, &"\0KMGT"[i]);
        break;
    case OPT_IS_WORD:
    case OPT_IS_DTYPE:
        opt_save(o, defaults, text);
        break;
    default:
        break;
    }
}

void
opt_range(const struct opt *o, struct str *text)
{
    switch (o->to.kind) {
    case OPT_IS_INT:
    case OPT_IS_I64:
    case OPT_IS_U64:
        if (o->to.max <= MAX_SHOWN)
            str_addf(text, "%lld to %llu", (long long)o->to.min,
                     (unsigned long long)o->to.max);
        break;
    case OPT_IS_F64:
        if (o->to.high > MAX_SHOWN)
            break;
        put_real(o->to.low, text);
        str_adds(text, " to ");
        put_real(o->to.high, text);
        break;
    default:
        break;
    }
}
