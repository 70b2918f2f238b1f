/* SPDX-License-Identifier: ISC */
#include "core/text/template_parse.h"

#include <string.h>

#include "core/mem.h"
#include "core/text/template_lex.h"

struct parser {
    struct tmpl_heap *heap;
    const char *name;
    const struct tmpl_token *at;
    struct tmpl_tree *tree;
    int depth; /* of functions that call themselves */
    int loops; /* that break would end */
    struct err *err;
};

static struct tmpl_node *parse_expression(struct parser *p);
static struct tmpl_node *parse_unary(struct parser *p, bool filters);
static int parse_body(struct parser *p, const char *const *ends,
                      struct tmpl_node **body);

/* "expected WHAT, found TOKEN"; NULL. */
static void *
unexpected(struct parser *p, const char *what)
{
    const struct tmpl_token *t = p->at;
    struct str found = { 0 };

    if (t->type == TMPL_END)
        str_adds(&found, "the end of the template");
    else if (t->type == TMPL_NUMBER)
        str_adds(&found, "a number");
    else if (t->type == TMPL_STRING)
        str_adds(&found, "a string");
    else /* "%}" has the white space that goes with it */
        str_addf(&found, "'%.*s'",
                 (int)(t->type == TMPL_NAME
                           ? smaller(t->value.text->n, 60)
                           : strcspn(t->value.text->s, " \t\n")),
                 t->value.text->s);
    if (t->type == TMPL_PRINT_END || t->type == TMPL_BLOCK_END) {
        str_clear(&found);
        str_adds(&found, t->type == TMPL_PRINT_END ? "'}}'" : "'%}'");
    }
    err_set(p->err, EX_DATAERR, "%s: line %u: expected %s, found %s", p->name,
            t->line, what, found.s);
    str_free(&found);
    return NULL;
}

static void *
fail(struct parser *p, unsigned line, const char *what)
{
    err_set(p->err, EX_DATAERR, "%s: line %u: %s", p->name, line, what);
    return NULL;
}

static bool
is_word(const struct tmpl_token *t, const char *word)
{
    return t->type == TMPL_NAME && tmpl_is(&t->value, word);
}

static bool
skip_word(struct parser *p, const char *word)
{
    bool is = is_word(p->at, word);

    p->at += is;
    return is;
}

static bool
skip(struct parser *p, int type)
{
    bool is = p->at->type == type;

    p->at += is;
    return is;
}

static bool
expect(struct parser *p, int type, const char *what)
{
    return skip(p, type) || unexpected(p, what);
}

static struct tmpl_node *
node(struct parser *p, enum tmpl_op op, unsigned line)
{
    struct tmpl_node *n = tmpl_alloc(p->heap, sizeof(*n));

    n->op = op;
    n->line = line;
    n->height = 1;
    return n;
}

/* The node with its height, that of the lists of its kids too; NULL if it is
 * too high: whoever walks the tree calls itself. */
static struct tmpl_node *
whole(struct parser *p, struct tmpl_node *n)
{
    unsigned below = 0;

    for (int i = 0; i < TMPL_MAX_KIDS; i++)
        for (const struct tmpl_node *k = n->kid[i]; k; k = k->next)
            below = k->height > below ? k->height : below;
    n->height = below + 1;
    if (n->height > TEMPLATE_MAX_NESTED)
        return fail(p, n->line, "is nested more than 200 levels deep");
    return n;
}

static bool
deeper(struct parser *p)
{
    if (p->depth < TEMPLATE_MAX_NESTED) {
        p->depth++;
        return true;
    }
    return fail(p, p->at->line, "is nested more than 200 levels deep");
}

/* The index of a variable's name. */
static unsigned
variable(struct parser *p, const struct tmpl_text *name)
{
    struct tmpl_names *names = &p->tree->names;

    for (size_t i = 0; i < names->n; i++)
        if (names->v[i]->n == name->n &&
            !memcmp(names->v[i]->s, name->s, name->n))
            return (unsigned)i;
    if (names->n == names->cap)
        names->v = xgrow(names->v, names->n, &names->cap, sizeof(*names->v));
    names->v[names->n] = name;
    return (unsigned)names->n++;
}

