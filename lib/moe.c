/* SPDX-License-Identifier: ISC */
/* The operator for programs: a layer's experts with LoRA, also in a thread. */
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cpu.h"
#include "core/mem.h"
#include "core/model/moe.h"
#include "core/par.h"
#include "lib/lib.h"

#define MAX_DEPTH 65536

_Static_assert(TU_N_LORA == (int)MOE_N_LORA && TU_GATE_A == (int)MOE_GATE_A &&
                   TU_DOWN_B == (int)MOE_DOWN_B && TU_MOE_INT8 == (int)MOE_INT8,
               "the header's numbers are those of core");

struct tu_moe {
    struct moe *moe;
    struct moe_config config;
    struct par_worker *worker; /* NULL: nothing was submitted yet */
    struct err err;         /* of the worker: the first since the last sync */
    struct moe_call *calls; /* submitted since the last sync, the last one
                             * first */
};

/* A call whose arguments have been checked. */
struct moe_call {
    int (*run)(void *call, struct err *err);
    struct moe_call *next;
    struct tu_moe *of; /* submitted to */
    struct moe *moe;
    struct tu_moe_weights base;
    struct moe_batch batch;
    float *output;
    bool save;
    const uint16_t *grad_output;
    struct moe_grads grads;
    size_t qlen; /* of the forward that grads are of */
};

/* ---- opening and closing ---- */

/* What core refuses of a call is the caller's mistake: there are no files. */
static int
refused(struct tu_err *to, struct err *err)
{
    if (err->status == EX_DATAERR)
        err->status = TU_BAD_CALL;
    return lib_fail(to, err);
}

/* The caller's config as core's, and its threads. */
static int
read_config(struct moe_config *config, int *n_threads,
            const struct tu_moe_config *from, struct tu_err *to)
{
    struct tu_moe_config c;

    if (lib_struct(&c, sizeof(c), from, "tu_moe_config", to) < 0)
        return -1;
    if (c.mode != TU_MOE_BF16 && c.mode != TU_MOE_INT8)
        return lib_refuse(to, "mode is %d, none of enum tu_moe_mode",
                          (int)c.mode);
    if (lib_threads(c.n_threads, to) < 0)
        return -1;
    if (c.n_experts > MOE_MAX_EXPERTS || c.top_k > MOE_MAX_TOP_K)
        return lib_refuse(to,
                          "n_experts x top_k is %zu x %zu (expected at most %d "
                          "x %d)",
                          c.n_experts, c.top_k, MOE_MAX_EXPERTS, MOE_MAX_TOP_K);
    if (c.max_cache_depth > MAX_DEPTH)
        return lib_refuse(to, "max_cache_depth is %zu (expected 0 to %d)",
                          c.max_cache_depth, MAX_DEPTH);
    *n_threads = c.n_threads ? c.n_threads : par_default();
    *config = (struct moe_config){
        .n_experts = c.n_experts,
        .top_k = c.top_k,
        .hidden = c.hidden,
        .intermediate = c.intermediate,
        .lora_rank = c.lora_rank,
        .lora_alpha = c.lora_alpha,
        .max_len = c.max_len,
        .max_cache_depth = c.max_cache_depth ? c.max_cache_depth : 1,
        .n_parts = c.n_parts ? c.n_parts : 1,
        .mode = (enum moe_mode)c.mode,
        .strict_ids = c.strict_ids != 0,
    };
    return 0;
}

int
tu_moe_memory(const struct tu_moe_config *config, struct tu_moe_memory *memory,
              struct tu_err *to)
{
    struct tu_moe_memory out;
    struct moe_config c;
    struct moe_memory m;
    struct err err = { 0 };
    int n_threads;

    if (lib_struct(&out, sizeof(out), memory, "tu_moe_memory", to) < 0 ||
        read_config(&c, &n_threads, config, to) < 0)
        return -1;
    if (moe_memory(&c, n_threads, &m, &err) < 0)
        return refused(to, &err);
    *memory = (struct tu_moe_memory){
        .size = out.size,
        .base = m.base,
        .load = m.load,
        .slot = m.slot,
        .cache = m.cache,
        .scratch = m.scratch,
        .total = m.total,
    };
    return 0;
}

