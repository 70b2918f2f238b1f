/* Generation: one token after another, printed as they come. */
#include "cmd/hf-infer/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/js.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

#define DEFAULT_TOKENS 256 /* without -n */

struct generation {
    struct run *run;
    struct ids ids; /* the prompt, then what is generated */
    size_t n_prompt;
    int64_t max_tokens;
    bool to_the_brim; /* max_tokens is what the context has room for */
    struct sample *sample;
    float *logits; /* [vocab_size] */
    struct tok_stream *stream;
    struct str text; /* all of it with --json, else what is not printed yet */
    char last;       /* byte printed */
    const char *finish_reason;
    double prefill_s, decode_s;
};

static double
now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool
is_eos(const struct config *config, int32_t id)
{
    for (size_t i = 0; i < config->n_eos; i++)
        if (config->eos[i] == id)
            return true;
    return false;
}

/* What -n asks for, against what the context has room for. */
static int
plan(struct generation *g, struct err *err)
{
    int64_t context = g->run->config->max_positions;
    int64_t room = context - (int64_t)g->n_prompt;

    if (g->n_prompt == 0)
        return err_set(err, EX_DATAERR,
                       "the prompt is empty, and the tokenizer adds nothing "
                       "to it (expected at least 1 token)");
    if (room < 0 || g->run->max_tokens > room)
        return err_set(
            err, EX_DATAERR,
            "%s: the prompt has %zu tokens and -n is %lld, "
            "together %lld (expected at most %lld, the model's "
            "context)",
            g->run->dir, g->n_prompt,
            (long long)(g->run->max_tokens < 0 ? 0 : g->run->max_tokens),
            (long long)((int64_t)g->n_prompt +
                        (g->run->max_tokens < 0 ? 0 : g->run->max_tokens)),
            (long long)context);
    g->to_the_brim = g->run->max_tokens < 0 && room < DEFAULT_TOKENS;
    g->max_tokens = g->to_the_brim           ? room
                    : g->run->max_tokens < 0 ? DEFAULT_TOKENS
                                             : g->run->max_tokens;
    return 0;
}

/* Prints what is certain; keeps it with --json, which prints at the end. */
static int
show(struct generation *g, struct err *err)
{
    int rc;

    if (g->run->json || g->run->ids_out || g->text.n == 0)
        return 0;
    g->last = g->text.s[g->text.n - 1];
    rc = out_write(g->run->out, g->text.s, g->text.n, err);
    if (rc == 0)
        rc = out_flush(g->run->out, err);
    str_clear(&g->text);
    return rc;
}

/* Passes a piece of text through the stop strings; true if one ended it. */
static bool
pass(struct generation *g, const struct str *piece)
{
    if (g->run->stop.n)
        return stop_pass(&g->run->stop, piece->s ? piece->s : "", piece->n,
                         &g->text);
    if (piece->n)
        str_add(&g->text, piece->s, piece->n);
    return false;
}

/* Takes a chosen token: -1 error, 0 go on, 1 finished. */
static int
take(struct generation *g, int32_t id, struct err *err)
{
    struct str piece = { 0 };
    bool stopped = false;

    ids_add(&g->ids, id);
    if (is_eos(g->run->config, id)) {
        g->finish_reason = "eos";
        return 1;
    }
    if (g->stream) {
        tok_stream_add(g->stream, id, &piece);
        stopped = pass(g, &piece);
        str_free(&piece);
    }
    if (stopped)
        g->finish_reason = "stop";
    return show(g, err) < 0 ? -1 : stopped;
}

static int
loop(struct generation *g, struct err *err)
{
    const struct run *run = g->run;
    size_t vocab_size = (size_t)run->config->vocab_size;
    int rc = 0;

    g->finish_reason = g->to_the_brim ? "context" : "length";
    for (int64_t step = 0; step < g->max_tokens && rc == 0; step++) {
        int32_t id;

        if (step > 0 && session_feed(run->session, &g->ids.id[g->ids.n - 1], 1,
                                     g->logits, 1, err) < 0)
            return -1;
        if (!isfinite(vec_max(g->logits, vocab_size)))
            return err_set(err, EX_DATAERR,
                           "%s: the logits after %zu tokens are not finite",
                           run->dir, g->ids.n);
        id = sample_next(g->sample, &run->sampler, g->logits, g->ids.id,
                         g->ids.n, (uint64_t)step);
        rc = take(g, id, err);
    }
    return rc < 0 ? -1 : 0;
}

