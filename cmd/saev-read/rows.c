/* The default verb: rows of a view, in the order that was asked for. */
#include "cmd/saev-read/rows.h"

#include <stdlib.h>

#include "cmd/saev-read/emit.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/list.h"
#include "cmd/saev-read/sample.h"
#include "cmd/saev-read/shards.h"
#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"

#define COPY_MIN  ((size_t)256 << 10) /* a run worth a copy by the kernel */
#define RANGE_MIN ((size_t)1 << 20)   /* a range read for itself */
#define STREAM    ((size_t)1 << 20)   /* bytes read at a time, in order */
#define DIRECT    ((size_t)16 << 20)  /* the same past the page cache */
#define BATCH     ((size_t)32 << 20)  /* of rows in any order, at most */
#define BATCH_MIN ((size_t)2 << 20)   /* a thread: about what its cache holds */
#define BATCH_MAX ((size_t)256 << 10) /* rows of it */

/* Rows on their way from the dump to the output. */
struct pump {
    const struct read_cmd *cmd;
    const struct dump_target *t;
    struct gather gather;
    struct emit emit;
    size_t row_nbytes;
    char *buf;
    size_t least, most; /* rows of a batch: at least, and now */
    size_t room;        /* rows that fit 'buf' */
    size_t *rows;       /* [room], of which n wait to be read */
    size_t n;
};

/* At least one row. */
static size_t
rows_of(size_t nbytes, size_t row_nbytes, size_t max)
{
    size_t n = nbytes / row_nbytes;

    return n == 0 ? 1 : n < max ? n : max;
}

static int
pump_open(struct pump *p, const struct read_cmd *cmd,
          const struct dump_target *t, size_t n_rows, struct err *err)
{
    size_t d = t->dir.saev.d;

    *p = (struct pump){ .cmd = cmd,
                        .t = t,
                        .row_nbytes = t->dir.saev.row_nbytes };
    p->room = rows_of(BATCH, p->row_nbytes, BATCH_MAX);
    if (p->room > n_rows) /* none: what the metadata call a row is nowhere */
        p->room = n_rows;
    p->buf = mem_big(p->room, p->row_nbytes, "a batch of rows", err);
    if (!p->buf ||
        gather_open(&p->gather, t, cmd->n_threads, cmd->direct, err) < 0)
        return -1;
    p->rows = xcalloc(p->room, sizeof(*p->rows));
    p->least =
        rows_of(BATCH_MIN * p->gather.shards.n_scratch, p->row_nbytes, p->room);
    p->most = p->least;
    return emit_open(&p->emit, cmd, n_rows, d, err);
}

static void
pump_close(struct pump *p)
{
    emit_close(&p->emit);
    gather_close(&p->gather);
    free(p->rows);
    if (p->buf)
        mem_big_free(p->buf, p->room, p->row_nbytes);
}

/*
 * Reads and writes the rows that wait.  The more of them are sorted, the
 * nearer are neighbours on a disk; in the page cache that means nothing, and
 * few of them stay in the CPU's.
 */
static int
pump_flush(struct pump *p, struct err *err)
{
    size_t n = p->n;

    p->n = 0;
    if (n == 0)
        return 0;
    p->gather.shards.missed = false;
    if (gather_rows(&p->gather, p->rows, n, p->buf, err) < 0)
        return -1;
    p->most = !p->gather.shards.missed ? p->least
              : p->most < p->room / 2  ? 2 * p->most
                                       : p->room;
    return emit_rows(&p->emit, p->buf, n, err);
}

/* A run of rows that needs no change goes by the kernel's own copy. */
static int
copy_run(struct pump *p, size_t first, size_t n, struct err *err)
{
    struct saev_place at = target_at(p->t, first);
    struct str path = { 0 };
    int fd = shards_fd(&p->gather.shards, at.shard, err);
    int rc;

    if (fd < 0)
        return -1;
    saevdir_shard_path(&p->t->dir, at.shard, &path);
    rc = emit_copy(&p->emit, fd, path.s, at.offset, n, err);
    str_free(&path);
    return rc;
}

static int
read_range(struct pump *p, size_t first, size_t n, struct err *err)
{
    size_t piece = p->cmd->direct ? DIRECT : STREAM;
    size_t most = rows_of(piece, p->row_nbytes, p->room);

    for (size_t k; n > 0; n -= k, first += k) {
        k = n < most ? n : most;
        if (gather_range(&p->gather, first, k, p->buf, err) < 0 ||
            emit_rows(&p->emit, p->buf, k, err) < 0)
            return -1;
    }
    return 0;
}

