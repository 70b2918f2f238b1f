/* SPDX-License-Identifier: ISC */
#include "core/format/saev_data.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/map.h"
#include "core/mem.h"
#include "core/par.h"

#define GRAIN ((size_t)16) /* images that a thread looks at */
#define PIECE ((size_t)16 << 10)

/* Images of a shard that threads look at. */
struct data_scan {
    const struct saev *s;
    const char *path;
    int fd;
    size_t *n_tokens; /* [images of the shard] */
    atomic_bool failed;
    struct err *err; /* of the first that failed */
};

/* Are the rows of a token 0 in all layers?  1, 0, or -1. */
static int
is_padding(const struct data_scan *c, size_t img, size_t token, struct err *err)
{
    static const char zeros[PIECE];
    const struct saev *s = c->s;
    char x[PIECE];

    for (size_t l = 0; l < s->n_layers; l++) {
        size_t row = (img * s->n_layers + l) * s->n_tokens + token;

        for (size_t at = 0, n; at < s->row_nbytes; at += n) {
            n = smaller(s->row_nbytes - at, PIECE);
            if (file_pread(c->fd, c->path, x, n, row * s->row_nbytes + at,
                           err) < 0)
                return -1;
            if (memcmp(x, zeros, n) != 0)
                return 0;
        }
    }
    return 1;
}

static void
scan_images(void *ctx, size_t begin, size_t end)
{
    struct data_scan *c = ctx;
    struct err err = { 0 };

    for (size_t i = begin; i < end && !atomic_load(&c->failed); i++) {
        size_t low = 0, high = c->s->n_tokens;

        while (low < high) {
            size_t at = low + (high - low) / 2;
            int rc = is_padding(c, i, at, &err);

            if (rc < 0) {
                if (!atomic_exchange(&c->failed, true))
                    *c->err = err;
                return;
            }
            *(rc ? &high : &low) = at + (rc ? 0 : 1);
        }
        c->n_tokens[i] = low;
    }
}

int
saev_data_open(size_t **before, const struct saevdir *dir, size_t first,
               size_t last, int n_threads, struct err *err)
{
    const struct saev *s = &dir->saev;
    struct data_scan c = { .s = s, .err = err };
    struct str path = { 0 };
    struct par *par = NULL;
    size_t sum = 0;
    int rc = 0;

    *before = NULL;
    if (!s->is_padded)
        return 0;
    if (par_open(&par, n_threads, err) < 0)
        return -1;
    *before = mem_try(s->n_imgs + 1, sizeof(**before), "documents", err);
    for (size_t i = 0; *before && rc == 0 && i < s->n_shards; i++) {
        size_t n = saev_shard_imgs(s, i), begin = i * s->shard_imgs;

        c.n_tokens = *before + begin;
        memset(c.n_tokens, 0, n * sizeof(*c.n_tokens));
        if (begin > last || begin + n <= first)
            continue;
        saevdir_shard_path(dir, i, &path);
        c.path = path.s;
        c.fd = saevdir_shard(dir, i, err);
        if (c.fd < 0) {
            rc = -1;
            break;
        }
        par_for(par, n, GRAIN, scan_images, &c);
        close(c.fd);
        rc = atomic_load(&c.failed) ? -1 : 0;
    }
    str_free(&path);
    par_close(par);
    if (rc < 0 || !*before) {
        free(*before);
        *before = NULL;
        return -1;
    }
    for (size_t i = 0; i <= s->n_imgs; i++) {
        size_t n = i < s->n_imgs ? (*before)[i] : 0;

        (*before)[i] = sum;
        sum += n;
    }
    return 0;
}
