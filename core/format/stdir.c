/* SPDX-License-Identifier: ISC */
#include "core/format/stdir.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/str.h"

#define SUFFIX ".safetensors"

static char *
join(const char *dir, const char *name)
{
    struct str s = { 0 };

    str_addf(&s, "%s/%s", dir, name);
    return s.s;
}

static int
compare_tensors(const void *a, const void *b)
{
    const struct st_tensor *s = ((const struct stdir_tensor *)a)->t;
    const struct st_tensor *t = ((const struct stdir_tensor *)b)->t;

    return st_name_cmp(s->name, s->name_n, t->name, t->name_n);
}

static int
open_one(struct stdir *dir, const char *path, struct err *err)
{
    const struct st *st;

    dir->files = mem_try(1, sizeof(*dir->files), dir->path, err);
    if (!dir->files || st_open(dir->files, path, err) < 0)
        return -1;
    dir->n_files = 1;
    st = dir->files;
    dir->tensors =
        mem_try(st->n_tensors, sizeof(*dir->tensors), dir->path, err);
    if (!dir->tensors)
        return -1;
    dir->n_tensors = st->n_tensors;
    for (size_t i = 0; i < st->n_tensors; i++)
        dir->tensors[i] =
            (struct stdir_tensor){ st->tensors + st->by_name[i], st };
    return 0;
}

/*
 * A path of an index comes from the network and must stay in the directory:
 * relative, without "", "." and "..", no backslash or NUL in it.
 */
static bool
safe_path(const char *s, size_t nbytes)
{
    size_t start = 0;

    if (memchr(s, '\0', nbytes) || memchr(s, '\\', nbytes) ||
        !str_ends(s, SUFFIX))
        return false;
    for (size_t i = 0; i <= nbytes; i++) {
        size_t n = i - start;

        if (i < nbytes && s[i] != '/')
            continue;
        if (n == 0 || (n == 1 && s[start] == '.') ||
            (n == 2 && !memcmp(s + start, "..", 2)))
            return false;
        start = i + 1;
    }
    return true;
}

/* Without "./" before it, as some writers spell a name. */
static const char *
plain_name(const char *shard)
{
    return strncmp(shard, "./", 2) == 0 ? shard + 2 : shard;
}

/*
 * Opens one more shard of the index at 'path'; 'tensor' is the first that it
 * puts there.  'inodes' has "DEV INODE" -> the name that led there: two names
 * of one file are refused, as it would be read once for each of a thousand
 * links, and no writer makes such an index.
 */
static int
open_shard(struct stdir *dir, const char *path, const char *shard,
           const char *tensor, json_t *inodes, struct err *err)
{
    char *file = join(dir->path, shard), key[48];
    int rc = st_open(dir->files + dir->n_files, file, err);
    const char *other;
    struct stat s = { 0 };

    if (rc < 0) {
        struct err why = *err;
        /* or can it only not be opened now? */
        bool missing = stat(file, &s) == 0
                           ? !S_ISREG(s.st_mode)
                           : errno == ENOENT || errno == ENOTDIR ||
                                 errno == ELOOP || errno == ENAMETOOLONG;

        if (why.status == EX_NOINPUT)
            err_set(err, missing ? EX_DATAERR : EX_NOINPUT,
                    "%s: tensor \"%.200s\" is in %s", path, tensor, why.what);
        goto out;
    }
    rc = fstat(dir->files[dir->n_files++].fd, &s);
    if (rc < 0)
        err_sys(err, EX_IOERR, "%s", file);
    if (rc < 0 || s.st_ino == 0) /* the file system has no inode numbers */
        goto out;
    snprintf(key, sizeof(key), "%llu %llu", (unsigned long long)s.st_dev,
             (unsigned long long)s.st_ino);
    other = json_string_value(json_object_get(inodes, key));
    if (other)
        rc = err_data(err, path,
                      "%.200s and %.200s are one file (expected one name)",
                      other, shard);
    else if (json_object_set_new(inodes, key, json_string(shard)) < 0)
        rc = err_set(err, EX_SOFTWARE, "%s: out of memory", path);
out:
    free(file);
    return rc;
}

/* Opens what the index at 'path' names; 'shards', file name -> its place in
 * dir->files, and 'inodes' come empty. */
