/* SPDX-License-Identifier: ISC */
#include "core/format/kvc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"
#include "core/tty.h"

static const enum dtype dtypes[] = { DT_F16, DT_BF16, DT_F32 };
#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

int
kvc_code(enum dtype dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i] == dtype)
            return (int)i;
    return -1;
}

bool
kvc_sniff(const void *head, size_t nbytes)
{
    return nbytes >= 4 && le32(head) == KVC_MAGIC;
}

const struct kvc_field kvc_fields[KVC_N_FIELDS] = {
    { "num_layers", offsetof(struct kvc_header, num_layers) },
    { "num_heads", offsetof(struct kvc_header, num_heads) },
    { "head_dim", offsetof(struct kvc_header, head_dim) },
    { "hidden_size", offsetof(struct kvc_header, hidden_size) },
    { "compression_factor", offsetof(struct kvc_header, compression_factor) },
    { "min_seq_len", offsetof(struct kvc_header, min_seq_len) },
    { "weight_count_per_layer",
      offsetof(struct kvc_header, weight_count_per_layer) },
    { "metadata_size_bytes", offsetof(struct kvc_header, metadata_size) },
};

uint32_t
kvc_field(const struct kvc_header *h, size_t i)
{
    uint32_t v;

    memcpy(&v, (const char *)h + kvc_fields[i].offset, sizeof(v));
    return v;
}

void
kvc_put_header(unsigned char to[KVC_HEADER_BYTES], const struct kvc_header *h)
{
    put_le32(to, KVC_MAGIC);
    put_le32(to + 4, KVC_VERSION);
    put_le16(to + 8, h->dtype_code);
    put_le16(to + 10, h->reserved);
    for (size_t i = 0; i < KVC_N_FIELDS; i++)
        put_le32(to + 12 + 4 * i, kvc_field(h, i));
}

void
kvc_put_block(unsigned char to[KVC_BLOCK_BYTES], uint32_t rows, uint32_t cols,
              bool has_bias)
{
    put_le32(to, rows);
    put_le32(to + 4, cols);
    put_le32(to + 8, has_bias);
}

static int
read_header(struct kvc *k, struct err *err)
{
    const uint8_t *p = k->map.data;
    struct kvc_header *h = &k->header;

    if (k->map.size < KVC_HEADER_BYTES)
        return err_data(err, k->path, "has %zu bytes (expected at least %d)",
                        k->map.size, KVC_HEADER_BYTES);
    if (le32(p) != KVC_MAGIC)
        return err_data(err, k->path, "magic is 0x%08x (expected 0x%08x)",
                        le32(p), KVC_MAGIC);
    if (le32(p + 4) != KVC_VERSION)
        return err_data(err, k->path, "version is %u (expected %d)",
                        le32(p + 4), KVC_VERSION);
    h->dtype_code = le16(p + 8);
    h->reserved = le16(p + 10);
    for (size_t i = 0; i < KVC_N_FIELDS; i++) {
        uint32_t v = le32(p + 12 + 4 * i);

        memcpy((char *)h + kvc_fields[i].offset, &v, sizeof(v));
    }
    if (h->dtype_code >= N_DTYPES)
        return err_data(err, k->path,
                        "dtype code is %u (expected 0, f16; 1, bf16; 2, f32)",
                        h->dtype_code);
    k->dtype = dtypes[h->dtype_code];
    if (h->num_layers == 0 || h->weight_count_per_layer == 0)
        return err_data(err, k->path,
                        "%u layers of %u blocks (expected 1 or more)",
                        h->num_layers, h->weight_count_per_layer);
    return 0;
}

