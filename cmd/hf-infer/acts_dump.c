/* SPDX-License-Identifier: ISC */
/* The dumps of --acts: memory for what taps pass, and the taps. */
#include <stdlib.h>

#include "cmd/hf-infer/acts.h"
#include "core/clock.h"
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

    a->n_dumps = a->dir.dir ? a->spec.n : 1;
    each /= a->n_dumps;
    a->dumps = xcalloc(a->n_dumps, sizeof(*a->dumps));
    for (size_t i = 0; i < a->n_dumps; i++) {
        struct acts_dump *d = &a->dumps[i];

        d->spec = (struct acts_spec){ .places = a->spec.places + i, .n = each };
        d->dim =
            tap_dim(run->config, d->spec.places->point, d->spec.places->layer);
        for (size_t k = 1; k < each; k++) {
            const struct place *p = &d->spec.places[k];

            if (tap_dim(run->config, p->point, p->layer) != d->dim)
                return err_set(err, TU_USAGE,
                               "%s: rows of layer %lld have %zu numbers, those "
                               "of layer %lld %zu: one array has layers of one "
                               "width",
                               place_word(p), (long long)p->layer,
                               tap_dim(run->config, p->point, p->layer),
                               (long long)d->spec.places->layer, d->dim);
        }
        if (!size_mul(d->dim * 4, each, &d->row_nbytes))
            return err_set(err, EX_SOFTWARE,
                           "%s: %zu layers of %zu floats (expected under 2^64 "
                           "bytes)",
                           run->dir, each, d->dim);
        d->array = (struct array_out){
            .out = a->dir.dir ? NULL : run->out,
            .npy = a->dir.dir || (run->output && str_ends(run->output, ".npy")),
            .dtype = DT_F32,
            .n_dims = 4,
            .shape = { 0, each, a->n_tokens, d->dim },
        };
        d->ids = (struct array_out){ .npy = true,
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
            a->tapped[k] = (struct acts_tap){ a, p->point };
            a->taps[k] =
                (struct tap){ p->point, -1, keep, &a->tapped[k], NULL };
            if (k > 0)
                a->taps[k - 1].next = &a->taps[k];
            a->n_taps++;
        }
        if (p->layer > a->taps->last_layer)
            a->taps->last_layer = p->layer;
    }
    return run->acts_meta && !a->dir.dir
               ? out_open(&a->meta, run->acts_meta, run->out_flags, false, err)
               : 0;
}

struct acts_dump *
acts_place(const struct acts_tap *tap, int64_t layer, size_t *place)
{
    const struct acts *a = tap->acts;
    bool one = a->n_dumps == 1;

    for (size_t i = 0; i < a->spec.n; i++)
        if (a->spec.places[i].point == tap->point &&
            a->spec.places[i].layer == layer) {
            *place = one ? i : 0;
            return &a->dumps[one ? 0 : i];
        }
    return NULL;
}

int
acts_start(struct acts *a, struct err *err)
{
    int rc = 0;

    a->started = clock_s();
    progress_start(&a->progress);
    for (size_t i = 0; i < a->n_dumps && rc == 0; i++) {
        struct acts_dump *d = &a->dumps[i];

        /* a window's length is known by now, or the room is not */
        d->array.shape[2] = d->ids.shape[1] = a->n_tokens;
        if (d->ids.out)
            rc = array_out_reserve(&d->ids, a->n_expected, err);
        if (rc == 0)
            rc = array_out_reserve(&d->array, a->n_expected, err);
    }
    for (size_t i = 0; i < N_ACTS_FILES && rc == 0; i++)
        if (a->files[i].npy)
            rc = array_out_reserve(&a->files[i], a->n_expected, err);
    return rc;
}

void
acts_close(struct acts *a)
{
    progress_end(&a->progress);
    for (size_t i = 0; i < a->n_dumps; i++) {
        out_abort(a->dumps[i].ids.out);
        if (a->dir.dir)
            out_abort(a->dumps[i].array.out);
        mem_big_free(a->dumps[i].acts, a->acts_tokens, a->dumps[i].row_nbytes);
    }
    for (size_t i = 0; i < N_ACTS_FILES; i++)
        out_abort(a->files[i].out);
    outdir_at_abort(&a->dir);
    out_abort(a->meta);
    out_abort(a->ids_json);
    out_abort(a->ids_pointer);
    free(a->dumps);
    acts_spec_free(&a->spec);
    str_free(&a->sources.text);
    str_free(&a->ids_default);
    hash_free(a->sum);
    ids_free(&a->ids);
    ids_free(&a->stream);
    docs_close(&a->docs);
}
