/* SPDX-License-Identifier: ISC */
/* How much memory the operator takes, and its allocation. */
#include "core/model/moe_operator.h"

#include <math.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"

#define MAX_ARRAYS 32 /* of a list */

/* The arrays of one thing, for its size and its allocation. */
struct list {
    size_t n;
    struct mem_array arrays[MAX_ARRAYS];
};

/* 'to' is the address of a pointer. */
static void
add(struct list *l, void *to, size_t rows, size_t cols, size_t size)
{
    l->arrays[l->n++] = (struct mem_array){ to, rows, cols, size };
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

/* A part's packed weights of an expert: of each kind panels, then scales. */
static void
list_weights(struct list *l, const struct moe_config *c,
             const struct moe_part *part, struct gemm_panels of[N_KINDS])
{
    enum gemm_class class = c->mode == MOE_INT8 ? GEMM_INT8 : GEMM_BF16;
    size_t n_kinds = c->mode == MOE_INT8 ? N_KINDS : K_GATE_T;
    size_t kind = c->backward_only ? K_GATE_T : K_GATE;

    for (; kind < n_kinds; kind++) {
        bool by_row = kind == K_GATE || kind == K_UP || kind == K_DOWN_T;
        struct gemm_panels *w = &of[kind];

        w->class = class;
        w->n = by_row ? part->n : c->hidden;
        w->k = by_row ? c->hidden : part->n;
        add(l, &w->data, gemm_packed_nbytes(class, w->n, w->k), 1, 1);
        if (class == GEMM_INT8)
            add(l, &w->scale, w->n, 1, 4);
    }
}

/* A part's scratch memory. */
static void
list_scratch(struct list *l, const struct moe_config *c, struct moe_part *part)
{
    size_t rows = smaller(c->max_len, MOE_BLOCK), hidden = c->hidden,
           n = part->n, r = c->lora_rank;
    size_t ldx = gemm_ld_bf16(hidden), ldh = gemm_ld_bf16(n);

    add(l, &part->x, rows, ldx, 2);
    add(l, &part->dy, rows, ldx, 2);
    add(l, &part->h, rows, ldh, 2);
    add(l, &part->dg, rows, ldh, 2);
    add(l, &part->du, rows, ldh, 2);
    add(l, &part->gate, rows, n, 2);
    add(l, &part->up, rows, n, 2);
    add(l, &part->a_gate_up, 2 * r, hidden, 2);
    add(l, &part->xa, rows, 2 * r, 4);
    add(l, &part->ha, rows, r, 4);
    add(l, &part->dyb, rows, r, 4);
    add(l, &part->dgb, rows, r, 4);
    add(l, &part->dub, rows, r, 4);
    add(l, &part->b_t, 2 * r, larger(n, hidden), 4);
    add(l, &part->outer_t, 6 * r, rows, 4);
    add(l, &part->dw, rows, (n - 1) / GEMM_PANEL + 1, 4);
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        bool of_hidden = m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B;

        add(l, &part->grad[m], r, of_hidden ? hidden : n, 4);
    }
    if (c->n_parts > 1)
        add(l, &part->partial, rows, hidden, 4);
    if (c->mode == MOE_INT8) {
        add(l, &part->x8, rows, gemm_ld_int8(larger(hidden, n)), 1);
        add(l, &part->x8_scale, rows, 1, 4);
    }
}

/* What the parts share. */
static void
list_shared(struct list *l, struct moe *moe)
{
    const struct moe_config *c = &moe->config;

    add(l, &moe->dx, c->max_len, c->hidden, 4);
    add(l, &moe->route.keys, c->max_len, c->top_k, sizeof(uint32_t));
    add(l, &moe->route.slots, c->max_len, c->top_k, sizeof(uint32_t));
    add(l, &moe->route.begin, c->n_experts, c->top_k, sizeof(size_t));
    add(l, NULL, 1, 1, sizeof(size_t)); /* the end of the last */
}

