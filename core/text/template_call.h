/* SPDX-License-Identifier: ISC */
/*
 * What templates call by a name: filters, tests, functions, methods.
 */
#ifndef CORE_TEXT_TEMPLATE_CALL_H
#define CORE_TEXT_TEMPLATE_CALL_H

#include "core/text/template_run.h"

#define TMPL_CALL \
    struct tmpl_run *run, struct tmpl_args *a, struct tmpl_value *out

/*
 * A row of a table of these, which a row without a name ends.  'params' are the
 * names of its parameters, with a '?' after those that may be absent; "..."
 * takes any, as they are given.  The first of a filter, test or method is the
 * value that it is of.
 */
struct tmpl_callable {
    const char *name;
    const char *params;
    int (*call)(TMPL_CALL);
};

extern const struct tmpl_callable tmpl_filters[], tmpl_tests[],
    tmpl_functions[], tmpl_methods_of_text[], tmpl_methods_of_list[],
    tmpl_methods_of_tuple[], tmpl_methods_of_dict[], tmpl_methods_of_loop[];

/* A function, or a method of a value. */
struct tmpl_bound {
    const struct tmpl_callable *callable;
    struct tmpl_value of; /* or absent */
};

/* tmpl_lookup() is the row of a name, or NULL. */
const struct tmpl_callable *tmpl_lookup(const struct tmpl_callable *table,
                                        const struct tmpl_value *name);

/* tmpl_call() calls what a value is.  args->v has room for one more before its
 * first.  tmpl_call_named() calls the filter or test of that name. */
int tmpl_call(struct tmpl_run *run, const struct tmpl_value *what,
              struct tmpl_args *args, struct tmpl_value *out);
int tmpl_call_named(struct tmpl_run *run, const char *noun,
                    const struct tmpl_value *name, struct tmpl_args *args,
                    struct tmpl_value *out);

/* Arguments of a type, or the default where they are absent or None: -1 with
 * the error set for another type. */
int tmpl_arg_int(struct tmpl_run *run, const struct tmpl_value *v,
                 int64_t unset, int64_t *i);
int tmpl_arg_text(struct tmpl_run *run, const struct tmpl_value *v,
                  const struct tmpl_text **text); /* NULL: absent */

/* tmpl_tojson() is json.dumps(value, ensure_ascii=, indent=, separators=,
 * sort_keys=): a->v[0 .. 4]. */
int tmpl_tojson(TMPL_CALL);

/* tmpl_sort() sorts a list as sorted(key=, reverse=), by keys[i] of its i-th.
 */
int tmpl_sort(struct tmpl_run *run, struct tmpl_list *list,
              const struct tmpl_value *keys, bool reverse);

/* tmpl_format() is text % values. */
int tmpl_format(struct tmpl_run *run, const struct tmpl_text *text,
                const struct tmpl_value *values, struct tmpl_value *out);

#endif
