/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stdir.h"
#include "core/format/stwant.h"
#include "core/js.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/numbers.h"

/* ---- which latents ---- */

static int
by_key(const void *pa, const void *pb)
{
    const struct look_ranked *a = pa, *b = pb;

    return a->key != b->key ? (a->key < b->key) - (a->key > b->key)
                            : (a->id > b->id) - (a->id < b->id);
}

void
rank(struct look_ranked *r, size_t n)
{
    if (n)
        qsort(r, n, sizeof(*r), by_key);
}

static int
pick_sorted(struct look_view *v, size_t most, struct err *err)
{
    const struct look_cmd *cmd = v->cmd;
    const struct look *l = &v->l;
    struct look_ranked *r = mem_try(l->m + 1, sizeof(*r), l->path, err);
    size_t n = 0;

    v->picked = r ? mem_try(l->m + 1, sizeof(*v->picked), l->path, err) : NULL;
    for (size_t i = 0; v->picked && i < l->m; i++) {
        double density = look_density(l, i);

        if (density < cmd->min_density || density > cmd->max_density)
            continue;
        r[n++] =
            (struct look_ranked){ cmd->sort == SORT_DENSITY ? density
                                  : cmd->sort == SORT_MEAN  ? look_mean(l, i)
                                  : cmd->sort == SORT_MAX   ? (double)l->max[i]
                                                            : 0,
                                  (int64_t)i, i };
    }
    if (v->picked)
        rank(r, n);
    for (v->n = 0; v->n < smaller(n, most); v->n++)
        v->picked[v->n] = r[v->n].at;
    free(r);
    return v->picked ? 0 : -1;
}

static int
pick_listed(struct look_view *v, const char *name, char *const *lists,
            size_t n_lists, struct err *err)
{
    struct numbers list = { 0 };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n_lists; i++)
        rc = numbers_add(&list, name, lists[i], "latent", v->l.n, err);
    if (v->cmd->latents)
        numbers_sort(&list);
    v->picked = xcalloc(list.n + 1, sizeof(*v->picked));
    for (; rc == 0 && v->n < list.n; v->n++) {
        v->picked[v->n] = look_find(&v->l, list.v[v->n]);
        if (v->picked[v->n] == SIZE_MAX)
            rc = err_set(err, TU_USAGE,
                         "%s: latent %lu is not in %s, which has %zu of %zu",
                         name, (unsigned long)list.v[v->n], v->l.path, v->l.m,
                         v->l.n);
    }
    numbers_free(&list);
    return rc;
}

/* ---- files ---- */

int
tokens_open(struct tok **tok, const char *dir, bool needed, struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    *tok = NULL;
    if (!dir)
        return 0;
    str_addf(&path, "%s/tokenizer.json", dir);
    if (needed || !file_missing(path.s))
        rc = stdir_check(dir, false, err) < 0 ? -1 : tok_open(tok, path.s, err);
    str_free(&path);
    return rc;
}

/* The tokens that directions promote and suppress, if they are there; they must
 * be of the same SAE. */
static int
open_lens(struct look_view *v, struct err *err)
{
    struct st_want want = { 3, { v->l.n, 2, 1 }, NULL, NULL };
    struct st *st = &v->lens_st;
    const struct st_tensor *t;
    struct str path = { 0 };
    const char *of;
    int rc = 0;

    str_addf(&path, "%s/" LENS_FILE, v->l.path);
    if (!file_missing(path.s) && (rc = st_open(st, path.s, err)) == 0) {
        of = st_meta(st, "sae_xxh3");
        t = st_find(st, "lens_id");
        if (t && t->n_dims == 3 && t->shape[2])
            want.shape[2] = t->shape[2];
        v->n_lens = want.shape[2];
        if (!of || strcmp(of, v->l.sae_xxh3) != 0)
            rc = err_data(err, path.s, "is of another SAE than " LOOK_JSON);
        else if (st_map(st, err) < 0 ||
                 !(v->lens_id =
                       st_want_data(st, "lens_id", DT_I32, &want, err)) ||
                 !(v->lens_value =
                       st_want_data(st, "lens_value", DT_F32, &want, err)))
            rc = -1;
    }
    str_free(&path);
    if (rc == 0 && v->n_lens) {
        v->lens[0] = xcalloc(2 * v->n_lens, sizeof(*v->lens[0]));
        v->lens[1] = v->lens[0] + v->n_lens;
    }
    return rc;
}

int
view_open(struct look_view *v, const struct look_cmd *cmd, size_t most,
          struct err *err)
{
    char *const list = (char *)(uintptr_t)cmd->latents;

    *v = (struct look_view){ .cmd = cmd };
    if (look_open(&v->l, cmd->args[0], err) < 0 ||
        labels_open(&v->labels, &v->l, err) < 0 || open_lens(v, err) < 0 ||
        tokens_open(&v->tok, cmd->model, true, err) < 0)
        return -1;
    v->top = xcalloc(v->l.top.n + v->l.sample.n + 1, sizeof(*v->top));
    v->sample = v->top + v->l.top.n;
    if (list || cmd->n_args > 1)
        return pick_listed(v, list ? "--latents" : "LATENT",
                           list ? &list : cmd->args + 1,
                           list ? 1 : (size_t)cmd->n_args - 1, err);
    return pick_sorted(v, most, err);
}

