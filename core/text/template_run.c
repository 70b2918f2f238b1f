/* SPDX-License-Identifier: ISC */
#include "core/text/template_run.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text/template_call.h"

/* The variables of a block; those of the whole template are in one without a
 * block around it. */
struct tmpl_scope {
    struct tmpl_scope *up;
    struct tmpl_variable {
        struct tmpl_variable *next;
        unsigned name;
        struct tmpl_value value;
    } * variables;
};

struct tmpl_macro {
    const struct tmpl_node *node;
    struct tmpl_scope *scope; /* that it was defined in */
};

/* A for as it runs.  Items are tested when they are looked at, one ahead, as a
 * test may depend on what the body changes. */
struct tmpl_loop {
    const struct tmpl_node *node;
    struct tmpl_scope *around;
    struct tmpl_list items;
    bool tested;  /* all that are left passed the test */
    size_t next;  /* of items */
    size_t index; /* of this round, 0, .. */
    bool has_after;
    struct tmpl_value before, current, after;
    struct tmpl_value changed; /* what changed() was last called with */
};

/* How a body ended. */
enum { DONE, BREAK, CONTINUE };

static int eval(struct tmpl_run *run, const struct tmpl_node *n,
                struct tmpl_value *out);
static int exec(struct tmpl_run *run, const struct tmpl_node *n);

static struct tmpl_value *
find_variable(const struct tmpl_scope *scope, unsigned name)
{
    for (struct tmpl_variable *v = scope->variables; v; v = v->next)
        if (v->name == name)
            return &v->value;
    return NULL;
}

static void
set_variable(struct tmpl_run *run, unsigned name, struct tmpl_value value)
{
    struct tmpl_value *old = find_variable(run->scope, name);
    struct tmpl_variable *v;

    if (old) {
        *old = value;
        return;
    }
    v = tmpl_alloc(&run->heap, sizeof(*v));
    *v = (struct tmpl_variable){ run->scope->variables, name, value };
    run->scope->variables = v;
}

static void
enter(struct tmpl_run *run, struct tmpl_scope *up)
{
    struct tmpl_scope *scope = tmpl_alloc(&run->heap, sizeof(*scope));

    scope->up = up;
    run->scope = scope;
}

/* A variable that the caller gives, of which the texts of messages[i] are i + 1
 * and special tokens the template's own; or a function. */
static struct tmpl_value
global(struct tmpl_run *run, const struct tmpl_text *name)
{
    struct tmpl_value key = { .kind = TMPL_TEXT, .text = name }, v;
    char *word = xstrndup(name->s, name->n);
    const json_t *json = json_object_get(run->vars, word);
    bool token = str_ends(word, "_token") != NULL;
    const struct tmpl_callable *row = tmpl_lookup(tmpl_functions, &key);

    free(word);
    if (json && tmpl_is(&key, "messages") && json_is_array(json)) {
        v = tmpl_list(&run->heap, TMPL_LIST);
        for (size_t i = 0; i < json_array_size(json); i++)
            tmpl_push(&run->heap, v.list,
                      tmpl_json(&run->heap, json_array_get(json, i),
                                (uint32_t)i + 1, 1));
        return v;
    }
    if (json)
        return tmpl_json(&run->heap, json, token ? 0 : RENDERED_DATA, 0);
    if (row) {
        struct tmpl_bound *bound = tmpl_alloc(&run->heap, sizeof(*bound));

        bound->callable = row;
        return (struct tmpl_value){ .kind = TMPL_FUNCTION, .function = bound };
    }
    return tmpl_undefined(run, NULL, key);
}

static struct tmpl_value
get_variable(struct tmpl_run *run, unsigned name)
{
    for (const struct tmpl_scope *s = run->scope; s; s = s->up) {
        const struct tmpl_value *v = find_variable(s, name);

        if (v)
            return *v;
    }
    if (run->globals[name].kind == TMPL_ABSENT)
        run->globals[name] = global(run, run->tree->names.v[name]);
    return run->globals[name];
}

/* The values of a list of expressions. */
static int
eval_list(struct tmpl_run *run, const struct tmpl_node *n,
          struct tmpl_list *list)
{
    for (; n; n = n->next) {
        struct tmpl_value v;

        if (eval(run, n, &v) < 0)
            return -1;
        tmpl_push(&run->heap, list, v);
    }
    return 0;
}