/* A node of the variable that the next token names. */
static struct tmpl_node *
parse_name(struct parser *p, enum tmpl_op op)
{
    struct tmpl_node *n = node(p, op, p->at->line);

    if (p->at->type != TMPL_NAME)
        return unexpected(p, "a name");
    n->name = variable(p, p->at->value.text);
    p->at++;
    return n;
}

/* Adds to a list; returns where the next one goes. */
static struct tmpl_node **
append(struct tmpl_node **end, struct tmpl_node *n)
{
    *end = n;
    return &n->next;
}

/* Is the next token an end of a tuple without brackets? */
static bool
at_tuple_end(const struct parser *p, const char *word)
{
    int type = p->at->type;

    return type == TMPL_PRINT_END || type == TMPL_BLOCK_END || type == ')' ||
           (word && is_word(p->at, word));
}

/* One expression, or a tuple of several; in brackets also of none. */
static struct tmpl_node *
parse_tuple(struct parser *p, struct tmpl_node *(*each)(struct parser *),
            const char *word, bool brackets)
{
    struct tmpl_node *tuple = node(p, TMPL_OP_TUPLE, p->at->line),
                     **end = &tuple->kid[0], *n;
    bool comma = false;

    while (!at_tuple_end(p, word)) {
        n = each(p);
        if (!n)
            return NULL;
        end = append(end, n);
        if (!skip(p, ','))
            break;
        comma = true;
    }
    if (comma || (brackets && !tuple->kid[0]))
        return whole(p, tuple);
    return tuple->kid[0] ? tuple->kid[0] : unexpected(p, "an expression");
}

static struct tmpl_node *
parse_list(struct parser *p, enum tmpl_op op, int close)
{
    struct tmpl_node *list = node(p, op, p->at++->line), **end = &list->kid[0],
                     *n;

    while (p->at->type != close) {
        if (list->kid[0] && !expect(p, ',', "','"))
            return NULL;
        if (p->at->type == close)
            break;
        if (!(n = parse_expression(p)))
            return NULL;
        end = append(end, n);
        if (op == TMPL_OP_DICT) {
            if (!expect(p, ':', "':'") || !(n = parse_expression(p)))
                return NULL;
            end = append(end, n);
        }
    }
    p->at++;
    return whole(p, list);
}

/* A name, a literal, or what is in brackets. */
static struct tmpl_node *
parse_primary(struct parser *p)
{
    static const struct {
        const char *word;
        struct tmpl_value value;
    } words[] = { { "true", { .kind = TMPL_BOOL, .b = true } },
                  { "True", { .kind = TMPL_BOOL, .b = true } },
                  { "false", { .kind = TMPL_BOOL } },
                  { "False", { .kind = TMPL_BOOL } },
                  { "none", { .kind = TMPL_NONE } },
                  { "None", { .kind = TMPL_NONE } } };
    struct tmpl_node *n = node(p, TMPL_OP_CONST, p->at->line);

    switch (p->at->type) {
    case TMPL_NAME:
        for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
            if (skip_word(p, words[i].word)) {
                n->value = words[i].value;
                return n;
            }
        return parse_name(p, TMPL_OP_VARIABLE);
    case TMPL_NUMBER:
        n->value = p->at++->value;
        return n;
    case TMPL_STRING:
        n->value = p->at++->value;
        while (p->at->type == TMPL_STRING) {
            struct tmpl_builder b = { .heap = p->heap };

            tmpl_put_text(&b, n->value.text);
            tmpl_put_text(&b, p->at++->value.text);
            n->value = tmpl_built(&b);
        }
        return n;
    case '(':
        p->at++;
        n = parse_tuple(p, parse_expression, NULL, true);
        return n && expect(p, ')', "')'") ? n : NULL;
    case '[':
        return parse_list(p, TMPL_OP_LIST, ']');
    case '{':
        return parse_list(p, TMPL_OP_DICT, '}');
    }
    return unexpected(p, "an expression");
}

/* The arguments in brackets, as a list. */
static bool
parse_arguments(struct parser *p, struct tmpl_node **list)
{
    bool named = false;

    p->at++;
    while (p->at->type != ')') {
        struct tmpl_node *n = node(p, TMPL_OP_ARGUMENT, p->at->line);

        if (p->at->type == '*' || p->at->type == TMPL_POW)
            return fail(p, n->line, "* and ** in calls are not supported");
        if (p->at->type == TMPL_NAME && p->at[1].type == '=') {
            n->value = p->at->value;
            p->at += 2;
            named = true;
        } else if (named) {
            return unexpected(p, "an argument with a name");
        }
        if (!(n->kid[0] = parse_expression(p)) || !whole(p, n))
            return false;
        list = append(list, n);
        if (!skip(p, ','))
            break;
    }
    return expect(p, ')', "',' or ')'");
}

