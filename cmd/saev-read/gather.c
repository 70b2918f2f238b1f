/* SPDX-License-Identifier: ISC */
#include "cmd/saev-read/gather.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/map.h"
#include "core/mem.h"

#define MAX_WANTS ((size_t)64 << 10) /* rows sorted at a time */
#define RADIX     256
#define RANGE_PIECE \
    ((size_t)1 << 20)          /* bytes that one thread reads at a time */
#define SPAN ((size_t)1 << 20) /* bytes of a read, at most */
/*
 * A gap that takes less time to read than to seek.  A cluster's file system
 * that gives 796 MiB/s in order and 22.9 MiB/s by 4 KiB at random takes 166 us
 * to begin a read, in which it reads 135 KiB.
 */
#define MAX_GAP        ((size_t)128 << 10)
#define MAX_GAP_CACHED ((size_t)2 << 10) /* where a gap costs a copy alone */
#define ALIGN          ((size_t)4096)    /* of O_DIRECT */
#define SCRATCH        (SPAN + 2 * ALIGN)
#define MAX_THREADS    16

/* A row that is wanted, and its index in the answer. */
struct want {
    size_t row, at;
};

/* Bytes of a shard, and where they go. */
struct piece {
    size_t shard, offset, nbytes;
    void *to;
};

/* Pieces that threads read at the same time. */
struct gather_job {
    struct gather *g;
    const struct piece *p;
    struct err errs[MAX_THREADS]; /* one a thread */
    atomic_bool failed;
};

int
gather_open(struct gather *g, const struct dump_target *t, int n_threads,
            bool direct, struct err *err)
{
    int n = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;

    *g = (struct gather){ .t = t,
                          .row_nbytes = t->dir.saev.row_nbytes,
                          .n_threads = n,
                          .direct = direct };
    for (size_t i = 0; i < GATHER_OPEN; i++)
        g->files[i].fd = -1;
    g->scratch = mem_big((size_t)n, SCRATCH, "a buffer", err);
    if (!g->scratch || par_open(&g->par, n, err) < 0) {
        gather_close(g);
        return -1;
    }
    g->wants = xcalloc(2 * MAX_WANTS, sizeof(*g->wants));
    g->pieces = xcalloc(MAX_WANTS, sizeof(*g->pieces));
    return 0;
}

void
gather_close(struct gather *g)
{
    if (!g->t)
        return;
    par_close(g->par);
    for (size_t i = 0; i < GATHER_OPEN; i++)
        if (g->files[i].fd >= 0)
            close(g->files[i].fd);
    mem_big_free(g->scratch, (size_t)g->n_threads, SCRATCH);
    free(g->wants);
    free(g->pieces);
    *g = (struct gather){ 0 };
}

int
gather_fd(struct gather *g, size_t shard, struct err *err)
{
    struct gather_file *f = &g->files[shard % GATHER_OPEN];

    if (f->fd >= 0 && f->shard == shard)
        return f->fd;
    if (f->fd >= 0)
        close(f->fd);
    f->shard = shard;
    f->fd = saevdir_shard(&g->t->dir, shard, err);
    /* file systems without O_DIRECT refuse it here or at the first read */
    if (f->fd >= 0 && g->direct)
        file_direct(f->fd);
    else if (f->fd >= 0 && g->sequential)
        file_in_order(f->fd);
    return f->fd;
}

/* The open file of a piece. */
static int
fd_of(const struct gather *g, const struct piece *p)
{
    return g->files[p->shard % GATHER_OPEN].fd;
}

static int
read_buffered(const struct gather *g, const struct piece *p, size_t offset,
              size_t nbytes, void *to, struct err *err)
{
    struct str path = { 0 };
    int rc;

    saevdir_shard_path(&g->t->dir, p->shard, &path);
    rc = file_pread(fd_of(g, p), path.s, to, nbytes, offset, err);
    str_free(&path);
    return rc;
}

/*
 * 'nbytes' at 'offset' into the scratch, whole blocks around them; *at is where
 * they begin there.  A short read is fine where the file ends.
 */