/* Rows first .. first + n - 1 behind each other. */
static int
pump_range(struct pump *p, size_t first, size_t n, struct err *err)
{
    bool plain = p->cmd->dtype == DT_F32 && !p->cmd->direct;

    p->gather.shards.sequential = true;
    if (!plain || gather_run(p->t, first) * p->row_nbytes < COPY_MIN)
        return read_range(p, first, n, err);
    for (size_t run; n > 0; n -= run, first += run) {
        run = gather_run(p->t, first);
        run = run < n ? run : n;
        if (copy_run(p, first, run, err) < 0)
            return -1;
    }
    return 0;
}

static int
pump_list(struct pump *p, struct row_list *l, struct err *err)
{
    struct index_range r;
    int rc;

    while ((rc = list_next(l, &r, err)) > 0) {
        if ((r.last - r.first + 1) * p->row_nbytes >= RANGE_MIN) {
            if (pump_flush(p, err) < 0 ||
                pump_range(p, r.first, r.last - r.first + 1, err) < 0)
                return -1;
            continue;
        }
        for (size_t row = r.first; row <= r.last; row++) {
            p->rows[p->n++] = row;
            if (p->n == p->most && pump_flush(p, err) < 0)
                return -1;
        }
    }
    return rc < 0 ? -1 : pump_flush(p, err);
}

static int
print_list(struct places *places, struct row_list *l, struct err *err)
{
    struct index_range r;
    int rc;

    while ((rc = list_next(l, &r, err)) > 0)
        for (size_t row = r.first; row <= r.last; row++)
            if (places_put(places, row, err) < 0)
                return -1;
    return rc < 0 ? -1 : places_end(places, err);
}

static int
print_rows(struct places *places, rows_next *next, void *ctx, struct err *err)
{
    size_t rows[1024], n;

    for (;;) {
        if (next(ctx, rows, sizeof(rows) / sizeof(*rows), &n, err) < 0)
            return -1;
        if (n == 0)
            return places_end(places, err);
        for (size_t i = 0; i < n; i++)
            if (places_put(places, rows[i], err) < 0)
                return -1;
    }
}

int
rows_put(const struct read_cmd *cmd, const struct dump_target *t, size_t n_rows,
         rows_next *next, void *ctx, struct err *err)
{
    struct places places;
    struct pump p;
    int rc = -1;

    if (cmd->index) {
        places_open(&places, cmd, t);
        rc = print_rows(&places, next, ctx, err);
        places_close(&places);
        return rc;
    }
    if (pump_open(&p, cmd, t, n_rows, err) == 0)
        while ((rc = next(ctx, p.rows, p.most, &p.n, err)) == 0 && p.n &&
               (rc = pump_flush(&p, err)) == 0)
            ;
    if (rc == 0)
        emit_say(&p.emit, cmd);
    pump_close(&p);
    return rc;
}

static int
put_list(const struct read_cmd *cmd, struct row_list *l, struct err *err)
{
    struct places places;
    struct pump p;
    int rc = -1;

    if (cmd->index) {
        places_open(&places, cmd, l->t);
        rc = print_list(&places, l, err);
        places_close(&places);
        return rc;
    }
    if (pump_open(&p, cmd, l->t, l->n_rows, err) == 0)
        rc = pump_list(&p, l, err);
    if (rc == 0)
        emit_say(&p.emit, cmd);
    pump_close(&p);
    return rc;
}

int
rows_main(struct read_cmd *cmd, struct err *err)
{
    struct dump_target t;
    struct row_list l;
    bool random = cmd->shuffle || cmd->window || cmd->sample;
    int rc = -1;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "a DUMP is missing");
    if (cmd->json && !cmd->index)
        return err_set(err, TU_USAGE, "--json is of places: it needs --index");
    if (random && (cmd->n_args > 1 || cmd->rows))
        return err_set(err, TU_USAGE,
                       "--shuffle, --window, --sample are of all rows: no "
                       "INDEX");
    if (target_open(&t, cmd, cmd->args[0], err) < 0)
        return -1;
    if (random) {
        rc = cmd->sample ? sample_main(cmd, &t, err)
                         : shuffle_main(cmd, &t, err);
        target_close(&t);
        return rc;
    }
    if (list_open(&l, &t, cmd->args + 1, cmd->n_args - 1, cmd->rows, err) == 0)
        rc = put_list(cmd, &l, err);
    list_close(&l);
    target_close(&t);
    return rc;
}
