#include "cmd/saev-read/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core/compat.h"
#include "core/map.h"
#include "core/mem.h"

#define SPAN ((size_t)1 << 20) /* bytes of a read, at most */
/*
 * A gap that takes less time to read than to seek.  A cluster's file system
 * that gives 796 MiB/s in order and 22.9 MiB/s by 4 KiB at random takes 166 us
 * to begin a read, in which it reads 135 KiB.
 */
#define NEAR      ((size_t)128 << 10)
#define NEAR_WARM ((size_t)2 << 10) /* where a gap costs a copy alone */
#define ALIGN     ((size_t)4096)    /* of O_DIRECT */
#define SCRATCH   (SPAN + 2 * ALIGN)
#define MAX_JOBS  16

/* A call of shards_read() as its threads see it. */
struct job {
    struct shards *s;
    const struct piece *p;
    struct err errs[MAX_JOBS]; /* one a thread */
    atomic_bool failed;
};

/* What a thread is at. */
struct reader {
    struct shards *s;
    int fd;
    size_t shard;
    char *scratch; /* [SCRATCH], aligned */
    struct err *err;
};

int
shards_open(struct shards *s, const struct saevdir *dir, int n_threads,
            bool direct, struct err *err)
{
    int n = n_threads < MAX_JOBS ? n_threads : MAX_JOBS;

    *s = (struct shards){ .dir = dir, .direct = direct };
    for (size_t i = 0; i < SHARDS_OPEN; i++)
        s->files[i].fd = -1;
    s->n_scratch = (size_t)n;
    s->scratch = mem_big(s->n_scratch, SCRATCH, "a buffer", err);
    if (!s->scratch || par_open(&s->par, n, err) < 0) {
        shards_close(s);
        return -1;
    }
    return 0;
}

void
shards_close(struct shards *s)
{
    if (!s->dir)
        return;
    par_close(s->par);
    for (size_t i = 0; i < SHARDS_OPEN; i++)
        if (s->files[i].fd >= 0)
            close(s->files[i].fd);
    if (s->scratch)
        mem_big_free(s->scratch, s->n_scratch, SCRATCH);
    *s = (struct shards){ 0 };
}

int
shards_fd(struct shards *s, size_t shard, struct err *err)
{
    struct shard_file *f = &s->files[shard % SHARDS_OPEN];

    if (f->fd >= 0 && f->shard == shard)
        return f->fd;
    if (f->fd >= 0)
        close(f->fd);
    f->shard = shard;
    f->fd = saevdir_shard(s->dir, shard, err);
    /* file systems without O_DIRECT refuse it here or at the first read */
    if (f->fd >= 0 && s->direct)
        fcntl(f->fd, F_SETFL, O_DIRECT);
    else if (f->fd >= 0 && s->sequential)
        posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return f->fd;
}

static int
read_all(struct reader *r, void *to, size_t nbytes, size_t offset)
{
    struct str path = { 0 };
    int rc;

    saevdir_shard_path(r->s->dir, r->shard, &path);
    rc = file_pread(r->fd, path.s, to, nbytes, offset, r->err);
    str_free(&path);
    return rc;
}

/* All of it from the page cache, or nothing: false. */
static bool
read_warm(struct reader *r, void *to, size_t nbytes, size_t offset)
{
    struct iovec v = { to, nbytes };

    return preadv2(r->fd, &v, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)nbytes;
}

/*
 * 'need' bytes at 'offset' into the scratch, whole blocks around them; *at is
 * where they begin there.  A short read is fine where the file ends.
 */
static int
read_direct(struct reader *r, size_t need, size_t offset, char **at)
{
    size_t begin = offset / ALIGN * ALIGN;
    size_t end = (offset + need + ALIGN - 1) / ALIGN * ALIGN;
    size_t done = 0;

    *at = r->scratch + (offset - begin);
    while (done < offset - begin + need) {
        ssize_t n = pread(r->fd, r->scratch + done, end - begin - done,
                          (off_t)(begin + done));

        if (n < 0 && errno == EINTR)
            continue;
        done += n > 0 ? (size_t)n : 0;
        if (n > 0 && done % ALIGN == 0)
            continue;
        if (done >= offset - begin + need)
            break;
        /* no O_DIRECT here, or no such bytes: buffered, with its message */
        fcntl(r->fd, F_SETFL, 0);
        return read_all(r, *at, need, offset);
    }
    return 0;
}

/* The pieces' bytes from 'from', where the first one's begin. */
static void
scatter(const struct piece *p, size_t n, const char *from)
{
    for (size_t i = 0; i < n; i++)
        memcpy(p[i].to, from + (p[i].offset - p[0].offset), p[i].nbytes);
}

/* Are n pieces one, in the file and in memory? */
static bool
is_one(const struct piece *p, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (p[i - 1].offset + p[i - 1].nbytes != p[i].offset ||
            (char *)p[i - 1].to + p[i - 1].nbytes != p[i].to)
            return false;
    return true;
}

