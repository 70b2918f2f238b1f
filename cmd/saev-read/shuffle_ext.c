/* SPDX-License-Identifier: ISC */
/*
 * --shuffle of more rows than --mem holds, in two passes over the disk.
 *
 * Keys are known without the rows, so the number of rows in any range of keys
 * is counted first, and the ranges are cut such that each fits.  Pass 1 reads
 * the rows in blocks as large as --mem and appends each range's rows, with
 * their numbers, to the range's part of one scratch file; pass 2 reads part
 * after part, sorts it and writes it.  As the order of the keys is the order of
 * the rows, where a range ends changes nothing.  Ranges of which --skip leaves
 * out all are not written.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/saev-read/shuffle.h"
#include "core/mem.h"
#include "core/spill.h"
#include "core/str.h"
#include "core/tty.h"

#define MIN_WRITE   ((size_t)64 << 10) /* bytes, on average, of pass 1 */
#define GOOD_WRITE  ((size_t)1 << 20)
#define MIN_RUN     ((size_t)256 << 10) /* to map: a map of less has much else */
#define BUF_NBYTES  ((size_t)1 << 20)   /* of a thread: written at a time */
#define MIN_MEM     ((size_t)1 << 20)
#define MIN_ROWS    16 /* in --mem */
#define CHUNK       4096
#define ALIGN       64
#define BIN_BITS    20 /* at most, of the key: 8 MiB of counts and parts */
#define BINS_A_PART 16 /* at least: parts are filled to 15/16 or so */

struct shuffle_part {
    size_t first, n; /* records of the scratch file */
    size_t filled;
};

struct shuffle_ext {
    struct shuffle *s;
    struct spill spill;
    char *memory; /* what a block, or a part, needs; passes share it */
    size_t memory_nbytes;
    size_t record;     /* bytes: the row's number, the row */
    size_t block_rows; /* of pass 1 */
    size_t part_rows;  /* of pass 2, at most */
    int shift;         /* of a key: its bin */
    uint32_t *part_of; /* [bins] */
    struct shuffle_part *parts;
    size_t n_parts;
    size_t first_part; /* those before are left out */
    size_t skip;       /* rows of that one, in order, that are left out too */
    size_t n_kept;     /* rows of all from there on */
    struct err *errs;  /* [threads] */
    /* pass 1 */
    struct mapped mapped; /* n 0: the rows are read */
    char *rows;           /* [block_rows] */
    uint32_t *where;      /* [block_rows]: the part of each */
    uint32_t *order;      /* [block_rows]: those of part 0, of part 1, ... */
    size_t block_first, block_n;
    size_t *ends; /* [n_parts]: in 'order' */
    char **bufs;  /* [threads][buf_rows records] */
    size_t buf_rows;
    /* pass 2 */
    char *records;
    struct perm_item *items;
    size_t at; /* in the scratch file */
};

#define PASS1_ROW(row_nbytes) ((row_nbytes) + 2 * sizeof(uint32_t))
#define PASS2_ROW(record)     ((record) + sizeof(struct perm_item))

/* Memory with which pass 1 writes 'nbytes' at a time on average: with less,
 * there are more parts. */
static size_t
mem_for(size_t n_rows, size_t record, size_t nbytes)
{
    double row = (double)PASS2_ROW(record);
    double piece = row > (double)nbytes ? row : (double)nbytes;
    double mem = fmax(sqrt((double)n_rows * row * piece), MIN_ROWS * row);

    return larger((size_t)mem, MIN_MEM);
}

/*
 * Cuts the rows into parts.  Memory for a block and for a part: no more than
 * good writes need, as the caches, and the kernel, which clears it, do better
 * with less.
 */
