/* SPDX-License-Identifier: ISC */
/* A state dict's linear layers, in the order of the options, to .bin. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/kvc-convert/source.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/tool.h"
#include "core/tty.h"

#define PIECE      ((size_t)64 << 10) /* elements converted at a time */
#define LISTED_MAX 4                  /* names in a warning */

struct plan {
    const struct convert_cmd *cmd;
    struct order order;
    struct weight_source src;
    struct kvc_header header;
    enum dtype dtype;
    struct str metadata;
    void *raw, *rounded; /* [PIECE] of 8 and of 4 bytes */
    float *f32;
    struct out *out;
    size_t n_blocks, nbytes; /* of the output, and of its numbers */
    struct kvc_checker checker;
    struct str problem; /* the first that --check will have */
};

static void
keep_first(void *ctx, const char *what)
{
    struct str *problem = ctx;

    if (problem->n == 0)
        str_adds(problem, what);
}

/* The layer of "STRIP PREFIX.LAYER.REST", which has a dot in REST, or -1; of a
 * number beyond that, UINT32_MAX or more. */
static int64_t
layer_of(const struct plan *p, const char *name, size_t n, const char **rest)
{
    size_t strip = strlen(p->src.strip);

    if (n < strip || memcmp(name, p->src.strip, strip) != 0)
        return -1;
    for (size_t i = 0; i < p->order.n_prefixes; i++) {
        const char *prefix = p->order.prefixes[i], *end = name + n;
        size_t n_prefix = strlen(prefix), skip = strip + n_prefix + 1;
        const char *digits = name + smaller(n, skip), *at = digits;
        int64_t layer = 0;

        if (n <= skip || memcmp(name + strip, prefix, n_prefix) != 0 ||
            at[-1] != '.')
            continue;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            if (layer < UINT32_MAX)
                layer = 10 * layer + (*at - '0');
        if (at > digits && at < end && *at == '.' &&
            memchr(at + 1, '.', (size_t)(end - at) - 1)) {
            *rest = at + 1;
            return layer;
        }
    }
    return -1;
}

/* Used is a weight or bias in the order, as find_layer() spells it: 01 names a
 * layer, but is not spelled so.  What else a converted layer has may change
 * what it computes: a norm between its matrices, a scale. */
enum name_role { IS_IGNORED, IS_USED, IS_OF_USED };

static enum name_role
role_of(const struct plan *p, const char *name, size_t n)
{
    const char *rest, *end = name + n;
    int64_t layer = layer_of(p, name, n, &rest);
    char number[32];
    size_t n_number =
        (size_t)snprintf(number, sizeof(number), ".%lld.", (long long)layer);

    if (layer < 0)
        return IS_IGNORED;
    if (memcmp(rest - n_number, number, n_number) != 0)
        return IS_OF_USED;
    for (size_t i = 0; i < KVC_SLOTS; i++) {
        size_t n_slot = strlen(p->order.slots[i]);
        const char *kind = rest + n_slot + 1;

        if (kind < end && !memcmp(rest, p->order.slots[i], n_slot) &&
            kind[-1] == '.')
            return (end - kind == 6 && !memcmp(kind, "weight", 6)) ||
                           (end - kind == 4 && !memcmp(kind, "bias", 4))
                       ? IS_USED
                       : IS_OF_USED;
    }
    return IS_OF_USED;
}

/* Scales of a quantized weight, masks and adapters: NAME.SCB, .weight_scale,
 * .weight.absmax, .weight_mask, .lora_A.weight change NAME.weight; and layers
 * that the order does not name. */
static void
warn_changed(const struct plan *p)
{
    struct str names = { 0 };
    size_t n, n_found = 0;

    for (size_t i = 0; i < source_n(&p->src); i++) {
        const char *name = source_name(&p->src, i, &n);

        if (role_of(p, name, n) == IS_OF_USED && n_found++ < LISTED_MAX)
            str_addf(&names, "%s%.*s", names.n ? ", " : "", (int)n, name);
    }
    if (n_found)
        err_warn("%s: %zu tensor%s that may change a converted layer, "
                 "ignored: %s%s",
                 p->src.path, n_found, plural(n_found), names.s,
                 n_found > LISTED_MAX ? ", .." : "");
    str_free(&names);
}

