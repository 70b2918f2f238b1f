/* SPDX-License-Identifier: ISC */
#include "core/model/steer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/sums.h"
#include "core/mem.h"
#include "core/opt_value.h"

/* ---- what is to change ---- */

static int
by_latent(const void *a, const void *b)
{
    const struct steer_change *x = a, *y = b;

    return (x->latent > y->latent) - (x->latent < y->latent);
}

/* "17+8" */
static int
parse_change(struct steer_change *to, const char *name, char *item,
             struct numbers *latents, size_t n_latents, struct err *err)
{
    size_t digits = strspn(item, "0123456789");
    char how = item[digits];
    double x;

    if (digits == 0 || how == '\0' || !strchr("+=*", how))
        return err_set(err, TU_USAGE,
                       "%s: \"%s\" is not a change (I+X, I=X or I*X, as 17+8)",
                       name, item);
    if (opt_f64(name, item + digits + 1, -(double)FLT_MAX, (double)FLT_MAX, &x,
                err) < 0)
        return -1;
    item[digits] = '\0';
    if (numbers_add(latents, name, item, "latent", n_latents, err) < 0)
        return -1;
    *to = (struct steer_change){ latents->v[latents->n - 1], how, (float)x };
    return 0;
}

int
steer_parse(struct steer *s, const char *name, const char *text,
            size_t n_latents, struct err *err)
{
    char *list = xstrdup(text), *next = list, *item;
    struct numbers latents = { 0 };
    int rc = 0;

    while (rc == 0 && (item = strsep(&next, ","))) {
        s->list = xrealloc(s->list, s->n + 1, sizeof(*s->list));
        rc = parse_change(&s->list[s->n], name, item, &latents, n_latents, err);
        s->reads |= rc == 0 && s->list[s->n].how != '+';
        s->n += rc == 0;
    }
    if (s->n)
        qsort(s->list, s->n, sizeof(*s->list), by_latent);
    numbers_free(&latents);
    free(list);
    return rc;
}

int
steer_ablate(struct steer *s, const char *name, const char *text,
             size_t n_latents, struct err *err)
{
    struct numbers latents = { 0 };
    int rc = numbers_add(&latents, name, text, "latent", n_latents, err);

    numbers_sort(&latents);
    s->list = xcalloc(latents.n, sizeof(*s->list));
    for (; s->n < latents.n; s->n++)
        s->list[s->n] = (struct steer_change){ latents.v[s->n], '=', 0 };
    s->reads = true;
    numbers_free(&latents);
    return rc;
}

void
steer_free(struct steer *s)
{
    free(s->list);
    *s = (struct steer){ 0 };
}

int
steer_at_parse(struct steer_at *at, const char *text, struct err *err)
{
    static const char *const words[] = { "all", "prompt", "generated" };

    for (int i = 0; i < STEER_RANGE; i++)
        if (!strcmp(text, words[i])) {
            at->where = (enum steer_where)i;
            return 0;
        }
    at->where = STEER_RANGE;
    if (range_parse(&at->range, text) == 0)
        return 0;
    return err_set(err, TU_USAGE,
                   "--steer-at: \"%s\" is not all, prompt, generated or "
                   "positions A-B",
                   text);
}

bool
steer_is_at(const struct steer_at *at, size_t position, bool generated)
{
    return at->where == STEER_RANGE
               ? position >= at->range.first && position <= at->range.last
               : at->where == STEER_ALL ||
                     generated == (at->where == STEER_GENERATED);
}

/* ---- rows ---- */

struct steer_step {
    const struct steering *s;
    const double *notes; /* [n, 2] as of autoencoder_transform(); or NULL */
    float *x;
    size_t position;
};

static float
coefficient(const struct steer_change *change, float f)
{
    double x = (double)change->x;

    return change->how == '+'   ? change->x
           : change->how == '=' ? (float)(x - (double)f)
                                : (float)((x - 1) * (double)f);
}

