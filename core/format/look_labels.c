/* SPDX-License-Identifier: ISC */
/* Labels of the latents of a RUN: look.h. */
#include "core/format/look.h"

#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/mem.h"

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

        if (number == 1 && latent >= 0) {
            rc = err_data(err, path.s,
                          "line 1 is a label (expected names, as in "
                          "latent, a tab, label)");
        } else if (number > 1 && (latent <= last || (size_t)latent >= l->n)) {
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