static int
plan(struct shuffle_ext *x, struct err *err)
{
    size_t row_nbytes = x->s->row_nbytes, n = x->s->n, mem = x->s->cmd->mem;
    size_t min, n_bins, room = 0, first = 0;
    struct shuffle_part *p = NULL;
    uint32_t *count;
    uint64_t keys[CHUNK];
    int bits = 4;

    x->record = sizeof(uint64_t) + row_nbytes;
    min = mem_for(n, x->record, MIN_WRITE);
    if (mem < min)
        return err_set(err, TU_USAGE,
                       "--mem: %zu bytes are too few for %zu row%s of %zu: %zu "
                       "will do",
                       mem, n, plural(n), row_nbytes, min);
    x->memory_nbytes = smaller(mem, mem_for(n, x->record, GOOD_WRITE));
    x->part_rows = x->memory_nbytes / PASS2_ROW(x->record);
    x->block_rows = x->memory_nbytes / PASS1_ROW(row_nbytes);
    x->block_rows = smaller(smaller(x->block_rows, UINT32_MAX), n);
    while (bits < BIN_BITS &&
           (size_t)1 << bits < BINS_A_PART * (n / x->part_rows + 1))
        bits++;
    n_bins = (size_t)1 << bits;
    x->shift = 64 - bits;
    x->part_of = xcalloc(n_bins, sizeof(*x->part_of));
    count = xcalloc(n_bins, sizeof(*count));
    for (size_t i = 0, k; i < n; i += k) {
        k = smaller(n - i, CHUNK);
        perm_keys(x->s->perm, i, k, keys);
        for (size_t j = 0; j < k; j++)
            count[keys[j] >> x->shift]++;
    }

    /* neighbouring bins make a part as long as they fit */
    for (size_t b = 0; b < n_bins; b++) {
        if (count[b] > x->part_rows) {
            free(count);
            return err_set(err, TU_USAGE,
                           "--mem: %zu bytes are too few for %zu row%s of %zu",
                           x->memory_nbytes, n, plural(n), row_nbytes);
        }
        if (!p || p->n + count[b] > x->part_rows) {
            if (x->n_parts == room)
                x->parts = xgrow(x->parts, x->n_parts, &room, sizeof(*p));
            p = &x->parts[x->n_parts++];
            *p = (struct shuffle_part){ .first = first };
        }
        x->part_of[b] = (uint32_t)(x->n_parts - 1);
        p->n += count[b];
        first += count[b];
    }
    free(count);

    /* the file begins with the first part of which any row is kept */
    x->skip = x->s->cmd->skip;
    x->n_kept = n;
    while (x->first_part < x->n_parts && x->parts[x->first_part].n <= x->skip) {
        x->skip -= x->parts[x->first_part].n;
        x->n_kept -= x->parts[x->first_part++].n;
    }
    for (size_t i = x->first_part; i < x->n_parts; i++)
        x->parts[i].first -= n - x->n_kept;
    return 0;
}

/* Finds the part of each row of the block. */
static void
find_parts(void *ctx, size_t begin, size_t end)
{
    struct shuffle_ext *x = ctx;
    uint64_t keys[CHUNK];

    for (size_t i = begin, n; i < end; i += n) {
        n = smaller(end - i, CHUNK);
        perm_keys(x->s->perm, x->block_first + i, n, keys);
        for (size_t j = 0; j < n; j++)
            x->where[i + j] = x->part_of[keys[j] >> x->shift];
    }
}

/* A row of the block. */
static const char *
row_at(const struct shuffle_ext *x, size_t at)
{
    if (x->mapped.n)
        return mapped_row(&x->mapped, x->s->t, x->block_first + at);
    return x->rows + at * x->s->row_nbytes;
}

/* Appends the block's rows of parts begin .. end - 1, counted from the first
 * that is not left out, as many as a write takes. */
static void
append_parts(void *ctx, size_t begin, size_t end, int thread)
{
    struct shuffle_ext *x = ctx;
    size_t row_nbytes = x->s->row_nbytes;
    struct err *err = &x->errs[thread];

    for (size_t p = x->first_part + begin; p < x->first_part + end; p++) {
        struct shuffle_part *part = &x->parts[p];

        for (size_t i = p ? x->ends[p - 1] : 0, n;
             i < x->ends[p] && !err->status; i += n) {
            size_t at = (part->first + part->filled) * x->record;
            char *to = x->bufs[thread];

            n = smaller(x->ends[p] - i, x->buf_rows);
            for (size_t k = 0; k < n; k++, to += x->record) {
                uint32_t from = x->order[i + k];
                uint64_t row = x->block_first + from;

                memcpy(to, &row, sizeof(row));
                memcpy(to + sizeof(row), row_at(x, from), row_nbytes);
            }
            spill_write(&x->spill, x->bufs[thread], n * x->record, at, err);
            part->filled += n;
        }
    }
}

static int
first_error(const struct shuffle_ext *x, struct err *err)
{
    for (int i = 0; i < par_threads(x->s->par); i++)
        if (x->errs[i].status) {
            *err = x->errs[i];
            return -1;
        }
    return 0;
}

