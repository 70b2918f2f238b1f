/* SPDX-License-Identifier: ISC */
/* verify: the data of a dump, read once, a shard a thread. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/saev-read/verify.h"
#include "core/hash.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/par.h"
#include "core/sig.h"
#include "core/tty.h"

#define PIECE        ((size_t)256 << 10) /* of a read: stays in the cache */
#define SHARDS_AHEAD 8                   /* for each thread, between reports */

/* What is expected of a shard, and what was found. */
struct scan {
    const struct saevdir_file *file;
    size_t data_nbytes;   /* of images; zeros are expected after them */
    bool padded;          /* the padding is checked */
    const char *expected; /* from the manifest; "": not listed */
    size_t n_nan, n_inf, n_zero_imgs;
    size_t first_bad, first_zero; /* images of the shard */
    size_t pad_at;                /* byte that should be zero; SIZE_MAX: none */
    bool img_zero;                /* of the image that is read now */
    char hex[HASH_MAX_HEX];
    struct err err; /* why it could not be read */
};

struct deep {
    struct dump_check *c;
    struct scan *scans; /* [n] */
    uint8_t **pieces;   /* [threads] */
};

typedef uint32_t words __attribute__((vector_size(16)));

#define EXPONENT 0x7f800000u

static bool
any_of(words w)
{
    return w[0] | w[1] | w[2] | w[3];
}

