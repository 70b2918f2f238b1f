/* SPDX-License-Identifier: ISC */
#include "cmd/st-convert/activations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/npy.h"
#include "core/kernel/cvt.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/names.h"
#include "core/model/parts.h"

/* Layers that read the same; an expert, some rows of it. */
static const enum model_part same[][7] = {
    { PART_Q, PART_K, PART_V },
    { PART_UP, PART_GATE, PART_SHARED_UP, PART_SHARED_GATE, PART_SHARED_ROUTER,
      PART_EXPERT_UP, PART_EXPERT_GATE },
    { PART_KV_A, PART_Q_A, PART_Q },
    { PART_GDN_QKVZ, PART_GDN_BA },
    { PART_GDN_QKV, PART_GDN_Z, PART_GDN_B, PART_GDN_A },
};
#define N_SAME (sizeof(same) / sizeof(*same))

static bool
find_file(struct str *path, const char *dir, const char *module)
{
    str_clear(path);
    str_addf(path, "%s/%s.npy", dir, names_short(module));
    return !file_missing(path->s);
}

bool
activations_find(struct str *path, const struct convert_plan *p,
                 const struct st_tensor *t)
{
    char *module = xstrndup(t->name, t->name_n - strlen(".weight"));
    const char *dir = p->cmd->activations;
    struct part_at at;
    struct str other = { 0 };
    bool found = find_file(path, dir, module);
    bool known = p->family && part_find(&at, p->family, module);

    for (size_t i = 0; known && i < N_SAME; i++) {
        bool is_in = false;

        for (size_t k = 0; k < 7 && same[i][k]; k++)
            is_in |= same[i][k] == at.part;
        for (size_t k = 0; is_in && !found && k < 7 && same[i][k]; k++) {
            str_clear(&other);
            part_module(&other, p->family,
                        (struct part_at){ same[i][k], at.layer, at.expert }, 0);
            found = find_file(path, dir, other.s);
        }
    }
    if (!found)
        find_file(path, dir, module);
    str_free(&other);
    free(module);
    return found;
}

static int
mean_squares(float *weight, const struct map *map, const char *path, size_t in,
             struct err *err)
{
    double *sum = xcalloc(in, sizeof(*sum)), all = 0;
    float *x = xmalloc(in * sizeof(*x));
    struct npy npy;
    size_t n;
    int rc = npy_parse(&npy, map->data, map->size, path, err);

    if (rc == 0)
        rc = npy_fits(&npy, map->size, path, err);
    if (rc == 0 && (npy.n_dims < 2 || npy.shape[npy.n_dims - 1] != in ||
                    !dtype_computes(npy.dtype) || npy.n_elements == 0))
        rc = err_data(err, path, "is not of rows of %zu floats", in);
    n = rc == 0 ? npy.n_elements / in : 0;
    for (size_t r = 0; r < n; r++) {
        cvt_to_f32(x,
                   map->data + npy.data_offset + r * in * dtype_size(npy.dtype),
                   npy.dtype, in);
        for (size_t c = 0; c < in; c++)
            sum[c] += (double)x[c] * (double)x[c];
    }
    for (size_t c = 0; rc == 0 && c < in; c++) {
        weight[c] = (float)(sum[c] / (double)n);
        all += (double)weight[c];
    }
    if (rc == 0 && !isfinite(all))
        rc = err_data(err, path,
                      "has numbers that are not finite, or too large");
    free(x);
    free(sum);
    return rc;
}

int
activations_weight(float **weight, const struct convert_plan *p,
                   const struct st_tensor *t, struct err *err)
{
    struct str path = { 0 };
    struct map map = { 0 };
    int rc = 0;

    *weight = NULL;
    if (p->cmd->activations && activations_find(&path, p, t)) {
        rc = map_open(&map, path.s, err);
        if (rc == 0)
            *weight = mem_try(t->shape[1], sizeof(**weight), t->name, err);
        rc = *weight ? mean_squares(*weight, &map, path.s, t->shape[1], err)
                     : -1;
        map_close(&map);
    }
    if (rc < 0) {
        free(*weight);
        *weight = NULL;
    }
    str_free(&path);
    return rc;
}