static int
eval_dict(struct tmpl_run *run, const struct tmpl_node *n,
          struct tmpl_value *out)
{
    *out = tmpl_dict(&run->heap);
    for (const struct tmpl_node *k = n->kid[0]; k; k = k->next->next) {
        struct tmpl_value key, value;

        if (eval(run, k, &key) < 0 || eval(run, k->next, &value) < 0)
            return -1;
        if (key.kind == TMPL_LIST || key.kind == TMPL_DICT)
            return tmpl_fail(run, "unhashable type: '%s'", tmpl_type(&key));
        tmpl_set(&run->heap, out->dict, key, value);
    }
    return 0;
}

/* The arguments, after what is 'piped' into a filter or test. */
static int
eval_args(struct tmpl_run *run, const struct tmpl_node *list,
          const struct tmpl_value *piped, struct tmpl_args *args)
{
    size_t n = 1;

    for (const struct tmpl_node *k = list; k; k = k->next)
        n++;
    *args = (struct tmpl_args){ 0 };
    args->v = tmpl_alloc(&run->heap, n * sizeof(*args->v));
    args->named = tmpl_alloc(&run->heap, n * sizeof(*args->named));
    if (piped)
        args->v[args->n++] = *piped;
    else
        args->v++; /* room for what a method is of */
    for (const struct tmpl_node *k = list; k; k = k->next) {
        struct tmpl_value v;

        if (eval(run, k->kid[0], &v) < 0)
            return -1;
        if (k->value.kind == TMPL_TEXT)
            args->named[args->n_named++] = (struct tmpl_pair){ k->value, v };
        else
            args->v[args->n++] = v;
    }
    return 0;
}

static int
eval_named(struct tmpl_run *run, const struct tmpl_node *n,
           struct tmpl_value *out)
{
    const char *noun = n->op == TMPL_OP_FILTER ? "filter" : "test";
    struct tmpl_value of;
    struct tmpl_args args;

    if (eval(run, n->kid[0], &of) < 0 ||
        eval_args(run, n->kid[1], &of, &args) < 0)
        return -1;
    run->line = n->line;
    return tmpl_call_named(run, noun, &n->value, &args, out);
}

static int
eval_call(struct tmpl_run *run, const struct tmpl_node *n,
          const struct tmpl_value *caller, struct tmpl_value *out)
{
    struct tmpl_value what;
    struct tmpl_args args;

    if (eval(run, n->kid[0], &what) < 0 ||
        eval_args(run, n->kid[1], NULL, &args) < 0)
        return -1;
    if (caller) {
        struct tmpl_value name = tmpl_text(&run->heap, "caller", 6, 0);

        args.named[args.n_named++] = (struct tmpl_pair){ name, *caller };
    }
    run->line = n->line;
    return tmpl_call(run, &what, &args, out);
}

static int
eval_compare(struct tmpl_run *run, const struct tmpl_node *n,
             struct tmpl_value *out)
{
    struct tmpl_value left, right;
    bool is = true;

    if (eval(run, n->kid[0], &left) < 0)
        return -1;
    for (const struct tmpl_node *k = n->kid[1]; k && is; k = k->next) {
        if (eval(run, k->kid[0], &right) < 0)
            return -1;
        run->line = k->line;
        if (tmpl_compare(run, k->op, &left, &right, &is) < 0)
            return -1;
        left = right;
    }
    *out = tmpl_bool(is);
    return 0;
}

static int
eval_slice(struct tmpl_run *run, const struct tmpl_node *n,
           const struct tmpl_value *of, struct tmpl_value *out)
{
    struct tmpl_value bounds[3];

    for (int i = 0; i < 3; i++) {
        bounds[i] = TMPL_NONE_VALUE;
        if (n->kid[i + 1] && eval(run, n->kid[i + 1], &bounds[i]) < 0)
            return -1;
    }
    run->line = n->line;
    return tmpl_slice(run, of, bounds, out);
}

static int
eval_concat(struct tmpl_run *run, const struct tmpl_node *n,
            struct tmpl_value *out)
{
    struct tmpl_builder b = { .heap = &run->heap };
    struct tmpl_value v;

    for (const struct tmpl_node *k = n->kid[0]; k; k = k->next) {
        if (eval(run, k, &v) < 0)
            return -1;
        run->line = n->line;
        if (tmpl_put_value(run, &b, &v) < 0)
            return -1;
    }
    *out = tmpl_built(&b);
    return 0;
}