/* From the first of n pieces to the end of the last that reaches farthest. */
static size_t
span_of(const struct piece *p, size_t n)
{
    return p[n - 1].offset + p[n - 1].nbytes - p[0].offset;
}

/* How many of n pieces lie in one shard, near each other, and in one SPAN. */
static size_t
group(const struct piece *p, size_t n, size_t near)
{
    size_t i = 1;

    while (i < n && p[i].shard == p[0].shard &&
           p[i].offset <= p[i - 1].offset + p[i - 1].nbytes + near &&
           span_of(p, i + 1) <= SPAN)
        i++;
    return i;
}

/* Pieces from the page cache, until one is not there; returns how many. */
static size_t
take_warm(struct reader *r, const struct piece *p, size_t n)
{
    size_t done = 0;

    for (size_t k; done < n; done += k) {
        const struct piece *q = p + done;
        bool one;

        k = group(q, n - done, NEAR_WARM);
        one = is_one(q, k);
        if (!read_warm(r, one ? q->to : r->scratch, span_of(q, k), q->offset))
            break;
        if (!one)
            scatter(q, k, r->scratch);
    }
    return done;
}

/* A piece longer than SPAN, a part at a time. */
static int
take_long_direct(struct reader *r, const struct piece *p)
{
    char *at;

    for (size_t done = 0, n; done < p->nbytes; done += n) {
        n = p->nbytes - done < SPAN ? p->nbytes - done : SPAN;
        if (read_direct(r, n, p->offset + done, &at) < 0)
            return -1;
        memcpy((char *)p->to + done, at, n);
    }
    return 0;
}

static int
take_span(struct reader *r, const struct piece *p, size_t n)
{
    size_t nbytes = span_of(p, n);
    char *at = r->scratch;

    if (r->s->direct && n == 1)
        return take_long_direct(r, p);
    if (!r->s->direct && is_one(p, n))
        return read_all(r, p->to, nbytes, p->offset);
    if (r->s->direct ? read_direct(r, nbytes, p->offset, &at) < 0
                     : read_all(r, at, nbytes, p->offset) < 0)
        return -1;
    scatter(p, n, at);
    return 0;
}

/* What follows may not be cached either: a disk likes a long queue. */
static void
ask_ahead(const struct shards *s, const struct piece *p, size_t n)
{
    for (size_t i = 0, k; i < n; i += k) {
        k = group(p + i, n - i, NEAR);
        posix_fadvise(s->files[p[i].shard % SHARDS_OPEN].fd, (off_t)p[i].offset,
                      (off_t)span_of(p + i, k), POSIX_FADV_WILLNEED);
    }
}

static void
read_chunk(void *ctx, size_t begin, size_t end, int thread)
{
    struct job *job = ctx;
    struct shards *s = job->s;
    struct reader r = { .s = s,
                        .scratch = s->scratch + (size_t)thread * SCRATCH,
                        .err = &job->errs[thread] };
    bool asked = s->direct;

    for (size_t n; begin < end; begin += n) {
        const struct piece *p = job->p + begin;
        size_t warm = 0;

        if (atomic_load_explicit(&job->failed, memory_order_relaxed))
            return;
        n = group(p, end - begin, NEAR);
        r.shard = p->shard;
        r.fd = s->files[p->shard % SHARDS_OPEN].fd;
        if (!s->direct)
            warm = take_warm(&r, p, n);
        if (warm == n)
            continue;
        atomic_store_explicit(&s->missed, true, memory_order_relaxed);
        if (!asked)
            ask_ahead(s, p + n, end - begin - n);
        asked = true;
        if (take_span(&r, p + warm, n - warm) < 0)
            atomic_store(&job->failed, true);
    }
}

/* Opens what the next pieces need; returns how many can be read at once, as
 * their shards have each a place in the table, or 0 with 'err' set. */
static size_t
open_files(struct shards *s, const struct piece *p, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        struct shard_file *f = &s->files[p[i].shard % SHARDS_OPEN];

        if (i > 0 && p[i].shard == p[i - 1].shard)
            continue;
        if (f->call == s->call)
            return i;
        if (shards_fd(s, p[i].shard, err) < 0)
            return 0;
        f->call = s->call;
    }
    return n;
}

static int
read_opened(struct shards *s, const struct piece *p, size_t n, struct err *err)
{
    struct job job = { .s = s, .p = p };
    size_t grain = p->nbytes < SPAN ? SPAN / (p->nbytes + 1) : 1;

    par_for(s->par, n, grain, read_chunk, &job);
    if (!atomic_load(&job.failed))
        return 0;
    for (size_t i = 0; i < MAX_JOBS; i++)
        if (job.errs[i].status) {
            *err = job.errs[i];
            break;
        }
    return -1;
}

int
shards_read(struct shards *s, const struct piece *p, size_t n, struct err *err)
{
    for (size_t k; n > 0; n -= k, p += k) {
        s->call++;
        k = open_files(s, p, n, err);
        if (k == 0 || read_opened(s, p, k, err) < 0)
            return -1;
    }
    return 0;
}
