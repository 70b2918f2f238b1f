/* Output folders by their path. */
#ifndef MOE_SFT_FOLDER_H
#define MOE_SFT_FOLDER_H

#include "core/err.h"
#include "core/outdir.h"

/*
 * A folder that appears whole or not at all, at any path: folder_open() fails
 * if it is there and 'flags' lack OUT_FORCE (EX_CANTCREAT), else files are made
 * in outdir_path(folder.dir).
 */
struct folder {
    struct outdir *dir;
    char *name;
    int flags;
};
int folder_open(struct folder *f, const char *path, int flags, struct err *err);
int folder_commit(struct folder *f, struct err *err);
void folder_abort(struct folder *f);

#endif