static int
eval_op(struct tmpl_run *run, const struct tmpl_node *n, struct tmpl_value *out)
{
    struct tmpl_value a = TMPL_NONE_VALUE, b;

    switch (n->op) {
    case TMPL_OP_CONST:
        *out = n->value;
        return 0;
    case TMPL_OP_VARIABLE:
        *out = get_variable(run, n->name);
        return 0;
    case TMPL_OP_PIPED:
        *out = run->piped;
        return 0;
    case TMPL_OP_LIST:
    case TMPL_OP_TUPLE:
        *out = tmpl_list(&run->heap,
                         n->op == TMPL_OP_LIST ? TMPL_LIST : TMPL_TUPLE);
        return eval_list(run, n->kid[0], out->list);
    case TMPL_OP_DICT:
        return eval_dict(run, n, out);
    case TMPL_OP_FILTER:
    case TMPL_OP_TEST:
        return eval_named(run, n, out);
    case TMPL_OP_CALL:
        return eval_call(run, n, NULL, out);
    case TMPL_OP_COMPARE:
        return eval_compare(run, n, out);
    case TMPL_OP_CONCAT:
        return eval_concat(run, n, out);
    default:
        break;
    }
    if (eval(run, n->kid[0], &a) < 0)
        return -1;
    switch (n->op) {
    case TMPL_OP_ATTRIBUTE:
        run->line = n->line;
        return tmpl_attribute(run, &a, &n->value, out);
    case TMPL_OP_SLICE:
        return eval_slice(run, n, &a, out);
    case TMPL_OP_CONDITION:
        if (tmpl_true(&a))
            return eval(run, n->kid[1], out);
        if (n->kid[2])
            return eval(run, n->kid[2], out);
        *out = tmpl_undefined_hint(run, "the inline if-expression evaluated to "
                                        "false and no else section was "
                                        "defined.");
        return 0;
    case TMPL_OP_OR:
    case TMPL_OP_AND:
        *out = a;
        return tmpl_true(&a) == (n->op == TMPL_OP_OR)
                   ? 0
                   : eval(run, n->kid[1], out);
    case TMPL_OP_NOT:
        *out = tmpl_bool(!tmpl_true(&a));
        return 0;
    case TMPL_OP_NEG:
    case TMPL_OP_POS:
        run->line = n->line;
        return tmpl_unary(run, n->op, &a, out);
    default:
        break;
    }
    if (eval(run, n->kid[1], &b) < 0)
        return -1;
    run->line = n->line;
    if (n->op == TMPL_OP_ITEM)
        return tmpl_item(run, &a, &b, out);
    return tmpl_binary(run, n->op, &a, &b, out);
}

/* Is there room for one more call of itself? */
static int
deeper(struct tmpl_run *run)
{
    if (run->depth < TEMPLATE_MAX_DEPTH) {
        run->depth++;
        return 0;
    }
    return tmpl_fail(run, "runs more than %d levels deep", TEMPLATE_MAX_DEPTH);
}

static int
eval(struct tmpl_run *run, const struct tmpl_node *n, struct tmpl_value *out)
{
    int rc;

    run->line = n->line;
    if (tmpl_step(run) < 0 || deeper(run) < 0)
        return -1;
    rc = eval_op(run, n, out);
    run->depth--;
    return rc;
}

/* Gives a target, a name or several, its value. */
static int
assign(struct tmpl_run *run, const struct tmpl_node *target,
       struct tmpl_value value)
{
    struct tmpl_list list;
    size_t n = 0;

    run->line = target->line;
    if (target->op == TMPL_OP_MEMBER) {
        struct tmpl_value ns = get_variable(run, target->name);

        if (ns.kind != TMPL_NAMESPACE)
            return tmpl_fail(run,
                             "cannot assign attribute on non-namespace object");
        tmpl_set(&run->heap, ns.dict, target->value, value);
        return 0;
    }
    if (target->op == TMPL_OP_VARIABLE) {
        set_variable(run, target->name, value);
        return 0;
    }
    for (const struct tmpl_node *k = target->kid[0]; k; k = k->next)
        n++;
    if (value.kind < TMPL_TEXT && value.kind != TMPL_UNDEFINED)
        return tmpl_fail(run, "cannot unpack non-iterable %s object",
                         tmpl_type(&value));
    if (tmpl_iterate(run, &value, &list) < 0)
        return -1;
    if (list.n < n)
        return tmpl_fail(run,
                         "not enough values to unpack (expected %zu, got %zu)",
                         n, list.n);
    if (list.n > n)
        return tmpl_fail(run, "too many values to unpack (expected %zu)", n);
    n = 0;
    for (const struct tmpl_node *k = target->kid[0]; k; k = k->next)
        set_variable(run, k->name, list.v[n++]);
    return 0;
}

