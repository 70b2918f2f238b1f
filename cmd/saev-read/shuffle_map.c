#include "cmd/saev-read/shuffle_map.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cmd/saev-read/shards.h"
#include "core/compat.h"
#include "core/mem.h"

#define PROBE      ((size_t)1 << 20) /* bytes from one look to the next */
#define MAX_SHARDS 4096              /* of 65530 maps that Linux allows */

/* Is the page cache warm there?  One byte in each PROBE tells. */
static bool
is_warm(struct shuffle *s, size_t shard, size_t nbytes)
{
    struct err err;
    char byte;
    struct iovec v = { &byte, 1 };
    int fd = shards_fd(&s->gather.shards, shard, &err);

    for (size_t at = 0; fd >= 0 && at < nbytes; at += PROBE)
        if (preadv2(fd, &v, 1, (off_t)at, RWF_NOWAIT) != 1)
            return false;
    return fd >= 0;
}

static bool
map_shard(struct shuffle *s, size_t shard, struct map *map)
{
    size_t nbytes = saev_shard_nbytes(&s->t->dir.saev, shard);
    struct str path = { 0 };
    struct err err;
    bool good = is_warm(s, shard, nbytes);

    saevdir_shard_path(&s->t->dir, shard, &path);
    good = good && map_open(map, path.s, &err) == 0 && map->size >= nbytes;
    str_free(&path);
    return good;
}

bool
mapped_open(struct mapped *m, struct shuffle *s, size_t room)
{
    bool good = s->n > 0;
    size_t last;

    *m = (struct mapped){ 0 };
    if (!good)
        return false;
    m->first = target_at(s->t, 0).shard;
    last = target_at(s->t, s->n - 1).shard;
    m->n = last - m->first + 1;
    if (m->n > MAX_SHARDS || m->n * s->t->dir.saev.shard_nbytes > room) {
        m->n = 0;
        return false;
    }
    m->maps = xcalloc(m->n, sizeof(*m->maps));
    for (size_t i = 0; i < m->n && good; i++)
        good = map_shard(s, m->first + i, &m->maps[i]);
    if (!good)
        mapped_close(m);
    return good;
}

/* What was behind the end of a file reads as zeros in its last page, and as an
 * error of the output beyond. */
int
mapped_check(const struct mapped *m, const struct shuffle *s, struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    for (size_t i = 0; i < m->n && rc == 0; i++) {
        size_t nbytes = saev_shard_nbytes(&s->t->dir.saev, m->first + i);
        struct stat st;

        saevdir_shard_path(&s->t->dir, m->first + i, &path);
        if (stat(path.s, &st) == 0 && (size_t)st.st_size < nbytes)
            rc = err_set(err, EX_DATAERR,
                         "%s: ended at byte %zu while it was read (expected "
                         "%zu)",
                         path.s, (size_t)st.st_size, nbytes);
    }
    str_free(&path);
    return rc;
}

void
mapped_close(struct mapped *m)
{
    for (size_t i = 0; i < m->n; i++)
        map_close(&m->maps[i]);
    free(m->maps);
    *m = (struct mapped){ 0 };
}

const char *
mapped_row(const struct mapped *m, const struct dump_target *t, size_t row)
{
    struct saev_place p = target_at(t, row);

    return (const char *)m->maps[p.shard - m->first].data + p.offset;
}

void
mapped_pass(struct mapped *m, const struct dump_target *t, size_t row)
{
    size_t n = row < t->n_rows ? target_at(t, row).shard - m->first : m->n;
    struct map *map = &m->maps[n];

    for (size_t i = 0; i < n; i++)
        map_close(&m->maps[i]);
    if (n < m->n && map->data)
        madvise((void *)(uintptr_t)map->data, map->size, MADV_DONTNEED);
}
