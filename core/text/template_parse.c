/* SPDX-License-Identifier: ISC */
/* The tokens of a template as a tree. */
#include <string.h>

#include "core/mem.h"
#include "core/text/template_impl.h"

#define MAX_NAMES 4096 /* each is looked for among all */

/* After an error the next token is the end: loops and functions end there. */
struct parser {
    struct trun *r;
    struct template *t;
    const struct ttoken *at;
    int depth;    /* of functions that call themselves */
    bool in_loop; /* that break would end */
};

static const struct ttoken the_end = { .type = T_END };

static struct tnode *parse_expression(struct parser *p);
static struct tnode *parse_operators(struct parser *p, int level);
static struct tnode *parse_statements(struct parser *p,
                                      const char *const *ends);

/* "expected WHAT, found TOKEN" */
static void
unexpected(struct parser *p, const char *what)
{
    const struct tvalue *v = &p->at->value;
    bool named = v->kind == V_TEXT && p->at->type != T_LITERAL;

    p->r->line = p->at->line;
    t_fail(p->r, "expected %s, found %.*s", what,
           named ? (int)smaller(v->text->n, 60) : 9,
           named ? v->text->s : "a literal");
    p->at = &the_end;
}

/* Is the next token of that type?  It is taken. */
static bool
skip(struct parser *p, int type)
{
    bool is = p->at->type == type;

    p->at += is && type != T_END;
    return is;
}

static bool
is_word(const struct ttoken *t, const char *word)
{
    return t->type == T_NAME && t_is(&t->value, word);
}

static bool
skip_word(struct parser *p, const char *word)
{
    return is_word(p->at, word) && skip(p, T_NAME);
}

static void
expect(struct parser *p, int type, const char *what)
{
    if (!skip(p, type))
        unexpected(p, what);
}

static void
deeper(struct parser *p)
{
    if (++p->depth > TEMPLATE_MAX_NESTED)
        unexpected(p, "at most 200 levels of nesting");
}

static struct tnode *
node(struct parser *p, int op, unsigned line, struct tnode *a, struct tnode *b)
{
    struct tnode *n = t_alloc(p->r, sizeof(*n));

    n->op = op;
    n->line = line;
    n->kid[0] = a;
    n->kid[1] = b;
    return n;
}

/* A node of the next token's text. */
static struct tnode *
leaf(struct parser *p, int op)
{
    struct tnode *n = node(p, op, p->at->line, NULL, NULL);

    n->value = p->at->value;
    p->at += p->at->type != T_END;
    return n;
}

/* A node of the variable that the next token names. */
static struct tnode *
parse_name(struct parser *p, int op)
{
    struct template *t = p->t;
    struct tnode *n;

    if (p->at->type != T_NAME)
        unexpected(p, "a name");
    n = leaf(p, op);
    while (!p->r->failed && n->name < t->n_names &&
           !t_is(&n->value, t->names[n->name]))
        n->name++;
    if (n->name == MAX_NAMES)
        unexpected(p, "fewer names of variables");
    if (p->r->failed || n->name < t->n_names)
        return n;
    if (t->n_names == t->cap_names)
        t->names =
            xgrow(t->names, t->n_names, &t->cap_names, sizeof(*t->names));
    t->names[t->n_names++] = xstrndup(n->value.text->s, n->value.text->n);
    return n;
}

/* Without brackets: one expression, or a tuple of several; in brackets also of
 * none.  'word' ends it, too. */
static struct tnode *
parse_tuple(struct parser *p, struct tnode *(*each)(struct parser *),
            const char *word, bool brackets)
{
    struct tnode *n = node(p, T_TUPLE, p->at->line, NULL, NULL),
                 **end = &n->kid[0];
    bool comma = false;

    while (p->at->type != T_PRINT_END && p->at->type != T_BLOCK_END &&
           p->at->type != ')' && p->at->type != T_END &&
           !(word && is_word(p->at, word))) {
        *end = each(p);
        end = &(*end)->next;
        if (!skip(p, ','))
            break;
        comma = true;
    }
    if (!n->kid[0] && !brackets)
        unexpected(p, "an expression");
    return n->kid[0] && !comma ? n->kid[0] : n;
}

/* A list of expressions up to a bracket, with commas between them: also a
 * dict's keys and values, or a call's arguments and their names. */
static struct tnode *
parse_list(struct parser *p, int close)
{
    struct tnode *list = NULL, **end = &list, *n;
    bool named = false;

    for (p->at++; p->at->type != close && p->at->type != T_END;) {
        n = node(p, T_ARGUMENT, p->at->line, NULL, NULL);
        if (close == ')' && p->at->type == T_NAME && p->at[1].type == '=') {
            n->value = p->at->value;
            p->at += 2;
            named = true;
        } else if (named) {
            unexpected(p, "an argument with a name");
        }
        n->kid[0] = parse_expression(p);
        *end = close == ')' ? n : n->kid[0];
        end = &(*end)->next;
        if (close == '}') {
            expect(p, ':', "':'");
            *end = parse_expression(p);
            end = &(*end)->next;
        }
        if (!skip(p, ','))
            break;
    }
    expect(p, close, "',' or a closing bracket");
    return list;
}

