/*
 * Options: one table per tool gives getopt_long, --help, the check of verbs,
 * and the shell completions.
 */
#ifndef CORE_OPT_H
#define CORE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/err.h"
#include "core/opt_value.h"

enum {
    OPT_LONG = 256 /* ids from here on have no letter */
};

/* A table ends with { 0 }.  -h and -V need no entry: every tool has them. */
struct opt {
    int id;            /* the letter, or OPT_LONG + n */
    const char *name;  /* long name without dashes; NULL: letter only */
    const char *arg;   /* "FILE", "N", or the words: "f32|f16"; NULL: none */
    const char *verbs; /* " list stats ": where it applies; NULL: everywhere */
    const char *help;  /* one line, lower case, with default and unit */
};

struct opt_verb {
    const char *name;
    const char *args; /* "FILE..." */
    const char *help;
};

struct opt_tool {
    const char *name;    /* "st-inspect" */
    const char *usage;   /* after "usage: ", lines separated by \n */
    const char *summary; /* one or two lines on what it does */
    const struct opt *opts;
    const struct opt_verb *verbs; /* NULL, or ends with { 0 } */
};

/*
 * opt_next() returns the next option's id with *arg set, -1 after the last
 * one (then *index is the first operand's place in the permuted argv), or
 * TU_USAGE's negative, -2, with 'err' set.  'h' and 'V' are for the caller.
 */
int opt_next(const struct opt_tool *tool, int argc, char **argv,
             const char **arg, int *index, struct err *err);

/* opt_rewind() starts over: for a second pass or a second argv. */
void opt_rewind(void);

/* opt_verb() is the place of a word among the tool's verbs, or -1. */
int opt_verb(const struct opt_tool *tool, const char *word);

/* opt_for_verb(): -1 with 'err' set (TU_USAGE) if 'id' has no meaning there. */
int opt_for_verb(const struct opt_tool *tool, int id, const char *verb,
                 struct err *err);

/* opt_print_help() writes what --help says: usage, summary, tables. */
void opt_print_help(const struct opt_tool *tool, FILE *to);

/* opt_at(): option i of a tool, its own and then the common ones, or NULL. */
const struct opt *opt_at(const struct opt_tool *tool, int i);

/*
 * opt_print_completion() writes a completion script; shell: "bash" or "zsh",
 * -1 for others. Verbs, options, each with the verbs that take it; arguments
 * by their names: the words of "f32|f16", files for FILE, MODEL and the like.
 */
int opt_print_completion(const struct opt_tool *tool, const char *shell,
                         FILE *to);

/*
 * Where an option goes that is a switch, or a string kept as it is: a table of
 * them ends with { 0 }.  opt_store(): false if it has no place for 'id'.
 */
struct opt_place {
    int id;
    bool *flag;        /* set to true; or */
    const char **text; /* to the argument, which the caller keeps */
};
bool opt_store(const struct opt_place *places, int id, const char *arg);

#endif
