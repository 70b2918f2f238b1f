/* SPDX-License-Identifier: ISC */
/* The functions of templates. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/mem.h"
#include "core/opt_value.h"
#include "core/text/template_call.h"

#define MAX_RANGE  100000       /* of Jinja's sandbox */
#define LAST_EPOCH 253402300799 /* 9999-12-31T23:59:59Z */

static int
raise_exception(TMPL_CALL)
{
    const struct tmpl_text *text;

    (void)out;
    if (tmpl_str(run, &a->v[0], &text) < 0)
        return -1;
    return tmpl_fail(run, "raise_exception: %.*s",
                     (int)smaller(text->n, sizeof(run->err->what)), text->s);
}

/* Now, or as SOURCE_DATE_EPOCH says, for builds that are to repeat. */
static int
now(struct tmpl_run *run, struct timespec *t)
{
    const char *s = getenv("SOURCE_DATE_EPOCH");
    uint64_t seconds;

    if (!s)
        return clock_gettime(CLOCK_REALTIME, t);
    if (opt_u64("SOURCE_DATE_EPOCH", s, 0, LAST_EPOCH, &seconds, run->err) < 0)
        return -1;
    *t = (struct timespec){ .tv_sec = (time_t)seconds };
    return 0;
}

static int
strftime_now(TMPL_CALL)
{
    const struct tmpl_text *format;
    struct str f = { 0 };
    /* compilers want to see the format */
    size_t (*volatile const make)(char *, size_t, const char *,
                                  const struct tm *) = strftime;
    struct timespec t;
    struct tm tm;
    char *buf;
    size_t n;

    if (tmpl_arg_text(run, &a->v[0], &format) < 0 || now(run, &t) < 0)
        return -1;
    if (!format || format->n > 1000 || memchr(format->s, '\0', format->n))
        return tmpl_fail(run, "strftime_now needs a format of at most 1000 "
                              "bytes");
    for (size_t i = 0, k; i < format->n; i += k) { /* C has no %f */
        k = format->s[i] == '%' && i + 1 < format->n ? 2 : 1;
        if (k == 2 && format->s[i + 1] == 'f')
            str_addf(&f, "%06ld", t.tv_nsec / 1000);
        else
            str_add(&f, format->s + i, k);
    }
    str_addc(&f, '.'); /* so that nothing is not too much */
    tzset();
    localtime_r(&t.tv_sec, &tm);
    buf = tmpl_alloc(&run->heap, 100 * f.n);
    n = make(buf, 100 * f.n, f.s, &tm);
    str_free(&f);
    if (n == 0 || utf8_valid(buf, n) < n)
        return tmpl_fail(run, "strftime_now cannot use this format");
    *out = tmpl_text(&run->heap, buf, n - 1, 0);
    return 0;
}

static int
range(TMPL_CALL)
{
    int64_t at[3];
    uint64_t distance, step, n;

    for (int i = 0; i < 3; i++)
        if (tmpl_arg_int(run, &a->v[i], i == 2, &at[i]) < 0)
            return -1;
    if (a->v[1].kind == TMPL_ABSENT) {
        at[1] = at[0];
        at[0] = 0;
    }
    if (at[2] == 0)
        return tmpl_fail(run, "range() arg 3 must not be zero");
    distance = at[2] > 0 ? (uint64_t)at[1] - (uint64_t)at[0]
                         : (uint64_t)at[0] - (uint64_t)at[1];
    step = at[2] > 0 ? (uint64_t)at[2] : -(uint64_t)at[2];
    n = at[2] > 0 ? at[1] <= at[0] : at[0] <= at[1];
    n = n ? 0 : (distance - 1) / step + 1;
    if (n > MAX_RANGE)
        return tmpl_fail(run, "Range too big. The sandbox blocks ranges larger "
                              "than MAX_RANGE (100000).");
    *out = tmpl_list(&run->heap, TMPL_RANGE);
    for (uint64_t i = 0; i < n; i++)
        tmpl_push(&run->heap, out->list, tmpl_int(at[0] + (int64_t)i * at[2]));
    return 0;
}

/* dict() of a mapping or of pairs, and of names. */
static int
dict(TMPL_CALL)
{
    struct tmpl_list list, pair;

    *out = tmpl_dict(&run->heap);
    if (a->n > 1)
        return tmpl_fail(run, "dict expected at most 1 argument, got %zu",
                         a->n);
    if (a->n == 1 && a->v[0].kind == TMPL_DICT) {
        const struct tmpl_dict *from = a->v[0].dict;

        for (size_t i = 0; i < from->n; i++)
            tmpl_set(&run->heap, out->dict, from->pairs[i].key,
                     from->pairs[i].value);
    } else if (a->n == 1) {
        if (tmpl_iterate(run, &a->v[0], &list) < 0)
            return -1;
        for (size_t i = 0; i < list.n; i++) {
            if (tmpl_step(run) < 0 || tmpl_iterate(run, &list.v[i], &pair) < 0)
                return -1;
            if (pair.n != 2)
                return tmpl_fail(run,
                                 "dictionary update sequence element #%zu has "
                                 "length %zu; 2 is required",
                                 i, pair.n);
            if (pair.v[0].kind == TMPL_LIST || pair.v[0].kind == TMPL_DICT)
                return tmpl_fail(run, "unhashable type: '%s'",
                                 tmpl_type(&pair.v[0]));
            tmpl_set(&run->heap, out->dict, pair.v[0], pair.v[1]);
        }
    }
    for (size_t i = 0; i < a->n_named; i++)
        tmpl_set(&run->heap, out->dict, a->named[i].key, a->named[i].value);
    return 0;
}

static int namespace(TMPL_CALL)
{
    if (dict(run, a, out) < 0)
        return -1;
    out->kind = TMPL_NAMESPACE;
    return 0;
}

const struct tmpl_callable tmpl_functions[] = {
    { "dict", "...", dict },
    { "namespace", "...", namespace },
    { "raise_exception", "message", raise_exception },
    { "range", "start stop? step?", range },
    { "strftime_now", "format", strftime_now },
    { NULL, NULL, NULL },
};