void
view_close(struct look_view *v)
{
    free(v->picked);
    free(v->top);
    free(v->lens[0]);
    if (v->n_lens)
        st_close(&v->lens_st);
    tok_close(v->tok);
    labels_free(&v->labels);
    look_close(&v->l);
}

/* ---- a latent ---- */

int
view_latent(struct look_view *v, size_t i, struct err *err)
{
    const struct look *l = &v->l;
    const struct look_examples *s = &l->sample;
    struct look_ranked order[LOOK_MAX_EXAMPLES];
    int rc = 1;

    v->i = i;
    v->latent = l->latent[i];
    v->max = l->max[i];
    v->label = labels_find(&v->labels, v->latent);
    v->n_top = v->n_sample = 0;
    while ((rc = look_example(l, &l->top, i, v->n_top, &v->top[v->n_top],
                              err)) > 0)
        v->n_top++;
    for (; v->n_sample < s->n && s->row[i * s->n + v->n_sample] >= 0;
         v->n_sample++) {
        size_t at = i * s->n + v->n_sample;

        order[v->n_sample] = (struct look_ranked){ (double)s->value[at],
                                                   s->row[at], v->n_sample };
    }
    rank(order, v->n_sample);
    for (size_t j = 0; j < v->n_sample && rc >= 0; j++)
        rc = look_example(l, s, i, order[j].at, &v->sample[j], err);
    for (size_t k = 0; k < 2 * v->n_lens && rc >= 0; k++) {
        size_t at = (size_t)v->latent * 2 * v->n_lens + k;
        struct lens_token *t = &v->lens[0][k];

        t->id = (int32_t)le32(v->lens_id + 4 * at);
        t->value = le_f32(v->lens_value + 4 * at);
        if (t->id < 0 || !isfinite(t->value))
            rc = err_data(err, v->lens_st.path,
                          "[%ld, %zu, %zu] is id %ld, logit %g", v->latent,
                          k / v->n_lens, k % v->n_lens, (long)t->id,
                          (double)t->value);
    }
    return rc < 0 ? -1 : 0;
}

struct look_pair *
view_pairs(const struct look_view *v, size_t *n, struct err *err)
{
    const struct look *l = &v->l;
    struct look_ranked *r = mem_try(l->n + 1, sizeof(*r), l->path, err);
    struct look_pair *p = NULL;
    const int64_t *both;
    size_t k = 0, n_all = 0;

    while (k < l->p && l->pair_latent[k] != v->latent)
        k++;
    both = l->pairs + k * l->n;
    for (size_t i = 0; r && k < l->p && i < l->n; i++)
        if ((long)i != v->latent)
            r[n_all++] = (struct look_ranked){ (double)both[i], (int64_t)i, i };
    if (r)
        rank(r, n_all);
    *n = smaller(n_all, v->cmd->pairs_shown);
    if (r)
        p = mem_try(*n + 1, sizeof(*p), l->path, err);
    for (size_t j = 0; p && j < *n; j++) {
        size_t at = look_find(l, r[j].id);
        int64_t rows = both[r[j].at], either = -rows;

        either += at == SIZE_MAX ? 0 : both[v->latent] + l->rows_active[at];
        p[j] = (struct look_pair){ r[j].id, rows,
                                   either > 0 ? (double)rows / (double)either
                                              : NAN };
    }
    free(r);
    return p;
}

void
view_bins(const struct look_view *v, int *first, int *end)
{
    const int64_t *hist = v->l.hist + v->i * LOOK_BINS;

    *first = 0;
    *end = LOOK_BINS;
    while (*first < LOOK_BINS && hist[*first] == 0)
        ++*first;
    while (*end > *first && hist[*end - 1] == 0)
        --*end;
}

size_t
view_quantile(const struct look_view *v, size_t j)
{
    return j * v->cmd->quantiles / v->n_sample;
}

size_t
view_quantile_end(const struct look_view *v, size_t j)
{
    size_t end = j + 1;

    while (end < v->n_sample && view_quantile(v, end) == view_quantile(v, j))
        end++;
    return end;
}

int
view_level(const struct look_view *v, float f)
{
    double level = ceil(10 * (double)f / (double)v->max);

    return !(f > 0) ? 0 : level < 10 ? (int)level : 10;
}

void
view_token(const struct look_view *v, int32_t id, struct str *to)
{
    if (id >= 0 && !(v->tok && tok_bytes(v->tok, id, to)))
        str_addf(to, "%ld", (long)id);
}

void
view_json(const struct look_view *v, int32_t id, struct str *to)
{
    struct str token = { 0 };

    view_token(v, id, &token);
    js_put_str(to, token.s ? token.s : "", token.n);
    str_free(&token);
}