/* Refuses what is not a tensor of numbers, and says what it is. */
static int
check_numbers(const struct plan *p, const char *name,
              const struct source_tensor *t, struct err *err)
{
    if (t->other) { /* text, a list, quantized, sparse, ... */
        const struct pth_global *g =
            t->other->kind == PTH_OPAQUE || t->other->kind == PTH_GLOBAL
                ? t->other->u.global
                : NULL;

        if (!g)
            return err_data(err, p->src.path, "%s is not a tensor", name);
        return err_data(err, p->src.path,
                        "%s is made by %.100s.%.100s, named at byte %zu "
                        "(expected a plain tensor)",
                        name, g->module, g->name, g->at);
    }
    if (dtype_table[t->dtype].bits < 8 ||
        dtype_table[t->dtype].kind == DK_COMPLEX)
        return err_data(err, p->src.path, "%s is %s (expected numbers)", name,
                        dtype_table[t->dtype].name);
    return 0;
}

/* Finds a weight; -1 with 'err' set: missing, or its shape is wrong. */
static int
find_weight(const struct plan *p, const char *name, struct source_tensor *t,
            struct err *err)
{
    if (!source_find(&p->src, name, t) && !t->other) {
        struct str text = { 0 };

        source_hint(&p->src, &p->order, &text);
        err_data(err, p->src.path, "tensor %s%s is missing%s", p->src.strip,
                 name, text.n ? text.s : "");
        str_free(&text);
        return -1;
    }
    if (check_numbers(p, name, t, err) < 0)
        return -1;
    if (t->n_dims != 2)
        return err_data(err, p->src.path, "%s has %zu dim%s (expected 2)", name,
                        t->n_dims, plural(t->n_dims));
    if (t->shape[0] == 0 || t->shape[1] == 0 || t->shape[0] > UINT32_MAX ||
        t->shape[1] > UINT32_MAX)
        return err_data(err, p->src.path,
                        "%s is %llu x %llu (expected 1 to %u)", name,
                        (unsigned long long)t->shape[0],
                        (unsigned long long)t->shape[1], UINT32_MAX);
    return 0;
}

/* Writes a tensor's numbers, of any dtype, as f16, bf16 or f32 by way of f32,
 * as torch's to() converts them; NaN of the same dtype keep their bits. */
static int
put_numbers(struct plan *p, const struct source_tensor *t, size_t *n_bad,
            struct err *err)
{
    size_t item = dtype_size(p->dtype);
    /* NaN and infinities have ones in all bits of the exponent */
    uint32_t ones = p->dtype == DT_F32    ? 0x7f800000
                    : p->dtype == DT_BF16 ? 0x7f80
                                          : 0x7c00;
    bool same = p->dtype == t->dtype;

    for (size_t at = 0, n; at < t->n_elements; at += n) {
        const uint8_t *raw = p->raw, *to = same ? p->raw : p->rounded;

        n = smaller(t->n_elements - at, PIECE);
        if (source_read(&p->src, t, at, n, p->raw, err) < 0)
            return -1;
        if (!same && dtype_computes(t->dtype))
            cvt_to_f32(p->f32, raw, t->dtype, n);
        else if (!same)
            for (size_t i = 0; i < n; i++) /* 64-bit integers in one rounding */
                p->f32[i] =
                    t->dtype == DT_I64   ? (float)(int64_t)le64(raw + 8 * i)
                    : t->dtype == DT_U64 ? (float)le64(raw + 8 * i)
                                         : (float)dtype_get(t->dtype, raw, i);
        if (!same)
            cvt_from_f32(p->rounded, p->dtype, p->f32, n);
        for (size_t i = 0; i < n && item == 4; i++)
            *n_bad += (le32(to + 4 * i) & ones) == ones;
        for (size_t i = 0; i < n && item == 2; i++)
            *n_bad += (le16(to + 2 * i) & ones) == ones;
        if (out_write(p->out, to, n * item, err) < 0)
            return -1;
    }
    return 0;
}

/* Finds a linear layer's weight and bias: 1, 0 without a bias, or -1 with 'err'
 * set. */
static int
find_layer(const struct plan *p, const char *prefix, size_t layer,
           const char *slot, struct source_tensor *w, struct source_tensor *b,
           struct err *err)
{
    struct str name = { 0 };
    int rc;

    str_addf(&name, "%s.%zu.%s.weight", prefix, layer, slot);
    rc = find_weight(p, name.s, w, err);
    str_clear(&name);
    str_addf(&name, "%s.%zu.%s.bias", prefix, layer, slot);
    if (rc == 0 && (source_find(&p->src, name.s, b) || b->other))
        rc = check_numbers(p, name.s, b, err) < 0 ? -1 : 1;
    if (rc > 0 && b->n_elements != w->shape[0])
        rc = err_data(err, p->src.path,
                      "%s has %llu number%s (expected %llu, the rows of its "
                      "weight)",
                      name.s, (unsigned long long)b->n_elements,
                      plural(b->n_elements), (unsigned long long)w->shape[0]);
    str_free(&name);
    return rc;
}

