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
    struct file_hash *to;
    struct hash *whole;
    struct hash **open;     /* [n_tensors] begun and not ended */
    uint32_t *order;        /* [n_tensors] by place in the file */
    size_t first, n;        /* part of 'order' that reaches into the block */
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
        if (i == 0) {
            hash_add(h->whole, now->data, now->nbytes);
        } else if (i <= h->n) { /* the part of a tensor in the block */
            size_t k = h->order[h->first + i - 1];
            const struct st_tensor *t = &h->st->tensors[k];
            size_t begin = h->st->data_offset + t->begin;
            size_t end = begin + t->nbytes;
            size_t from = larger(begin, now->at);
            size_t to = smaller(end, now->at + now->nbytes);

            if (!h->open[k])
                h->open[k] = hash_new(h->kind);
            hash_add(h->open[k], now->data + (from - now->at), to - from);
            if (to == end) {
                hash_end(h->open[k], h->to->tensors[k]);
                h->open[k] = NULL;
            }
        } else {
            size_t k = i - 1 - h->n, at = k * PIECE_NBYTES;

            file_pread(h->st->fd, h->st->path, next->data + at,
                       smaller(next->nbytes - at, PIECE_NBYTES), next->at + at,
                       &h->errs[k]);
        }
    }
}

static int
by_begin(const void *pa, const void *pb, void *tensors)
{
    const struct st_tensor *t = tensors;
    const struct st_tensor *a = &t[*(const uint32_t *)pa];
    const struct st_tensor *b = &t[*(const uint32_t *)pb];
    size_t a_end = a->begin + a->nbytes, b_end = b->begin + b->nbytes;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a_end > b_end) - (a_end < b_end);
}

/* Sorts the tensors by place, and sets the digests of empty ones. */
static int
prepare(struct hashing *h, struct err *err)
{
    size_t n = h->st->n_tensors;

    h->to->tensors = mem_try(n, sizeof(*h->to->tensors), h->st->path, err);
    h->open = mem_try(n, sizeof(struct hash *), h->st->path, err);
    h->order = mem_try(n, sizeof(*h->order), h->st->path, err);
    if (h->open)
        memset(h->open, 0, n * sizeof(struct hash *));
    if (!h->to->tensors || !h->open || !h->order)
        return -1;
    for (size_t i = 0; i < n; i++) {
        h->order[i] = (uint32_t)i; /* a header has room for fewer than 2^32 */
        if (h->st->tensors[i].nbytes == 0)
            hash_end(hash_new(h->kind), h->to->tensors[i]);
    }
    sort_with(h->order, n, sizeof(*h->order), by_begin,
              (void *)(uintptr_t)h->st->tensors);
    /* empty tensors sort before the one that has bytes at their place */
    return 0;
}

