/* SPDX-License-Identifier: ISC */
#include "core/inuse.h"

#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"

struct file_id {
    dev_t dev;
    ino_t ino;
};

static bool watching;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of these two: */
static void *inputs; /* the regular files that were read, a tree of tsearch() */
static char **input_dirs;
static size_t n_input_dirs;
static struct inuse_output *outputs;

static int
compare(const void *a, const void *b)
{
    const struct file_id *f = a, *g = b;

    if (f->dev != g->dev)
        return f->dev < g->dev ? -1 : 1;
    return f->ino < g->ino ? -1 : f->ino > g->ino;
}

bool
inuse_was_read(const struct stat *st)
{
    struct file_id id = { st->st_dev, st->st_ino };
    bool found;

    pthread_mutex_lock(&lock);
    found = S_ISREG(st->st_mode) && tfind(&id, &inputs, compare);
    pthread_mutex_unlock(&lock);
    return found;
}

static int
read_and_written(const char *path, struct err *err)
{
    return err_set(err, TU_USAGE,
                   "%s: is both an input and an output of this command", path);
}

/* Is it in a directory that nothing may be written into? */
static int
check_dirs(const char *path, const char *dir, struct err *err)
{
    if (strcmp(path, "-") != 0 && file_is_in(path, dir))
        return err_set(err, TU_USAGE,
                       "%s: would be written into %s, an input of this command",
                       path, dir);
    return 0;
}

int
inuse_input_dir(const char *path, struct err *err)
{
    int rc = 0;

    if (!watching)
        return 0;
    pthread_mutex_lock(&lock);
    input_dirs = xrealloc(input_dirs, n_input_dirs + 1, sizeof(*input_dirs));
    input_dirs[n_input_dirs++] = xstrdup(path);
    for (struct inuse_output *o = outputs; o && rc == 0; o = o->next)
        rc = check_dirs(o->path, path, err);
    pthread_mutex_unlock(&lock);
    return rc;
}

int
inuse_input(const char *path, const struct stat *st, struct err *err)
{
    struct file_id id = { st->st_dev, st->st_ino };
    bool is_output = false;

    if (!watching || !S_ISREG(st->st_mode))
        return 0;
    pthread_mutex_lock(&lock);
    for (struct inuse_output *o = outputs; o; o = o->next)
        if (o->replaces && o->dev == id.dev && o->ino == id.ino)
            is_output = o->was_read = true;
    if (!tfind(&id, &inputs, compare)) {
        struct file_id *kept = xmalloc(sizeof(*kept));

        *kept = id;
        if (!tsearch(kept, &inputs, compare)) /* no memory for a node of it */
            free(kept);
    }
    pthread_mutex_unlock(&lock);
    return is_output ? read_and_written(path, err) : 0;
}

int
inuse_will_read(const char *path, struct err *err)
{
    struct stat st;

    return stat(path, &st) == 0 ? inuse_input(path, &st, err) : 0;
}

void
inuse_begin(void)
{
    struct err none = { 0 };
    struct stat st;

    watching = true;
    if (fstat(STDIN_FILENO, &st) == 0) /* nothing is an output yet */
        inuse_input("standard input", &st, &none);
}

static int
begin(struct inuse_output *output, const char *path, bool own, bool claimed,
      struct err *err)
{
    bool twice = false;
    struct stat st;
    int rc = 0;

    if (!watching)
        return 0;
    *output = (struct inuse_output){ .path = path, .claimed = claimed };
    if (!own && inuse_check(path, err) < 0)
        return -1;
    if (!own && strcmp(path, "-") != 0 && stat(path, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        output->replaces = true;
        output->dev = st.st_dev;
        output->ino = st.st_ino;
    }
    pthread_mutex_lock(&lock);
    for (const struct inuse_output *o = outputs; o; o = o->next)
        twice = twice ||
                ((claimed || !own || !o->claimed) && file_same(o->path, path));
    for (size_t i = 0; i < n_input_dirs && rc == 0; i++)
        rc = check_dirs(path, input_dirs[i], err);
    output->next = outputs;
    outputs = output;
    pthread_mutex_unlock(&lock);
    if (rc == 0 && twice)
        return err_set(err, TU_USAGE,
                       "%s: would be two outputs of this command",
                       strcmp(path, "-") ? path : "standard output");
    return rc;
}

int
inuse_output(struct inuse_output *output, const char *path, bool own,
             struct err *err)
{
    return begin(output, path, own, false, err);
}

int
inuse_claim(const char *path, bool own, struct err *err)
{
    if (!watching)
        return 0;
    return begin(xcalloc(1, sizeof(struct inuse_output)), xstrdup(path), own,
                 true, err);
}

int
inuse_publish(const struct inuse_output *output, struct err *err)
{
    return output->was_read ? read_and_written(output->path, err) : 0;
}

void
inuse_end(struct inuse_output *output)
{
    pthread_mutex_lock(&lock);
    for (struct inuse_output **o = &outputs; *o; o = &(*o)->next)
        if (*o == output) {
            *o = output->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}

int
inuse_check(const char *path, struct err *err)
{
    struct stat st;

    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && inuse_was_read(&st))
        return read_and_written(path, err);
    return 0;
}