/* Adds the bytes of a tensor's numbers to the output; a sum beyond 64 bits
 * becomes SIZE_MAX. */
static void
plan_tensor(struct plan *p, const struct source_tensor *t)
{
    size_t nbytes;

    if (!size_mul(t->n_elements, dtype_size(p->dtype), &nbytes) ||
        !size_add(p->nbytes, nbytes, &p->nbytes))
        p->nbytes = SIZE_MAX;
}

/* Finds all blocks in the order of the file, and adds up their sizes or, with
 * 'write', writes and checks them. */
static int
each_block(struct plan *p, bool write, struct err *err)
{
    const struct order *o = &p->order;
    size_t per = p->header.weight_count_per_layer;
    size_t n = p->header.num_layers * per;
    struct kvc_block mlp[KVC_SLOTS];

    for (size_t i = 0; i < n; i++) {
        struct kvc_block *k = &mlp[i % KVC_SLOTS];
        unsigned char head[KVC_BLOCK_BYTES];
        struct source_tensor w, b;
        size_t n_bad = 0;
        int has_bias = find_layer(p, o->prefixes[i % per / KVC_SLOTS], i / per,
                                  o->slots[i % KVC_SLOTS], &w, &b, err);

        if (has_bias < 0)
            return -1;
        if (!write) {
            plan_tensor(p, &w);
            if (has_bias)
                plan_tensor(p, &b);
            p->n_blocks++;
            continue;
        }
        *k = (struct kvc_block){ .rows = (uint32_t)w.shape[0],
                                 .cols = (uint32_t)w.shape[1],
                                 .has_bias = (uint32_t)has_bias };
        kvc_put_block(head, k->rows, k->cols, has_bias);
        if (out_write(p->out, head, sizeof(head), err) < 0 ||
            put_numbers(p, &w, &n_bad, err) < 0 ||
            (has_bias && put_numbers(p, &b, &n_bad, err) < 0))
            return -1;
        kvc_check_block(&p->checker, i, k, n_bad);
        if (k == &mlp[KVC_SLOTS - 1])
            kvc_check_mlp(&p->checker, i + 1 - KVC_SLOTS, mlp);
    }
    return 0;
}

/*
 * Numbers that are stored once can be viewed many times, by expand() and by
 * tensors that share a storage.  A byte becomes four in f32; more than that,
 * and some room for small views, would fill the disk with the same numbers.
 */
#define VIEW_RATIO 4
#define VIEW_EXTRA ((size_t)64 << 20)

static int
check_views(const struct plan *p, struct err *err)
{
    size_t stored = p->src.nbytes, most = SIZE_MAX / 2;

    if (!p->cmd->allow_views && stored < (most - VIEW_EXTRA) / VIEW_RATIO)
        most = VIEW_RATIO * stored + VIEW_EXTRA;
    if (p->nbytes <= most)
        return 0;
    return err_data(err, p->src.path,
                    "%zu weight%s become %zu bytes, but only %zu are stored "
                    "(expected at most %zu%s)",
                    p->n_blocks, plural(p->n_blocks), p->nbytes, stored, most,
                    p->cmd->allow_views ? "" : ", or --allow-views");
}

/* A header field: from the option, from what the safetensors came from, or
 * the default. */
static int
read_field(const struct plan *p, int64_t option, const char *key,
           uint32_t unset, uint32_t *v, struct err *err)
{
    const char *text = source_meta(&p->src, key);
    unsigned long long n;
    char *end;

    *v = option >= 0 ? (uint32_t)option : unset;
    if (option >= 0 || !text)
        return 0;
    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno || *end || end == text || n > UINT32_MAX)
        return err_data(err, p->src.path,
                        "__metadata__ %s is \"%s\" (expected a number)", key,
                        text);
    *v = (uint32_t)n;
    return 0;
}

static int
hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The metadata area: what a .bin had before, or the source of this one. */
static int
plan_metadata(struct plan *p, struct err *err)
{
    const char *hex = source_meta(&p->src, "kvc.metadata");

    if (p->cmd->provenance) {
        str_adds(&p->metadata,
                 "{\"tool\": \"kvc-convert " VERSION "\", \"source\": ");
        js_put_str(&p->metadata, p->src.path, strlen(p->src.path));
        str_adds(&p->metadata, ", \"order\": \"");
        for (size_t i = 0; i < p->order.n_prefixes; i++)
            str_addf(&p->metadata, "%s%s", i ? "," : "", p->order.prefixes[i]);
        str_adds(&p->metadata, "\"}");
    } else {
        for (; hex && *hex; hex += 2) {
            int high = hex_digit(hex[0]);
            int low = high < 0 ? -1 : hex_digit(hex[1]);

            if (low < 0)
                return err_data(err, p->src.path,
                                "__metadata__ kvc.metadata is not hexadecimal");
            str_addc(&p->metadata, (char)(high << 4 | low));
        }
    }
    p->header.metadata_size = (uint32_t)p->metadata.n;
    return 0;
}

