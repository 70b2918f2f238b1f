/* SPDX-License-Identifier: ISC */
#include "core/model/moe.h"

#include <stdlib.h>

#include "core/mem.h"
#include "core/model/moe_operator.h"
#include "core/par.h"

/* ---- opening and closing ---- */

int
moe_open(struct moe **moe, const struct moe_config *config, int n_threads,
         struct err *err)
{
    struct moe_memory memory;
    struct moe *m;
    int rc = 0;

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
    m->is_packed = xcalloc(config->n_experts, sizeof(*m->is_packed));
    m->bias = xcalloc(3 * config->n_experts, sizeof(*m->bias));
    if (moe_allocate_shared(m, err) < 0 ||
        par_open(&m->par, n_threads, err) < 0 ||
        moe_teams_open(m, n_threads, err) < 0)
        rc = -1;
    for (size_t i = 0; i < config->n_parts && rc == 0; i++) {
        struct moe_part *part = &m->parts[i];

        part->index = i;
        part->gemm = m->teams[i % m->n_teams].gemm;
        moe_slice(config, i, &part->first, &part->n);
        for (size_t kind = 0; kind < N_KINDS; kind++)
            part->packed[kind] =
                xcalloc(config->n_experts, sizeof(*part->packed[kind]));
        part->weights = xcalloc(config->n_experts, sizeof(*part->weights));
        rc = moe_allocate_part(m, part, err);
    }
    if (rc < 0) {
        moe_close(m);
        return -1;
    }
    *moe = m;
    return 0;
}

static void
close_region(struct moe_region *r)
{
    mem_big_free(r->data, r->nbytes, 1);
}

void
moe_close(struct moe *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->config.n_parts; i++) {
        struct moe_part *part = &m->parts[i];

        close_region(&part->scratch);
        for (size_t e = 0; e < m->config.n_experts && part->weights; e++)
            close_region(&part->weights[e]);
        free(part->weights);
        for (size_t kind = 0; kind < N_KINDS; kind++)
            free(part->packed[kind]);
    }
    moe_teams_close(m);
    par_close(m->par);
    close_region(&m->scratch);
    for (size_t i = 0; i < m->config.max_cache_depth; i++)
        close_region(&m->saved[i].memory);
    for (size_t i = 0; i < 3; i++)
        free(m->base[i]);
    free(m->bias);
    free(m->is_packed);
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

int
moe_warm_up(struct moe *moe, struct err *err)
{
    const struct moe_config *c = &moe->config;
    size_t skipped = moe->skipped;
    size_t qlen = smaller(c->max_len, 32), n = qlen * c->top_k;
    struct moe_grads grads = { .lora_dtype = DT_F32 };
    struct moe_batch batch = { .qlen = qlen };
    int64_t *ids;
    float *weights, *output;
    uint16_t *zeros;
    int rc;

    if (moe_check_weights(moe, err) < 0 || moe_pack(moe, true, err) < 0)
        return -1;
    if (moe->depth == c->max_cache_depth || c->backward_only)
        return 0;

    /* a batch of zeros through everything: the stack is then as before */
    batch.expert_ids = ids = xcalloc(n, sizeof(*ids));
    batch.weights = weights = xcalloc(n, sizeof(*weights));
    batch.input = zeros = xcalloc(qlen * c->hidden, sizeof(*zeros));
    output = xcalloc(qlen * c->hidden, sizeof(*output));
    for (size_t i = 0; i < n; i++)
        ids[i] = (int64_t)(i % c->n_experts);
    rc = moe_forward(moe, &batch, output, true, err);
    if (rc == 0)
        rc = moe_backward(moe, zeros, &grads, err);
    free(output);
    free(zeros);
    free(weights);
    free(ids);
    moe->skipped = skipped;
    return rc;
}
