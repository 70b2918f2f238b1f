/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/write.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/moe-sft/cache.h"
#include "core/format/stdir.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/out.h"

int
can_write(const struct cmd *cmd, const char *path, struct err *err)
{
    struct stat st;

    if (!path || (cmd->out_flags & OUT_FORCE) || stat(path, &st) < 0 ||
        !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        return 0;
    return out_exists(path, err);
}

int
write_tensors(struct stw *w, const struct output_tensor *tensors, size_t n,
              const char *path, int flags, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (stw_add(w, tensors[i].name, tensors[i].dtype, tensors[i].n_dims,
                    tensors[i].shape, err) < 0)
            return -1;
    if (stw_open(w, path, flags, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct output_tensor *t = &tensors[i];
        size_t item = dtype_size(t->dtype), n_numbers = 1;
        int rc;

        for (size_t d = 0; d < t->n_dims; d++)
            n_numbers *= (size_t)t->shape[d];
        rc = t->dtype == DT_BF16
                 ? stw_write(w, (int)i, t->data, n_numbers * item, 0, err)
                 : stw_write_numbers(w, (int)i, t->data, n_numbers, item, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}
