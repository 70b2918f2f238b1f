/* SPDX-License-Identifier: ISC */
#include "core/format/saev_mask.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format/sae_without.h"
#include "core/format/saev_ids.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/par.h"
#include "core/sig.h"

#define GROUP ((size_t)64) /* images of a thread: whole words of bits */
#define PIECE ((size_t)16 << 10)
#define BLOCK ((size_t)256 << 10) /* read at a time, for norms */

/* ---- options ---- */

/* Ascending, each once. */
static void
sort_ids(struct saev_mask *m)
{
    size_t n = 0;

    if (m->n_ids)
        qsort(m->ids, m->n_ids, sizeof(*m->ids), by_i32);
    for (size_t i = 0; i < m->n_ids; i++)
        if (n == 0 || m->ids[i] != m->ids[n - 1])
            m->ids[n++] = m->ids[i];
    m->n_ids = n;
}

static void
add_id(struct saev_mask *m, int32_t id)
{
    m->ids = xrealloc(m->ids, m->n_ids + 1, sizeof(*m->ids));
    m->ids[m->n_ids++] = id;
}

int
saev_mask_ids(struct saev_mask *m, const char *list, struct err *err)
{
    free(m->ids);
    m->ids = NULL;
    m->n_ids = 0;
    m->special = false;
    for (const char *at = list, *end;; at = end + 1) {
        size_t n = strcspn(at, ",");
        long v = -1;
        char *stop;

        end = at + n;
        if (n == strlen("special") && !strncmp(at, "special", n)) {
            m->special = true;
        } else {
            if (n > 0 && n < 11 && strspn(at, "0123456789") == n)
                v = strtol(at, &stop, 10);
            if (v < 0 || v > INT32_MAX)
                return err_set(err, TU_USAGE,
                               "--skip-ids: \"%.*s\" is not an id or "
                               "\"special\"",
                               (int)smaller(n, 40), at);
            add_id(m, (int32_t)v);
        }
        if (!*end)
            break;
    }
    sort_ids(m);
    return 0;
}

void
saev_mask_special(struct saev_mask *m, const struct saev_ids *ids)
{
    for (size_t i = 0; m->special && i < ids->n_special; i++)
        add_id(m, ids->special[i]);
    m->special = false;
    sort_ids(m);
}

bool
saev_mask_given(const struct saev_mask *m)
{
    return m->special || m->n_ids || m->positions || m->max_norm > 0;
}

const char *
saev_mask_difference(const struct saev_mask *a, const struct saev_mask *b)
{
    if (a->special != b->special || a->n_ids != b->n_ids ||
        (a->n_ids && memcmp(a->ids, b->ids, a->n_ids * sizeof(*a->ids)) != 0))
        return "skip_ids";
    return a->positions != b->positions ? "skip_positions"
           : a->max_norm != b->max_norm ? "max_norm"
                                        : NULL;
}

bool
saev_mask_skips(const struct saev_mask *m, int32_t id, size_t t)
{
    return t < m->positions ||
           (m->n_ids && bsearch(&id, m->ids, m->n_ids, sizeof(id), by_i32));
}

/* ---- bits ---- */

struct saev_kept *
saev_kept_new(size_t n_rows, struct err *err)
{
    size_t n_blocks = n_rows / SAEV_KEPT_BLOCK + 1;
    struct saev_kept *k = xcalloc(1, sizeof(*k));

    k->n_rows = n_rows;
    k->bits = mem_try(n_blocks * (SAEV_KEPT_BLOCK / 64), sizeof(*k->bits),
                      "which rows count", err);
    k->before =
        mem_try(n_blocks + 1, sizeof(*k->before), "which rows count", err);
    if (!k->bits || !k->before) {
        saev_kept_free(k);
        return NULL;
    }
    memset(k->bits, 0, n_blocks * (SAEV_KEPT_BLOCK / 8));
    return k;
}

void
saev_kept_count(struct saev_kept *k)
{
    size_t n = 0, i = 0;

    for (; i <= k->n_rows / SAEV_KEPT_BLOCK; i++) {
        k->before[i] = n;
        for (size_t w = 0; w < SAEV_KEPT_BLOCK / 64; w++)
            n += (size_t)__builtin_popcountll(
                k->bits[i * (SAEV_KEPT_BLOCK / 64) + w]);
    }
    k->before[i] = n;
}

void
saev_kept_free(struct saev_kept *k)
{
    if (!k)
        return;
    free(k->bits);
    free(k->before);
    free(k);
}

/* ---- finding them ---- */

/* Images of a shard that threads look at. */
struct mask_scan {
    const struct saev *s;
    const struct saev_view *v;
    const struct saev_mask *mask;
    const struct saev_ids *ids;
    struct saev_kept *kept;
    const char *path, *dir;
    int fd;
    size_t shard, first, last; /* images of it that are looked at */
    atomic_bool failed;
    struct err *err; /* of the first that failed */
};

