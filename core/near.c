/* SPDX-License-Identifier: ISC */
#include "core/near.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"

/* Costs: of a name that the word is a part of, its other letters; of others, as
 * many errors after ERRORS. */
enum { MAX_ERRORS = 3, ERRORS = NEAR_MAX, FAR = ERRORS + MAX_ERRORS + 1 };

void
near_start(struct near *near, const char *word)
{
    near->word = word;
    near->cost = FAR;
    near->name[0] = near->hint[0] = '\0';
}

/* Of one letter more or less. */
static size_t
cost_of(char c)
{
    return isdigit((unsigned char)c) ? FAR : 1;
}

static bool
is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/*
 * The optimal string alignment distance (Damerau and Levenshtein's, where no
 * letter is changed twice), or anything over 'max' if it is more.
 */
static size_t
distance(const char *a, size_t n_a, const char *b, size_t n_b, size_t max)
{
    size_t rows[3][NEAR_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2], *t;

    last[0] = 0;
    for (size_t j = 0; j < n_b; j++)
        last[j + 1] = last[j] + cost_of(b[j]);
    for (size_t i = 0; i < n_a; i++) {
        size_t row_min = row[0] = last[0] + cost_of(a[i]);

        for (size_t j = 0; j < n_b; j++) {
            size_t other =
                is_same(a[i], b[j]) ? 0 : cost_of(a[i]) * cost_of(b[j]);
            size_t cost =
                smaller(last[j] + other, smaller(last[j + 1] + cost_of(a[i]),
                                                 row[j] + cost_of(b[j])));

            if (i > 0 && j > 0 && is_same(a[i], b[j - 1]) &&
                is_same(a[i - 1], b[j]))
                cost = smaller(cost,
                               before[j - 1] + cost_of(a[i]) * cost_of(b[j]));
            row[j + 1] = cost;
            row_min = smaller(row_min, cost);
        }
        if (row_min > max)
            return row_min;
        t = before;
        before = last;
        last = row;
        row = t;
    }
    return last[n_b];
}

/* Of the errors that make the word of a name, FAR if they are too many. */
static size_t
cost_of_errors(const struct near *near, size_t n_word, const char *name,
               size_t n)
{
    size_t max = smaller((n_word + 1) / 4, MAX_ERRORS), errors;

    if (near->cost <= ERRORS)
        return FAR;
    max = smaller(max, near->cost - ERRORS - 1);
    if (larger(n, n_word) - smaller(n, n_word) > max)
        return FAR;
    errors = distance(near->word, n_word, name, n, max);
    return errors <= max ? ERRORS + errors : FAR;
}

void
near_try(struct near *near, const char *name, size_t n)
{
    size_t n_word = strlen(near->word), cost;

    if (n == 0 || n >= NEAR_MAX || n_word == 0 || n_word >= NEAR_MAX)
        return;
    if (n_word >= 3 && memmem(name, n, near->word, n_word))
        cost = n - n_word;
    else
        cost = cost_of_errors(near, n_word, name, n);
    if (cost >= near->cost)
        return;
    near->cost = cost;
    memcpy(near->name, name, n);
    near->name[n] = '\0';
}

const char *
near_hint(struct near *near)
{
    if (near->name[0])
        snprintf(near->hint, sizeof(near->hint), " (did you mean \"%s\"?)",
                 near->name);
    return near->hint;
}
