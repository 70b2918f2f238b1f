/* SPDX-License-Identifier: ISC */
#include "core/text/tok_growth.h"

int
growth_add(struct growth *g, size_t i_step, size_t nbytes, struct err *err)
{
    if (nbytes > growth_room(g, i_step))
        return err_set(
            err, EX_DATAERR,
            "%s: %s: step %zu makes a text of %zu byte%s longer than %zu",
            g->file, g->part, i_step + 1, g->nbytes, g->nbytes == 1 ? "" : "s",
            growth_most(g));
    g->grown[i_step] += nbytes;
    return 0;
}
