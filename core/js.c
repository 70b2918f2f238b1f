/* SPDX-License-Identifier: ISC */
#include "core/js.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/jpull.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/pyjson.h"

#define NOT_JSON "not JSON" /* the one member of what stands for NaN */

/* Without memory, jansson drops bytes of strings and calls it a bad text. */
__attribute__((constructor)) static void
die_without_memory(void)
{
    json_set_alloc_funcs(xmalloc, free);
}

/* Copies the text with what Python writes and jansson refuses in another form:
 * NaN and the infinities between 'before' and 'after', integers of 19 digits or
 * more, which may leave 64 bits, as reals; false if there are none. */
static bool
adapt(struct str *to, const char *s, size_t n, const char *before,
      const char *after)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };
    bool in_string = false, found = false;

    for (size_t i = 0, k; i < n; i += k) {
        size_t left = n - i, w = 0;
        bool real = false;

        while (w < 3 && (in_string || strlen(words[w]) > left ||
                         memcmp(s + i, words[w], strlen(words[w])) != 0))
            w++;
        if (w < 3) {
            k = strlen(words[w]);
            str_addf(to, "%s%s%s", before, words[w], after);
            found = true;
            continue;
        }
        for (k = 0;
             !in_string && k < left && memchr("+-.0123456789eE", s[i + k], 15);
             k++)
            real = real || memchr(".eE", s[i + k], 3);
        if (k > 0) {
            str_addf(to, "%.*s%s", (int)k, s + i, !real && k > 18 ? "e0" : "");
            found |= !real && k > 18;
            continue;
        }
        k = in_string && s[i] == '\\' && i + 1 < n ? 2 : 1;
        in_string ^= s[i] == '"';
        str_add(to, s + i, k);
    }
    return found;
}