int
tu_moe_open(struct tu_moe **moe, const struct tu_moe_config *config,
            struct tu_err *to)
{
    struct err err = { 0 };
    struct moe_config c;
    struct tu_moe *m;
    int n_threads;

    if (!moe)
        return lib_refuse(to, "tu_moe_open: moe is NULL");
    *moe = NULL;
    if (read_config(&c, &n_threads, config, to) < 0)
        return -1;
    m = xcalloc(1, sizeof(*m));
    m->config = c;
    if (cpu_check(&err) < 0 || moe_open(&m->moe, &c, n_threads, &err) < 0) {
        free(m);
        return refused(to, &err);
    }
    *moe = m;
    return 0;
}

static void
free_calls(struct tu_moe *m)
{
    for (struct moe_call *next; m->calls; m->calls = next) {
        next = m->calls->next;
        free(m->calls);
    }
}

void
tu_moe_close(struct tu_moe *m)
{
    if (!m)
        return;
    par_worker_close(m->worker);
    free_calls(m);
    moe_close(m->moe);
    free(m);
}

/* ---- calls, now or in the thread ---- */

typedef int start_fn(struct tu_moe *m, struct moe_call *call,
                     struct tu_err *to);

static int
run_now(struct tu_moe *m, struct moe_call *call, struct tu_err *to)
{
    struct err err = { 0 };

    if (m->calls)
        return lib_refuse(to, "submitted calls may be running (tu_moe_sync)");
    call->moe = m->moe;
    return call->run(call, &err) < 0 ? refused(to, &err) : 0;
}

/* After an error calls are dropped until the sync. */
static void
run_later(void *ctx)
{
    struct moe_call *call = ctx;

    if (call->of->err.status == 0)
        call->run(call, &call->of->err);
}

static int
submit(struct tu_moe *m, struct moe_call *call, struct tu_err *to)
{
    struct err err = { 0 };
    struct moe_call *copy;

    if (!m->worker && par_worker_open(&m->worker, &err) < 0)
        return lib_fail(to, &err);
    copy = xmalloc(sizeof(*copy));
    *copy = *call;
    copy->of = m;
    copy->moe = m->moe;
    copy->next = m->calls;
    m->calls = copy;
    par_submit(m->worker, run_later, copy);
    return 0;
}

int
tu_moe_sync(struct tu_moe *m, struct tu_err *to)
{
    struct err err;

    if (!m)
        return lib_refuse(to, "tu_moe_sync: moe is NULL");
    if (!m->worker)
        return 0;
    par_sync(m->worker);
    free_calls(m);
    err = m->err;
    m->err.status = 0;
    return err.status ? refused(to, &err) : 0;
}

/* Is the operator there, and no call running? */
static int
check_idle(const struct tu_moe *m, const char *fn, struct tu_err *to)
{
    if (!m)
        return lib_refuse(to, "%s: moe is NULL", fn);
    if (m->calls)
        return lib_refuse(to,
                          "%s: submitted calls may be running "
                          "(tu_moe_sync)",
                          fn);
    return 0;
}

/* An array of f32 or int64 is there, where the CPU may read such. */
static int
check_array(const void *p, size_t align, const char *name, struct tu_err *to)
{
    if (!p)
        return lib_refuse(to, "%s is NULL", name);
    if ((uintptr_t)p % align != 0)
        return lib_refuse(to, "%s is not aligned to %zu bytes", name, align);
    return 0;
}

/* ---- weights and adapter ---- */

/* The experts' matrices of one kind. */
static struct weight *
split(const uint16_t *w, size_t n_experts, size_t rows, size_t cols)
{
    struct weight *m = xcalloc(n_experts, sizeof(*m));

    for (size_t e = 0; e < n_experts; e++)
        m[e] = (struct weight){ w, DT_BF16, cols, .row = e * rows };
    return m;
}

