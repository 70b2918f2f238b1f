/* SPDX-License-Identifier: ISC */
/* A RUN is written: look_write() of look.h. */
#include "core/format/look.h"

#include <string.h>

#include "core/format/stw.h"
#include "core/js.h"
#include "core/out.h"
#include "core/str.h"

static void
put_text(struct str *s, const char *key, const char *v)
{
    str_addf(s, ", \"%s\": ", key);
    if (v)
        js_put_str(s, v, strlen(v));
    else
        str_adds(s, "null");
}

static void
put_u64(struct str *s, const char *key, uint64_t v)
{
    str_addf(s, ", \"%s\": %llu", key, (unsigned long long)v);
}

static void
put_json(struct str *s, const struct look *l)
{
    str_addf(s, "{\"format\": %d", LOOK_FORMAT);
    put_text(s, "sae", l->sae);
    put_text(s, "sae_xxh3", l->sae_xxh3);
    put_text(s, "hook", l->hook);
    put_u64(s, "latents", l->n);
    put_u64(s, "d", l->d);
    put_u64(s, "rows", l->rows);
    put_u64(s, "left_out", l->left_out);
    put_u64(s, "sequences", l->sequences);
    put_u64(s, "T", l->n_tokens);
    str_adds(s, ", \"input\": [");
    for (size_t i = 0; i < l->n_input; i++)
        str_addf(s, "%s[%llu, %llu]", i ? ", " : "",
                 (unsigned long long)l->input[i][0],
                 (unsigned long long)l->input[i][1]);
    str_addc(s, ']');
    put_u64(s, "top", l->top.n);
    put_u64(s, "sample", l->sample.n);
    str_addf(s, ", \"context\": [%zu, %zu], \"per\": \"%s\"", l->context[0],
             l->context[1], l->per_row ? "row" : "sequence");
    put_u64(s, "seed", l->seed);
    str_adds(s, ", \"skip_ids\": [");
    for (size_t i = 0; i < l->mask.n_ids; i++)
        str_addf(s, "%s%ld", i ? ", " : "", (long)l->mask.ids[i]);
    str_addc(s, ']');
    put_u64(s, "skip_positions", l->mask.positions);
    str_adds(s, ", \"max_norm\": ");
    js_put_f64(s, l->mask.max_norm);
    put_text(s, "ids_sha256", l->ids_sha256);
    str_adds(s, "}\n");
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
        const void *from;

        memcpy(&from, (const char *)l + look_tensors[i].at, sizeof(from));
        if (handle[i] >= 0)
            rc = stw_write_numbers(w, handle[i], from, n[i],
                                   dtype_size(look_tensors[i].dtype), err);
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