/* What a body renders, as a string: how it ended, or -1. */
static int
capture(struct tmpl_run *run, const struct tmpl_node *body,
        struct tmpl_value *out)
{
    struct tmpl_builder b = { .heap = &run->heap }, *around = run->out;
    int rc;

    run->out = &b;
    rc = exec(run, body);
    run->out = around;
    *out = tmpl_built(&b);
    return rc;
}

/* Looks for the item after this one. */
static int
look_ahead(struct tmpl_run *run, struct tmpl_loop *loop)
{
    struct tmpl_scope *scope = run->scope;
    const struct tmpl_node *test = loop->tested ? NULL : loop->node->kid[4];
    struct tmpl_value is = tmpl_bool(true);
    int rc = 0;

    while (rc == 0 && !loop->has_after && loop->next < loop->items.n) {
        loop->after = loop->items.v[loop->next++];
        if (test) {
            enter(run, loop->around);
            rc = assign(run, loop->node->kid[0], loop->after);
            rc = rc < 0 ? rc : eval(run, test, &is);
        }
        loop->has_after = rc == 0 && tmpl_true(&is);
    }
    run->scope = scope;
    return rc;
}

/* How many items the loop has, all of them tested. */
static int
count_items(struct tmpl_run *run, struct tmpl_loop *loop, size_t *n)
{
    struct tmpl_list left = { 0 };

    if (!loop->tested && loop->node->kid[4]) {
        struct tmpl_value after = loop->after;
        bool had = loop->has_after;

        loop->has_after = false;
        while (loop->next < loop->items.n) {
            if (look_ahead(run, loop) < 0)
                return -1;
            if (loop->has_after)
                tmpl_push(&run->heap, &left, loop->after);
            loop->has_after = false;
        }
        loop->items = left;
        loop->next = 0;
        loop->after = after;
        loop->has_after = had;
    }
    loop->tested = true;
    *n = loop->index + 1 + loop->has_after + (loop->items.n - loop->next);
    return 0;
}

int
tmpl_loop_attribute(struct tmpl_run *run, struct tmpl_loop *loop,
                    const struct tmpl_value *name, struct tmpl_value *out)
{
    size_t n;

    if (tmpl_is(name, "index") || tmpl_is(name, "index0")) {
        *out = tmpl_int((int64_t)loop->index + tmpl_is(name, "index"));
    } else if (tmpl_is(name, "first")) {
        *out = tmpl_bool(loop->index == 0);
    } else if (tmpl_is(name, "last") || tmpl_is(name, "nextitem")) {
        if (look_ahead(run, loop) < 0)
            return -1;
        *out = tmpl_is(name, "last") ? tmpl_bool(!loop->has_after)
               : loop->has_after
                   ? loop->after
                   : tmpl_undefined_hint(run, "there is no next item");
    } else if (tmpl_is(name, "previtem")) {
        *out = loop->index > 0
                   ? loop->before
                   : tmpl_undefined_hint(run, "there is no previous item");
    } else if (tmpl_is(name, "length") || tmpl_is(name, "revindex") ||
               tmpl_is(name, "revindex0")) {
        if (count_items(run, loop, &n) < 0)
            return -1;
        n -= tmpl_is(name, "length") ? 0 : loop->index;
        *out = tmpl_int((int64_t)n - tmpl_is(name, "revindex0"));
    } else if (tmpl_is(name, "depth") || tmpl_is(name, "depth0")) {
        *out = tmpl_int(tmpl_is(name, "depth"));
    }
    return 0;
}

