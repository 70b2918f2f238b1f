/* SPDX-License-Identifier: ISC */
/* Rows of a random model in the table of benchmarks: decode beside a read of
 * the same bytes, a prompt beside the FMA peak, in the same run. */
#ifndef TEST_BENCH_FEED_H
#define TEST_BENCH_FEED_H

#include <sys/statvfs.h>

#include "core/kernel/cpu.h"
#include "core/kernel/vec.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/kv.h"
#include "core/model/model.h"
#include "core/model/parts.h"
#include "core/str.h"
#include "test/bench/bench.h"
#include "test/bench/probe.h"

#define N_DECODE 12
#define N_LONG   4096 /* tokens before them, of a long context */
#define N_PROMPT 512
#define CHUNK    512
#define ROUNDS   5

static const struct engine_options one = { .chunk = 1, .kv = DT_F32 };
static struct map weights;
static const char *shape; /* what its rows are called */

static inline void
check(int rc, const struct err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "engine: %s\n", err->what);
    exit(1);
}

/* Multiplications and additions of a token, those of the ends left out. */
static inline double
flop_token(const struct model *m)
{
    double n = 0;

    for (size_t i = 0; i < (size_t)m->config.n_layers; i++)
        for (int p = PART_QKV; p < N_PARTS; p++) {
            size_t out, in;

            if (!part_is_in(&m->config, (enum model_part)p, i))
                continue;
            part_size(&m->config, (enum model_part)p, &out, &in);
            n += (double)out * (double)in *
                 (p < PART_EXPERT_GATE ? 1 : (double)m->config.n_experts_used);
        }
    return 2 * n;
}

/* Bytes that a token reads: BF16 weights, of experts those that it gets, and
 * states. */
static inline size_t
active_nbytes(const struct model *m)
{
    const struct config *c = &m->config;
    const struct config_gdn *g = &c->gdn;
    size_t n = (size_t)flop_token(m);

    n += (size_t)(2 * c->vocab_size * c->hidden_size);
    for (size_t i = 0; i < (size_t)c->n_layers; i++)
        if (c->mixer[i] == MIXER_GDN)
            n += (size_t)(4 * g->n_v_heads * g->k_dim * g->v_dim);
    return n;
}

/* Seconds to read so many bytes of the file, every time others if there are
 * more. */
static inline double
probe(struct par *par, size_t nbytes)
{
    static size_t at;

    nbytes = smaller(nbytes, weights.size);
    at = at + 2 * nbytes > weights.size ? 0 : at + nbytes;
    return (double)nbytes / probe_read(par, weights.data + at, nbytes);
}

struct speed {
    double token_s, probe_s; /* medians */
};

/* A sequence of n tokens, with room for N_DECODE more: keys and values of any
 * numbers. */
static inline struct session *
session_of(struct engine *engine, size_t n)
{
    struct session *s = session_new(engine, n + N_DECODE + 1);
    size_t head_dim = s->kv.head_dim;
    float *k = xcalloc(2 * n * head_dim + 1, sizeof(*k));
    struct err err = { 0 };

    for (size_t i = 0; i < 2 * n * head_dim; i++)
        k[i] = (float)((double)(i * 7919 % 4096) / 2048 - 1);
    check(kv_grow(&s->kv, 0, s->max_tokens, &err), &err);
    for (size_t l = 0; l < s->kv.n_layers; l++)
        for (size_t h = 0; h < s->kv.n_heads; h++)
            kv_set(&s->kv, l, h, 0, n, k, k + n * head_dim);
    s->n = s->n_cached = n;
    free(k);
    return s;
}

/* Bytes of a session's keys and values. */
static inline size_t
kv_nbytes(const struct session *s)
{
    const struct kv *kv = &s->kv;

    return 2 * kv->n_layers * kv->n_heads * kv->head_dim * s->n_cached *
           dtype_size(kv->dtype);
}

/* Tokens one by one after n, a probe after each, so that neighbours cost both:
 * a read of its bytes, and what the keys and values cost at its rate. */
static inline struct speed
decode(struct engine *engine, const struct model *model, struct par *par,
       size_t n, int probes)
{
    double token[N_DECODE], read[N_DECODE] = { 0 };
    float *logits = xcalloc((size_t)model->config.vocab_size, 4);
    struct session *s;
    struct err err = { 0 };
    struct speed speed;
    size_t nbytes = active_nbytes(model);
    int32_t id = 1;

    s = session_of(engine, n);
    check(session_feed(s, &id, 1, logits, 1, &err), &err);
    for (size_t i = 0; i < N_DECODE; i++) {
        double start = clock_s();

        check(engine_feed(s->engine, &(struct feed){ s, &id, 1, 1, true }, 1,
                          NULL, logits, &err),
              &err);
        id = (int32_t)vec_argmax(logits, (size_t)model->config.vocab_size);
        token[i] = clock_s() - start;
        if (probes)
            read[i] = probe(par, nbytes) *
                      (1 + (double)kv_nbytes(s) / (double)nbytes);
    }
    session_close(s);
    free(logits);
    speed.token_s = median(token, N_DECODE);
    speed.probe_s = median(read, N_DECODE);
    return speed;
}