int
hash_st(struct file_hash *fh, const struct st *st, enum hash_kind kind,
        bool tensors, struct par *par, struct err *err)
{
    struct hashing h = { .st = st, .kind = kind, .to = fh };
    size_t block_nbytes =
        par && par_threads(par) > 1 ? BLOCK_NBYTES : PIECE_NBYTES;
    size_t data = st->data_offset, n_tensors = tensors ? st->n_tensors : 0;
    int rc = -1;

    *fh = (struct file_hash){ 0 };
    h.whole = hash_new(kind);
    h.now.data = mem_big(block_nbytes, 1, "a buffer", err);
    h.next.data = mem_big(block_nbytes, 1, "a buffer", err);
    if (!h.now.data || !h.next.data || (tensors && prepare(&h, err) < 0))
        goto out;
    do { /* at first the block that is hashed is empty */
        struct block done = h.now;
        size_t at = done.at + done.nbytes, n_pieces;
        size_t start = done.at > data ? done.at - data : 0;

        h.next.at = at;
        h.next.nbytes = smaller(st->file_size - at, block_nbytes);
        n_pieces = (h.next.nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
        /* the tensors that overlap the block; those before it are done */
        h.n = 0;
        for (; at > data && h.first < n_tensors; h.first++) {
            const struct st_tensor *t = &st->tensors[h.order[h.first]];

            if (t->begin + t->nbytes > start)
                break;
        }
        while (at > data && h.first + h.n < n_tensors &&
               st->tensors[h.order[h.first + h.n]].begin < at - data)
            h.n++;
        par_for(par, 1 + h.n + n_pieces, 1, do_tasks, &h);
        for (size_t i = 0; i < n_pieces; i++)
            if (h.errs[i].status) {
                *err = h.errs[i];
                goto out;
            }
        h.now = h.next;
        h.next = done;
    } while (h.now.nbytes > 0);
    hash_end(h.whole, fh->whole);
    h.whole = NULL;
    rc = 0;
out:
    for (size_t i = 0; h.open && h.order && i < st->n_tensors; i++)
        hash_free(h.open[i]);
    free(h.open);
    free(h.order);
    mem_big_free(h.now.data, block_nbytes, 1);
    mem_big_free(h.next.data, block_nbytes, 1);
    hash_free(h.whole);
    return rc;
}

static int
hash_range(char hex[HASH_MAX_HEX], const struct view *v, enum hash_kind kind,
           struct err *err)
{
    uint8_t *piece = mem_big(PIECE_NBYTES, 1, "a buffer", err);
    struct hash *hash;
    int rc = 0;

    if (!piece)
        return -1;
    hash = hash_new(kind);
    for (size_t at = 0, n; rc == 0 && at < v->nbytes; at += n) {
        n = smaller(v->nbytes - at, PIECE_NBYTES);
        rc = file_pread(v->fd, v->path, piece, n, v->offset + at, err);
        if (rc == 0)
            hash_add(hash, piece, n);
    }
    hash_end(hash, hex);
    mem_big_free(piece, PIECE_NBYTES, 1);
    return rc;
}

void
file_hash_free(struct file_hash *fh)
{
    free(fh->tensors);
    *fh = (struct file_hash){ 0 };
}

struct hashes {
    struct inspect_cmd *cmd;
    const struct selection *sel;
    char (*hex)[HASH_MAX_HEX]; /* [sel->n], for -t */
    struct err *errs;          /* [threads] */
};

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

/* JSON is one array for all operands. */
static int
put(struct inspect_cmd *cmd, const struct st *st, const struct st_tensor *t,
    const char *hex, struct err *err)
{
    struct str *to = &cmd->text;
    uint64_t nbytes = t ? t->nbytes : st->file_size;

    if (!cmd->json) {
        str_addf(to, "%s\t%s\t", hash_name(cmd->hash), hex);
        put_u64_tab(to, nbytes);
        put_esc(to, st->path);
        str_addc(to, '\t');
        if (t)
            str_esc(to, t->name, t->name_n);
        str_addc(to, '\n');
        return text_end(cmd, err);
    }
    str_addf(to, "%s{\"hash\":\"%s\",\"digest\":\"%s\"",
             cmd->n_rows++ ? ",\n" : "\n", hash_name(cmd->hash), hex);
    put_json_u64(to, "nbytes", nbytes);
    put_json_text(to, "file", st->path);
    put_json_key(to, "tensor");
    if (t)
        js_put_str(to, t->name, t->name_n);
    else
        str_adds(to, "null");
    str_addc(to, '}');
    return text_end(cmd, err);
}

static void
hash_some(void *ctx, size_t begin, size_t end, int thread)
{
    struct hashes *h = ctx;

    for (size_t i = begin; i < end && !h->errs[thread].status; i++) {
        struct view v = view_of(h->sel->t[i]);

        hash_range(h->hex[i], &v, h->cmd->hash, &h->errs[thread]);
    }
}

/* With -t only the selected tensors are read. */
static int
hash_selected(struct inspect_cmd *cmd, const struct selection *sel,
              struct err *err)
{
    size_t n_threads = (size_t)par_threads(cmd->par);
    struct hashes h = { .cmd = cmd, .sel = sel };
    int rc = -1;

    h.errs = xcalloc(n_threads, sizeof(*h.errs));
    h.hex = mem_try(sel->n, sizeof(*h.hex), sel->dir.path, err);
    if (!h.hex)
        goto out;
    par_for_thread(cmd->par, sel->n, 1, hash_some, &h);
    rc = 0;
    for (size_t i = 0; i < n_threads; i++)
        if (h.errs[i].status) {
            *err = h.errs[i];
            rc = -1;
        }
    for (size_t i = 0; rc == 0 && i < sel->n; i++)
        rc = put(cmd, sel->t[i]->st, sel->t[i]->t, h.hex[i], err);
out:
    free(h.hex);
    free(h.errs);
    return rc;
}

/* Each file of an operand and its tensors. */
static int
hash_files(struct inspect_cmd *cmd, struct selection *sel, struct err *err)
{
    struct progress p = { .what = "hash", .unit = "B", .quiet = cmd->quiet };
    const struct st *files = sel->dir.files;
    size_t n_files = sel->dir.n_files;
    const struct stdir_tensor **t = xcalloc(sel->n, sizeof(*t));
    size_t *first = xcalloc(n_files + 2, sizeof(*first));
    int status = 0;
    uint64_t done = 0;

    /* t is the selection by file, in its order; t[first[i]] the first of file
     * i, first[n_files] the end */
    for (size_t i = 0; i < sel->n; i++)
        first[sel->t[i]->st - files + 2]++;
    for (size_t i = 2; i < n_files + 2; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < sel->n; i++)
        t[first[sel->t[i]->st - files + 1]++] = sel->t[i];
    for (size_t i = 0; i < n_files; i++)
        p.total += files[i].file_size;
    progress_start(&p);
    for (size_t i = 0; status >= 0 && i < n_files; i++) {
        const struct st *st = &files[i];
        struct file_hash fh = { 0 };
        int rc = hash_st(&fh, st, cmd->hash, !cmd->whole, cmd->par, err);

        rc = rc == 0 ? put(cmd, st, NULL, fh.whole, err) : rc;
        if (rc == 0)
            status |= check_blob(cmd, st->path, fh.whole);
        for (size_t k = first[i]; rc == 0 && !cmd->whole && k < first[i + 1];
             k++)
            rc = put(cmd, st, t[k]->t, fh.tensors[t[k]->t - st->tensors], err);
        status = rc < 0 ? -1 : status;
        file_hash_free(&fh);
        progress_at(&p, done += st->file_size);
    }
    progress_end(&p);
    free(t);
    free(first);
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
        one = cmd->globs.n ? hash_selected(cmd, &sel, err)
                           : hash_files(cmd, &sel, err);
        status = one < 0 ? one : status | one;
        select_close(&sel);
    }
    if (cmd->json)
        str_adds(&cmd->text, "\n]\n");
    return status;
}