static int
exec_for(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_scope *around = run->scope;
    struct tmpl_value list,
        it = { .kind = TMPL_LOOP,
               .loop = tmpl_alloc(&run->heap, sizeof(*it.loop)) };
    struct tmpl_loop *loop = it.loop;
    int rc = 0;

    if (eval(run, n->kid[1], &list) < 0)
        return -1;
    loop->node = n;
    loop->around = around;
    run->line = n->line;
    if (tmpl_iterate(run, &list, &loop->items) < 0)
        return -1;
    for (loop->index = SIZE_MAX; rc == DONE || rc == CONTINUE;) {
        rc = look_ahead(run, loop);
        if (rc < 0 || !loop->has_after)
            break;
        loop->index++;
        loop->before = loop->current;
        loop->current = loop->after;
        loop->has_after = false;
        enter(run, around);
        set_variable(run, run->tree->loop, it);
        rc = assign(run, n->kid[0], loop->current);
        if (rc == 0)
            rc = exec(run, n->kid[2]);
    }
    run->scope = around;
    if (rc >= 0 && loop->index == SIZE_MAX && n->kid[3]) {
        enter(run, around);
        rc = exec(run, n->kid[3]);
        run->scope = around;
        return rc;
    }
    return rc < 0 ? rc : DONE;
}

static int
exec_if(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value test;

    for (; n && n->op == TMPL_OP_IF; n = n->kid[2]) {
        if (eval(run, n->kid[0], &test) < 0)
            return -1;
        if (tmpl_true(&test))
            return exec(run, n->kid[1]);
        if (n->kid[2] && n->kid[2]->next)
            return exec(run, n->kid[2]);
    }
    return exec(run, n);
}

static int
exec_output(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v;

    if (eval(run, n->kid[0], &v) < 0)
        return -1;
    run->line = n->line;
    return tmpl_put_value(run, run->out, &v);
}

static int
exec_set(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v;

    return eval(run, n->kid[1], &v) < 0 ? -1 : assign(run, n->kid[0], v);
}

/* A block whose body becomes a value, through filters: {% set %}, {% filter %}
 */
static int
exec_block(struct tmpl_run *run, const struct tmpl_node *n)
{
    bool set = n->op == TMPL_OP_SET_BLOCK;
    const struct tmpl_node *filters = n->kid[set ? 1 : 0];
    struct tmpl_scope *around = run->scope;
    struct tmpl_value v, piped = run->piped;
    int rc;

    enter(run, around);
    rc = capture(run, n->kid[set ? 2 : 1], &v);
    if (rc == DONE) {
        run->piped = v;
        rc = eval(run, filters, &v);
        run->piped = piped;
    }
    run->scope = around;
    if (rc != DONE)
        return rc;
    return set ? assign(run, n->kid[0], v) : tmpl_put_value(run, run->out, &v);
}

static int
exec_with(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_scope *around = run->scope, *inner;
    int rc = 0;

    enter(run, around);
    inner = run->scope;
    for (const struct tmpl_node *k = n->kid[0]; k && rc == 0; k = k->next) {
        struct tmpl_value v;

        run->scope = around; /* values do not see each other */
        rc = eval(run, k->kid[1], &v);
        run->scope = inner;
        if (rc == 0)
            rc = assign(run, k->kid[0], v);
    }
    if (rc == 0)
        rc = exec(run, n->kid[1]);
    run->scope = around;
    return rc;
}

static struct tmpl_value
make_macro(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_macro *macro = tmpl_alloc(&run->heap, sizeof(*macro));

    *macro = (struct tmpl_macro){ n, run->scope };
    return (struct tmpl_value){ .kind = TMPL_MACRO, .macro = macro };
}

static int
exec_call_block(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value caller = make_macro(run, n->kid[0]), v;

    run->line = n->line;
    if (eval_call(run, n->kid[1], &caller, &v) < 0)
        return -1;
    return tmpl_put_value(run, run->out, &v);
}

/* Where the text is that the model says: in that of the whole template, as
 * transformers counts. */
static int
exec_generation(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct rendered *r = run->rendered;
    struct tmpl_scope *around = run->scope;
    struct tmpl_value v;
    size_t begin = run->whole.n;

    enter(run, around);
    if (capture(run, n->kid[0], &v) < 0)
        return -1;
    run->scope = around;
    if (r->n_said == r->cap_said)
        r->said = xgrow(r->said, r->n_said, &r->cap_said, sizeof(*r->said));
    r->said[r->n_said++] = (struct rendered_span){ begin, begin + v.text->n };
    return tmpl_put_value(run, run->out, &v);
}