/* Of adjacent numbers: is one not zero, not finite? */
static void
scan_numbers(const uint8_t *p, size_t nbytes, bool *not_zero, bool *not_finite)
{
    words bits[2] = { { 0 } }, bad[2] = { { 0 } };
    size_t i = 0;
    uint32_t rest = 0, rest_bad = 0, exponent;

    put_le32(&exponent, EXPONENT); /* as files have it */
    for (; i + 2 * sizeof(words) <= nbytes; i += 2 * sizeof(words))
        for (size_t k = 0; k < 2; k++) {
            words w;

            memcpy(&w, p + i + k * sizeof(w), sizeof(w));
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
        n = smaller(nbytes, left);
        scan_numbers(p, n, &not_zero, &not_finite);
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

/* Reads shards to their ends, or as far as there is something to find. */
static void
scan_shards(void *ctx, size_t begin, size_t end, int thread)
{
    const struct deep *d = ctx;
    const struct saevdir *dir = &d->c->dir;
    uint8_t *buf = d->pieces[thread];
    struct str path = { 0 };

    for (struct scan *s = d->scans + begin; s < d->scans + end; s++) {
        struct hash *hash = *s->expected ? hash_new(HASH_XXH3) : NULL;
        int fd = saevdir_shard(dir, s->file->shard, &s->err);
        int rc = fd < 0 ? -1 : 0;

        saevdir_shard_path(dir, s->file->shard, &path);
        for (size_t at = 0, n; at < s->file->nbytes && rc == 0; at += n) {
            size_t data = at < s->data_nbytes ? s->data_nbytes - at : 0;

            if (!hash && !s->padded && data == 0)
                break; /* nothing is asked of the rest */
            if (sig_stop()) {
                sig_stopped("run it again", &s->err);
                break;
            }
            n = smaller(s->file->nbytes - at, PIECE);
            data = smaller(data, n);
            rc = file_pread(fd, path.s, buf, n, at, &s->err);
            if (rc < 0)
                break;
            scan_images(s, buf, at, data, dir->saev.img_nbytes);
            for (size_t i = data; s->padded && i < n && s->pad_at == SIZE_MAX;
                 i++)
                if (buf[i])
                    s->pad_at = at + i;
            if (hash)
                hash_add(hash, buf, n);
        }
        if (hash)
            hash_end(hash, s->hex);
        if (fd >= 0)
            close(fd);
    }
    str_free(&path);
}

/* Images are counted from the first of the dump. */
static void
report(struct dump_check *c, const struct scan *s)
{
    size_t shard = s->file->shard;
    size_t first = shard * c->dir.saev.shard_imgs;
    size_t n_imgs = s->data_nbytes / c->dir.saev.img_nbytes;

    if (s->n_nan || s->n_inf)
        saevdir_problem(&c->run, shard, shard,
                        "%zu NaN, %zu infinite (the first in image %zu)",
                        s->n_nan, s->n_inf, first + s->first_bad);
    if (s->n_zero_imgs && s->n_zero_imgs == n_imgs)
        saevdir_problem(&c->run, shard, shard,
                        "all its images are zeros, as in a hole");
    else if (s->n_zero_imgs)
        saevdir_problem(
            &c->run, shard, shard,
            "%zu of %zu images %s zeros, as in a hole (the first is image "
            "%zu)",
            s->n_zero_imgs, n_imgs, s->n_zero_imgs == 1 ? "is" : "are",
            first + s->first_zero);
    if (s->pad_at != SIZE_MAX)
        saevdir_problem(&c->run, shard, shard,
                        "padding is not zero at byte %zu", s->pad_at);
    if (*s->expected && strcmp(s->expected, s->hex) != 0)
        saevdir_problem(&c->run, shard, shard,
                        "has the checksum %s (expected %s)", s->hex,
                        s->expected);
}

/* Scans files first .. first + n - 1.  A stop wins: what was not read is still
 * to be judged.  What could not be read is reported, too. */
static int
scan_window(struct deep *d, size_t first, size_t n, struct err *err)
{
    struct dump_check *c = d->c;
    const struct saev *saev = &c->dir.saev;
    struct err unread = { 0 };
    bool stopped = false;

    for (size_t i = 0; i < n; i++) {
        const struct saevdir_file *f = &c->dir.files[first + i];
        struct scan *s = &d->scans[i];

        *s = (struct scan){ .file = f,
                            .padded = right_size(&c->dir, f),
                            .expected = c->hex ? c->hex[first + i] : "",
                            .pad_at = SIZE_MAX };
        if (f->shard < saev->n_shards)
            s->data_nbytes = saev_shard_nbytes(saev, f->shard);
        if (s->data_nbytes > f->nbytes) /* whole images of it */
            s->data_nbytes = f->nbytes - f->nbytes % saev->img_nbytes;
    }
    par_for_thread(c->cmd->par, n, 1, scan_shards, d);
    for (size_t i = 0; i < n; i++) {
        struct scan *s = &d->scans[i];

        if (s->err.status == 0) {
            report(c, s);
            c->n_read++;
            c->nbytes_read += s->file->nbytes;
        } else if (s->err.status == EX_DATAERR) {
            /* A file that changed under us is a problem; one that cannot be
             * read leaves the question open, and the first of them says why. */
            problem(c, "%s", s->err.what);
        } else if (s->err.status == EX_TEMPFAIL) {
            stopped = true;
        } else if (!unread.status) {
            unread = s->err;
        }
    }
    if (stopped && unread.status)
        problem(c, "%s", unread.what);
    if (stopped)
        return sig_stopped("run it again", err);
    if (!unread.status)
        return 0;
    *err = unread;
    return -1;
}

int
check_deep(struct dump_check *c, struct err *err)
{
    const struct read_cmd *cmd = c->cmd;
    struct saevdir *dir = &c->dir;
    size_t begin = saev_part_begin(&dir->saev, cmd->part, cmd->n_parts);
    size_t end = saev_part_begin(&dir->saev, cmd->part + 1, cmd->n_parts);
    int n_threads = par_threads(cmd->par), rc = 0;
    size_t window = SHARDS_AHEAD * (size_t)n_threads, n = 0;
    struct deep d = { .c = c };
    struct progress progress = { .what = "verify",
                                 .unit = "B",
                                 .quiet = cmd->quiet };
    uint64_t done = 0;

    /* The files of this part are kept: those after the last shard belong to
     * the last one, and what is not a file has been reported. */
    if (cmd->part + 1 == cmd->n_parts)
        end = SIZE_MAX;
    for (size_t i = 0; i < dir->n_listed; i++) {
        const struct saevdir_file *f = &dir->files[i];

        if (f->nbytes == SIZE_MAX || f->shard < begin || f->shard >= end)
            continue;
        progress.total += f->nbytes;
        if (c->hex)
            memmove(c->hex[n], c->hex[i], sizeof(*c->hex));
        dir->files[n++] = *f;
    }
    c->n_part = dir->n_listed = n;

    d.pieces = xcalloc((size_t)n_threads, sizeof(*d.pieces));
    for (int i = 0; i < n_threads && rc == 0; i++) {
        d.pieces[i] = mem_try(PIECE, 1, "a buffer", err);
        rc = d.pieces[i] ? 0 : -1;
    }
    d.scans = xcalloc(window, sizeof(*d.scans));
    progress_start(&progress);
    for (size_t i = 0, k; i < n && rc == 0; i += k) {
        k = smaller(n - i, window);
        rc = scan_window(&d, i, k, err);
        for (size_t j = i; j < i + k; j++)
            done += dir->files[j].nbytes;
        progress_at(&progress, done);
    }
    saevdir_end_run(&c->run);
    progress_end(&progress);
    for (int i = 0; i < n_threads; i++)
        free(d.pieces[i]);
    free(d.pieces);
    free(d.scans);
    return rc;
}
