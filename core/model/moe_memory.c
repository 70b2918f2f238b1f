#include "core/model/moe_memory.h"

#include <math.h>
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/moe_team.h"
#include "core/model/moe_weights.h"

/* Room for a * b elements of 'size', 64-byte aligned. */
static void *
plan_take(struct moe_plan *plan, size_t a, size_t b, size_t size)
{
    void *at = plan->base ? plan->base + plan->nbytes : NULL;
    size_t n;

    if (!size_mul(a, b, &n) || !size_mul(n, size, &n) || !size_add(n, 63, &n) ||
        !size_add(plan->nbytes, n / 64 * 64, &plan->nbytes))
        plan->overflow = true;
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

static size_t
rows_of(const struct moe_config *c)
{
    return smaller(c->max_len, MOE_BLOCK);
}

/* An expert's matrix; 'w' may be NULL. */
static void
plan_weight(struct moe_plan *plan, enum gemm_class class, size_t n, size_t k,
            struct moe_weight *w)
{
    void *data = plan_take(plan, gemm_packed_nbytes(class, n, k), 1, 1);
    float *scale =
        class == GEMM_INT8 ? plan_take(plan, n, 1, sizeof(float)) : NULL;

    if (w)
        *w = (struct moe_weight){ { class, n, k, data }, scale };
}

/* As many experts as one wants to know of take no longer than one. */
static void
estimate_weights(struct moe_plan *plan, const struct moe_config *c,
                 enum gemm_class class, size_t n, size_t k)
{
    struct moe_plan one = { 0 };

    plan_weight(&one, class, n, k, NULL);
    plan_take(plan, c->n_experts, one.nbytes, 1);
    plan->overflow |= one.overflow;
}

void
moe_plan_weights(struct moe_plan *plan, const struct moe_config *c,
                 struct moe_part *part)
{
    enum gemm_class class = c->mode == MOE_INT8 ? GEMM_INT8 : GEMM_BF16;
    size_t n_kinds = c->mode == MOE_INT8 ? N_KINDS : K_GATE_T;

    for (size_t kind = 0; kind < n_kinds; kind++) {
        bool by_row = kind == K_GATE || kind == K_UP || kind == K_DOWN_T;
        size_t n = by_row ? part->n : c->hidden;
        size_t k = by_row ? c->hidden : part->n;

        if (!plan->base)
            estimate_weights(plan, c, class, n, k);
        for (size_t e = 0; plan->base && e < c->n_experts; e++)
            plan_weight(plan, class, n, k, &part->weights[kind][e]);
    }
}

static void
plan_int8(struct moe_plan *plan, const struct moe_config *c,
          struct moe_part *part)
{
    size_t rows = rows_of(c), k = larger(c->hidden, part->n);

    part->x8 = plan_take(plan, rows, gemm_ld_int8(k), 1);
    part->x8_scale = plan_take(plan, rows, 1, sizeof(float));
    part->wide = plan_take(plan, rows, k, sizeof(float));
}

void
moe_plan_part(struct moe_plan *plan, const struct moe_config *c,
              struct moe_part *part)
{
    size_t rows = rows_of(c), hidden = c->hidden, n = part->n, r = c->lora_rank;
    size_t ldx = gemm_ld_bf16(hidden), ldh = gemm_ld_bf16(n);

    part->x = plan_take(plan, rows, ldx, 2);
    part->dy = plan_take(plan, rows, ldx, 2);
    part->h = plan_take(plan, rows, ldh, 2);
    part->dg = plan_take(plan, rows, ldh, 2);
    part->du = plan_take(plan, rows, ldh, 2);
    part->gate = plan_take(plan, rows, n, 2);
    part->up = plan_take(plan, rows, n, 2);
    part->a_gate_up = plan_take(plan, 2 * r, hidden, 2);
    part->xa = plan_take(plan, rows, 2 * r, sizeof(float));
    part->ha = plan_take(plan, rows, r, sizeof(float));
    part->dyb = plan_take(plan, rows, r, sizeof(float));
    part->dgb = plan_take(plan, rows, r, sizeof(float));
    part->dub = plan_take(plan, rows, r, sizeof(float));
    part->b_t = plan_take(plan, 2 * r, larger(n, hidden), sizeof(float));
    part->outer_t = plan_take(plan, 6 * r, rows, sizeof(float));
    part->dw = plan_take(plan, rows, (n - 1) / GEMM_PANEL + 1, sizeof(float));
    for (size_t m = 0; m < MOE_N_LORA; m++) {
        bool hidden_wide = m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_B;

        part->grad[m] =
            plan_take(plan, r, hidden_wide ? hidden : n, sizeof(float));
    }
    if (c->n_parts > 1)
        part->partial = plan_take(plan, rows, hidden, sizeof(float));
    if (c->mode == MOE_INT8)
        plan_int8(plan, c, part);
}

void
moe_plan_shared(struct moe_plan *plan, struct moe *moe)
{
    const struct moe_config *c = &moe->config;

    moe->dx = plan_take(plan, c->max_len, c->hidden, sizeof(float));
    moe->route.keys = plan_take(plan, c->max_len, c->top_k, sizeof(uint32_t));
    moe->route.slots = plan_take(plan, c->max_len, c->top_k, sizeof(uint32_t));
    moe->route.begin = plan_take(plan, c->n_experts, c->top_k, sizeof(size_t));
    plan_take(plan, 1, 1, sizeof(size_t)); /* the end of the last */
}

void
moe_plan_saved(struct moe_plan *plan, const struct moe_config *c,
               struct moe_saved *saved)
{
    size_t n = c->max_len * c->top_k; /* in 32 bits: checked */

    saved->ids = plan_take(plan, n, 1, sizeof(int64_t));
    saved->weights = plan_take(plan, n, 1, sizeof(float));
    saved->input = plan_take(plan, c->max_len, c->hidden, 2);
    saved->gate = plan_take(plan, n, c->intermediate, 2);
    saved->up = plan_take(plan, n, c->intermediate, 2);
}

void *
moe_allocate(struct moe *moe, const struct moe_plan *plan, const char *what,
             struct err *err)
{
    void *p = NULL;

    if (plan->overflow)
        err_set(err, EX_DATAERR, "%s: more bytes than 64 bits can count", what);
    else
        p = mem_big(plan->nbytes, 1, what, err);
    if (p)
        moe_note_allocated(moe, plan->nbytes);
    return p;
}

void
moe_note_allocated(struct moe *moe, size_t nbytes)
{
    moe->allocated += nbytes;
    moe->peak = larger(moe->peak, moe->allocated);
}

size_t
moe_allocated(const struct moe *moe)
{
    return moe->allocated;
}

size_t
moe_peak(const struct moe *moe)
{
    return moe->peak;
}

static bool
sum_parts(const struct moe_config *c, struct moe_memory *m)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        struct moe_plan weights = { 0 }, scratch = { 0 };
        struct moe_part part = { 0 };

        moe_slice(c, i, &part.first, &part.n);
        moe_plan_weights(&weights, c, &part);
        moe_plan_part(&scratch, c, &part);
        if (weights.overflow || scratch.overflow ||
            !size_add(m->base, weights.nbytes, &m->base) ||
            !size_add(m->scratch, scratch.nbytes, &m->scratch))
            return false;
    }
    return true;
}

static bool
sum_all(const struct moe_config *c, int n_threads, struct moe_memory *m)
{
    struct moe moe = { .config = *c };
    struct moe_plan shared = { 0 }, saved_plan = { 0 };
    struct moe_saved saved;
    size_t n;

    if (!sum_parts(c, m))
        return false;
    moe_plan_shared(&shared, &moe);
    moe_plan_saved(&saved_plan, c, &saved);
    m->slot = saved_plan.nbytes;
    return !shared.overflow && !saved_plan.overflow &&
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
    memset(memory, 0, sizeof(*memory));
    if (check_config(config, err) < 0)
        return -1;
    if (!sum_all(config, n_threads, memory))
        return err_set(err, EX_DATAERR,
                       "the operator's memory has more bytes than 64 bits "
                       "can count");
    return 0;
}
