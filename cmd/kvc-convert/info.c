/* SPDX-License-Identifier: ISC */
/* --info, --check and --diff: what a .bin says, whether engines can use it, and
 * how far two of them are apart. */
#include <math.h>
#include <string.h>

#include "cmd/kvc-convert/cmd.h"
#include "core/format/kvc.h"
#include "core/hash.h"
#include "core/js.h"
#include "core/le.h"
#include "core/tool.h"

#define PIECE ((size_t)64 << 10) /* bytes printed at once */

/* Prints a long answer in pieces, so that it need not fit in memory. */
static void
print_some(struct str *s)
{
    if (s->n < PIECE)
        return;
    tool_put("%s", s->s);
    str_clear(s);
}

/* Prints the rest of the answer. */
static int
answer(struct str *s, int status)
{
    tool_put("%s", s->s ? s->s : "");
    str_free(s);
    return status;
}

int
info(const struct convert_cmd *cmd, struct err *err)
{
    struct str s = { 0 };
    const char *type;
    size_t per, bits;
    struct kvc k;

    if (cmd->n_args != 1)
        return err_set(err, TU_USAGE, "--info takes one FILE.bin");
    if (kvc_open(&k, cmd->args[0], err) < 0)
        return -1;
    per = k.header.weight_count_per_layer;
    type = dtype_table[k.dtype].name;
    bits = dtype_table[k.dtype].bits;
    if (cmd->json) {
        str_adds(&s, "{\"file\":");
        js_put_str(&s, k.path, strlen(k.path));
        str_addf(&s, ",\"version\":%d,\"dtype\":\"%s\"", KVC_VERSION, type);
    } else {
        str_addf(&s, "version\t%d\ndtype\t%s\n", KVC_VERSION, type);
    }
    for (size_t i = 0; i < KVC_N_FIELDS; i++)
        str_addf(&s, cmd->json ? ",\"%s\":%u" : "%s\t%u\n", kvc_fields[i].name,
                 kvc_field(&k.header, i));
    if (cmd->json) {
        str_adds(&s, ",\"metadata\":");
        js_put_str(&s, (const char *)k.map.data + KVC_HEADER_BYTES,
                   k.header.metadata_size);
        str_addf(&s, ",\"nbytes\":%zu,\"blocks\":[", k.map.size);
    } else {
        str_addf(&s,
                 "nbytes\t%zu\n\n"
                 "layer\tblock\trows\tcols\tbias\toffset\txxh3\n",
                 k.map.size);
    }
    for (size_t i = 0; i < k.n_blocks; i++) {
        const struct kvc_block *b = &k.blocks[i];
        struct hash *h = hash_new(HASH_XXH3);
        char hex[HASH_MAX_HEX];

        hash_add(h, k.map.data + b->weight,
                 b->bias - b->weight + (b->has_bias ? b->rows * bits / 8 : 0));
        hash_end(h, hex);
        if (cmd->json)
            str_adds(&s, i ? ",\n" : "\n");
        str_addf(&s,
                 cmd->json ? "{\"layer\":%zu,\"block\":%zu,\"rows\":%u,"
                             "\"cols\":%u,\"has_bias\":%u,\"offset\":%zu,"
                             "\"xxh3\":\"%s\"}"
                           : "%zu\t%zu\t%u\t%u\t%u\t%zu\t%s\n",
                 i / per, i % per, b->rows, b->cols, b->has_bias, b->at, hex);
        print_some(&s);
    }
    if (cmd->json)
        str_adds(&s, "]}\n");
    kvc_close(&k);
    return answer(&s, 0);
}

static void
keep_line(void *ctx, const char *what)
{
    struct str *s = ctx;

    str_esc(s, what, strlen(what));
    str_addc(s, '\n');
    print_some(s);
}

int
check(const struct convert_cmd *cmd, struct err *err)
{
    struct str s = { 0 };
    struct err bad = { 0 };
    int n_bad = 0;

    if (cmd->n_args == 0)
        return err_set(err, TU_USAGE, "--check takes FILE.bin...");
    for (int i = 0; i < cmd->n_args; i++) {
        struct kvc k;

        if (kvc_open(&k, cmd->args[i], &bad) == 0) {
            n_bad += kvc_check(&k, (size_t)cmd->layers, keep_line, &s);
            kvc_close(&k);
        } else if (bad.status == EX_DATAERR) {
            keep_line(&s, bad.what);
            n_bad++;
        } else {
            *err = bad;
            str_free(&s);
            return -1;
        }
    }
    return answer(&s, n_bad ? TU_NEGATIVE : 0);
}