/* The c of a row that are not 0, and their latents; returns how many. */
static size_t
coefficients(uint32_t *idx, float *c, const struct steer_step *s, size_t row)
{
    const struct steer *st = s->s->steer;
    const struct steer_each *each = s->s->each;
    struct latents_row found = { 0 };
    size_t n = 0;

    if (each) {
        idx[0] = st->list[each->now].latent;
        c[0] = each->c[s->position + row];
        return c[0] != 0;
    }
    if (st->reads)
        found = latents_row(s->s->work, row);
    for (size_t i = 0, k = 0; i < st->n; i++) {
        const struct steer_change *change = &st->list[i];
        bool active;

        while (k < found.n && found.idx[k] < change->latent)
            k++;
        active = k < found.n && found.idx[k] == change->latent;
        c[n] = found.bad ? NAN : coefficient(change, active ? found.v[k] : 0);
        idx[n] = change->latent;
        n += c[n] != 0;
    }
    return n;
}

static void
change_rows(void *ctx, size_t begin, size_t end)
{
    const struct steer_step *s = ctx;
    const struct autoencoder *a = s->s->a;
    size_t room = s->s->each ? 1 : s->s->steer->n;
    uint32_t *idx = xcalloc(room, sizeof(*idx));
    float *c = xcalloc(room, sizeof(*c)), *y = xcalloc(a->d, sizeof(*y));

    for (size_t r = begin; r < end; r++) {
        const struct sparse_sum sum = { .y = y,
                                        .w = a->decoder.w,
                                        .idx = idx,
                                        .v = c,
                                        .ldw = a->d,
                                        .cols = a->d,
                                        .n = coefficients(idx, c, s, r),
                                        .w_dtype = a->decoder.dtype };
        double out = s->notes ? s->notes[2 * r + 1] : 1;
        float *x = s->x + r * a->d;

        if (sum.n == 0)
            continue;
        memset(y, 0, a->d * sizeof(*y));
        sparse_sum(&sum);
        /* without a transform this is the f32 sum of both */
        for (size_t i = 0; i < a->d; i++)
            x[i] = (float)((double)x[i] + (double)y[i] * out);
    }
    free(idx);
    free(c);
    free(y);
}

static void
note(struct steer_each *each, size_t change, size_t position, float f)
{
    each->found = xgrow(each->found, each->n_found, &each->found_cap,
                        sizeof(*each->found));
    each->found[each->n_found++] = (struct steer_found){ change, position, f };
}

/* Notes what of the list is active in the rows that were encoded. */
static void
note_rows(const struct steering *s, size_t n, size_t position)
{
    const struct steer *st = s->steer;

    for (size_t r = 0; r < n; r++) {
        struct latents_row row = latents_row(s->work, r);

        for (size_t i = 0, k = 0; i < st->n; i++) {
            while (k < row.n && row.idx[k] < st->list[i].latent)
                k++;
            if (row.bad)
                note(s->each, i, position + r, NAN);
            else if (k == row.n)
                break;
            else if (row.idx[k] == st->list[i].latent)
                note(s->each, i, position + r, row.v[k]);
        }
    }
}

void
steer_rows(const struct steering *s, float *x, size_t n, size_t position)
{
    const struct autoencoder *a = s->a;
    bool finds = s->each && s->each->now == STEER_NONE;
    bool transforms = autoencoder_transforms(a);
    double *notes = transforms ? xcalloc(2 * n, sizeof(*notes)) : NULL;
    float *in = transforms ? xcalloc(n, a->d * sizeof(*in)) : x;
    struct steer_step step = { s, notes, x, position };

    if (transforms)
        autoencoder_transform(a, s->par, in, x, notes, n);
    if (finds || (s->steer->reads && !s->each)) {
        latents_encode(s->work, &a->latents, in, a->d, n);
        latents_select(s->work, &a->latents);
    }
    if (finds)
        note_rows(s, n, position);
    else
        par_for(s->par, n, 1, change_rows, &step);
    if (transforms)
        free(in);
    free(notes);
}
