/* SPDX-License-Identifier: ISC */
/* The completion scripts of bash and zsh, from a tool's table of options. */
#include "core/opt.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* What an argument can be completed to, by its name in the table: words
 * ("f32|f16"), files or directories; nothing else (N, GLOB, ..). */
#define FILES "FILE PATH MODEL SAE BASE LORA BATCH"
#define DIRS  "DIR"

static bool
is_one_of(const char *set, const char *arg)
{
    size_t n_arg = strcspn(arg, "|.,"), n;
    const char *name;

    while ((name = opt_set_next(&set, &n)))
        if (n == n_arg && !memcmp(arg, name, n))
            return true;
    return false;
}

/* The words of "f32|f16", "N|all", "qkv|gate_up,..", spaces between them;
 * returns how many there are. */
static int
print_words(const char *arg, FILE *to)
{
    int n = 0;

    for (; *arg; arg += *arg == '|') {
        size_t size = strcspn(arg, "|,");

        if (islower((unsigned char)*arg)) {
            if (to)
                fprintf(to, "%s%.*s", n ? " " : "", (int)size, arg);
            n++;
        }
        arg += strcspn(arg, "|");
    }
    return n;
}

static bool
has_words(const char *arg)
{
    return print_words(arg, NULL) > 0;
}

/* In single quotes, with a backslash before the characters of 'escape'. */
static void
print_quoted(const char *s, const char *escape, FILE *to)
{
    for (; *s; s++) {
        if (strchr(escape, *s))
            fputc('\\', to);
        fputs(*s == '\'' ? "'\\''" : (char[2]){ *s, '\0' }, to);
    }
}

static void
print_verbs(const struct opt_tool *tool, const char *between, FILE *to)
{
    for (const struct opt_verb *v = tool->verbs; v->name; v++)
        fprintf(to, "%s%s", v == tool->verbs ? "" : between, v->name);
}

/* What stands before the word that is completed: the verb, or --. */
static void
print_scan(const struct opt_tool *tool, FILE *to)
{
    if (!tool->verbs)
        return;
    fputs("        (", to);
    print_verbs(tool, "|", to);
    fputs(") verb=$word; break ;;\n", to);
}

/* Opens the 'case' of an option that not all verbs take, "(list|tree)"; false:
 * they all do. */
static bool
print_case(const char *open, const struct opt_tool *tool, const struct opt *o,
           FILE *to)
{
    const char *verb, *next = o->verbs;
    size_t n;

    if (!tool->verbs || !next)
        return false;
    fputs(open, to);
    for (int i = 0; (verb = opt_set_next(&next, &n)); i++)
        fprintf(to, "%s%.*s", i ? "|" : "", (int)n, verb);
    fputs(") ", to);
    return true;
}

static void
bash_completion(const struct opt_tool *tool, FILE *to)
{
    const struct opt *o;

    fprintf(to,
            "# %s --completions bash\n"
            "_tensorutils_%s()\n{\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
            "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
            "    local options= verb= word words=none\n"
            "    COMPREPLY=()\n"
            "    # to bash, --name=value is three words\n"
            "    if [[ $cur == = ]]; then cur=\n"
            "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}\n"
            "    fi\n"
            "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
            "        case $word in\n"
            "        (--) return ;;\n",
            tool->name, tool->name);
    print_scan(tool, to);
    fputs("        esac\n    done\n    case $prev in\n", to);
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        if (!o->arg)
            continue;
        fputs("    (", to);
        if (o->letter)
            fprintf(to, "-%c|", o->letter);
        fprintf(to, "--%s) ", o->name);
        if (has_words(o->arg)) {
            fputs("words='", to);
            print_words(o->arg, to);
            fputs("' ;;\n", to);
        } else {
            fputs(is_one_of(FILES " " DIRS, o->arg) ? "return ;;\n"
                                                    : "words= ;;\n",
                  to);
        }
    }
    fputs(
        "    esac\n"
        "    if [[ $words != none ]]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
        "        compopt +o default\n"
        "        return\n"
        "    fi\n",
        to);
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        bool some = print_case("    case $verb in (''|", tool, o, to);

        fprintf(to, "%soptions+=' --%s'%s\n", some ? "" : "    ", o->name,
                some ? " ;; esac" : "");
    }
    fputs(
        "    case $cur in\n"
        "    (-*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")"
        " ;;\n",
        to);
    if (tool->verbs) {
        fputs("    (*) [[ $verb ]] || {\n"
              "            mapfile -t COMPREPLY < <(compgen -W '",
              to);
        print_verbs(tool, " ", to);
        fputs("' -- \"$cur\"\n"
              "                [[ -z $cur ]] || compgen -f -- \"$cur\")\n"
              "            compopt -o filenames\n"
              "        } ;;\n",
              to);
    }
    fprintf(to, "    esac\n}\ncomplete -o default -F _tensorutils_%s %s\n",
            tool->name, tool->name);
}

static void
zsh_completion(const struct opt_tool *tool, FILE *to)
{
    struct str help = { 0 };
    const struct opt *o;

    fprintf(to,
            "#compdef %s\n"
            "# %s --completions zsh\n"
            "local -a specs verbs\n"
            "local verb= word\n",
            tool->name, tool->name);
    if (tool->verbs) {
        fputs("for word in ${words[2,CURRENT-1]}; do\n"
              "    case $word in\n",
              to);
        print_scan(tool, to);
        fputs("    esac\ndone\nverbs=(\n", to);
        for (const struct opt_verb *v = tool->verbs; v->name; v++) {
            fprintf(to, "    '%s:", v->name);
            print_quoted(v->help, "\\:", to);
            fputs("'\n", to);
        }
        fputs(")\nspecs=('1: :{ _describe verb verbs; _files }')\n", to);
    }
    for (int i = 0; (o = opt_at(tool, i)); i++) {
        bool some = print_case("case $verb in (|", tool, o, to);
        const char *equals = o->arg ? "=" : "";

        /* '*'{-o+,--output=}'[help]:FILE:_files' */
        fputs("specs+=('*'", to);
        if (o->letter)
            fprintf(to, "{-%c%s,--%s%s}", o->letter, o->arg ? "+" : "", o->name,
                    equals);
        else
            fprintf(to, "--%s%s", o->name, equals);
        fputs("'[", to);
        str_clear(&help);
        opt_help(tool, o, NULL, &help);
        print_quoted(help.s, "[]\\:", to);
        fputc(']', to);
        if (o->arg)
            fprintf(to, ":%s:", o->arg);
        if (o->arg && has_words(o->arg)) {
            fputc('(', to);
            print_words(o->arg, to);
            fputc(')', to);
        } else if (o->arg) {
            fputs(is_one_of(DIRS, o->arg)    ? "_files -/"
                  : is_one_of(FILES, o->arg) ? "_files"
                                             : " ",
                  to);
        }
        fputs(some ? "') ;; esac\n" : "')\n", to);
    }
    str_free(&help);
    fputs("_arguments -s -S : $specs '*:file:_files'\n", to);
}

int
opt_print_completion(const struct opt_tool *tool, const char *shell, FILE *to)
{
    if (!strcmp(shell, "bash"))
        bash_completion(tool, to);
    else if (!strcmp(shell, "zsh"))
        zsh_completion(tool, to);
    else
        return -1;
    return 0;
}
