/* SPDX-License-Identifier: ISC */
/* Python's operators on values, members and slices. */
#include "core/text/template_run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/pyjson.h"
#include "core/text/template_call.h"
#include "core/text/template_str.h"

int
tmpl_fail(struct tmpl_run *run, const char *fmt, ...)
{
    struct str what = { 0 };
    va_list ap;

    va_start(ap, fmt);
    str_addv(&what, fmt, ap);
    va_end(ap);
    err_set(run->err, EX_DATAERR, "%s: line %u: %s", run->name, run->line,
            what.s);
    str_free(&what);
    return -1;
}

int
tmpl_step(struct tmpl_run *run)
{
    if (run->heap.over)
        return tmpl_fail(run, "%s", run->heap.over);
    if (++run->n_steps + run->heap.work / 64 > TEMPLATE_MAX_STEPS)
        return tmpl_fail(run, "runs for more than %zu steps",
                         TEMPLATE_MAX_STEPS);
    return 0;
}

struct tmpl_value
tmpl_undefined(struct tmpl_run *run, const struct tmpl_value *of,
               struct tmpl_value name)
{
    struct tmpl_missing *missing = tmpl_alloc(&run->heap, sizeof(*missing));

    missing->of = !of ? NULL : of->kind == TMPL_NONE ? "None" : tmpl_type(of);
    missing->name = name;
    return (struct tmpl_value){ .kind = TMPL_UNDEFINED, .missing = missing };
}

struct tmpl_value
tmpl_undefined_hint(struct tmpl_run *run, const char *hint)
{
    struct tmpl_missing *missing = tmpl_alloc(&run->heap, sizeof(*missing));

    missing->hint = hint;
    return (struct tmpl_value){ .kind = TMPL_UNDEFINED, .missing = missing };
}

int
tmpl_fail_undefined(struct tmpl_run *run, const struct tmpl_value *v)
{
    const struct tmpl_missing *m = v->missing;
    const char *object = m->of && strcmp(m->of, "None") != 0 ? " object" : "";

    if (m->hint)
        return tmpl_fail(run, "%s", m->hint);
    if (m->name.kind == TMPL_INT)
        return tmpl_fail(run, "%s%s has no element %lld", m->of, object,
                         (long long)m->name.i);
    if (m->name.kind != TMPL_TEXT)
        return tmpl_fail(run, "%s%s has no such element", m->of, object);
    if (!m->of)
        return tmpl_fail(run, "'%.*s' is undefined",
                         (int)smaller(m->name.text->n, 200), m->name.text->s);
    return tmpl_fail(run, "'%s%s' has no attribute '%.*s'", m->of, object,
                     (int)smaller(m->name.text->n, 200), m->name.text->s);
}

int
tmpl_put_value(struct tmpl_run *run, struct tmpl_builder *b,
               const struct tmpl_value *v)
{
    struct str s = { 0 };

    switch (v->kind) {
    case TMPL_ABSENT:
    case TMPL_UNDEFINED:
        return 0;
    case TMPL_TEXT:
        tmpl_put_text(b, v->text);
        return 0;
    case TMPL_NONE:
        str_adds(&s, "None");
        break;
    case TMPL_BOOL:
        str_adds(&s, v->b ? "True" : "False");
        break;
    case TMPL_INT:
        str_addf(&s, "%lld", (long long)v->i);
        break;
    case TMPL_FLOAT:
        if (isnan(v->f) || isinf(v->f))
            str_adds(&s, isnan(v->f) ? "nan" : v->f < 0 ? "-inf" : "inf");
        else
            py_float_repr(&s, v->f);
        break;
    default:
        return tmpl_fail(run,
                         "a %s as text has Python's spelling, which is not "
                         "supported (tojson and join are)",
                         tmpl_type(v));
    }
    tmpl_put(b, s.s, s.n, 0);
    str_free(&s);
    return 0;
}

int
tmpl_str(struct tmpl_run *run, const struct tmpl_value *v,
         const struct tmpl_text **text)
{
    struct tmpl_builder b = { .heap = &run->heap };

    *text = v->text;
    if (v->kind == TMPL_TEXT)
        return 0;
    if (tmpl_put_value(run, &b, v) < 0)
        return -1;
    *text = tmpl_built(&b).text;
    return 0;
}