/* A filter or a test of n, whose name is next. */
static struct tmpl_node *
parse_named(struct parser *p, enum tmpl_op op, struct tmpl_node *of)
{
    struct tmpl_node *n = node(p, op, p->at->line);

    if (p->at->type != TMPL_NAME)
        return unexpected(p, op == TMPL_OP_TEST ? "the name of a test"
                                                : "the name of a filter");
    n->kid[0] = of;
    n->value = p->at++->value;
    if (p->at->type == '(' && !parse_arguments(p, &n->kid[1]))
        return NULL;
    return n;
}

static struct tmpl_node *
parse_call(struct parser *p, struct tmpl_node *what)
{
    struct tmpl_node *n = node(p, TMPL_OP_CALL, p->at->line);

    n->kid[0] = what;
    return parse_arguments(p, &n->kid[1]) ? whole(p, n) : NULL;
}

/* [key] or [start:stop:step] */
static struct tmpl_node *
parse_brackets(struct parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = node(p, TMPL_OP_ITEM, p->at++->line);
    int i = 1;

    n->kid[0] = of;
    for (;; i++) {
        if (p->at->type != ':' && p->at->type != ']' &&
            !(n->kid[i] = parse_expression(p)))
            return NULL;
        if (p->at->type != ':' || i == 3)
            break;
        p->at++;
        n->op = TMPL_OP_SLICE;
    }
    if (n->op == TMPL_OP_ITEM && !n->kid[1])
        return unexpected(p, "an expression");
    return expect(p, ']', "']'") ? whole(p, n) : NULL;
}