/* An integer that orders floats: neighbours differ by 1, and -0 is 0. */
static int64_t
rank(const struct kvc *k, size_t offset, size_t i)
{
    const uint8_t *p = k->map.data + offset;
    unsigned bits = dtype_table[k->dtype].bits;
    uint32_t u = bits == 32 ? le32(p + 4 * i) : le16(p + 2 * i);
    uint32_t sign = u >> (bits - 1);
    int64_t size = u & ((1ull << (bits - 1)) - 1);

    return sign ? -size : size;
}

struct distance {
    size_t n, n_differ, n_nan; /* NaN on one side only */
    int64_t max_ulp;
    double max_abs;
};

static void
measure(struct distance *d, const struct kvc *a, size_t a_at,
        const struct kvc *b, size_t b_at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = dtype_get(a->dtype, a->map.data + a_at, i);
        double y = dtype_get(b->dtype, b->map.data + b_at, i);
        int64_t ulp;

        d->n++;
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        d->n_differ++;
        if (isnan(x) || isnan(y)) {
            d->n_nan++;
            continue;
        }
        d->max_abs = fmax(d->max_abs, fabs(x - y));
        if (a->dtype != b->dtype)
            continue;
        ulp = rank(a, a_at, i) - rank(b, b_at, i);
        ulp = ulp < 0 ? -ulp : ulp;
        d->max_ulp = ulp > d->max_ulp ? ulp : d->max_ulp;
    }
}

/* Adds the row of a pair of blocks: how far apart, or both shapes.  Returns 1
 * if they differ. */
static int
diff_block(struct str *s, const struct kvc *a, const struct kvc *b, size_t i)
{
    const struct kvc_block *x = &a->blocks[i], *y = &b->blocks[i];
    size_t per = a->header.weight_count_per_layer;
    struct distance d = { 0 };

    str_addf(s, "%zu\t%zu\t", i / per, i % per);
    if (x->rows != y->rows || x->cols != y->cols ||
        !x->has_bias != !y->has_bias) {
        str_addf(s, "shape\t%ux%u%s\t%ux%u%s\t-\t-\n", x->rows, x->cols,
                 x->has_bias ? "+bias" : "", y->rows, y->cols,
                 y->has_bias ? "+bias" : "");
        return 1;
    }
    measure(&d, a, x->weight, b, y->weight, (size_t)x->rows * x->cols);
    if (x->has_bias)
        measure(&d, a, x->bias, b, y->bias, x->rows);
    str_addf(s, "%s\t%zu\t%zu\t", d.n_differ ? "differs" : "same", d.n,
             d.n_differ);
    if (d.n_nan)
        str_adds(s, "nan\tnan\n");
    else if (a->dtype != b->dtype)
        str_addf(s, "-\t%.6g\n", d.max_abs);
    else
        str_addf(s, "%lld\t%.6g\n", (long long)d.max_ulp, d.max_abs);
    return d.n_differ > 0;
}

int
diff(const struct convert_cmd *cmd, struct err *err)
{
    struct str s = { 0 };
    struct kvc a, b;
    const struct kvc_header *x = &a.header, *y = &b.header;
    int n = 0;

    if (cmd->n_args != 2)
        return err_set(err, TU_USAGE, "--diff takes two FILE.bin");
    if (kvc_open(&a, cmd->args[0], err) < 0)
        return -1;
    if (kvc_open(&b, cmd->args[1], err) < 0) {
        kvc_close(&a);
        return -1;
    }
    str_adds(&s, "field\ta\tb\n");
    if (a.dtype != b.dtype) {
        str_addf(&s, "dtype\t%s\t%s\n", dtype_table[a.dtype].name,
                 dtype_table[b.dtype].name);
        n++;
    }
    for (size_t i = 0; i < KVC_N_FIELDS; i++)
        if (kvc_field(x, i) != kvc_field(y, i)) {
            str_addf(&s, "%s\t%u\t%u\n", kvc_fields[i].name, kvc_field(x, i),
                     kvc_field(y, i));
            n++;
        }
    if (x->reserved != y->reserved) {
        str_addf(&s, "reserved\t%u\t%u\n", x->reserved, y->reserved);
        n++;
    }
    if (x->metadata_size == y->metadata_size &&
        memcmp(a.map.data + KVC_HEADER_BYTES, b.map.data + KVC_HEADER_BYTES,
               x->metadata_size)) {
        str_adds(&s, "metadata\tdiffers\tdiffers\n");
        n++;
    }
    str_adds(&s, "\nlayer\tblock\tresult\tnumbers\tdiffer\tmax_ulp\tmax_abs\n");
    /* blocks are compared one by one, if that means the same in both */
    if (x->num_layers == y->num_layers &&
        x->weight_count_per_layer == y->weight_count_per_layer)
        for (size_t i = 0; i < a.n_blocks; i++) {
            n += diff_block(&s, &a, &b, i);
            print_some(&s);
        }
    kvc_close(&a);
    kvc_close(&b);
    return answer(&s, n ? TU_NEGATIVE : 0);
}