/* Runs a list of statements: how it ended, or -1. */
static int
exec(struct tmpl_run *run, const struct tmpl_node *n)
{
    int rc = deeper(run);

    for (; n && rc == DONE; n = n->next) {
        run->line = n->line;
        if (tmpl_step(run) < 0)
            return -1;
        switch (n->op) {
        case TMPL_OP_DATA:
            tmpl_put_text(run->out, n->value.text);
            break;
        case TMPL_OP_OUTPUT:
            rc = exec_output(run, n);
            break;
        case TMPL_OP_IF:
            rc = exec_if(run, n);
            break;
        case TMPL_OP_FOR:
            rc = exec_for(run, n);
            break;
        case TMPL_OP_SET:
            rc = exec_set(run, n);
            break;
        case TMPL_OP_SET_BLOCK:
        case TMPL_OP_FILTER_BLOCK:
            rc = exec_block(run, n);
            break;
        case TMPL_OP_WITH:
            rc = exec_with(run, n);
            break;
        case TMPL_OP_MACRO:
            set_variable(run, n->name, make_macro(run, n));
            break;
        case TMPL_OP_CALL_BLOCK:
            rc = exec_call_block(run, n);
            break;
        case TMPL_OP_GENERATION:
            rc = exec_generation(run, n);
            break;
        case TMPL_OP_BREAK:
            rc = BREAK;
            break;
        default: /* TMPL_OP_CONTINUE */
            rc = CONTINUE;
        }
    }
    run->depth--;
    return rc;
}

/* The argument of that name, which is taken; else absent. */
static struct tmpl_value
take_named(struct tmpl_args *args, const struct tmpl_text *name)
{
    struct tmpl_value v = { .kind = TMPL_ABSENT };

    for (size_t i = 0; i < args->n_named; i++) {
        const struct tmpl_text *key = args->named[i].key.text;

        if (key->n != name->n || memcmp(key->s, name->s, key->n) != 0)
            continue;
        v = args->named[i].value;
        args->named[i] = args->named[--args->n_named];
        break;
    }
    return v;
}

/* Sets the parameters, in the macro's new scope. */
static int
bind_parameters(struct tmpl_run *run, const struct tmpl_node *macro,
                struct tmpl_args *args)
{
    const struct tmpl_names *names = &run->tree->names;
    const struct tmpl_text *name = names->v[macro->name];
    size_t i = 0;

    for (const struct tmpl_node *k = macro->kid[0]; k; k = k->next, i++) {
        struct tmpl_value v =
            i < args->n ? args->v[i] : take_named(args, names->v[k->name]);

        if (v.kind == TMPL_ABSENT && k->kid[0]) {
            if (eval(run, k->kid[0], &v) < 0)
                return -1;
        } else if (v.kind == TMPL_ABSENT) {
            struct str hint = { 0 };
            char *kept;

            str_addf(&hint, "parameter '%.*s' was not provided",
                     (int)smaller(names->v[k->name]->n, 100),
                     names->v[k->name]->s);
            kept = tmpl_alloc(&run->heap, hint.n + 1);
            memcpy(kept, hint.s, hint.n);
            str_free(&hint);
            v = tmpl_undefined_hint(run, kept);
        }
        set_variable(run, k->name, v);
    }
    struct tmpl_value caller = take_named(args, names->v[run->tree->caller]);

    if (caller.kind != TMPL_ABSENT)
        set_variable(run, run->tree->caller, caller);
    if (args->n_named > 0)
        return tmpl_fail(run, "macro '%.*s' takes no keyword argument '%.*s'",
                         (int)smaller(name->n, 100), name->s,
                         (int)smaller(args->named[0].key.text->n, 100),
                         args->named[0].key.text->s);
    if (args->n > i)
        return tmpl_fail(run,
                         "macro '%.*s' takes not more than %zu "
                         "argument(s)",
                         (int)smaller(name->n, 100), name->s, i);
    return 0;
}

int
tmpl_call_macro(struct tmpl_run *run, const struct tmpl_macro *macro,
                struct tmpl_args *args, struct tmpl_value *out)
{
    struct tmpl_scope *around = run->scope;
    unsigned line = run->line;
    int rc;

    enter(run, macro->scope);
    rc = bind_parameters(run, macro->node, args);
    if (rc == 0)
        rc = capture(run, macro->node->kid[1], out);
    run->scope = around;
    if (rc == 0)
        run->line = line;
    return rc;
}

int
tmpl_run(struct tmpl_run *run)
{
    run->whole.heap = &run->heap;
    run->out = &run->whole;
    enter(run, NULL);
    if (exec(run, run->tree->body) < 0)
        return -1;
    return run->heap.over ? tmpl_step(run) : 0;
}