int
tmpl_iterate(struct tmpl_run *run, const struct tmpl_value *v,
             struct tmpl_list *list)
{
    *list = (struct tmpl_list){ 0 };
    switch (v->kind) {
    case TMPL_UNDEFINED:
        return 0;
    case TMPL_LIST: /* pop() may change it */
        for (size_t i = 0; i < v->list->n; i++)
            tmpl_push(&run->heap, list, v->list->v[i]);
        return 0;
    case TMPL_TUPLE:
    case TMPL_RANGE:
    case TMPL_VIEW:
        *list = *v->list;
        return 0;
    case TMPL_ITER:
        list->v = v->list->v + v->list->read;
        list->n = v->list->n - v->list->read;
        v->list->read = v->list->n;
        return 0;
    case TMPL_DICT:
        for (size_t i = 0; i < v->dict->n; i++)
            tmpl_push(&run->heap, list, v->dict->pairs[i].key);
        return 0;
    case TMPL_TEXT:
        for (size_t at = 0, to; at < v->text->n && !run->heap.over; at = to) {
            for (to = at + 1; to < v->text->n &&
                              ((unsigned char)v->text->s[to] & 0xc0) == 0x80;)
                to++;
            tmpl_push(&run->heap, list, tmpl_cut(&run->heap, v->text, at, to));
        }
        return 0;
    default:
        return tmpl_fail(run, "'%s' object is not iterable", tmpl_type(v));
    }
}

int
tmpl_length(struct tmpl_run *run, const struct tmpl_value *v, size_t *n)
{
    switch (v->kind) {
    case TMPL_UNDEFINED:
        *n = 0;
        return 0;
    case TMPL_TEXT:
        *n = v->text->n_chars;
        return 0;
    case TMPL_LIST:
    case TMPL_TUPLE:
    case TMPL_RANGE:
    case TMPL_VIEW:
        *n = v->list->n;
        return 0;
    case TMPL_DICT:
        *n = v->dict->n;
        return 0;
    default:
        return tmpl_fail(run, "object of type '%s' has no len()", tmpl_type(v));
    }
}

static bool
is_sequence(const struct tmpl_value *v)
{
    return v->kind >= TMPL_LIST && v->kind <= TMPL_RANGE;
}

/* The method of a value, or absent. */
static struct tmpl_value
method(struct tmpl_run *run, const struct tmpl_value *of,
       const struct tmpl_value *name)
{
    const struct tmpl_callable *row =
        of->kind == TMPL_TEXT    ? tmpl_lookup(tmpl_methods_of_text, name)
        : of->kind == TMPL_LIST  ? tmpl_lookup(tmpl_methods_of_list, name)
        : of->kind == TMPL_TUPLE ? tmpl_lookup(tmpl_methods_of_tuple, name)
        : of->kind == TMPL_DICT  ? tmpl_lookup(tmpl_methods_of_dict, name)
        : of->kind == TMPL_LOOP  ? tmpl_lookup(tmpl_methods_of_loop, name)
                                 : NULL;
    struct tmpl_bound *bound;
    struct str hint = { 0 };
    struct tmpl_value v = { .kind = TMPL_ABSENT };

    if (row && row->call) {
        bound = tmpl_alloc(&run->heap, sizeof(*bound));
        *bound = (struct tmpl_bound){ row, *of };
        v.kind = TMPL_FUNCTION;
        v.function = bound;
    } else if (row || (name->text->n > 2 && !memcmp(name->text->s, "__", 2))) {
        char *kept;

        str_addf(&hint, "access to attribute '%.*s' of '%s' object is unsafe.",
                 (int)smaller(name->text->n, 100), name->text->s,
                 tmpl_type(of));
        kept = tmpl_alloc(&run->heap, hint.n + 1);
        memcpy(kept, hint.s, hint.n);
        str_free(&hint);
        v = tmpl_undefined_hint(run, kept);
    }
    return v;
}

/* of[key] where there is such an item, else absent: -1 with the error set if
 * 'of' is undefined. */
