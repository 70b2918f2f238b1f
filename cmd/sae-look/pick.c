/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/pick.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

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
