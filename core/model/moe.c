#include "core/model/moe.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/moe_backward.h"
#include "core/model/moe_forward.h"
#include "core/model/moe_memory.h"
#include "core/model/moe_operator.h"
#include "core/model/moe_route.h"
#include "core/model/moe_team.h"
#include "core/model/moe_weights.h"
#include "core/par.h"

/* ---- opening and closing ---- */

static void *
allocate(struct moe *moe, const struct plan *plan, const char *what,
         struct err *err)
{
    void *p = NULL;

    if (plan->overflow)
        err_set(err, EX_DATAERR, "%s: more bytes than 64 bits can count", what);
    else
        p = mem_big(plan->nbytes, 1, what, err);
    if (p)
        note_allocated(moe, plan->nbytes);
    return p;
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

static int
open_part(struct moe *moe, struct part *part, struct err *err)
{
    const struct moe_config *c = &moe->config;
    struct plan weights = { 0 }, scratch = { 0 };

    part->gemm = moe->teams[part->index % moe->n_teams].gemm;
    part_slice(c, part->index, &part->first, &part->n);
    for (size_t kind = 0; kind < N_KINDS; kind++)
        part->weights[kind] = xcalloc(c->n_experts, sizeof(struct weight));
    plan_weights(&weights, c, part);
    plan_part(&scratch, c, part);
    part->packed = allocate(moe, &weights, "base weights", err);
    if (!part->packed)
        return -1;
    part->packed_nbytes = weights.nbytes;
    part->scratch = allocate(moe, &scratch, "scratch memory", err);
    if (!part->scratch)
        return -1;
    part->scratch_nbytes = scratch.nbytes;
    plan_weights(&(struct plan){ .base = part->packed }, c, part);
    plan_part(&(struct plan){ .base = part->scratch }, c, part);
    return 0;
}

static int
open_shared(struct moe *moe, int n_threads, struct err *err)
{
    struct plan plan = { 0 };

    plan_shared(&plan, moe);
    moe->scratch = allocate(moe, &plan, "scratch memory", err);
    if (!moe->scratch)
        return -1;
    moe->scratch_nbytes = plan.nbytes;
    plan_shared(&(struct plan){ .base = moe->scratch }, moe);
    if (par_open(&moe->par, n_threads, err) < 0)
        return -1;
    note_allocated(moe, gemm_workspace(n_threads));
    return teams_open(moe, n_threads, err);
}

int
moe_open(struct moe **moe, const struct moe_config *config, int n_threads,
         struct err *err)
{
    struct moe_memory memory;
    struct moe *m;
    int rc;

    *moe = NULL;
    if (moe_memory(config, n_threads, &memory, err) < 0)
        return -1;
    m = xcalloc(1, sizeof(*m));
    m->config = *config;
    m->s = config->lora_alpha / (float)config->lora_rank;
    m->parts = xcalloc(config->n_parts, sizeof(*m->parts));
    m->slots = xcalloc(config->max_cache_depth, sizeof(*m->slots));
    for (size_t i = 0; i < 3; i++)
        m->base[i] = xcalloc(config->n_experts, sizeof(*m->base[i]));
    rc = open_shared(m, n_threads, err);
    for (size_t i = 0; i < config->n_parts && rc == 0; i++) {
        m->parts[i].index = i;
        rc = open_part(m, &m->parts[i], err);
    }
    if (rc < 0) {
        moe_close(m);
        return -1;
    }
    *moe = m;
    return 0;
}

void
moe_close(struct moe *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->config.n_parts; i++) {
        struct part *part = &m->parts[i];

        mem_big_free(part->scratch, part->scratch_nbytes, 1);
        mem_big_free(part->packed, part->packed_nbytes, 1);
        for (size_t kind = 0; kind < N_KINDS; kind++)
            free(part->weights[kind]);
    }
    teams_close(m);
    par_close(m->par);
    mem_big_free(m->scratch, m->scratch_nbytes, 1);
    for (size_t i = 0; i < m->config.max_cache_depth; i++)
        mem_big_free(m->slots[i].data, m->slot_nbytes, 1);
    for (size_t i = 0; i < 3; i++)
        free(m->base[i]);
    free(m->slots);
    free(m->parts);
    free(m);
}