/* Finds the blocks, of which each says how long it is. */
static int
read_blocks(struct kvc *k, struct err *err)
{
    const struct kvc_header *h = &k->header;
    size_t item = dtype_size(k->dtype), room = 0;

    k->end = KVC_HEADER_BYTES;
    if (h->metadata_size > k->map.size - k->end)
        return err_data(err, k->path,
                        "metadata of %u bytes, but the file has %zu",
                        h->metadata_size, k->map.size);
    k->end += h->metadata_size;
    /* two numbers of 32 bits: no overflow */
    k->n_blocks = (size_t)h->num_layers * h->weight_count_per_layer;
    if (k->n_blocks > (k->map.size - k->end) / KVC_BLOCK_BYTES)
        return err_data(err, k->path,
                        "%u layers of %u blocks, but the file has %zu bytes",
                        h->num_layers, h->weight_count_per_layer, k->map.size);
    for (size_t i = 0; i < k->n_blocks; i++) {
        const uint8_t *p = k->map.data + k->end;
        size_t left = k->map.size - k->end, n, weight_nbytes, nbytes;
        struct kvc_block *b;

        if (left < KVC_BLOCK_BYTES)
            return err_data(err, k->path,
                            "ends before block %zu of %zu (%zu bytes are left)",
                            i, k->n_blocks, left);
        if (i == room) /* grows with the blocks found: a header may lie */
            k->blocks = xgrow(k->blocks, i, &room, sizeof(*k->blocks));
        b = &k->blocks[i];
        *b = (struct kvc_block){ .rows = le32(p),
                                 .cols = le32(p + 4),
                                 .has_bias = le32(p + 8),
                                 .at = k->end,
                                 .weight = k->end + KVC_BLOCK_BYTES };
        if (b->rows == 0 || b->cols == 0)
            return err_data(err, k->path,
                            "block %zu at byte %zu is %u x %u (expected 1 or "
                            "more)",
                            i, b->at, b->rows, b->cols);
        left -= KVC_BLOCK_BYTES;
        if (!size_mul(b->rows, b->cols, &n) ||
            !size_mul(n, item, &weight_nbytes) ||
            !size_add(weight_nbytes, b->has_bias ? b->rows * item : 0,
                      &nbytes) ||
            nbytes > left)
            return err_data(err, k->path,
                            "block %zu at byte %zu is %u x %u%s, but %zu "
                            "bytes are left",
                            i, b->at, b->rows, b->cols,
                            b->has_bias ? " with a bias" : "", left);
        b->bias = b->weight + weight_nbytes;
        k->end = b->weight + nbytes;
    }
    return 0;
}

int
kvc_open(struct kvc *k, const char *path, struct err *err)
{
    *k = (struct kvc){ 0 };
    if (map_open(&k->map, path, err) < 0)
        return -1;
    k->path = xstrdup(path);
    if (read_header(k, err) == 0 && read_blocks(k, err) == 0)
        return 0;
    kvc_close(k);
    return -1;
}

void
kvc_close(struct kvc *k)
{
    map_close(&k->map);
    free(k->path);
    free(k->blocks);
    *k = (struct kvc){ 0 };
}

static void __attribute__((format(printf, 2, 3)))
problem(struct kvc_checker *c, const char *fmt, ...)
{
    char line[400] = "";
    va_list ap;
    int n = c->path ? snprintf(line, sizeof(line), "%.200s: ", c->path) : 0;

    va_start(ap, fmt);
    vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    c->report(c->ctx, line);
    c->n++;
}

void
kvc_check_header(struct kvc_checker *c, uint32_t cols)
{
    const struct kvc_header *h = c->header;

    if (h->reserved)
        problem(c, "reserved is %u (expected 0)", h->reserved);
    if (h->num_layers > KVC_MAX_LAYERS)
        problem(c, "has %u layers (engines load at most %d)", h->num_layers,
                KVC_MAX_LAYERS);
    if (h->weight_count_per_layer != 2 * KVC_SLOTS &&
        h->weight_count_per_layer != 4 * KVC_SLOTS)
        problem(c,
                "weight_count_per_layer is %u (expected 6, text, or 12, "
                "text and image)",
                h->weight_count_per_layer);
    if (h->compression_factor <= 1)
        problem(c, "compression_factor is %u: nothing is compressed",
                h->compression_factor);
    if (h->hidden_size != cols)
        problem(c, "hidden_size is %u, but the first block has %u columns",
                h->hidden_size, cols);
    if (h->head_dim &&
        (uint64_t)h->head_dim * h->compression_factor != h->hidden_size)
        problem(c, "head_dim %u x compression_factor %u is not hidden_size, %u",
                h->head_dim, h->compression_factor, h->hidden_size);
}

