#include "cmd/moe-sft/folder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/inuse.h"
#include "core/mem.h"
#include "core/out.h"

int
folder_open(struct folder *f, const char *path, int flags, struct err *err)
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
    *f = (struct folder){ .name = xstrdup(slash ? slash + 1 : whole),
                          .flags = flags };
    if (!(flags & OUT_FORCE) && access(whole, F_OK) == 0)
        rc = out_exists(whole, err);
    else if ((rc = outdir_replaceable(whole, err)) == 0 &&
             (rc = inuse_check_files(whole, err)) == 0)
        rc = outdir_open(&f->dir, parent, f->name, false, err);
    free(whole);
    free(parent);
    if (rc < 0)
        folder_abort(f);
    return rc;
}

int
folder_commit(struct folder *f, struct err *err)
{
    int rc = outdir_commit(f->dir, f->name, f->flags & OUT_FORCE, err);

    free(f->name);
    *f = (struct folder){ 0 };
    return rc;
}

void
folder_abort(struct folder *f)
{
    if (f->dir)
        outdir_abort(f->dir);
    free(f->name);
    *f = (struct folder){ 0 };
}