const struct moe_config *
moe_config(const struct moe *moe)
{
    return &moe->config;
}

/* ---- weights ---- */

int
moe_load(struct moe *moe, const struct moe_base *base, struct err *err)
{
    const struct gemm_matrix *from[3] = { base->gate, base->up, base->down };

    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0; e < moe->config.n_experts; e++) {
            enum dtype dtype = from[i][e].dtype;
            bool int8 = moe->config.mode == MOE_INT8 && base->scale[i];

            if (!dtype_computes(dtype) && !(int8 && dtype == DT_I8))
                return err_set(err, EX_DATAERR,
                               "base weights of expert %zu are %s, not BF16, "
                               "F16 or F32",
                               e, dtype_table[dtype].name);
            moe->base[i][e] = from[i][e];
        }
    memcpy(moe->base_scale, base->scale, sizeof(moe->base_scale));
    if (weights_load(moe, err) < 0)
        return -1;
    moe->has_base = true;
    return 0;
}

int
moe_update_lora(struct moe *moe, const struct moe_lora *lora, struct err *err)
{
    for (size_t m = 0; m < MOE_N_LORA; m++)
        if (!lora->m[m])
            return err_set(err, EX_DATAERR, "the adapter has no %s",
                           moe_lora_names[m]);
    moe->lora = *lora;
    moe->has_lora = true;
    return 0;
}

/* ---- the cache stack ---- */

static int
top_slot(struct moe *moe, struct slot **slot, struct err *err)
{
    struct plan plan = { 0 };
    struct slot *s;

    if (moe->depth == moe->config.max_cache_depth)
        return err_set(err, EX_DATAERR,
                       "the cache is full: %zu forwards wait for a backward",
                       moe->depth);
    *slot = s = &moe->slots[moe->depth];
    if (s->data)
        return 0;
    plan_slot(&plan, &moe->config, s);
    s->data = allocate(moe, &plan, "a forward's cache", err);
    if (!s->data)
        return -1;
    moe->slot_nbytes = plan.nbytes;
    plan_slot(&(struct plan){ .base = s->data }, &moe->config, s);
    return 0;
}

static int
check_qlen(const struct moe *moe, size_t qlen, struct err *err)
{
    if (qlen > moe->config.max_len)
        return err_set(err, EX_DATAERR,
                       "the batch has %zu tokens, but max_len is %zu", qlen,
                       moe->config.max_len);
    return 0;
}

static void
copy_batch(const struct moe_config *c, struct slot *s,
           const struct moe_batch *batch)
{
    size_t n = batch->qlen * c->top_k;

    s->qlen = batch->qlen;
    if (n == 0)
        return;
    memcpy(s->ids, batch->expert_ids, n * sizeof(*s->ids));
    memcpy(s->weights, batch->weights, n * sizeof(*s->weights));
    memcpy(s->input, batch->input, batch->qlen * c->hidden * 2);
}

static struct moe_batch
slot_batch(const struct slot *s)
{
    return (struct moe_batch){ s->qlen, s->ids, s->weights, s->input };
}

size_t
moe_cache_depth(const struct moe *moe)
{
    return moe->depth;
}

int
moe_cache_top(struct moe *moe, struct moe_cache *cache, struct err *err)
{
    const struct slot *s;

    if (moe->depth == 0)
        return err_set(err, EX_DATAERR, "the cache is empty");
    s = &moe->slots[moe->depth - 1];
    if (route_rows(moe, s->ids, s->qlen, err) < 0)
        return -1;
    *cache =
        (struct moe_cache){ slot_batch(s), moe->route.n_rows, s->gate, s->up };
    return 0;
}

int
moe_cache_push(struct moe *moe, const struct moe_cache *cache, struct err *err)
{
    size_t n = cache->n_rows * moe->config.intermediate;
    struct slot *s;

    if (check_qlen(moe, cache->batch.qlen, err) < 0 ||
        route_rows(moe, cache->batch.expert_ids, cache->batch.qlen, err) < 0)
        return -1;
    if (cache->n_rows != moe->route.n_rows)
        return err_set(err, EX_DATAERR,
                       "the cache has %zu rows, but its expert_ids make %zu",
                       cache->n_rows, moe->route.n_rows);
    if (top_slot(moe, &s, err) < 0)
        return -1;
    copy_batch(&moe->config, s, &cache->batch);
    if (n > 0) {
        memcpy(s->gate, cache->gate, n * sizeof(*s->gate));
        memcpy(s->up, cache->up, n * sizeof(*s->up));
    }
    moe->depth++;
    return 0;
}

