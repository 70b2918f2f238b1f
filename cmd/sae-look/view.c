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

/* ---- latents ---- */

struct picked {
    double key;
    size_t i;
};

static int
by_key(const void *pa, const void *pb)
{
    const struct picked *a = pa, *b = pb;

    return a->key != b->key ? (a->key < b->key ? 1 : -1)
                            : (a->i > b->i) - (a->i < b->i);
}

size_t *
pick_sorted(const struct look *l, const struct look_cmd *cmd, size_t most,
            size_t *n, struct err *err)
{
    struct picked *p = mem_try(l->m + 1, sizeof(*p), l->path, err);
    size_t *picked =
        p ? mem_try(l->m + 1, sizeof(*picked), l->path, err) : NULL;
    size_t n_all = 0;

    for (size_t i = 0; picked && i < l->m; i++) {
        double density = look_density(l, i);

        if (density < cmd->min_density || density > cmd->max_density)
            continue;
        p[n_all].i = i;
        p[n_all++].key = cmd->sort == SORT_DENSITY ? density
                         : cmd->sort == SORT_MEAN  ? look_mean(l, i)
                         : cmd->sort == SORT_MAX   ? (double)l->max[i]
                                                   : 0;
    }
    if (picked && n_all > 0)
        qsort(p, n_all, sizeof(*p), by_key);
    *n = smaller(n_all, most);
    for (size_t k = 0; picked && k < *n; k++)
        picked[k] = p[k].i;
    free(p);
    return picked;
}

struct sampled {
    float value;
    int64_t row;
    size_t at;
};

static int
by_value(const void *pa, const void *pb)
{
    const struct sampled *a = pa, *b = pb;

    return a->value != b->value ? (a->value < b->value ? 1 : -1)
                                : (a->row > b->row) - (a->row < b->row);
}

size_t
pick_sample(const struct look *l, size_t i, size_t *order)
{
    struct sampled s[LOOK_MAX_EXAMPLES];
    size_t n = 0;

    for (; n < l->sample.n && l->sample.row[i * l->sample.n + n] >= 0; n++)
        s[n] = (struct sampled){ l->sample.value[i * l->sample.n + n],
                                 l->sample.row[i * l->sample.n + n], n };
    qsort(s, n, sizeof(*s), by_value);
    for (size_t j = 0; j < n; j++)
        order[j] = s[j].at;
    return n;
}

int
pick_level(float f, float max)
{
    double level = ceil(10 * (double)f / (double)max);

    return !(f > 0) ? 0 : level < 10 ? (int)level : 10;
}

static int
by_rows(const void *pa, const void *pb)
{
    const struct look_pair *a = pa, *b = pb;

    return a->rows != b->rows
               ? (a->rows < b->rows ? 1 : -1)
               : (a->latent > b->latent) - (a->latent < b->latent);
}

struct look_pair *
pick_pairs(const struct look *l, size_t k, size_t most, size_t *n_pairs,
           struct err *err)
{
    const int64_t *both = l->pairs + k * l->n;
    int64_t self = l->pair_latent[k], either;
    struct look_pair *p = mem_try(l->n, sizeof(*p), l->path, err);
    size_t n = 0, at;

    if (!p)
        return NULL;
    for (size_t i = 0; i < l->n; i++)
        if ((int64_t)i != self)
            p[n++] = (struct look_pair){ (int64_t)i, both[i], NAN };
    qsort(p, n, sizeof(*p), by_rows);
    *n_pairs = n = smaller(n, most);
    for (size_t i = 0; i < n; i++) {
        if ((at = look_find(l, p[i].latent)) == SIZE_MAX)
            continue;
        either = both[self] + l->rows_active[at] - p[i].rows;
        if (either > 0)
            p[i].jaccard = (double)p[i].rows / (double)either;
    }
    return p;
}

/* ---- tokens ---- */

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

void
tokens_one(struct str *to, const struct tok *tok, int32_t id)
{
    struct str own = { 0 };

    if (id >= 0 && tok_bytes(tok, id, &own))
        js_put_str(to, own.s ? own.s : "", own.n);
    else
        str_adds(to, "null");
    str_free(&own);
}

void
tokens_json(struct str *to, const struct tok *tok, const int32_t *ids, size_t n)
{
    str_addc(to, '[');
    for (size_t k = 0; k < n; k++) {
        str_adds(to, k ? "," : "");
        tokens_one(to, tok, ids[k]);
    }
    str_addc(to, ']');
}

