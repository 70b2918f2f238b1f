/* SPDX-License-Identifier: ISC */
/* A RUN is written: look_write() of look.h. */
#include "core/format/look.h"

#include <stdlib.h>
#include <string.h>

#include "core/format/stw.h"
#include "core/js.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/str.h"

static void
put_json(struct str *s, const struct look *l)
{
    js_addf(s,
            "{\"format\": %d, \"sae\": %s, \"sae_xxh3\": %s, \"hook\": %s, "
            "\"latents\": %zu, \"d\": %zu, \"rows\": %llu, "
            "\"left_out\": %llu, \"sequences\": %llu, \"T\": %zu, "
            "\"input\": [",
            LOOK_FORMAT, l->sae, l->sae_xxh3, l->hook, l->n, l->d,
            (unsigned long long)l->rows, (unsigned long long)l->left_out,
            (unsigned long long)l->sequences, l->n_tokens);
    for (size_t i = 0; i < l->n_input; i++)
        str_addf(s, "%s[%llu, %llu]", i ? ", " : "",
                 (unsigned long long)l->input[i][0],
                 (unsigned long long)l->input[i][1]);
    js_addf(s,
            "], \"top\": %zu, \"sample\": %zu, \"context\": [%zu, %zu], "
            "\"per\": %s, \"seed\": %llu, \"skip_ids\": [",
            l->top.n, l->sample.n, l->context[0], l->context[1],
            l->per_row ? "row" : "sequence", (unsigned long long)l->seed);
    for (size_t i = 0; i < l->mask.n_ids; i++)
        str_addf(s, "%s%ld", i ? ", " : "", (long)l->mask.ids[i]);
    js_addf(s,
            "], \"skip_positions\": %llu, \"max_norm\": %g, "
            "\"ids_sha256\": %s}\n",
            (unsigned long long)l->mask.positions, l->mask.max_norm,
            l->ids_sha256);
}

/* Acts or ids, of some examples at a time. */
static int
write_places(const struct look *l, struct stw *w, int handle,
             const struct look_examples *of, bool ids, struct err *err)
{
    size_t most = larger(16384 / l->c, 1), n = l->m * of->n, some;
    float *acts = mem_try(most * l->c, sizeof(*acts), "an example", err);
    int32_t *as_ids = (void *)acts;
    int rc = acts ? 0 : -1;

    for (size_t i = 0; i < n && rc == 0; i += some) {
        some = smaller(most, n - i);
        for (size_t k = 0; k < some; k++)
            if (ids)
                l->put_ids(l->put_ctx, of, i + k, as_ids + k * l->c);
            else
                l->put_acts(l->put_ctx, of, i + k, acts + k * l->c);
        rc = stw_write_some(w, handle, i * l->c, acts, some * l->c, 4, err);
    }
    free(acts);
    return rc;
}

static int
write_tensors(const struct look *l, const char *path, int flags,
              struct err *err)
{
    struct stw *w = stw_new();
    int handle[LOOK_N_TENSORS], rc = 0;
    size_t n[LOOK_N_TENSORS];

    for (size_t i = 0; i < LOOK_N_TENSORS && rc == 0; i++) {
        const struct look_tensor *t = &look_tensors[i];
        uint64_t shape[3];
        size_t n_dims = look_shape(l, t, shape);

        handle[i] = -1;
        n[i] = 1;
        if (n_dims == 0 || (*t->dims == 'p' && l->p == 0))
            continue;
        for (size_t k = 0; k < n_dims; k++)
            n[i] *= shape[k];
        handle[i] = stw_add(w, t->name, t->dtype, n_dims, shape, err);
        rc = handle[i] < 0 ? -1 : 0;
    }
    if (rc == 0)
        rc = stw_open(w, path, flags, err);
    for (size_t i = 0; i < LOOK_N_TENSORS && rc == 0; i++) {
        const struct look_tensor *t = &look_tensors[i];
        const void *from;

        memcpy(&from, (const char *)l + t->at, sizeof(from));
        if (handle[i] >= 0 && l->put_acts && strchr(t->dims, 'c'))
            rc = write_places(l, w, handle[i],
                              strchr(t->dims, 't') ? &l->top : &l->sample,
                              strchr(t->dims, 'i'), err);
        else if (handle[i] >= 0)
            rc = stw_write_numbers(w, handle[i], from, n[i],
                                   dtype_size(t->dtype), err);
    }
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}

int
look_write(const struct look *l, const char *dir, struct err *err)
{
    struct str text = { 0 }, path = { 0 };
    int rc;

    put_json(&text, l);
    str_addf(&path, "%s/" LOOK_JSON, dir);
    rc = out_put(path.s, 0, text.s, text.n, err);
    str_clear(&path);
    str_addf(&path, "%s/" LOOK_TENSORS, dir);
    if (rc == 0)
        rc = write_tensors(l, path.s, 0, err);
    str_free(&text);
    str_free(&path);
    return rc;
}
