/*
 * --shuffle in memory: the rows are read once, in the dump's order, and
 * written in that of their keys.
 */
#include "cmd/saev-read/shuffle.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/shuffle_map.h"
#include "core/dtype.h"
#include "core/mem.h"
#include "core/tool.h"

#define PIECES 512                 /* rows at a time */
#define WAY    ((size_t)256 << 10) /* bytes gathered at a time: stay in L2 */

/* Two halves of a row of steps: one is gathered while the other is written. */
struct flow {
    const struct row_block *block;
    struct shuffle *s;
    struct err *err;
    char *half[2];
    size_t step_rows; /* of a half */
    size_t step;      /* which one is written; the next is gathered */
    int rc;
    int cause; /* errno of that */
};

/* Row i of the order. */
static const char *
block_row(const struct shuffle *s, const struct row_block *b, size_t i)
{
    if (b->mapped)
        return mapped_row(b->mapped, s->t, b->items[i].at);
    return b->rows + b->items[i].at * b->stride + b->skip;
}

static void
gather(const struct flow *f, size_t step)
{
    const struct row_block *b = f->block;
    size_t d4 = f->s->row_nbytes;
    size_t i = step * f->step_rows;
    size_t end = b->n - i < f->step_rows ? b->n : i + f->step_rows;
    char *to = f->half[step % 2];

    for (; i < end; i++, to += d4) {
        if (!b->mapped && i + 8 < end)
            __builtin_prefetch(b->rows + b->items[i + 8].at * b->stride);
        memcpy(to, block_row(f->s, b, i), d4);
    }
}

static void
put(struct flow *f, size_t step)
{
    size_t i = step * f->step_rows;
    size_t n = f->block->n - i < f->step_rows ? f->block->n - i : f->step_rows;

    f->rc = emit_rows(&f->s->emit, f->half[step % 2], n, f->err);
    f->cause = errno;
}

static void
do_half(void *ctx, size_t begin, size_t end, int thread)
{
    struct flow *f = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        if (i == 0)
            put(f, f->step);
        else if ((f->step + 1) * f->step_rows < f->block->n)
            gather(f, f->step + 1);
}

/* Rows that are large enough go out from where they lie. */
static int
put_pieces(struct shuffle *s, const struct row_block *b, struct err *err)
{
    struct iovec v[PIECES];
    size_t n;

    for (size_t i = 0; i < b->n; i += n) {
        n = b->n - i < PIECES ? b->n - i : PIECES;
        for (size_t k = 0; k < n; k++) {
            v[k].iov_base = (void *)(uintptr_t)block_row(s, b, i + k);
            v[k].iov_len = s->row_nbytes;
        }
        if (emit_pieces(&s->emit, v, n, b->stays, err) < 0)
            return -1;
    }
    return 0;
}

int
block_put(struct shuffle *s, const struct row_block *block, struct err *err)
{
    struct flow f = { .block = block, .s = s, .err = err };
    size_t d4 = s->row_nbytes;

    if (s->cmd->index) {
        for (size_t i = 0; i < block->n; i++) {
            uint64_t at = block->items[i].at;
            uint64_t row = block->element ? block->element(block->ctx, at) : at;

            if (places_put(&s->places, row, err) < 0)
                return -1;
        }
        return 0;
    }
    if (d4 >= (block->stays ? LEND_MIN : PIECE_MIN) && s->emit.dtype == DT_F32)
        return put_pieces(s, block, err);
    if (d4 >= WAY) {
        for (size_t i = 0; i < block->n; i++)
            if (emit_rows(&s->emit, block_row(s, block, i), 1, err) < 0)
                return -1;
        return 0;
    }
    if (block->n == 0)
        return 0;
    f.step_rows = (WAY + d4 - 1) / d4;
    f.half[0] = xmalloc(f.step_rows * d4);
    f.half[1] = xmalloc(f.step_rows * d4);
    gather(&f, 0);
    for (; f.rc == 0 && f.step * f.step_rows < block->n; f.step++)
        par_for(s->par, 2, 1, do_half, &f);
    if (f.rc < 0 && f.cause == EPIPE)
        raise(SIGPIPE); /* it was for a thread that does not take signals */
    free(f.half[0]);
    free(f.half[1]);
    return f.rc;
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

struct keying {
    const struct perm *perm;
    struct perm_item *items;
};

static void
make_items(void *ctx, size_t begin, size_t end, int thread)
{
    const struct keying *k = ctx;
    uint64_t keys[512];

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t j = (i - begin) % 512;

        if (j == 0)
            perm_keys(k->perm, i, end - i < 512 ? end - i : 512, keys);
        k->items[i] = (struct perm_item){ keys[j], i };
    }
}