static int
run_load(void *ctx, struct err *err)
{
    const struct moe_call *call = ctx;
    const struct moe_config *c = moe_config(call->moe);
    size_t n = c->n_experts, in = c->hidden, out = c->intermediate;
    struct weight *gate = split(call->base.gate, n, out, in);
    struct weight *up = split(call->base.up, n, out, in);
    struct weight *down = split(call->base.down, n, in, out);
    const struct moe_base base = { .gate = gate, .up = up, .down = down };
    int rc = moe_load(call->moe, &base, err);

    free(gate);
    free(up);
    free(down);
    return rc;
}

static int
load(struct tu_moe *m, const struct tu_moe_weights *weights, start_fn *start,
     struct tu_err *to)
{
    struct moe_call call = { .run = run_load };
    struct tu_moe_weights w;
    size_t n;

    if (!m)
        return lib_refuse(to, "tu_moe_load: moe is NULL");
    if (lib_struct(&w, sizeof(w), weights, "tu_moe_weights", to) < 0)
        return -1;
    /* moe_open() has these sizes in memory: no overflow */
    n = m->config.n_experts * m->config.intermediate * m->config.hidden;
    if (w.n != n)
        return lib_refuse(to, "weights of %zu numbers (expected %zu)", w.n, n);
    if (lib_null(to, "weights", "gate", w.gate, "up", w.up, "down", w.down,
                 NULL) < 0)
        return -1;
    call.base = w;
    return start(m, &call, to);
}

int
tu_moe_load(struct tu_moe *m, const struct tu_moe_weights *weights,
            struct tu_err *to)
{
    return load(m, weights, run_now, to);
}

int
tu_moe_submit_load(struct tu_moe *m, const struct tu_moe_weights *weights,
                   struct tu_err *to)
{
    return load(m, weights, submit, to);
}

/* Matrices of an adapter's shapes, some of which may be left out. */
static int
check_lora(const struct tu_moe *m, const size_t n[TU_N_LORA],
           const void *const p[TU_N_LORA], struct tu_err *to)
{
    for (int i = 0; i < MOE_N_LORA; i++) {
        size_t want = moe_lora_numbers(&m->config, (enum moe_lora_matrix)i);

        if (p[i] && n[i] != want)
            return lib_refuse(to, "%s has %zu numbers (expected %zu)",
                              moe_lora_names[i], n[i], want);
    }
    return 0;
}

int
tu_moe_update_lora(struct tu_moe *m, const struct tu_moe_lora *lora,
                   struct tu_err *to)
{
    const void *p[TU_N_LORA];
    struct moe_lora of_core;
    struct err err = { 0 };
    struct tu_moe_lora l;

    if (check_idle(m, "tu_moe_update_lora", to) < 0 ||
        lib_struct(&l, sizeof(l), lora, "tu_moe_lora", to) < 0)
        return -1;
    for (int i = 0; i < TU_N_LORA; i++)
        p[i] = of_core.m[i] = l.m[i];
    if (check_lora(m, l.n, p, to) < 0)
        return -1;
    return moe_update_lora(m->moe, &of_core, &err) < 0 ? refused(to, &err) : 0;
}

int
tu_moe_warm_up(struct tu_moe *m, struct tu_err *to)
{
    struct err err = { 0 };

    if (check_idle(m, "tu_moe_warm_up", to) < 0)
        return -1;
    return moe_warm_up(m->moe, &err) < 0 ? refused(to, &err) : 0;
}

/* ---- forward ---- */

static int
run_forward(void *ctx, struct err *err)
{
    const struct moe_call *call = ctx;

    return moe_forward(call->moe, &call->batch, call->output, call->save, err);
}