/*
 * head_dim where nothing says it: the rows of the MLP's last weight, that of
 * the highest slot.  The engine's script uses the rows of the first one, which
 * its loader then refuses if they differ; they remain where the last one's do
 * not divide the columns of the first.
 */
static uint32_t
guess_head_dim(const struct plan *p, const struct source_tensor *first)
{
    const char *last = p->order.slots[0];
    struct source_tensor w;
    struct str name = { 0 };
    struct err err = { 0 };
    uint64_t rows = first->shape[0];

    for (size_t i = 1; i < KVC_SLOTS; i++) {
        const char *slot = p->order.slots[i];
        size_t n = strlen(slot), n_last = strlen(last);

        /* digits without leading zeros */
        if (n != n_last ? n > n_last : strcmp(slot, last) > 0)
            last = slot;
    }
    str_addf(&name, "%s.0.%s.weight", p->order.prefixes[0], last);
    if (find_weight(p, name.s, &w, &err) == 0 &&
        first->shape[1] % w.shape[0] == 0)
        rows = w.shape[0];
    str_free(&name);
    return (uint32_t)rows;
}

/* Layers are counted by their names, hidden_size is the first weight's. */
static int
plan_header(struct plan *p, struct err *err)
{
    const struct convert_cmd *cmd = p->cmd;
    struct kvc_header *h = &p->header;
    struct str name = { 0 };
    struct source_tensor w;
    int64_t last = -1;
    uint32_t factor = 0;
    bool known, kept; /* what a .bin's header said is kept */
    int rc;

    for (size_t i = 0; i < source_n(&p->src); i++) {
        size_t n;
        const char *s = source_name(&p->src, i, &n), *rest;
        int64_t layer = layer_of(p, s, n, &rest);

        if (layer >= UINT32_MAX)
            return err_data(err, p->src.path, "%.*s is of a layer beyond %u",
                            (int)n, s, UINT32_MAX - 1);
        last = layer > last ? layer : last;
    }
    if (last < 0) {
        source_hint(&p->src, &p->order, &name);
        err_data(err, p->src.path, "has no %s.LAYER.SLOT.weight (of %zu %s)%s",
                 p->order.prefixes[0], source_n(&p->src),
                 source_n(&p->src) == 1 ? "name" : "names",
                 name.n ? name.s : "");
        str_free(&name);
        return -1;
    }
    h->num_layers = (uint32_t)last + 1;
    str_addf(&name, "%s.0.%s.weight", p->order.prefixes[0], p->order.slots[0]);
    rc = find_weight(p, name.s, &w, err);
    str_free(&name);
    if (rc < 0 ||
        read_field(p, cmd->num_heads, "kvc.num_heads", 0, &h->num_heads, err) <
            0 ||
        read_field(p, cmd->head_dim > 0 ? cmd->head_dim : -1, "kvc.head_dim",
                   guess_head_dim(p, &w), &h->head_dim, err) < 0 ||
        read_field(p, cmd->min_seq_len, "kvc.min_seq_len", 2, &h->min_seq_len,
                   err) < 0 ||
        read_field(p, cmd->factor > 0 ? cmd->factor : -1,
                   "kvc.compression_factor", 0, &factor, err) < 0)
        return -1;
    h->dtype_code = (uint16_t)kvc_code(p->dtype);
    h->hidden_size = (uint32_t)w.shape[1];
    h->weight_count_per_layer = (uint32_t)p->order.n_prefixes * KVC_SLOTS;
    known = factor || source_meta(&p->src, "kvc.compression_factor");
    kept = cmd->head_dim <= 0 && source_meta(&p->src, "kvc.head_dim");
    if (!(known && kept) &&
        (h->head_dim == 0 || h->hidden_size % h->head_dim != 0))
        return err_data(err, p->src.path,
                        "the first weight has %u column%s, which head_dim %u "
                        "does not divide (--head-dim)",
                        h->hidden_size, plural(h->hidden_size), h->head_dim);
    h->compression_factor = known ? factor : h->hidden_size / h->head_dim;
    return plan_metadata(p, err);
}

/* -v: names that were used or ignored, and what the pickle would have called.
 */