void
tokens_esc(struct str *to, const struct tok *tok, int32_t id)
{
    struct str own = { 0 };

    if (id >= 0 && tok_bytes(tok, id, &own) && own.n)
        str_esc(to, own.s, own.n);
    str_free(&own);
}

/* ---- the lens ---- */

int
lens_open(struct lens *lens, const struct look *l, struct err *err)
{
    struct st_want want = { 3, { l->n, 2, 1 }, NULL, NULL };
    const struct st_tensor *t;
    struct str path = { 0 };
    const char *of;
    int rc = 0;

    *lens = (struct lens){ 0 };
    str_addf(&path, "%s/" LENS_FILE, l->path);
    if (!file_missing(path.s) && (rc = st_open(&lens->st, path.s, err)) == 0) {
        of = st_meta(&lens->st, "sae_xxh3");
        t = st_find(&lens->st, "lens_id");
        if (t && t->n_dims == 3 && t->shape[2])
            want.shape[2] = t->shape[2];
        lens->n = want.shape[2];
        if (!of || strcmp(of, l->sae_xxh3) != 0)
            rc = err_data(err, path.s, "is of another SAE than " LOOK_JSON);
        else if (st_map(&lens->st, err) < 0 ||
                 !(lens->id = st_want_data(&lens->st, "lens_id", DT_I32, &want,
                                           err)) ||
                 !(lens->value = st_want_data(&lens->st, "lens_value", DT_F32,
                                              &want, err)))
            rc = -1;
        if (rc < 0)
            st_close(&lens->st);
    }
    str_free(&path);
    if (rc < 0)
        *lens = (struct lens){ 0 };
    return rc;
}

void
lens_close(struct lens *lens)
{
    if (lens->n)
        st_close(&lens->st);
    *lens = (struct lens){ 0 };
}

int
lens_get(const struct lens *lens, size_t latent, enum lens_sign sign,
         size_t rank, int32_t *id, float *value, struct err *err)
{
    size_t at = (latent * 2 + sign) * lens->n + rank;

    *id = (int32_t)le32(lens->id + 4 * at);
    *value = le_f32(lens->value + 4 * at);
    if (*id >= 0 && isfinite(*value))
        return 0;
    return err_data(err, lens->st.path, "[%zu, %d, %zu] is id %ld, logit %g",
                    latent, (int)sign, rank, (long)*id, (double)*value);
}

/* ---- all of a RUN ---- */

static int
pick_listed(struct look_view *v, const char *latents, struct err *err)
{
    struct numbers list = { 0 };
    int rc = numbers_add(&list, "--latents", latents, "latent", v->l.n, err);

    numbers_sort(&list);
    v->picked = xmalloc((list.n + 1) * sizeof(*v->picked));
    for (; rc == 0 && v->n < list.n; v->n++) {
        v->picked[v->n] = look_find(&v->l, list.v[v->n]);
        if (v->picked[v->n] == SIZE_MAX)
            rc =
                err_set(err, TU_USAGE,
                        "--latents: latent %lu is not in %s, which has %zu "
                        "of %zu",
                        (unsigned long)list.v[v->n], v->l.path, v->l.m, v->l.n);
    }
    numbers_free(&list);
    return rc;
}

int
view_open(struct look_view *v, const struct look_cmd *cmd, size_t most,
          struct err *err)
{
    *v = (struct look_view){ 0 };
    if (look_open(&v->l, cmd->args[0], err) < 0 ||
        labels_open(&v->labels, &v->l, err) < 0 ||
        lens_open(&v->lens, &v->l, err) < 0 ||
        tokens_open(&v->tok, cmd->model, true, err) < 0)
        return -1;
    if (cmd->latents)
        return pick_listed(v, cmd->latents, err);
    v->picked = pick_sorted(&v->l, cmd, most, &v->n, err);
    return v->picked ? 0 : -1;
}

void
view_close(struct look_view *v)
{
    free(v->picked);
    tok_close(v->tok);
    lens_close(&v->lens);
    labels_free(&v->labels);
    look_close(&v->l);
}

void
view_token(const struct look_view *v, int32_t id, struct str *to)
{
    if (id >= 0 && !(v->tok && tok_bytes(v->tok, id, to)))
        str_addf(to, "%ld", (long)id);
}
