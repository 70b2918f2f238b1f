/* SPDX-License-Identifier: ISC */
/* Runs the tree of a template. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_impl.h"

/* The variables of a block. */
struct tscope {
    struct tscope *up;
    struct tvariable {
        struct tvariable *next;
        size_t name;
        struct tvalue value;
    } * variables;
};

struct tmacro {
    const struct tnode *node;
    struct tscope *scope; /* that it was defined in */
};

struct tloop {
    struct tlist items;
    size_t i;
};

/* How a body ended. */
enum flow { DONE, BREAK, CONTINUE };

static struct tvalue eval(struct trun *r, const struct tnode *n);
static enum flow exec(struct trun *r, const struct tnode *n);

static struct tvalue *
find_variable(struct trun *r, const struct tscope *scope, size_t name)
{
    for (struct tvariable *v = scope->variables; ++r->work, v; v = v->next)
        if (v->name == name)
            return &v->value;
    return NULL;
}

static void
set_variable(struct trun *r, size_t name, struct tvalue value)
{
    struct tvalue *old = find_variable(r, r->scope, name);
    struct tvariable *v;

    if (old) {
        *old = value;
        return;
    }
    v = t_alloc(r, sizeof(*v));
    *v = (struct tvariable){ r->scope->variables, name, value };
    r->scope->variables = v;
}

static void
enter(struct trun *r, struct tscope *up)
{
    r->scope = t_alloc(r, sizeof(*r->scope));
    r->scope->up = up;
}

/* A variable that the caller gives, of which the texts of messages[i] are i + 1
 * and special tokens the template's own; or a function. */
static struct tvalue
global(struct trun *r, const char *name)
{
    const json_t *json = json_object_get(r->vars, name);
    struct tvalue v = t_text(r, name, strlen(name), 0);
    struct tbound *bound = t_alloc(r, sizeof(*bound));

    bound->row = t_lookup('g', &v);
    if (json_is_array(json) && !strcmp(name, "messages")) {
        v = t_list(r, V_LIST);
        for (size_t i = 0; i < json_array_size(json) && !r->failed; i++)
            t_push(r, v.list,
                   t_json(r, json_array_get(json, i), (uint32_t)i + 1, 1));
        return v;
    }
    if (json)
        return t_json(r, json, str_ends(name, "_token") ? 0 : RENDERED_DATA, 0);
    if (bound->row)
        return (struct tvalue){ .kind = V_FUNCTION, .bound = bound };
    v.kind = V_UNDEFINED;
    return v;
}

static struct tvalue
get_variable(struct trun *r, size_t name)
{
    const struct tvalue *v;

    for (const struct tscope *s = r->scope; s; s = s->up)
        if ((v = find_variable(r, s, name)) != NULL)
            return *v;
    if (r->globals[name].kind == V_ABSENT)
        r->globals[name] = global(r, r->t->names[name]);
    return r->globals[name];
}

/* The arguments, after what they are of, or an absent value. */
static struct targs
eval_args(struct trun *r, const struct tnode *list, struct tvalue of)
{
    struct tlist all = { 0 }, named = { 0 };

    if (of.kind != V_ABSENT)
        t_push(r, &all, of);
    for (const struct tnode *k = list; k; k = k->next) {
        struct tvalue v = eval(r, k->kid[0]);

        if (k->value.kind == V_TEXT)
            t_push(r, &named, k->value);
        t_push(r, k->value.kind == V_TEXT ? &named : &all, v);
    }
    return (struct targs){ .v = all.v, .n = all.n, .named = named };
}

/* A list, tuple or dict, of expressions. */
static struct tvalue
eval_list(struct trun *r, const struct tnode *n)
{
    struct tvalue v = t_list(r, n->op == T_LIST    ? V_LIST
                                : n->op == T_TUPLE ? V_TUPLE
                                                   : V_DICT);

    for (const struct tnode *k = n->kid[0]; k && !r->failed; k = k->next) {
        struct tvalue key = eval(r, k);

        if (n->op == T_DICT)
            t_set(r, v.list, key, eval(r, k = k->next));
        else
            t_push(r, v.list, key);
    }
    return v;
}