static int
read_direct(const struct gather *g, const struct piece *p, size_t offset,
            size_t nbytes, char *scratch, char **at, struct err *err)
{
    size_t begin = offset / ALIGN * ALIGN;
    size_t end = (offset + nbytes + ALIGN - 1) / ALIGN * ALIGN;
    size_t done = 0;

    *at = scratch + (offset - begin);
    while (done < offset - begin + nbytes) {
        ssize_t n = pread(fd_of(g, p), scratch + done, end - begin - done,
                          (off_t)(begin + done));

        if (n < 0 && errno == EINTR)
            continue;
        done += n > 0 ? (size_t)n : 0;
        if (n > 0 && done % ALIGN == 0)
            continue;
        if (done >= offset - begin + nbytes)
            break;
        /* no O_DIRECT here, or no such bytes: buffered, with its message */
        fcntl(fd_of(g, p), F_SETFL, 0);
        return read_buffered(g, p, offset, nbytes, *at, err);
    }
    return 0;
}

/* Copies the pieces' bytes from 'from', where those of the first begin. */
static void
scatter(const struct piece *p, size_t n, const char *from)
{
    for (size_t i = 0; i < n; i++)
        memcpy(p[i].to, from + (p[i].offset - p[0].offset), p[i].nbytes);
}

/* Are n pieces adjacent, in the file and in memory? */
static bool
is_contiguous(const struct piece *p, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (p[i - 1].offset + p[i - 1].nbytes != p[i].offset ||
            (char *)p[i - 1].to + p[i - 1].nbytes != p[i].to)
            return false;
    return true;
}

/* From the first of n pieces to the end of the last, which reaches farthest. */
static size_t
span_of(const struct piece *p, size_t n)
{
    return p[n - 1].offset + p[n - 1].nbytes - p[0].offset;
}

/* How many of n pieces are in one shard and in one SPAN, with gaps of at most
 * 'max_gap' between them. */
static size_t
group(const struct piece *p, size_t n, size_t max_gap)
{
    size_t i = 1;

    while (i < n && p[i].shard == p[0].shard &&
           p[i].offset <= p[i - 1].offset + p[i - 1].nbytes + max_gap &&
           span_of(p, i + 1) <= SPAN)
        i++;
    return i;
}

/* Copies pieces from the page cache, until one is not there; returns how many
 * were. */
static size_t
read_cached(const struct gather *g, const struct piece *p, size_t n,
            char *scratch)
{
    size_t done = 0;

    for (size_t k; done < n; done += k) {
        const struct piece *q = p + done;
        size_t nbytes;
        bool one;

        k = group(q, n - done, MAX_GAP_CACHED);
        one = is_contiguous(q, k);
        nbytes = span_of(q, k);
        if (pread_cached(fd_of(g, q), one ? q->to : scratch, nbytes,
                         (off_t)q->offset) != (ssize_t)nbytes)
            break;
        if (!one)
            scatter(q, k, scratch);
    }
    return done;
}

/* Reads n pieces of one span.  One alone may be longer than SPAN: with O_DIRECT
 * it comes in parts, as the scratch has room for no more. */
static int
read_span(const struct gather *g, const struct piece *p, size_t n,
          char *scratch, struct err *err)
{
    size_t nbytes = span_of(p, n);
    char *at = scratch;

    if (!g->direct && is_contiguous(p, n))
        return read_buffered(g, p, p->offset, nbytes, p->to, err);
    for (size_t done = 0, part; n == 1 && done < nbytes; done += part) {
        part = smaller(nbytes - done, SPAN);
        if (read_direct(g, p, p->offset + done, part, scratch, &at, err) < 0)
            return -1;
        memcpy((char *)p->to + done, at, part);
    }
    if (n == 1)
        return 0;
    if (g->direct ? read_direct(g, p, p->offset, nbytes, scratch, &at, err) < 0
                  : read_buffered(g, p, p->offset, nbytes, at, err) < 0)
        return -1;
    scatter(p, n, at);
    return 0;
}

static void
read_chunk(void *ctx, size_t begin, size_t end, int thread)
{
    struct gather_job *job = ctx;
    struct gather *g = job->g;
    char *scratch = g->scratch + (size_t)thread * SCRATCH;
    bool asked = g->direct;

    for (size_t n; begin < end; begin += n) {
        const struct piece *p = job->p + begin;
        size_t cached = 0;

        if (atomic_load_explicit(&job->failed, memory_order_relaxed))
            return;
        n = group(p, end - begin, MAX_GAP);
        if (!g->direct)
            cached = read_cached(g, p, n, scratch);
        if (cached == n)
            continue;
        /* what follows may not be cached either: a disk likes a long queue */
        for (size_t i = begin + n, k; !asked && i < end; i += k) {
            const struct piece *q = job->p + i;

            k = group(q, end - i, MAX_GAP);
            file_will_read(fd_of(g, q), (off_t)q->offset, span_of(q, k));
        }
        asked = true;
        if (read_span(g, p + cached, n - cached, scratch, &job->errs[thread]) <
            0)
            atomic_store(&job->failed, true);
    }
}

