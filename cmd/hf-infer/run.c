/* Opening and closing what a run needs, and feeding the session. */
#include "cmd/hf-infer/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/mem.h"

int
run_open_tok(struct run *run, struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    if (!run->tok) {
        str_addf(&path, "%s/tokenizer.json", run->dir);
        rc = tok_open(&run->tok, path.s, err);
        str_free(&path);
    }
    return rc;
}

/* --json, --nll and --top show tokens' texts where a tokenizer is there. */
static int
open_tok_if_there(struct run *run, struct err *err)
{
    struct str path = { 0 };
    int rc = 0;

    str_addf(&path, "%s/tokenizer.json", run->dir);
    if (run->mode != MODE_LOGITS && !run->ids_out && access(path.s, F_OK) == 0)
        rc = run_open_tok(run, err);
    str_free(&path);
    return rc;
}

/* The user's settings over generation_config.json's over none. */
static void
settle_sampler(struct run *run)
{
    struct sampler *s = &run->sampler;
    const struct config *c = run->config;

    if (!(run->sampler_set & SET_TEMPERATURE))
        s->temperature = c->temperature;
    if (!(run->sampler_set & SET_TOP_K))
        s->top_k = c->top_k;
    if (!(run->sampler_set & SET_TOP_P))
        s->top_p = c->top_p;
    if (!(run->sampler_set & SET_MIN_P))
        s->min_p = c->min_p;
    if (!(run->sampler_set & SET_PENALTY))
        s->repetition_penalty = c->repetition_penalty;
    /* do_sample false means argmax, unless the user asks for a draw */
    if (!c->do_sample && !(run->sampler_set & ~SET_PENALTY))
        s->greedy = true;
}

static void
say_setup(const struct run *run)
{
    const struct sampler *s = &run->sampler;
    const struct config *c = run->config;

    fprintf(stderr,
            "hf-infer: %s, %lld layers, hidden %lld, context %lld; %s, %d "
            "threads\n",
            c->arch, (long long)c->n_layers, (long long)c->hidden_size,
            (long long)c->max_positions, isa_name(cpu_isa()),
            par_threads(run->par));
    if (run->mode != MODE_GENERATE)
        return;
    if (s->greedy)
        fprintf(stderr, "hf-infer: greedy, repetition penalty %g\n",
                s->repetition_penalty);
    else
        fprintf(stderr,
                "hf-infer: repetition penalty %g, temperature %g, top-k "
                "%lld, top-p %g, min-p %g, seed %llu\n",
                s->repetition_penalty, s->temperature, (long long)s->top_k,
                s->top_p, s->min_p, (unsigned long long)s->seed);
}

static int
check_context(const struct run *run, size_t n, struct err *err)
{
    if ((int64_t)n <= run->config->max_positions)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: the prompt has %zu tokens (expected at most %lld, "
                   "the model's context)",
                   run->dir, n, (long long)run->config->max_positions);
}

/* First without a length (0) to learn the configuration, then with one. */
int
run_open_model(struct run *run, size_t max_tokens, struct err *err)
{
    if (!run->model) {
        if (open_tok_if_there(run, err) < 0 ||
            model_open(&run->model, run->dir, err) < 0)
            return -1;
        run->config = model_config(run->model);
        settle_sampler(run);
    }
    if (max_tokens == 0)
        return 0;
    if (check_context(run, max_tokens, err) < 0 ||
        par_open(&run->par, (int)run->n_threads, err) < 0)
        return -1;
    if (run->verbose)
        say_setup(run);
    return session_open(&run->session, run->model, run->par, max_tokens, err);
}

void
run_close(struct run *run)
{
    session_close(run->session);
    par_close(run->par);
    model_close(run->model);
    tok_close(run->tok);
    stop_free(&run->stop);
}

int
feed(struct run *run, const int32_t *ids, size_t n, float *last,
     int (*each)(void *ctx, const float *logits, size_t first, size_t n,
                 struct err *err),
     void *ctx, struct err *err)
{
    size_t vocab_size = (size_t)run->config->vocab_size;
    size_t chunk = n < (size_t)run->chunk ? n : (size_t)run->chunk;
    float *logits =
        each ? mem_big(chunk, vocab_size * sizeof(*logits), "logits", err)
             : NULL;
    int rc = each && !logits ? -1 : 0;

    for (size_t i = 0, k; rc == 0 && i < n; i += k) {
        k = n - i < chunk ? n - i : chunk;
        if (each)
            rc = session_feed(run->session, ids + i, k, logits, k, err);
        else
            rc = session_feed(run->session, ids + i, k, last, i + k == n, err);
        if (rc == 0 && each)
            rc = each(ctx, logits, i, k, err);
    }
    mem_big_free(logits, chunk, vocab_size * sizeof(*logits));
    return rc;
}
