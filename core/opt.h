/* SPDX-License-Identifier: ISC */
/*
 * Options: one table per tool gives getopt_long, where each value goes and its
 * range, --help, the check of verbs, and the shell completions.  A second one
 * says which options need or exclude each other.
 */
#ifndef CORE_OPT_H
#define CORE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/err.h"
#include "core/opt_value.h"

#define OPT_MAX 96 /* options of a tool */

enum opt_kind {
    OPT_IS_NOTHING,
    OPT_IS_FLAG,
    OPT_IS_CONST,
    OPT_IS_TEXT,
    OPT_IS_FILE,
    OPT_IS_LIST,
    OPT_IS_INT,
    OPT_IS_I64,
    OPT_IS_U64,
    OPT_IS_F64,
    OPT_IS_SIZE,
    OPT_IS_SHARD,
    OPT_IS_WORD,
    OPT_IS_DTYPE,
    OPT_IS_CALL
};

/* Where in a tool's struct a value goes, by one of the macros below. */
struct opt_to {
    enum opt_kind kind;
    size_t at, also; /* offsets */
    int64_t min;     /* of whole numbers */
    uint64_t max;
    double low, high; /* of others */
    int (*call)(void *to, const char *arg, struct err *err);
};

/* A table ends with { 0 }.  -h and -V need no entry: every tool has them. */
struct opt {
    int letter;        /* 0: the long name alone */
    const char *name;  /* long name without dashes */
    const char *arg;   /* "FILE", "N", or the words: "f32|f16"; NULL: none */
    const char *verbs; /* "list stats!": where it applies, and with ! is needed;
                        * NULL: everywhere */
    struct opt_to to;
    const char *help; /* one line, lower case, with unit; range and default are
                       * added, the default unless "(default" ends it.  What it
                       * is for other verbs, "\ntune check: rank (default 16)",
                       * may follow */
};

/* A table stands after '#define OPT_INTO struct cmd', the tool's struct:
 * OPT_AT() is where in it a field is, and does not compile for one of another
 * type. */
#define OPT_AT(field, type) \
    _Generic(((OPT_INTO *)0)->field, type : offsetof(OPT_INTO, field))
#define OPT_AT_ENUM(field)                         \
    _Generic(((OPT_INTO *)0)->field, int           \
             : offsetof(OPT_INTO, field), unsigned \
             : offsetof(OPT_INTO, field))
#define OPT_PUT(...) \
    {                \
        __VA_ARGS__  \
    }

/* It takes no value: a mode, or an option that opt_given() finds. */
#define OPT_NOTHING OPT_PUT(.kind = OPT_IS_NOTHING)

/* A bool becomes true, or an int or enum that value. */
#define OPT_FLAG(field) OPT_PUT(.kind = OPT_IS_FLAG, .at = OPT_AT(field, bool))
#define OPT_CONST(field, value) \
    OPT_PUT(.kind = OPT_IS_CONST, .at = OPT_AT_ENUM(field), .min = (value))

/* const char *: the argument, of a file not empty; struct opt_list: all of
 * them, at most that many. */
#define OPT_TEXT(field) \
    OPT_PUT(.kind = OPT_IS_TEXT, .at = OPT_AT(field, const char *))
#define OPT_FILE(field) \
    OPT_PUT(.kind = OPT_IS_FILE, .at = OPT_AT(field, const char *))
#define OPT_LIST(field, max_value)                                     \
    OPT_PUT(.kind = OPT_IS_LIST, .at = OPT_AT(field, struct opt_list), \
            .max = (max_value))

/* int, int64_t, uint64_t, double: a number from 'min_value' to 'max_value';
 * size_t: bytes; two uint64_t: I and N of I/N. */
#define OPT_INT(field, min_value, max_value)                                  \
    OPT_PUT(.kind = OPT_IS_INT, .at = OPT_AT(field, int), .min = (min_value), \
            .max = (max_value))
#define OPT_I64(field, min_value, max_value)                  \
    OPT_PUT(.kind = OPT_IS_I64, .at = OPT_AT(field, int64_t), \
            .min = (min_value), .max = (max_value))
#define OPT_U64(field, min_value, max_value)                   \
    OPT_PUT(.kind = OPT_IS_U64, .at = OPT_AT(field, uint64_t), \
            .min = (min_value), .max = (max_value))
#define OPT_F64(field, min_value, max_value)                 \
    OPT_PUT(.kind = OPT_IS_F64, .at = OPT_AT(field, double), \
            .low = (min_value), .high = (max_value))
#define OPT_SIZE(field, min_value)                            \
    OPT_PUT(.kind = OPT_IS_SIZE, .at = OPT_AT(field, size_t), \
            .min = (min_value))
#define OPT_SHARD(part, n_parts)                                \
    OPT_PUT(.kind = OPT_IS_SHARD, .at = OPT_AT(part, uint64_t), \
            .also = OPT_AT(n_parts, uint64_t))

