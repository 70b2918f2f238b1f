#include "core/opt.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"

void
opt_help(const struct opt_tool *tool, const struct opt *o, struct str *text)
{
    const char *modes = tool->modes, *first,
               *own = strstr(o->help, " (default");
    struct str value = { 0 };
    size_t n;

    if (modes && (first = opt_set_next(&modes, &n)) &&
        !opt_applies(o, first, n)) {
        opt_add_names(text, tool, o->verbs);
        str_adds(text, ": ");
    }
    str_add(text, o->help, own ? (size_t)(own - o->help) : strlen(o->help));
    opt_range(o, &value);
    if (value.n)
        str_addf(text, ", %s", value.s);
    str_clear(&value);
    if (tool->defaults && !own)
        opt_default(o, tool->defaults, &value);
    if (value.n)
        str_addf(text, " (default %s)", value.s);
    str_adds(text, own ? own : "");
    str_free(&value);
}

/* Is 'word' one of 'set', which may be NULL? */
static bool
is_in_set(const char *set, const char *word)
{
    const char *name;
    size_t n;

    while (set && (name = opt_set_next(&set, &n)))
        if (n == strlen(word) && !memcmp(name, word, n))
            return true;
    return false;
}

/* Is the option in the help that is asked for? */
static bool
is_shown(const struct opt_line *line, const struct opt *o)
{
    const char *verb;

    if (line->help_verb < 0)
        return line->all || !is_in_set(line->tool->rare, o->name);
    verb = line->tool->verbs[line->help_verb].name;
    return !o->verbs || opt_applies(o, verb, strlen(verb));
}

enum { TEXT_COLUMN = 29, LAST_COLUMN = 80 };

/* A name, and its text to the right of it, or below if the name is long. */
static void
print_entry(const char *name, const char *text, FILE *to)
{
    size_t at = TEXT_COLUMN, n;

    if (strlen(name) >= TEXT_COLUMN)
        fprintf(to, "%s\n%*s", name, TEXT_COLUMN, "");
    else
        fprintf(to, "%-*s", TEXT_COLUMN, name);
    for (const char *s = text; *s; s += n + strspn(s + n, " ")) {
        n = strcspn(s, " ");
        if (at > TEXT_COLUMN && at + 1 + n > LAST_COLUMN) {
            fprintf(to, "\n%*s", TEXT_COLUMN, "");
            at = TEXT_COLUMN;
        }
        fprintf(to, "%s%.*s", at > TEXT_COLUMN ? " " : "", (int)n, s);
        at += n + (at > TEXT_COLUMN);
    }
    putc('\n', to);
}

static void
print_option(const struct opt_tool *tool, const struct opt *o, FILE *to)
{
    struct str left = { 0 }, help = { 0 };

    if (o->letter)
        str_addf(&left, "  -%c, --%s", o->letter, o->name);
    else
        str_addf(&left, "      --%s", o->name);
    if (o->arg)
        str_addf(&left, " %s", o->arg);
    opt_help(tool, o, &help);
    print_entry(left.s, help.s, to);
    str_free(&left);
    str_free(&help);
}

void
opt_print_usage(const struct opt_line *line, FILE *to)
{
    const struct opt_tool *tool = line->tool;
    const struct opt_verb *verbs = tool->verbs;
    const char *head = "usage: ";
    struct str name = { 0 };
    int width = 7;
    size_t n;

    for (const char *s = tool->usage; *s; s += n + (s[n] == '\n')) {
        n = strcspn(s, "\n");
        fprintf(to, "%s%.*s\n", head, (int)n, s);
        head = "       ";
    }
    fprintf(to, "%s\n", tool->summary);
    for (int i = 0; verbs && verbs[i].name; i++)
        width = (int)larger((size_t)width, strlen(verbs[i].name));
    for (int i = 0; verbs && verbs[i].name; i++)
        if (line->help_verb < 0 || line->help_verb == i) {
            str_clear(&name);
            str_addf(&name, "  %-*s %s", width, verbs[i].name, verbs[i].args);
            print_entry(name.s, verbs[i].help, to);
        }
    str_free(&name);
}

void
opt_print_help(const struct opt_line *line, FILE *to)
{
    const struct opt_tool *tool = line->tool;
    const char *title = tool->groups ? NULL : "options";
    const struct opt *o;
    int n_hidden = 0;

    opt_print_usage(line, to);
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        for (const struct opt_group *g = tool->groups; g && g->first; g++)
            if (!strcmp(g->first, o->name))
                title = g->title;
        if (!is_shown(line, o)) {
            n_hidden++;
            continue;
        }
        if (title)
            fprintf(to, "%s:\n", title);
        title = NULL;
        print_option(tool, o, to);
    }
    if (n_hidden && line->help_verb < 0)
        fprintf(to, "'%s --help all' has %d more options%s.\n", tool->name,
                n_hidden, tool->verbs ? ", 'VERB --help' those of a verb" : "");
    fprintf(to, "See %s", tool->name);
    if (line->help_verb >= 0 &&
        is_in_set(tool->pages, tool->verbs[line->help_verb].name))
        fprintf(to, "-%s", tool->verbs[line->help_verb].name);
    fprintf(to, "(1) for the whole story.\n");
}
