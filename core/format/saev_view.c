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
saev_view_data(struct saev_view *v, const size_t *before)
{
    v->before = before;
    v->n_rows = saev_view_img(v, v->saev->n_imgs);
}

size_t
saev_view_img(const struct saev_view *v, size_t img)
{
    return v->before ? v->n_layers * v->before[img] : v->img_rows * img;
}

/* The image of a row, and tokens that it has in the view. */
static size_t
img_of(const struct saev_view *v, size_t row, size_t *n_tokens)
{
    size_t low = 0, high = v->saev->n_imgs;

    *n_tokens = v->n_tokens;
    if (!v->before)
        return row / v->img_rows;
    while (high - low > 1) { /* the last that does not begin after it */
        size_t at = low + (high - low) / 2;

        *(v->before[at] * v->n_layers > row ? &high : &low) = at;
    }
    *n_tokens = v->before[low + 1] - v->before[low];
    return low;
}

size_t
saev_view_run(const struct saev_view *v, size_t row)
{
    const struct saev *s = v->saev;
    size_t shard_rows = s->shard_imgs * v->img_rows, n_tokens;
    size_t img = img_of(v, row, &n_tokens), rest = row - saev_view_img(v, img);

    if (!v->before && v->img_rows == s->n_layers * s->n_tokens)
        return smaller(shard_rows - row % shard_rows, v->n_rows - row);
    return n_tokens - rest % n_tokens;
}

struct saev_place
saev_view_at(const struct saev_view *v, size_t row)
{
    const struct saev *s = v->saev;
    size_t n_tokens, img = img_of(v, row, &n_tokens);
    size_t rest = row - saev_view_img(v, img), vector;
    struct saev_place p = { .img = img };

    p.layer = v->layer0 + rest / n_tokens;
    p.token = v->token0 + rest % n_tokens;
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
