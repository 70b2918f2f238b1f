/* SPDX-License-Identifier: ISC */
#include "core/opt.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/near.h"
#include "core/str.h"

/* getopt's value of an option without a letter: this and its place. */
#define NO_LETTER 1024

/* The options of every tool. */
static const struct opt common[] = {
    { 'h', "help", NULL, NULL, OPT_NOTHING,
      "print this help; --help all: of "
      "all options" },
    { 'V', "version", NULL, NULL, OPT_NOTHING, "print the version" },
    { 0, "completions", "bash|zsh", NULL, OPT_NOTHING,
      "print completions for this shell" },
};
#define N_COMMON ((int)(sizeof(common) / sizeof(common[0])))

const struct opt *
opt_at(const struct opt_tool *tool, int i)
{
    int n = 0;

    while (n < i && tool->opts[n].name)
        n++;
    if (tool->opts[n].name)
        return &tool->opts[n];
    return i - n < N_COMMON ? &common[i - n] : NULL;
}

/* getopt_long's two tables from ours; the string starts with ":" so that a
 * missing argument and an unknown option differ. */
static void
build(const struct opt_tool *tool, char *letters, struct option *longs)
{
    const struct opt *o;

    *letters++ = ':';
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        if (o->letter) {
            *letters++ = (char)o->letter;
            if (o->arg)
                *letters++ = ':';
        }
        *longs++ =
            (struct option){ o->name, o->arg ? required_argument : no_argument,
                             NULL, o->letter ? o->letter : NO_LETTER + i };
    }
    *letters = '\0';
    *longs = (struct option){ 0 };
}

/* The place of what getopt_long returned, or -1. */
static int
find_value(const struct opt_tool *tool, int c)
{
    const struct opt *o;

    if (c >= NO_LETTER)
        return c - NO_LETTER;
    for (int i = 0; c && (o = opt_at(tool, i)); i++)
        if (o->letter == c)
            return i;
    return -1;
}

/* getopt says '?' or ':' of the word before optind, if it is a long option or
 * the last letter of it: name it as it was typed. */
static int
bad_option(const struct opt_tool *tool, int c, char **argv, struct err *err)
{
    /* musl goes beyond the last, whose argument is missing */
    const char *word = argv[optind - 1] ? argv[optind - 1] : argv[optind - 2];
    /* '?' of a letter that there is: it was the short for a long one that takes
     * no argument, and got one */
    bool is_long = c == ':' ? !strncmp(word, "--", 2)
                            : optopt == 0 || find_value(tool, optopt) >= 0;
    struct str begun = { 0 };
    char name[NEAR_MAX];
    const struct opt *o;
    struct near near;
    int n;

    if (!is_long && optopt < NO_LETTER)
        return err_set(err, TU_USAGE,
                       c == ':' ? "option -%c needs an argument"
                                : "there is no option -%c",
                       optopt);
    if (c == ':')
        return err_set(err, TU_USAGE, "option %s needs an argument", word);
    if (optopt)
        return err_set(err, TU_USAGE, "option %s takes no argument", word);
    /* "--depht", or what begins several */
    word += 2;
    n = (int)strcspn(word, "=");
    snprintf(name, sizeof(name), "%.*s", n, word);
    near_start(&near, name);
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        near_try(&near, o->name, strlen(o->name));
        if (!strncmp(o->name, word, (size_t)n))
            str_addf(&begun, "%s--%s", begun.n ? ", " : "", o->name);
    }
    if (begun.n)
        err_set(err, TU_USAGE, "option --%.*s is ambiguous: %s", n, word,
                begun.s);
    else
        err_set(err, TU_USAGE, "there is no option --%.*s%s%s%s", n, word,
                *near.name ? " (did you mean --" : "", near.name,
                *near.name ? "?)" : "");
    str_free(&begun);
    return -1;
}

const char *
opt_set_next(const char **set, size_t *n)
{
    const char *s = *set + strspn(*set, " !");

    *n = strcspn(s, " !");
    *set = s + *n;
    return *n ? s : NULL;
}

/* The place in the table of the option whose name is those n bytes.  The names
 * are those that the code itself uses: a missing one is a bug, which the first
 * run shows. */
static int
find_name(const struct opt_tool *tool, const char *name, size_t n)
{
    for (int i = 0; tool->opts[i].name; i++)
        if (strlen(tool->opts[i].name) == n &&
            !memcmp(tool->opts[i].name, name, n))
            return i;
    fprintf(stderr, "%s: its table of options has no --%.*s\n", tool->name,
            (int)n, name);
    abort();
}

