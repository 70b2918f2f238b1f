/* SPDX-License-Identifier: ISC */
/*
 * --shuffle in memory: the rows are read once, in the dump's order, and
 * written in that of their keys.
 */
#include "cmd/saev-read/shuffle.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/compat.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

#define PROBE      ((size_t)1 << 20)   /* bytes from one probe to the next */
#define MAX_SHARDS 4096                /* of 65530 maps that Linux allows */
#define PIECES     512                 /* rows at a time */
#define COPIED     ((size_t)256 << 10) /* bytes gathered at a time: in L2 */
#define KEYS       512

bool
mapped_open(struct mapped *m, struct shuffle *s, size_t max_nbytes)
{
    const struct saevdir *dir = &s->t->dir;
    struct str path = { 0 };
    bool ok = true;

    *m = (struct mapped){ 0 };
    if (s->n == 0)
        return false;
    m->first = target_at(s->t, 0).shard;
    m->n = target_at(s->t, s->n - 1).shard - m->first + 1;
    if (m->n > MAX_SHARDS || m->n * dir->saev.shard_nbytes > max_nbytes) {
        m->n = 0;
        return false;
    }
    m->maps = xcalloc(m->n, sizeof(*m->maps));
    for (size_t i = 0; i < m->n && ok; i++) {
        size_t shard = m->first + i;
        size_t nbytes = saev_shard_nbytes(&dir->saev, shard);
        struct err err;
        int fd = gather_fd(&s->gather, shard, &err);

        saevdir_shard_path(dir, shard, &path);
        ok = fd >= 0 && map_open(&m->maps[i], path.s, &err) == 0 &&
             m->maps[i].size >= nbytes;
        /* is the page cache warm there?  One byte in each PROBE says.  Of
         * somebody else's file Linux says so of all pages, and a read that
         * does not wait may find what it itself began to fetch: both must */
        for (size_t at = 0; ok && at < nbytes; at += PROBE) {
            char byte;

            ok = map_cached(m->maps[i].data + at) &&
                 pread_cached(fd, &byte, 1, (off_t)at) == 1;
        }
    }
    str_free(&path);
    if (!ok)
        mapped_close(m);
    return ok;
}

/* What was after the end of a file reads as zeros in its last page, and as an
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
mapped_drop(struct mapped *m, const struct dump_target *t, size_t row)
{
    size_t n = row < t->n_rows ? target_at(t, row).shard - m->first : m->n;
    struct map *map = &m->maps[n];

    for (size_t i = 0; i < n; i++)
        map_close(&m->maps[i]);
    if (n < m->n && map->data)
        madvise((void *)(uintptr_t)map->data, map->size, MADV_DONTNEED);
}

/* Row i of the order. */
static const char *
block_row(const struct shuffle *s, const struct row_block *b, size_t i)
{
    if (b->mapped)
        return mapped_row(b->mapped, s->t, b->items[i].at);
    return b->rows + b->items[i].at * b->stride + b->offset;
}

int
block_put(struct shuffle *s, const struct row_block *block, struct err *err)
{
    size_t row_nbytes = s->row_nbytes, most;
    char *buf;
    int rc = 0;

    if (s->cmd->index) {
        for (size_t i = 0; i < block->n; i++) {
            uint64_t at = block->items[i].at;
            uint64_t row = block->element ? block->element(block->ctx, at) : at;

            if (emit_place(&s->emit, row, err) < 0)
                return -1;
        }
        return 0;
    }
    if (row_nbytes >= PIECE_MIN && s->cmd->dtype == DT_F32) {
        struct iovec v[PIECES];

        for (size_t i = 0, n; i < block->n; i += n) {
            n = smaller(block->n - i, PIECES);
            for (size_t k = 0; k < n; k++) {
                v[k].iov_base = (void *)(uintptr_t)block_row(s, block, i + k);
                v[k].iov_len = row_nbytes;
            }
            if (emit_pieces(&s->emit, v, n, block->stays, err) < 0)
                return -1;
        }
        return 0;
    }
    most = larger(COPIED / row_nbytes, 1);
    buf = xmalloc(most * row_nbytes);
    for (size_t i = 0, n; i < block->n && rc == 0; i += n) {
        n = smaller(block->n - i, most);
        for (size_t k = 0; k < n; k++) {
            if (!block->mapped && i + k + 8 < block->n)
                __builtin_prefetch(block_row(s, block, i + k + 8));
            memcpy(buf + k * row_nbytes, block_row(s, block, i + k),
                   row_nbytes);
        }
        rc = emit_rows(&s->emit, buf, n, err);
    }
    free(buf);
    return rc;
}