static int
read_index(struct stdir *dir, const char *path, const json_t *document,
           json_t *shards, json_t *inodes, struct err *err)
{
    struct js root = js_root(document, path);
    struct js weight_map = js_get(&root, "weight_map");
    struct js metadata = js_get(&root, "metadata");
    struct js total = js_get(&metadata, "total_size");
    json_t *map = json_object_get(document, "weight_map"), *value;
    const char *tensor, *shard;
    uint64_t sum = 0;
    bool sorted = true;
    size_t n;

    if (!js_is(&weight_map, JSON_OBJECT))
        return js_bad(&weight_map, "an object", err);
    if (json_object_size(map) == 0)
        return err_data(err, path, "weight_map is empty");
    /* Every path is checked before any shard is opened. */
    json_object_foreach(map, tensor, value)
    {
        struct js js = js_get(&weight_map, tensor);

        if (js_str(&js, &shard, &n, err) < 0)
            return -1;
        n -= (size_t)(plain_name(shard) - shard);
        if (!safe_path(plain_name(shard), n))
            return js_bad(&js, "a path inside the directory, ending in " SUFFIX,
                          err);
        shard = plain_name(shard);
        n = json_object_size(shards);
        if (!json_object_get(shards, shard) &&
            json_object_set_new(shards, shard, json_integer((json_int_t)n)) < 0)
            return err_set(err, EX_SOFTWARE, "%s: out of memory", path);
    }
    dir->files =
        mem_try(json_object_size(shards), sizeof(*dir->files), dir->path, err);
    dir->tensors =
        mem_try(json_object_size(map), sizeof(*dir->tensors), dir->path, err);
    if (!dir->files || !dir->tensors)
        return -1;
    json_object_foreach(map, tensor, value)
    {
        struct stdir_tensor *t = dir->tensors + dir->n_tensors;

        shard = plain_name(json_string_value(value));
        n = (size_t)json_integer_value(json_object_get(shards, shard));
        if (n == dir->n_files &&
            open_shard(dir, path, shard, tensor, inodes, err) < 0)
            return -1;
        *t = (struct stdir_tensor){ st_find(dir->files + n, tensor),
                                    dir->files + n };
        if (!t->t)
            return err_data(err, path, "tensor \"%.200s\" is not in %s", tensor,
                            dir->files[n].path);
        sorted = sorted && (!dir->n_tensors || compare_tensors(t - 1, t) <= 0);
        sum += t->t->nbytes;
        dir->n_tensors++;
    }
    if (!sorted) /* most are */
        qsort(dir->tensors, dir->n_tensors, sizeof(*dir->tensors),
              compare_tensors);
    /* Writers disagree on what total_size counts: a warning is enough. */
    if (js_is(&total, JSON_INTEGER) &&
        (uint64_t)json_integer_value(total.v) != sum)
        err_warn("%s: total_size is %lld, but the tensors are %zu bytes; "
                 "the tensors count",
                 path, (long long)json_integer_value(total.v), sum);
    return 0;
}

static int
open_index(struct stdir *dir, struct err *err)
{
    char *path = join(dir->path, STDIR_INDEX);
    json_t *document = js_load(path, err);
    json_t *shards = json_object(), *inodes = json_object();
    int rc = -1;

    if (!shards || !inodes)
        err_set(err, EX_SOFTWARE, "%s: out of memory", path);
    else if (document)
        rc = read_index(dir, path, document, shards, inodes, err);
    json_decref(shards);
    json_decref(inodes);
    json_decref(document);
    free(path);
    return rc;
}

/* Is it one of several, as "model-00001-of-00003.safetensors" is? */
static bool
is_shard(const char *name)
{
    const char *of = strstr(name, "-of-");

    return of && strtoul(of + 4, NULL, 10) > 1;
}

/* The only file of that kind in a directory: an adapter's, for example. */
static int
open_only(struct stdir *dir, struct err *err)
{
    DIR *d = opendir(dir->path);
    struct dirent *entry;
    char *name = NULL, *path;
    size_t n = 0;
    int rc;

    if (!d)
        return err_sys(err, file_status(errno), "%s", dir->path);
    while ((rc = dir_next(d, dir->path, &entry, err)) > 0)
        if (entry->d_name[0] != '.' && str_ends(entry->d_name, SUFFIX) &&
            n++ == 0)
            name = xstrdup(entry->d_name);
    closedir(d);
    if (rc == 0 && (n == 0 || (n == 1 && is_shard(name))))
        rc = stdir_wrong(dir->path, STDIR_NO_WEIGHTS, err);
    else if (rc == 0 && n > 1)
        rc = err_set(err, EX_NOINPUT,
                     "%s: has %zu safetensors files, but no " STDIR_INDEX,
                     dir->path, n);
    else if (rc == 0) {
        path = join(dir->path, name);
        rc = open_one(dir, path, err);
        free(path);
    }
    free(name);
    return rc;
}

int
stdir_open(struct stdir *dir, const char *path, struct err *err)
{
    int rc = file_is_dir(path, err);
    char *file;
    bool one = rc > 0 && stdir_has(path, STDIR_ONE_FILE);
    bool index = rc > 0 && !one && stdir_has(path, STDIR_INDEX);

    *dir = (struct stdir){ .path = xstrdup(path) };
    if (one || (rc > 0 && !index && stdir_has(path, STDIR_ONE_SHARD))) {
        file = join(path, one ? STDIR_ONE_FILE : STDIR_ONE_SHARD);
        rc = open_one(dir, file, err);
        free(file);
    } else if (rc > 0) {
        rc = index ? open_index(dir, err) : open_only(dir, err);
    } else if (rc == 0) {
        rc = open_one(dir, path, err);
    }
    if (rc < 0)
        stdir_close(dir);
    return rc;
}

int
stdir_map(struct stdir *dir, struct err *err)
{
    for (size_t i = 0; i < dir->n_files; i++)
        if (st_map(dir->files + i, err) < 0)
            return -1;
    return 0;
}

int
stdir_unchanged(const struct stdir *dir, struct err *err)
{
    for (size_t i = 0; i < dir->n_files; i++)
        if (st_unchanged(dir->files + i, err) < 0)
            return -1;
    return 0;
}

void
stdir_close(struct stdir *dir)
{
    for (size_t i = 0; i < dir->n_files; i++)
        st_close(dir->files + i);
    free(dir->tensors);
    free(dir->files);
    free(dir->path);
    *dir = (struct stdir){ 0 };
}

const struct stdir_tensor *
stdir_find_n(const struct stdir *dir, const char *name, size_t n)
{
    struct st_tensor t = { .name = name, .name_n = n };
    struct stdir_tensor key = { .t = &t };

    return dir->n_tensors ? bsearch(&key, dir->tensors, dir->n_tensors,
                                    sizeof(key), compare_tensors)
                          : NULL;
}

const struct stdir_tensor *
stdir_find(const struct stdir *dir, const char *name)
{
    return stdir_find_n(dir, name, strlen(name));
}