const struct opt *
opt_of(const struct opt_tool *tool, const char *name)
{
    if (name[1] != '-')
        return &tool->opts[find_value(tool, name[1])];
    return &tool->opts[find_name(tool, name + 2, strlen(name + 2))];
}

/* "-o", or "--dtype". */
static void
add_name(struct str *text, const struct opt *o)
{
    if (o->letter)
        str_addf(text, "-%c", o->letter);
    else
        str_addf(text, "--%s", o->name);
}

void
opt_add_names(struct str *text, const struct opt_tool *tool, const char *set)
{
    const char *name, *next = set;
    size_t n;

    for (int i = 0; (name = opt_set_next(&next, &n)); i++) {
        if (i > 0)
            str_adds(text, next[strspn(next, " !")] ? ", " : " and ");
        add_name(text, &tool->opts[find_name(tool, name, n)]);
    }
}

int
opt_applies(const struct opt *o, const char *verb, size_t n_verb)
{
    const char *next = o->verbs, *name;
    size_t n;

    if (!next)
        return 1;
    while ((name = opt_set_next(&next, &n)))
        if (n == n_verb && !memcmp(name, verb, n))
            return *next == '!' ? 2 : 1;
    return 0;
}

int
opt_given(const struct opt_line *line, const char *name)
{
    return line->given[find_name(line->tool, name, strlen(name))];
}

/* err_set() of TU_USAGE and a text that it frees. */
static int
refuse(struct str *text, struct err *err)
{
    err_set(err, TU_USAGE, "%s", text->s);
    str_free(text);
    return -1;
}

/* How many options of a set are given at least 'times' times; *first is the
 * place of the first. */
static int
count_given(const struct opt_line *line, const char *set, int times, int *first)
{
    const char *name;
    size_t n;
    int n_given = 0;

    while (set && (name = opt_set_next(&set, &n))) {
        int i = find_name(line->tool, name, n);

        if (line->given[i] >= times && n_given++ == 0)
            *first = i;
    }
    return n_given;
}

/* The mode is the default, or what the one option among them says. */
static int
find_mode(struct opt_line *line, struct err *err)
{
    const char *next = line->tool->modes, *options, *name;
    struct str text = { 0 };
    size_t n;

    opt_set_next(&next, &n);
    options = next;
    for (int i = 1; (name = opt_set_next(&next, &n)); i++) {
        if (!line->given[find_name(line->tool, name, n)])
            continue;
        if (line->verb) {
            opt_add_names(&text, line->tool, options);
            str_adds(&text, " exclude each other");
            return refuse(&text, err);
        }
        line->verb = i;
    }
    return 0;
}

/* The first operand, if it is a verb; where it need not be one, it can be a
 * file.  A word of letters that is 'first' on the line was meant as a verb, if
 * there is no file of that name. */
static int
find_verb(struct opt_line *line, const char *first, struct err *err)
{
    const struct opt_verb *verbs = line->tool->verbs;
    const char *word = line->n_args ? line->args[0] : "";
    bool needed = line->tool->verb_needed;
    bool meant = *word && word == first &&
                 !word[strspn(word, "abcdefghijklmnopqrstuvwxyz")];
    struct str text = { 0 };
    struct near near;
    int rc = 0;

    near_start(&near, word);
    for (int i = 0; verbs[i].name; i++) {
        if (!strcmp(verbs[i].name, word)) {
            line->verb = i;
            line->args++;
            line->n_args--;
            goto out;
        }
        near_try(&near, verbs[i].name, strlen(verbs[i].name));
        str_addf(&text, "%s%s", i ? ", " : "", verbs[i].name);
    }
    if (!needed && ((!meant && !*near.name) || !file_missing(word)))
        goto out;
    if (!*word)
        rc = err_set(err, TU_USAGE, "a verb is missing: %s", text.s);
    else
        rc = err_set(err, TU_USAGE, "\"%s\" is %s a verb: %s%s", word,
                     needed ? "not" : "neither a file nor", text.s,
                     near_hint(&near));
out:
    str_free(&text);
    return rc;
}

