#include "core/model/moe.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/model/moe_cache.h"
#include "core/model/moe_memory.h"
#include "core/model/moe_operator.h"
#include "core/model/moe_team.h"
#include "core/model/moe_weights.h"
#include "core/par.h"

/* ---- opening and closing ---- */

static int
open_part(struct moe *moe, struct moe_part *part, struct err *err)
{
    const struct moe_config *c = &moe->config;
    struct moe_plan weights = { 0 }, scratch = { 0 };

    part->gemm = moe->teams[part->index % moe->n_teams].gemm;
    moe_slice(c, part->index, &part->first, &part->n);
    for (size_t kind = 0; kind < N_KINDS; kind++)
        part->weights[kind] = xcalloc(c->n_experts, sizeof(struct moe_weight));
    moe_plan_weights(&weights, c, part);
    moe_plan_part(&scratch, c, part);
    part->packed = moe_allocate(moe, &weights, "base weights", err);
    if (!part->packed)
        return -1;
    part->packed_nbytes = weights.nbytes;
    part->scratch = moe_allocate(moe, &scratch, "scratch memory", err);
    if (!part->scratch)
        return -1;
    part->scratch_nbytes = scratch.nbytes;
    moe_plan_weights(&(struct moe_plan){ .base = part->packed }, c, part);
    moe_plan_part(&(struct moe_plan){ .base = part->scratch }, c, part);
    return 0;
}

static int
open_shared(struct moe *moe, int n_threads, struct err *err)
{
    struct moe_plan plan = { 0 };

    moe_plan_shared(&plan, moe);
    moe->scratch = moe_allocate(moe, &plan, "scratch memory", err);
    if (!moe->scratch)
        return -1;
    moe->scratch_nbytes = plan.nbytes;
    moe_plan_shared(&(struct moe_plan){ .base = moe->scratch }, moe);
    if (par_open(&moe->par, n_threads, err) < 0)
        return -1;
    moe_note_allocated(moe, gemm_workspace(n_threads));
    return moe_teams_open(moe, n_threads, err);
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
    if (config->n_experts > UINT32_MAX / config->top_k)
        return err_set(err, EX_DATAERR,
                       "n_experts x top_k is %zu x %zu, more than 2^32 "
                       "segments",
                       config->n_experts, config->top_k);
    m = xcalloc(1, sizeof(*m));
    m->config = *config;
    m->s = config->lora_alpha / (float)config->lora_rank;
    m->parts = xcalloc(config->n_parts, sizeof(*m->parts));
    m->saved = xcalloc(config->max_cache_depth, sizeof(*m->saved));
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
        struct moe_part *part = &m->parts[i];

        mem_big_free(part->scratch, part->scratch_nbytes, 1);
        mem_big_free(part->packed, part->packed_nbytes, 1);
        for (size_t kind = 0; kind < N_KINDS; kind++)
            free(part->weights[kind]);
    }
    moe_teams_close(m);
    par_close(m->par);
    mem_big_free(m->scratch, m->scratch_nbytes, 1);
    for (size_t i = 0; i < m->config.max_cache_depth; i++)
        mem_big_free(m->saved[i].data, m->saved_nbytes, 1);
    for (size_t i = 0; i < 3; i++)
        free(m->base[i]);
    free(m->saved);
    free(m->parts);
    free(m);
}

const struct moe_config *
moe_config(const struct moe *moe)
{
    return &moe->config;
}

/* ---- the adapter ---- */

const char *const moe_lora_names[MOE_N_LORA] = {
    "gate_lora_a", "gate_lora_b", "up_lora_a",
    "up_lora_b",   "down_lora_a", "down_lora_b",
};

void
moe_lora_shape(const struct moe_config *config, enum moe_lora_matrix m,
               uint64_t shape[3])
{
    bool down = m == MOE_DOWN_A || m == MOE_DOWN_B;
    size_t in = down ? config->intermediate : config->hidden;
    size_t out = down ? config->hidden : config->intermediate;
    bool is_a = m == MOE_GATE_A || m == MOE_UP_A || m == MOE_DOWN_A;

    shape[0] = config->n_experts;
    shape[1] = is_a ? config->lora_rank : out;
    shape[2] = is_a ? in : config->lora_rank;
}

size_t
moe_lora_numbers(const struct moe_config *config, enum moe_lora_matrix m)
{
    uint64_t shape[3];
    size_t n;

    moe_lora_shape(config, m, shape);
    if (!size_mul(shape[0], shape[1], &n) || !size_mul(n, shape[2], &n))
        return 0;
    return n;
}

/* ---- warming up ---- */

static void
touch(void *ctx, struct moe_part *part)
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
    struct moe_saved *s;
    int rc = moe_check_weights(moe, err);

    for (; rc == 0 && moe->depth < moe->config.max_cache_depth; moe->depth++) {
        rc = moe_saved_room(moe, &s, err);
        if (rc == 0)
            memset(s->data, 0, moe->saved_nbytes);
    }
    moe->depth = depth;
    if (rc < 0)
        return -1;
    memset(moe->scratch, 0, moe->scratch_nbytes);
    moe_for_parts(moe, touch, NULL); /* each from its node */
    if (depth < moe->config.max_cache_depth)
        rc = run_zeros(moe, err);
    moe->skipped = skipped;
    return rc;
}
