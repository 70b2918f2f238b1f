/* SPDX-License-Identifier: ISC */
/* The dumps of --acts: memory for what taps pass, and the taps. */
#include <stdlib.h>
#include <string.h>

#include "cmd/hf-infer/acts_run.h"
#include "core/mem.h"
#include "core/model/model.h"

int
acts_room(struct acts *a, size_t n_tokens, struct err *err)
{
    size_t before = a->acts_tokens;

    if (n_tokens <= before)
        return 0;
    a->acts_tokens = 0;
    for (size_t i = 0; i < a->n_dumps; i++) {
        struct acts_dump *d = &a->dumps[i];

        mem_big_free(d->acts, before, d->row_nbytes);
        d->acts = NULL;
    }
    a->acts_tokens = n_tokens;
    for (size_t i = 0; i < a->n_dumps; i++) {
        struct acts_dump *d = &a->dumps[i];

        d->acts = mem_big(n_tokens, d->row_nbytes, "the activations", err);
        if (!d->acts)
            return -1;
    }
    return 0;
}

int
acts_open_dumps(struct acts *a, acts_keep *keep, struct err *err)
{
    const struct run *run = a->run;
    size_t each = a->spec.n;
    size_t n_layers = (size_t)run->config->n_layers;

    a->n_dumps = a->dir.dir ? a->spec.n : 1;
    each /= a->n_dumps;
    a->dumps = xcalloc(a->n_dumps, sizeof(*a->dumps));
    for (size_t i = 0; i < a->n_dumps; i++) {
        struct acts_dump *d = &a->dumps[i];

        d->spec = (struct acts_spec){ .places = a->spec.places + i, .n = each };
        d->dim = tap_dim(run->config, d->spec.places->point);
        if (!size_mul(d->dim * 4, each, &d->row_nbytes))
            return err_set(err, EX_SOFTWARE,
                           "%s: %zu layers of %zu floats (expected under 2^64 "
                           "bytes)",
                           run->dir, each, d->dim);
        d->array = (struct acts_array){
            .out = a->dir.dir ? NULL : run->out,
            .npy = a->dir.dir || (run->output && str_ends(run->output, ".npy")),
            .dtype = DT_F32,
            .n_dims = 4,
            .shape = { 0, each, a->n_tokens, d->dim },
        };
        d->ids = (struct acts_array){ .npy = true,
                                      .dtype = DT_I32,
                                      .n_dims = 2,
                                      .shape = { 0, a->n_tokens } };
        if (a->dir.dir && acts_open_place(a, d, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < a->spec.n; i++) {
        const struct place *p = &a->spec.places[i];
        size_t k = 0;

        while (k < a->n_taps && a->taps[k].point != p->point)
            k++;
        if (k == a->n_taps) {
            a->tapped[k].acts = a;
            a->tapped[k].place =
                xcalloc(n_layers + 1, sizeof(*a->tapped[k].place));
            memset(a->tapped[k].place, 0xff,
                   (n_layers + 1) * sizeof(*a->tapped[k].place));
            a->taps[k] =
                (struct tap){ p->point, -1, keep, &a->tapped[k], NULL };
            if (k > 0)
                a->taps[k - 1].next = &a->taps[k];
            a->n_taps++;
        }
        a->tapped[k].place[p->layer + 1] = i;
        if (p->layer > a->taps->last_layer)
            a->taps->last_layer = p->layer;
    }
    return 0;
}

void
acts_free_dumps(struct acts *a)
{
    for (size_t i = 0; i < a->n_dumps; i++) {
        out_abort(a->dumps[i].ids.out);
        if (a->dir.dir)
            out_abort(a->dumps[i].array.out);
        mem_big_free(a->dumps[i].acts, a->acts_tokens, a->dumps[i].row_nbytes);
    }
    outdir_at_abort(&a->dir);
    for (size_t i = 0; i < a->n_taps; i++)
        free(a->tapped[i].place);
    free(a->dumps);
    acts_spec_free(&a->spec);
}
