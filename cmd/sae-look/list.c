/* SPDX-License-Identifier: ISC */
/* list: a row for each latent of a RUN. */
#include <stdlib.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/view.h"
#include "core/tool.h"

/* A label that is nothing, or would be taken for none, is shown as none. */
static void
put_row(const struct look *l, size_t i, const struct label *label)
{
    struct str name = { 0 };

    if (label)
        str_esc(&name, label->s, label->n);
    tool_put("%ld\t%.6g\t%lld\t%lld\t%.6g\t%.6g\t%s\n", (long)l->latent[i],
             look_density(l, i), (long long)l->rows_active[i],
             (long long)l->seqs_active[i], look_mean(l, i), (double)l->max[i],
             name.n ? name.s : "-");
    str_free(&name);
}

int
list_main(const struct look_cmd *cmd, struct err *err)
{
    struct labels labels = { 0 };
    size_t *picked = NULL, n = 0;
    struct look l;
    int rc = -1;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "list takes one RUN");
    if (look_open(&l, cmd->args[0], err) < 0 ||
        labels_open(&labels, &l, err) < 0 ||
        !(picked = pick_sorted(&l, cmd, cmd->n ? cmd->n : SIZE_MAX, &n, err)))
        goto out;
    rc = 0;
    tool_put("latent\tdensity\trows_active\tseqs_active\tmean\tmax\tlabel\n");
    for (size_t k = 0; k < n; k++)
        put_row(&l, picked[k], labels_find(&labels, l.latent[picked[k]]));
out:
    free(picked);
    labels_free(&labels);
    look_close(&l);
    return rc;
}