/* Orders the items, and writes their rows. */
static int
put_in_order(struct shuffle *s, struct row_block *b, struct perm_item *items,
             struct err *err)
{
    struct keying k = { s->perm, items };

    par_for(s->par, s->n, 1 << 14, make_items, &k);
    perm_sort(s->perm, items, s->n, NULL, NULL, s->par);
    b->items = items + s->skip;
    b->n = s->n - s->skip;
    b->stays = true;
    return block_put(s, b, err);
}

static int
put_read(struct shuffle *s, struct perm_item *items, struct err *err)
{
    char *rows = mem_big(s->n, s->row_nbytes, "rows", err);
    struct row_block block = { .rows = rows, .stride = s->row_nbytes };
    int rc = rows ? 0 : -1;

    if (rc == 0 && s->row_nbytes)
        rc = gather_range(&s->gather, 0, s->n, rows, err);
    if (rc == 0)
        rc = put_in_order(s, &block, items, err);
    mem_big_free(rows, s->n, s->row_nbytes);
    return rc;
}

/* What is in the page cache need not be read: that is warm memory, too. */
static int
shuffle_in_memory(struct shuffle *s, struct err *err)
{
    struct perm_item *items = mem_big(s->n, sizeof(*items), "keys", err);
    bool plain = s->row_nbytes >= MAP_MIN && !s->cmd->direct;
    struct mapped mapped = { 0 };
    struct row_block block = { .mapped = &mapped };
    int rc = -1;

    shuffle_say(s, "in memory");
    if (items && plain &&
        mapped_open(&mapped, s, s->cmd->mem - s->n * sizeof(*items))) {
        rc = put_in_order(s, &block, items, err);
        if (mapped_check(&mapped, s, err) < 0)
            rc = -1;
    } else if (items) {
        rc = put_read(s, items, err);
    }
    mapped_close(&mapped);
    mem_big_free(items, s->n, sizeof(*items));
    return rc;
}

static int
shuffle_rows(struct shuffle *s, struct err *err)
{
    size_t fit = s->cmd->mem / (s->row_nbytes + sizeof(struct perm_item));
    int rc;

    if (s->cmd->index)
        places_open(&s->places, s->cmd, s->t);
    else if (emit_open(&s->emit, s->cmd, s->n - s->skip, s->t->dir.saev.d,
                       err) < 0)
        return -1;
    if (s->cmd->window)
        rc = shuffle_window(s, err);
    else
        rc = s->n <= fit ? shuffle_in_memory(s, err) : shuffle_external(s, err);
    if (rc == 0 && s->cmd->index)
        return places_end(&s->places, err);
    if (rc == 0)
        emit_say(&s->emit, s->cmd);
    return rc;
}

int
shuffle_main(struct read_cmd *cmd, const struct dump_target *t, struct err *err)
{
    struct shuffle s = { .cmd = cmd,
                         .t = t,
                         .perm = &cmd->perm,
                         .n = t->n_rows,
                         .skip = cmd->skip };
    int rc = -1;

    if (s.skip > s.n)
        return err_set(err, EX_DATAERR, "%s: --skip %zu, but %zu rows",
                       t->dir.path, s.skip, s.n);
    if (!cmd->index)
        s.row_nbytes = t->dir.saev.row_nbytes;
    if (gather_open(&s.gather, t, cmd->n_threads, cmd->direct, err) == 0) {
        s.par = s.gather.shards.par;
        rc = shuffle_rows(&s, err);
    }
    places_close(&s.places);
    emit_close(&s.emit);
    gather_close(&s.gather);
    return rc;
}