void
kvc_check_block(struct kvc_checker *c, size_t i, const struct kvc_block *b,
                size_t n_bad)
{
    size_t per = c->header->weight_count_per_layer;

    if ((size_t)b->rows * b->cols > KVC_MAX_NUMBERS)
        problem(c,
                "layer %zu block %zu: %u x %u numbers (engines load at most "
                "%d)",
                i / per, i % per, b->rows, b->cols, KVC_MAX_NUMBERS);
    if (b->has_bias > 1)
        problem(c, "layer %zu block %zu: has_bias is %u (expected 0 or 1)",
                i / per, i % per, b->has_bias);
    if (n_bad)
        problem(c, "layer %zu block %zu: %zu NaN or infinite number%s", i / per,
                i % per, n_bad, plural(n_bad));
}

void
kvc_check_mlp(struct kvc_checker *c, size_t i, const struct kvc_block *b)
{
    const struct kvc_header *h = c->header;
    size_t per = h->weight_count_per_layer;
    uint64_t d = h->head_dim ? h->head_dim : b[2].rows;

    if (b[0].cols != h->compression_factor * d)
        problem(c,
                "layer %zu block %zu: %u columns (expected "
                "compression_factor %u x head_dim %llu)",
                i / per, i % per, b[0].cols, h->compression_factor,
                (unsigned long long)d);
    for (size_t j = 1; j < KVC_SLOTS; j++)
        if (b[j].cols != b[j - 1].rows)
            problem(c,
                    "layer %zu block %zu: %u columns, but the block before "
                    "has %u rows",
                    i / per, i % per + j, b[j].cols, b[j - 1].rows);
    if (b[2].rows != d)
        problem(c, "layer %zu block %zu: %u rows (expected head_dim, %llu)",
                i / per, i % per + 2, b[2].rows, (unsigned long long)d);
}

static size_t
count_bad(const struct kvc *k, size_t offset, size_t n)
{
    size_t n_bad = 0;

    for (size_t j = 0; j < n; j++)
        n_bad += !isfinite(dtype_get(k->dtype, k->map.data + offset, j));
    return n_bad;
}

int
kvc_check(const struct kvc *k, size_t n_layers,
          void (*report)(void *ctx, const char *what), void *ctx)
{
    struct kvc_checker c = {
        .header = &k->header, .path = k->path, .report = report, .ctx = ctx
    };
    size_t per = k->header.weight_count_per_layer;

    if (n_layers && k->header.num_layers != n_layers)
        problem(&c, "has %u layers (expected the model's %zu)",
                k->header.num_layers, n_layers);
    kvc_check_header(&c, k->blocks[0].cols);
    if (k->end != k->map.size)
        problem(&c, "%zu byte%s after the last block", k->map.size - k->end,
                plural(k->map.size - k->end));
    for (size_t i = 0; i < k->n_blocks; i++) {
        const struct kvc_block *b = &k->blocks[i];

        kvc_check_block(&c, i, b,
                        count_bad(k, b->weight, (size_t)b->rows * b->cols) +
                            count_bad(k, b->bias, b->has_bias ? b->rows : 0));
        if (i % per % KVC_SLOTS == 0 && i % per + KVC_SLOTS <= per)
            kvc_check_mlp(&c, i, b);
    }
    return (int)c.n;
}
