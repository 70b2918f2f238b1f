/* SPDX-License-Identifier: ISC */
/* What reads all of a base's weights: is it finite, which one is it? */
#include <stdatomic.h>

#include "cmd/moe-sft/base.h"
#include "core/compat.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"

static bool
is_int8(const struct base *base)
{
    return base->scale[BASE_GATE] || base->scale[BASE_UP] ||
           base->scale[BASE_DOWN];
}

int
base_mode(const struct base *base, int asked, enum moe_mode *mode,
          struct err *err)
{
    *mode =
        asked == MOE_INT8 || (asked < 0 && is_int8(base)) ? MOE_INT8 : MOE_BF16;
    if (*mode == MOE_BF16 && is_int8(base))
        return err_set(err, TU_USAGE,
                       "%s: has weights in int8, which --mode bf16 cannot use",
                       base->path);
    return 0;
}

int
base_want_float(const struct base *base, struct err *err)
{
    if (!is_int8(base))
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: has weights in int8 (expected BF16, F16 or F32)",
                   base->path);
}

enum { EDGE = 1 << 16 }; /* bytes: no file system has larger blocks */

/* Are n bytes of the base's files 0, but for the first and last EDGE of them,
 * and in no block of the disk?  Reading them would fill the page cache. */
static bool
is_hole(const struct base *base, const void *p, size_t n)
{
    for (size_t i = 0; n > 2 * EDGE && i < base->dir.n_files; i++) {
        const struct st *st = &base->dir.files[i];
        size_t at = (uintptr_t)p - (uintptr_t)st->map.data;

        if (at < st->map.size)
            return file_is_hole(st->fd, at + EDGE, n - 2 * EDGE);
    }
    return false;
}

static void
hash_bytes(const struct base *base, struct hash *hash, const char *p, size_t n)
{
    static const char zeros[EDGE];

    if (!is_hole(base, p, n)) {
        hash_add(hash, p, n);
        return;
    }
    hash_add(hash, p, EDGE);
    for (size_t at = EDGE, k; at < n - EDGE; at += k)
        hash_add(hash, zeros, k = smaller(n - EDGE - at, EDGE));
    hash_add(hash, p + n - EDGE, EDGE);
}

/* A matrix in which threads look for NaN and Inf. */
struct finite_check {
    struct gemm_matrix w;
    bool rounded;
    _Atomic size_t bad; /* row; w.n: none */
};

static void
check_rows(void *ctx, size_t begin, size_t end)
{
    struct finite_check *c = ctx;
    bool rounds = c->rounded && c->w.weight.dtype != DT_BF16;
    uint16_t half[256];
    float f[256];

    for (size_t r = begin; r < end; r++) {
        unsigned bad = 0;

        for (size_t i = 0, n; i < c->w.k; i += n) {
            n = smaller(c->w.k - i, 256);
            weight_read(f, &c->w.weight, r, i, n);
            if (rounds) {
                cvt_from_f32(half, DT_BF16, f, n);
                cvt_to_f32(f, half, DT_BF16, n);
            }
            for (size_t j = 0; j < n; j++)
                bad |= (f32_bits(f[j]) & 0x7f800000) == 0x7f800000;
        }
        if (bad) {
            size_t first = c->bad;

            while (r < first &&
                   !atomic_compare_exchange_weak(&c->bad, &first, r))
                ;
        }
    }
}

int
base_check_matrix(const struct base *base, enum base_matrix m, size_t expert,
                  bool rounded, struct par *par, struct err *err)
{
    struct finite_check c = { .w = base_weights(base, m, expert),
                              .rounded = rounded };
    struct str name = { 0 };
    size_t nbytes, edge;
    const void *p = weight_stored(&c.w.weight, c.w.n, &nbytes);

    if (c.w.weight.scale)
        return 0;
    c.bad = c.w.n;
    edge = EDGE * c.w.n / nbytes + 1;
    if (2 * edge < c.w.n && is_hole(base, p, nbytes)) {
        check_rows(&c, 0, edge);
        check_rows(&c, c.w.n - edge, c.w.n);
    } else {
        par_for(par, c.w.n, 16, check_rows, &c);
    }
    if (c.bad == c.w.n)
        return 0;
    base_tensor_name(base, m, expert, &name);
    err_set(err, EX_DATAERR, "%s: %s of expert %zu, row %zu has NaN or Inf%s",
            base->path, name.s, expert, (size_t)c.bad,
            rounded && c.w.weight.dtype != DT_BF16 ? " in bf16" : "");
    str_free(&name);
    return -1;
}

int
base_check(const struct base *base, struct par *par, struct err *err)
{
    for (size_t i = 0; i < BASE_N * base->n_experts; i++)
        if (base_check_matrix(base, (enum base_matrix)(i / base->n_experts),
                              i % base->n_experts, true, par, err) < 0)
            return -1;
    return 0;
}

void
base_digest(const struct base *base, struct hash *hash)
{
    struct weight_piece piece[WEIGHT_PIECES];
    uint8_t sizes[4 * 8];

    put_le64(sizes, base->n_experts);
    put_le64(sizes + 8, base->hidden);
    put_le64(sizes + 16, base->intermediate);
    for (size_t i = 0; i < BASE_N * base->n_experts; i++) {
        const struct gemm_matrix w = base_weights(
            base, (enum base_matrix)(i / base->n_experts), i % base->n_experts);
        size_t n = weight_pieces(piece, &w.weight, w.n, w.k);

        put_le64(sizes + 24,
                 w.weight.dtype +
                     (w.weight.code ? (w.weight.code->kind + 1) << 8 : 0));
        hash_add(hash, sizes, sizeof(sizes));
        for (size_t k = 0; k < n; k++)
            hash_bytes(base, hash, piece[k].data, piece[k].nbytes);
        if (base->bias)
            hash_add(hash, base->bias[i], w.n * sizeof(float));
    }
    for (size_t m = 0; m < BASE_N; m++) {
        size_t n = m == BASE_DOWN ? base->hidden : base->intermediate;

        for (size_t i = 0; base->scale[m] && i < base->n_experts * n; i++) {
            put_le32(sizes, f32_bits(base->scale[m][i]));
            hash_add(hash, sizes, 4);
        }
    }
}