/* Where the rows of a layer of an image begin, from 'token' on. */
static size_t
offset_of(const struct mask_scan *c, size_t img, size_t layer, size_t token)
{
    const struct saev *s = c->s;

    return (((img - c->shard * s->shard_imgs) * s->n_layers + layer) *
                s->n_tokens +
            token) *
           s->row_nbytes;
}

/* Are the rows of a token 0 in all layers?  1, 0, or -1. */
static int
is_padding(const struct mask_scan *c, size_t img, size_t token, struct err *err)
{
    static const char zeros[PIECE];
    const struct saev *s = c->s;
    char x[PIECE];

    for (size_t l = 0; l < s->n_layers; l++)
        for (size_t at = 0, n; at < s->row_nbytes; at += n) {
            n = smaller(s->row_nbytes - at, PIECE);
            if (file_pread(c->fd, c->path, x, n,
                           offset_of(c, img, l, token) + at, err) < 0)
                return -1;
            if (memcmp(x, zeros, n) != 0)
                return 0;
        }
    return 1;
}

/* The tokens of data of an image; SIZE_MAX with 'err' set. */
static size_t
count_data(const struct mask_scan *c, size_t img, struct err *err)
{
    size_t low = 0, high = c->s->n_tokens;

    while (low < high && c->s->is_padded && !c->mask->padding) {
        size_t at = low + (high - low) / 2;
        int rc = is_padding(c, img, at, err);

        if (rc < 0)
            return SIZE_MAX;
        *(rc ? &high : &low) = at + (rc ? 0 : 1);
    }
    return high;
}

/* Bytes of the shard that a thread has read. */
struct mask_block {
    char *bytes; /* [BLOCK] */
    size_t at, n;
};

/* Is the norm of a row at 'offset' of the shard at most the mask's?  Up to
 * 'end' what follows is read with it.  1, 0, or -1 with 'err' set. */
static int
is_short(const struct mask_scan *c, struct mask_block *b, size_t offset,
         size_t end, struct err *err)
{
    double lane[SAE_NORM_LANES] = { 0 };
    float x[PIECE / sizeof(float)];

    for (size_t left = c->s->row_nbytes, n; left > 0; left -= n, offset += n) {
        n = smaller(left, PIECE);
        if (offset < b->at || offset + n > b->at + b->n) {
            b->at = offset;
            b->n = smaller(end - offset, BLOCK);
            if (file_pread(c->fd, c->path, b->bytes, b->n, offset, err) < 0)
                return -1;
        }
        memcpy(x, b->bytes + (offset - b->at), n);
        le_numbers(x, n / sizeof(*x), sizeof(*x));
        sae_norm_add(lane, x, n / sizeof(*x));
    }
    return sae_norm(lane) > c->mask->max_norm ? 0 : 1;
}

/* Clears the bits of an image's long rows. */
static int
scan_norms(const struct mask_scan *c, struct mask_block *b, size_t img,
           size_t end_img, struct err *err)
{
    const struct saev_view *v = c->v;
    uint64_t *bits = c->kept->bits;
    size_t row = img * v->img_rows;
    bool all = v->n_layers == c->s->n_layers && /* but for CLS */
               v->n_tokens + 1 >= c->s->n_tokens;

    for (size_t i = 0; i < v->img_rows; i++) {
        size_t l = v->layer0 + i / v->n_tokens, t = i % v->n_tokens;
        size_t end = all ? offset_of(c, end_img, 0, 0)
                         : offset_of(c, img, l, v->token0 + v->n_tokens);
        int rc = 1;

        if (bits[(row + i) / 64] >> (row + i) % 64 & 1)
            rc = is_short(c, b, offset_of(c, img, l, v->token0 + t), end, err);
        if (rc < 0)
            return -1;
        for (size_t k = 0; rc == 0 && k < v->n_layers; k++) {
            size_t bit = row + (c->mask->by_token ? k * v->n_tokens + t : i);

            bits[bit / 64] &= ~((uint64_t)1 << bit % 64);
        }
    }
    return 0;
}

