#include "cmd/saev-read/deep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/saev-read/cmd.h"
#include "core/format/saevdir.h"
#include "core/hash.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"
#include "core/tty.h"

#define PIECE        ((size_t)256 << 10) /* of a read: stays in the cache */
#define SHARDS_AHEAD 8                   /* for each thread, between reports */

/* What is to be known of a shard, and what was found. */
struct scan {
    const struct saevdir_file *file;
    size_t data_nbytes;   /* of images; behind them zeros are expected */
    bool pads;            /* what is behind them is to be judged */
    const char *expected; /* from the manifest; NULL: not there */
    size_t n_nan, n_inf, n_zero_imgs;
    size_t first_bad, first_zero; /* images of the shard */
    size_t pad_at;                /* byte that should be zero; SIZE_MAX: none */
    bool img_zero;                /* of the image that is read now */
    char hex[HASH_MAX_HEX];
    int status;      /* why it could not be read; 0 */
    char *status_of; /* and the line */
};

struct deep {
    struct dump_check *c;
    struct scan *scans; /* [n] */
    uint8_t **pieces;   /* [threads] */
};

typedef uint32_t words __attribute__((vector_size(16)));

#define EXPONENT 0x7f800000u

/* One number's bits as they stand in a file. */
static uint32_t
as_stored(uint32_t bits)
{
    uint32_t stored;

    put_le32(&stored, bits);
    return stored;
}

static words
words_at(const uint8_t *p)
{
    words w;

    memcpy(&w, p, sizeof(w));
    return w;
}

static bool
any_of(words w)
{
    return w[0] | w[1] | w[2] | w[3];
}

/* Looks at numbers that lie together: is one not zero, not finite? */
static void
look(const uint8_t *p, size_t nbytes, bool *not_zero, bool *not_finite)
{
    const uint32_t exponent = as_stored(EXPONENT);
    words bits[2] = { { 0 } }, bad[2] = { { 0 } };
    size_t i = 0;
    uint32_t rest = 0, rest_bad = 0;

    for (; i + 2 * sizeof(words) <= nbytes; i += 2 * sizeof(words))
        for (size_t k = 0; k < 2; k++) {
            words w = words_at(p + i + k * sizeof(words));

            bits[k] |= w;
            bad[k] |= (words)((w & exponent) == exponent);
        }
    for (; i < nbytes; i += 4) {
        uint32_t w;

        memcpy(&w, p + i, 4);
        rest |= w;
        rest_bad |= (w & exponent) == exponent;
    }
    *not_zero = rest || any_of(bits[0] | bits[1]);
    *not_finite = rest_bad || any_of(bad[0] | bad[1]);
}

/* A piece of the images, cut where one ends. */
static void
scan_images(struct scan *s, const uint8_t *p, size_t at, size_t nbytes,
            size_t img_nbytes)
{
    for (size_t n; nbytes > 0; nbytes -= n, p += n, at += n) {
        size_t left = img_nbytes - at % img_nbytes;
        bool not_zero, not_finite;

        if (at % img_nbytes == 0)
            s->img_zero = true;
        n = nbytes < left ? nbytes : left;
        look(p, n, &not_zero, &not_finite);
        s->img_zero &= !not_zero;
        if (not_finite) {
            if (s->n_nan + s->n_inf == 0)
                s->first_bad = at / img_nbytes;
            for (size_t i = 0; i < n; i += 4) {
                uint32_t w = le32(p + i);

                if ((w & EXPONENT) != EXPONENT)
                    continue;
                if (w & 0x7fffffu)
                    s->n_nan++;
                else
                    s->n_inf++;
            }
        }
        if (n == left && s->img_zero && s->n_zero_imgs++ == 0)
            s->first_zero = at / img_nbytes;
    }
}

static void
scan_padding(struct scan *s, const uint8_t *p, size_t at, size_t nbytes)
{
    if (!s->pads || s->pad_at != SIZE_MAX)
        return;
    for (size_t i = 0; i < nbytes; i++)
        if (p[i]) {
            s->pad_at = at + i;
            return;
        }
}

static int
scan_pieces(const struct deep *d, struct scan *s, int fd, const char *path,
            uint8_t *buf, struct err *err)
{
    size_t img_nbytes = d->c->dir.saev.img_nbytes;
    struct hash *hash = s->expected ? hash_new(HASH_XXH3) : NULL;
    int rc = 0;

    for (size_t at = 0, n; at < s->file->nbytes && rc == 0; at += n) {
        size_t data = at < s->data_nbytes ? s->data_nbytes - at : 0;

        n = s->file->nbytes - at < PIECE ? s->file->nbytes - at : PIECE;
        if (!hash && !s->pads && data == 0)
            break; /* nothing is asked of the rest */
        if (sig_stop()) {
            rc = sig_stopped("run it again", err);
            break;
        }
        data = data < n ? data : n;
        rc = file_pread(fd, path, buf, n, at, err);
        if (rc < 0)
            break;
        scan_images(s, buf, at, data, img_nbytes);
        scan_padding(s, buf + data, at + data, n - data);
        if (hash)
            hash_add(hash, buf, n);
    }
    if (hash)
        hash_hex(hash, s->hex);
    hash_free(hash);
    return rc;
}