static int
item(struct tmpl_run *run, const struct tmpl_value *of,
     const struct tmpl_value *key, struct tmpl_value *out)
{
    int64_t i;

    *out = (struct tmpl_value){ .kind = TMPL_ABSENT };
    if (of->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, of);
    if (of->kind == TMPL_DICT) {
        const struct tmpl_value *v = tmpl_find(&run->heap, of->dict, key);

        if (v)
            *out = *v;
        return 0;
    }
    if (!tmpl_is_int(key))
        return 0;
    i = tmpl_as_int(key);
    if (is_sequence(of)) {
        i += i < 0 ? (int64_t)of->list->n : 0;
        if (i >= 0 && (size_t)i < of->list->n)
            *out = of->list->v[i];
    } else if (of->kind == TMPL_TEXT) {
        i += i < 0 ? (int64_t)of->text->n_chars : 0;
        if (i >= 0 && (size_t)i < of->text->n_chars) {
            size_t at = tmpl_byte_at(of->text, (size_t)i);

            run->heap.work += of->text->n_chars < of->text->n ? 2 * at : 0;
            *out = tmpl_cut(&run->heap, of->text, at,
                            tmpl_byte_at(of->text, (size_t)i + 1));
        }
    }
    return 0;
}

int
tmpl_attribute(struct tmpl_run *run, const struct tmpl_value *of,
               const struct tmpl_value *name, struct tmpl_value *out)
{
    if (of->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, of);
    *out = method(run, of, name);
    if (of->kind == TMPL_NAMESPACE) {
        const struct tmpl_value *v = tmpl_find(&run->heap, of->dict, name);

        if (v)
            *out = *v;
    } else if (of->kind == TMPL_LOOP && out->kind == TMPL_ABSENT &&
               tmpl_loop_attribute(run, of->loop, name, out) < 0) {
        return -1;
    }
    if (out->kind == TMPL_ABSENT && item(run, of, name, out) < 0)
        return -1;
    if (out->kind == TMPL_ABSENT)
        *out = tmpl_undefined(run, of, *name);
    return 0;
}

int
tmpl_item(struct tmpl_run *run, const struct tmpl_value *of,
          const struct tmpl_value *key, struct tmpl_value *out)
{
    if (item(run, of, key, out) < 0)
        return -1;
    if (out->kind == TMPL_ABSENT && key->kind == TMPL_TEXT)
        return tmpl_attribute(run, of, key, out);
    if (out->kind == TMPL_ABSENT)
        *out = tmpl_undefined(run, of, *key);
    return 0;
}

/* Python's slice.indices() of a bound: within 0 .. n, or -1 .. n - 1 for steps
 * down. */
static int64_t
clip(int64_t i, int64_t n, bool down)
{
    if (i < 0)
        i = i < -n ? -1 : i + n;
    if (i < 0)
        return down ? -1 : 0;
    return i >= n ? (down ? n - 1 : n) : i;
}

/* The characters of a string from 'start' on, each 'step' further. */
static struct tmpl_value
slice_text(struct tmpl_run *run, const struct tmpl_text *text, int64_t start,
           int64_t stop, int64_t step)
{
    struct tmpl_builder b = { .heap = &run->heap, .markup = text->markup };
    bool ascii = text->n == text->n_chars;

    run->heap.work += ascii ? 0 : text->n;
    if (step == 1) {
        size_t from = tmpl_byte_at(text, (size_t)start);

        return tmpl_cut(&run->heap, text, from,
                        larger(from, tmpl_byte_at(text, (size_t)stop)));
    }
    for (size_t at = tmpl_byte_at(text, start < 0 ? 0 : (size_t)start), to;
         step > 0 ? start < stop : start > stop;) {
        for (to = at + 1;
             to < text->n && ((unsigned char)text->s[to] & 0xc0) == 0x80;)
            to++;
        tmpl_put_cut(&b, text, at, to);
        if (run->heap.over || __builtin_add_overflow(start, step, &start))
            break;
        if (ascii) {
            at = (size_t)start;
        } else if (step > 0) {
            for (int64_t k = 0; k < step && to < text->n; k++)
                for (at = to++; to < text->n &&
                                ((unsigned char)text->s[to] & 0xc0) == 0x80;)
                    to++;
        } else {
            for (int64_t k = 0; k > step && at > 0; k--)
                while (at > 0 && ((unsigned char)text->s[--at] & 0xc0) == 0x80)
                    ;
        }
    }
    return tmpl_built(&b);
}

