#include "core/format/saevdir.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/inuse.h"
#include "core/map.h"
#include "core/mem.h"

#define META_MAX ((size_t)64 << 20) /* a pickle in "data" can be large */

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

/* The last name of a path: 64 hex digits, or NULL. */
static const char *
hash_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = SAEV_HASH_MAX - 1;

    return strlen(name) == n && strspn(name, "0123456789abcdefABCDEF") == n
               ? name
               : NULL;
}

bool
saevdir_name_hash(const struct saevdir *dir, char hash[SAEV_HASH_MAX])
{
    char *real = realpath(dir->path, NULL);
    const char *name = hash_name_of(dir->path);

    if (!name && real)
        name = hash_name_of(real);
    if (name)
        memcpy(hash, name, SAEV_HASH_MAX);
    free(real);
    return name != NULL;
}

int
saevdir_name_problem(const struct saevdir *dir, struct str *problem,
                     struct err *err)
{
    char hash[SAEV_HASH_MAX], name[SAEV_HASH_MAX];

    if (!saevdir_name_hash(dir, name))
        return 0;
    if (saev_hash(&dir->saev, hash, err) < 0)
        return -1;
    if (!*hash || !strcmp(name, hash))
        return 0;
    str_addf(problem, "metadata.json: has the hash %s", hash);
    str_adds(problem, !strcasecmp(name, hash)
                          ? ", but the directory's name has it in upper case, "
                            "where other readers do not find it"
                          : " (expected the directory's name)");
    return 0;
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

/* Lists dir->files anew. */
static int
list_files(struct saevdir *dir, struct err *err)
{
    DIR *d = opendir(dir->path);
    struct dirent *e;
    size_t cap = 0;
    int rc;

    free(dir->files);
    dir->files = NULL;
    dir->n_listed = 0;
    if (!d)
        return err_sys(err, file_status(errno), "%s", dir->path);
    while ((rc = dir_next(d, dir->path, &e, err)) > 0) {
        size_t shard;
        struct stat st;
        bool found;

        if (!saev_shard_of(e->d_name, &shard))
            continue;
        found = fstatat(dirfd(d), e->d_name, &st, 0) == 0;
        if (!found && errno != ENOENT && errno != ELOOP) {
            rc = err_sys(err, EX_IOERR, "%s/%s", dir->path, e->d_name);
            break;
        }
        if (dir->n_listed == cap) {
            cap = 2 * cap + 64;
            dir->files = xrealloc(dir->files, cap, sizeof(*dir->files));
        }
        dir->files[dir->n_listed++] = (struct saevdir_file){
            shard, found && S_ISREG(st.st_mode) ? (size_t)st.st_size : SIZE_MAX
        };
    }
    closedir(d);
    if (rc < 0)
        return -1;
    if (dir->n_listed)
        qsort(dir->files, dir->n_listed, sizeof(*dir->files), by_shard);
    return 0;
}

void
saevdir_problem(struct saevdir_run *run, size_t first, size_t last,
                const char *fmt, ...)
{
    struct str what = { 0 };
    va_list ap;

    va_start(ap, fmt);
    str_addv(&what, fmt, ap);
    va_end(ap);
    if (run->what && run->last + 1 == first && !strcmp(run->what, what.s)) {
        run->last = last;
        str_free(&what);
        return;
    }
    saevdir_end_run(run);
    run->first = first;
    run->last = last;
    run->what = what.s;
}

void
saevdir_end_run(struct saevdir_run *run)
{
    struct str line = { 0 };
    char name[32];

    if (!run->what)
        return;
    saev_shard_name(name, run->first);
    str_addf(&line, "%s%s%s", run->path ? run->path : "", run->path ? "/" : "",
             name);
    if (run->last > run->first) {
        saev_shard_name(name, run->last);
        str_addf(&line, " .. %s", name);
    }
    str_addf(&line, ": %s", run->what);
    run->report(run->ctx, line.s);
    run->n_reported++;
    str_free(&line);
    free(run->what);
    run->what = NULL;
}

int
saevdir_check(struct saevdir *dir, void (*report)(void *ctx, const char *what),
              void *ctx, struct err *err)
{
    struct saevdir_run run = { .report = report,
                               .ctx = ctx,
                               .path = dir->path };
    const struct saev *s = &dir->saev;
    size_t next = 0; /* the shard that has to come now */

    dir->n_files = dir->nbytes = 0;
    dir->padded = false;
    if (list_files(dir, err) < 0)
        return -1;
    for (size_t i = 0; i < dir->n_listed; i++) {
        size_t at = dir->files[i].shard, nbytes = dir->files[i].nbytes;
        size_t shard = smaller(at, s->n_shards), expected;
        /* Full size is right for the last one, too, and for one more. */
        bool extra = at == s->n_shards && s->n_imgs % s->shard_imgs == 0;
        bool full = at + 1 == s->n_shards && nbytes == s->shard_nbytes;

        if (next < shard)
            saevdir_problem(&run, next, shard - 1, "missing");
        next = smaller(shard + 1, s->n_shards);
        if (nbytes == SIZE_MAX) {
            saevdir_problem(&run, at, at, "is not a regular file");
            continue;
        }
        if (at >= s->n_shards && !extra) {
            saevdir_problem(&run, at, at,
                            "beyond the last shard (n_imgs is %zu, %zu a "
                            "shard)",
                            s->n_imgs, s->shard_imgs);
            continue;
        }
        expected = extra ? s->shard_nbytes : saev_shard_nbytes(s, at);
        if (nbytes != expected && !full)
            saevdir_problem(&run, at, at, "%zu bytes (expected %zu)", nbytes,
                            expected);
        dir->padded |= extra || (full && nbytes > expected);
        dir->nbytes += nbytes;
        dir->n_files++;
    }
    if (next < s->n_shards)
        saevdir_problem(&run, next, s->n_shards - 1, "missing");
    saevdir_end_run(&run);
    return run.n_reported;
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

    if (inuse_input_dir(path, err) < 0 || saevdir_meta(dir, path, err) < 0)
        return -1;
    n = saevdir_check(dir, keep_first, &first, err);
    if (n == 0)
        return 0;
    if (n > 0)
        *err = first;
    saevdir_close(dir);
    return -1;
}