static struct tvalue
eval_compare(struct trun *r, const struct tnode *n)
{
    struct tvalue left = eval(r, n->kid[0]), right;
    bool is = true;

    for (const struct tnode *k = n->kid[1]; k && is; k = k->next) {
        right = eval(r, k->kid[0]);
        is = !r->failed && t_compare(r, k->op, &left, &right);
        left = right;
    }
    return t_bool(is);
}

/* A bound of a slice, within low .. high: Python's slice.indices(); or, of size
 * -1, its step. */
static int64_t
bound(struct trun *r, const struct tnode *n, int64_t unset, int64_t size,
      int64_t low, int64_t high)
{
    struct tvalue v = n ? eval(r, n) : T_NIL;

    if (v.kind == V_NONE)
        return unset;
    if (v.kind != V_INT)
        t_fail(r, "slice indices must be integers or None");
    if (v.i < 0 && size >= 0)
        v.i = v.i < -size ? low : v.i + size;
    return v.i < low ? low : v.i > high ? high : v.i;
}

static struct tvalue
eval_slice(struct trun *r, const struct tnode *n)
{
    struct tvalue of = eval(r, n->kid[0]), v;
    int64_t size, from, to, step, down;
    struct tbuf b = { .r = r };
    struct tlist items;
    size_t at;

    if (r->failed || of.kind < V_TEXT || of.kind > V_TUPLE)
        return t_fail(r, "a slice of a %s", t_type(&of));
    size = (int64_t)t_length(r, &of);
    step = bound(r, n->kid[3], 1, -1, -INT32_MAX, INT32_MAX);
    down = step < 0;
    from = bound(r, n->kid[1], down ? size - 1 : 0, size, -down, size - down);
    to = bound(r, n->kid[2], down ? -1 : size, size, -down, size - down);
    if (step == 0)
        return t_fail(r, "slice step cannot be zero");
    if (of.kind == V_TEXT && step == 1) {
        at = t_at(of.text, from);
        r->work += of.text->n;
        return t_cut(r, of.text, at, larger(at, t_at(of.text, to)));
    }
    items = t_iterate(r, &of);
    v = t_list(r, of.kind);
    for (; (down ? from > to : from < to) && !r->failed; from += step) {
        t_put_value(&b, of.kind == V_TEXT ? &items.v[from] : &T_GONE);
        t_push(r, v.list, items.v[from]);
    }
    return of.kind == V_TEXT ? t_built(&b) : v;
}

/* An operator of two integers, but for /, which makes a real number. */
static struct tvalue
integers(struct trun *r, int op, int64_t a, int64_t b)
{
    bool over = false;
    int64_t v = 0;

    if (op == '+')
        over = __builtin_add_overflow(a, b, &v);
    else if (op == '-')
        over = __builtin_sub_overflow(a, b, &v);
    else if (op == '*')
        over = __builtin_mul_overflow(a, b, &v);
    else if (b == 0)
        return t_fail(r, "division by zero");
    else if (op == '%')
        v = b == -1 ? 0 : a % b + (a % b && (a < 0) != (b < 0) ? b : 0);
    else if (a == INT64_MIN)
        over = true;
    else
        v = a / b - (a % b && (a < 0) != (b < 0));
    if (over)
        t_fail(r, "an integer has more than 64 bits, which is not supported");
    return t_int(v);
}