int
tmpl_slice(struct tmpl_run *run, const struct tmpl_value *of,
           const struct tmpl_value bounds[3], struct tmpl_value *out)
{
    int64_t at[3], n;

    if (of->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, of);
    if (!is_sequence(of) && of->kind != TMPL_TEXT)
        return of->kind == TMPL_DICT
                   ? tmpl_fail(run, "unhashable type: 'slice'")
                   : tmpl_fail(run, "'%s' object is not subscriptable",
                               tmpl_type(of));
    for (int i = 0; i < 3; i++) {
        at[i] = 1;
        if (tmpl_is_int(&bounds[i]))
            at[i] = tmpl_as_int(&bounds[i]);
        else if (bounds[i].kind != TMPL_NONE)
            return tmpl_fail(run, "slice indices must be integers or None");
    }
    if (at[2] == 0)
        return tmpl_fail(run, "slice step cannot be zero");
    n = (int64_t)(of->kind == TMPL_TEXT ? of->text->n_chars : of->list->n);
    at[0] = bounds[0].kind == TMPL_NONE ? (at[2] > 0 ? 0 : n - 1)
                                        : clip(at[0], n, at[2] < 0);
    at[1] = bounds[1].kind == TMPL_NONE ? (at[2] > 0 ? n : -1)
                                        : clip(at[1], n, at[2] < 0);
    if (of->kind == TMPL_TEXT) {
        *out = slice_text(run, of->text, at[0], at[1], at[2]);
        return 0;
    }
    *out = tmpl_list(&run->heap, of->kind);
    for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1];) {
        tmpl_push(&run->heap, out->list, of->list->v[i]);
        if (__builtin_add_overflow(i, at[2], &i))
            break;
    }
    return 0;
}

static int
no_operator(struct tmpl_run *run, const char *sign, const struct tmpl_value *a,
            const struct tmpl_value *b)
{
    if (a->kind == TMPL_UNDEFINED || b->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, a->kind == TMPL_UNDEFINED ? a : b);
    if (*sign == '+' &&
        (a->kind == TMPL_TEXT || a->kind == TMPL_LIST || a->kind == TMPL_TUPLE))
        return tmpl_fail(run, "can only concatenate %s (not \"%s\") to %s",
                         tmpl_type(a), tmpl_type(b), tmpl_type(a));
    return tmpl_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'",
                     sign, tmpl_type(a), tmpl_type(b));
}

static int
add(struct tmpl_run *run, const struct tmpl_value *a,
    const struct tmpl_value *b, struct tmpl_value *out)
{
    struct tmpl_builder both = { .heap = &run->heap };
    struct tmpl_value x = *a, y = *b;

    if (a->kind == TMPL_TEXT && b->kind == TMPL_TEXT) {
        both.markup = a->text->markup || b->text->markup;
        if (both.markup) {
            x = tmpl_escape(&run->heap, a->text);
            y = tmpl_escape(&run->heap, b->text);
        }
        tmpl_put_text(&both, x.text);
        tmpl_put_text(&both, y.text);
        *out = tmpl_built(&both);
        return 0;
    }
    if (a->kind != b->kind || (a->kind != TMPL_LIST && a->kind != TMPL_TUPLE))
        return no_operator(run, "+", a, b);
    *out = tmpl_list(&run->heap, a->kind);
    for (size_t i = 0; i < a->list->n; i++)
        tmpl_push(&run->heap, out->list, a->list->v[i]);
    for (size_t i = 0; i < b->list->n; i++)
        tmpl_push(&run->heap, out->list, b->list->v[i]);
    return 0;
}

/* A string or list, several times. */
static int
repeat(struct tmpl_run *run, const struct tmpl_value *of, int64_t times,
       struct tmpl_value *out)
{
    struct tmpl_builder b = { .heap = &run->heap };

    if (of->kind == TMPL_TEXT) {
        b.markup = of->text->markup;
        for (; times > 0 && of->text->n && !run->heap.over; times--)
            tmpl_put_text(&b, of->text);
        *out = tmpl_built(&b);
        return 0;
    }
    *out = tmpl_list(&run->heap, of->kind);
    for (; times > 0 && of->list->n && !run->heap.over; times--)
        for (size_t i = 0; i < of->list->n; i++)
            tmpl_push(&run->heap, out->list, of->list->v[i]);
    return 0;
}

static int
too_large(struct tmpl_run *run)
{
    return tmpl_fail(run, "an integer has more than 64 bits, which is not "
                          "supported");
}

/* a ** b of integers, b >= 0: false if it leaves 64 bits. */
static bool
power(int64_t a, int64_t b, int64_t *r)
{
    *r = 1;
    if (a == 0 || a == 1 || a == -1) {
        *r = b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
        return true;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*r, a, r))
            return false;
    return true;
}

static int
integers(struct tmpl_run *run, enum tmpl_op op, int64_t a, int64_t b,
         struct tmpl_value *out)
{
    bool over = false;
    int64_t r = 0;

