/* SPDX-License-Identifier: ISC */
/* list: a row for each latent of a RUN.  diff: which latents of an SAE are
 * active more or less often in other rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "cmd/sae-look/view.h"
#include "core/mem.h"
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
    struct look_view v = { 0 };
    int rc;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "list takes one RUN");
    rc = view_open(&v, cmd, cmd->n ? cmd->n : SIZE_MAX, err);
    if (rc == 0)
        tool_put(
            "latent\tdensity\trows_active\tseqs_active\tmean\tmax\tlabel\n");
    for (size_t k = 0; rc == 0 && k < v.n; k++)
        put_row(&v.l, v.picked[k],
                labels_find(&v.labels, v.l.latent[v.picked[k]]));
    view_close(&v);
    return rc;
}

int
diff_main(const struct look_cmd *cmd, struct err *err)
{
    struct look a = { 0 }, b = { 0 };
    struct look_ranked *r = NULL;
    const char *mask;
    size_t n = 0;
    int rc = -1;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "diff takes two RUNs");
    if (look_open(&a, cmd->args[0], err) < 0 ||
        look_open(&b, cmd->args[1], err) < 0)
        goto out;
    if (a.n != b.n || strcmp(a.sae_xxh3, b.sae_xxh3) != 0) {
        err_data(err, cmd->args[1], "is of another SAE (%s, but %s is of %s)",
                 b.sae_xxh3, cmd->args[0], a.sae_xxh3);
        goto out;
    }
    if ((mask = saev_mask_difference(&a.mask, &b.mask)))
        err_warn("%s and %s left out different rows: their %s differs",
                 cmd->args[0], cmd->args[1], mask);
    if (!(r = mem_try(a.m + 1, sizeof(*r), a.path, err)))
        goto out;
    rc = 0;
    for (size_t i = 0; i < a.m; i++) {
        size_t j = look_find(&b, a.latent[i]);

        if (j != SIZE_MAX)
            r[n++] = (struct look_ranked){
                fabs(look_density(&b, j) - look_density(&a, i)), (int64_t)i, j
            };
    }
    rank(r, n);
    tool_put("latent\tdensity_a\tdensity_b\tmean_a\tmean_b\tmax_a\tmax_b\n");
    for (size_t k = 0; k < n && (cmd->n == 0 || k < cmd->n); k++) {
        size_t i = (size_t)r[k].id, j = r[k].at;

        tool_put("%ld\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\n", (long)a.latent[i],
                 look_density(&a, i), look_density(&b, j), look_mean(&a, i),
                 look_mean(&b, j), (double)a.max[i], (double)b.max[j]);
    }
out:
    free(r);
    look_close(&a);
    look_close(&b);
    return rc;
}
