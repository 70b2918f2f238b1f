/* SPDX-License-Identifier: ISC */
/* The tests of templates. */
#include <math.h>

#include "core/text/template_call.h"
#include "core/text/template_str.h"

static int
t_defined(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(a->v[0].kind != TMPL_UNDEFINED);
    return 0;
}

static int
t_undefined(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(a->v[0].kind == TMPL_UNDEFINED);
    return 0;
}

/* Is the value of a kind from .. to? */
static int
is_kind(struct tmpl_args *a, enum tmpl_kind from, enum tmpl_kind to,
        struct tmpl_value *out)
{
    *out = tmpl_bool(a->v[0].kind >= from && a->v[0].kind <= to);
    return 0;
}

#define TEST_KIND(name, from, to)         \
    static int t_##name(TMPL_CALL)        \
    {                                     \
        (void)run;                        \
        return is_kind(a, from, to, out); \
    }

TEST_KIND(none, TMPL_NONE, TMPL_NONE)
TEST_KIND(boolean, TMPL_BOOL, TMPL_BOOL)
TEST_KIND(integer, TMPL_INT, TMPL_INT)
TEST_KIND(float, TMPL_FLOAT, TMPL_FLOAT)
TEST_KIND(number, TMPL_BOOL, TMPL_FLOAT)
TEST_KIND(string, TMPL_TEXT, TMPL_TEXT)
TEST_KIND(mapping, TMPL_DICT, TMPL_DICT)
TEST_KIND(callable, TMPL_MACRO, TMPL_FUNCTION)

static int
t_iterable(TMPL_CALL)
{
    enum tmpl_kind kind = a->v[0].kind;

    (void)run;
    *out = tmpl_bool(kind == TMPL_UNDEFINED || kind == TMPL_LOOP ||
                     (kind >= TMPL_TEXT && kind <= TMPL_DICT));
    return 0;
}

static int
t_sequence(TMPL_CALL)
{
    enum tmpl_kind kind = a->v[0].kind;

    (void)run;
    *out = tmpl_bool(kind == TMPL_UNDEFINED || kind == TMPL_DICT ||
                     (kind >= TMPL_TEXT && kind <= TMPL_RANGE));
    return 0;
}

static int
t_true(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(a->v[0].kind == TMPL_BOOL && a->v[0].b);
    return 0;
}

static int
t_false(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(a->v[0].kind == TMPL_BOOL && !a->v[0].b);
    return 0;
}

/* value % by == rest */
static int
leaves(TMPL_CALL, const struct tmpl_value *by, int64_t rest)
{
    struct tmpl_value r, want = tmpl_int(rest);

    if (tmpl_binary(run, TMPL_OP_MOD, &a->v[0], by, &r) < 0)
        return -1;
    *out = tmpl_bool(tmpl_equal(&run->heap, &r, &want));
    return 0;
}

static int
t_odd(TMPL_CALL)
{
    struct tmpl_value two = tmpl_int(2);

    return leaves(run, a, out, &two, 1);
}

static int
t_even(TMPL_CALL)
{
    struct tmpl_value two = tmpl_int(2);

    return leaves(run, a, out, &two, 0);
}

static int
t_divisibleby(TMPL_CALL)
{
    return leaves(run, a, out, &a->v[1], 0);
}

static int
all_in_case(TMPL_CALL, char kind)
{
    const struct tmpl_text *text;

    if (tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    *out = tmpl_bool(tmpl_all_are(text, kind));
    return 0;
}

static int
t_lower(TMPL_CALL)
{
    return all_in_case(run, a, out, 'l');
}

static int
t_upper(TMPL_CALL)
{
    return all_in_case(run, a, out, 'u');
}

static int
t_sameas(TMPL_CALL)
{
    const struct tmpl_value *x = &a->v[0], *y = &a->v[1];

    *out = tmpl_bool(x->kind != y->kind     ? false
                     : x->kind == TMPL_TEXT ? x->text == y->text
                     : x->kind < TMPL_TEXT  ? tmpl_equal(&run->heap, x, y)
                                            : x->list == y->list);
    return 0;
}

static int
t_escaped(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(a->v[0].kind == TMPL_TEXT && a->v[0].text->markup);
    return 0;
}

static int
t_filter(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(tmpl_lookup(tmpl_filters, &a->v[0]));
    return 0;
}

static int
t_test(TMPL_CALL)
{
    (void)run;
    *out = tmpl_bool(tmpl_lookup(tmpl_tests, &a->v[0]));
    return 0;
}

static int
compare(TMPL_CALL, enum tmpl_op op)
{
    bool is;

    if (tmpl_compare(run, op, &a->v[0], &a->v[1], &is) < 0)
        return -1;
    *out = tmpl_bool(is);
    return 0;
}

#define TEST_COMPARE(name, op)           \
    static int t_##name(TMPL_CALL)       \
    {                                    \
        return compare(run, a, out, op); \
    }

TEST_COMPARE(eq, TMPL_OP_EQ)
TEST_COMPARE(ne, TMPL_OP_NE)
TEST_COMPARE(lt, TMPL_OP_LT)
TEST_COMPARE(le, TMPL_OP_LE)
TEST_COMPARE(gt, TMPL_OP_GT)
TEST_COMPARE(ge, TMPL_OP_GE)
TEST_COMPARE(in, TMPL_OP_IN)

const struct tmpl_callable tmpl_tests[] = {
    { "!=", "value other", t_ne },
    { "<", "value other", t_lt },
    { "<=", "value other", t_le },
    { "==", "value other", t_eq },
    { ">", "value other", t_gt },
    { ">=", "value other", t_ge },
    { "boolean", "value", t_boolean },
    { "callable", "value", t_callable },
    { "defined", "value", t_defined },
    { "divisibleby", "value num", t_divisibleby },
    { "eq", "value other", t_eq },
    { "equalto", "value other", t_eq },
    { "escaped", "value", t_escaped },
    { "even", "value", t_even },
    { "false", "value", t_false },
    { "filter", "value", t_filter },
    { "float", "value", t_float },
    { "ge", "value other", t_ge },
    { "greaterthan", "value other", t_gt },
    { "gt", "value other", t_gt },
    { "in", "value seq", t_in },
    { "integer", "value", t_integer },
    { "iterable", "value", t_iterable },
    { "le", "value other", t_le },
    { "lessthan", "value other", t_lt },
    { "lower", "value", t_lower },
    { "lt", "value other", t_lt },
    { "mapping", "value", t_mapping },
    { "ne", "value other", t_ne },
    { "none", "value", t_none },
    { "number", "value", t_number },
    { "odd", "value", t_odd },
    { "sameas", "value other", t_sameas },
    { "sequence", "value", t_sequence },
    { "string", "value", t_string },
    { "test", "value", t_test },
    { "true", "value", t_true },
    { "undefined", "value", t_undefined },
    { "upper", "value", t_upper },
    { NULL, NULL, NULL },
};
