/* SPDX-License-Identifier: ISC */
/* Converts a .bin to safetensors with the names of a state dict; what names do
 * not say goes to __metadata__, so that converting back gives the same file. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/kvc-convert/source.h"
#include "core/format/st.h"
#include "core/format/stw.h"
#include "core/mem.h"
#include "core/str.h"
#include "core/tty.h"

#define ENTRY_NBYTES 64 /* a header has more than that for each tensor */

/* Refuses what no loader reads, and what safetensors cannot keep. */
static int
check_lossless(const struct order *o, const struct kvc *k, struct err *err)
{
    const struct kvc_header *h = &k->header;

    for (size_t i = 0; i < k->n_blocks; i++)
        if (k->blocks[i].has_bias > 1)
            return err_data(err, k->path,
                            "block %zu has has_bias %u (expected 0 or 1)", i,
                            k->blocks[i].has_bias);
    if (k->end != k->map.size)
        return err_data(err, k->path, "%zu byte%s after the last block",
                        k->map.size - k->end, plural(k->map.size - k->end));
    if (h->reserved)
        return err_data(err, k->path, "reserved is %u (expected 0)",
                        h->reserved);
    if (h->weight_count_per_layer % KVC_SLOTS)
        return err_data(err, k->path,
                        "%u blocks a layer (expected %d a prefix)",
                        h->weight_count_per_layer, KVC_SLOTS);
    if (h->metadata_size > ST_MAX_HEADER / 2) /* two digits a byte */
        return err_data(err, k->path,
                        "metadata of %u bytes (expected at most %u, for the "
                        "header of safetensors)",
                        h->metadata_size, (unsigned)(ST_MAX_HEADER / 2));
    if (k->n_blocks > ST_MAX_HEADER / ENTRY_NBYTES)
        return err_data(err, k->path,
                        "%zu blocks (expected at most %u, for the header of "
                        "safetensors)",
                        k->n_blocks, (unsigned)(ST_MAX_HEADER / ENTRY_NBYTES));
    if (h->weight_count_per_layer != o->n_prefixes * KVC_SLOTS)
        return err_data(err, k->path,
                        "%u blocks a layer, but --prefix-order names %zu "
                        "(expected %u prefixes)",
                        h->weight_count_per_layer, o->n_prefixes,
                        h->weight_count_per_layer / KVC_SLOTS);
    if (h->hidden_size != k->blocks[0].cols)
        return err_data(err, k->path,
                        "hidden_size is %u, but the first block has %u columns",
                        h->hidden_size, k->blocks[0].cols);
    return 0;
}

/* What the names do not say goes to __metadata__. */
static void
add_meta(struct stw *w, const struct order *o, const struct kvc *k)
{
    const struct kvc_header *h = &k->header;
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = { { "kvc.num_heads", h->num_heads },
                    { "kvc.head_dim", h->head_dim },
                    { "kvc.compression_factor", h->compression_factor },
                    { "kvc.min_seq_len", h->min_seq_len } };
    struct str s = { 0 };

    stw_meta(w, "format", "pt");
    stw_meta(w, "kvc.dtype", dtype_table[k->dtype].name);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        str_clear(&s);
        str_addf(&s, "%u", numbers[i].value);
        stw_meta(w, numbers[i].key, s.s);
    }
    str_clear(&s);
    for (size_t i = 0; i < o->n_prefixes; i++)
        str_addf(&s, "%s%s", i ? "," : "", o->prefixes[i]);
    stw_meta(w, "kvc.prefix_order", s.s);
    str_clear(&s);
    for (size_t i = 0; i < KVC_SLOTS; i++)
        str_addf(&s, "%s%s", i ? "," : "", o->slots[i]);
    stw_meta(w, "kvc.slot_order", s.s);
    str_clear(&s);
    for (size_t i = 0; i < h->metadata_size; i++)
        str_addf(&s, "%02x", k->map.data[KVC_HEADER_BYTES + i]);
    if (s.n)
        stw_meta(w, "kvc.metadata", s.s);
    str_free(&s);
}

/* Adds the weight of block i, or its bias; returns a handle, or -1. */
static int
add_tensor(struct stw *w, const struct order *o, const struct kvc *k, size_t i,
           bool bias, struct err *err)
{
    const struct kvc_block *b = &k->blocks[i];
    const uint64_t shape[] = { b->rows, b->cols };
    size_t per = o->n_prefixes * KVC_SLOTS;
    struct str name = { 0 };
    int handle;

    str_addf(&name, "%s.%zu.%s.%s", o->prefixes[i % per / KVC_SLOTS], i / per,
             o->slots[i % KVC_SLOTS], bias ? "bias" : "weight");
    handle = stw_add(w, name.s, k->dtype, bias ? 1 : 2, shape, err);
    str_free(&name);
    return handle;
}

int
back(const struct convert_cmd *cmd, struct err *err)
{
    const char *prefixes = cmd->prefix_order, *slots = cmd->slot_order;
    struct stw *w = stw_new();
    struct order o = { 0 };
    struct kvc k = { 0 };
    int(*handles)[2] = NULL; /* of a block's weight and bias */
    size_t n, item;
    int rc = -1;

    if (kvc_open(&k, cmd->input, err) < 0 ||
        order_read(&o, prefixes ? prefixes : DEFAULT_PREFIXES,
                   slots ? slots : DEFAULT_SLOTS, err) < 0)
        goto out;
    /* the default names four prefixes; a file for text has two of them */
    n = k.header.weight_count_per_layer / KVC_SLOTS;
    if (!prefixes && n > 0 && n < o.n_prefixes)
        o.n_prefixes = n;
    rc = check_lossless(&o, &k, err);
    if (rc < 0)
        goto out;
    add_meta(w, &o, &k);
    handles = xcalloc(k.n_blocks, sizeof(*handles));
    for (size_t i = 0; i < k.n_blocks && rc == 0; i++) {
        handles[i][0] = add_tensor(w, &o, &k, i, false, err);
        if (handles[i][0] >= 0 && k.blocks[i].has_bias)
            handles[i][1] = add_tensor(w, &o, &k, i, true, err);
        rc = handles[i][0] < 0 || handles[i][1] < 0 ? -1 : 0;
    }
    if (rc == 0)
        rc = stw_open(w, cmd->output, cmd->out_flags, err);
    item = dtype_size(k.dtype);
    for (size_t i = 0; i < k.n_blocks && rc == 0; i++) {
        const struct kvc_block *b = &k.blocks[i];

        rc = stw_write_mapped(w, handles[i][0], k.map.data + b->weight,
                              b->bias - b->weight, 0, err);
        if (rc == 0 && b->has_bias)
            rc = stw_write_mapped(w, handles[i][1], k.map.data + b->bias,
                                  b->rows * item, 0, err);
    }
    if (rc == 0)
        rc = stw_commit(w, err);
out:
    free(handles);
    order_free(&o);
    stw_free(w);
    kvc_close(&k);
    return rc;
}
