/* How much memory the operator takes, and its allocation. */
#include "core/model/moe_operator.h"

#include <math.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"

/*
 * Arrays that follow each other in one allocation.  Each lay_out_ function
 * below lists the arrays of one thing.  With 'base' NULL it sums their sizes,
 * for the estimate and for the allocation; with 'base' set it gives the arrays
 * their addresses.
 */
struct moe_layout {
    char *base;
    size_t nbytes;
    bool overflow;
};

/* Room for a * b elements of 'size', 64-byte aligned. */
static void *
place(struct moe_layout *l, size_t a, size_t b, size_t size)
{
    void *at = l->base ? l->base + l->nbytes : NULL;
    size_t n;

    if (!size_mul(a, b, &n) || !size_mul(n, size, &n) || !size_add(n, 63, &n) ||
        !size_add(l->nbytes, n / 64 * 64, &l->nbytes))
        l->overflow = true;
    return at;
}

static int
check_config(const struct moe_config *c, struct err *err)
{
    const struct {
        const char *name;
        size_t n;
    } sizes[] = {
        { "n_experts", c->n_experts }, { "top_k", c->top_k },
        { "hidden", c->hidden },       { "intermediate", c->intermediate },
        { "lora_rank", c->lora_rank }, { "max_len", c->max_len },
        { "n_parts", c->n_parts },
    };
    size_t n;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sizes[i].n == 0)
            return err_set(err, EX_DATAERR, "%s is 0", sizes[i].name);
    if (!isfinite(c->lora_alpha))
        return err_set(err, EX_DATAERR, "lora_alpha is %g",
                       (double)c->lora_alpha);
    if (c->n_parts > c->intermediate)
        return err_set(err, EX_DATAERR,
                       "intermediate is %zu, which %zu parts cannot share",
                       c->intermediate, c->n_parts);
    if (c->mode == MOE_INT8 &&
        larger(c->hidden, c->intermediate) > GEMM_INT8_MAX_K)
        return err_set(err, EX_DATAERR,
                       "hidden x intermediate is %zu x %zu, but int8 sums hold "
                       "%d products",
                       c->hidden, c->intermediate, GEMM_INT8_MAX_K);
    if (!size_mul(c->max_len, c->top_k, &n) || n > UINT32_MAX)
        return err_set(err, EX_DATAERR,
                       "max_len x top_k is %zu x %zu, more than 2^32 rows",
                       c->max_len, c->top_k);
    return 0;
}

/* Slices are whole panels where there are enough for all parts. */
void
moe_slice(const struct moe_config *c, size_t i, size_t *first, size_t *n)
{
    size_t unit = c->intermediate >= GEMM_PANEL * c->n_parts ? GEMM_PANEL : 1;
    size_t units = (c->intermediate - 1) / unit + 1;
    size_t each = units / c->n_parts, more = units % c->n_parts;
    size_t end = each * (i + 1) + smaller(i + 1, more);

    *first = unit * (each * i + smaller(i, more));
    *n = smaller(unit * end, c->intermediate) - *first;
}

/* A part's packed weights. */
static void
lay_out_weights(struct moe_layout *l, const struct moe_config *c,
                struct moe_part *part)
{
    enum gemm_class class = c->mode == MOE_INT8 ? GEMM_INT8 : GEMM_BF16;
    size_t n_kinds = c->mode == MOE_INT8 ? N_KINDS : K_GATE_T;
    size_t kind = c->backward_only ? K_GATE_T : K_GATE;

    for (; kind < n_kinds; kind++) {
        bool by_row = kind == K_GATE || kind == K_UP || kind == K_DOWN_T;
        size_t n = by_row ? part->n : c->hidden;
        size_t k = by_row ? c->hidden : part->n;
        size_t nbytes = gemm_packed_nbytes(class, n, k);
        struct moe_layout one = { 0 };

        place(&one, nbytes, 1, 1);
        if (class == GEMM_INT8)
            place(&one, n, 1, sizeof(float));
        if (!l->base) /* any n_experts takes no time */
            place(l, c->n_experts, one.nbytes, 1);
        l->overflow |= one.overflow;
        for (size_t e = 0; l->base && e < c->n_experts; e++) {
            struct moe_weight *w = &part->weights[kind][e];

            w->panels =
                (struct gemm_panels){ class, n, k, place(l, nbytes, 1, 1) };
            if (class == GEMM_INT8)
                w->scale = place(l, n, 1, sizeof(float));
        }
    }
}

/* A part's scratch memory. */
static void
lay_out_part(struct moe_layout *l, const struct moe_config *c,
             struct moe_part *part)
{
    size_t rows = smaller(c->max_len, MOE_BLOCK), hidden = c->hidden,
           n = part->n, r = c->lora_rank;
    size_t ldx = gemm_ld_bf16(hidden), ldh = gemm_ld_bf16(n);

    part->x = place(l, rows, ldx, 2);
    part->dy = place(l, rows, ldx, 2);
    part->h = place(l, rows, ldh, 2);
    part->dg = place(l, rows, ldh, 2);
    part->du = place(l, rows, ldh, 2);
    part->gate = place(l, rows, n, 2);
    part->up = place(l, rows, n, 2);
    part->a_gate_up = place(l, 2 * r, hidden, 2);
    part->xa = place(l, rows, 2 * r, sizeof(float));
    part->ha = place(l, rows, r, sizeof(float));
    part->dyb = place(l, rows, r, sizeof(float));
    part->dgb = place(l, rows, r, sizeof(float));
    part->dub = place(l, rows, r, sizeof(float));
    part->b_t = place(l, 2 * r, larger(n, hidden), sizeof(float));
    part->outer_t = place(l, 6 * r, rows, sizeof(float));
    part->dw = place(l, rows, (n - 1) / GEMM_PANEL + 1, sizeof(float));
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        bool hidden_wide = m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B;