static inline double
decode_line(const struct model *model, int threads)
{
    struct engine *engine;
    struct par *par;
    struct err err = { 0 };
    struct speed s, after = { 0 };

    check(par_open(&par, threads, &err), &err);
    probe(par, active_nbytes(model));
    check(engine_open(&engine, model, par, &one, &err), &err);
    if (model->config.max_positions > N_LONG)
        after = decode(engine, model, par, N_LONG, 1);
    s = decode(engine, model, par, 0, 1);
    engine_close(engine);
    row("hf-infer decode", shape, isa_name(cpu_isa()), threads, 1 / s.token_s,
        "token/s", s.probe_s / s.token_s, "read weights");
    if (after.token_s > 0)
        row("  after 4096", shape, isa_name(cpu_isa()), threads,
            1 / after.token_s, "token/s", after.probe_s / after.token_s,
            "read weights, K, V");
    par_close(par);
    return s.token_s;
}

/* Room for the same prompt again and again. */
struct prompt {
    struct engine *engine;
    struct session *session;
    int32_t ids[N_PROMPT];
    float *logits;
};

static inline void
prompt_open(struct prompt *p, const struct model *model, struct par *par,
            enum compute compute)
{
    const struct engine_options options = { .chunk = CHUNK,
                                            .compute = compute,
                                            .kv = DT_F32 };
    struct err err = { 0 };

    for (int i = 0; i < N_PROMPT; i++)
        p->ids[i] = (int32_t)(i * 7919 % model->config.vocab_size);
    p->logits = xcalloc((size_t)model->config.vocab_size, 4);
    check(engine_open(&p->engine, model, par, &options, &err), &err);
    p->session = session_new(p->engine, N_PROMPT);
}

/* Tokens a second. */
static inline double
prompt_run(struct prompt *p)
{
    struct session *s = p->session;
    struct err err = { 0 };
    double start = clock_s();

    s->n = s->n_cached = 0;
    check(session_feed(s, p->ids, N_PROMPT, p->logits, 1, &err), &err);
    return N_PROMPT / (clock_s() - start);
}

static inline void
prompt_close(struct prompt *p)
{
    session_close(p->session);
    engine_close(p->engine);
    free(p->logits);
}

/* A prompt: its speed beside the peak of its products, and memory. */
static inline void
prompt_line(const struct model *model, int threads, enum compute compute)
{
    enum probe_kind kind = compute == COMPUTE_F32 ? PROBE_F32 : PROBE_BF16;
    double speed[ROUNDS], peak[ROUNDS], v;
    struct str what = { 0 };
    struct prompt p;
    struct par *par;
    struct err err = { 0 };

    check(par_open(&par, threads, &err), &err);
    prompt_open(&p, model, par, compute);
    for (int i = 0; i < ROUNDS; i++) {
        peak[i] = probe_best(par, kind);
        if (peak[i] == 0) /* no bf16 instruction: widened to f32 */
            peak[i] = probe_best(par, PROBE_F32);
        speed[i] = prompt_run(&p);
    }
    v = median(speed, ROUNDS);
    str_addf(&what, "%s, 512, %s", shape,
             compute == COMPUTE_F32 ? "f32" : "bf16");
    row("hf-infer prompt", what.s, isa_name(cpu_isa()), threads, v, "token/s",
        v * flop_token(model) / median(peak, ROUNDS), "its peak");
    if (compute == COMPUTE_F32)
        row("  memory", "anonymous", "-", threads,
            (double)proc_kib("/proc/self/smaps_rollup", "Anonymous:") / 1024,
            "MiB", 0, "");
    str_free(&what);
    prompt_close(&p);
    par_close(par);
}

/* The same of another shape, in fewer rows. */
static inline void
run_other(const char *dir, const char *name)
{
    struct model *model;
    struct str path = { 0 };
    struct err err = { 0 };
    int threads = par_default() > 1 ? 2 : 1;

    shape = name;
    str_addf(&path, "%s/model.safetensors", dir);
    check(map_open(&weights, path.s, &err), &err);
    probe(NULL, weights.size);
    check(model_open(&model, dir, &err), &err);
    prompt_line(model, threads, COMPUTE_F32); /* maps all experts */
    prompt_line(model, threads, COMPUTE_BF16);
    decode_line(model, threads);
    model_close(model);
    map_close(&weights);
    str_free(&path);
}

/* Room for a random model of so many MiB, and for it and the activations in
 * memory? */
static inline bool
room_for_model(const char *dir, const char *name, size_t mib)
{
    struct statvfs fs;

    if (!memory_for(name, (mib << 20) + ((size_t)1800 << 20)))
        return false;
    if (statvfs(dir, &fs) == 0 && fs.f_bavail * fs.f_frsize < mib << 20) {
        fprintf(stderr, "bench: %s left out: %s lacks room for %zu MiB\n", name,
                dir, mib);
        return false;
    }
    return true;
}

#define MAKER "${PYTHON:-python3} scripts/random-model.py --shape "

#endif
