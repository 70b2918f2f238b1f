/* SPDX-License-Identifier: ISC */
/*
 * What the parts of core/text/template.h share: template_value.c has Python's
 * values, template_lex.c and template_parse.c make a tree, template_eval.c
 * runs it, template_call.c has what it calls by name.
 *
 * An error is kept: t_fail() notes the first, and from then on functions return
 * what is of no use, loops end, and nothing grows.
 */
#ifndef CORE_TEXT_TEMPLATE_IMPL_H
#define CORE_TEXT_TEMPLATE_IMPL_H

#include "core/text/template.h"
#include "core/text/template_value.h"

/* What tokens and nodes of the tree are, besides the characters of operators.
 * A node has kids; of lists, which go on by 'next', the first. */
enum t_op {
    T_END = 256, /* of the template */
    T_DATA,      /* text between tags: a token, and a node */
    T_PRINT,     /* {{: a node of an expression */
    T_PRINT_END,
    T_BLOCK,
    T_BLOCK_END,
    T_NAME,     /* a name; a node of a variable */
    T_LITERAL,  /* a string, number, true, none: value */
    T_FLOORDIV, /* // == != >= <= and the words or, and, not, in */
    T_EQ,
    T_NE,
    T_GE,
    T_LE,
    T_OR,
    T_AND,
    T_NOT,
    T_IN,
    T_NOT_IN,
    T_NEG,
    T_COMPARE,    /* first; list of nodes of an operator and what is right */
    T_LIST,       /* list */
    T_TUPLE,      /* list */
    T_DICT,       /* list: each key, then its value */
    T_ITEM,       /* of, key: of[key] */
    T_ATTRIBUTE,  /* of, key: of.key */
    T_SLICE,      /* of, start, stop, step; any NULL */
    T_CALL,       /* what, list of T_ARGUMENT */
    T_FILTER,     /* of, list of T_ARGUMENT; value: its name */
    T_TEST,       /* the same */
    T_ARGUMENT,   /* expression; value: its name, or absent; or a parameter:
                     name, and its default or NULL */
    T_CONDITION,  /* test, then, else or NULL */
    T_IF,         /* test, body, else, of which another T_IF is elif */
    T_FOR,        /* target, sequence, body, test or NULL */
    T_SET,        /* target, expression */
    T_CAPTURE,    /* target, body */
    T_MACRO,      /* name; parameters, body */
    T_GENERATION, /* body */
    T_BREAK,
    T_CONTINUE
};

struct ttoken {
    int type;
    unsigned line;
    struct tvalue value; /* of a literal; else the text that it is */
};

struct tnode {
    int op;
    unsigned line;
    size_t name; /* of a variable: its index among the names */
    struct tnode *kid[4], *next;
    struct tvalue value;
};

/* A parsing, or a rendering. */
struct trun {
    const char *name; /* begins messages */
    unsigned line;    /* of what is read or computed */
    bool failed;
    struct err *err;
    struct tchunk *chunks; /* of memory, which goes as a whole */
    size_t left, nbytes;   /* of the first chunk, and of all */
    size_t work;           /* bytes moved or compared */
    /* of a rendering: */
    const struct template *t;
    const json_t *vars;
    struct tvalue *globals; /* by name, absent until they are used */
    struct tscope *scope;
    struct tbuf *out, *whole; /* of a macro or block, and of the template */
    size_t n_steps;
    int depth;
    struct rendered *rendered;
};

struct template
{
    char *name;
    struct trun memory; /* of the tree */
    struct tnode *body;
    char **names; /* of variables, each once: first "loop" */
    size_t n_names, cap_names;
    bool has_generation;
};

/* The arguments of a call, in the order of a callable's parameters. */
struct targs {
    struct tvalue *v; /* [n] */
    size_t n;
    struct tlist named; /* those with names, which are before their values */
    int how;            /* of the callable */
};

/* What is called by a name: a filter 'f', a test 't', a function 'g', a method
 * of a string 's' or dict 'd'. */
struct tcallable {
    const char *types, *name; /* several of each, names with spaces between */
    const char *params; /* names, with '?' after those that may be absent; "..."
                         * takes any; what is "s" becomes a string first */
    struct tvalue (*call)(struct trun *r, struct targs *a);
    int how; /* what a function of several callables has to know */
};

#define CALL(name) static struct tvalue name(struct trun *r, struct targs *a)

/* Those that are of strings, up to one without a name; and what sorting asks
 * for. */
extern const struct tcallable t_strings[];
struct tvalue t_lower(struct trun *r, const struct ttext *s);

struct tbound {
    const struct tcallable *row;
    struct tvalue of; /* a method's first argument, or absent */
};

/* t_fail() notes "NAME: line N: ..." (EX_DATAERR), if it is the first error,
 * and returns an absent value.  t_step() counts a step: may it go on? */
struct tvalue t_fail(struct trun *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool t_step(struct trun *r);

/* t_alloc() is zeroed memory.  t_grow() is an array of n items with room for
 * more; NULL after an error, such as a bound. */
void *t_alloc(struct trun *r, size_t nbytes);
void *t_grow(struct trun *r, void *old, size_t n, size_t more, size_t *cap,
             size_t size);
void t_free(struct trun *r);

/* t_lex() is a text's tokens, t_parse() makes the template's tree of them,
 * t_render() renders. */
struct ttoken *t_lex(struct trun *r, const char *text, size_t nbytes);
void t_parse(struct template *t, struct trun *r, const struct ttoken *tokens);
void t_render(struct trun *r);

/* t_lookup() is what has that name, or NULL; t_call() calls a value,
 * t_call_named() a filter or test, t_call_macro() a macro.  t_loop_item() is
 * loop.NAME, or absent; t_tojson() the filter. */
const struct tcallable *t_lookup(char type, const struct tvalue *name);
struct tvalue t_call(struct trun *r, const struct tvalue *what,
                     struct targs *a);
struct tvalue t_call_named(struct trun *r, char type, const struct tvalue *name,
                           struct targs *a);
struct tvalue t_call_macro(struct trun *r, const struct tmacro *macro,
                           struct targs *a);
struct tvalue t_loop_item(const struct tloop *loop, const struct tvalue *name);
struct tvalue t_tojson(struct trun *r, struct targs *a);

#endif