size_t
js_mark(const char *text, size_t nbytes)
{
    return nbytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

/* What jansson would not bear; what else is wrong it says itself. */
int
js_check(const char *text, size_t nbytes, const char *name, size_t line,
         struct err *err)
{
    struct jpull j = jpull_start(text, nbytes, JS_DEPTH);
    size_t column;

    j.python = true;
    jpull_peek(&j);
    if (jpull_skip(&j) && jpull_done(&j))
        return 0;
    line += jpull_line(&j, &column) - 1;
    if (j.too_deep)
        return err_set(
            err, EX_DATAERR,
            "%s: line %zu, column %zu: nested %d levels deep (expected "
            "at most %d)",
            name, line, column, JS_DEPTH + 1, JS_DEPTH);
    if (j.at < j.end && !*j.at)
        return err_set(err, EX_DATAERR,
                       "%s: line %zu, column %zu: a NUL byte (expected JSON)",
                       name, line, column);
    return 0;
}

/* 'line': the text's first in its file. */
static json_t *
parse(const char *text, size_t nbytes, const char *name, size_t line,
      size_t flags, const char *before, const char *after, struct err *err)
{
    struct str other = { 0 };
    json_error_t e;
    json_t *v;

    if (nbytes > JS_MAX_BYTES) {
        err_set(err, EX_DATAERR, "%s: %zu bytes of JSON (expected at most %zu)",
                name, nbytes, JS_MAX_BYTES);
        return NULL;
    }
    if (js_check(text, nbytes, name, line, err) < 0)
        return NULL;
    flags |= JSON_REJECT_DUPLICATES;
    v = json_loadb(text, nbytes, flags, &e);
    if (!v && adapt(&other, text, nbytes, before, after))
        v = json_loadb(other.s, other.n, flags, &e);
    str_free(&other);
    if (!v)
        err_set(err, EX_DATAERR, "%s: line %zu, column %d: %s", name,
                line - 1 + (size_t)e.line, e.column, e.text);
    return v;
}

json_t *
js_parse(const char *text, size_t nbytes, const char *name, struct err *err)
{
    /* strings: no reader of numbers accepts them */
    return parse(text, nbytes, name, 1, JSON_DECODE_ANY, "\"", "\"", err);
}

json_t *
js_parse_nuls(const char *text, size_t nbytes, const char *name,
              struct err *err)
{
    return parse(text, nbytes, name, 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, "\"",
                 "\"", err);
}

json_t *
js_line(const char *line, size_t nbytes, const char *name, size_t number,
        struct err *err)
{
    /* objects: no reader of numbers or of strings accepts them */
    return parse(line, nbytes, name, number, JSON_ALLOW_NUL,
                 "{\"" NOT_JSON "\":\"", "\"}", err);
}

json_t *
js_load(const char *path, struct err *err)
{
    struct str text = { 0 };
    json_t *v = NULL;

    if (file_read_regular(path, JS_MAX_BYTES, &text, err) == 0)
        v = js_parse(text.s, text.n, path, err);
    str_free(&text);
    return v;
}

struct js
js_root(const json_t *v, const char *file)
{
    return (struct js){ .v = v, .file = file };
}

/* A path that does not fit ends in "...". */
static struct js
child(const struct js *of, const json_t *v, const char *between,
      const char *name)
{
    struct js js = { .v = v, .file = of->file };
    int n =
        snprintf(js.path, sizeof(js.path), "%s%s%s", of->path, between, name);

    if (n < 0 || (size_t)n >= sizeof(js.path))
        memcpy(js.path + sizeof(js.path) - 4, "...", 4);
    return js;
}

struct js
js_get(const struct js *obj, const char *key)
{
    return child(obj, json_object_get(obj->v, key), *obj->path ? "." : "", key);
}

struct js
js_at(const struct js *array, size_t i)
{
    char index[24];

    snprintf(index, sizeof(index), "[%zu]", i);
    return child(array, json_array_get(array->v, i), "", index);
}

bool
js_is(const struct js *js, json_type type)
{
    return js->v && json_typeof(js->v) == type;
}

bool
js_absent(const struct js *js)
{
    return !js->v || json_is_null(js->v);
}

int
js_bad(const struct js *js, const char *expected, struct err *err)
{
    struct str found = { 0 };
    const char *nan = json_string_value(json_object_get(js->v, NOT_JSON));
    char *text;

    if (!js->v || nan) {
        str_adds(&found, nan ? nan : "missing");
    } else if (json_is_object(js->v)) {
        str_adds(&found, "an object");
    } else if (json_is_array(js->v)) {
        str_adds(&found,
                 json_array_size(js->v) ? "an array" : "an empty array");
    } else if (json_is_real(js->v)) { /* jansson's has all of 17 digits */
        py_float_repr(&found, json_real_value(js->v));
    } else {
        text = json_dumps(js->v, JSON_ENCODE_ANY);
        str_adds(&found, text ? text : "?");
        free(text);
        if (found.n > 80) {
            found.n = 77; /* short enough for a message */
            str_adds(&found, "...");
        }
    }
    err_set(err, EX_DATAERR, "%s: %s is %s (expected %s)", js->file,
            *js->path ? js->path : "the document", found.s, expected);
    str_free(&found);
    return -1;
}

int
js_finite(const struct js *js, struct err *err)
{
    json_t *object = json_is_object(js->v) ? (json_t *)(uintptr_t)js->v : NULL;
    struct js each;
    const char *key;
    json_t *v;

    if (json_is_string(json_object_get(object, NOT_JSON)))
        return js_bad(js, "what JSON can have", err);
    for (size_t i = 0; i < json_array_size(js->v); i++) {
        each = js_at(js, i);
        if (js_finite(&each, err) < 0)
            return -1;
    }
    json_object_foreach(object, key, v)
    {
        each = js_get(js, key);
        if (js_finite(&each, err) < 0)
            return -1;
    }
    return 0;
}

int
js_str(const struct js *js, const char **s, size_t *nbytes, struct err *err)
{
    if (!js_is(js, JSON_STRING))
        return js_bad(js, "a string", err);
    *s = json_string_value(js->v);
    if (nbytes)
        *nbytes = json_string_length(js->v);
    else if (strlen(*s) != json_string_length(js->v))
        return js_bad(js, "a string without a NUL", err);
    return 0;
}

int
js_i64(const struct js *js, int64_t min, int64_t max, int64_t *v,
       struct err *err)
{
    char expected[96];
    bool fits = js_is(js, JSON_INTEGER);

    if (fits) {
        *v = json_integer_value(js->v);
        fits = *v >= min && *v <= max;
    }
    if (fits)
        return 0;
    snprintf(expected, sizeof(expected), "a whole number from %lld to %lld",
             (long long)min, (long long)max);
    return js_bad(js, expected, err);
}

int
js_whole(const struct js *js, int64_t min, int64_t max, int64_t *v,
         struct err *err)
{
    double real = json_real_value(js->v);

    if (!js_is(js, JSON_REAL) || real < (double)min || real > (double)max ||
        !(fabs(real) < 0x1p53) || real != (double)(int64_t)real)
        return js_i64(js, min, max, v, err);
    *v = (int64_t)real;
    return 0;
}

int
js_f64(const struct js *js, double *v, struct err *err)
{
    if (!js->v || !json_is_number(js->v))
        return js_bad(js, "a number", err);
    *v = json_number_value(js->v);
    return 0;
}

int
js_bool(const struct js *js, bool *v, struct err *err)
{
    if (!js->v || !json_is_boolean(js->v))
        return js_bad(js, "true or false", err);
    *v = json_is_true(js->v);
    return 0;
}

int
js_bool_or(const struct js *obj, const char *key, bool unset, bool *v,
           struct err *err)
{
    struct js js = js_get(obj, key);

    *v = unset;
    return js_absent(&js) ? 0 : js_bool(&js, v, err);
}

const char *
js_unknown(const struct js *object, const char *const *known, void **at)
{
    json_t *o = (json_t *)(uintptr_t)object->v;

    for (;;) {
        const char *const *k = known, *key;
        const json_t *v;

        *at = *at ? json_object_iter_next(o, *at) : json_object_iter(o);
        if (!*at)
            return NULL;
        key = json_object_iter_key(*at);
        v = json_object_iter_value(*at);
        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k && !json_is_null(v) && !json_is_false(v) &&
            (!json_is_string(v) || json_string_length(v)) &&
            (!json_is_array(v) || json_array_size(v)) &&
            (!json_is_object(v) || json_object_size(v)))
            return key;
    }
}