static struct tvalue
arithmetic(struct trun *r, int op, const struct tvalue *a,
           const struct tvalue *b)
{
    const struct tvalue *side[] = { a, b };
    struct tbuf text = { .r = r };
    bool ints = true;
    int64_t i[2];
    struct tvalue v;
    size_t n = 0;

    for (int k = 0; k < 2; k++) {
        const struct tvalue *s = side[k];

        if (s->kind == V_UNDEFINED && op != '~')
            return t_item(r, s, s, false); /* fails */
        ints &= s->kind == V_INT || s->kind == V_BOOL;
        i[k] = s->kind == V_BOOL ? s->b : s->i;
    }
    if (op == '~' || (op == '+' && a->kind == V_TEXT && b->kind == V_TEXT)) {
        for (int k = 0; k < 2; k++) /* room for both: texts may be long */
            n += side[k]->kind == V_TEXT ? side[k]->text->n : 0;
        text.s = t_grow(r, NULL, 0, n, &text.cap, 1);
        text.from = t_grow(r, NULL, 0, n, &text.from_cap, sizeof(*text.from));
        t_put_value(&text, a);
        t_put_value(&text, b);
        return t_built(&text);
    }
    if (ints && op != '/')
        return integers(r, op, i[0], i[1]);
    if (op == '+' && a->kind == b->kind &&
        (a->kind == V_LIST || a->kind == V_TUPLE)) {
        v = t_list(r, a->kind);
        for (int k = 0; k < 2; k++)
            for (size_t at = 0; at < side[k]->list->n; at++)
                t_push(r, v.list, side[k]->list->v[at]);
        return v;
    }
    if (op == '*' && a->kind == V_TEXT && b->kind == V_INT) {
        for (; i[1] > 0 && a->text->n > 0 && !r->failed; i[1]--)
            t_put_value(&text, a);
        return t_built(&text);
    }
    return t_fail(r, "%s of a %s and a %s is not supported",
                  op == T_FLOORDIV ? "//" : (char[]){ (char)op, '\0' },
                  t_type(a), t_type(b));
}

static struct tvalue
eval_op(struct trun *r, const struct tnode *n)
{
    struct tvalue a = T_GONE, b;
    struct targs args;

    switch (n->op) {
    case T_LITERAL:
        return n->value;
    case T_NAME:
        return get_variable(r, n->name);
    case T_LIST:
    case T_TUPLE:
    case T_DICT:
        return eval_list(r, n);
    case T_COMPARE:
        return eval_compare(r, n);
    case T_SLICE:
        return eval_slice(r, n);
    }
    a = eval(r, n->kid[0]);
    switch (n->op) {
    case T_CONDITION:
        n = n->kid[t_true(&a) ? 1 : 2];
        return n ? eval(r, n) : (struct tvalue){ .kind = V_UNDEFINED };
    case T_OR:
    case T_AND:
        return t_true(&a) == (n->op == T_OR) ? a : eval(r, n->kid[1]);
    case T_NOT:
        return t_bool(!t_true(&a));
    case T_NEG:
        b = t_int(-1);
        if (a.kind == V_FLOAT)
            return (struct tvalue){ .kind = V_FLOAT, .f = -a.f };
        return arithmetic(r, '*', &b, &a);
    case T_FILTER:
    case T_TEST:
        args = eval_args(r, n->kid[1], a);
        r->line = n->line;
        return t_call_named(r, n->op == T_FILTER ? 'f' : 't', &n->value, &args);
    case T_CALL:
        args = eval_args(r, n->kid[1],
                         a.kind == V_FUNCTION ? a.bound->of : T_GONE);
        r->line = n->line;
        return t_call(r, &a, &args);
    }
    b = eval(r, n->kid[1]);
    r->line = n->line;
    return n->op == T_ITEM || n->op == T_ATTRIBUTE
               ? t_item(r, &a, &b, n->op == T_ATTRIBUTE)
               : arithmetic(r, n->op, &a, &b);
}

static bool
deeper(struct trun *r)
{
    if (++r->depth > TEMPLATE_MAX_DEPTH)
        t_fail(r, "runs more than %d levels deep", TEMPLATE_MAX_DEPTH);
    return !r->failed;
}