/* Reads g->pieces, which are in the order of (shard, offset), and none reaches
 * beyond the next one's end; as many at once as their shards have each a place
 * in the table of open files. */
static int
read_pieces(struct gather *g, size_t n, struct err *err)
{
    struct gather_job job = { .g = g, .p = g->pieces };

    for (size_t k; n > 0; n -= k, job.p += k) {
        size_t grain = job.p->nbytes < SPAN ? SPAN / (job.p->nbytes + 1) : 1;

        g->call++;
        for (k = 0; k < n; k++) {
            size_t shard = job.p[k].shard;
            struct gather_file *f = &g->files[shard % GATHER_OPEN];

            if (k > 0 && shard == job.p[k - 1].shard)
                continue;
            if (f->call == g->call)
                break;
            if (gather_fd(g, shard, err) < 0)
                return -1;
            f->call = g->call;
        }
        par_for_thread(g->par, k, grain, read_chunk, &job);
        for (size_t i = 0; atomic_load(&job.failed) && i < MAX_THREADS; i++)
            if (job.errs[i].status) {
                *err = job.errs[i];
                return -1;
            }
    }
    return 0;
}

/* By row, one byte of the numbers at a time; stable.  A view's rows are in the
 * order of the files, so this is by shard and offset. */
static const struct want *
sort_wants(struct want *wants, size_t n)
{
    struct want *a = wants, *b = wants + MAX_WANTS;
    bool sorted = true;
    size_t all = 0;

    for (size_t i = 0; i < n; i++) {
        all |= a[i].row;
        sorted &= i == 0 || a[i - 1].row <= a[i].row;
    }
    for (int shift = 0; !sorted && shift < 64 && all >> shift; shift += 8) {
        size_t at[RADIX] = { 0 }, sum = 0;
        struct want *from = a;

        for (size_t i = 0; i < n; i++)
            at[from[i].row >> shift & (RADIX - 1)]++;
        for (size_t k = 0; k < RADIX; k++) {
            size_t count = at[k];

            at[k] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            b[at[from[i].row >> shift & (RADIX - 1)]++] = from[i];
        a = b;
        b = from;
    }
    return a;
}

int
gather_rows(struct gather *g, const size_t *rows, size_t n, void *to,
            struct err *err)
{
    char *at = to;

    g->sequential = false;
    for (size_t k; n > 0; n -= k, rows += k, at += k * g->row_nbytes) {
        const struct want *sorted;

        k = smaller(n, MAX_WANTS);
        for (size_t i = 0; i < k; i++)
            g->wants[i] = (struct want){ rows[i], i };
        sorted = sort_wants(g->wants, k);
        for (size_t i = 0; i < k; i++) {
            struct saev_place p = target_at(g->t, sorted[i].row);

            g->pieces[i] = (struct piece){ p.shard, p.offset, g->row_nbytes,
                                           at + sorted[i].at * g->row_nbytes };
        }
        if (read_pieces(g, k, err) < 0)
            return -1;
    }
    return 0;
}

size_t
gather_run(const struct dump_target *t, size_t row)
{
    return smaller(saev_view_run(&t->view, t->first + row), t->n_rows - row);
}

int
gather_range(struct gather *g, size_t first, size_t n, void *to,
             struct err *err)
{
    size_t max_rows = larger(RANGE_PIECE / g->row_nbytes, 1);
    char *at = to;
    size_t k = 0;

    g->sequential = true;
    for (size_t run; n > 0; n -= run, first += run, at += run * g->row_nbytes) {
        struct saev_place p = target_at(g->t, first);

        run = smaller(smaller(gather_run(g->t, first), n), max_rows);
        g->pieces[k++] =
            (struct piece){ p.shard, p.offset, run * g->row_nbytes, at };
        if (k == MAX_WANTS || run == n) {
            if (read_pieces(g, k, err) < 0)
                return -1;
            k = 0;
        }
    }
    return 0;
}