/* Options given where they do not apply, and those that are needed. */
static int
check_verb(const struct opt_line *line, struct err *err)
{
    const struct opt_tool *tool = line->tool;
    const char *modes = tool->modes, *verb = NULL;
    struct str text = { 0 };
    size_t n = 0;

    if (modes) {
        for (int i = 0; i <= line->verb; i++)
            verb = opt_set_next(&modes, &n);
    } else if (tool->verbs) {
        verb = tool->verbs[line->verb].name;
        n = strlen(verb);
    } else {
        return 0;
    }
    for (const struct opt *o = tool->opts; o->name; o++) {
        if (!line->given[o - tool->opts] || opt_applies(o, verb, n))
            continue;
        if (tool->modes && line->verb == 0) { /* no option stands for it */
            add_name(&text, o);
            str_adds(&text, " is for ");
            opt_add_names(&text, tool, o->verbs);
        } else {
            str_adds(&text, "option ");
            add_name(&text, o);
            str_addf(&text, " has no meaning for %s%.*s",
                     tool->modes ? "--" : "", (int)n, verb);
        }
        return refuse(&text, err);
    }
    for (const struct opt *o = tool->opts; o->name; o++) {
        if (line->given[o - tool->opts] || opt_applies(o, verb, n) != 2)
            continue;
        if (!tool->modes || line->verb > 0)
            str_addf(&text, "%s%.*s: ", tool->modes ? "--" : "", (int)n, verb);
        add_name(&text, o);
        if (o->arg)
            str_addf(&text, " %s", o->arg);
        str_adds(&text, " is needed");
        return refuse(&text, err);
    }
    return 0;
}

static int
check_rules(const struct opt_line *line, struct err *err)
{
    const struct opt *opts = line->tool->opts;
    struct str text = { 0 };

    for (const struct opt_rule *r = line->tool->rules; r && r->kind; r++) {
        int a = 0, b = 0; /* options of its sets that are given */
        int n = count_given(line, r->options, r->kind == OPT_ONCE ? 2 : 1, &a);
        int n_others = count_given(line, r->others, 1, &b);
        bool broken = r->kind == OPT_ONE_OF  ? n > 1
                      : r->kind == OPT_ONCE  ? n > 0
                      : r->kind == OPT_NEEDS ? n > 0 && n_others == 0
                                             : n > 0 && n_others > 0;

        if (!broken)
            continue;
        if (r->message)
            return err_set(err, TU_USAGE, "%s", r->message);
        if (r->kind == OPT_ONE_OF)
            opt_add_names(&text, line->tool, r->options);
        else
            add_name(&text, &opts[a]);
        switch (r->kind) {
        case OPT_ONE_OF:
            str_adds(&text, " exclude each other");
            break;
        case OPT_ONCE:
            str_addf(&text, " is given %d times", line->given[a]);
            break;
        case OPT_NEEDS:
            str_adds(&text, " is for ");
            opt_add_names(&text, line->tool, r->others);
            break;
        case OPT_NOT:
            str_adds(&text, " does not go with ");
            add_name(&text, &opts[b]);
            break;
        }
        return refuse(&text, err);
    }
    return 0;
}

int
opt_parse(struct opt_line *line, const struct opt_tool *tool, int argc,
          char **argv, void *to, struct err *err)
{
    char letters[2 * OPT_MAX + 2];
    struct option longs[OPT_MAX + 1];
    const char *first = argc > 1 ? argv[1] : "";
    int c;

    *line = (struct opt_line){ .tool = tool, .help_verb = -1 };
    build(tool, letters, longs);
    opterr = 0;
    optind = 0; /* GNU and musl: a full start over */
    while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        struct str name = { 0 };
        int i, rc;

        if (c == 'h') { /* getopt has moved operands */
            line->all = optind < argc && !strcmp(argv[optind], "all");
            for (int k = 0; tool->verbs && tool->verbs[k].name; k++)
                if (!strcmp(tool->verbs[k].name, first))
                    line->help_verb = k;
        }
        if (c == 'h' || c == 'V')
            return c;
        if (c == '?' || c == ':')
            return bad_option(tool, c, argv, err);
        i = find_value(tool, c);
        if (!strcmp(opt_at(tool, i)->name, "completions")) {
            line->shell = optarg;
            return 'C';
        }
        line->given[i]++;
        add_name(&name, &tool->opts[i]);
        rc = opt_put(&tool->opts[i], name.s, optarg, to, err);
        str_free(&name);
        if (rc < 0)
            return -1;
    }
    line->args = argv + optind;
    line->n_args = argc - optind;
    if ((tool->modes && find_mode(line, err) < 0) ||
        (tool->verbs && find_verb(line, first, err) < 0) ||
        check_verb(line, err) < 0)
        return -1;
    return check_rules(line, err);
}
