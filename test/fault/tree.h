/* SPDX-License-Identifier: ISC */
/*
 * A directory with all that is in it, held in memory: to be compared with
 * another and to be put back.
 */
#ifndef FAULT_TREE_H
#define FAULT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct entry {
    char *path; /* below the tree's directory */
    mode_t mode;
    char *data; /* what a link points to; NULL: a directory */
    size_t nbytes;
};

struct tree {
    struct entry *entries; /* [n], by path */
    size_t n;
};

/* tree_read() holds what is in 'dir'; dies on errors.  Owner: tree_free(). */
void tree_read(struct tree *tree, const char *dir);
void tree_free(struct tree *tree);

/* tree_write() makes 'dir', which has no directories in directories, that tree.
 */
void tree_write(const struct tree *tree, const char *dir);

const struct entry *tree_find(const struct tree *tree, const char *path);

/* NULL is what is not there. */
bool entry_same(const struct entry *a, const struct entry *b);
bool tree_same(const struct tree *a, const struct tree *b);

/* read_file() is all of 'path' with a NUL behind it; dies on errors. */
char *read_file(const char *path, size_t *nbytes);

#endif
