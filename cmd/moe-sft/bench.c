/* SPDX-License-Identifier: ISC */
/* bench: what the operator does in a second, on numbers made up. */
#include <math.h>
#include <stdlib.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/batch.h"
#include "cmd/moe-sft/run.h"
#include "cmd/moe-sft/verbs.h"
#include "core/clock.h"
#include "core/kernel/cpu.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/out.h"
#include "core/rng.h"
#include "core/str.h"

#define ROUNDS 7

enum { FORWARD, SAVED, BACKWARD, BOTH, STEPS };
static const char *const names[] = { "forward", "forward_saved", "backward",
                                     "forward_backward" };

struct bench {
    const struct cmd *cmd;
    struct moe_config config;
    struct base base;
    struct expert_adapter adapter;
    struct batch batch;
    uint16_t *weights; /* of all experts */
    size_t n_weights;
    struct moe *moe;
    float *output;
    struct moe_grads grads;
    double *seconds[STEPS]; /* [rounds] */
    size_t rounds;
};

/* Uniform numbers of about the deviation that weights have: 1 / sqrt(k). */
static void
fill(uint16_t *v, size_t n, size_t k, uint64_t seed, uint64_t stream)
{
    uint64_t words[1024];
    float scale = (float)sqrt(12.0 / (double)k) / 65536;

    for (size_t i = 0, m; i < n; i += m) {
        m = n - i < 4096 ? n - i : 4096;
        rng_words(seed, stream, i / 4, (m + 3) / 4, words);
        for (size_t j = 0; j < m; j++) {
            int u = (int)(words[j / 4] >> (16 * (j % 4)) & 0xffff) - 32768;

            put_le16(v + i + j, f32_to_bf16((float)u * scale));
        }
    }
}

/* Experts of a token are neighbours, from a random one on. */
static void
fill_routing(struct batch *b, size_t n_experts, uint64_t seed)
{
    for (size_t i = 0; i < b->qlen * b->top_k; i++) {
        uint64_t first = rng_u64(seed, 100, i / b->top_k);

        b->expert_ids[i] = (int64_t)((first + i % b->top_k) % n_experts);
        b->weights[i] = 1 / (float)b->top_k;
    }
}

/* Base weights, adapter, batch, and the operator with them. */
static int
prepare(struct bench *b, struct err *err)
{
    const struct moe_config *c = &b->config;
    size_t qlen = c->max_len, h = c->hidden, k = c->top_k, one, each;
    uint64_t seed = b->cmd->seed, shape[3];
    struct base *base = &b->base;
    struct batch *batch = &b->batch;

    base->n_experts = c->n_experts;
    base->hidden = h;
    base->intermediate = c->intermediate;
    base->layer = -1;
    if (!size_mul(h, c->intermediate, &one) ||
        !size_mul(one, c->n_experts, &each) ||
        !size_mul(each, BASE_N, &b->n_weights))
        return err_set(err, EX_DATAERR, "base weights are too large");
    b->weights = mem_big(b->n_weights, sizeof(uint16_t), "base weights", err);
    if (!b->weights)
        return -1;
    base->matrices = xcalloc(BASE_N * c->n_experts, sizeof(*base->matrices));
    for (size_t i = 0; i < BASE_N * c->n_experts; i++) {
        bool down = i / c->n_experts == BASE_DOWN;
        size_t cols = down ? c->intermediate : h;

        fill(b->weights + i * one, one, cols, seed, 10 + i);
        base->matrices[i] =
            (struct weight){ b->weights + i * one, DT_BF16, .ld = cols };
    }
    base->weights =
        (struct moe_base){ .gate = base->matrices,
                           .up = base->matrices + c->n_experts,
                           .down = base->matrices + 2 * c->n_experts };
    if (adapter_new(&b->adapter, base, c->lora_rank, c->lora_alpha, err) < 0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        moe_lora_shape(c, m, shape);
        fill(b->adapter.m[m], shape[0] * shape[1] * shape[2], shape[2], seed,
             (uint64_t)m);
    }
    *batch = (struct batch){ .qlen = qlen, .top_k = k, .hidden = h };
    batch->input = mem_try(qlen, h * 2, "batch", err);
    batch->grad_output = mem_try(qlen, h * 2, "batch", err);
    batch->expert_ids = mem_try(qlen, k * sizeof(int64_t), "batch", err);
    batch->weights = mem_try(qlen, k * sizeof(float), "batch", err);
    b->output = mem_try(qlen, h * sizeof(float), "batch", err);
    if (!batch->input || !batch->grad_output || !batch->expert_ids ||
        !batch->weights || !b->output)
        return -1;
    fill(batch->input, qlen * h, 1, seed, 101);
    fill(batch->grad_output, qlen * h, 1, seed, 102);
    fill_routing(batch, c->n_experts, seed);
    if (grads_open(&b->grads, c, qlen, err) < 0 ||
        operator_open(&b->moe, c, b->cmd->n_threads, base, &b->adapter, err) <
            0)
        return -1;
    return moe_warm_up(b->moe, err);
}

