/* SPDX-License-Identifier: ISC */
/*
 * A template as a tree.
 */
#ifndef CORE_TEXT_TEMPLATE_PARSE_H
#define CORE_TEXT_TEMPLATE_PARSE_H

#include "core/err.h"
#include "core/text/template_value.h"

enum tmpl_op {
    /* statements; "body" and other lists go on by 'next' */
    TMPL_OP_DATA,         /* value */
    TMPL_OP_OUTPUT,       /* expression */
    TMPL_OP_IF,           /* test, body, else: an TMPL_OP_IF that is elif too */
    TMPL_OP_FOR,          /* target, list, body, else, test */
    TMPL_OP_SET,          /* target, expression */
    TMPL_OP_SET_BLOCK,    /* target, filters or NULL, body */
    TMPL_OP_FILTER_BLOCK, /* filters, body */
    TMPL_OP_WITH,         /* list of TMPL_OP_SET, body */
    TMPL_OP_MACRO,        /* name; list of TMPL_OP_PARAM, body */
    TMPL_OP_PARAM,        /* name; default or NULL */
    TMPL_OP_CALL_BLOCK,   /* TMPL_OP_MACRO of the caller, call */
    TMPL_OP_GENERATION,   /* body */
    TMPL_OP_BREAK,
    TMPL_OP_CONTINUE,
    /* targets, beside a TMPL_OP_VARIABLE and a TMPL_OP_TUPLE of targets */
    TMPL_OP_MEMBER, /* name, value: the attribute of a namespace */
    /* expressions */
    TMPL_OP_CONST,     /* value */
    TMPL_OP_VARIABLE,  /* name */
    TMPL_OP_LIST,      /* list */
    TMPL_OP_TUPLE,     /* list */
    TMPL_OP_DICT,      /* list of keys, each followed by its value */
    TMPL_OP_ATTRIBUTE, /* of; value: its name */
    TMPL_OP_ITEM,      /* of, key */
    TMPL_OP_SLICE,     /* of, start, stop, step: each may be NULL */
    TMPL_OP_CALL,      /* what, list of TMPL_OP_ARGUMENT */
    TMPL_OP_ARGUMENT,  /* expression; value: its name, or absent */
    TMPL_OP_FILTER,    /* of, list of TMPL_OP_ARGUMENT; value: its name */
    TMPL_OP_TEST,      /* the same */
    TMPL_OP_PIPED,     /* what a block's filters are of */
    TMPL_OP_CONDITION, /* test, then, else or NULL */
    TMPL_OP_COMPARE,   /* first, list of TMPL_OP_EQ to TMPL_OP_NOT_IN */
    TMPL_OP_EQ,        /* expression */
    TMPL_OP_NE,
    TMPL_OP_LT,
    TMPL_OP_LE,
    TMPL_OP_GT,
    TMPL_OP_GE,
    TMPL_OP_IN,
    TMPL_OP_NOT_IN,
    TMPL_OP_CONCAT, /* list */
    TMPL_OP_OR,     /* left, right */
    TMPL_OP_AND,
    TMPL_OP_ADD,
    TMPL_OP_SUB,
    TMPL_OP_MUL,
    TMPL_OP_DIV,
    TMPL_OP_FLOORDIV,
    TMPL_OP_MOD,
    TMPL_OP_POW,
    TMPL_OP_NOT, /* of */
    TMPL_OP_NEG,
    TMPL_OP_POS,
};

#define TMPL_MAX_KIDS 5

struct tmpl_node {
    enum tmpl_op op;
    unsigned line;
    unsigned name;   /* of 'names' */
    unsigned height; /* of the tree below it, with it */
    struct tmpl_node *kid[TMPL_MAX_KIDS];
    struct tmpl_node *next;
    struct tmpl_value value;
};

/* Names of variables, each once: a variable is an index of them. */
struct tmpl_names {
    const struct tmpl_text **v;
    size_t n, cap;
};

struct tmpl_tree {
    struct tmpl_node *body;
    struct tmpl_names names;
    unsigned loop, caller; /* those names */
    bool has_generation;
};

/*
 * tmpl_parse() parses a template's text.  -1 with 'err' set (EX_DATAERR).
 * Owner: 'heap', but for the array of names, which the caller frees.
 */
int tmpl_parse(struct tmpl_heap *heap, const char *name, const char *text,
               size_t nbytes, struct tmpl_tree *tree, struct err *err);

#endif
