/* SPDX-License-Identifier: ISC */
#include "cmd/hf-infer/stop.h"

#include <string.h>

/* Does a stop string begin at held[i]?  2: whole, 1: as far as text goes. */
static int
begins(const struct stop *stop, size_t i)
{
    size_t there = stop->held.n - i;
    int best = 0;

    for (size_t k = 0; k < stop->n && best < 2; k++) {
        size_t n = strlen(stop->string[k]);

        if (!memcmp(stop->held.s + i, stop->string[k], n < there ? n : there))
            best = n <= there ? 2 : 1;
    }
    return best;
}

/* Appends what is shown of the first n bytes that are held. */
static void
put(struct stop *stop, size_t n, struct str *out)
{
    for (size_t i = 0; i < n; i++)
        if (stop->shown.s[i])
            str_addc(out, stop->held.s[i]);
}

bool
stop_pass(struct stop *stop, const char *text, size_t nbytes, bool shown,
          struct str *out)
{
    size_t i = 0;
    int b = 0;

    str_add(&stop->held, text, nbytes);
    for (size_t k = 0; k < nbytes; k++)
        str_addc(&stop->shown, shown);
    while (i < stop->held.n && (b = begins(stop, i)) == 0)
        i++;
    put(stop, i, out);
    memmove(stop->held.s, stop->held.s + i, stop->held.n - i);
    memmove(stop->shown.s, stop->shown.s + i, stop->held.n - i);
    stop->shown.n = stop->held.n -= i;
    return b == 2;
}

bool
stop_end(struct stop *stop, struct str *out)
{
    size_t i = 0;
    bool found;

    while (i < stop->held.n && begins(stop, i) != 2)
        i++;
    put(stop, i, out);
    found = i < stop->held.n;
    str_clear(&stop->held);
    str_clear(&stop->shown);
    return found;
}

void
stop_free(struct stop *stop)
{
    str_free(&stop->held);
    str_free(&stop->shown);
}
