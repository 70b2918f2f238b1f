/* SPDX-License-Identifier: ISC */
#include "test/fault/tree.h"

#include <err.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *
read_file(const char *path, size_t *nbytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t room = 1 << 16;
    char *data = malloc(room);
    ssize_t n;

    *nbytes = 0;
    while (fd >= 0 && (n = read(fd, data + *nbytes, room - *nbytes - 1)) > 0) {
        *nbytes += (size_t)n;
        if (*nbytes == room - 1)
            data = realloc(data, room *= 2);
    }
    if (fd < 0 || n < 0)
        err(99, "%s", path);
    close(fd);
    data[*nbytes] = '\0';
    return data;
}

static char *
read_link(const char *path, size_t *nbytes)
{
    char *to = calloc(1, 4096);
    ssize_t n = readlink(path, to, 4095);

    if (n < 0)
        err(99, "%s", path);
    *nbytes = (size_t)n;
    return to;
}

static int
by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static FTS *
walk(const char *dir)
{
    char *const dirs[] = { strdup(dir), NULL };
    FTS *fts = fts_open(dirs, FTS_PHYSICAL | FTS_NOCHDIR, by_name);

    if (!fts)
        err(99, "%s", dir);
    free(dirs[0]);
    return fts;
}

void
tree_read(struct tree *tree, const char *dir)
{
    FTS *fts = walk(dir);
    FTSENT *e;

    *tree = (struct tree){ 0 };
    while ((e = fts_read(fts))) {
        struct entry *t;

        if (e->fts_level == 0 || e->fts_info == FTS_DP)
            continue;
        tree->entries =
            realloc(tree->entries, (tree->n + 1) * sizeof(*tree->entries));
        t = &tree->entries[tree->n++];
        *t = (struct entry){ .path = strdup(e->fts_path + strlen(dir) + 1),
                             .mode = e->fts_statp->st_mode };
        if (S_ISREG(t->mode))
            t->data = read_file(e->fts_path, &t->nbytes);
        else if (S_ISLNK(t->mode))
            t->data = read_link(e->fts_path, &t->nbytes);
    }
    fts_close(fts);
}

void
tree_free(struct tree *tree)
{
    for (size_t i = 0; i < tree->n; i++) {
        free(tree->entries[i].path);
        free(tree->entries[i].data);
    }
    free(tree->entries);
}

static void
write_file(const char *path, const struct entry *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, e->mode & 0777);

    if (fd < 0 || write(fd, e->data, e->nbytes) != (ssize_t)e->nbytes ||
        close(fd) < 0)
        err(99, "%s", path);
}

void
tree_write(const struct tree *tree, const char *dir)
{
    FTS *fts = walk(dir);
    FTSENT *e;

    while ((e = fts_read(fts)))
        if (e->fts_level > 0 && e->fts_info != FTS_D &&
            remove(e->fts_accpath) < 0)
            err(99, "%s", e->fts_path);
    fts_close(fts);
    for (size_t i = 0; i < tree->n; i++) {
        const struct entry *t = &tree->entries[i];
        char path[4096];

        snprintf(path, sizeof(path), "%s/%s", dir, t->path);
        if (S_ISLNK(t->mode) && symlink(t->data, path) < 0)
            err(99, "%s", path);
        else if (S_ISREG(t->mode))
            write_file(path, t);
        else if (S_ISDIR(t->mode) && mkdir(path, t->mode & 0777) < 0)
            err(99, "%s", path);
    }
}

const struct entry *
tree_find(const struct tree *tree, const char *path)
{
    for (size_t i = 0; i < tree->n; i++)
        if (!strcmp(tree->entries[i].path, path))
            return &tree->entries[i];
    return NULL;
}

bool
entry_same(const struct entry *a, const struct entry *b)
{
    if (!a || !b)
        return a == b;
    return a->mode == b->mode && a->nbytes == b->nbytes &&
           (!a->data || !memcmp(a->data, b->data, a->nbytes));
}

bool
tree_same(const struct tree *a, const struct tree *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!entry_same(&a->entries[i], tree_find(b, a->entries[i].path)))
            return false;
    return true;
}