/* A name, a literal, or what is in brackets. */
static struct tnode *
parse_primary(struct parser *p)
{
    static const struct {
        const char *word;
        struct tvalue value;
    } words[] = {
        { "true", { V_BOOL, { true } } },   { "True", { V_BOOL, { true } } },
        { "false", { V_BOOL, { false } } }, { "False", { V_BOOL, { false } } },
        { "none", { V_NONE, { 0 } } },      { "None", { V_NONE, { 0 } } }
    };
    unsigned line = p->at->line;
    struct tbuf b = { .r = p->r };
    struct tnode *n;

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (is_word(p->at, words[i].word)) {
            n = leaf(p, T_LITERAL);
            n->value = words[i].value;
            return n;
        }
    switch (p->at->type) {
    case T_NAME:
        return parse_name(p, T_NAME);
    case T_LITERAL:
        n = leaf(p, T_LITERAL);
        if (n->value.kind != V_TEXT || p->at->type != T_LITERAL)
            return n;
        t_put_value(&b, &n->value); /* 'a' 'b' is 'ab' */
        while (p->at->type == T_LITERAL && p->at->value.kind == V_TEXT)
            t_put_value(&b, &p->at++->value);
        n->value = t_built(&b);
        return n;
    case '(':
        p->at++;
        n = parse_tuple(p, parse_expression, NULL, true);
        expect(p, ')', "')'");
        return n;
    case '[':
        return node(p, T_LIST, line, parse_list(p, ']'), NULL);
    case '{':
        return node(p, T_DICT, line, parse_list(p, '}'), NULL);
    }
    unexpected(p, "an expression");
    return leaf(p, T_LITERAL);
}

/* [key] or [start:stop:step] */
static struct tnode *
parse_brackets(struct parser *p, struct tnode *of)
{
    struct tnode *n = node(p, T_ITEM, p->at++->line, of, NULL);

    for (int i = 1; i <= 3; i++) {
        if (p->at->type != ':' && p->at->type != ']')
            n->kid[i] = parse_expression(p);
        if (i == 3 || !skip(p, ':'))
            break;
        n->op = T_SLICE;
    }
    if (n->op == T_ITEM && !n->kid[1])
        unexpected(p, "an expression");
    expect(p, ']', "']'");
    return n;
}

/* Operators of two sides, from those that bind least. */
enum { LEVEL_NOT = 2, LEVEL_COMPARE, LEVEL_POSTFIX = 8 };

static const struct {
    int level, op;
    const char *word; /* of those that are a T_NAME */
} operators[] = {
    { 0, T_OR, "or" },
    { 1, T_AND, "and" },
    { LEVEL_COMPARE, T_EQ, NULL },
    { LEVEL_COMPARE, T_NE, NULL },
    { LEVEL_COMPARE, '<', NULL },
    { LEVEL_COMPARE, T_LE, NULL },
    { LEVEL_COMPARE, '>', NULL },
    { LEVEL_COMPARE, T_GE, NULL },
    { LEVEL_COMPARE, T_IN, "in" },
    { LEVEL_COMPARE, T_NOT_IN, "not" },
    { 4, '+', NULL },
    { 4, '-', NULL },
    { 5, '~', NULL },
    { 6, '*', NULL },
    { 6, '/', NULL },
    { 6, T_FLOORDIV, NULL },
    { 6, '%', NULL },
};

/* Takes an operator that binds at least as 'level': which, or 0; and its level.
 */
static int
skip_operator(struct parser *p, int level, int *at)
{
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
        const char *word = operators[i].word;
        int op = operators[i].op;

        *at = operators[i].level;
        if (*at >= level && (word ? is_word(p->at, word) : p->at->type == op) &&
            (op != T_NOT_IN || is_word(p->at + 1, "in"))) {
            p->at += 1 + (op == T_NOT_IN);
            return op;
        }
    }
    return 0;
}

/* A filter or test of n, whose name is next. */
static struct tnode *
parse_named(struct parser *p, int op, struct tnode *of)
{
    struct tnode *n;
    int type;

    if (p->at->type != T_NAME)
        unexpected(p, "the name of a filter or test");
    n = leaf(p, op);
    n->kid[0] = of;
    type = p->at->type;
    if (type == '(') {
        n->kid[1] = parse_list(p, ')');
    } else if (op == T_TEST && !is_word(p->at, "else") &&
               !is_word(p->at, "or") && !is_word(p->at, "and") &&
               (type == T_NAME || type == T_LITERAL || type == '[' ||
                type == '{')) {
        if (is_word(p->at, "is"))
            unexpected(p, "one test");
        n->kid[1] = node(p, T_ARGUMENT, p->at->line,
                         parse_operators(p, LEVEL_POSTFIX), NULL);
    }
    return n;
}