    if ((op == TMPL_OP_FLOORDIV || op == TMPL_OP_MOD) && b == 0)
        return tmpl_fail(run, "integer division or modulo by zero");
    switch (op) {
    case TMPL_OP_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case TMPL_OP_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case TMPL_OP_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case TMPL_OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over)
            r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case TMPL_OP_MOD:
        r = b == -1 ? 0 : a % b;
        r += r != 0 && (r < 0) != (b < 0) ? b : 0;
        break;
    default:
        over = !power(a, b, &r);
    }
    if (over)
        return too_large(run);
    *out = tmpl_int(r);
    return 0;
}

static int
floats(struct tmpl_run *run, enum tmpl_op op, double a, double b,
       struct tmpl_value *out)
{
    double r;

    if (b == 0 && (op == TMPL_OP_DIV || op == TMPL_OP_FLOORDIV ||
                   op == TMPL_OP_MOD || (op == TMPL_OP_POW && 0)))
        return tmpl_fail(run, op == TMPL_OP_DIV ? "division by zero"
                              : op == TMPL_OP_MOD
                                  ? "float modulo"
                                  : "float floor division by zero");
    switch (op) {
    case TMPL_OP_ADD:
        r = a + b;
        break;
    case TMPL_OP_SUB:
        r = a - b;
        break;
    case TMPL_OP_MUL:
        r = a * b;
        break;
    case TMPL_OP_DIV:
        r = a / b;
        break;
    case TMPL_OP_POW:
        if ((a == 0 && b < 0) || (a < 0 && b != floor(b)))
            return tmpl_fail(run, "** of these numbers is not a number");
        r = pow(a, b);
        if (isinf(r) && !isinf(a) && !isinf(b))
            return tmpl_fail(run, "the result of ** is too large");
        break;
    default: { /* as Python's float_divmod() */
        double mod = fmod(a, b), div = (a - mod) / b;

        if (mod != 0 && (b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0, b);
        }
        r = floor(div);
        if (div - r > 0.5)
            r += 1;
        if (div == 0)
            r = copysign(0, a / b);
        r = op == TMPL_OP_MOD ? mod : r;
    }
    }
    *out = tmpl_float(r);
    return 0;
}

int
tmpl_binary(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *a,
            const struct tmpl_value *b, struct tmpl_value *out)
{
    static const char *const signs[] = { "+", "-", "*", "/", "//", "%", "**" };
    double x, y;

    if (op == TMPL_OP_MOD && a->kind == TMPL_TEXT)
        return tmpl_format(run, a->text, b, out);
    if (tmpl_number(a, &x) && tmpl_number(b, &y)) {
        if (tmpl_is_int(a) && tmpl_is_int(b) && op != TMPL_OP_DIV &&
            !(op == TMPL_OP_POW && y < 0))
            return integers(run, op, tmpl_as_int(a), tmpl_as_int(b), out);
        return floats(run, op, x, y, out);
    }
    if (op == TMPL_OP_ADD)
        return add(run, a, b, out);
    if (op == TMPL_OP_MUL) {
        const struct tmpl_value *of = tmpl_is_int(a) ? b : a,
                                *times = tmpl_is_int(a) ? a : b;

        if (of->kind == TMPL_TEXT || of->kind == TMPL_LIST ||
            of->kind == TMPL_TUPLE) {
            if (tmpl_is_int(times))
                return repeat(run, of, tmpl_as_int(times), out);
            if (times->kind != TMPL_UNDEFINED)
                return tmpl_fail(
                    run, "can't multiply sequence by non-int of type '%s'",
                    tmpl_type(times));
        }
    }
    return no_operator(run, signs[op - TMPL_OP_ADD], a, b);
}

int
tmpl_unary(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *a,
           struct tmpl_value *out)
{
    int64_t i;

    if (a->kind == TMPL_FLOAT) {
        *out = tmpl_float(op == TMPL_OP_NEG ? -a->f : a->f);
        return 0;
    }
    if (a->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, a);
    if (!tmpl_is_int(a))
        return tmpl_fail(run, "bad operand type for unary %c: '%s'",
                         op == TMPL_OP_NEG ? '-' : '+', tmpl_type(a));
    i = tmpl_as_int(a);
    if (op == TMPL_OP_NEG && __builtin_sub_overflow(0, i, &i))
        return too_large(run);
    *out = tmpl_int(i);
    return 0;
}

