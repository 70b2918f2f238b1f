/* SPDX-License-Identifier: ISC */
/* What --help prints: usage, verbs, options with defaults, examples. */
#include "core/opt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/str.h"

/* The n bytes of help at 'at', with the range before a default of their own, or
 * else with the table's. */
static void
add_help(const struct opt_tool *tool, const struct opt *o, const char *at,
         size_t n, struct str *text)
{
    const char *own = strstr(at, " (default");
    struct str value = { 0 };

    if (own && own >= at + n)
        own = NULL;
    str_add(text, at, own ? (size_t)(own - at) : n);
    opt_range(o, &value);
    if (value.n)
        str_addf(text, ", %s", value.s);
    str_clear(&value);
    if (tool->defaults && !own)
        opt_default(o, tool->defaults, &value);
    if (value.n)
        str_addf(text, " (default %s)", value.s);
    if (own)
        str_add(text, own, (size_t)(at + n - own));
    str_free(&value);
}

void
opt_help(const struct opt_tool *tool, const struct opt *o, const char *verb,
         struct str *text)
{
    const char *modes = tool->modes, *at = o->help, *first;
    size_t n = strcspn(at, "\n"), n_first;

    if (modes && (first = opt_set_next(&modes, &n_first)) &&
        !opt_applies(o, first, n_first)) {
        opt_add_names(text, tool, o->verbs);
        str_adds(text, ": ");
    }
    /* "VERB VERB: help", a line each, in place of the first */
    for (const char *next = at + n; *next; next += strcspn(next, "\n")) {
        size_t n_verbs = strcspn(++next, ":");
        char *verbs = xstrndup(next, n_verbs);
        struct opt other = { .verbs = verbs };
        const char *help = next + n_verbs + 2;

        if (verb && opt_applies(&other, verb, strlen(verb))) {
            at = help;
            n = strcspn(help, "\n");
        }
        free(verbs);
    }
    add_help(tool, o, at, n, text);
    for (const char *next = at + n; !verb && *next; next += n) {
        size_t n_verbs = strcspn(++next, ":");

        str_adds(text, "; ");
        for (size_t i = 0; i < n_verbs; i++)
            str_add(text, next[i] == ' ' ? ", " : &next[i],
                    next[i] == ' ' ? 2 : 1);
        n = strcspn(next, "\n");
        str_add(text, next + n_verbs, n - n_verbs);
    }
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

/* The verb whose help is asked for, or NULL. */
static const char *
help_verb(const struct opt_line *line)
{
    return line->help_verb < 0 ? NULL : line->tool->verbs[line->help_verb].name;
}

/* Is the option in the help that is asked for? */
static bool
is_shown(const struct opt_line *line, const struct opt *o)
{
    const char *verb = help_verb(line);

    if (!verb)
        return line->all || !is_in_set(line->tool->rare, o->name);
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
print_option(const struct opt_line *line, const struct opt *o, FILE *to)
{
    const struct opt_tool *tool = line->tool;
    struct str left = { 0 }, help = { 0 };

    if (o->letter)
        str_addf(&left, "  -%c, --%s", o->letter, o->name);
    else
        str_addf(&left, "      --%s", o->name);
    if (o->arg)
        str_addf(&left, " %s", o->arg);
    opt_help(tool, o, help_verb(line), &help);
    print_entry(left.s, help.s, to);
    str_free(&left);
    str_free(&help);
}

/* "usage: moe-sft merge -b BASE -l LORA [OPTION...]", and what the verb does.
 */
static void
print_verb(const struct opt_tool *tool, const struct opt_verb *verb, FILE *to)
{
    const char *name = verb->name;

    fprintf(to, "usage: %s %s", tool->name, name);
    for (const struct opt *o = tool->opts; o->name; o++) {
        if (!o->verbs || opt_applies(o, name, strlen(name)) != 2)
            continue;
        if (o->letter)
            fprintf(to, " -%c %s", o->letter, o->arg);
        else
            fprintf(to, " --%s %s", o->name, o->arg);
    }
    fprintf(to, " [OPTION...]%s%s\n%s\n", *verb->args ? " " : "", verb->args,
            verb->help);
}

/* Lines separated by newlines: the first after 'head', the others below it. */
static void
print_lines(const char *head, const char *lines, FILE *to)
{
    size_t n;

    for (const char *s = lines; *s; s += n + (s[n] == '\n')) {
        n = strcspn(s, "\n");
        fprintf(to, "%*s%.*s\n", (int)strlen(head), s == lines ? head : "",
                (int)n, s);
    }
}

void
opt_print_usage(const struct opt_line *line, FILE *to)
{
    const struct opt_tool *tool = line->tool;
    const struct opt_verb *verbs = tool->verbs;
    struct str name = { 0 };
    int width = 7;

    if (line->help_verb >= 0) {
        print_verb(tool, &verbs[line->help_verb], to);
        return;
    }
    print_lines("usage: ", tool->usage, to);
    fprintf(to, "%s\n", tool->summary);
    for (int i = 0; verbs && verbs[i].name; i++)
        width = (int)larger((size_t)width, strlen(verbs[i].name));
    for (int i = 0; verbs && verbs[i].name; i++) {
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
    const char *examples = line->help_verb < 0
                               ? tool->examples
                               : tool->verbs[line->help_verb].examples;
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
        print_option(line, o, to);
    }
    if (examples) {
        fputs("examples:\n", to);
        print_lines("  ", examples, to);
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
