/* SPDX-License-Identifier: ISC */
#include "core/format/sae_without.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/format/saev_mask.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/pyjson.h"

/* A key's value, wherever it is. */
static int
find(struct js *js, const struct js *root, const char *key, struct err *err)
{
    struct js metadata = js_get(root, "metadata");
    struct js inner = js_get(&metadata, key);

    *js = js_get(root, key);
    if (!js_absent(js) && !js_absent(&inner) &&
        !json_equal((json_t *)(uintptr_t)js->v, (json_t *)(uintptr_t)inner.v))
        return js_bad(&inner, "the same as at the top level", err);
    if (js_absent(js))
        *js = inner;
    return 0;
}

static int
read_ids(struct sae_without *r, const struct js *js, struct err *err)
{
    if (js_absent(js) || json_is_boolean(js->v)) {
        r->special = json_is_true(js->v);
        return 0;
    }
    if (!js_is(js, JSON_ARRAY))
        return js_bad(js, "true, false or a list of token ids", err);
    r->ids = xcalloc(json_array_size(js->v) + 1, sizeof(*r->ids));
    for (; r->n_ids < json_array_size(js->v); r->n_ids++) {
        struct js at = js_at(js, r->n_ids);
        int64_t id;

        if (js_i64(&at, 0, INT32_MAX, &id, err) < 0)
            return -1;
        r->ids[r->n_ids] = (int32_t)id;
    }
    return 0;
}

/* Python's slice(*list) of positions; SAELens writes [null] for all of them. */
static int
read_slice(struct sae_without *r, const struct js *js, struct err *err)
{
    int64_t *to[3] = { &r->start, &r->end, &r->step };
    size_t n = json_array_size(js->v);

    *r = (struct sae_without){ .special = r->special,
                               .ids = r->ids,
                               .n_ids = r->n_ids,
                               .end = INT64_MAX,
                               .step = 1 };
    if (js_absent(js))
        return 0;
    if (!js_is(js, JSON_ARRAY) || n > 3)
        return js_bad(js, "[start, end] or [start, end, step]", err);
    for (size_t i = 0; i < n; i++) {
        struct js at = js_at(js, i);
        size_t k = n == 1 ? 1 : i; /* slice(5) is [:5] */

        if (!js_absent(&at) &&
            js_i64(&at, k == 2 ? 1 : INT32_MIN, INT32_MAX, to[k], err) < 0)
            return -1;
    }
    r->is_slice = r->start != 0 || r->end != INT64_MAX || r->step != 1;
    return 0;
}

int
sae_without_read(struct sae_without *r, const struct js *root, struct err *err)
{
    struct js js;

    if (find(&js, root, "exclude_special_tokens", err) < 0 ||
        read_ids(r, &js, err) < 0 || find(&js, root, "seqpos_slice", err) < 0 ||
        read_slice(r, &js, err) < 0 || find(&js, root, "max_norm", err) < 0)
        return -1;
    if (js_absent(&js))
        return 0;
    if (js_f64(&js, &r->max_norm, err) < 0)
        return -1;
    return r->max_norm > 0 && r->max_norm <= DBL_MAX
               ? 0
               : js_bad(&js, "a number over 0", err);
}

void
sae_without_put(struct str *to, const struct saev_mask *m)
{
    if (m && m->special)
        str_adds(to, ", \"exclude_special_tokens\": true");
    for (size_t i = 0; m && i < m->n_ids; i++)
        str_addf(to, "%s%d%s", i ? ", " : ", \"exclude_special_tokens\": [",
                 m->ids[i], i + 1 < m->n_ids ? "" : "]");
    if (m && m->positions)
        str_addf(to, ", \"seqpos_slice\": [%llu, null]",
                 (unsigned long long)m->positions);
    if (m && m->max_norm > 0) {
        str_adds(to, ", \"max_norm\": ");
        py_float_repr(to, m->max_norm);
    }
}

void
sae_without_free(struct sae_without *r)
{
    free(r->ids);
    *r = (struct sae_without){ 0 };
}

bool
sae_without_any(const struct sae_without *r)
{
    return r->special || r->n_ids > 0 || r->is_slice || r->max_norm > 0;
}

bool
sae_without_from_end(const struct sae_without *r)
{
    return r->is_slice && (r->start < 0 || r->end < 0);
}

/* An index as Python clips it: from the end if negative. */
static int64_t
clip(int64_t at, int64_t n)
{
    return at >= 0 ? at : at + n > 0 ? at + n : 0;
}

bool
sae_without_at(const struct sae_without *r, size_t position, size_t n)
{
    int64_t at = (int64_t)position, start = clip(r->start, (int64_t)n);

    return !r->is_slice || (at >= start && at < clip(r->end, (int64_t)n) &&
                            (at - start) % r->step == 0);
}

void
sae_norm_add(double *lane, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lane[i % SAE_NORM_LANES] += (double)x[i] * (double)x[i];
}

double
sae_norm(double *lane)
{
    for (size_t n = SAE_NORM_LANES / 2; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return sqrt(lane[0]);
}

bool
sae_without_covered(const struct sae_without *r, const struct saev_mask *m)
{
    for (size_t i = 0; i < r->n_ids && !m->special; i++)
        if (!m->n_ids ||
            !bsearch(&r->ids[i], m->ids, m->n_ids, sizeof(*m->ids), by_i32))
            return false;
    if (r->special && !m->special && !m->n_ids)
        return false;
    if (r->max_norm > 0 && !(m->max_norm > 0 && m->max_norm <= r->max_norm))
        return false;
    return !r->is_slice || (int64_t)m->positions >= r->start;
}
