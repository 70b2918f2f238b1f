/* SPDX-License-Identifier: ISC */
/*
 * A rendering as it runs: its state, and what Python's operators and built-in
 * functions do with values.
 */
#ifndef CORE_TEXT_TEMPLATE_RUN_H
#define CORE_TEXT_TEMPLATE_RUN_H

#include "core/text/template_parse.h"
#include "core/text/template_value.h"

struct tmpl_run {
    struct tmpl_heap heap;
    const char *name; /* of the template */
    const struct tmpl_tree *tree;
    const json_t *vars;
    struct tmpl_value *globals; /* [names.n], absent until it is used */
    struct tmpl_scope *scope;
    struct tmpl_builder *out;  /* what is being rendered: a macro, a block, */
    struct tmpl_builder whole; /* or all of it */
    struct tmpl_value piped;   /* what a block's filters are of */
    size_t n_steps;
    int depth;
    unsigned line; /* of what is being computed */
    struct rendered *rendered;
    struct err *err;
};

/* The arguments of a call. */
struct tmpl_args {
    struct tmpl_value *v; /* [n] */
    size_t n;
    struct tmpl_pair *named; /* [n_named], names and values */
    size_t n_named;
};

/* tmpl_fail() sets the error "NAME: line N: ..." (EX_DATAERR), returns -1. */
int tmpl_fail(struct tmpl_run *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* tmpl_step() counts a step: -1 with the error set beyond the bounds. */
int tmpl_step(struct tmpl_run *run);

/* tmpl_undefined() is a value that is undefined because 'of', a type's name,
 * has no such member; of NULL: there is no variable of that name; or because of
 * what 'hint' says.  tmpl_fail_undefined(): it is used. */
struct tmpl_value tmpl_undefined(struct tmpl_run *run,
                                 const struct tmpl_value *of,
                                 struct tmpl_value name);
struct tmpl_value tmpl_undefined_hint(struct tmpl_run *run, const char *hint);
int tmpl_fail_undefined(struct tmpl_run *run, const struct tmpl_value *v);

/* tmpl_put_value() appends str(v), refusing what has Python's spelling, and
 * tmpl_str() is that as a string. */
int tmpl_put_value(struct tmpl_run *run, struct tmpl_builder *b,
                   const struct tmpl_value *v);
int tmpl_str(struct tmpl_run *run, const struct tmpl_value *v,
             const struct tmpl_text **text);

/* tmpl_iterate() is what a for goes through: a list that may not change. */
int tmpl_iterate(struct tmpl_run *run, const struct tmpl_value *v,
                 struct tmpl_list *list);

/* tmpl_length() is len(v). */
int tmpl_length(struct tmpl_run *run, const struct tmpl_value *v, size_t *n);

/* of.name; of[key]; of[start:stop:step], none for what is left out. */
int tmpl_attribute(struct tmpl_run *run, const struct tmpl_value *of,
                   const struct tmpl_value *name, struct tmpl_value *out);
int tmpl_item(struct tmpl_run *run, const struct tmpl_value *of,
              const struct tmpl_value *key, struct tmpl_value *out);
int tmpl_slice(struct tmpl_run *run, const struct tmpl_value *of,
               const struct tmpl_value bounds[3], struct tmpl_value *out);

/* tmpl_binary() is TMPL_OP_ADD to TMPL_OP_POW, tmpl_unary() TMPL_OP_NEG and
 * TMPL_OP_POS, tmpl_compare() TMPL_OP_EQ to TMPL_OP_NOT_IN. */
int tmpl_binary(struct tmpl_run *run, enum tmpl_op op,
                const struct tmpl_value *a, const struct tmpl_value *b,
                struct tmpl_value *out);
int tmpl_unary(struct tmpl_run *run, enum tmpl_op op,
               const struct tmpl_value *a, struct tmpl_value *out);
int tmpl_compare(struct tmpl_run *run, enum tmpl_op op,
                 const struct tmpl_value *a, const struct tmpl_value *b,
                 bool *is);

/* tmpl_run() renders the tree: 0, or -1 with the error set. */
int tmpl_run(struct tmpl_run *run);

/* tmpl_call_macro() calls a macro. */
int tmpl_call_macro(struct tmpl_run *run, const struct tmpl_macro *macro,
                    struct tmpl_args *args, struct tmpl_value *out);

/* tmpl_loop_attribute() is loop.NAME: absent if loop has no such. */
int tmpl_loop_attribute(struct tmpl_run *run, struct tmpl_loop *loop,
                        const struct tmpl_value *name, struct tmpl_value *out);

#endif