void
js_put_str(struct str *str, const char *s, size_t nbytes)
{
    uint32_t c;
    int n;

    str_addc(str, '"');
    for (size_t i = 0; i < nbytes; i += (size_t)n) {
        size_t start = i;

        while (i < nbytes && s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' &&
               s[i] != '\\')
            i++;
        str_add(str, s + start, i - start);
        if (i == nbytes)
            break;
        n = utf8_next(s + i, nbytes - i, &c);
        if (n == 0)
            str_adds(str, "\\ufffd");
        else if (n == 1 || utf8_deceives(c))
            jput_escape(str, c);
        else
            str_add(str, s + i, (size_t)n);
        n = n ? n : 1;
    }
    str_addc(str, '"');
}

void
js_put_json(struct str *str, const char *json, size_t nbytes)
{
    for (size_t i = 0, n; i < nbytes; i += n) {
        uint32_t c = 0;

        n = (size_t)utf8_next(json + i, nbytes - i, &c);
        n += n == 0;
        if (c == 0x7f || utf8_deceives(c)) /* in a string */
            jput_escape(str, c);
        else if (c == '\r') /* between values */
            str_addc(str, ' ');
        else
            str_add(str, json + i, n);
    }
}

void
js_put_f64(struct str *str, double v)
{
    if (!isfinite(v)) {
        str_adds(str, "null");
        return;
    }
    if (v == 0 && signbit(v)) {
        str_adds(str, "-0.0"); /* -0 is an integer for many readers: 0 */
        return;
    }
    if (v == trunc(v) && fabs(v) < 1e15) {
        str_addf(str, "%.0f", v);
        return;
    }
    py_float_repr(str, v);
}

void
js_addf(struct str *str, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    while (*fmt) {
        size_t n = strcspn(fmt, "%"), end;

        str_add(str, fmt, n);
        fmt += n;
        end = strcspn(fmt, "sgdu");
        if (fmt[end] == 's') {
            const char *s = va_arg(ap, const char *);

            if (s)
                js_put_str(str, s, strlen(s));
            else
                str_adds(str, "null");
        } else if (fmt[end] == 'g') {
            js_put_f64(str, va_arg(ap, double));
        } else if (end > 1) { /* l, ll and z: all have 64 bits */
            str_addf(str, fmt[end] == 'u' ? "%lu" : "%ld", va_arg(ap, long));
        } else if (end == 1) {
            str_addf(str, "%d", va_arg(ap, int));
        }
        fmt += *fmt ? end + 1 : 0;
    }
    va_end(ap);
}
