/* SPDX-License-Identifier: ISC */
/*
 * hash: digests of files and of their tensors, in one pass over each file.
 * While a block is hashed, with one thread for each digest, other threads read
 * the next block.
 */
#include "cmd/st-inspect/hash.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/text.h"
#include "core/compat.h"
#include "core/js.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

/* Few enough for the cache to keep a piece from reading to hashing, but enough
 * to share among threads. */
#define BLOCK_PIECES 16
#define BLOCK_NBYTES (BLOCK_PIECES * PIECE_NBYTES)

struct block {
    uint8_t *data;     /* [BLOCK_NBYTES] at most */
    size_t at, nbytes; /* its place in the file */
};

struct hashing {
    const struct st *st;
    enum hash_kind kind;
    struct hash_range **active; /* [n] those that reach into 'now' */
    size_t n;
    struct block now, next; /* is hashed, is read */
    struct err errs[BLOCK_PIECES];
};

/* The file's digest is the longest task, so it comes first; pieces to read are
 * the shortest, so they come last. */
static void
do_tasks(void *ctx, size_t first, size_t last)
{
    struct hashing *h = ctx;
    const struct block *now = &h->now, *next = &h->next;

    for (size_t i = first; i < last; i++) {
        if (i < h->n) { /* the part of a range in the block */
            struct hash_range *r = h->active[i];
            size_t from = larger(r->begin, now->at);
            size_t to = smaller(r->end, now->at + now->nbytes);

            if (!r->open)
                r->open = hash_new(h->kind);
            hash_add(r->open, now->data + (from - now->at), to - from);
            if (to == r->end) {
                hash_end(r->open, r->hex);
                r->open = NULL;
            }
        } else {
            size_t k = i - h->n, at = k * PIECE_NBYTES;

            file_pread(h->st->fd, h->st->path, next->data + at,
                       smaller(next->nbytes - at, PIECE_NBYTES), next->at + at,
                       &h->errs[k]);
        }
    }
}

struct hash_range
hash_part(const struct st *st, const struct st_tensor *t)
{
    size_t begin = t ? st->data_offset + t->begin : 0;

    return (struct hash_range){ begin, t ? begin + t->nbytes : st->file_size,
                                NULL, "" };
}

static int
by_begin(const void *pa, const void *pb)
{
    const struct hash_range *a = *(struct hash_range *const *)pa;
    const struct hash_range *b = *(struct hash_range *const *)pb;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end < b->end) - (a->end > b->end);
}

int
hash_st(struct hash_range *ranges, size_t n, const struct st *st,
        enum hash_kind kind, struct par *par, struct err *err)
{
    struct hashing h = { .st = st, .kind = kind };
    size_t block_nbytes = par_threads(par) > 1 ? BLOCK_NBYTES : PIECE_NBYTES;
    struct hash_range **order =
        mem_try(n, sizeof(struct hash_range *), st->path, err);
    size_t n_order = 0, next = 0; /* those before are active, or done */
    int rc = -1;