/* int or enum: 'first' + the place of the word in 'arg'; or its dtype. */
#define OPT_WORD(field, first) \
    OPT_PUT(.kind = OPT_IS_WORD, .at = OPT_AT_ENUM(field), .min = (first))
#define OPT_DTYPE(field) OPT_PUT(.kind = OPT_IS_DTYPE, .at = OPT_AT_ENUM(field))

/* What is none of these: 'to' is the tool's struct; 0, or -1 with 'err' set. */
#define OPT_CALL(function) OPT_PUT(.kind = OPT_IS_CALL, .call = (function))

struct opt_verb {
    const char *name;
    const char *args; /* "FILE..." */
    const char *help;
    const char *examples; /* command lines, separated by \n; or NULL */
};

/* What options need or exclude.  Sets are names with spaces between: "ratio
 * top".  A table ends with { 0 }. */
enum opt_rule_kind {
    OPT_ONE_OF = 1, /* at most one of 'options' */
    OPT_ONCE,       /* each of 'options' at most once */
    OPT_NEEDS,      /* each of 'options' needs one of 'others' */
    OPT_NOT         /* none of 'options' goes with one of 'others' */
};

struct opt_rule {
    enum opt_rule_kind kind;
    const char *options, *others;
    const char *message; /* NULL: as "--absolute is for --tau" */
};

/* --help's headings: each stands before the option of that name.  A table ends
 * with { 0 }. */
struct opt_group {
    const char *first, *title;
};

struct opt_tool {
    const char *name;     /* "st-inspect" */
    const char *usage;    /* after "usage: ", lines separated by \n */
    const char *summary;  /* one or two lines on what it does */
    const char *examples; /* of a tool without verbs, as those of a verb */
    const struct opt *opts;
    const struct opt_verb *verbs; /* NULL, or ends with { 0 } */
    bool verb_needed;             /* else the first is the default */
    const char *modes; /* instead of verbs, "apply report bench": the first is
                        * the default, the others are options, of which only
                        * one can be given; NULL: none */
    const struct opt_rule *rules;   /* or NULL */
    const void *defaults;           /* the tool's struct as it begins */
    const struct opt_group *groups; /* of opts; NULL: no headings */
    const char *rare;               /* a set: options of --help all alone */
    const char *pages;              /* a set: verbs with a page, TOOL-VERB(1) */
};

/* A command line, and what it says besides values. */
struct opt_line {
    const struct opt_tool *tool;
    int given[OPT_MAX]; /* how often, in the table's order */
    int verb;           /* or mode: its place among the tool's */
    char **args;        /* [n_args] operands, after the verb */
    int n_args;
    const char *shell; /* of --completions */
    bool all;          /* of --help: "all" follows */
    int help_verb;     /* of --help: the verb before it, or -1 */
};

/*
 * opt_parse() reads a command line: values go into the tool's struct, 'to'.
 * Returns 0, -1 with 'err' set (TU_USAGE), or what comes first of 'h', 'V'
 * and 'C' (--completions, 'shell' is set), for the caller to answer.
 * Owner: what 'to' points to is argv's, but the caller frees lists.
 */
int opt_parse(struct opt_line *line, const struct opt_tool *tool, int argc,
              char **argv, void *to, struct err *err);

/* opt_given() is how often the option of that long name is given. */
int opt_given(const struct opt_line *line, const char *name);

/* opt_print_usage() writes the usage, the summary and the verbs, or of --help
 * the verb that is asked about. */
void opt_print_usage(const struct opt_line *line, FILE *to);

/* opt_of() is the option that a tool's own tables call "--lr" or "-n". */
const struct opt *opt_of(const struct opt_tool *tool, const char *name);

/* opt_print_help() writes what --help says: usage, summary, tables; of a verb
 * its options, else the common ones, or all. */
void opt_print_help(const struct opt_line *line, FILE *to);

/* opt_help() appends an option's help, with the modes that it is for, unless
 * the default is among them, with its range and its default: what it says of
 * that verb, or of all (NULL). */
void opt_help(const struct opt_tool *tool, const struct opt *o,
              const char *verb, struct str *text);

/* opt_at(): option i of a tool, its own and then the common ones, or NULL. */
const struct opt *opt_at(const struct opt_tool *tool, int i);

/* opt_applies(): is the option for that verb or mode, of n_verb bytes?  2: it
 * is needed. */
int opt_applies(const struct opt *o, const char *verb, size_t n_verb);

/* opt_add_names() appends the options of a set: "--hist, --svg and -o". */
void opt_add_names(struct str *text, const struct opt_tool *tool,
                   const char *set);

/* opt_set_next() is the next name of a set, *n bytes without the "!" that may
 * follow, and advances *set to the one after it; NULL after the last. */
const char *opt_set_next(const char **set, size_t *n);

/*
 * opt_print_completion() writes a completion script; shell: "bash" or "zsh",
 * -1 for others. Verbs, options, each with the verbs that take it; arguments
 * by their names: the words of "f32|f16", files for FILE, MODEL and the like.
 */
int opt_print_completion(const struct opt_tool *tool, const char *shell,
                         FILE *to);

#endif
