/* SPDX-License-Identifier: ISC */
/* diff: which latents of an SAE are active more or less often in other rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/sae-look/cmd.h"
#include "core/format/look.h"
#include "core/mem.h"
#include "core/tool.h"

struct change {
    double by;
    size_t a, b; /* places in the two RUNs */
};

/* Places ascend as latents do. */
static int
by_change(const void *pa, const void *pb)
{
    const struct change *a = pa, *b = pb;

    return a->by != b->by ? (a->by < b->by ? 1 : -1)
                          : (a->a > b->a) - (a->a < b->a);
}

int
diff_main(const struct look_cmd *cmd, struct err *err)
{
    struct look a = { 0 }, b = { 0 };
    struct change *c = NULL;
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
    if (!(c = mem_try(a.m + 1, sizeof(*c), a.path, err)))
        goto out;
    rc = 0;
    for (size_t i = 0; i < a.m; i++) {
        size_t j = look_find(&b, a.latent[i]);

        if (j != SIZE_MAX)
            c[n++] = (struct change){
                fabs(look_density(&b, j) - look_density(&a, i)), i, j
            };
    }
    qsort(c, n, sizeof(*c), by_change);
    tool_put("latent\tdensity_a\tdensity_b\tmean_a\tmean_b\tmax_a\tmax_b\n");
    for (size_t k = 0; k < n && (cmd->n == 0 || k < cmd->n); k++)
        tool_put("%ld\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\n",
                 (long)a.latent[c[k].a], look_density(&a, c[k].a),
                 look_density(&b, c[k].b), look_mean(&a, c[k].a),
                 look_mean(&b, c[k].b), (double)a.max[c[k].a],
                 (double)b.max[c[k].b]);
out:
    free(c);
    look_close(&a);
    look_close(&b);
    return rc;
}