static size_t
given(int64_t v, size_t otherwise)
{
    return v ? (size_t)v : otherwise;
}

int
bench_main(const struct cmd *cmd, struct err *err)
{
    struct bench b = {
        .cmd = cmd,
        .config = { .n_experts = given(cmd->n_experts, DEFAULT_EXPERTS),
                    .top_k = given(cmd->top_k, DEFAULT_TOP_K),
                    .hidden = given(cmd->hidden, DEFAULT_HIDDEN),
                    .intermediate =
                        given(cmd->intermediate, DEFAULT_INTERMEDIATE),
                    .lora_rank = given(cmd->rank, 16),
                    .lora_alpha = 32,
                    .max_len = given(cmd->length, DEFAULT_LENGTH),
                    .max_cache_depth = 1,
                    .n_parts = (size_t)cmd->n_parts,
                    .mode =
                        cmd->mode < 0 ? MOE_BF16 : (enum moe_mode)cmd->mode },
        .grads = { .lora_dtype = DT_F32 },
        .rounds = given(cmd->rounds, ROUNDS),
    };
    struct moe_batch batch;
    struct str s = { 0 };
    int rc;

    for (int i = 0; i < STEPS; i++)
        b.seconds[i] = xcalloc(b.rounds, sizeof(double));
    rc = prepare(&b, err);
    batch = batch_of(&b.batch);
    /* the first round is a warm-up: the second overwrites its times */
    for (size_t i = 0; rc == 0 && i <= b.rounds; i++) {
        size_t at = i ? i - 1 : 0;
        double t[4];

        t[0] = clock_s();
        rc = moe_forward(b.moe, &batch, b.output, false, err);
        t[1] = clock_s();
        if (rc == 0)
            rc = moe_forward(b.moe, &batch, b.output, true, err);
        t[2] = clock_s();
        if (rc == 0)
            rc = moe_backward(b.moe, b.batch.grad_output, &b.grads, err);
        t[3] = clock_s();
        b.seconds[FORWARD][at] = t[1] - t[0];
        b.seconds[SAVED][at] = t[2] - t[1];
        b.seconds[BACKWARD][at] = t[3] - t[2];
        b.seconds[BOTH][at] = t[3] - t[1];
    }
    str_adds(&s, cmd->json
                     ? "["
                     : "step\tmode\tisa\tthreads\ttokens\tms\ttoken_per_s\n");
    for (int i = 0; rc == 0 && i < STEPS; i++) {
        double median;

        qsort(b.seconds[i], b.rounds, sizeof(double), by_f64);
        median = b.seconds[i][b.rounds / 2];
        str_addf(&s,
                 cmd->json
                     ? "%s{\"step\": \"%s\", \"mode\": \"%s\", \"isa\": "
                       "\"%s\", \"threads\": %d, \"tokens\": %zu, \"ms\": "
                       "%.3f, \"token_per_s\": %.0f}"
                     : "%s%s\t%s\t%s\t%d\t%zu\t%.3f\t%.0f\n",
                 cmd->json && i ? ",\n " : "", names[i],
                 mode_names[b.config.mode], isa_name(cpu_isa()), cmd->n_threads,
                 batch.qlen, 1e3 * median, (double)batch.qlen / median);
    }
    str_adds(&s, cmd->json ? "]\n" : "");
    if (rc == 0)
        rc = out_put(cmd->output ? cmd->output : "-",
                     cmd->out_flags | OUT_TABLE, s.s, s.n, err);
    str_free(&s);
    moe_close(b.moe);
    for (int i = 0; i < STEPS; i++)
        free(b.seconds[i]);
    grads_close(&b.grads, &b.config);
    free(b.output);
    batch_close(&b.batch);
    adapter_close(&b.adapter);
    free(b.base.matrices);
    mem_big_free(b.weights, b.n_weights, sizeof(uint16_t));
    return rc;
}
