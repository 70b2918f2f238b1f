/* SPDX-License-Identifier: ISC */
#include "cmd/sae-train/tokens.h"

#include <stdlib.h>

#include "core/js.h"
#include "core/mem.h"

#define WORST ((size_t)20)

void
tokens_open(struct tokens *t, const struct row_stream *rows, size_t batch,
            size_t n_saes)
{
    size_t n = 0;

    t->id = rows_all_ids(rows, &n);
    qsort(t->id, n, sizeof(*t->id), by_i32);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || t->id[i] != t->id[i - 1])
            t->id[t->n++] = t->id[i];
    t->n_saes = n_saes;
    t->rows = xcalloc(t->n, sizeof(*t->rows));
    t->error = xcalloc(n_saes, t->n * sizeof(*t->error));
    t->variance = xcalloc(t->n, sizeof(*t->variance));
    t->of_row = xcalloc(batch, sizeof(*t->of_row));
}

void
tokens_close(struct tokens *t)
{
    free(t->id);
    free(t->rows);
    free(t->error);
    free(t->variance);
    free(t->of_row);
}

static size_t
place_of(const struct tokens *t, int32_t id)
{
    const int32_t *at = bsearch(&id, t->id, t->n, sizeof(id), by_i32);

    return (size_t)(at - t->id);
}

void
tokens_add(struct tokens *t, const struct row_stream *rows, size_t n,
           const double *errors, size_t ld)
{
    rows_ids(rows, t->of_row);
    for (size_t r = 0; r < n; r++) {
        size_t k = place_of(t, t->of_row[r]);

        t->rows[k]++;
        for (size_t i = 0; i < t->n_saes; i++)
            t->error[i * t->n + k] += errors[i * ld + r];
    }
}

void
tokens_variance(struct tokens *t, const struct row_stream *rows, size_t n,
                const double *mean)
{
    const float *x = rows_layer(rows, 0);

    rows_ids(rows, t->of_row);
    for (size_t r = 0; r < n; r++, x += rows->d) {
        double sum = 0;

        for (size_t i = 0; i < rows->d; i++)
            sum += ((double)x[i] - mean[i]) * ((double)x[i] - mean[i]);
        t->variance[place_of(t, t->of_row[r])] += sum;
    }
}

void
tokens_put(const struct tokens *t, size_t sae, bool json, const char *prefix,
           struct str *to)
{
    const double *error = t->error + sae * t->n;
    size_t worst[WORST], n = 0;
    double all = 0, variance = 0;

    for (size_t i = 0; i < t->n; i++) {
        size_t at = n;

        all += error[i];
        variance += t->variance[i];
        for (; at > 0 && error[worst[at - 1]] < error[i]; at--)
            if (at < WORST)
                worst[at] = worst[at - 1];
        if (at < WORST && t->rows[i] > 0)
            worst[at] = i;
        n += n < WORST && t->rows[i] > 0;
    }
    for (size_t k = 0; k < n; k++) {
        size_t i = worst[k];

        str_adds(to, json ? k ? "," : "[" : prefix);
        js_addf(to,
                json ? "{\"id\":%d,\"rows\":%lu,\"error_share\":%g,"
                       "\"variance_share\":%g,\"fvu\":%g}"
                     : "%d\t%lu\t%g\t%g\t%g\n",
                (int)t->id[i], (unsigned long)t->rows[i], error[i] / all,
                t->variance[i] / variance, error[i] / t->variance[i]);
    }
    str_adds(to, json && n ? "]" : "");
}