        part->grad[m] = place(l, r, hidden_wide ? hidden : n, sizeof(float));
    }
    if (c->n_parts > 1)
        part->partial = place(l, rows, hidden, sizeof(float));
    if (c->mode == MOE_INT8) {
        part->x8 = place(l, rows, gemm_ld_int8(larger(hidden, n)), 1);
        part->x8_scale = place(l, rows, 1, sizeof(float));
        part->x_f32 = place(l, rows, larger(hidden, n), sizeof(float));
    }
}

/* What the parts share. */
static void
lay_out_shared(struct moe_layout *l, struct moe *moe)
{
    const struct moe_config *c = &moe->config;

    moe->dx = place(l, c->max_len, c->hidden, sizeof(float));
    moe->route.keys = place(l, c->max_len, c->top_k, sizeof(uint32_t));
    moe->route.slots = place(l, c->max_len, c->top_k, sizeof(uint32_t));
    moe->route.begin = place(l, c->n_experts, c->top_k, sizeof(size_t));
    place(l, 1, 1, sizeof(size_t)); /* the end of the last */
}

/* A saved forward. */
static void
lay_out_saved(struct moe_layout *l, const struct moe_config *c,
              struct moe_saved *saved)
{
    size_t n = c->max_len * c->top_k; /* in 32 bits: checked */

    saved->ids = place(l, n, 1, sizeof(int64_t));
    saved->weights = place(l, n, 1, sizeof(float));
    saved->input = place(l, c->max_len, c->hidden, 2);
    saved->gate = place(l, n, c->intermediate, 2);
    saved->up = place(l, n, c->intermediate, 2);
}

static int
allocate(struct moe_region *r, const struct moe_layout *l, const char *what,
         struct err *err)
{
    if (l->overflow)
        return err_set(err, EX_DATAERR, "%s: more bytes than 64 bits can count",
                       what);
    r->nbytes = l->nbytes;
    r->data = mem_big(l->nbytes, 1, what, err);
    return r->data ? 0 : -1;
}

int
moe_allocate_part(const struct moe *moe, struct moe_part *part, struct err *err)
{
    const struct moe_config *c = &moe->config;
    struct moe_layout weights = { 0 }, scratch = { 0 };

    lay_out_weights(&weights, c, part);
    lay_out_part(&scratch, c, part);
    if (allocate(&part->packed, &weights, "base weights", err) < 0 ||
        allocate(&part->scratch, &scratch, "scratch memory", err) < 0)
        return -1;
    lay_out_weights(&(struct moe_layout){ .base = part->packed.data }, c, part);
    lay_out_part(&(struct moe_layout){ .base = part->scratch.data }, c, part);
    return 0;
}

int
moe_allocate_shared(struct moe *moe, struct err *err)
{
    struct moe_layout l = { 0 };

    lay_out_shared(&l, moe);
    if (allocate(&moe->scratch, &l, "scratch memory", err) < 0)
        return -1;
    lay_out_shared(&(struct moe_layout){ .base = moe->scratch.data }, moe);
    return 0;
}

int
moe_allocate_saved(const struct moe *moe, struct moe_saved *saved,
                   struct err *err)
{
    struct moe_layout l = { 0 };

    lay_out_saved(&l, &moe->config, saved);
    if (allocate(&saved->memory, &l, "a forward's cache", err) < 0)
        return -1;
    lay_out_saved(&(struct moe_layout){ .base = saved->memory.data },
                  &moe->config, saved);
    return 0;
}

static bool
estimate(const struct moe_config *c, int n_threads, struct moe_memory *m)
{
    struct moe moe = { .config = *c };
    struct moe_layout shared = { 0 }, saved = { 0 };
    size_t n;

    for (size_t i = 0; i < c->n_parts; i++) {
        struct moe_layout weights = { 0 }, scratch = { 0 };
        struct moe_part part = { 0 };

        moe_slice(c, i, &part.first, &part.n);
        lay_out_weights(&weights, c, &part);
        lay_out_part(&scratch, c, &part);
        if (weights.overflow || scratch.overflow ||
            !size_add(m->base, weights.nbytes, &m->base) ||
            !size_add(m->scratch, scratch.nbytes, &m->scratch))
            return false;
    }
    lay_out_shared(&shared, &moe);
    lay_out_saved(&saved, c, &(struct moe_saved){ 0 });
    m->slot = saved.nbytes;
    return !shared.overflow && !saved.overflow &&
           size_add(m->scratch, shared.nbytes, &m->scratch) &&
           size_add(m->scratch, gemm_workspace(n_threads), &m->scratch) &&
           size_mul(m->slot, c->max_cache_depth, &m->cache) &&
           size_mul(moe_weights_temp(c), moe_teams(c, n_threads), &m->load) &&
           size_add(m->base, larger(m->cache, m->load), &n) &&
           size_add(n, m->scratch, &m->total) &&
           size_mul(c->top_k, c->intermediate, &n) && size_mul(n, 3, &n) &&
           size_add(n, c->hidden, &n) && size_mul(n, c->max_len, &n) &&
           size_mul(n, 2, &m->origin_slot);
}

int
moe_memory(const struct moe_config *config, int n_threads,
           struct moe_memory *memory, struct err *err)
{
    *memory = (struct moe_memory){ 0 };
    if (check_config(config, err) < 0)
        return -1;
    if (!estimate(config, n_threads, memory))
        return err_set(err, EX_DATAERR,
                       "the operator's memory has more bytes than 64 bits "
                       "can count");
    return 0;
}