void
shuffle_say(const struct shuffle *s, const char *how)
{
    if (!s->cmd->verbose)
        return;
    tool_say("shuffle: seed %llu, epoch %llu, %s",
             (unsigned long long)s->perm->seed,
             (unsigned long long)s->perm->epoch, how);
}

/* The keys of all rows, to be sorted. */
struct keying {
    const struct perm *perm;
    struct perm_item *items;
};

static void
make_items(void *ctx, size_t begin, size_t end)
{
    const struct keying *k = ctx;
    uint64_t keys[KEYS];

    for (size_t i = begin; i < end; i++) {
        size_t j = (i - begin) % KEYS;

        if (j == 0)
            perm_keys(k->perm, i, smaller(end - i, KEYS), keys);
        k->items[i] = (struct perm_item){ keys[j], i };
    }
}

/* What is in the page cache need not be read: that is warm memory, too. */
static int
shuffle_in_memory(struct shuffle *s, struct err *err)
{
    struct keying k = { s->perm, mem_big(s->n, sizeof(*k.items), "keys", err) };
    size_t keys_nbytes = s->n * sizeof(*k.items);
    struct mapped mapped = { 0 };
    struct row_block block = { .stays = true, .stride = s->row_nbytes };
    char *rows = NULL;
    int rc = k.items ? 0 : -1;

    shuffle_say(s, "in memory");
    if (rc == 0 && s->row_nbytes >= PIECE_MIN && !s->cmd->direct &&
        mapped_open(&mapped, s, s->cmd->mem - keys_nbytes)) {
        block.mapped = &mapped;
    } else if (rc == 0) {
        block.rows = rows = mem_big(s->n, s->row_nbytes, "rows", err);
        rc = rows ? 0 : -1;
        if (rc == 0 && s->row_nbytes)
            rc = gather_range(&s->gather, 0, s->n, rows, err);
    }
    if (rc == 0) {
        par_for(s->par, s->n, 1 << 14, make_items, &k);
        perm_sort(s->perm, k.items, s->n, NULL, NULL, s->par);
        block.items = k.items + s->cmd->skip;
        block.n = s->n - s->cmd->skip;
        rc = block_put(s, &block, err);
    }
    if (mapped_check(&mapped, s, err) < 0)
        rc = -1;
    mapped_close(&mapped);
    mem_big_free(rows, s->n, s->row_nbytes);
    mem_big_free(k.items, s->n, sizeof(*k.items));
    return rc;
}

int
shuffle_main(struct read_cmd *cmd, const struct dump_target *t, struct err *err)
{
    struct shuffle s = { .cmd = cmd,
                         .t = t,
                         .perm = &cmd->perm,
                         .n = t->n_rows,
                         .row_nbytes =
                             cmd->index ? 0 : t->dir.saev.row_nbytes };
    size_t fit = cmd->mem / (s.row_nbytes + sizeof(struct perm_item));
    int rc = -1;

    if (cmd->skip > s.n)
        return err_set(err, EX_DATAERR, "%s: --skip %zu, but %zu row%s",
                       t->dir.path, (size_t)cmd->skip, s.n, plural(s.n));
    if (gather_open(&s.gather, t, cmd->n_threads, cmd->direct, err) == 0 &&
        emit_open(&s.emit, cmd, t, s.n - cmd->skip, err) == 0) {
        s.par = s.gather.par;
        rc = cmd->window  ? shuffle_window(&s, err)
             : s.n <= fit ? shuffle_in_memory(&s, err)
                          : shuffle_external(&s, err);
    }
    if (rc == 0)
        rc = emit_end(&s.emit, err);
    emit_close(&s.emit);
    gather_close(&s.gather);
    return rc;
}