/* ---- passes ---- */

static int
check_ready(const struct moe *moe, struct err *err)
{
    if (!moe->has_base)
        return err_set(err, EX_DATAERR, "no base weights are loaded");
    if (!moe->has_lora)
        return err_set(err, EX_DATAERR, "there is no adapter");
    return 0;
}

size_t
moe_skipped(const struct moe *moe)
{
    return moe->skipped;
}

int
moe_forward(struct moe *moe, const struct moe_batch *batch, float *output,
            bool save, struct err *err)
{
    struct pass pass = { .moe = moe, .batch = *batch, .output = output };
    struct slot *s = NULL;

    if (check_ready(moe, err) < 0 || check_qlen(moe, batch->qlen, err) < 0 ||
        (save && top_slot(moe, &s, err) < 0) ||
        route_rows(moe, batch->expert_ids, batch->qlen, err) < 0)
        return -1;
    moe->skipped = moe->route.skipped;
    if (s) {
        copy_batch(&moe->config, s, batch);
        pass.gate = s->gate;
        pass.up = s->up;
    }
    if (batch->qlen > 0)
        memset(output, 0, batch->qlen * moe->config.hidden * sizeof(*output));
    for_each_block(&pass, forward_block);
    moe->depth += save;
    return 0;
}

int
moe_backward(struct moe *moe, const uint16_t *grad_output,
             const struct moe_grads *grads, struct err *err)
{
    struct pass pass = { .moe = moe,
                         .grad_output = grad_output,
                         .grads = grads };
    const struct slot *s;

    if (check_ready(moe, err) < 0)
        return -1;
    if (moe->depth == 0)
        return err_set(err, EX_DATAERR,
                       "the cache is empty: no forward was saved");
    s = &moe->slots[moe->depth - 1];
    if (route_rows(moe, s->ids, s->qlen, err) < 0)
        return -1;
    pass.batch = slot_batch(s);
    pass.gate = s->gate;
    pass.up = s->up;
    backward_pass(&pass);
    moe->depth--;
    return 0;
}

/* ---- warming up ---- */

static void
touch(void *ctx, struct part *part)
{
    (void)ctx;
    memset(part->scratch, 0, part->scratch_nbytes);
}

/* A batch of zeros through everything; its slot is given back. */
static int
run_zeros(struct moe *moe, struct err *err)
{
    const struct moe_config *c = &moe->config;
    size_t qlen = smaller(c->max_len, 32), n = qlen * c->top_k;
    uint16_t *zeros = xcalloc(qlen * c->hidden, sizeof(*zeros));
    int64_t *ids = xcalloc(n, sizeof(*ids));
    float *weights = xcalloc(n, sizeof(*weights));
    float *output = xcalloc(qlen * c->hidden, sizeof(*output));
    struct moe_batch batch = { qlen, ids, weights, zeros };
    struct moe_grads grads = { .lora_dtype = DT_F32 };
    int rc;

    for (size_t i = 0; i < n; i++)
        ids[i] = (int64_t)(i % c->n_experts);
    rc = moe_forward(moe, &batch, output, true, err);
    if (rc == 0)
        rc = moe_backward(moe, zeros, &grads, err);
    free(output);
    free(weights);
    free(ids);
    free(zeros);
    return rc;
}

int
moe_warm_up(struct moe *moe, struct err *err)
{
    size_t depth = moe->depth, skipped = moe->skipped;
    struct slot *s;
    int rc = check_ready(moe, err);

    for (; rc == 0 && moe->depth < moe->config.max_cache_depth; moe->depth++) {
        rc = top_slot(moe, &s, err);
        if (rc == 0)
            memset(s->data, 0, moe->slot_nbytes);
    }
    moe->depth = depth;
    if (rc < 0)
        return -1;
    memset(moe->scratch, 0, moe->scratch_nbytes);
    run_parts(moe, touch, NULL); /* each from its node */
    if (depth < moe->config.max_cache_depth)
        rc = run_zeros(moe, err);
    moe->skipped = skipped;
    return rc;
}
