/* SPDX-License-Identifier: ISC */
#include "cmd/sae-look/lens_file.h"

#include <math.h>
#include <string.h>

#include "core/format/stwant.h"
#include "core/le.h"
#include "core/map.h"

int
lens_open(struct lens *lens, const struct look *l, struct err *err)
{
    struct st_want want = { 3, { l->n, 2, 1 }, NULL, NULL };
    const struct st_tensor *t;
    struct str path = { 0 };
    const char *of;
    int rc = 0;

    *lens = (struct lens){ 0 };
    str_addf(&path, "%s/" LENS_FILE, l->path);
    if (!file_missing(path.s) && (rc = st_open(&lens->st, path.s, err)) == 0) {
        of = st_meta(&lens->st, "sae_xxh3");
        t = st_find(&lens->st, "lens_id");
        if (t && t->n_dims == 3 && t->shape[2])
            want.shape[2] = t->shape[2];
        lens->n = want.shape[2];
        if (!of || strcmp(of, l->sae_xxh3) != 0)
            rc = err_data(err, path.s, "is of another SAE than " LOOK_JSON);
        else if (st_map(&lens->st, err) < 0 ||
                 !(lens->id = st_want_data(&lens->st, "lens_id", DT_I32, &want,
                                           err)) ||
                 !(lens->value = st_want_data(&lens->st, "lens_value", DT_F32,
                                              &want, err)))
            rc = -1;
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