/* What comes 'nbytes' after 'p', aligned. */
static void *
after(char *p, size_t nbytes)
{
    return p + (nbytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Pass 1: all rows, to their parts of the file. */
static int
write_parts(struct shuffle_ext *x, struct err *err)
{
    struct shuffle *s = x->s;
    int n_threads = par_threads(s->par), rc = 0;
    bool map = s->row_nbytes >= PIECE_MIN && !s->cmd->direct &&
               gather_run(s->t, 0) * s->row_nbytes >= MIN_RUN &&
               mapped_open(&x->mapped, s, SIZE_MAX);
    struct progress progress = { .what = "to scratch",
                                 .unit = "B",
                                 .total = s->n * x->record,
                                 .quiet = s->cmd->quiet };

    x->rows = x->memory;
    x->where = after(x->memory, x->block_rows * s->row_nbytes);
    x->order = x->where + x->block_rows;
    x->ends = xcalloc(x->n_parts, sizeof(*x->ends));
    x->buf_rows = larger(BUF_NBYTES / x->record, 1);
    x->bufs = xcalloc((size_t)n_threads, sizeof(*x->bufs));
    for (int i = 0; i < n_threads; i++)
        x->bufs[i] = xmalloc(x->buf_rows * x->record);
    progress_start(&progress);
    for (; x->block_first < s->n && rc == 0; x->block_first += x->block_n) {
        x->block_n = smaller(s->n - x->block_first, x->block_rows);
        if (!map && s->row_nbytes)
            rc = gather_range(&s->gather, x->block_first, x->block_n, x->rows,
                              err);
        if (rc < 0)
            break;
        par_for(s->par, x->block_n, (size_t)1 << 16, find_parts, x);
        memset(x->ends, 0, x->n_parts * sizeof(*x->ends));
        for (size_t i = 0; i < x->block_n; i++)
            x->ends[x->where[i]]++;
        for (size_t p = 0, sum = 0; p < x->n_parts; p++) {
            size_t n = x->ends[p];

            x->ends[p] = sum;
            sum += n;
        }
        for (size_t i = 0; i < x->block_n; i++)
            x->order[x->ends[x->where[i]]++] = (uint32_t)i;
        par_for_thread(s->par, x->n_parts - x->first_part, 1, append_parts, x);
        if (map)
            mapped_drop(&x->mapped, s->t, x->block_first + x->block_n);
        rc = first_error(x, err);
        progress_at(&progress, (x->block_first + x->block_n) * x->record);
    }
    progress_end(&progress);
    if (rc == 0)
        rc = mapped_check(&x->mapped, s, err);
    mapped_close(&x->mapped);
    for (int i = 0; i < n_threads; i++)
        free(x->bufs[i]);
    free(x->bufs);
    free(x->ends);
    return rc;
}

/* The number of a row that was read back. */
static uint64_t
element(const void *ctx, uint64_t at)
{
    const struct shuffle_ext *x = ctx;
    uint64_t row;

    memcpy(&row, x->records + at * x->record, sizeof(row));
    return row;
}

/* Pass 2: reads some records of a part, and makes their items. */
static void
read_records(void *ctx, size_t begin, size_t end, int thread)
{
    struct shuffle_ext *x = ctx;

    if (x->errs[thread].status)
        return;
    spill_read(&x->spill, x->records + begin * x->record,
               (end - begin) * x->record, (x->at + begin) * x->record,
               &x->errs[thread]);
    for (size_t i = begin; i < end; i++)
        x->items[i] =
            (struct perm_item){ perm_word(x->s->perm, element(x, i), 0), i };
}

int
shuffle_external(struct shuffle *s, struct err *err)
{
    struct shuffle_ext x = { .s = s, .spill = { .fd = -1 } };
    const char *dir = s->cmd->tmpdir ? s->cmd->tmpdir : getenv("TMPDIR");
    struct str how = { 0 };
    int rc = plan(&x, err);

    if (!dir || !*dir)
        dir = "/tmp";
    x.errs = xcalloc((size_t)par_threads(s->par), sizeof(*x.errs));
    if (rc < 0 || x.n_kept == 0)
        goto out;
    rc = -1;
    x.memory = mem_big(x.memory_nbytes + ALIGN, 1, "rows", err);
    if (!x.memory || spill_open(&x.spill, dir, x.n_kept * x.record, err) < 0)
        goto out;
    str_addf(&how, "by way of %s: %zu bytes in %zu part%s", x.spill.dir,
             x.spill.nbytes, x.n_parts - x.first_part,
             plural(x.n_parts - x.first_part));
    shuffle_say(s, how.s);
    rc = write_parts(&x, err);
    x.records = x.memory;
    x.items = after(x.memory, x.part_rows * x.record);
    for (size_t p = x.first_part; p < x.n_parts && rc == 0; p++) {
        size_t n = x.parts[p].n, skip = p == x.first_part ? x.skip : 0;
        struct row_block block = { .rows = x.records,
                                   .stride = x.record,
                                   .offset = sizeof(uint64_t),
                                   .items = x.items + skip,
                                   .n = n - skip,
                                   .element = element,
                                   .ctx = &x };

        x.at = x.parts[p].first;
        par_for_thread(s->par, n, ((size_t)4 << 20) / x.record, read_records,
                       &x);
        rc = first_error(&x, err);
        if (rc < 0)
            break;
        spill_drop(&x.spill, x.at * x.record, n * x.record);
        perm_sort(s->perm, x.items, n, element, &x, s->par);
        rc = block_put(s, &block, err);
    }
out:
    str_free(&how);
    mem_big_free(x.memory, x.memory_nbytes + ALIGN, 1);
    spill_close(&x.spill);
    free(x.errs);
    free(x.part_of);
    free(x.parts);
    return rc;
}