static int
forward(struct tu_moe *m, const struct tu_moe_batch *batch, float *output,
        int save, start_fn *start, struct tu_err *to)
{
    struct moe_call call;
    struct tu_moe_batch b;

    if (!m)
        return lib_refuse(to, "tu_moe_forward: moe is NULL");
    if (lib_struct(&b, sizeof(b), batch, "tu_moe_batch", to) < 0)
        return -1;
    if (b.top_k != m->config.top_k || b.hidden != m->config.hidden)
        return lib_refuse(to,
                          "a batch with top_k %zu, hidden %zu (expected %zu, "
                          "%zu)",
                          b.top_k, b.hidden, m->config.top_k, m->config.hidden);
    if (b.qlen > m->config.max_len)
        return lib_refuse(to, "qlen is %zu, but max_len %zu", b.qlen,
                          m->config.max_len);
    if (b.qlen > 0 &&
        (check_array(b.expert_ids, sizeof(int64_t), "expert_ids", to) < 0 ||
         check_array(b.weights, sizeof(float), "weights", to) < 0 ||
         check_array(b.input, 1, "input", to) < 0 ||
         check_array(output, sizeof(float), "output", to) < 0))
        return -1;
    call = (struct moe_call){
        .run = run_forward,
        .batch = { b.qlen, b.expert_ids, b.weights, b.input },
        .output = output,
        .save = save != 0,
    };
    return start(m, &call, to);
}

int
tu_moe_forward(struct tu_moe *m, const struct tu_moe_batch *batch,
               float *output, int save, struct tu_err *to)
{
    return forward(m, batch, output, save, run_now, to);
}

int
tu_moe_submit_forward(struct tu_moe *m, const struct tu_moe_batch *batch,
                      float *output, int save, struct tu_err *to)
{
    return forward(m, batch, output, save, submit, to);
}

size_t
tu_moe_skipped(const struct tu_moe *m)
{
    return m && !m->calls ? moe_skipped(m->moe) : 0;
}

/* ---- backward ---- */

static int
run_backward(void *ctx, struct err *err)
{
    const struct moe_call *call = ctx;
    struct moe_cache top;

    if (moe_cache_top(call->moe, &top, err) < 0)
        return -1;
    if (top.batch.qlen != call->qlen)
        return err_set(err, TU_USAGE,
                       "gradients of %zu token%s, but the forward had %zu",
                       call->qlen, call->qlen == 1 ? "" : "s", top.batch.qlen);
    return moe_backward(call->moe, call->grad_output, &call->grads, err);
}

static int
backward(struct tu_moe *m, const uint16_t *grad_output,
         const struct tu_moe_grads *grads, start_fn *start, struct tu_err *to)
{
    const void *p[TU_N_LORA];
    struct moe_call call;
    struct tu_moe_grads g;

    if (!m)
        return lib_refuse(to, "tu_moe_backward: moe is NULL");
    if (lib_struct(&g, sizeof(g), grads, "tu_moe_grads", to) < 0 ||
        (g.qlen > 0 && check_array(grad_output, 1, "grad_output", to) < 0) ||
        (g.weights && check_array(g.weights, sizeof(float), "weights", to) < 0))
        return -1;
    call = (struct moe_call){
        .run = run_backward,
        .grad_output = grad_output,
        .grads = { .input = g.input,
                   .lora_dtype = g.lora_is_bf16 ? DT_BF16 : DT_F32,
                   .weights = g.weights },
        .qlen = g.qlen,
    };
    for (int i = 0; i < TU_N_LORA; i++) {
        p[i] = call.grads.lora[i] = g.lora[i];
        if (g.lora[i] && !g.lora_is_bf16 &&
            check_array(g.lora[i], sizeof(float), moe_lora_names[i], to) < 0)
            return -1;
    }
    return check_lora(m, g.n, p, to) < 0 ? -1 : start(m, &call, to);
}

int
tu_moe_backward(struct tu_moe *m, const uint16_t *grad_output,
                const struct tu_moe_grads *grads, struct tu_err *to)
{
    return backward(m, grad_output, grads, run_now, to);
}

int
tu_moe_submit_backward(struct tu_moe *m, const uint16_t *grad_output,
                       const struct tu_moe_grads *grads, struct tu_err *to)
{
    return backward(m, grad_output, grads, submit, to);
}

size_t
tu_moe_depth(const struct tu_moe *m)
{
    return m && !m->calls ? moe_cache_depth(m->moe) : 0;
}

int
tu_moe_drop(struct tu_moe *m, struct tu_err *to)
{
    if (check_idle(m, "tu_moe_drop", to) < 0)
        return -1;
    if (moe_cache_depth(m->moe) == 0)
        return lib_refuse(to, "tu_moe_drop: no forward is kept");
    moe_cache_drop(m->moe);
    return 0;
}
