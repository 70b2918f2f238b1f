/* SPDX-License-Identifier: ISC */
/* The default verb: rows of a view, in the order that was asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/emit.h"
#include "cmd/saev-read/gather.h"
#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"
#include "core/tool.h"
#include "core/tty.h"

#define COPY_MIN   ((size_t)256 << 10) /* a run worth a copy by the kernel */
#define RANGE_MIN  ((size_t)1 << 20)   /* a range read on its own */
#define STREAM     ((size_t)1 << 20)   /* bytes read at a time, in order */
#define DIRECT     ((size_t)16 << 20)  /* the same with O_DIRECT */
#define BATCH      ((size_t)32 << 20)  /* of rows in any order, at most */
#define BATCH_ROWS ((size_t)256 << 10) /* of a batch, at most */
#define KEYS       1024

/* Named rows on their way from the dump to the output. */
struct row_copy {
    const struct read_cmd *cmd;
    const struct dump_target *t;
    struct gather gather;
    struct emit emit;
    size_t row_nbytes;
    char *buf;
    size_t room;  /* rows that fit 'buf': the more, the fewer seeks */
    size_t *rows; /* [room], of which n wait to be read */
    size_t n;
};

/* How many rows 'nbytes' hold: at least one, and at most 'max'. */
static size_t
rows_in(size_t nbytes, size_t row_nbytes, size_t max)
{
    return smaller(larger(nbytes / row_nbytes, 1), max);
}

/* Reads and writes the rows that wait. */
static int
copy_waiting(struct row_copy *c, struct err *err)
{
    size_t n = c->n;

    c->n = 0;
    if (n == 0)
        return 0;
    return gather_rows(&c->gather, c->rows, n, c->buf, err) < 0
               ? -1
               : emit_rows(&c->emit, c->buf, n, err);
}

/* Rows first .. first + n - 1 come next in the answer.  A long range is read on
 * its own, and runs that need no change are the kernel's to copy. */