/* The signs and words before an operand; it; and its attributes, items, calls,
 * filters and tests, of which LEVEL_POSTFIX has the first three. */
static struct tnode *
parse_operand(struct parser *p, int level)
{
    unsigned line = p->at->line;
    bool bare = true, negated, number;
    struct tnode *n;

    deeper(p);
    if (skip(p, '-'))
        n = node(p, T_NEG, line, parse_operators(p, LEVEL_POSTFIX), NULL);
    else if (level <= LEVEL_NOT && skip_word(p, "not"))
        n = node(p, T_NOT, line, parse_operators(p, LEVEL_NOT), NULL);
    else
        n = parse_primary(p);
    for (p->depth--;; line = p->at->line) {
        if (p->at->type == '(') {
            n = node(p, T_CALL, line, n, parse_list(p, ')'));
        } else if (bare && p->at->type == '[') {
            n = parse_brackets(p, n);
        } else if (bare && skip(p, '.')) {
            number = p->at->type == T_LITERAL && p->at->value.kind == V_INT;
            if (p->at->type != T_NAME && !number)
                unexpected(p, "a name after '.'");
            n = node(p, number ? T_ITEM : T_ATTRIBUTE, line, n,
                     leaf(p, T_LITERAL));
        } else if (level < LEVEL_POSTFIX && skip(p, '|')) {
            n = parse_named(p, T_FILTER, n);
            bare = false;
        } else if (level < LEVEL_POSTFIX && skip_word(p, "is")) {
            negated = skip_word(p, "not");
            n = parse_named(p, T_TEST, n);
            n = negated ? node(p, T_NOT, line, n, NULL) : n;
            bare = false;
        } else {
            return n;
        }
    }
}

/* Operands with operators between them that bind at least as 'level'. */
static struct tnode *
parse_operators(struct parser *p, int level)
{
    struct tnode *n = parse_operand(p, level), *right, **end = NULL;
    unsigned line = p->at->line;

    for (int op, at; (op = skip_operator(p, level, &at)) != 0;
         line = p->at->line) {
        right = parse_operators(p, at + 1);
        if (at != LEVEL_COMPARE) {
            n = node(p, op, line, n, right);
            end = NULL;
            continue;
        }
        if (!end) { /* a < b < c is one */
            n = node(p, T_COMPARE, line, n, NULL);
            end = &n->kid[1];
        }
        *end = node(p, op, line, right, NULL);
        end = &(*end)->next;
    }
    return n;
}

static struct tnode *
parse_no_condition(struct parser *p)
{
    return parse_operators(p, 0);
}

/* a if test else b */
static struct tnode *
parse_expression(struct parser *p)
{
    struct tnode *n;

    deeper(p);
    for (n = parse_operators(p, 0); skip_word(p, "if");) {
        n = node(p, T_CONDITION, p->at->line, parse_operators(p, 0), n);
        if (skip_word(p, "else"))
            n->kid[2] = parse_expression(p);
    }
    p->depth--;
    return n;
}

/* A name, a tuple of names, or ns.name: what can be assigned to. */
static struct tnode *
parse_target(struct parser *p, const char *word)
{
    struct tnode *n;

    if (is_word(p->at, "loop") && (word || p->in_loop))
        unexpected(p, "a variable to assign to");
    if (word || p->at->type != T_NAME || p->at[1].type != '.')
        return parse_tuple(p, parse_primary, word, false);
    n = parse_name(p, T_NAME);
    p->at++;
    return node(p, T_ATTRIBUTE, n->line, n, leaf(p, T_LITERAL));
}

/* The rest of a tag, and the body after it, up to the tag 'end' or another,
 * whose names come next. */
static struct tnode *
parse_body(struct parser *p, const char *end, const char *other,
           const char *third)
{
    const char *const ends[] = { end, other, third, NULL };
    struct tnode *body;

    expect(p, T_BLOCK_END, "'%}'");
    deeper(p);
    body = parse_statements(p, ends);
    p->depth--;
    if (!other)
        skip(p, T_NAME);
    return body;
}

static void
parse_if(struct parser *p, struct tnode *n)
{
    for (bool elif = true; elif; n = n->kid[2]) {
        n->kid[0] = parse_tuple(p, parse_no_condition, NULL, false);
        n->kid[1] = parse_body(p, "endif", "elif", "else");
        elif = skip_word(p, "elif");
        if (elif)
            n->kid[2] = node(p, T_IF, p->at->line, NULL, NULL);
        else if (skip_word(p, "else"))
            n->kid[2] = parse_body(p, "endif", NULL, NULL);
        else
            skip(p, T_NAME);
    }
}