static struct tvalue
eval(struct trun *r, const struct tnode *n)
{
    struct tvalue v = T_GONE;

    r->line = n->line;
    if (deeper(r) && t_step(r))
        v = eval_op(r, n);
    r->depth--;
    return v;
}

/* Gives a target its value. */
static void
assign(struct trun *r, const struct tnode *target, struct tvalue value)
{
    struct tlist list;
    struct tvalue ns;
    size_t n = 0;

    r->line = target->line;
    if (target->op == T_NAME) {
        set_variable(r, target->name, value);
    } else if (target->op == T_ATTRIBUTE) {
        ns = get_variable(r, target->kid[0]->name);
        if (ns.kind == V_NAMESPACE)
            t_set(r, ns.list, target->kid[1]->value, value);
        else
            t_fail(r, "cannot assign attribute on non-namespace object");
    } else if (target->op == T_TUPLE) {
        list = t_iterate(r, &value);
        for (const struct tnode *k = target->kid[0]; k; k = k->next, n++)
            if (n < list.n)
                assign(r, k, list.v[n]);
        if (n != list.n)
            t_fail(r, "%zu values for %zu names", list.n, n);
    } else {
        t_fail(r, "only names can be assigned to");
    }
}

/* What a body renders, in a scope within another, as a string. */
static struct tvalue
capture(struct trun *r, const struct tnode *body, struct tscope *up,
        enum flow *flow)
{
    struct tbuf b = { .r = r }, *out = r->out;
    struct tscope *scope = r->scope;

    if (up)
        enter(r, up);
    r->out = &b;
    *flow = exec(r, body);
    r->out = out;
    r->scope = scope;
    return t_built(&b);
}

static void
exec_for(struct trun *r, const struct tnode *n)
{
    struct tscope *around = r->scope;
    struct tloop *loop = t_alloc(r, sizeof(*loop));
    struct tvalue all = eval(r, n->kid[1]), test = t_bool(true);
    struct tlist items;
    enum flow flow = DONE;

    r->line = n->line;
    items = t_iterate(r, &all);
    for (size_t i = 0; i < items.n && !r->failed; i++) {
        if (n->kid[3]) {
            enter(r, around);
            assign(r, n->kid[0], items.v[i]);
            test = eval(r, n->kid[3]);
        }
        if (t_true(&test))
            t_push(r, &loop->items, items.v[i]);
    }
    for (; loop->i < loop->items.n && flow != BREAK && !r->failed; loop->i++) {
        enter(r, around);
        set_variable(r, 0, (struct tvalue){ V_LOOP, { .loop = loop } });
        assign(r, n->kid[0], loop->items.v[loop->i]);
        flow = exec(r, n->kid[2]);
    }
    r->scope = around;
}

/* Where the text is that the model says: in that of the whole template, as
 * transformers counts. */
static void
exec_generation(struct trun *r, const struct tnode *n)
{
    struct rendered *out = r->rendered;
    size_t begin = r->whole->n;
    enum flow flow;
    struct tvalue v = capture(r, n->kid[0], r->scope, &flow);

    if (out->n_said == out->cap_said)
        out->said =
            xgrow(out->said, out->n_said, &out->cap_said, sizeof(*out->said));
    out->said[out->n_said++] =
        (struct rendered_span){ begin, begin + v.text->n };
    t_put_value(r->out, &v);
}