static int
copy_range(struct row_copy *c, size_t first, size_t n, struct err *err)
{
    size_t end = first + n, most;
    bool by_kernel;

    if (c->cmd->index || n * c->row_nbytes < RANGE_MIN) {
        for (size_t row = first; row < end; row++) {
            if (c->cmd->index) {
                if (emit_place(&c->emit, row, err) < 0)
                    return -1;
                continue;
            }
            c->rows[c->n++] = row;
            if (c->n == c->room && copy_waiting(c, err) < 0)
                return -1;
        }
        return 0;
    }
    if (copy_waiting(c, err) < 0)
        return -1;
    by_kernel = c->cmd->dtype == DT_F32 && !c->cmd->direct &&
                gather_run(c->t, first) * c->row_nbytes >= COPY_MIN;
    most = rows_in(c->cmd->direct ? DIRECT : STREAM, c->row_nbytes, c->room);
    c->gather.sequential = true;
    for (size_t k; first < end; first += k) {
        struct saev_place at = target_at(c->t, first);
        struct str path = { 0 };
        int fd, rc = -1;

        k = smaller(end - first, by_kernel ? gather_run(c->t, first) : most);
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

static int
by_row(const void *a, const void *b)
{
    uint64_t x = ((const struct perm_item *)a)->at;
    uint64_t y = ((const struct perm_item *)b)->at;

    return (x > y) - (x < y);
}

/*
 * --sample: the rows that come first in the order of --shuffle: items whose
 * 'at' is a row, in the dump's order or, with --shuffle, in that one; NULL with
 * 'err' set.  Only keys up to a bound are kept, which a few more than K rows do
 * not exceed.
 */
static struct perm_item *
sample_rows(const struct read_cmd *cmd, const struct dump_target *t,
            struct err *err)
{
    struct perm_item *items = NULL;
    size_t k = cmd->sample, n = 0, cap = 0;
    uint64_t bound, keys[KEYS];
    double p;

    if (k > t->n_rows) {
        err_set(err, EX_DATAERR, "%s: --sample %zu, but %zu row%s", t->dir.path,
                k, t->n_rows, plural(t->n_rows));
        return NULL;
    }
    /* at least K keys do not exceed it, but for a chance of 1e-15 */
    p = ((double)k + 8 * sqrt((double)k) + 32) / (double)t->n_rows;
    bound = p < 1 ? (uint64_t)ldexp(p, 64) : UINT64_MAX;
    for (; n < k; bound = bound >> 63 ? UINT64_MAX : 2 * bound) {
        n = 0;
        for (size_t i = 0, some; i < t->n_rows; i += some) {
            some = smaller(t->n_rows - i, KEYS);
            perm_keys(&cmd->perm, i, some, keys);
            for (size_t j = 0; j < some; j++) {
                if (keys[j] > bound)
                    continue;
                if (n == cap)
                    items = xgrow(items, n, &cap, sizeof(*items));
                items[n++] = (struct perm_item){ keys[j], i + j };
            }
        }
    }
    perm_sort(&cmd->perm, items, n, NULL, NULL, NULL);
    if (!cmd->shuffle)
        qsort(items, k, sizeof(*items), by_row);
    return items;
}

/* The rows that the command line names, or of a sample.  Nothing is read for
 * --index, where a row that the metadata claim may be of any size. */
static int
copy_rows(struct read_cmd *cmd, const struct dump_target *t, struct err *err)
{
    struct row_copy c = { .cmd = cmd,
                          .t = t,
                          .row_nbytes = t->dir.saev.row_nbytes };
    struct row_list list = { 0 };
    struct perm_item *sample = NULL;
    size_t n_rows = cmd->sample;
    int rc = -1;

    if (cmd->sample) {
        sample = sample_rows(cmd, t, err);
        if (!sample)
            return -1;
    } else if (list_open(&list, t, cmd->args + 1, cmd->n_args - 1, cmd->rows,
                         err) < 0) {
        list_close(&list);
        return -1;
    } else {
        n_rows = list.n_rows;
    }
    if (!cmd->index) {
        c.room = smaller(rows_in(BATCH, c.row_nbytes, BATCH_ROWS), n_rows);
        c.buf = mem_big(c.room, c.row_nbytes, "a batch of rows", err);
        if (!c.buf ||
            gather_open(&c.gather, t, cmd->n_threads, cmd->direct, err) < 0)
            goto out;
        c.rows = xcalloc(c.room, sizeof(*c.rows));
    }
    rc = emit_open(&c.emit, cmd, t, n_rows, err);
    for (size_t i = 0; i < cmd->sample && rc == 0; i++)
        rc = copy_range(&c, sample[i].at, 1, err);
    for (size_t i = 0; i < list.n_ranges && rc == 0; i++)
        rc = copy_range(&c, list.ranges[i].first,
                        list.ranges[i].last - list.ranges[i].first + 1, err);
    if (rc == 0 && (rc = copy_waiting(&c, err)) == 0)
        rc = emit_end(&c.emit, err);
out:
    emit_close(&c.emit);
    gather_close(&c.gather);
    free(c.rows);
    mem_big_free(c.buf, c.room, c.row_nbytes);
    free(sample);
    list_close(&list);
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
    if (random && cmd->n_args > 1)
        return err_set(err, TU_USAGE,
                       "--shuffle, --window and --sample take all rows, or "
                       "those of --rows: no INDEX");
    if (!random && (cmd->n_args > 1 || cmd->rows) &&
        saev_mask_given(&cmd->mask))
        return err_set(err, TU_USAGE,
                       "--skip-ids, --skip-positions and --max-norm are not "
                       "for an INDEX, nor for --rows without --shuffle, "
                       "--window or --sample");
    if (target_open(&t, cmd, cmd->args[0], err) < 0)
        return -1;
    if (cmd->verbose && t.kept)
        tool_say("%s: %zu of %zu rows count", t.dir.path, t.n_rows,
                 t.kept->n_rows);
    if (!cmd->layer_given && !cmd->index && cmd->n_args == 1 && !cmd->rows)
        saevdir_warn_layers(&t.dir, "--layer N; all of them: --layer all");
    rc = cmd->sample || !random ? copy_rows(cmd, &t, err)
                                : shuffle_main(cmd, &t, err);
    target_close(&t);
    return rc;
}