static void
say_all(const struct plan *p, bool done)
{
    const struct kvc_header *h = &p->header;
    size_t n, n_used = 0, n_names = source_n(&p->src);

    if (done)
        tool_say("%s: %u layer%s of %u block%s, %s, compression_factor %u, "
                 "head_dim %u, min_seq_len %u",
                 p->cmd->output, h->num_layers, plural(h->num_layers),
                 h->weight_count_per_layer, plural(h->weight_count_per_layer),
                 dtype_table[p->dtype].name, h->compression_factor, h->head_dim,
                 h->min_seq_len);
    for (size_t i = 0; i < n_names; i++) {
        const char *name = source_name(&p->src, i, &n);
        bool used = role_of(p, name, n) == IS_USED;

        n_used += used;
        if (n > 0)
            tool_say("%s: %.*s", used ? "used" : "ignored", (int)n, name);
    }
    tool_say("%s: %zu tensor%s used, %zu ignored", p->src.path, n_used,
             plural(n_used), n_names - n_used);
    for (const struct pth_global *g = p->src.pth.pickle.globals; g; g = g->next)
        tool_say("global: %s.%s at byte %zu, not called", g->module, g->name,
                 g->at);
}

static const char *
first_of(const char *a, const char *b, const char *c)
{
    return a ? a : b ? b : c;
}

int
convert(const struct convert_cmd *cmd, struct err *err)
{
    struct plan plan = { .cmd = cmd }, *p = &plan;
    unsigned char head[KVC_HEADER_BYTES];
    const char *prefixes, *slots, *was;
    int rc = -1;

    if (source_open(&p->src, cmd, err) < 0)
        goto out;
    /* from the options, else from the .bin it comes from, else the script's */
    was = source_meta(&p->src, "kvc.dtype");
    p->dtype = cmd->dtype >= 0               ? (enum dtype)cmd->dtype
               : was && !strcmp(was, "BF16") ? DT_BF16
               : was && !strcmp(was, "F32")  ? DT_F32
                                             : DT_F16;
    prefixes =
        first_of(cmd->prefix_order, source_meta(&p->src, "kvc.prefix_order"),
                 DEFAULT_PREFIXES);
    slots = first_of(cmd->slot_order, source_meta(&p->src, "kvc.slot_order"),
                     DEFAULT_SLOTS);
    if (order_read(&p->order, prefixes, slots, err) < 0) {
        /* main.c has checked the options: what is wrong is the file's */
        err_data(err, p->src.path,
                 "__metadata__ kvc.prefix_order is \"%s\", kvc.slot_order "
                 "\"%s\" (expected 1 to %d names, %d numbers)",
                 prefixes, slots, MAX_PREFIXES, KVC_SLOTS);
        goto out;
    }
    if (source_settle(&p->src, &p->order, cmd->strict, err) < 0 ||
        plan_header(p, err) < 0 ||
        out_open(&p->out, cmd->output, cmd->out_flags, true, err) < 0)
        goto out;
    p->raw = xmalloc(PIECE * 8);
    p->rounded = xmalloc(PIECE * 4);
    p->f32 = xmalloc(PIECE * 4);
    kvc_put_header(head, &p->header);
    p->checker = (struct kvc_checker){ .header = &p->header,
                                       .report = keep_first,
                                       .ctx = &p->problem };
    kvc_check_header(&p->checker, p->header.hidden_size);
    /* missing tensors and a disk that is too small are reported before work */
    if (each_block(p, false, err) < 0 || check_views(p, err) < 0 ||
        out_reserve(p->out,
                    sizeof(head) + p->header.metadata_size +
                        p->n_blocks * KVC_BLOCK_BYTES + p->nbytes,
                    err) < 0 ||
        out_write(p->out, head, sizeof(head), err) < 0 ||
        out_write(p->out, p->metadata.s, p->metadata.n, err) < 0 ||
        each_block(p, true, err) < 0)
        out_abort(p->out);
    else
        rc = out_commit(p->out, err);
    if (rc == 0)
        warn_changed(p);
    if (rc == 0 && p->checker.n == 1)
        err_warn("%s: --check will refuse it: %s", cmd->output, p->problem.s);
    else if (rc == 0 && p->checker.n > 1)
        err_warn("%s: --check will refuse it: %s, and %zu more", cmd->output,
                 p->problem.s, p->checker.n - 1);
out:
    if (cmd->verbose && source_n(&p->src))
        say_all(p, rc == 0); /* also after a failure */
    source_close(&p->src);
    order_free(&p->order);
    str_free(&p->metadata);
    str_free(&p->problem);
    free(p->raw);
    free(p->rounded);
    free(p->f32);
    return rc;
}