static enum flow
exec_one(struct trun *r, const struct tnode *n)
{
    enum flow flow = DONE;
    struct tvalue v;
    struct tmacro *macro;

    switch (n->op) {
    case T_DATA:
        t_put_value(r->out, &n->value);
        return DONE;
    case T_PRINT:
        v = eval(r, n->kid[0]);
        r->line = n->line;
        t_put_value(r->out, &v);
        return DONE;
    case T_SET:
        assign(r, n->kid[0], eval(r, n->kid[1]));
        return DONE;
    case T_CAPTURE:
        v = capture(r, n->kid[1], r->scope, &flow);
        if (flow == DONE)
            assign(r, n->kid[0], v);
        return flow;
    case T_IF:
        do { /* an elif is not a level deeper */
            v = eval(r, n->kid[0]);
            n = n->kid[t_true(&v) ? 1 : 2];
        } while (!t_true(&v) && n && n->op == T_IF && !n->next && !r->failed);
        return exec(r, n);
    case T_MACRO:
        macro = t_alloc(r, sizeof(*macro));
        *macro = (struct tmacro){ n, r->scope };
        set_variable(r, n->name,
                     (struct tvalue){ V_MACRO, { .macro = macro } });
        return DONE;
    case T_FOR:
        exec_for(r, n);
        return DONE;
    case T_GENERATION:
        exec_generation(r, n);
        return DONE;
    default:
        return n->op == T_BREAK ? BREAK : CONTINUE;
    }
}

/* Runs a list of statements. */
static enum flow
exec(struct trun *r, const struct tnode *n)
{
    enum flow flow = DONE;

    for (deeper(r); n && flow == DONE && t_step(r); n = n->next) {
        r->line = n->line;
        flow = exec_one(r, n);
    }
    r->depth--;
    return flow;
}

struct tvalue
t_loop_item(const struct tloop *loop, const struct tvalue *name)
{
    const int64_t i = (int64_t)loop->i, n = (int64_t)loop->items.n;
    const struct {
        const char *name;
        struct tvalue value;
    } all[] = {
        { "index", t_int(i + 1) },
        { "index0", t_int(i) },
        { "revindex", t_int(n - i) },
        { "revindex0", t_int(n - i - 1) },
        { "first", t_bool(i == 0) },
        { "last", t_bool(i + 1 == n) },
        { "length", t_int(n) },
        { "depth", t_int(1) },
        { "depth0", t_int(0) },
        { "previtem", i > 0 ? loop->items.v[i - 1] : T_GONE },
        { "nextitem", i + 1 < n ? loop->items.v[i + 1] : T_GONE },
    };

    for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++)
        if (t_is(name, all[k].name))
            return all[k].value;
    return T_GONE;
}

struct tvalue
t_call_macro(struct trun *r, const struct tmacro *macro, struct targs *a)
{
    struct tscope *around = r->scope;
    const struct tnode *k = macro->node->kid[0];
    size_t i = 0, used = 0;
    struct tvalue v;
    enum flow flow;

    enter(r, macro->scope);
    for (; k; k = k->next, i++) {
        const struct tvalue *given =
            i < a->n ? &a->v[i] : t_find(r, &a->named, &k->value);

        used += i >= a->n && given;
        v = k->value;
        v.kind = V_UNDEFINED;
        if (given || k->kid[0])
            v = given ? *given : eval(r, k->kid[0]);
        set_variable(r, k->name, v);
    }
    if (a->n > i || used < a->named.n / 2)
        t_fail(r, "macro '%s' has no such argument",
               r->t->names[macro->node->name]);
    v = capture(r, macro->node->kid[1], NULL, &flow);
    r->scope = around;
    return v;
}

void
t_render(struct trun *r)
{
    struct tbuf whole = { .r = r };
    struct rendered *out = r->rendered;

    r->out = r->whole = &whole;
    enter(r, NULL);
    exec(r, r->t->body);
    str_add(&out->text, whole.n ? whole.s : "", whole.n);
    for (size_t i = 0; i < whole.n; i++) {
        if (i == 0 || whole.from[i] != whole.from[i - 1]) {
            if (out->n_runs == out->cap_runs)
                out->runs = xgrow(out->runs, out->n_runs, &out->cap_runs,
                                  sizeof(*out->runs));
            out->runs[out->n_runs++].of = whole.from[i];
        }
        out->runs[out->n_runs - 1].end = i + 1;
    }
}