static void
scan_some(void *ctx, size_t begin, size_t end, int thread)
{
    struct deep *d = ctx;
    struct str path = { 0 };
    struct err err;

    for (size_t i = begin; i < end; i++) {
        struct scan *s = &d->scans[i];
        int fd = saevdir_shard(&d->c->dir, s->file->shard, &err);
        int rc = -1;

        saevdir_shard_path(&d->c->dir, s->file->shard, &path);
        if (fd >= 0) {
            rc = scan_pieces(d, s, fd, path.s, d->pieces[thread], &err);
            close(fd);
        }
        if (rc < 0) {
            s->status = err.status;
            s->status_of = xstrdup(err.what);
        }
    }
    str_free(&path);
}

/* The digest that the manifest has for a shard, or NULL. */
static const char *
digest_of(const struct dump_check *c, size_t shard)
{
    size_t lo = 0, hi = c->manifest.n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (c->manifest.entries[mid].shard < shard)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->manifest.n && c->manifest.entries[lo].shard == shard
               ? c->manifest.entries[lo].hex
               : NULL;
}

/* What is asked of a file: whole images of it, even if it is too short. */
static struct scan
scan_of(const struct dump_check *c, const struct saevdir_file *f)
{
    const struct saev *s = &c->dir.saev;
    struct scan scan = { .file = f, .pad_at = SIZE_MAX };
    size_t nbytes = f->shard < s->n_shards ? saev_shard_nbytes(s, f->shard) : 0;

    if (nbytes > f->nbytes)
        nbytes = f->nbytes - f->nbytes % s->img_nbytes;
    scan.data_nbytes = nbytes;
    scan.pads = right_size(&c->dir, f);
    scan.expected = digest_of(c, f->shard);
    return scan;
}

/* Images are told by their number in the dump. */
static void
report(struct dump_check *c, const struct scan *s)
{
    size_t shard = s->file->shard;
    size_t first = shard * c->dir.saev.shard_imgs;
    size_t n_imgs = s->data_nbytes / c->dir.saev.img_nbytes;

    if (s->n_nan || s->n_inf)
        shard_problem(c, shard,
                      "%zu NaN, %zu infinite (the first in image %zu)",
                      s->n_nan, s->n_inf, first + s->first_bad);
    if (s->n_zero_imgs && s->n_zero_imgs == n_imgs)
        shard_problem(c, shard, "all its images are zeros, as in a hole");
    else if (s->n_zero_imgs)
        shard_problem(
            c, shard,
            "%zu of %zu images are zeros, as in a hole (the first is image %zu)",
            s->n_zero_imgs, n_imgs, first + s->first_zero);
    if (s->pad_at != SIZE_MAX)
        shard_problem(c, shard, "padding is not zero at byte %zu", s->pad_at);
    if (s->expected && strcmp(s->expected, s->hex) != 0)
        shard_problem(c, shard, "has the checksum %s (expected %s)", s->hex,
                      s->expected);
}

/* A stop wins: what was not read is still to be judged.  What could not be
 * read is told, too. */
static int
scan_window(struct deep *d, size_t first, size_t n, struct err *err)
{
    struct err unread = { 0 };
    bool stopped = false;

    for (size_t i = 0; i < n; i++)
        d->scans[i] = scan_of(d->c, &d->c->dir.files[first + i]);
    par_for(d->c->cmd->par, n, 1, scan_some, d);
    for (size_t i = 0; i < n; i++) {
        struct scan *s = &d->scans[i];

        if (s->status == 0) {
            report(d->c, s);
            d->c->n_read++;
            d->c->nbytes_read += s->file->nbytes;
        } else {
            /* A file that changed under us is a problem; one that cannot be
             * read leaves the question open, and the first of them says why. */
            if (s->status == EX_DATAERR)
                problem(d->c, "%s", short_of(d->c, s->status_of));
            else if (s->status != EX_TEMPFAIL && !unread.status)
                err_set(&unread, s->status, "%s", s->status_of);
            stopped |= s->status == EX_TEMPFAIL;
        }
        free(s->status_of);
    }
    if (stopped && unread.status)
        problem(d->c, "%s", short_of(d->c, unread.what));
    if (stopped)
        return sig_stopped("run it again", err);
    if (!unread.status)
        return 0;
    *err = unread;
    return -1;
}