/* The end of the text: what the tokenizer or a stop string held back. */
static int
finish_text(struct generation *g, struct err *err)
{
    struct str piece = { 0 };

    if (g->stream && strcmp(g->finish_reason, "stop") != 0) {
        tok_stream_end(g->stream, &piece);
        if (pass(g, &piece))
            g->finish_reason = "stop";
        else
            stop_end(&g->run->stop, &g->text);
        str_free(&piece);
    }
    return show(g, err);
}

/* The bytes are the text's alone, but a person's prompt wants a new line. */
static int
end_line(const struct generation *g, struct err *err)
{
    if (g->run->output || g->last == '\n' || !isatty(1))
        return 0;
    return out_write(g->run->out, "\n", 1, err);
}

static void
say_full(const struct generation *g)
{
    if (strcmp(g->finish_reason, "context") == 0)
        err_warn("%s: the context of %lld tokens is full: the text ends here",
                 g->run->dir, (long long)g->run->config->max_positions);
}

static int
print_json(struct generation *g, struct err *err)
{
    struct str line = { 0 };
    int rc;

    str_adds(&line, "{\"prompt_ids\":");
    put_json_ids(&line, g->ids.id, g->n_prompt);
    str_adds(&line, ",\"ids\":");
    put_json_ids(&line, g->ids.id + g->n_prompt, g->ids.n - g->n_prompt);
    if (g->stream) {
        str_adds(&line, ",\"text\":");
        js_put_str(&line, g->text.s ? g->text.s : "", g->text.n);
    }
    str_addf(&line, ",\"finish_reason\":\"%s\"}\n", g->finish_reason);
    rc = out_write(g->run->out, line.s, line.n, err);
    str_free(&line);
    return rc;
}

static int
print_ids(struct generation *g, struct err *err)
{
    struct str line = { 0 };
    int rc;

    put_ids(&line, g->ids.id + g->n_prompt, g->ids.n - g->n_prompt);
    str_addc(&line, '\n');
    rc = out_write(g->run->out, line.s, line.n, err);
    str_free(&line);
    return rc;
}

static void
say_speed(const struct generation *g)
{
    size_t n = g->ids.n - g->n_prompt;

    if (!g->run->verbose)
        return;
    fprintf(stderr, "hf-infer: prompt %zu tokens in %.3f s (%.1f token/s)\n",
            g->n_prompt, g->prefill_s, (double)g->n_prompt / g->prefill_s);
    fprintf(stderr, "hf-infer: output %zu tokens in %.3f s (%.1f token/s)\n", n,
            g->decode_s, (double)n / g->decode_s);
}

/* The text of a continuation depends on what it continues: the decoder hears
 * the prompt first, and nobody sees that. */
static void
open_stream(struct generation *g)
{
    struct str unseen = { 0 };

    if (!g->run->tok)
        return;
    g->stream = tok_stream_new(g->run->tok, true);
    for (size_t i = 0; i < g->n_prompt; i++)
        tok_stream_add(g->stream, g->ids.id[i], &unseen);
    str_free(&unseen);
}

static int
generate(struct generation *g, struct err *err)
{
    struct run *run = g->run;
    double t0 = now(), t1;

    if (feed(run, g->ids.id, g->n_prompt, g->logits, NULL, NULL, err) < 0)
        return -1;
    t1 = now();
    open_stream(g);
    if (loop(g, err) < 0 || finish_text(g, err) < 0)
        return -1;
    g->prefill_s = t1 - t0;
    g->decode_s = now() - t1;
    say_full(g);
    say_speed(g);
    if (run->json)
        return print_json(g, err);
    return run->ids_out ? print_ids(g, err) : end_line(g, err);
}

int
run_generate(struct run *run, struct err *err)
{
    struct generation g = { .run = run };
    size_t vocab_size;
    int rc = prompt_ids(run, &g.ids, err);

    g.n_prompt = g.ids.n;
    if (rc == 0)
        rc = run_open_model(run, 0, err);
    if (rc == 0)
        rc = plan(&g, err);
    if (rc == 0 && !run->ids_out && !run->tok && !run->json)
        rc = run_open_tok(run, err);
    if (rc == 0)
        rc = run_open_model(run, g.n_prompt + (size_t)g.max_tokens, err);
    if (rc == 0) {
        vocab_size = (size_t)run->config->vocab_size;
        g.sample = sample_new(vocab_size);
        g.logits = xmalloc(vocab_size * sizeof(float));
        rc = generate(&g, err);
    }
    tok_stream_free(g.stream);
    sample_free(g.sample);
    free(g.logits);
    str_free(&g.text);
    ids_free(&g.ids);
    return rc;
}
