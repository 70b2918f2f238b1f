#include "core/format/saevdir.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/map.h"
#include "core/mem.h"

#define META_MAX ((size_t)64 << 20) /* a pickle in "data" can be large */

/* Neighbours with one problem, not told yet. */
struct group {
    enum { G_NONE, G_MISSING, G_SIZE, G_EXTRA, G_NO_FILE } kind;
    size_t first, last, found, expected;
};

struct checker {
    struct saevdir *dir;
    size_t cap; /* of dir->files */
    void (*tell)(void *ctx, const char *what);
    void *ctx;
    int n_told;
    struct group group;
};

int
saevdir_meta(struct saevdir *dir, const char *path, struct err *err)
{
    struct str name = { 0 }, text = { 0 };
    size_t n = strlen(path);
    int rc;

    while (n > 1 && path[n - 1] == '/')
        n--;
    *dir = (struct saevdir){ .path = xstrndup(path, n) };
    str_addf(&name, "%s/metadata.json", dir->path);
    rc = file_read_regular(name.s, META_MAX, &text, err);
    if (rc == 0)
        rc = saev_parse(&dir->saev, text.n ? text.s : "", text.n, name.s, 0,
                        err);
    str_free(&name);
    str_free(&text);
    if (rc < 0)
        saevdir_close(dir);
    return rc;
}

void
saevdir_close(struct saevdir *dir)
{
    free(dir->path);
    free(dir->files);
    saev_free(&dir->saev);
    *dir = (struct saevdir){ 0 };
}

void
saevdir_shard_path(const struct saevdir *dir, size_t shard, struct str *path)
{
    char name[32];

    saev_shard_name(name, shard);
    str_clear(path);
    str_addf(path, "%s/%s", dir->path, name);
}

int
saevdir_shard(const struct saevdir *dir, size_t shard, struct err *err)
{
    struct str path = { 0 };
    size_t nbytes;
    int fd;

    saevdir_shard_path(dir, shard, &path);
    fd = file_open(path.s, &nbytes, err);
    str_free(&path);
    return fd;
}

static int
by_shard(const void *a, const void *b)
{
    size_t x = ((const struct saevdir_file *)a)->shard;
    size_t y = ((const struct saevdir_file *)b)->shard;

    return x < y ? -1 : x > y;
}

static void
add_file(struct checker *c, size_t shard, size_t nbytes)
{
    struct saevdir *dir = c->dir;

    if (dir->n_there == c->cap) {
        c->cap = 2 * c->cap + 64;
        dir->files = xrealloc(dir->files, c->cap, sizeof(*dir->files));
    }
    dir->files[dir->n_there++] = (struct saevdir_file){ shard, nbytes };
}

/* Fills dir->files anew. */
static int
list_files(struct checker *c, struct err *err)
{
    struct saevdir *dir = c->dir;
    DIR *d = opendir(dir->path);
    struct dirent *e;
    int rc;

    free(dir->files);
    dir->files = NULL;
    dir->n_there = 0;

    if (!d)
        return err_sys(err, file_status(errno), "%s", dir->path);
    while ((rc = dir_next(d, dir->path, &e, err)) > 0) {
        size_t shard;
        struct stat st;
        bool there;

        if (!saev_shard_of(e->d_name, &shard))
            continue;
        there = fstatat(dirfd(d), e->d_name, &st, 0) == 0;
        if (!there && errno != ENOENT && errno != ELOOP) {
            rc = err_sys(err, EX_IOERR, "%s/%s", dir->path, e->d_name);
            break;
        }
        add_file(c, shard,
                 there && S_ISREG(st.st_mode) ? (size_t)st.st_size : SIZE_MAX);
    }
    closedir(d);
    if (rc < 0)
        return -1;
    if (dir->n_there)
        qsort(dir->files, dir->n_there, sizeof(*dir->files), by_shard);
    return 0;
}

