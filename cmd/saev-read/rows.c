/* The default verb: rows of a view, in the order that was asked for. */
#include <stdlib.h>

#include "cmd/saev-read/emit.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"

#define COPY_MIN   ((size_t)256 << 10) /* a run worth a copy by the kernel */
#define RANGE_MIN  ((size_t)1 << 20)   /* a range read on its own */
#define STREAM     ((size_t)1 << 20)   /* bytes read at a time, in order */
#define DIRECT     ((size_t)16 << 20)  /* the same past the page cache */
#define BATCH      ((size_t)32 << 20)  /* of rows in any order, at most */
#define BATCH_MIN  ((size_t)2 << 20) /* a thread: about what its cache holds */
#define BATCH_ROWS ((size_t)256 << 10) /* of a batch, at most */

/* Named rows on their way from the dump to the output. */
struct row_copy {
    const struct read_cmd *cmd;
    const struct dump_target *t;
    struct gather gather;
    struct emit emit;
    size_t row_nbytes;
    char *buf;
    size_t min_batch, batch; /* rows read at once: at least, and now */
    size_t room;             /* rows that fit 'buf' */
    size_t *rows;            /* [room], of which n wait to be read */
    size_t n;
};

/* How many rows 'nbytes' hold: at least one, and at most 'max'. */
static size_t
rows_in(size_t nbytes, size_t row_nbytes, size_t max)
{
    return smaller(larger(nbytes / row_nbytes, 1), max);
}

/* Nothing is read for --index, where a row that the metadata claim may be of
 * any size. */
static int
copy_open(struct row_copy *c, const struct read_cmd *cmd,
          const struct dump_target *t, size_t n_rows, struct err *err)
{
    *c = (struct row_copy){ .cmd = cmd,
                            .t = t,
                            .row_nbytes = t->dir.saev.row_nbytes };
    if (cmd->index)
        return emit_open(&c->emit, cmd, t, n_rows, err);
    c->room = smaller(rows_in(BATCH, c->row_nbytes, BATCH_ROWS), n_rows);
    c->buf = mem_big(c->room, c->row_nbytes, "a batch of rows", err);
    if (!c->buf ||
        gather_open(&c->gather, t, cmd->n_threads, cmd->direct, err) < 0)
        return -1;
    c->rows = xcalloc(c->room, sizeof(*c->rows));
    c->min_batch = rows_in(BATCH_MIN * (size_t)c->gather.n_threads,
                           c->row_nbytes, c->room);
    c->batch = c->min_batch;
    return emit_open(&c->emit, cmd, t, n_rows, err);
}

static void
copy_close(struct row_copy *c)
{
    emit_close(&c->emit);
    gather_close(&c->gather);
    free(c->rows);
    mem_big_free(c->buf, c->room, c->row_nbytes);
}

/*
 * Reads and writes the rows that wait.  The more of them are sorted, the
 * nearer are neighbours on a disk; in the page cache that means nothing, and
 * few of them stay in the CPU's.
 */
static int
copy_waiting(struct row_copy *c, struct err *err)
{
    size_t n = c->n;

    c->n = 0;
    if (n == 0)
        return 0;
    c->gather.missed = false;
    if (gather_rows(&c->gather, c->rows, n, c->buf, err) < 0)
        return -1;
    c->batch = c->gather.missed ? smaller(2 * c->batch, c->room) : c->min_batch;
    return emit_rows(&c->emit, c->buf, n, err);
}

/* Rows first .. first + n - 1 at once: runs that need no change by the
 * kernel's own copy. */
static int
copy_long_range(struct row_copy *c, size_t first, size_t n, struct err *err)
{
    bool by_kernel = c->cmd->dtype == DT_F32 && !c->cmd->direct &&
                     gather_run(c->t, first) * c->row_nbytes >= COPY_MIN;
    size_t most =
        rows_in(c->cmd->direct ? DIRECT : STREAM, c->row_nbytes, c->room);

    c->gather.sequential = true;
    for (size_t k; n > 0; n -= k, first += k) {
        struct saev_place at = target_at(c->t, first);
        struct str path = { 0 };
        int fd, rc = -1;

        k = smaller(n, by_kernel ? gather_run(c->t, first) : most);
        if (by_kernel) {
            saevdir_shard_path(&c->t->dir, at.shard, &path);
            fd = gather_fd(&c->gather, at.shard, err);
            if (fd >= 0)
                rc = emit_copy(&c->emit, fd, path.s, at.offset, k, err);
            str_free(&path);
        } else if (gather_range(&c->gather, first, k, c->buf, err) == 0) {
            rc = emit_rows(&c->emit, c->buf, k, err);
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Rows first .. first + n - 1 come next in the answer. */
static int
copy_range(struct row_copy *c, size_t first, size_t n, struct err *err)
{
    if (!c->cmd->index && n * c->row_nbytes >= RANGE_MIN)
        return copy_waiting(c, err) < 0 ? -1
                                        : copy_long_range(c, first, n, err);
    for (size_t row = first; row < first + n; row++) {
        if (c->cmd->index) {
            if (emit_place(&c->emit, row, err) < 0)
                return -1;
            continue;
        }
        c->rows[c->n++] = row;
        if (c->n == c->batch && copy_waiting(c, err) < 0)
            return -1;
    }
    return 0;
}

static int
copy_list(const struct read_cmd *cmd, const struct dump_target *t,
          struct err *err)
{
    struct row_list l;
    struct row_copy c = { 0 };
    struct index_range r;
    int rc = -1;

    if (list_open(&l, t, cmd->args + 1, cmd->n_args - 1, cmd->rows, err) < 0)
        return -1;
    if (copy_open(&c, cmd, t, l.n_rows, err) == 0)
        while ((rc = list_next(&l, &r, err)) > 0)
            if (copy_range(&c, r.first, r.last - r.first + 1, err) < 0) {
                rc = -1;
                break;
            }
    if (rc == 0 && (rc = copy_waiting(&c, err)) == 0)
        rc = emit_end(&c.emit, err);
    copy_close(&c);
    list_close(&l);
    return rc;
}

static int
copy_sample(struct read_cmd *cmd, const struct dump_target *t, struct err *err)
{
    struct row_copy c = { 0 };
    struct perm_item *items = sample_rows(cmd, t, err);
    int rc = items ? copy_open(&c, cmd, t, cmd->sample, err) : -1;

    for (size_t i = 0; i < cmd->sample && rc == 0; i++)
        rc = copy_range(&c, items[i].at, 1, err);
    if (rc == 0 && (rc = copy_waiting(&c, err)) == 0)
        rc = emit_end(&c.emit, err);
    copy_close(&c);
    free(items);
    return rc;
}

int
rows_main(struct read_cmd *cmd, struct err *err)
{
    struct dump_target t;
    bool random = cmd->shuffle || cmd->window || cmd->sample;
    int rc;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "a DUMP is missing");
    if (cmd->json && !cmd->index)
        return err_set(err, TU_USAGE, "--json of rows needs --index");
    if (random && (cmd->n_args > 1 || cmd->rows))
        return err_set(err, TU_USAGE,
                       "--shuffle, --window and --sample take all rows: no "
                       "INDEX or --rows");
    if (target_open(&t, cmd, cmd->args[0], err) < 0)
        return -1;
    if (cmd->sample)
        rc = copy_sample(cmd, &t, err);
    else if (random)
        rc = shuffle_main(cmd, &t, err);
    else
        rc = copy_list(cmd, &t, err);
    target_close(&t);
    return rc;
}