    h.active = mem_try(n + 1, sizeof(struct hash_range *), st->path, err);
    h.now.data = mem_big(block_nbytes, 1, "a buffer", err);
    h.next.data = mem_big(block_nbytes, 1, "a buffer", err);
    if (!order || !h.active || !h.now.data || !h.next.data)
        goto out;
    for (size_t i = 0; i < n; i++)
        if (ranges[i].begin == ranges[i].end)
            hash_end(hash_new(kind), ranges[i].hex);
        else
            order[n_order++] = &ranges[i];
    if (n_order)
        qsort(order, n_order, sizeof(struct hash_range *), by_begin);
    do { /* at first the block that is hashed is empty */
        struct block done = h.now;
        size_t at = done.at + done.nbytes, end = at, k = 0, n_pieces;

        /* the ranges that reach into the block, and how far they go on */
        for (size_t i = 0; i < h.n; i++)
            if (h.active[i]->open) {
                h.active[k++] = h.active[i];
                end = larger(end, h.active[i]->end);
            }
        for (; next < n_order && order[next]->begin < at; next++) {
            h.active[k++] = order[next];
            end = larger(end, order[next]->end);
        }
        h.n = k;
        if (end == at && next < n_order)
            at = end = order[next]->begin;
        for (size_t i = next;
             i < n_order && order[i]->begin <= end && end - at < block_nbytes;
             i++)
            end = larger(end, order[i]->end);
        h.next.at = at;
        h.next.nbytes = smaller(end - at, block_nbytes);
        n_pieces = (h.next.nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
        par_for(par, h.n + n_pieces, 1, do_tasks, &h);
        for (size_t i = 0; i < n_pieces; i++)
            if (h.errs[i].status) {
                *err = h.errs[i];
                goto out;
            }
        h.now = h.next;
        h.next = done;
    } while (h.now.nbytes > 0);
    rc = 0;
out:
    for (size_t i = 0; i < n; i++)
        hash_free(ranges[i].open);
    free(order);
    free(h.active);
    mem_big_free(h.now.data, block_nbytes, 1);
    mem_big_free(h.next.data, block_nbytes, 1);
    return rc;
}

/*
 * A hub cache keeps a file as blobs/SHA256 and links to it: the name says what
 * the digest must be.  0, or TU_NEGATIVE and a line if it says otherwise.
 */
static int
check_blob(const struct inspect_cmd *cmd, const char *path, const char *hex)
{
    char real[PATH_MAX], *name;

    if (cmd->hash != HASH_SHA256 || !realpath(path, real) ||
        !(name = strrchr(real, '/')) || strlen(name + 1) != 64 ||
        strspn(name + 1, "0123456789abcdef") != 64)
        return 0;
    *name = '\0';
    if (name - real < 6 || strcmp(name - 6, "/blobs") != 0 ||
        !strcmp(name + 1, hex))
        return 0;
    tool_say("%s: is %s, but the hub cache calls it %s", path, hex, name + 1);
    return TU_NEGATIVE;
}

static int
put(struct inspect_cmd *cmd, const struct st *st, const struct st_tensor *t,
    const char *hex, struct err *err)
{
    struct record *row = &cmd->row;

    record_begin(row);
    record_string(row, "hash", hash_name(cmd->hash));
    record_string(row, "digest", hex);
    record_u64(row, "nbytes", t ? t->nbytes : st->file_size);
    record_string(row, "file", st->path);
    record_text(row, "tensor",
                t           ? t->name
                : cmd->json ? NULL
                            : "",
                t ? t->name_n : 0);
    return row_end(cmd, err);
}

/* A file of an operand and its tensors; with -t the selected tensors alone are
 * read. */
static int
hash_file(struct inspect_cmd *cmd, const struct selection *sel,
          const struct st *st, struct err *err)
{
    struct hash_range *r = mem_try(sel->n + 1, sizeof(*r), st->path, err);
    size_t n = 0, k = 0;
    int rc = r ? 0 : -1, status = 0;

    if (r && !cmd->globs.n)
        r[n++] = hash_part(st, NULL);
    for (size_t i = 0; r && !cmd->whole && i < sel->n; i++)
        if (sel->t[i]->st == st)
            r[n++] = hash_part(st, sel->t[i]->t);
    if (rc == 0)
        rc = hash_st(r, n, st, cmd->hash, cmd->par, err);
    if (rc == 0 && !cmd->globs.n) {
        rc = put(cmd, st, NULL, r[k].hex, err);
        status = check_blob(cmd, st->path, r[k++].hex);
    }
    for (size_t i = 0; rc == 0 && k < n; i++)
        if (sel->t[i]->st == st)
            rc = put(cmd, st, sel->t[i]->t, r[k++].hex, err);
    free(r);
    return rc < 0 ? -1 : status;
}

/* Each file of an operand. */
static int
hash_files(struct inspect_cmd *cmd, const struct selection *sel,
           struct err *err)
{
    struct progress p = { .what = "hash", .unit = "B", .quiet = cmd->quiet };
    const struct stdir *dir = &sel->dir;
    uint64_t done = 0;
    int status = 0;

    for (size_t i = 0; i < dir->n_files; i++)
        p.total += dir->files[i].file_size;
    progress_start(&p);
    for (size_t i = 0; status >= 0 && i < dir->n_files; i++) {
        int one = hash_file(cmd, sel, &dir->files[i], err);

        status = one < 0 ? one : status | one;
        progress_at(&p, done += dir->files[i].file_size);
    }
    progress_end(&p);
    return status;
}

int
hash_main(struct inspect_cmd *cmd, struct err *err)
{
    int status = 0;

    if (par_open(&cmd->par, cmd->n_threads, err) < 0)
        return -1;
    if (cmd->check)
        return check_main(cmd, err);
    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "hash: a FILE or DIR is missing");
    str_adds(&cmd->text,
             cmd->json ? "[" : "algorithm\tdigest\tbytes\tfile\ttensor\n");
    for (int i = 0; status >= 0 && i < cmd->n_args; i++) {
        struct selection sel;
        int one;

        if (select_open(&sel, cmd->args[i], cmd, err) < 0)
            return -1;
        say_totals(cmd, &sel);
        one = hash_files(cmd, &sel, err);
        status = one < 0 ? one : status | one;
        select_close(&sel);
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    return status;
}
