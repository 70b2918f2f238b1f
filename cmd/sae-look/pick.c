/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/pick.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
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

/* A line's number before the tab; -1: there is none. */
static int64_t
latent_of(const char *line, const char *tab)
{
    int64_t v = 0;

    if (tab == line || tab - line > 9)
        return -1;
    for (; line < tab; line++) {
        if (*line < '0' || *line > '9')
            return -1;
        v = 10 * v + (*line - '0');
    }
    return v;
}

int
labels_open(struct labels *labels, const struct look *l, struct err *err)
{
    struct str path = { 0 };
    const char *line, *end;
    int rc = 0;

    *labels = (struct labels){ 0 };
    str_addf(&path, "%s/" LABELS_FILE, l->path);
    if (!file_missing(path.s))
        rc = file_read_regular(path.s, SIZE_MAX / 2, &labels->text, err);
    line = labels->text.s;
    end = line ? line + labels->text.n : NULL;
    for (size_t number = 1, cap = 0; rc == 0 && line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop ? stop : end) - line);
        const char *tab = memchr(line, '\t', n);
        int64_t latent = tab ? latent_of(line, tab) : -1;
        int64_t last = labels->n ? labels->label[labels->n - 1].latent : -1;

        if (number > 1 && (latent <= last || (size_t)latent >= l->n)) {
            rc = err_data(err, path.s,
                          "line %zu is no latent and its label (expected "
                          "%lld to %zu, and a tab)",
                          number, (long long)last + 1, l->n - 1);
        } else if (number > 1) {
            if (labels->n == cap)
                labels->label = xgrow(labels->label, labels->n, &cap,
                                      sizeof(*labels->label));
            labels->label[labels->n++] =
                (struct label){ latent, tab + 1, n - (size_t)(tab + 1 - line) };
        }
        line += n + 1;
    }
    str_free(&path);
    if (rc < 0)
        labels_free(labels);
    return rc;
}

void
labels_free(struct labels *labels)
{
    free(labels->label);
    str_free(&labels->text);
    *labels = (struct labels){ 0 };
}

static int
by_latent(const void *key, const void *of)
{
    int64_t a = *(const int64_t *)key, b = ((const struct label *)of)->latent;

    return (a > b) - (a < b);
}

const struct label *
labels_find(const struct labels *labels, int64_t latent)
{
    return labels->n == 0 ? NULL
                          : bsearch(&latent, labels->label, labels->n,
                                    sizeof(*labels->label), by_latent);
}
