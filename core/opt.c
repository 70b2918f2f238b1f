#include "core/opt.h"
#include <getopt.h>
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