static void
parse_for(struct parser *p, struct tnode *n)
{
    n->kid[0] = parse_target(p, "in");
    if (!skip_word(p, "in"))
        unexpected(p, "'in'");
    n->kid[1] = parse_tuple(p, parse_no_condition, "recursive", false);
    if (skip_word(p, "if"))
        n->kid[3] = parse_expression(p);
    p->in_loop = true;
    n->kid[2] = parse_body(p, "endfor", NULL, NULL);
}

static void
parse_set(struct parser *p, struct tnode *n)
{
    n->kid[0] = parse_target(p, NULL);
    if (skip(p, '=')) {
        n->kid[1] = parse_tuple(p, parse_expression, NULL, false);
        return;
    }
    n->op = T_CAPTURE;
    n->kid[1] = parse_body(p, "endset", NULL, NULL);
}

static void
parse_macro(struct parser *p, struct tnode *n)
{
    struct tnode **end = &n->kid[0], *last = NULL;

    n->name = parse_name(p, T_NAME)->name;
    expect(p, '(', "'('");
    while (p->at->type == T_NAME) {
        *end = parse_name(p, T_ARGUMENT);
        if (skip(p, '='))
            (*end)->kid[0] = parse_expression(p);
        else if (last)
            unexpected(p, "'=', as the one before has a default");
        last = (*end)->kid[0];
        end = &(*end)->next;
        if (!skip(p, ','))
            break;
    }
    expect(p, ')', "',' or ')'");
    n->kid[1] = parse_body(p, "endmacro", NULL, NULL);
}

static void
parse_generation(struct parser *p, struct tnode *n)
{
    p->t->has_generation = true;
    n->kid[0] = parse_body(p, "endgeneration", NULL, NULL);
}

static const struct {
    const char *word;
    int op;
    void (*parse)(struct parser *p, struct tnode *n);
} statements[] = { { "for", T_FOR, parse_for },
                   { "if", T_IF, parse_if },
                   { "set", T_SET, parse_set },
                   { "macro", T_MACRO, parse_macro },
                   { "generation", T_GENERATION, parse_generation },
                   { "break", T_BREAK, NULL },
                   { "continue", T_CONTINUE, NULL } };

/* A statement, after "{%", with its end. */
static struct tnode *
parse_statement(struct parser *p)
{
    struct tnode *n = leaf(p, T_NAME);
    bool in_loop = p->in_loop;

    for (size_t i = 0; i < sizeof(statements) / sizeof(*statements); i++) {
        if (!t_is(&n->value, statements[i].word))
            continue;
        n->op = statements[i].op;
        p->in_loop = in_loop && n->op != T_MACRO && n->op != T_GENERATION;
        if (statements[i].parse)
            statements[i].parse(p, n);
        else if (!in_loop)
            unexpected(p, "a loop around break and continue");
        p->in_loop = in_loop;
        expect(p, T_BLOCK_END, "'%}'");
        return n;
    }
    p->r->line = n->line;
    if (n->value.kind == V_TEXT)
        t_fail(p->r, "{%% %.*s %%} is not supported%s",
               (int)smaller(n->value.text->n, 60), n->value.text->s,
               n->value.text->s[0] == 'e' ? " here" : ""); /* endif, else */
    unexpected(p, "a statement");
    return n;
}

/* Text, {{ }} and {% %}, up to one of the statements 'ends', which is next
 * then; NULL: up to the end of the template. */
static struct tnode *
parse_statements(struct parser *p, const char *const *ends)
{
    struct tnode *list = NULL, **end = &list;

    while (p->at->type != T_END) {
        if (p->at->type == T_DATA) {
            *end = leaf(p, T_DATA);
        } else if (p->at->type == T_PRINT) {
            *end = leaf(p, T_PRINT);
            (*end)->kid[0] = parse_tuple(p, parse_expression, NULL, false);
            expect(p, T_PRINT_END, "'}}'");
        } else {
            p->at++;
            for (size_t i = 0; ends && ends[i]; i++)
                if (is_word(p->at, ends[i]))
                    return list;
            *end = parse_statement(p);
        }
        end = &(*end)->next;
    }
    if (ends)
        unexpected(p, ends[0]);
    return list;
}

void
t_parse(struct template *t, struct trun *r, const struct ttoken *tokens)
{
    struct parser p = { .r = r, .t = t, .at = tokens };

    t->names = xgrow(NULL, 0, &t->cap_names, sizeof(*t->names));
    t->names[t->n_names++] = xstrdup("loop");
    t->body = parse_statements(&p, NULL);
}