/* The bits of an image's rows in the view. */
static int
scan_image(const struct mask_scan *c, size_t img, struct err *err)
{
    const struct saev_view *v = c->v;
    const struct saev_mask *m = c->mask;
    size_t n_data = count_data(c, img, err), row = img * v->img_rows;

    if (n_data == SIZE_MAX)
        return -1;
    for (size_t t = v->token0; t < v->token0 + v->n_tokens; t++) {
        int32_t id = c->ids->ids ? saev_ids_at(c->ids, img, t) : -1;

        if (c->ids->ids && t < n_data && id < 0 && !m->padding)
            return err_set(err, EX_DATAERR,
                           "%s/" SAEV_IDS
                           ": image %zu, token %zu: -1, but its row is no "
                           "padding (expected an id)",
                           c->dir, img, t);
        if (t >= n_data || saev_mask_skips(m, id, t))
            continue;
        for (size_t l = 0; l < v->n_layers; l++) {
            size_t bit = row + l * v->n_tokens + t - v->token0;

            c->kept->bits[bit / 64] |= (uint64_t)1 << bit % 64;
        }
    }
    return 0;
}

static void
scan_groups(void *ctx, size_t begin, size_t end)
{
    struct mask_scan *c = ctx;
    size_t base = c->first / GROUP;
    size_t i = larger(c->first, (base + begin) * GROUP);
    size_t last = smaller(c->last + 1, (base + end) * GROUP);
    struct mask_block b = { .bytes = xmalloc(BLOCK) };
    struct err err = { 0 };

    for (; i < last && !atomic_load(&c->failed); i++)
        if (((sig_stop() ? sig_stopped("nothing was written", &err)
                         : scan_image(c, i, &err)) < 0 ||
             (c->mask->max_norm > 0 && scan_norms(c, &b, i, last, &err) < 0)) &&
            !atomic_exchange(&c->failed, true))
            *c->err = err;
    free(b.bytes);
}

/* The ids of a dump, for a mask; the word special becomes what they say. */
static int
open_ids(struct saev_mask *m, struct saev_ids *ids, const struct saevdir *dir,
         struct err *err)
{
    if (saev_ids_of(ids, dir, err) < 0)
        return -1;
    if (!ids->ids)
        return err_set(err, EX_DATAERR,
                       "%s: has no " SAEV_IDS
                       ", so which tokens its rows are of is unknown "
                       "(hf-infer --acts-ids FILE writes them: copy it there)",
                       dir->path);
    if (m->special && !ids->knows_special)
        return err_set(err, EX_DATAERR,
                       "%s: " SAEV_IDS
                       ".json does not list special tokens (--skip-ids with "
                       "their ids leaves them out)",
                       dir->path);
    saev_mask_special(m, ids);
    return 0;
}

int
saev_mask_resolve(struct saev_mask *m, const struct saevdir *dir,
                  struct err *err)
{
    struct saev_ids ids = { 0 };
    int rc = m->special && m->n_ids ? open_ids(m, &ids, dir, err) : 0;

    saev_ids_close(&ids);
    return rc;
}

int
saev_mask_open(struct saev_kept **kept, const struct saevdir *dir,
               const struct saev_view *view, const struct saev_mask *given,
               size_t first, size_t last, int n_threads, struct err *err)
{
    const struct saev *s = &dir->saev;
    struct saev_mask mask = *given;
    struct saev_ids ids = { 0 };
    struct mask_scan c = { .s = s,
                           .v = view,
                           .mask = &mask,
                           .ids = &ids,
                           .dir = dir->path,
                           .err = err };
    struct str path = { 0 };
    struct par *par = NULL;
    int rc = 0;

    *kept = NULL;
    if (!saev_mask_given(given) && (given->padding || !s->is_padded))
        return 0;
    mask.ids = NULL;
    mask.n_ids = 0;
    for (size_t i = 0; i < given->n_ids; i++)
        add_id(&mask, given->ids[i]);
    if (((mask.special || mask.n_ids || mask.has_ids) &&
         open_ids(&mask, &ids, dir, err) < 0) ||
        par_open(&par, n_threads, err) < 0 ||
        !(c.kept = saev_kept_new(s->n_imgs * view->img_rows, err)))
        rc = -1;
    for (size_t i = 0; rc == 0 && i < s->n_shards; i++) {
        size_t begin = i * s->shard_imgs, n = saev_shard_imgs(s, i);

        c.shard = i;
        c.first = larger(begin, first);
        c.last = smaller(begin + n - 1, last);
        if (n == 0 || c.first > c.last)
            continue;
        saevdir_shard_path(dir, i, &path);
        c.path = path.s;
        c.fd = saevdir_shard(dir, i, err);
        if (c.fd < 0) {
            rc = -1;
            break;
        }
        par_for(par, c.last / GROUP - c.first / GROUP + 1, 1, scan_groups, &c);
        close(c.fd);
        rc = atomic_load(&c.failed) ? -1 : 0;
    }
    str_free(&path);
    par_close(par);
    saev_ids_close(&ids);
    free(mask.ids);
    if (rc < 0) {
        saev_kept_free(c.kept);
        return -1;
    }
    saev_kept_count(c.kept);
    *kept = c.kept;
    return 0;
}