/* A saved forward. */
static void
list_saved(struct list *l, const struct moe_config *c, struct moe_saved *saved)
{
    size_t n = c->max_len * c->top_k; /* in 32 bits: checked */

    add(l, &saved->ids, n, 1, sizeof(int64_t));
    add(l, &saved->weights, n, 1, 4);
    add(l, &saved->input, c->max_len, c->hidden, 2);
    add(l, &saved->gate, n, c->intermediate, 2);
    add(l, &saved->up, n, c->intermediate, 2);
}

static int
allocate(struct moe_region *r, const struct list *l, const char *what,
         struct err *err)
{
    r->data = mem_arrays(l->arrays, l->n, &r->nbytes, what, err);
    return r->data ? 0 : -1;
}

int
moe_allocate_part(const struct moe *moe, struct moe_part *part, struct err *err)
{
    struct list scratch = { 0 };

    list_scratch(&scratch, &moe->config, part);
    return allocate(&part->scratch, &scratch, "scratch memory", err);
}

int
moe_allocate_expert(const struct moe *moe, struct moe_part *part, size_t e,
                    struct err *err)
{
    struct gemm_panels of[N_KINDS] = { 0 };
    struct list weights = { 0 };

    list_weights(&weights, &moe->config, part, of);
    if (weights.n == 0 || part->weights[e].data)
        return 0;
    if (allocate(&part->weights[e], &weights, "base weights", err) < 0)
        return -1;
    for (size_t kind = 0; kind < N_KINDS; kind++)
        part->packed[kind][e] = of[kind];
    return 0;
}

int
moe_allocate_shared(struct moe *moe, struct err *err)
{
    struct list l = { 0 };

    list_shared(&l, moe);
    return allocate(&moe->scratch, &l, "scratch memory", err);
}

int
moe_allocate_saved(const struct moe *moe, struct moe_saved *saved,
                   struct err *err)
{
    struct list l = { 0 };

    list_saved(&l, &moe->config, saved);
    return allocate(&saved->memory, &l, "a forward's cache", err);
}

/* Adds the size of a list; false if it leaves 64 bits. */
static bool
add_size(size_t *nbytes, const struct list *l)
{
    size_t n;

    return mem_arrays_nbytes(l->arrays, l->n, &n) &&
           size_add(*nbytes, n, nbytes);
}

int
moe_memory(const struct moe_config *c, int n_threads, struct moe_memory *m,
           struct err *err)
{
    struct moe moe = { .config = *c };
    struct list shared = { 0 }, saved = { 0 };
    bool fits = true;
    size_t n;

    *m = (struct moe_memory){ 0 };
    if (check_config(c, err) < 0)
        return -1;
    for (size_t i = 0; i < c->n_parts && fits; i++) {
        struct list weights = { 0 }, scratch = { 0 };
        struct moe_part part = { 0 };
        size_t one = 0;

        moe_slice(c, i, &part.first, &part.n);
        list_weights(&weights, c, &part, (struct gemm_panels[N_KINDS]){ 0 });
        list_scratch(&scratch, c, &part);
        fits = add_size(&one, &weights) && size_mul(one, c->n_experts, &one) &&
               size_add(m->base, one, &m->base) &&
               add_size(&m->scratch, &scratch);
    }
    list_shared(&shared, &moe);
    list_saved(&saved, c, &(struct moe_saved){ 0 });
    if (fits && add_size(&m->scratch, &shared) && add_size(&m->slot, &saved) &&
        size_add(m->scratch, gemm_workspace(n_threads), &m->scratch) &&
        size_mul(m->slot, c->max_cache_depth, &m->cache) &&
        size_mul(moe_weights_temp(c), moe_teams(c, n_threads), &m->load) &&
        size_add(m->base, m->load, &n) && size_add(n, m->cache, &n) &&
        size_add(n, m->scratch, &m->total) &&
        size_mul(c->top_k, c->intermediate, &n) && size_mul(n, 3, &n) &&
        size_add(n, c->hidden, &n) && size_mul(n, c->max_len, &n) &&
        size_mul(n, 2, &m->origin_slot))
        return 0;
    return err_set(err, EX_DATAERR,
                   "the operator's memory has more bytes than 64 bits can "
                   "count");
}
