/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/lens_file.h"

#include <math.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/le.h"
#include "core/map.h"

static int
find(struct lens *lens, const char *name, enum dtype dtype, const char **to,
     struct err *err)
{
    const struct st_tensor *t = st_find(&lens->st, name);
    const struct st_want want = {
        3, { lens->latents, 2, lens->n }, NULL, NULL
    };

    if (!t)
        return st_missing(lens->st.path, name, err);
    if (t->dtype != dtype)
        return err_data(err, lens->st.path, "%s is %s (expected %s)", name,
                        dtype_table[t->dtype].name, dtype_table[dtype].name);
    if (st_want_shape(lens->st.path, t, &want, err) < 0)
        return -1;
    *to = st_data(&lens->st, t);
    return 0;
}

int
lens_open(struct lens *lens, const struct look *l, struct err *err)
{
    const struct st_tensor *t;
    struct str path = { 0 };
    const char *of;
    int rc = 0;

    *lens = (struct lens){ .latents = l->n };
    str_addf(&path, "%s/" LENS_FILE, l->path);
    if (!file_missing(path.s) && (rc = st_open(&lens->st, path.s, err)) == 0) {
        of = st_meta(&lens->st, "sae_xxh3");
        t = st_find(&lens->st, "lens_id");
        lens->n = t && t->n_dims == 3 && t->shape[2] ? t->shape[2] : 1;
        rc = !of || strcmp(of, l->sae_xxh3) != 0
                 ? err_data(err, path.s, "is of another SAE than " LOOK_JSON)
             : st_map(&lens->st, err) < 0 ||
                     find(lens, "lens_id", DT_I32, &lens->id, err) < 0 ||
                     find(lens, "lens_value", DT_F32, &lens->value, err) < 0
                 ? -1
                 : 0;
        if (rc < 0)
            st_close(&lens->st);
    }
    str_free(&path);
    if (rc < 0)
        *lens = (struct lens){ 0 };
    return rc;
}

void
lens_close(struct lens *lens)
{
    if (lens->n)
        st_close(&lens->st);
    *lens = (struct lens){ 0 };
}

int
lens_get(const struct lens *lens, size_t latent, enum lens_sign sign,
         size_t rank, int32_t *id, float *value, struct err *err)
{
    size_t at = (latent * 2 + sign) * lens->n + rank;

    *id = (int32_t)le32(lens->id + 4 * at);
    *value = le_f32(lens->value + 4 * at);
    if (*id >= 0 && isfinite(*value))
        return 0;
    return err_data(err, lens->st.path, "[%zu, %d, %zu] is id %ld, logit %g",
                    latent, (int)sign, rank, (long)*id, (double)*value);
}