static struct tmpl_node *
parse_postfix(struct parser *p, struct tmpl_node *n)
{
    while (n) {
        unsigned line = p->at->line;

        if (p->at->type == '(') {
            n = parse_call(p, n);
        } else if (p->at->type == '[') {
            n = parse_brackets(p, n);
        } else if (skip(p, '.')) {
            struct tmpl_node *of = n;

            if (p->at->type == TMPL_NAME) {
                n = node(p, TMPL_OP_ATTRIBUTE, line);
                n->value = p->at->value;
            } else if (p->at->type == TMPL_NUMBER &&
                       p->at->value.kind == TMPL_INT) {
                n = node(p, TMPL_OP_ITEM, line);
                n->kid[1] = node(p, TMPL_OP_CONST, line);
                n->kid[1]->value = p->at->value;
            } else {
                return unexpected(p, "a name after '.'");
            }
            p->at++;
            n->kid[0] = of;
            n = whole(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* "is" was read. */
static struct tmpl_node *
parse_test(struct parser *p, struct tmpl_node *of)
{
    unsigned line = p->at->line;
    bool not = skip_word(p, "not");
    struct tmpl_node *n = parse_named(p, TMPL_OP_TEST, of), *a;
    int type = p->at->type;

    if (!n)
        return NULL;
    if (is_word(p->at, "is"))
        return unexpected(p, "no second test");
    if (p->at[-1].type == TMPL_NAME &&
        ((type == TMPL_NAME && !is_word(p->at, "else") &&
          !is_word(p->at, "or") && !is_word(p->at, "and")) ||
         type == TMPL_STRING || type == TMPL_NUMBER || type == '[' ||
         type == '{')) {
        a = node(p, TMPL_OP_ARGUMENT, p->at->line);
        a->kid[0] = parse_postfix(p, parse_primary(p));
        if (!a->kid[0] || !whole(p, a))
            return NULL;
        n->kid[1] = a;
    }
    if (not &&whole(p, n)) {
        a = node(p, TMPL_OP_NOT, line);
        a->kid[0] = n;
        n = a;
    }
    return whole(p, n);
}

static struct tmpl_node *
parse_filters(struct parser *p, struct tmpl_node *n)
{
    while (n && skip(p, '|'))
        if ((n = parse_named(p, TMPL_OP_FILTER, n)))
            n = whole(p, n);
    return n;
}

static struct tmpl_node *
parse_unary(struct parser *p, bool filters)
{
    struct tmpl_node *n;

    if (!deeper(p))
        return NULL;
    if (p->at->type == '-' || p->at->type == '+') {
        n = node(p, p->at->type == '-' ? TMPL_OP_NEG : TMPL_OP_POS,
                 p->at->line);
        p->at++;
        n->kid[0] = parse_unary(p, false);
        n = n->kid[0] ? whole(p, n) : NULL;
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    while (n && filters) {
        if (p->at->type == '|')
            n = parse_filters(p, n);
        else if (skip_word(p, "is"))
            n = parse_test(p, n);
        else if (p->at->type == '(')
            n = parse_call(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

/* Operators of two sides, from those that bind least; "not" and comparisons
 * have levels of their own. */
enum { LEVEL_OR, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_END = 8 };

static const struct {
    int level;
    int token;
    const char *word; /* of a TMPL_NAME */
    enum tmpl_op op;
} operators[] = {
    { LEVEL_OR, TMPL_NAME, "or", TMPL_OP_OR },
    { LEVEL_AND, TMPL_NAME, "and", TMPL_OP_AND },
    { LEVEL_COMPARE, TMPL_EQ, NULL, TMPL_OP_EQ },
    { LEVEL_COMPARE, TMPL_NE, NULL, TMPL_OP_NE },
    { LEVEL_COMPARE, '<', NULL, TMPL_OP_LT },
    { LEVEL_COMPARE, TMPL_LE, NULL, TMPL_OP_LE },
    { LEVEL_COMPARE, '>', NULL, TMPL_OP_GT },
    { LEVEL_COMPARE, TMPL_GE, NULL, TMPL_OP_GE },
    { LEVEL_COMPARE, TMPL_NAME, "in", TMPL_OP_IN },
    { LEVEL_COMPARE, TMPL_NAME, "not", TMPL_OP_NOT_IN },
    { 4, '+', NULL, TMPL_OP_ADD },
    { 4, '-', NULL, TMPL_OP_SUB },
    { 5, '~', NULL, TMPL_OP_CONCAT },
    { 6, '*', NULL, TMPL_OP_MUL },
    { 6, '/', NULL, TMPL_OP_DIV },
    { 6, TMPL_FLOORDIV, NULL, TMPL_OP_FLOORDIV },
    { 6, '%', NULL, TMPL_OP_MOD },
    { 7, TMPL_POW, NULL, TMPL_OP_POW },
};

/* Takes an operator of that level: is there one? */
static bool
skip_operator(struct parser *p, int level, enum tmpl_op *op)
{
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
        const char *word = operators[i].word;

        if (operators[i].level != level || operators[i].token != p->at->type ||
            (word && !is_word(p->at, word)))
            continue;
        if (operators[i].op == TMPL_OP_NOT_IN && !is_word(p->at + 1, "in"))
            continue;
        *op = operators[i].op;
        p->at += 1 + (*op == TMPL_OP_NOT_IN);
        return true;
    }
    return false;
}

static struct tmpl_node *
parse_level(struct parser *p, int level)
{
    struct tmpl_node *left, *n, *right, **end = NULL;
    unsigned line = p->at->line;
    enum tmpl_op op;

    if (level == LEVEL_END)
        return parse_unary(p, true);
    if (level == LEVEL_NOT && is_word(p->at, "not")) {
        n = node(p, TMPL_OP_NOT, line);
        p->at++;
        if (!deeper(p))
            return NULL;
        n->kid[0] = parse_level(p, level);
        p->depth--;
        return n->kid[0] ? whole(p, n) : NULL;
    }
    left = parse_level(p, level + 1);
    for (line = p->at->line; left && skip_operator(p, level, &op);
         line = p->at->line) {
        if (!(right = parse_level(p, level + 1)))
            return NULL;
        if (level == LEVEL_COMPARE) { /* a < b < c is one */
            n = node(p, op, line);
            n->kid[0] = right;
            right = whole(p, n);
            op = TMPL_OP_COMPARE;
        }
        if (op == TMPL_OP_COMPARE || op == TMPL_OP_CONCAT) {
            if (!end) {
                n = node(p, op, line);
                n->kid[0] = left;
                end = op == TMPL_OP_COMPARE ? &n->kid[1] : &left->next;
                left = n;
            }
            if (!right)
                return NULL;
            end = append(end, right);
        } else {
            n = node(p, op, line);
            n->kid[0] = left;
            n->kid[1] = right;
            left = n;
        }
        left = whole(p, left);
    }
    return left;
}

/* a if test else b */
static struct tmpl_node *
parse_expression(struct parser *p)
{
    struct tmpl_node *n, *then;

    if (!deeper(p))
        return NULL;
    n = parse_level(p, LEVEL_OR);
    while (n && is_word(p->at, "if")) {
        then = n;
        n = node(p, TMPL_OP_CONDITION, p->at++->line);
        n->kid[1] = then;
        if (!(n->kid[0] = parse_level(p, LEVEL_OR)) ||
            (skip_word(p, "else") && !(n->kid[2] = parse_expression(p))))
            return NULL;
        n = whole(p, n);
    }
    p->depth--;
    return n;
}

static struct tmpl_node *
parse_no_condition(struct parser *p)
{
    return parse_level(p, LEVEL_OR);
}

/* A name, ns.name, or a tuple of names: what can be assigned to? */
static struct tmpl_node *
parse_target(struct parser *p, const char *word, bool member)
{
    struct tmpl_node *n;
    unsigned line = p->at->line;

    if (member && p->at->type == TMPL_NAME && p->at[1].type == '.') {
        n = parse_name(p, TMPL_OP_MEMBER);
        p->at++;
        n->value = p->at->value;
        return expect(p, TMPL_NAME, "a name after '.'") ? n : NULL;
    }
    n = parse_tuple(p, parse_primary, word, false);
    for (const struct tmpl_node *k = n && n->op == TMPL_OP_TUPLE ? n->kid[0]
                                                                 : n;
         k; k = n->op == TMPL_OP_TUPLE ? k->next : NULL)
        if (k->op != TMPL_OP_VARIABLE)
            return fail(p, line, "only names can be assigned to");
    return n;
}

/* The rest of a block, after its tag's own: its body, up to the tag 'end',
 * which is taken, too. */
static bool
parse_block(struct parser *p, const char *end, struct tmpl_node **body)
{
    const char *const ends[] = { end, NULL };

    return parse_body(p, ends, body) == 0 && p->at++;
}

static struct tmpl_node *
parse_for(struct parser *p, struct tmpl_node *n)
{
    static const char *const ends[] = { "endfor", "else", NULL };

    n->kid[0] = parse_target(p, "in", false);
    if (!n->kid[0])
        return NULL;
    if (!skip_word(p, "in"))
        return unexpected(p, "'in'");
    n->kid[1] = parse_tuple(p, parse_no_condition, "recursive", false);
    if (!n->kid[1] ||
        (skip_word(p, "if") && !(n->kid[4] = parse_expression(p))))
        return NULL;
    if (is_word(p->at, "recursive"))
        return fail(p, n->line, "a recursive for is not supported");
    p->loops++;
    if (parse_body(p, ends, &n->kid[2]) < 0)
        return NULL;
    p->loops--;
    return skip_word(p, "endfor") ||
                   (p->at++ && parse_block(p, "endfor", &n->kid[3]))
               ? n
               : NULL;
}

static struct tmpl_node *
parse_if(struct parser *p, struct tmpl_node *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };

    for (struct tmpl_node *at = n;;) {
        at->kid[0] = parse_tuple(p, parse_no_condition, NULL, false);
        if (!at->kid[0] || parse_body(p, ends, &at->kid[1]) < 0)
            return NULL;
        if (skip_word(p, "endif"))
            return n;
        if (skip_word(p, "else"))
            return parse_block(p, "endif", &at->kid[2]) ? n : NULL;
        at->kid[2] = node(p, TMPL_OP_IF, p->at->line);
        at = at->kid[2];
        p->at++;
    }
}

/* An if's height is that of all its branches. */
static struct tmpl_node *
whole_if(struct parser *p, struct tmpl_node *n)
{
    unsigned height = 0;

    for (struct tmpl_node *at = n; at && at->op == TMPL_OP_IF;) {
        struct tmpl_node *rest = at->kid[2];
        bool elif = rest && rest->op == TMPL_OP_IF && !rest->next;

        if (elif)
            at->kid[2] = NULL;
        if (!whole(p, at))
            return NULL;
        at->kid[2] = rest;
        height = at->height > height ? at->height : height;
        at = elif ? rest : NULL;
    }
    n->height = height;
    return n;
}

static struct tmpl_node *
parse_set(struct parser *p, struct tmpl_node *n)
{
    struct tmpl_node *piped = node(p, TMPL_OP_PIPED, n->line);

    n->kid[0] = parse_target(p, NULL, true);
    if (!n->kid[0])
        return NULL;
    if (skip(p, '=')) {
        n->kid[1] = parse_tuple(p, parse_expression, NULL, false);
        return n->kid[1] ? n : NULL;
    }
    n->op = TMPL_OP_SET_BLOCK;
    n->kid[1] = parse_filters(p, piped);
    return n->kid[1] && parse_block(p, "endset", &n->kid[2]) ? n : NULL;
}

static struct tmpl_node *
parse_filter_block(struct parser *p, struct tmpl_node *n)
{
    struct tmpl_node *piped = node(p, TMPL_OP_PIPED, n->line);

    n->kid[0] = parse_named(p, TMPL_OP_FILTER, piped);
    n->kid[0] = n->kid[0] ? parse_filters(p, whole(p, n->kid[0])) : NULL;
    return n->kid[0] && parse_block(p, "endfilter", &n->kid[1]) ? n : NULL;
}

static struct tmpl_node *
parse_with(struct parser *p, struct tmpl_node *n)
{
    struct tmpl_node **end = &n->kid[0];

    while (p->at->type != TMPL_BLOCK_END) {
        struct tmpl_node *set = node(p, TMPL_OP_SET, p->at->line);

        if (n->kid[0] && !expect(p, ',', "','"))
            return NULL;
        if (!(set->kid[0] = parse_target(p, NULL, false)) ||
            !expect(p, '=', "'='") || !(set->kid[1] = parse_expression(p)) ||
            !whole(p, set))
            return NULL;
        end = append(end, set);
    }
    return parse_block(p, "endwith", &n->kid[1]) ? n : NULL;
}

/* The parameters, in brackets. */
static bool
parse_parameters(struct parser *p, struct tmpl_node **list)
{
    bool optional = false;

    if (!expect(p, '(', "'('"))
        return false;
    while (p->at->type != ')') {
        struct tmpl_node *n = parse_name(p, TMPL_OP_PARAM);

        if (!n)
            return false;
        if (skip(p, '=')) {
            if (!(n->kid[0] = parse_expression(p)) || !whole(p, n))
                return false;
            optional = true;
        } else if (optional) {
            return unexpected(p, "'=': a parameter after one with a default");
        }
        list = append(list, n);
        if (!skip(p, ','))
            break;
    }
    return expect(p, ')', "',' or ')'");
}

static struct tmpl_node *
parse_macro(struct parser *p, struct tmpl_node *n)
{
    struct tmpl_node *name = parse_name(p, TMPL_OP_VARIABLE);
    int loops = p->loops;

    if (!name || !parse_parameters(p, &n->kid[0]))
        return NULL;
    n->name = name->name;
    p->loops = 0;
    if (!parse_block(p, "endmacro", &n->kid[1]))
        return NULL;
    p->loops = loops;
    return n;
}

/* {% call(parameters) macro(..) %} body: the macro's caller(..) */
static struct tmpl_node *
parse_call_block(struct parser *p, struct tmpl_node *n)
{
    struct tmpl_node *caller = node(p, TMPL_OP_MACRO, n->line);
    int loops = p->loops;

    n->kid[0] = caller;
    caller->name = p->tree->caller;
    if (p->at->type == '(' && !parse_parameters(p, &caller->kid[0]))
        return NULL;
    if (!(n->kid[1] = parse_expression(p)))
        return NULL;
    if (n->kid[1]->op != TMPL_OP_CALL)
        return fail(p, n->line, "{% call %} is not of a call");
    p->loops = 0;
    if (!parse_block(p, "endcall", &caller->kid[1]) || !whole(p, caller))
        return NULL;
    p->loops = loops;
    return n;
}

static struct tmpl_node *
parse_generation(struct parser *p, struct tmpl_node *n)
{
    int loops = p->loops;

    p->tree->has_generation = true;
    p->loops = 0;
    if (!parse_block(p, "endgeneration", &n->kid[0]))
        return NULL;
    p->loops = loops;
    return n;
}

static struct tmpl_node *
parse_jump(struct parser *p, struct tmpl_node *n)
{
    return p->loops > 0 ? n : fail(p, n->line, "is outside of a loop");
}

static const struct {
    const char *word;
    enum tmpl_op op;
    struct tmpl_node *(*parse)(struct parser *p, struct tmpl_node *n);
} statements[] = {
    { "for", TMPL_OP_FOR, parse_for },
    { "if", TMPL_OP_IF, parse_if },
    { "set", TMPL_OP_SET, parse_set },
    { "macro", TMPL_OP_MACRO, parse_macro },
    { "with", TMPL_OP_WITH, parse_with },
    { "filter", TMPL_OP_FILTER_BLOCK, parse_filter_block },
    { "call", TMPL_OP_CALL_BLOCK, parse_call_block },
    { "generation", TMPL_OP_GENERATION, parse_generation },
    { "break", TMPL_OP_BREAK, parse_jump },
    { "continue", TMPL_OP_CONTINUE, parse_jump },
};

/* A statement, after "{%", with its end. */
static struct tmpl_node *
parse_statement(struct parser *p)
{
    unsigned line = p->at->line;
    struct tmpl_node *n;

    for (size_t i = 0; i < sizeof(statements) / sizeof(*statements); i++) {
        if (!skip_word(p, statements[i].word))
            continue;
        n = statements[i].parse(p, node(p, statements[i].op, line));
        if (!n || !expect(p, TMPL_BLOCK_END, "'%}'"))
            return NULL;
        return n->op == TMPL_OP_IF ? whole_if(p, n) : whole(p, n);
    }
    if (p->at->type != TMPL_NAME)
        return unexpected(p, "a statement after '{%'");
    err_set(p->err, EX_DATAERR, "%s: line %u: {%% %.*s %%} is not supported",
            p->name, line, (int)smaller(p->at->value.text->n, 60),
            p->at->value.text->s);
    return NULL;
}

/* A body, up to one of the statements 'ends', which is next then; NULL: up to
 * the end of the template. */
static int
parse_statements(struct parser *p, const char *const *ends,
                 struct tmpl_node **body)
{
    for (;;) {
        struct tmpl_node *n = NULL;
        unsigned line = p->at->line;

        if (p->at->type == TMPL_END) {
            if (ends)
                unexpected(p, ends[0]);
            return ends ? -1 : 0;
        }
        if (p->at->type == TMPL_DATA) {
            n = node(p, TMPL_OP_DATA, line);
            n->value = p->at++->value;
        } else if (skip(p, TMPL_PRINT)) {
            n = node(p, TMPL_OP_OUTPUT, line);
            n->kid[0] = parse_tuple(p, parse_expression, NULL, false);
            if (!n->kid[0] || !expect(p, TMPL_PRINT_END, "'}}'") ||
                !whole(p, n))
                return -1;
        } else {
            p->at++;
            for (size_t i = 0; ends && ends[i]; i++)
                if (is_word(p->at, ends[i]))
                    return 0;
            if (!(n = parse_statement(p)))
                return -1;
        }
        body = append(body, n);
    }
}

/* What follows a block's tag: its end and its body, up to one of 'ends'. */
static int
parse_body(struct parser *p, const char *const *ends, struct tmpl_node **body)
{
    int rc;

    skip(p, ':'); /* as in Python */
    if (!expect(p, TMPL_BLOCK_END, "'%}'") || !deeper(p))
        return -1;
    rc = parse_statements(p, ends, body);
    p->depth--;
    return rc;
}

int
tmpl_parse(struct tmpl_heap *heap, const char *name, const char *text,
           size_t nbytes, struct tmpl_tree *tree, struct err *err)
{
    struct parser p = { .heap = heap, .name = name, .tree = tree, .err = err };
    static const struct tmpl_text loop = { .s = "loop", .n = 4 },
                                  caller = { .s = "caller", .n = 6 };
    struct tmpl_token *tokens;

    tree->loop = variable(&p, &loop);
    tree->caller = variable(&p, &caller);
    if (tmpl_lex(heap, name, text, nbytes, &tokens, err) < 0)
        return -1;
    p.at = tokens;
    return parse_statements(&p, NULL, &tree->body);
}