static int
open_pieces(struct deep *d, int n_threads, struct err *err)
{
    d->pieces = xcalloc((size_t)n_threads, sizeof(*d->pieces));
    for (int i = 0; i < n_threads; i++) {
        d->pieces[i] = mem_try(PIECE, 1, "a buffer", err);
        if (!d->pieces[i])
            return -1;
    }
    return 0;
}

/* Keeps the files of this part; what is behind the last shard belongs to the
 * last one.  Files that are none are left out: they have been told. */
static size_t
take_part(struct saevdir *dir, const struct read_cmd *cmd, uint64_t *nbytes)
{
    size_t begin = saev_part_begin(&dir->saev, cmd->part, cmd->n_parts);
    size_t end = saev_part_begin(&dir->saev, cmd->part + 1, cmd->n_parts);
    size_t n = 0;

    if (cmd->part + 1 == cmd->n_parts)
        end = SIZE_MAX;
    for (size_t i = 0; i < dir->n_there; i++) {
        const struct saevdir_file *f = &dir->files[i];

        if (f->nbytes == SIZE_MAX || f->shard < begin || f->shard >= end)
            continue;
        *nbytes += f->nbytes;
        dir->files[n++] = *f;
    }
    return dir->n_there = n;
}

int
check_deep(struct dump_check *c, struct err *err)
{
    int n_threads = par_threads(c->cmd->par);
    size_t window = SHARDS_AHEAD * (size_t)n_threads, n;
    struct deep d = { .c = c };
    struct progress progress = { .what = "verify",
                                 .unit = "B",
                                 .quiet = c->cmd->quiet };
    uint64_t done = 0;
    int rc = open_pieces(&d, n_threads, err);

    n = c->n_part = take_part(&c->dir, c->cmd, &progress.total);
    d.scans = xcalloc(window, sizeof(*d.scans));
    progress_start(&progress);
    for (size_t i = 0, k; i < n && rc == 0; i += k) {
        k = n - i < window ? n - i : window;
        rc = scan_window(&d, i, k, err);
        for (size_t j = i; j < i + k; j++)
            done += c->dir.files[j].nbytes;
        progress_at(&progress, done);
    }
    end_run(c);
    progress_end(&progress);
    for (int i = 0; i < n_threads; i++)
        free(d.pieces[i]);
    free(d.pieces);
    free(d.scans);
    return rc;
}

/* Whole images in a hole from 'at' on, which lies before 'end': the first of
 * them and their number. */
static size_t
imgs_in_hole(int fd, size_t at, size_t end, size_t img_nbytes, size_t *first)
{
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    size_t to = data < 0 || (size_t)data > end ? end : (size_t)data;

    *first = (at + img_nbytes - 1) / img_nbytes;
    return to / img_nbytes > *first ? to / img_nbytes - *first : 0;
}

static void
find_holes(struct dump_check *c, int fd, size_t shard)
{
    const struct saev *s = &c->dir.saev;
    size_t end = saev_shard_nbytes(s, shard), n = 0, n_first = 0, first = 0;

    for (size_t at = 0; at < end;) {
        off_t hole = lseek(fd, (off_t)at, SEEK_HOLE), data;
        size_t from;

        if (hole < 0 || (size_t)hole >= end)
            break;
        n += imgs_in_hole(fd, (size_t)hole, end, s->img_nbytes, &from);
        if (n && n_first == 0) {
            n_first = n;
            first = from;
        }
        data = lseek(fd, hole, SEEK_DATA);
        at = data < 0 ? end : (size_t)data;
    }
    if (n && n == saev_shard_imgs(s, shard))
        shard_problem(c, shard, "all its images are a hole in the file");
    else if (n > n_first)
        shard_problem(c, shard,
                      "%zu of %zu images are holes in the file (the first is "
                      "image %zu)",
                      n, saev_shard_imgs(s, shard),
                      shard * s->shard_imgs + first);
    else if (n)
        shard_problem(c, shard, "images %zu .. %zu are a hole in the file",
                      shard * s->shard_imgs + first,
                      shard * s->shard_imgs + first + n - 1);
}

int
check_holes(struct dump_check *c, struct err *err)
{
    const struct saevdir *dir = &c->dir;

    for (size_t i = 0; i < dir->n_there; i++) {
        const struct saevdir_file *f = &dir->files[i];
        int fd;

        if (f->shard >= dir->saev.n_shards || !right_size(dir, f))
            continue;
        fd = saevdir_shard(dir, f->shard, err);
        if (fd < 0)
            return -1;
        find_holes(c, fd, f->shard);
        close(fd);
    }
    end_run(c);
    return 0;
}
