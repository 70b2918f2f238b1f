/*
 * Digests of a file and of each of its tensors in one pass over the file:
 * while a block is hashed, by one thread for each digest, the others read the
 * next one.
 */
#include "cmd/st-inspect/hashing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"

/* Pieces are in the cache from reading to hashing: few, but enough to share. */
#define BLOCK_PIECES 16
#define BLOCK_NBYTES (BLOCK_PIECES * PIECE_NBYTES)

struct block {
    uint8_t *data;     /* [block_nbytes] */
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
    size_t block_nbytes;    /* BLOCK_NBYTES at most */
    struct err errs[BLOCK_PIECES];
};

static void
read_piece(struct hashing *h, size_t i)
{
    const struct block *b = &h->next;
    size_t from = i * PIECE_NBYTES;
    size_t n =
        b->nbytes - from < PIECE_NBYTES ? b->nbytes - from : PIECE_NBYTES;

    file_pread(h->st->fd, h->st->path, b->data + from, n, b->at + from,
               &h->errs[i]);
}

/* The part of tensor i that lies in the block. */
static void
hash_tensor_part(struct hashing *h, size_t i)
{
    const struct st_tensor *t = &h->st->tensors[i];
    size_t begin = h->st->data_offset + t->begin, end = begin + t->nbytes;
    const struct block *b = &h->now;
    size_t from = begin > b->at ? begin : b->at;
    size_t to = end < b->at + b->nbytes ? end : b->at + b->nbytes;

    if (!h->open[i])
        h->open[i] = hash_new(h->kind);
    hash_add(h->open[i], b->data + (from - b->at), to - from);
    if (to == end) {
        hash_hex(h->open[i], h->to->tensors[i]);
        hash_free(h->open[i]);
        h->open[i] = NULL;
    }
}

/* The file's digest is the longest task, so it comes first; reading is cut in
 * the smallest pieces, so it comes last. */
static void
do_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    struct hashing *h = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        if (i == 0)
            hash_add(h->whole, h->now.data, h->now.nbytes);
        else if (i <= h->n)
            hash_tensor_part(h, h->order[h->first + i - 1]);
        else
            read_piece(h, i - 1 - h->n);
}

/* Which tensors reach into the block; those before it are done. */
static void
find_parts(struct hashing *h)
{
    const struct st *st = h->st;
    const struct block *b = &h->now;
    size_t start = b->at > st->data_offset ? b->at - st->data_offset : 0;
    size_t end = b->at + b->nbytes - st->data_offset;

    h->n = 0;
    if (!h->to->tensors || b->at + b->nbytes <= st->data_offset)
        return;
    for (; h->first < st->n_tensors; h->first++) {
        const struct st_tensor *t = &st->tensors[h->order[h->first]];

        if (t->begin + t->nbytes > start)
            break;
    }
    while (h->first + h->n < st->n_tensors &&
           st->tensors[h->order[h->first + h->n]].begin < end)
        h->n++;
}

/* Hashes the block that is there, which is empty at first, reads the next one
 * and puts it in its place. */
static int
step(struct hashing *h, struct par *par, struct err *err)
{
    struct block done = h->now;
    size_t at = done.at + done.nbytes, left = h->st->file_size - at, n;

    h->next.at = at;
    h->next.nbytes = left < h->block_nbytes ? left : h->block_nbytes;
    n = (h->next.nbytes + PIECE_NBYTES - 1) / PIECE_NBYTES;
    find_parts(h);
    par_for(par, 1 + h->n + n, 1, do_tasks, h);
    for (size_t i = 0; i < n; i++)
        if (h->errs[i].status) {
            *err = h->errs[i];
            return -1;
        }
    h->now = h->next;
    h->next = done;
    return 0;
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

/* The order of the file; the digest of no bytes for what has none. */
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
        if (h->st->tensors[i].nbytes == 0) {
            struct hash *none = hash_new(h->kind);

            hash_hex(none, h->to->tensors[i]);
            hash_free(none);
        }
    }
    qsort_r(h->order, n, sizeof(*h->order), by_begin,
            (void *)(uintptr_t)h->st->tensors);
    /* the empty ones of them sort before the first that is not, at its place */
    return 0;
}

int
hash_st(struct file_hash *fh, const struct st *st, enum hash_kind kind,
        bool tensors, struct par *par, struct err *err)
{
    struct hashing h = { .st = st, .kind = kind, .to = fh };
    int rc = -1;

    *fh = (struct file_hash){ 0 };
    h.block_nbytes = par && par_threads(par) > 1 ? BLOCK_NBYTES : PIECE_NBYTES;
    h.whole = hash_new(kind);
    h.now.data = mem_big(h.block_nbytes, 1, "a buffer", err);
    h.next.data = mem_big(h.block_nbytes, 1, "a buffer", err);
    if (!h.now.data || !h.next.data || (tensors && prepare(&h, err) < 0))
        goto out;
    do
        rc = step(&h, par, err);
    while (rc == 0 && h.now.nbytes > 0);
    if (rc == 0)
        hash_hex(h.whole, fh->whole);
out:
    for (size_t i = 0; h.open && h.order && i < st->n_tensors; i++)
        hash_free(h.open[i]);
    free(h.open);
    free(h.order);
    mem_big_free(h.now.data, h.block_nbytes, 1);
    mem_big_free(h.next.data, h.block_nbytes, 1);
    hash_free(h.whole);
    return rc;
}

int
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
        n = v->nbytes - at < PIECE_NBYTES ? v->nbytes - at : PIECE_NBYTES;
        rc = file_pread(v->fd, v->path, piece, n, v->offset + at, err);
        if (rc == 0)
            hash_add(hash, piece, n);
    }
    if (rc == 0)
        hash_hex(hash, hex);
    hash_free(hash);
    mem_big_free(piece, PIECE_NBYTES, 1);
    return rc;
}

int
hash_plain(char hex[HASH_MAX_HEX], const char *path, enum hash_kind kind,
           struct err *err)
{
    struct view v = { .path = path };
    int rc;

    v.fd = file_open(path, &v.nbytes, err);
    if (v.fd < 0)
        return -1;
    rc = hash_range(hex, &v, kind, err);
    close(v.fd);
    return rc;
}

void
file_hash_free(struct file_hash *fh)
{
    free(fh->tensors);
    *fh = (struct file_hash){ 0 };
}