/* < 0, 0, > 0 as a < b, a == b, a > b; 2 with a NaN. */
static int
order(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *a,
      const struct tmpl_value *b, int depth, int *sign)
{
    static const char *const signs[] = { "<", "<=", ">", ">=" };
    double x, y;
    size_t n;

    run->heap.work += 16;
    if (a->kind == TMPL_UNDEFINED || b->kind == TMPL_UNDEFINED)
        return tmpl_fail_undefined(run, a->kind == TMPL_UNDEFINED ? a : b);
    if (tmpl_is_int(a) && tmpl_is_int(b)) {
        int64_t i = tmpl_as_int(a), k = tmpl_as_int(b);

        *sign = (i > k) - (i < k);
        return 0;
    }
    if (tmpl_number(a, &x) && tmpl_number(b, &y)) {
        *sign = isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
        return 0;
    }
    if (a->kind == TMPL_TEXT && b->kind == TMPL_TEXT) {
        n = smaller(a->text->n, b->text->n); /* UTF-8 sorts by code points */
        run->heap.work += n;
        *sign = memcmp(a->text->s, b->text->s, n);
        if (*sign == 0)
            *sign = (a->text->n > n) - (b->text->n > n);
        else
            *sign = *sign < 0 ? -1 : 1;
        return 0;
    }
    if (a->kind != b->kind || (a->kind != TMPL_LIST && a->kind != TMPL_TUPLE))
        return tmpl_fail(run,
                         "'%s' not supported between instances of '%s' and "
                         "'%s'",
                         signs[op - TMPL_OP_LT], tmpl_type(a), tmpl_type(b));
    if (depth > TEMPLATE_MAX_NESTED)
        return tmpl_fail(run, TMPL_OVER_VALUE);
    n = smaller(a->list->n, b->list->n);
    for (size_t i = 0; i < n; i++)
        if (!tmpl_equal(&run->heap, &a->list->v[i], &b->list->v[i]))
            return order(run, op, &a->list->v[i], &b->list->v[i], depth + 1,
                         sign);
    *sign = (a->list->n > n) - (b->list->n > n);
    return 0;
}

/* Is a list, or a dict in one, not to be a key? */
static bool
is_unhashable(const struct tmpl_value *v)
{
    return v->kind == TMPL_LIST || v->kind == TMPL_DICT;
}

static int
contains(struct tmpl_run *run, const struct tmpl_value *what,
         const struct tmpl_value *in, bool *is)
{
    struct tmpl_list list;

    if (in->kind == TMPL_TEXT) {
        if (what->kind != TMPL_TEXT)
            return tmpl_fail(run,
                             "'in <string>' requires string as left operand, "
                             "not %s",
                             tmpl_type(what));
        *is =
            tmpl_search(&run->heap, in->text, what->text, 0, false) != SIZE_MAX;
        return 0;
    }
    if (in->kind == TMPL_DICT) {
        if (is_unhashable(what))
            return tmpl_fail(run, "unhashable type: '%s'", tmpl_type(what));
        *is = tmpl_find(&run->heap, in->dict, what) != NULL;
        return 0;
    }
    if (in->kind < TMPL_LIST && in->kind != TMPL_UNDEFINED)
        return tmpl_fail(run, "argument of type '%s' is not iterable",
                         tmpl_type(in));
    if (in->kind > TMPL_ITER)
        return tmpl_fail(run, "argument of type '%s' is not iterable",
                         tmpl_type(in));
    *is = false;
    if (in->kind == TMPL_UNDEFINED)
        return 0;
    list = *in->list;
    for (size_t i = list.read; i < list.n && !*is; i++)
        *is = tmpl_equal(&run->heap, &list.v[i], what);
    return 0;
}

int
tmpl_compare(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *a,
             const struct tmpl_value *b, bool *is)
{
    int sign;

    if (op == TMPL_OP_EQ || op == TMPL_OP_NE) {
        *is = tmpl_equal(&run->heap, a, b) == (op == TMPL_OP_EQ);
        return 0;
    }
    if (op == TMPL_OP_IN || op == TMPL_OP_NOT_IN) {
        if (contains(run, a, b, is) < 0)
            return -1;
        *is ^= op == TMPL_OP_NOT_IN;
        return 0;
    }
    if (order(run, op, a, b, 0, &sign) < 0)
        return -1;
    *is = op == TMPL_OP_LT   ? sign < 0
          : op == TMPL_OP_LE ? sign <= 0
          : op == TMPL_OP_GT ? sign == 1
                             : sign == 0 || sign == 1;
    return 0;
}
