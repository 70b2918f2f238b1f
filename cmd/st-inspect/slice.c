/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/slice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

/* Reads a whole number at *p and moves *p after it; false if there is none. */
static bool
read_number(const char **p, int64_t *v)
{
    char *end;

    errno = 0;
    *v = strtoll(*p, &end, 10);
    if (end == *p || errno)
        return false;
    *p = end;
    return true;
}

static const char *
skip_spaces(const char *p)
{
    return p + strspn(p, " ");
}

/* Python's slice.indices(): where a start or stop falls in 'size'. */
static int64_t
clamp(int64_t at, int64_t size, bool backwards)
{
    int64_t low = backwards ? -1 : 0, high = backwards ? size - 1 : size;

    if (at < 0)
        at += size;
    return at < low ? low : at > high ? high : at;
}

/* One item between commas, for axis 'i': an index, or "start:stop:step" of
 * which each may be absent. */
static int
parse_item(struct slice_axis *axis, const char **p, size_t i, int64_t size,
           const char *text, struct err *err)
{
    const char *end = *p = skip_spaces(*p);
    int64_t start, stop = 0, step = 1;
    bool has_start, has_stop, ok;

    if (read_number(&end, &start) && *skip_spaces(end) != ':') {
        if (start < -size || start >= size)
            return err_set(err, TU_USAGE,
                           "--slice: index %lld is out of range for axis %zu "
                           "of size %lld",
                           (long long)start, i, (long long)size);
        *axis = (struct slice_axis){ start < 0 ? start + size : start, 1, 1,
                                     false };
        *p = skip_spaces(end);
        return 0;
    }
    has_start = read_number(p, &start);
    *p = skip_spaces(*p);
    ok = *(*p)++ == ':';
    has_stop = ok && read_number(p, &stop);
    *p = ok ? skip_spaces(*p) : *p;
    if (ok && **p == ':') {
        ++*p;
        if (!read_number(p, &step))
            step = 1;
    }
    if (!ok || step == 0 || step == INT64_MIN)
        return err_set(err, TU_USAGE,
                       "--slice: \"%s\" is not an index (expected numbers and "
                       "start:stop:step, one for each axis)",
                       text);
    *p = skip_spaces(*p);
    start = has_start ? clamp(start, size, step < 0) : step < 0 ? size - 1 : 0;
    stop = has_stop ? clamp(stop, size, step < 0) : step < 0 ? -1 : size;
    *axis = (struct slice_axis){ start, step, 0, true };
    if (step > 0 && stop > start)
        axis->count = (uint64_t)((stop - start - 1) / step + 1);
    else if (step < 0 && stop < start)
        axis->count = (uint64_t)((start - stop - 1) / -step + 1);
    return 0;
}

int
slice_parse(struct slice *s, const char *text, size_t n_dims,
            const uint64_t *shape, struct err *err)
{
    const char *dots = text ? strstr(text, "...") : NULL, *p = text;
    size_t n = 1, i = 0;
    char last = '\0';

    *s = (struct slice){ .n_dims = n_dims, .n = 1 };
    s->axis = xcalloc(n_dims, sizeof(*s->axis));
    for (size_t k = 0; k < n_dims; k++) {
        s->axis[k] = (struct slice_axis){ 0, 1, shape[k], true };
        if (text &&
            shape[k] > INT64_MAX) /* possible next to an axis of size 0 */
            return err_set(err, TU_USAGE,
                           "--slice: axis %zu has size %llu (at most 2^63-1)",
                           k, (unsigned long long)shape[k]);
    }
    if (dots && strstr(dots + 3, "..."))
        return err_set(err, TU_USAGE, "--slice: \"%s\" has two \"...\"", text);
    /* how many axes the text names: not by "...", nor after a last comma */
    for (; p && *p; p++) {
        n += *p == ',';
        last = *p == ' ' ? last : *p;
    }
    n -= (dots != NULL) + (last == ',');
    if (text && n > n_dims)
        return err_set(err, TU_USAGE,
                       "--slice: \"%s\" has %zu indices, but the tensor has "
                       "%zu axes",
                       text, n, n_dims);
    for (p = text; p; p++) {
        p = skip_spaces(p);
        if (!*p && i > 0) /* "2," */
            break;
        if (p == dots) {
            i += n_dims - n; /* these stay whole */
            p = skip_spaces(p + 3);
        } else if (i == n_dims) { /* "0..." of a scalar */
            break;
        } else if (parse_item(&s->axis[i], &p, i, (int64_t)shape[i], text,
                              err) < 0) {
            return -1;
        } else {
            i++;
        }
        if (*p != ',')
            break;
    }
    if (p && *p)
        return err_set(err, TU_USAGE,
                       "--slice: \"%s\" is not an index at \"%s\"", text, p);
    for (size_t k = 0; k < n_dims; k++)
        s->n *= s->axis[k].count;
    return 0;
}

void
slice_free(struct slice *s)
{
    free(s->axis);
    *s = (struct slice){ 0 };
}
