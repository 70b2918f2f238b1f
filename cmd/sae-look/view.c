/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/view.h"

#include <stdlib.h>

#include "cmd/sae-look/tokens.h"
#include "core/mem.h"
#include "core/numbers.h"

static int
pick_listed(struct look_view *v, const char *latents, struct err *err)
{
    struct numbers list = { 0 };
    int rc = numbers_add(&list, "--latents", latents, "latent", v->l.n, err);

    numbers_sort(&list);
    v->picked = xmalloc((list.n + 1) * sizeof(*v->picked));
    for (; rc == 0 && v->n < list.n; v->n++) {
        v->picked[v->n] = look_find(&v->l, list.v[v->n]);
        if (v->picked[v->n] == SIZE_MAX)
            rc =
                err_set(err, TU_USAGE,
                        "--latents: latent %lu is not in %s, which has %zu "
                        "of %zu",
                        (unsigned long)list.v[v->n], v->l.path, v->l.m, v->l.n);
    }
    numbers_free(&list);
    return rc;
}

int
view_open(struct look_view *v, const struct look_cmd *cmd, size_t most,
          struct err *err)
{
    *v = (struct look_view){ 0 };
    if (look_open(&v->l, cmd->args[0], err) < 0 ||
        labels_open(&v->labels, &v->l, err) < 0 ||
        lens_open(&v->lens, &v->l, err) < 0 ||
        tokens_open(&v->tok, cmd->model, true, err) < 0)
        return -1;
    if (cmd->latents)
        return pick_listed(v, cmd->latents, err);
    v->picked = pick_sorted(&v->l, cmd, most, &v->n, err);
    return v->picked ? 0 : -1;
}

void
view_close(struct look_view *v)
{
    free(v->picked);
    tok_close(v->tok);
    lens_close(&v->lens);
    labels_free(&v->labels);
    look_close(&v->l);
}

void
view_token(const struct look_view *v, int32_t id, struct str *to)
{
    if (id >= 0 && !(v->tok && tok_bytes(v->tok, id, to)))
        str_addf(to, "%ld", (long)id);
}
