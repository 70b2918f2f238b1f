/* SPDX-License-Identifier: ISC */
/* One shard: is it complete in the stage, and its images from the stream. */
#include "cmd/saev-write/run.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/sig.h"

#define MOVE_BYTES ((size_t)8 << 20) /* between looks at the clock */

void
shard_path(const struct write_run *run, size_t shard, struct str *path)
{
    char name[32];

    saev_shard_name(name, shard);
    str_clear(path);
    str_addf(path, "%s/%s", outdir_path(run->dir), name);
}

/* Bytes of its images; a shard counted so far is full. */
static size_t
data_nbytes(const struct write_run *run, size_t shard)
{
    return run->end == SIZE_MAX ? run->saev.shard_nbytes
                                : saev_shard_nbytes(&run->saev, shard);
}

bool
shard_exists(const struct write_run *run, size_t shard)
{
    struct str path = { 0 };
    struct stat st;
    bool found;

    if (run->counts && shard >= run->counted / run->saev.shard_imgs)
        return false;
    shard_path(run, shard, &path);
    found = stat(path.s, &st) == 0 && S_ISREG(st.st_mode) &&
            (size_t)st.st_size == (run->cmd->pad ? run->saev.shard_nbytes
                                                 : data_nbytes(run, shard));
    str_free(&path);
    return found;
}

void
shard_set_sum(struct write_run *run, size_t shard, size_t nbytes,
              struct hash *hash)
{
    if (shard >= run->n_sums) {
        run->sums = xrealloc(run->sums, shard + 1, sizeof(*run->sums));
        while (run->n_sums <= shard)
            run->sums[run->n_sums++].hex[0] = '\0';
    }
    hash_end(hash, run->sums[shard].hex);
    run->sums[shard].nbytes = nbytes;
}

/* "ended after 100 of 200 bytes (image 3 of 7)". */
static int
too_short(const struct write_run *run, struct err *err)
{
    const struct float_input *in = &run->in;
    const struct saev *s = &run->saev;
    size_t img = in->dtype == DT_F32 ? s->img_nbytes : s->img_nbytes / 2;
    size_t first = run_first_img(run);

    if (run->end == SIZE_MAX)
        return err_set(err, EX_DATAERR,
                       "%s: ended after %llu bytes, in the middle of image "
                       "%llu (an image has %zu)",
                       in->name, (unsigned long long)in->n_taken,
                       first + (unsigned long long)in->n_taken / img, img);
    return err_set(err, EX_DATAERR,
                   "%s: ended after %llu of %zu bytes (image %llu of %zu)",
                   in->name, (unsigned long long)in->n_taken,
                   (run_imgs_before(run, run->end) - first) * img,
                   first + (unsigned long long)in->n_taken / img, s->n_imgs);
}

/* What the stream has must be what the shard has. */
int
shard_check(struct write_run *run, size_t shard, struct err *err)
{
    size_t left = data_nbytes(run, shard) / 4, offset = 0, size, i = 0;
    struct str path = { 0 };
    int fd, rc = 0;

    shard_path(run, shard, &path);
    fd = file_open(path.s, &size, err);
    for (ssize_t n; fd >= 0 && rc == 0 && left > 0; left -= (size_t)n) {
        n = input_read(&run->in, run->buf, smaller(left, INPUT_FLOATS), err);
        if (n <= 0) {
            rc = n < 0 ? -1 : too_short(run, err);
            break;
        }
        rc = file_pread(fd, path.s, run->old, (size_t)n * 4, offset, err);
        if (rc == 0 && memcmp(run->buf, run->old, (size_t)n * 4) != 0) {
            while (run->buf[i] == run->old[i])
                i++;
            rc = err_set(err, EX_DATAERR,
                         "%s: differs from %s, written before, in activation "
                         "%zu of it (another stream? then remove %s)",
                         run->in.name, path.s,
                         (offset + i) / run->saev.row_nbytes,
                         outdir_path(run->dir));
        }
        offset += (size_t)n * 4;
    }
    if (fd >= 0)
        close(fd);
    str_free(&path);
    run->n_kept++;
    return fd < 0 ? -1 : rc;
}

/* The images of one shard; the end of a counted stream may come between two of
 * them.  How many bytes it then has, or -1. */
static ssize_t
fill(struct write_run *run, size_t shard, struct out *out, struct hash *hash,
     struct err *err)
{
    static const char zeros[65536];
    size_t want = data_nbytes(run, shard), done = 0;
    bool move = run->in.dtype == DT_F32 && !hash;
    bool counting = run->end == SIZE_MAX;

    while (done < want) {
        size_t left = want - done;
        ssize_t n;

        if (move) {
            n = input_move(&run->in, out, smaller(left, MOVE_BYTES), err);
        } else {
            n = input_read(&run->in, run->buf, smaller(left / 4, INPUT_FLOATS),
                           err);
            n = n < 0 ? n : n * 4;
            if (hash && n > 0)
                hash_add(hash, run->buf, (size_t)n);
            if (n > 0 && out_write(out, run->buf, (size_t)n, err) < 0)
                return -1;
        }
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
        progress_at(&run->progress, run->in.n_taken);
    }
    if (done < want &&
        (!counting || done % run->saev.img_nbytes != 0 ||
         run->in.n_taken % (run->in.dtype == DT_F32 ? 4 : 2) != 0))
        return too_short(run, err);
    if (counting)
        run->saev.n_imgs =
            shard * run->saev.shard_imgs + done / run->saev.img_nbytes;
    /* to another run that counts, zeros would look like images */
    if (!run->cmd->pad || run->counts)
        return (ssize_t)done;
    /* zeros after the last image, for readers that map full shards */
    if (done < run->saev.shard_nbytes &&
        out_zeros(out, run->saev.shard_nbytes - done, err) < 0)
        return -1;
    for (size_t n; hash && done < run->saev.shard_nbytes; done += n) {
        if (sig_stop())
            return sig_stopped("run it again", err);
        n = smaller(run->saev.shard_nbytes - done, sizeof(zeros));
        hash_add(hash, zeros, n);
    }
    return (ssize_t)run->saev.shard_nbytes;
}

int
shard_write(struct write_run *run, size_t shard, struct err *err)
{
    int flags = OUT_RUN | OUT_READ_ONLY | (run->cmd->no_sync ? OUT_NO_SYNC : 0);
    struct hash *hash = run->cmd->manifest ? hash_new(HASH_XXH3) : NULL;
    struct str path = { 0 };
    struct out *out;
    ssize_t n = 0;
    int rc;

    shard_path(run, shard, &path);
    rc = out_open(&out, path.s, flags, false, err);
    if (rc == 0 && run->end != SIZE_MAX)
        rc = out_reserve(
            out, smaller(data_nbytes(run, shard), input_left(&run->in)), err);
    if (rc == 0)
        n = fill(run, shard, out, hash, err);
    if (rc < 0 || n < 0)
        out_abort(out);
    rc = rc < 0 || n < 0 ? -1 : out_commit(out, err);
    if (rc == 0 && hash)
        shard_set_sum(run, shard, (size_t)n, hash);
    else
        hash_free(hash);
    if (rc == 0) {
        run->made = xrealloc(run->made, run->n_made + 1, sizeof(*run->made));
        run->made[run->n_made++] = shard;
    }
    str_free(&path);
    return rc;
}
