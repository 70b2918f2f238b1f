/* SPDX-License-Identifier: ISC */
#include "core/format/saevdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/format/npy.h"
#include "core/inuse.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tty.h"

#define META_MAX   ((size_t)64 << 20) /* a pickle in "data" can be large */
#define LISTED_MAX 4                  /* dumps in a message */

int
saevdir_meta(struct saevdir *dir, const char *path, struct err *err)
{
    struct str name = { 0 }, text = { 0 };
    int rc;

    *dir = (struct saevdir){ .path = saevdir_find(path, err) };
    if (!dir->path)
        return -1;
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

/* Is it a directory of metadata and shards?  Tables have metadata.json, too. */
static bool
is_dump(const char *path)
{
    struct str name = { 0 };
    bool yes;

    str_addf(&name, "%s/metadata.json", path);
    yes = !file_missing(name.s);
    str_clear(&name);
    str_addf(&name, "%s/acts000000.bin", path);
    yes = yes && (hash_name_of(path) || !file_missing(name.s));
    str_free(&name);
    return yes;
}

/* What is hidden is a stage. */
static int
is_seen(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

char *
saevdir_find(const char *path, struct err *err)
{
    struct str name = { 0 }, list = { 0 };
    struct dirent **entries = NULL;
    size_t n = strlen(path), n_dumps = 0;
    char *found;
    int n_entries;

    while (n > 1 && path[n - 1] == '/')
        n--;
    found = xstrndup(path, n);
    str_addf(&name, "%s/metadata.json", found);
    n_entries =
        file_missing(name.s) ? scandir(path, &entries, is_seen, alphasort) : 0;
    for (int i = 0; i < n_entries; i++) {
        str_clear(&name);
        str_addf(&name, "%.*s/%s", (int)n, path, entries[i]->d_name);
        if (is_dump(name.s) && n_dumps++ < LISTED_MAX)
            str_addf(&list, "%s%s", list.n ? ", " : "", name.s);
        free(entries[i]);
    }
    free(entries);
    if (n_dumps > 0) {
        free(found);
        found = n_dumps == 1 ? xstrdup(list.s) : NULL;
    }
    if (!found)
        err_set(err, EX_NOINPUT, "%s: holds %zu dumps, name one: %s%s", path,
                n_dumps, list.s, n_dumps > LISTED_MAX ? ", .." : "");
    str_free(&name);
    str_free(&list);
    return found;
}

/* The bytes of a path that name the directory it is in, with a slash. */
static size_t
parent_of(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return n;
}

/* A regular file that is not .npy, and no INDEX. */
static bool
is_other_file(const char *path)
{
    struct stat st;
    char head[8];
    ssize_t n;
    int fd;

    if (!path[strspn(path, "0123456789:-")] || stat(path, &st) < 0 ||
        !S_ISREG(st.st_mode))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, head, sizeof(head));
    if (fd >= 0)
        close(fd);
    return n < 0 || !npy_sniff(head, (size_t)n);
}

int
saevdir_operands(char **paths, int n)
{
    bool *dumps = xcalloc((size_t)n + 1, sizeof(*dumps));
    const char *first = NULL;
    int n_kept = 0;

    for (int i = 0; i < n; i++)
        dumps[i] = is_dump(paths[i]);
    for (int i = 0; i < n; i++) {
        size_t k = 0, n_parent = parent_of(paths[i]);
        bool other = is_other_file(paths[i]);

        while (other && k < (size_t)n &&
               !(dumps[k] && parent_of(paths[k]) == n_parent &&
                 !memcmp(paths[k], paths[i], n_parent)))
            k++;
        if (!other || k == (size_t)n)
            paths[n_kept++] = paths[i];
        else if (!first)
            first = paths[i];
    }
    if (n_kept < n)
        err_warn("%s: %d file%s next to dumps, left out", first, n - n_kept,
                 plural((uint64_t)(n - n_kept)));
    free(dumps);
    return n_kept;
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

void
saevdir_warn_layers(const struct saevdir *dir, const char *option)
{
    const struct saev *s = &dir->saev;
    struct str list = { 0 };

    for (size_t i = 0; i < s->n_layers; i++)
        str_addf(&list, "%s%lld", i ? ", " : "", (long long)s->layers[i]);
    if (s->n_layers > 1)
        err_warn("%s: the rows of all its layers, %s, are used (one alone: %s)",
                 dir->path, list.s, option);
    str_free(&list);
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

const struct saevdir_file *
saevdir_file(const struct saevdir *dir, size_t shard)
{
    const struct saevdir_file key = { .shard = shard };

    return dir->n_listed
               ? bsearch(&key, dir->files, dir->n_listed, sizeof(key), by_shard)
               : NULL;
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
        if (dir->n_listed == cap)
            dir->files =
                xgrow(dir->files, dir->n_listed, &cap, sizeof(*dir->files));
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

/* A problem of no shard. */
static void
report_line(struct saevdir_run *run, const char *fmt, ...)
{
    struct str line = { 0 };
    va_list ap;

    saevdir_end_run(run);
    va_start(ap, fmt);
    str_addv(&line, fmt, ap);
    va_end(ap);
    run->report(run->ctx, line.s);
    run->n_reported++;
    str_free(&line);
}

/* shards.json, one entry a shard: {"name", "n_imgs" or "n_examples"}, in their
 * order; of one more, of zeros, nothing is asked. */
static int
check_entries(const struct saev *s, struct saevdir_run *run, const char *path,
              json_t *v, struct err *err)
{
    struct js root = js_root(v, path);

    if (!json_is_array(v))
        return js_bad(&root, "an array", err);
    for (size_t i = 0; i < s->n_shards; i++) {
        struct js entry = js_at(&root, i);
        struct js count = js_get(&entry, "n_imgs");
        const char *key = "n_imgs";
        int64_t n_imgs;

        if (js_absent(&count)) {
            key = "n_examples";
            count = js_get(&entry, key);
        }
        if (js_i64(&count, 0, INT64_MAX, &n_imgs, err) < 0)
            return -1;
        if ((size_t)n_imgs != saev_shard_imgs(s, i))
            saevdir_problem(run, i, i,
                            "%s in shards.json is %zu (expected %zu)", key,
                            (size_t)n_imgs, saev_shard_imgs(s, i));
    }
    return 0;
}

/* If it is there. */
static int
check_list(const struct saevdir *dir, struct saevdir_run *run, struct err *err)
{
    struct str path = { 0 };
    json_t *v = NULL;
    int rc = 0;

    str_addf(&path, "%s/shards.json", dir->path);
    if (dir->saev.version < SAEV_1_0 || file_missing(path.s))
        goto out;
    v = js_load(path.s, err);
    rc = v ? check_entries(&dir->saev, run, path.s, v, err) : -1;
    saevdir_end_run(run);
    if (rc < 0 && err->status != EX_IOERR && err->status != EX_TEMPFAIL) {
        report_line(run, "%s", err->what);
        rc = 0;
    }
out:
    json_decref(v);
    str_free(&path);
    return rc;
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
    return check_list(dir, &run, err) < 0 ? -1 : run.n_reported;
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
    if (inuse_input_dir(dir->path, err) < 0) {
        saevdir_close(dir);
        return -1;
    }
    n = saevdir_check(dir, keep_first, &first, err);
    if (n == 0)
        return 0;
    if (n > 0)
        *err = first;
    saevdir_close(dir);
    return -1;
}
