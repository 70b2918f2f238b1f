/* SPDX-License-Identifier: ISC */
/* SAEV's geometry: names and sizes of shards, and where a view's rows are. */
#include <stdio.h>
#include <string.h>

#include "core/format/saev.h"
#include "core/mem.h"

void
saev_shard_name(char name[32], size_t shard)
{
    snprintf(name, 32, "acts%06zu.bin", shard);
}

bool
saev_shard_of(const char *name, size_t *shard)
{
    char again[32];

    if (sscanf(name, "acts%zu", shard) != 1)
        return false;
    saev_shard_name(again, *shard);
    return !strcmp(name, again);
}

size_t
saev_part_begin(const struct saev *s, size_t part, size_t n_parts)
{
    size_t rest = s->n_shards % n_parts;

    return s->n_shards / n_parts * part + rest * part / n_parts;
}

size_t
saev_shard_imgs(const struct saev *s, size_t shard)
{
    size_t first = shard * s->shard_imgs;

    return s->n_imgs - first < s->shard_imgs ? s->n_imgs - first
                                             : s->shard_imgs;
}

size_t
saev_shard_nbytes(const struct saev *s, size_t shard)
{
    return saev_shard_imgs(s, shard) * s->img_nbytes;
}

int
saev_view_open(struct saev_view *v, const struct saev *s,
               enum saev_tokens tokens, int64_t layer, struct err *err)
{
    size_t i = 0;

    *v = (struct saev_view){ .saev = s, .tokens = tokens };
    if (tokens == SAEV_CLS && !s->cls_token)
        return err_data(err, s->name,
                        "the dump has no CLS token (cls_token is false)");
    while (layer != SAEV_ALL_LAYERS && i < s->n_layers && s->layers[i] != layer)
        i++;
    if (i == s->n_layers)
        return err_data(err, s->name, "layer %lld is not in the dump",
                        (long long)layer);
    v->layer0 = i;
    v->n_layers = layer == SAEV_ALL_LAYERS ? s->n_layers : 1;
    v->token0 = tokens == SAEV_IMAGE ? s->cls_token : 0;
    v->n_tokens = tokens == SAEV_CLS     ? 1
                  : tokens == SAEV_IMAGE ? s->n_patches
                                         : s->n_tokens;
    v->img_rows = v->n_layers * v->n_tokens;
    v->n_rows = s->n_imgs * v->img_rows;
    return 0;
}

void
saev_view_keep(struct saev_view *v, const struct saev_kept *kept)
{
    v->kept = kept;
    v->n_rows = saev_view_img(v, v->saev->n_imgs);
}

/* Rows that count before one of the view. */
static size_t
kept_before(const struct saev_kept *k, size_t row)
{
    size_t block = row / SAEV_KEPT_BLOCK, n = k->before[block];
    size_t word = block * (SAEV_KEPT_BLOCK / 64);

    for (; word < row / 64; word++)
        n += (size_t)__builtin_popcountll(k->bits[word]);
    if (row % 64)
        n += (size_t)__builtin_popcountll(k->bits[word] << (64 - row % 64));
    return n;
}

/* The row of the view that is this one of those that count. */
static size_t
kept_row(const struct saev_kept *k, size_t at)
{
    size_t low = 0, high = k->n_rows / SAEV_KEPT_BLOCK + 1, word;
    uint64_t bits;

    while (high - low > 1) { /* the last that has not more before it */
        size_t block = low + (high - low) / 2;

        *(k->before[block] > at ? &high : &low) = block;
    }
    at -= k->before[low];
    word = low * (SAEV_KEPT_BLOCK / 64);
    for (size_t n; (n = (size_t)__builtin_popcountll(k->bits[word])) <= at;
         word++)
        at -= n;
    for (bits = k->bits[word]; at > 0; at--)
        bits &= bits - 1;
    return word * 64 + (size_t)__builtin_ctzll(bits);
}

/* Rows from this one of the view on that count, at most 'most'. */
static size_t
kept_run(const struct saev_kept *k, size_t row, size_t most)
{
    size_t n = 0;

    while (n < most) {
        size_t at = (row + n) % 64;
        uint64_t gaps = ~(k->bits[(row + n) / 64] >> at);
        size_t ones = gaps ? (size_t)__builtin_ctzll(gaps) : 64;

        n += smaller(ones, 64 - at);
        if (ones < 64 - at)
            break;
    }
    return smaller(n, most);
}

size_t
saev_view_img(const struct saev_view *v, size_t img)
{
    size_t row = v->img_rows * img;

    return v->kept ? kept_before(v->kept, row) : row;
}

size_t
saev_view_run(const struct saev_view *v, size_t row)
{
    const struct saev *s = v->saev;
    size_t shard_rows = s->shard_imgs * v->img_rows, most;

    if (v->kept)
        row = kept_row(v->kept, row);
    if (v->img_rows == s->n_layers * s->n_tokens)
        most = smaller(shard_rows - row % shard_rows,
                       s->n_imgs * v->img_rows - row);
    else
        most = v->n_tokens - row % v->n_tokens;
    return v->kept ? kept_run(v->kept, row, most) : most;
}

struct saev_place
saev_view_at(const struct saev_view *v, size_t row)
{
    const struct saev *s = v->saev;
    struct saev_place p;
    size_t rest, vector;

    if (v->kept)
        row = kept_row(v->kept, row);
    p.img = row / v->img_rows;
    rest = row % v->img_rows;
    p.layer = v->layer0 + rest / v->n_tokens;
    p.token = v->token0 + rest % v->n_tokens;
    p.patch = (int64_t)p.token - s->cls_token;
    p.shard = p.img / s->shard_imgs;
    vector =
        (p.img % s->shard_imgs * s->n_layers + p.layer) * s->n_tokens + p.token;
    p.offset = vector * s->row_nbytes;
    return p;
}

int64_t
saev_view_row(const struct saev_view *v, size_t img, size_t layer, size_t token)
{
    if (img >= v->saev->n_imgs || layer < v->layer0 ||
        layer - v->layer0 >= v->n_layers || token < v->token0 ||
        token - v->token0 >= v->n_tokens)
        return -1;
    return (int64_t)(img * v->img_rows + (layer - v->layer0) * v->n_tokens +
                     token - v->token0);
}
