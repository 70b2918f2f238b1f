#include "core/opt.h"
#include "core/str.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTS 96

/* The two options of every tool. */
static const struct opt common[] = {
    { 'h', "help", NULL, NULL, "print this help" },
    { 'V', "version", NULL, NULL, "print the version" },
};
#define N_COMMON ((int)(sizeof(common) / sizeof(common[0])))

static int
count(const struct opt_tool *tool)
{
    int n = 0;

    while (tool->opts[n].id)
        n++;
    return n;
}

const struct opt *
opt_at(const struct opt_tool *tool, int i)
{
    int n = count(tool);

    if (i < n)
        return &tool->opts[i];
    return i < n + N_COMMON ? &common[i - n] : NULL;
}

/* getopt_long's two tables from ours; the string starts with ":" so that a
 * missing argument is told apart from an unknown option. */
static void
build(const struct opt_tool *tool, char *letters, struct option *longs)
{
    const struct opt *o;

    *letters++ = ':';
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        if (o->id < OPT_LONG) {
            *letters++ = (char)o->id;
            if (o->arg)
                *letters++ = ':';
        }
        if (o->name)
            *longs++ = (struct option){
                o->name, o->arg ? required_argument : no_argument, NULL, o->id
            };
    }
    *letters = '\0';
    *longs = (struct option){ 0 };
}

static const struct opt *
find(const struct opt_tool *tool, int id)
{
    const struct opt *o;

    for (int i = 0; (o = opt_at(tool, i)); i++)
        if (o->id == id)
            return o;
    return NULL;
}

/* getopt says '?' or ':' of the word before optind, if it is a long option or
 * the last letter of it: name it as it was typed. */
static int
bad_option(const struct opt_tool *tool, int c, char **argv, struct err *err)
{
    const char *word = argv[optind - 1];
    /* '?' of a letter that there is: it was the short for a long one that takes
     * no argument, and got one */
    bool is_long = c == ':' ? !strncmp(word, "--", 2)
                            : optopt == 0 || find(tool, optopt) != NULL;

    if (!is_long && optopt < OPT_LONG) {
        char letter[3] = { '-', (char)optopt, '\0' };

        err_set(err, TU_USAGE,
                c == ':' ? "option %s needs an argument"
                         : "there is no option %s",
                letter);
    } else if (c == ':') {
        err_set(err, TU_USAGE, "option %s needs an argument", word);
    } else if (optopt) {
        err_set(err, TU_USAGE, "option %s takes no argument", word);
    } else {
        err_set(err, TU_USAGE, "there is no option %s, or it is ambiguous",
                word);
    }
    return -TU_USAGE;
}

int
opt_next(const struct opt_tool *tool, int argc, char **argv, const char **arg,
         int *index, struct err *err)
{
    char letters[2 * MAX_OPTS + 2];
    struct option longs[MAX_OPTS + 1];
    int c;

    build(tool, letters, longs);
    opterr = 0;
    c = getopt_long(argc, argv, letters, longs, NULL);
    *index = optind;
    *arg = optarg;
    return c == '?' || c == ':' ? bad_option(tool, c, argv, err) : c;
}

void
opt_rewind(void)
{
    optind = 0; /* GNU and musl: a full start over */
}

int
opt_verb(const struct opt_tool *tool, const char *word)
{
    for (int i = 0; tool->verbs[i].name; i++)
        if (!strcmp(tool->verbs[i].name, word))
            return i;
    return -1;
}

int
opt_for_verb(const struct opt_tool *tool, int id, const char *verb,
             struct err *err)
{
    const struct opt *o = find(tool, id);
    size_t n = strlen(verb);
    const char *p = o ? o->verbs : NULL;
    char letter[2] = { 0 };

    if (!p)
        return 0;
    for (; (p = strstr(p, verb)); p += n)
        if (p[-1] == ' ' && (p[n] == ' ' || p[n] == '\0'))
            return 0;
    letter[0] = (char)id;
    return err_set(err, TU_USAGE, "option %s%s has no meaning for %s",
                   o->name ? "--" : "-", o->name ? o->name : letter, verb);
}

static void
print_option(const struct opt *o, FILE *to)
{
    char left[64];
    int n = 0;

    n += snprintf(left, sizeof(left), "  ");
    if (o->id < OPT_LONG)
        n += snprintf(left + n, sizeof(left) - (size_t)n, "-%c%s", o->id,
                      o->name ? ", " : "");
    else
        n += snprintf(left + n, sizeof(left) - (size_t)n, "    ");
    if (o->name)
        n += snprintf(left + n, sizeof(left) - (size_t)n, "--%s", o->name);
    if (o->arg)
        n += snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->arg);
    if (n > 28)
        fprintf(to, "%s\n%-28s %s\n", left, "", o->help);
    else
        fprintf(to, "%-28s %s\n", left, o->help);
}

static void
print_usage(const struct opt_tool *tool, FILE *to)
{
    const char *s = tool->usage;
    const char *head = "usage: ";

    while (*s) {
        size_t n = strcspn(s, "\n");

        fprintf(to, "%s%.*s\n", head, (int)n, s);
        head = "       ";
        s += n + (s[n] == '\n');
    }
}

void
opt_print_help(const struct opt_tool *tool, FILE *to)
{
    const struct opt *o;
    int width = 7;

    print_usage(tool, to);
    fprintf(to, "%s\n", tool->summary);
    for (const struct opt_verb *v = tool->verbs; v && v->name; v++)
        width = (int)strlen(v->name) > width ? (int)strlen(v->name) : width;
    for (const struct opt_verb *v = tool->verbs; v && v->name; v++)
        fprintf(to, "  %-*s %-*s %s\n", width, v->name, 25 - width, v->args,
                v->help);
    fputs("options:\n", to);
    for (int i = 0; (o = opt_at(tool, i)); i++)
        print_option(o, to);
    fprintf(to, "See %s(1) for the whole story.\n", tool->name);
}

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

bool
opt_store(const struct opt_place *places, int id, const char *arg)
{
    for (const struct opt_place *p = places; p->id; p++) {
        if (p->id != id)
            continue;
        if (p->flag)
            *p->flag = true;
        else
            *p->text = arg;
        return true;
    }
    return false;
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
