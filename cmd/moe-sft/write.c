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

int
write_mapped(struct stw *w, int tensor, const void *data, size_t nbytes,
             size_t offset, struct err *err)
{
    char piece[1 << 16];

    for (size_t at = 0; at < nbytes; at += sizeof(piece)) {
        size_t n = nbytes - at < sizeof(piece) ? nbytes - at : sizeof(piece);

        memcpy(piece, (const char *)data + at, n);
        if (stw_write(w, tensor, piece, n, offset + at, err) < 0)
            return -1;
    }
    return 0;
}

int
outdir_at_open(struct outdir_at *f, const char *path, int flags,
               struct err *err)
{
    size_t n = strlen(path);
    const char *slash;
    char *whole, *parent;
    int rc;

    if (outdir_check_name(path, err) < 0)
        return -1;
    while (n > 1 && path[n - 1] == '/')
        n--;
    whole = xstrndup(path, n);
    slash = strrchr(whole, '/');
    parent = slash ? xstrndup(whole, slash == whole ? 1 : slash - whole)
                   : xstrdup(".");
    *f = (struct outdir_at){ .name = xstrdup(slash ? slash + 1 : whole),
                             .flags = flags };
    if (!(flags & OUT_FORCE) && access(whole, F_OK) == 0)
        rc = out_exists(whole, err);
    else if ((rc = outdir_replaceable(whole, flags & OUT_OWN, err)) == 0)
        rc = outdir_open(&f->dir, parent, f->name, false, err);
    free(whole);
    free(parent);
    if (rc < 0)
        outdir_at_abort(f);
    return rc;
}

int
outdir_at_commit(struct outdir_at *f, struct err *err)
{
    int rc = outdir_commit(f->dir, f->name, f->flags & OUT_FORCE, err) ? -1 : 0;

    free(f->name);
    *f = (struct outdir_at){ 0 };
    return rc;
}

void
outdir_at_abort(struct outdir_at *f)
{
    if (f->dir)
        outdir_abort(f->dir);
    free(f->name);
    *f = (struct outdir_at){ 0 };
}