static void
tell_group(struct checker *c)
{
    const struct group *g = &c->group;
    struct str s = { 0 };
    char name[32];

    if (g->kind == G_NONE)
        return;
    saevdir_shard_path(c->dir, g->first, &s);
    if (g->last > g->first) {
        saev_shard_name(name, g->last);
        str_addf(&s, " .. %s", name);
    }
    if (g->kind == G_MISSING)
        str_addf(&s, ": missing");
    else if (g->kind == G_SIZE)
        str_addf(&s, ": %zu bytes (expected %zu)", g->found, g->expected);
    else if (g->kind == G_EXTRA)
        str_addf(&s, ": beyond the last shard (n_imgs is %zu, %zu a shard)",
                 c->dir->saev.n_imgs, c->dir->saev.shard_imgs);
    else
        str_adds(&s, ": is not a regular file");
    c->tell(c->ctx, s.s);
    c->n_told++;
    str_free(&s);
    c->group.kind = G_NONE;
}

static void
problem(struct checker *c, struct group now)
{
    struct group *g = &c->group;

    if (g->kind == now.kind && g->last + 1 == now.first &&
        (g->kind != G_SIZE ||
         (g->found == now.found && g->expected == now.expected))) {
        g->last = now.last;
        return;
    }
    tell_group(c);
    *g = now;
}

/* Full size is right for the last shard, too, and for one more behind it. */
static void
check_file(struct checker *c, const struct saevdir_file *f)
{
    struct saevdir *dir = c->dir;
    const struct saev *s = &dir->saev;
    struct group g = { .first = f->shard,
                       .last = f->shard,
                       .found = f->nbytes };
    bool extra = f->shard == s->n_shards && s->n_imgs % s->shard_imgs == 0;

    if (f->nbytes == SIZE_MAX) {
        g.kind = G_NO_FILE;
    } else if (f->shard >= s->n_shards && !extra) {
        g.kind = G_EXTRA;
    } else {
        g.expected = extra ? s->shard_nbytes : saev_shard_nbytes(s, f->shard);
        if (f->shard + 1 == s->n_shards && f->nbytes == s->shard_nbytes)
            dir->padded |= f->nbytes > g.expected;
        else if (f->nbytes != g.expected)
            g.kind = G_SIZE;
        dir->padded |= extra;
        dir->nbytes += f->nbytes;
        dir->n_files++;
    }
    if (g.kind != G_NONE)
        problem(c, g);
}

static void
check_files(struct checker *c)
{
    size_t n_shards = c->dir->saev.n_shards;
    size_t next = 0; /* the shard that has to come now */

    for (size_t i = 0; i < c->dir->n_there; i++) {
        const struct saevdir_file *f = &c->dir->files[i];
        size_t shard = f->shard;
        size_t gap = shard < n_shards ? shard : n_shards;

        if (next < gap)
            problem(c, (struct group){
                           .kind = G_MISSING, .first = next, .last = gap - 1 });
        check_file(c, f);
        next = shard < n_shards ? shard + 1 : n_shards;
    }
    if (next < n_shards)
        problem(c, (struct group){ .kind = G_MISSING,
                                   .first = next,
                                   .last = n_shards - 1 });
    tell_group(c);
}

int
saevdir_check(struct saevdir *dir, void (*tell)(void *ctx, const char *what),
              void *ctx, struct err *err)
{
    struct checker c = { .dir = dir, .tell = tell, .ctx = ctx };
    int rc = list_files(&c, err);

    dir->n_files = dir->nbytes = 0;
    dir->padded = false;
    if (rc == 0)
        check_files(&c);
    return rc < 0 ? -1 : c.n_told;
}

/* Keeps the first problem. */
static void
keep_first(void *ctx, const char *what)
{
    struct err *err = ctx;

    if (!err->status)
        err_set(err, EX_DATAERR, "%s", what);
}

int
saevdir_open(struct saevdir *dir, const char *path, struct err *err)
{
    struct err first = { 0 };
    int n;

    if (saevdir_meta(dir, path, err) < 0)
        return -1;
    n = saevdir_check(dir, keep_first, &first, err);
    if (n > 0)
        *err = first;
    if (n != 0) {
        saevdir_close(dir);
        return -1;
    }
    return 0;
}
